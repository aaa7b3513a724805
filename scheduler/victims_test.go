package scheduler

import (
	"testing"

	"tranche/ledger"
)

// pairWorld is a node of two devices, one attempt of project 3 on each, past its
// protection, and a job of project 2, which has had nothing, that wants one device.
func pairWorld() *Snapshot {
	s := &Snapshot{
		Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, RatePPM: 1_000_000}},
		Groups: []Group{{ID: 1, Path: "/lab"}, {ID: 2, Parent: 1, Path: "/lab/a", Project: true}, {ID: 3, Parent: 1, Path: "/lab/b", Project: true}},
		Shares: []Share{{1, 1, 2_000_000}, {1, 2, 1_000_000}, {1, 3, 1_000_000}},
		Usage:  []Usage{{Pool: 1, Project: 3, Funded: 100_000 * anHour}},
		Funds: []ledger.Funds{{Project: 2, Pool: 1, Path: "/lab/a", Lots: []ledger.Lot{{
			ID: 1, Project: 2, Pool: 1, Period: 1, First: begun.Add(-anHour), Last: begun.Add(1000 * anHour), Available: 100 * ledger.GPUHour,
		}}}},
		Nodes:   []Node{{ID: 1, Pool: 1, CPUMilli: 640_000, RAMMiB: 10_000_000, Devices: []Device{{Index: 0}, {Index: 1}}}},
		Waiting: []Job{jobOf(9, 2, 1, 1, 1000, anHour)},
	}
	for i := range int32(2) {
		l := Live{Job: jobOf(int(i)+1, 3, 1, 1, 1000, anHour), N: 1, Attempt: ledger.AttemptID(i + 1), Phase: Running, Funded: true}
		l.Since, l.Started, l.ProtectedUntil, l.HoldUntilMs = begun.Add(-3*anHour), begun.Add(-3*anHour), begun.Add(-2*anHour), 10*anHour
		l.Placed = []Placed{{Node: 1, Devices: []int32{i}, GPUMilli: 1000}}
		s.Live = append(s.Live, l)
	}
	return s
}

// Of two that are alike the one that has lost less since its last checkpoint leaves,
// then the younger one, then the lower job number.
func TestOfTwoVictimsTheOneWithLessToLoseLeaves(t *testing.T) {
	for _, c := range []struct {
		name  string
		alter func(first, second *Live)
		want  ledger.JobID
	}{
		{"alike", func(_, _ *Live) {}, 1},
		{"saved of late", func(_, b *Live) { b.Checkpoint = begun.Add(-aMinute) }, 2},
		{"younger", func(_, b *Live) { b.Since, b.Started = b.Since.Add(aMinute), b.Started.Add(aMinute) }, 2},
		{"as much to lose, younger", func(a, b *Live) {
			a.Checkpoint, b.Checkpoint = begun.Add(-aMinute), begun.Add(-aMinute)
			b.Since, b.Started = b.Since.Add(aMinute), b.Started.Add(aMinute)
		}, 2},
		{"older, but saved later", func(a, b *Live) {
			a.Since, a.Started = a.Since.Add(aMinute), a.Started.Add(aMinute)
			b.Checkpoint = begun.Add(-aMinute)
		}, 2},
	} {
		s := pairWorld()
		c.alter(&s.Live[0], &s.Live[1])
		plan := Decide(s)
		if st := plan.startOf(9); st == nil || len(st.Evict) != 1 || st.Evict[0].Job != c.want {
			t.Errorf("%s: %+v, want job %d to leave", c.name, st, c.want)
		}
	}
}
