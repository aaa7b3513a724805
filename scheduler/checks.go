package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
)

// Check is the outcome of one run of a node's own health check.
type Check string

// Outcomes. A node without a check says nothing.
const (
	CheckNone     Check = ""
	CheckOK       Check = "ok"
	CheckDegraded Check = "degraded" // it works, but not as it should
	CheckFault    Check = "fault"    // nothing should run on it
)

// NodeCheck is what a node's checks have said of late. Instants are real time.
type NodeCheck struct {
	Last     Check
	Streak   int64   // runs in a row that were good, or that were bad
	Since    Instant // first of them
	Degraded Instant // degraded since; 0 = not
	Drained  Check   // its checks have drained it: softly for degraded, hard for a fault; "" = they have not
	Drain    bool    // it is drained, by them or by an operator
}

// CheckRules are the policy's numbers for health checks.
type CheckRules struct {
	Bad, Good    int64
	DwellMs      int64
	AutoDrainPPM int64
}

// CheckRules are the policy's.
func (p *Policy) CheckRules() CheckRules {
	return CheckRules{p.CheckBad, p.CheckGood, p.CheckDwellMs, p.AutoDrainPPM}
}

// CheckChange is what becomes of a node by its checks.
type CheckChange struct {
	Node     ledger.NodeID
	Degraded bool
	Drained  Check
}

// reconcileChecks says, by node id, whose standing its checks change. So many bad
// runs in a row make a node degraded, after a dwell it is drained, as far as the
// bound for its pool allows and no storm is on; so many good runs, over the dwell,
// undo both. What an operator has drained is left as it is.
func reconcileChecks(in *Liveness, frozen []ledger.PoolID) []CheckChange {
	var out []CheckChange
	total, drained := map[ledger.PoolID]int64{}, map[ledger.PoolID]int64{}
	for i := range in.Nodes {
		total[in.Nodes[i].Pool]++
		if in.Nodes[i].Check.Drained != "" {
			drained[in.Nodes[i].Pool]++
		}
	}
	nodes := slices.Clone(in.Nodes)
	slices.SortFunc(nodes, func(a, b NodeFacts) int { // who has been degraded longest goes first
		return cmp.Or(cmp.Compare(a.Check.Degraded, b.Check.Degraded), cmp.Compare(a.ID, b.ID))
	})
	for i := range nodes {
		n := &nodes[i]
		is := CheckChange{n.ID, n.Check.Degraded != 0, n.Check.Drained}
		to := is
		switch most := max(1, total[n.Pool]*in.Checks.AutoDrainPPM/1_000_000); {
		case n.Health == Lost:
		case n.Check.Last == CheckNone, n.Check.recovered(in):
			to.Degraded, to.Drained = false, ""
		case n.Check.Last == CheckOK || n.Check.Streak < in.Checks.Bad:
		case !is.Degraded:
			to.Degraded = true
		case is.Drained == CheckDegraded && n.Check.Last == CheckFault && n.Check.dwelt(in):
			to.Drained = CheckFault
		case is.Drained == "" && !n.Check.Drain && n.Check.dwelt(in) && drained[n.Pool] < most && !slices.Contains(frozen, n.Pool):
			to.Drained = n.Check.Last
			drained[n.Pool]++
		}
		if to != is {
			out = append(out, to)
		}
	}
	slices.SortFunc(out, func(a, b CheckChange) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// dwelt says whether a node has been degraded long enough to be drained.
func (c *NodeCheck) dwelt(in *Liveness) bool {
	return c.Degraded != 0 && in.Now.MillisSince(c.Degraded) >= in.Checks.DwellMs
}

// recovered says whether a node has been good often and long enough.
func (c *NodeCheck) recovered(in *Liveness) bool {
	return c.Degraded != 0 && c.Last == CheckOK && c.Streak >= in.Checks.Good && in.Now.MillisSince(c.Since) >= in.Checks.DwellMs
}
