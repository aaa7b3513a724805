package scheduler

import "testing"

// What is leased, but not claimed yet, waits again when its node drains or breaks; a node
// that is only silent for a minute may still claim it.
func TestWhatHasNotStartedLeavesASickNode(t *testing.T) {
	for health, want := range map[Health]Rule{Healthy: "", Suspect: "", Draining: Replan, Faulted: Replan} {
		s := pairWorld()
		s.Waiting, s.Live = nil, s.Live[:1]
		l := &s.Live[0]
		l.Phase, l.Since, l.Started, l.ProtectedUntil, l.HoldUntilMs = Starting, begun, 0, 0, anHour
		s.Nodes[0].Health = health
		got := Rule("")
		if plan := Decide(s); len(plan.Stops) > 0 {
			got = plan.Stops[0].Rule
		}
		if got != want {
			t.Errorf("on a node of health %d: %q, want %q", health, got, want)
		}
	}
}
