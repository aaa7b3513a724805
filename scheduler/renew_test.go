package scheduler

import (
	"testing"

	"tranche/ledger"
)

// Only who runs on a budget, and goes on running after the cycle's evictions, is answered;
// only who sits at an interactive attempt is warned.
func TestWhoIsAnsweredAndWarned(t *testing.T) {
	for _, c := range []struct {
		name             string
		alter            func(s *Snapshot, l *Live)
		renewals, warned int
	}{
		{"a protected attempt", func(*Snapshot, *Live) {}, 1, 0},
		{"an interactive one", func(_ *Snapshot, l *Live) { l.Job.Contract.Interactive = true }, 1, 1},
		{"an unfunded one", func(_ *Snapshot, l *Live) { l.Funded, l.ProtectedUntil = false, 0 }, 0, 0},
		{"one that is ending", func(_ *Snapshot, l *Live) { l.Phase = Ending }, 0, 0},
		{"one that is evicted in this cycle", func(s *Snapshot, l *Live) {
			l.ProtectedUntil = begun.Add(-2 * anHour)
			s.Waiting = []Job{jobOf(9, 2, 1, 1, 1000, anHour)}
		}, 0, 0},
	} {
		s := pairWorld()
		s.Waiting, s.Live = nil, s.Live[:1]
		s.Nodes[0].Devices = s.Nodes[0].Devices[:1]
		f := s.Funds[0]
		f.Project, f.Lots = 3, []ledger.Lot{f.Lots[0]}
		f.Lots[0].ID, f.Lots[0].Project = 2, 3
		s.Funds = append(s.Funds, f)
		l := &s.Live[0]
		l.ProtectedUntil, l.RenewMs, l.HoldUntilMs = begun.Add(5*aMinute), anHour, 10*anHour
		c.alter(s, l)
		if plan := Decide(s); len(plan.Renewals) != c.renewals || len(plan.Warnings) != c.warned {
			t.Errorf("%s: renewals %+v, warnings %+v", c.name, plan.Renewals, plan.Warnings)
		}
	}
}

// Protection that is over is not ended again for idleness.
func TestIdlenessEndsProtectionOnce(t *testing.T) {
	for until, want := range map[Instant]int{begun.Add(anHour): 1, begun: 0} {
		s := pairWorld()
		s.Waiting, s.Live, s.Policy.IdleUnprotectMs = nil, s.Live[:1], anHour
		s.Live[0].ProtectedUntil, s.Live[0].IdleSince = until, begun.Add(-anHour)
		if plan := Decide(s); len(plan.Unprotect) != want {
			t.Errorf("protected for %d min more: unprotects %v", until.MillisSince(begun)/aMinute, plan.Unprotect)
		}
	}
}

// A slice that is over shuts nothing, though it is still in the snapshot.
func TestASliceThatIsOverShutsNothing(t *testing.T) {
	for end, want := range map[Instant]bool{begun: true, begun.Add(1): false} {
		s := pairWorld()
		s.Live = nil
		s.Slices = []Slice{{ID: 1, Project: 3, Pool: 1, GPUs: 2, From: begun.Add(-anHour), To: end, Devices: []Named{{1, 0}, {1, 1}}}}
		if plan := Decide(s); (plan.startOf(9) != nil) != want {
			t.Errorf("a slice until %d µs from now: starts %+v", end-begun, plan.Starts)
		}
	}
}
