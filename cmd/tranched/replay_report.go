package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
)

// replayReport is the JSON object that a replay prints.
type replayReport struct {
	JobsSubmitted int `json:"jobs_submitted"`
	JobsFinished  int `json:"jobs_finished"` // ran to their own end in the window
	JobsCutOff    int `json:"jobs_cut_off"`  // still ran at the window's end
	JobsWaiting   int `json:"jobs_waiting"`  // waited at the window's end, run or not before
	JobsFailed    int `json:"jobs_failed"`   // ended by something else
	LinesSkipped  int `json:"lines_skipped"` // malformed, with --lenient
	Attempts      int `json:"attempts"`
	Preemptions   int `json:"preemptions"`

	FundedGPUHours   hundredths `json:"funded_gpu_hours"`
	UnfundedGPUHours hundredths `json:"unfunded_gpu_hours"`
	EndingGPUHours   hundredths `json:"ending_gpu_hours"` // told to stop, not gone yet
	TakenGPUHours    hundredths `json:"taken_gpu_hours"`  // from the lease to the end's report: the above, and what starting and reporting cost

	Occupancy            hundredths `json:"occupancy_pct"`
	OccupancyWhileQueued hundredths `json:"occupancy_pct_while_queued"` // while waiting jobs ask for more GPUs than the fleet has
	TakenWhileQueued     hundredths `json:"taken_pct_while_queued"`
	QueuedHours          hundredths `json:"queued_hours"`

	ChargedUnits  ledger.Amount `json:"charged_units"`  // the ledger's spent accounts
	AttemptsUnits ledger.Amount `json:"attempts_units"` // recomputed from the launchers' end records
	BooksSum      ledger.Amount `json:"books_sum"`
	Verify        string        `json:"verify"` // "ok", or the first difference

	StartP50Ms float64 `json:"start_ms_p50"` // real ms from lease to claim
	StartP90Ms float64 `json:"start_ms_p90"`
	Cycles     int     `json:"cycles"`
	CycleP50Ms float64 `json:"cycle_ms_p50"`
	CycleP99Ms float64 `json:"cycle_ms_p99"`
	Seconds    float64 `json:"real_seconds"`
}

// hundredths prints a quantity with two decimals.
type hundredths float64

// MarshalJSON writes 12.3 as 12.30.
func (h hundredths) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%.2f", float64(h)), nil }

// step is a change, at an instant, of what is asked for and of what is occupied,
// in milli-GPU.
type step struct {
	at                       ledger.Instant
	waiting, occupied, taken int64
}

// integrals are GPU-times over a window, in milli-GPU-µs, and the part of the
// window in which more was asked for than there is.
type integrals struct {
	occupied, taken             int64
	queuedOccupied, queuedTaken int64
	queued                      int64 // µs
}

// integrate adds up the steps between the window's ends; fleet is in milli-GPU.
func integrate(steps []step, w window, fleet int64) integrals {
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	var sum integrals
	var now step
	at := w.From
	advance := func(to ledger.Instant) {
		if to = min(to, w.To); to <= at {
			return
		}
		span := int64(to - at)
		sum.occupied += now.occupied * span
		sum.taken += now.taken * span
		if now.waiting > fleet {
			sum.queued += span
			sum.queuedOccupied += now.occupied * span
			sum.queuedTaken += now.taken * span
		}
		at = to
	}
	for _, s := range steps {
		advance(s.at)
		now.waiting += s.waiting
		now.occupied += s.occupied
		now.taken += s.taken
	}
	advance(w.To)
	return sum
}

// span makes the two steps of something that lasts from a to b.
func span(a, b ledger.Instant, s step) []step {
	if b <= a {
		return nil
	}
	s.at = a
	return []step{s, {at: b, waiting: -s.waiting, occupied: -s.occupied, taken: -s.taken}}
}

