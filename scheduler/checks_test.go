package scheduler

import (
	"slices"
	"testing"

	"tranche/ledger"
)

// checked is a fleet that is heard of now, with the policy's rules for checks.
func checked(n int) Liveness {
	p := DefaultPolicy()
	in := fleet(n, 10_000*aSecond)
	in.Now = 10_000 * aSecond
	in.Checks = CheckRules{p.CheckBad, p.CheckGood, p.CheckDwellMs, p.AutoDrainPPM}
	return in
}

func TestChecksDegradeDrainAndGiveBack(t *testing.T) {
	now := 10_000 * aSecond
	ago := func(s Instant) Instant { return now - s*aSecond }
	for _, c := range []struct {
		name  string
		check NodeCheck
		want  *CheckChange // nil = as it was
	}{
		{"no check", NodeCheck{}, nil},
		{"two bad runs are not three", NodeCheck{Last: CheckDegraded, Streak: 2, Since: ago(120)}, nil},
		{"three are", NodeCheck{Last: CheckDegraded, Streak: 3, Since: ago(180)}, &CheckChange{1, true, ""}},
		{"it dwells", NodeCheck{Last: CheckDegraded, Streak: 7, Degraded: ago(299)}, nil},
		{"then it is drained", NodeCheck{Last: CheckDegraded, Streak: 8, Degraded: ago(300)}, &CheckChange{1, true, CheckDegraded}},
		{"a fault is drained hard", NodeCheck{Last: CheckFault, Streak: 8, Degraded: ago(300)}, &CheckChange{1, true, CheckFault}},
		{"and turns a soft drain hard", NodeCheck{Last: CheckFault, Streak: 9, Degraded: ago(400), Drained: CheckDegraded, Drain: true}, &CheckChange{1, true, CheckFault}},
		{"an operator's drain is left alone", NodeCheck{Last: CheckDegraded, Streak: 9, Degraded: ago(400), Drain: true}, nil},
		{"flapping does not drain", NodeCheck{Last: CheckDegraded, Streak: 1, Degraded: ago(900), Since: ago(1)}, nil},
		{"nor give back", NodeCheck{Last: CheckOK, Streak: 4, Degraded: ago(900), Since: ago(400), Drained: CheckDegraded, Drain: true}, nil},
		{"good, but not long enough", NodeCheck{Last: CheckOK, Streak: 5, Degraded: ago(900), Since: ago(299), Drained: CheckDegraded, Drain: true}, nil},
		{"good again", NodeCheck{Last: CheckOK, Streak: 5, Degraded: ago(900), Since: ago(300), Drained: CheckDegraded, Drain: true}, &CheckChange{1, false, ""}},
		{"the check is gone", NodeCheck{Degraded: ago(900), Drained: CheckFault, Drain: true}, &CheckChange{1, false, ""}},
	} {
		in := checked(10)
		in.Nodes[0].Check = c.check
		got := Reconcile(in).Checks
		if c.want == nil && len(got) > 0 || c.want != nil && !slices.Equal(got, []CheckChange{*c.want}) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Drains by checks never take more than a tenth of a pool at once, longest degraded
// first, and one always may.
func TestChecksDrainFewAtOnce(t *testing.T) {
	for _, c := range []struct{ nodes, bad, already, want int }{{5, 3, 0, 1}, {40, 9, 0, 4}, {40, 9, 3, 1}, {40, 9, 4, 0}} {
		in := checked(c.nodes)
		for i := range c.bad {
			in.Nodes[i].Check = NodeCheck{Last: CheckDegraded, Streak: 9, Degraded: in.Now - Instant(400+i)*aSecond}
		}
		for i := range c.already {
			in.Nodes[c.nodes-1-i].Check = NodeCheck{Last: CheckDegraded, Streak: 9, Degraded: in.Now - 2000*aSecond, Drained: CheckDegraded, Drain: true}
		}
		out := Reconcile(in)
		if len(out.Checks) != c.want || len(out.Frozen) > 0 {
			t.Errorf("%d of %d bad, %d drained: %d more, want %d; frozen %v", c.bad, c.nodes, c.already, len(out.Checks), c.want, out.Frozen)
			continue
		}
		for i, ch := range out.Checks { // by id, and the last numbers have been degraded longest
			if want := ledger.NodeID(c.bad - c.want + i + 1); ch.Node != want {
				t.Errorf("node %d is drained, want %d", ch.Node, want)
			}
		}
	}
}

func TestS17ManyDegradedAtOnceAreAStorm(t *testing.T) {
	in := checked(64)
	for i := range 30 {
		in.Nodes[i].Check = NodeCheck{Last: CheckDegraded, Streak: 5, Degraded: in.Now - 299*aSecond, Since: in.Now - 500*aSecond}
	}
	in.Checks.DwellMs = 60_000
	if out := Reconcile(in); len(out.Frozen) != 1 || len(out.Checks) > 0 || len(out.Changes) > 0 {
		t.Errorf("frozen %v, drained %v, changed %v", out.Frozen, out.Checks, out.Changes)
	}
	in.Now += 2 * aSecond // the storm is over, and they are still bad
	if out := Reconcile(in); len(out.Frozen) > 0 || len(out.Checks) != 6 {
		t.Errorf("afterwards: frozen %v, %d drained, want 6", out.Frozen, len(out.Checks))
	}
}

// A lost node's checks say nothing any more, and drains in one pool leave the other its own.
func TestChecksOfLostNodesAndOtherPools(t *testing.T) {
	in := checked(2)
	bad := NodeCheck{Last: CheckDegraded, Streak: 9, Degraded: in.Now - 400*aSecond}
	in.Nodes[0].Check, in.Nodes[1].Check = bad, bad
	in.Nodes[1].Pool = 2
	if got := Reconcile(in).Checks; !slices.Equal(got, []CheckChange{{1, true, CheckDegraded}, {2, true, CheckDegraded}}) {
		t.Errorf("in two pools: %+v", got)
	}
	in.Nodes[0].Health, in.Nodes[0].LastBeat = Lost, in.Now-9000*aSecond
	if got := Reconcile(in).Checks; !slices.Equal(got, []CheckChange{{2, true, CheckDegraded}}) {
		t.Errorf("of a lost one: %+v", got)
	}
}
