package main

import (
	"testing"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
)

func TestIntegrateSeesOnlyTheWindow(t *testing.T) {
	w := window{1000, 2000}
	var steps []step
	steps = append(steps, span(500, 1500, step{occupied: 4000, taken: 4000})...)  // half of it inside
	steps = append(steps, span(1400, 2500, step{waiting: 9000})...)               // more than the fleet from 1400 on
	steps = append(steps, span(1800, 1900, step{occupied: 8000, taken: 8000})...) // inside, while queued
	steps = append(steps, span(1900, 1900, step{occupied: 1})...)                 // nothing
	got := integrate(steps, w, 8000)
	want := integrals{
		occupied: 4000*500 + 8000*100, taken: 4000*500 + 8000*100,
		queuedOccupied: 4000*100 + 8000*100, queuedTaken: 4000*100 + 8000*100, queued: 600,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestReplayStepsCountWaitingBetweenAttempts(t *testing.T) {
	w := window{0 + 1, 10_001}
	facts := store.ReplayFacts{
		Jobs: []store.JobFacts{{ID: 1, Submitted: 1001, Finished: 9001, MilliGPU: 2000}, {ID: 2, Submitted: 9001, MilliGPU: 1000}},
		Attempts: []store.AttemptFacts{
			{ID: 1, Job: 1, OccupiedMilli: 2000, Since: 2001, Ended: 3001},
			{ID: 2, Job: 1, OccupiedMilli: 2000, Since: 5001, Ended: 9001},
		},
		Segments: []store.SegmentFacts{{Class: "funded", OccupiedMilli: 2000, First: 5501, Last: 9001}, {Class: "ending", OccupiedMilli: 2000, First: 2500, Last: 3001}},
	}
	got := integrate(replaySteps(facts, w), w, 999)
	// Waiting: 1001–2001 and 3001–5001 for job 1, 9001–10001 for job 2.
	want := integrals{occupied: 2000 * 3500, taken: 2000 * 5000, queued: 1000 + 2000 + 1000}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := classHours(facts.Segments, "funded", window{6001, 7001}); got != gpuHours(2000*1000) {
		t.Error(got)
	}
}

func TestUnitsFromEnds(t *testing.T) {
	attempts := []store.AttemptFacts{
		{ID: 1, MilliGPU: 1000, RatePPM: 1_000_000, Funded: true},                     // 2 s of 1 GPU
		{ID: 2, MilliGPU: 8000, RatePPM: 1_000_000, Funded: true, StopRule: "V3"},     // to the signal
		{ID: 3, MilliGPU: 8000, RatePPM: 1_000_000, Funded: true, StopRule: "cancel"}, // to the exit
		{ID: 4, MilliGPU: 8000, RatePPM: 1_000_000},                                   // unfunded
		{ID: 5, MilliGPU: 1000, RatePPM: 500_000, FundedMs: 1500},                     // money ended
		{ID: 6, MilliGPU: 16000, RatePPM: 1_000_000, Funded: true},                    // a gang: its longest part
		{ID: 7, MilliGPU: 1000, RatePPM: 1_000_000, Funded: true},                     // never ran: no record
	}
	ends := map[ledger.AttemptID][]api.EndedReport{
		1: {{ElapsedUS: 20_000}},
		2: {{ElapsedUS: 30_000, TermUS: 10_000}},
		3: {{ElapsedUS: 30_000, TermUS: 10_000}},
		4: {{ElapsedUS: 30_000}},
		5: {{ElapsedUS: 90_000}},
		6: {{ElapsedUS: 10_000}, {ElapsedUS: 10_005}},
	}
	const speed = 100
	want := ledger.Amount(2000 + 8*1000 + 8*3000 + 750 + 16*1000)
	var got ledger.Amount
	for _, a := range attempts {
		got += unitsFromEnds(ends[a.ID], a, speed)
	}
	if got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
