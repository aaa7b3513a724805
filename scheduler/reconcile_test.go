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
