package scheduler

import "testing"

// What an attempt is promised counts in its project's standing: the minimum before it has
// started, then what is left of its protection and never less than the floor; nothing once
// it is ending, and nothing among the funded once its money has ended.
func TestCommitments(t *testing.T) {
	floor := DefaultPolicy().CommitFloorMs
	for _, c := range []struct {
		name  string
		alter func(l *Live)
		want  int64 // ms of one GPU
	}{
		{"nominated", func(l *Live) { l.Phase, l.Started, l.ProtectedUntil = Nominated, 0, 0 }, 2 * anHour},
		{"leased", func(l *Live) { l.Phase, l.Started, l.ProtectedUntil = Starting, 0, 0 }, 2 * anHour},
		{"protected", func(l *Live) { l.ProtectedUntil = begun.Add(anHour) }, anHour},
		{"soon past its protection", func(l *Live) { l.ProtectedUntil = begun.Add(aMinute) }, floor},
		{"past its protection", func(*Live) {}, floor},
		{"ending", func(l *Live) { l.Phase, l.ProtectedUntil = Ending, begun.Add(anHour) }, 0},
		{"unfunded", func(l *Live) { l.Funded = false }, 0},
		{"its money ends in this cycle", func(l *Live) { l.HoldUntilMs = 3 * anHour }, 0},
	} {
		s := pairWorld()
		s.Waiting, s.Live = nil, s.Live[:1]
		s.Live[0].Job.Contract.MinMs = 2 * anHour
		c.alter(&s.Live[0])
		got := int64(-1)
		for _, st := range Decide(s).Standings {
			if st.Group == 3 {
				got = st.Commitment / s.Live[0].Job.Rate.MilliGPU
			}
		}
		if got != c.want {
			t.Errorf("%s: %d min, want %d", c.name, got/aMinute, c.want/aMinute)
		}
	}
}

// A cycle that has used up its work says so to whoever it has not come to.
func TestACyclesWorkIsBounded(t *testing.T) {
	for most, want := range map[int64]string{1: WhyOutOfWork, 1000: ""} {
		s := pairWorld()
		s.Live, s.Policy.MaxSteps = nil, most
		s.Waiting = []Job{jobOf(8, 2, 1, 1, 1000, anHour), jobOf(9, 2, 1, 1, 1000, anHour)}
		plan := Decide(s)
		if got := codeOf(plan.reasonOf(9)); plan.startOf(8) == nil || got != want || (plan.startOf(9) == nil) != (want != "") {
			t.Errorf("%d steps: starts %+v, job 9 waits for %q", most, plan.Starts, got)
		}
	}
}
