package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
)

// Real-time limits of silence, ms.
const (
	SuspectAfterMs = 60_000     // nothing new is placed
	LostAfterMs    = 5 * 60_000 // its attempts end at the last heartbeat
	StormWithinMs  = 5 * 60_000 // faults that count together
)

// NodeFacts is what is known of one node's liveness. Instants are real time.
type NodeFacts struct {
	ID       ledger.NodeID
	Pool     ledger.PoolID
	Health   Health
	LastBeat Instant
	Changed  Instant // when Health last changed
	Check    NodeCheck
	Doubted  bool // suspect for another reason than silence: a kill that nobody confirmed
}

// Liveness is the input of Reconcile. Silence counts only while a leader
// listens: from the later of the last heartbeat and LeaderSince.
type Liveness struct {
	Now         Instant // real time
	LeaderSince Instant
	FreezePPM   int64
	FreezeNodes int64
	Checks      CheckRules
	Nodes       []NodeFacts // any order
}

// Transition is a change of a node's health.
type Transition struct {
	Node ledger.NodeID
	From Health
	To   Health
}

// Reconciled is what follows from nodes' silence and health checks.
type Reconciled struct {
	Changes []Transition    // of health, by node id
	Checks  []CheckChange   // by node id
	Frozen  []ledger.PoolID // ascending
}

// Reconcile says which nodes change health, which their checks degrade, drain or
// give back, and which pools are frozen: there so many nodes fell silent, broke or
// became degraded within a few minutes that the fault is likely elsewhere, so
// nothing is lost, drained or placed until they are back. A draining or faulted node
// keeps its health while silent, but can be lost. Cost: O(nodes log nodes).
func Reconcile(in Liveness) Reconciled {
	var out Reconciled
	frozen := out.Frozen
	total, bad := map[ledger.PoolID]int64{}, map[ledger.PoolID]int64{}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		total[n.Pool]++
		broke := (n.Health == Faulted || n.Health == Draining) && in.Now.MillisSince(n.Changed) < StormWithinMs ||
			n.Check.Degraded != 0 && in.Now.MillisSince(n.Check.Degraded) < StormWithinMs
		if n.Health != Lost && (in.silence(n) >= SuspectAfterMs || broke) {
			bad[n.Pool]++
		}
	}
	for pool, n := range bad {
		if n >= in.FreezeNodes && n*1_000_000 > total[pool]*in.FreezePPM {
			frozen = append(frozen, pool)
		}
	}
	slices.Sort(frozen)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if to := in.next(n, slices.Contains(frozen, n.Pool)); to != n.Health {
			out.Changes = append(out.Changes, Transition{n.ID, n.Health, to})
		}
	}
	slices.SortFunc(out.Changes, func(a, b Transition) int { return cmp.Compare(a.Node, b.Node) })
	out.Frozen, out.Checks = frozen, reconcileChecks(&in, frozen)
	return out
}

func (in *Liveness) silence(n *NodeFacts) int64 {
	return in.Now.MillisSince(max(n.LastBeat, in.LeaderSince))
}

// next is a node's health by its silence.
func (in *Liveness) next(n *NodeFacts, frozen bool) Health {
	silent := in.silence(n)
	switch {
	case silent >= LostAfterMs && !frozen:
		return Lost
	case n.Health == Lost && in.Now.MillisSince(n.LastBeat) < SuspectAfterMs:
		return Healthy
	case n.Health == Healthy && (silent >= SuspectAfterMs || n.Doubted):
		return Suspect
	case n.Health == Suspect && silent < SuspectAfterMs && !n.Doubted:
		return Healthy
	}
	return n.Health
}
