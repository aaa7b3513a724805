package scheduler

import (
	"testing"

	"tranche/ledger"
)

// What a holder holds was drawn for T*: it starts before that only when its lots
// are valid by then.
func TestAHolderStartsEarlyOnlyWithinItsLots(t *testing.T) {
	for _, c := range []struct {
		name  string
		first Instant
		want  int
	}{
		{"valid now", begun.Add(-anHour), 1},
		{"valid from T* on", begun.Add(3 * anHour), 0},
	} {
		job := Job{ID: 1, Project: 2, Pool: 1, Shape: Shape{Nodes: 1, GPUs: 8}, Rate: ledger.Rate{MilliGPU: 8000, PPM: 1_000_000}, Contract: Contract{MinMs: anHour}}
		hold := []ledger.Piece{{Lot: 1, Amount: 8 * ledger.GPUHour}}
		node := Node{ID: 1, Pool: 1, CPUMilli: 64_000, RAMMiB: 1000}
		for i := range int32(8) {
			node.Devices = append(node.Devices, Device{Index: i})
		}
		// Another node is protected until T*, the job's own is free already.
		res := &Reservation{Since: begun, At: begun.Add(3 * anHour), Nodes: []ledger.NodeID{2}}
		other := node
		other.ID = 2
		busy := Live{
			Job: Job{ID: 9, Project: 2, Pool: 1, Shape: job.Shape, Rate: job.Rate, Contract: Contract{MinMs: 3 * anHour, MaxMs: 9 * anHour}}, N: 1, Attempt: 1,
			Phase: Running, Funded: true, Since: begun, Started: begun, ProtectedUntil: res.At, HoldUntilMs: 3 * anHour,
			Placed: []Placed{{Node: 2, Devices: []int32{0, 1, 2, 3, 4, 5, 6, 7}, GPUMilli: 1000}},
		}
		s := &Snapshot{
			Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, RatePPM: 1_000_000}},
			Groups: []Group{{ID: 1, Path: "/lab"}, {ID: 2, Parent: 1, Path: "/lab/a", Project: true}},
			Shares: []Share{{1, 1, 1_000_000}, {1, 2, 1_000_000}},
			Funds:  []ledger.Funds{{Project: 2, Pool: 1, Path: "/lab/a", Lots: []ledger.Lot{{ID: 1, Project: 2, Pool: 1, Period: 1, First: c.first, Last: begun.Add(1000 * anHour), Available: ledger.GPUHour}}}},
			Nodes:  []Node{node, other},
			Live:   []Live{{Job: job, N: 1, Attempt: 2, Phase: Reserved, Funded: true, Since: begun, HoldUntilMs: anHour, Reserved: res, Hold: hold}, busy},
		}
		p := Decide(s)
		if len(p.Starts) != c.want || len(p.Stops) > 0 {
			t.Errorf("%s: starts %+v, stops %+v", c.name, p.Starts, p.Stops)
		}
	}
}

// Who is leased, but has not been claimed yet, may be protected from now on: T* is after
// that.
func TestAPromiseWaitsForWhoIsStarting(t *testing.T) {
	s := pairWorld()
	s.Usage = nil
	s.Live[0].Phase, s.Live[0].Started, s.Live[0].ProtectedUntil, s.Live[0].Job.Contract.MinMs = Starting, 0, 0, 2*anHour
	s.Live[0].Since, s.Live[0].HoldUntilMs = begun, 2*anHour
	s.Live[1].ProtectedUntil = begun.Add(anHour)
	s.Waiting[0] = jobOf(9, 2, 1, 2, 1000, anHour)
	s.Tried = []ledger.JobID{9}
	plan := Decide(s)
	if len(plan.Reserves) != 1 || plan.Reserves[0].Reservation.At != begun.Add(2*anHour) {
		t.Errorf("reserves %+v", plan.Reserves)
	}
}

// A pool has one reserved start: the second holder of a snapshot waits again.
func TestAPoolHasOneHolder(t *testing.T) {
	s := pairWorld()
	for i := range s.Live {
		s.Live[i].ProtectedUntil = begun.Add(anHour)
	}
	s.Waiting = nil
	for id := 8; id <= 9; id++ {
		l := Live{Job: jobOf(id, 2, 1, 2, 1000, anHour), N: 1, Attempt: ledger.AttemptID(id), Phase: Reserved, Funded: true, Since: begun, HoldUntilMs: anHour}
		l.Reserved = &Reservation{Since: begun, At: begun.Add(anHour), Nodes: []ledger.NodeID{1}}
		l.Hold = []ledger.Piece{{Lot: 1, Amount: 2 * ledger.GPUHour}}
		s.Live = append(s.Live, l)
	}
	plan := Decide(s)
	if len(plan.Stops) != 1 || plan.Stops[0].Job != 9 || plan.Stops[0].Rule != Unreserved || plan.Reserved[0].Holder.Job != 8 {
		t.Errorf("stops %+v, reserved %+v", plan.Stops, plan.Reserved)
	}
}
