package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"tranche/scheduler"
	"tranche/store"
)

// recordBacklog is how many cycles may wait to be recorded.
const recordBacklog = 8

// recorded is one cycle on its way to the record.
type recorded struct {
	report scheduler.Report
	took   time.Duration
}

// recorder takes what cycles decided from off their path. When it cannot keep up
// it leaves cycles out, and says so.
type recorder struct {
	work    chan recorded
	metrics *metrics
	log     *slog.Logger
	skipped bool // the queue was full; told once until it is not any more
}

func newRecorder(s *site) *recorder {
	return &recorder{work: make(chan recorded, recordBacklog), metrics: s.metrics, log: s.log}
}

// take hands a cycle over and never waits.
func (r *recorder) take(report scheduler.Report, took time.Duration) {
	select {
	case r.work <- recorded{report, took}:
		r.skipped = false
	default:
		r.metrics.unrecorded.Inc()
		if !r.skipped {
			r.log.Warn("cycles come faster than they are recorded: some will be missing in replays")
		}
		r.skipped = true
	}
}

// write records until ctx ends or another server leads.
func (r *recorder) write(ctx context.Context, to *store.Recorder) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-r.work:
			done, err := to.Record(ctx, c.report, c.took)
			switch {
			case errors.Is(err, store.ErrFenced):
				return err
			case ctx.Err() != nil:
				return nil
			case err != nil:
				r.metrics.unrecorded.Inc()
				r.log.Warn("a cycle was not recorded; replays will miss it", "cycle", c.report.Plan.Cycle, "cause", err)
				continue
			}
			r.metrics.recordBytes.Add(float64(done.Bytes))
			if done.Dropped > 0 {
				r.log.Warn("cycle records took more room than they may: the oldest were dropped", "records", done.Dropped)
			}
		}
	}
}
