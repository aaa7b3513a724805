package scheduler

import (
	"slices"
	"testing"

	"tranche/ledger"
)

const aSecond = Instant(1_000_000)

// fleet is n healthy nodes of one pool, last heard of at an instant.
func fleet(n int, beat Instant) Liveness {
	in := Liveness{FreezePPM: 200_000, FreezeNodes: 3}
	for i := range n {
		in.Nodes = append(in.Nodes, NodeFacts{ID: ledger.NodeID(i + 1), Pool: 1, LastBeat: beat})
	}
	return in
}

func TestSilenceTurnsSuspectThenLost(t *testing.T) {
	const t0 = 1000 * aSecond
	for _, c := range []struct {
		name   string
		health Health
		silent Instant
		leader Instant // since, before now
		want   Health
	}{
		{"59 s", Healthy, 59 * aSecond, 9999 * aSecond, Healthy},
		{"60 s", Healthy, 60 * aSecond, 9999 * aSecond, Suspect},
		{"a new leader has heard nothing yet", Healthy, 900 * aSecond, 59 * aSecond, Healthy},
		{"back", Suspect, 1 * aSecond, 9999 * aSecond, Healthy},
		{"draining stays draining", Draining, 90 * aSecond, 9999 * aSecond, Draining},
		{"5 min", Suspect, 300 * aSecond, 9999 * aSecond, Lost},
		{"draining is lost too", Draining, 300 * aSecond, 9999 * aSecond, Lost},
		{"server was down 20 min", Healthy, 1200 * aSecond, 10 * aSecond, Healthy},
		{"a lost node returns", Lost, 2 * aSecond, 9999 * aSecond, Healthy},
		{"a lost node stays lost", Lost, 2000 * aSecond, 9999 * aSecond, Lost},
	} {
		in := fleet(1, t0)
		in.Now = t0 + c.silent
		in.LeaderSince = in.Now - c.leader
		in.Nodes[0].Health = c.health
		got := c.health
		if changes := Reconcile(in).Changes; len(changes) == 1 {
			got = changes[0].To
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestSuspectForAnUnconfirmedKillStays(t *testing.T) {
	in := fleet(1, 1000*aSecond)
	in.Now = 1001 * aSecond
	in.Nodes[0].Health, in.Nodes[0].Doubted = Suspect, true
	if changes := Reconcile(in).Changes; len(changes) != 0 {
		t.Errorf("changed %+v", changes)
	}
}

// S17: 30 of 64 nodes silent at once: none lost, the pool frozen, until they return.
func TestS17Storm(t *testing.T) {
	in := fleet(64, 1000*aSecond)
	for _, minutes := range []Instant{1, 5, 10} {
		in.Now = (1000 + 60*minutes) * aSecond
		for i := 30; i < 64; i++ {
			in.Nodes[i].LastBeat = in.Now
		}
		out := Reconcile(in)
		changes, frozen := out.Changes, out.Frozen
		if !slices.Equal(frozen, []ledger.PoolID{1}) {
			t.Fatalf("after %d min: frozen %v", minutes, frozen)
		}
		for _, c := range changes {
			if c.To == Lost {
				t.Fatalf("after %d min: node %d is lost", minutes, c.Node)
			}
			in.Nodes[c.Node-1].Health = c.To
		}
	}
	in.Now += aSecond
	for i := range in.Nodes {
		in.Nodes[i].LastBeat = in.Now
	}
	out := Reconcile(in)
	changes, frozen := out.Changes, out.Frozen
	if len(frozen) != 0 || len(changes) != 30 || changes[0].To != Healthy {
		t.Errorf("after the storm: frozen %v, %d changes", frozen, len(changes))
	}
}

func TestTwoOfTenAreNoStorm(t *testing.T) {
	in := fleet(10, 1000*aSecond)
	in.Now = 1400 * aSecond
	for i := 2; i < 10; i++ {
		in.Nodes[i].LastBeat = in.Now
	}
	out := Reconcile(in)
	changes, frozen := out.Changes, out.Frozen
	if len(frozen) != 0 || len(changes) != 2 || changes[0].To != Lost {
		t.Errorf("frozen %v, changes %+v", frozen, changes)
	}
}

// What counts for a storm, on one of ten nodes besides two that are silent: three of ten
// are more than a fifth of the pool.
func TestWhatCountsForAStorm(t *testing.T) {
	for _, c := range []struct {
		name  string
		third func(n *NodeFacts, now Instant)
		storm bool
	}{
		{"a healthy node", func(*NodeFacts, Instant) {}, false},
		{"a third silent one", func(n *NodeFacts, now Instant) { n.LastBeat = now - 60*aSecond }, true},
		{"one lost long ago", func(n *NodeFacts, now Instant) { n.Health, n.LastBeat = Lost, now-9000*aSecond }, false},
		{"one that broke just now", func(n *NodeFacts, now Instant) { n.Health, n.Changed = Faulted, now-299*aSecond }, true},
		{"one drained just now", func(n *NodeFacts, now Instant) { n.Health, n.Changed = Draining, now-299*aSecond }, true},
		{"one that broke five minutes ago", func(n *NodeFacts, now Instant) { n.Health, n.Changed = Faulted, now-300*aSecond }, false},
		{"one degraded just now", func(n *NodeFacts, now Instant) { n.Check.Degraded = now - 299*aSecond }, true},
		{"one degraded five minutes ago", func(n *NodeFacts, now Instant) { n.Check.Degraded = now - 300*aSecond }, false},
		{"one of another pool", func(n *NodeFacts, now Instant) { n.Pool, n.LastBeat = 2, now-60*aSecond }, false},
	} {
		in := checked(10)
		in.Nodes[0].LastBeat, in.Nodes[1].LastBeat = in.Now-400*aSecond, in.Now-400*aSecond
		c.third(&in.Nodes[9], in.Now)
		out := Reconcile(in)
		lost := slices.Contains(out.Changes, Transition{1, Healthy, Lost})
		if c.storm != (len(out.Frozen) > 0) || c.storm == lost {
			t.Errorf("%s: frozen %v, node 1 is lost: %t", c.name, out.Frozen, lost)
		}
	}
}

// A storm needs more than a fifth of the pool and three nodes at least, and stays in its
// pool: elsewhere a silent node is lost as ever.
func TestAStormHasItsMeasureAndItsPool(t *testing.T) {
	for _, c := range []struct {
		nodes, silent int
		storm         bool
	}{{4, 2, false}, {4, 3, true}, {15, 3, false}, {14, 3, true}, {64, 12, false}, {64, 13, true}} {
		in := checked(c.nodes)
		for i := range c.silent {
			in.Nodes[i].LastBeat = in.Now - 400*aSecond
		}
		in.Nodes = append(in.Nodes, NodeFacts{ID: 1000, Pool: 2, LastBeat: in.Now - 400*aSecond})
		out := Reconcile(in)
		if c.storm != slices.Equal(out.Frozen, []ledger.PoolID{1}) || !slices.Contains(out.Changes, Transition{1000, Healthy, Lost}) {
			t.Errorf("%d of %d silent: frozen %v, changes %v", c.silent, c.nodes, out.Frozen, out.Changes)
		}
	}
}

// A node whose kill nobody confirmed is suspect though it is heard of.
func TestAnUnconfirmedKillMakesANodeSuspect(t *testing.T) {
	in := checked(1)
	in.Nodes[0].Doubted = true
	if out := Reconcile(in); !slices.Equal(out.Changes, []Transition{{1, Healthy, Suspect}}) {
		t.Errorf("changes %v", out.Changes)
	}
}
