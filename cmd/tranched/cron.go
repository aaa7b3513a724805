package main

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"tranche/ledger"
)

const (
	day           = 24 * 60 * minute
	telemetryKept = 7 * day
	recordsKept   = 90 * day
)

// timedJob is one line of the server's timetable, in UTC.
type timedJob struct {
	name, spec string
	work       func(context.Context) (outcome string, err error)
}

func (s *site) timetable() []timedJob {
	return []timedJob{
		{"sweep", "17 * * * *", s.sweep},
		{"learn", "*/5 * * * *", s.learn},
	}
}

func (s *site) sweep(ctx context.Context) (string, error) {
	removed, err := s.store.Sweep(ctx, telemetryKept, recordsKept)
	return fmt.Sprintf("removed %d rows", removed), err
}

// learn counts what jobs the pools get, for the placer.
func (s *site) learn(ctx context.Context) (string, error) {
	learnt, err := s.store.LearnMixes(ctx)
	return fmt.Sprintf("%d pools learnt", learnt), err
}

// keepTime runs the timetable until ctx ends. Each occurrence runs on one server
// only; one that fell into an outage is left out, since its work is done by the next.
func (s *site) keepTime(ctx context.Context) error {
	table := cron.New(cron.WithLocation(time.UTC), cron.WithChain(cron.Recover(cron.DiscardLogger), cron.SkipIfStillRunning(cron.DiscardLogger)))
	for _, job := range s.timetable() {
		if _, err := table.AddFunc(job.spec, func() { s.runTimed(ctx, job) }); err != nil {
			return fmt.Errorf("timetable: %s: %w", job.name, err)
		}
	}
	table.Start()
	<-ctx.Done()
	<-table.Stop().Done()
	return nil
}

// runTimed does one occurrence; cron runs within the second it is due.
func (s *site) runTimed(ctx context.Context, job timedJob) {
	due := ledger.At(clock().Truncate(time.Minute))
	ran, err := s.store.CronRun(ctx, job.name, due, job.work)
	if err != nil && ctx.Err() == nil {
		s.log.Error("timed job failed", "job", job.name, "cause", err)
	} else if ran {
		s.log.Debug("timed job done", "job", job.name)
	}
}