// replaySteps turns the jobs' and attempts' times into steps. Jobs are by id,
// attempts by job and number.
func replaySteps(facts store.ReplayFacts, w window) []step {
	var steps []step
	byJob := map[ledger.JobID][]store.AttemptFacts{}
	for _, a := range facts.Attempts {
		byJob[a.Job] = append(byJob[a.Job], a)
		end := a.Ended
		if end == 0 {
			end = w.To
		}
		steps = append(steps, span(a.Since, end, step{taken: a.OccupiedMilli})...)
	}
	for _, j := range facts.Jobs {
		from := j.Submitted
		for _, a := range byJob[j.ID] {
			steps = append(steps, span(from, a.Since, step{waiting: j.MilliGPU})...)
			from = a.Ended
			if from == 0 {
				from = w.To
			}
		}
		if j.Finished == 0 || j.Finished > w.To {
			steps = append(steps, span(from, w.To, step{waiting: j.MilliGPU})...)
		}
	}
	for _, s := range facts.Segments {
		if s.Class == "funded" || s.Class == "unfunded" {
			steps = append(steps, span(s.First, s.Last, step{occupied: s.OccupiedMilli})...)
		}
	}
	return steps
}

// classHours sums the segments of one class inside the window, in GPU-hours.
func classHours(segments []store.SegmentFacts, class string, w window) hundredths {
	var sum int64
	for _, s := range segments {
		if first, last := max(s.First, w.From), min(s.Last, w.To); s.Class == class && first < last {
			sum += s.OccupiedMilli * int64(last-first)
		}
	}
	return gpuHours(sum)
}

// gpuHours converts milli-GPU-µs.
func gpuHours(milliGPUMicros int64) hundredths { return hundredths(float64(milliGPUMicros) / 3.6e12) }

// percent is part of a whole in %, 0 of nothing.
func percent(part, whole int64) hundredths {
	if whole == 0 {
		return 0
	}
	return hundredths(100 * float64(part) / float64(whole))
}

// quantile gives the q-th part of sorted values, 0 of none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	d := sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
	return float64(d.Microseconds()) / 1000
}

// readEnds reads the launchers' own end records, by attempt.
func readEnds(folder string) (map[ledger.AttemptID][]api.EndedReport, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	ends := map[ledger.AttemptID][]api.EndedReport{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("end record: %w", err)
		}
		var end api.EndedReport
		if err := json.Unmarshal(text, &end); err != nil {
			return nil, fmt.Errorf("end record %s: %w", name, err)
		}
		ends[end.Attempt] = append(ends[end.Attempt], end)
	}
	if len(ends) == 0 {
		return nil, errors.New("no launcher left an end record in " + folder)
	}
	return ends, nil
}

// unitsFromEnds recomputes one attempt's charge without the ledger's arithmetic:
// from what the launchers measured and wrote down. A gang lasts as long as its
// longest part. Who makes room for another pays up to the signal.
func unitsFromEnds(ends []api.EndedReport, a store.AttemptFacts, speed int64) ledger.Amount {
	var ms int64
	for _, end := range ends {
		us := end.ElapsedUS
		if end.TermUS > 0 && signalEndsCharge(a.StopRule) {
			us = min(us, end.TermUS)
		}
		ms = max(ms, us*speed/1000)
	}
	if !a.Funded { // from the start, or since its money ended
		ms = min(ms, a.FundedMs)
	}
	units := new(big.Int).Mul(big.NewInt(a.MilliGPU), big.NewInt(a.RatePPM))
	units.Mul(units, big.NewInt(ms)).Div(units, big.NewInt(1_000_000_000))
	return ledger.Amount(units.Int64())
}

// signalEndsCharge tells the stops that the institute asks for from those that
// the job's owner, its contract or its money asked for.
func signalEndsCharge(rule string) bool {
	switch scheduler.Rule(rule) {
	case "", scheduler.Cancelled, scheduler.MoneyEnded, scheduler.MaxRuntime, scheduler.GangFailed:
		return false
	}
	return true
}
