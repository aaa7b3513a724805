package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
)

// PlanDiff is what two plans for the same snapshot do otherwise, each list by job:
// what one policy would do in the next cycle and another would not.
type PlanDiff struct {
	Gained   []DiffLine `json:"gained"`   // start with the second alone
	Lost     []DiffLine `json:"lost"`     // start with the first alone
	Moved    []DiffLine `json:"moved"`    // start with both, elsewhere or otherwise
	Evicted  []DiffLine `json:"evicted"`  // told to leave with the second alone
	Spared   []DiffLine `json:"spared"`   // told to leave with the first alone
	Promised []DiffLine `json:"promised"` // get a reserved start with the second alone
	Dropped  []DiffLine `json:"dropped"`  // get one, or keep the one they have, with the first alone
}

// DiffLine is one job of a PlanDiff.
type DiffLine struct {
	Job     ledger.JobID   `json:"job"`
	Project ledger.GroupID `json:"project,omitempty"` // 0 = the plan does not say
	Pool    ledger.PoolID  `json:"pool,omitempty"`
	Rule    Rule           `json:"rule,omitempty"`
	By      ledger.JobID   `json:"by,omitempty"` // the preemptor
}

// Empty says that both plans do the same.
func (d *PlanDiff) Empty() bool {
	return len(d.Gained)+len(d.Lost)+len(d.Moved)+len(d.Evicted)+len(d.Spared)+len(d.Promised)+len(d.Dropped) == 0
}

// DiffPlans compares two plans for the same snapshot.
func DiffPlans(a, b *Plan) PlanDiff {
	var d PlanDiff
	first, second := a.startsByJob(), b.startsByJob()
	for job, s := range second {
		line := DiffLine{Job: job, Project: s.Project, Pool: s.Pool}
		switch was := first[job]; {
		case was == nil:
			d.Gained = append(d.Gained, line)
		case was.Funded != s.Funded || was.Nominate != s.Nominate || !slices.EqualFunc(was.Placed, s.Placed, samePlace):
			d.Moved = append(d.Moved, line)
		}
	}
	for job, s := range first {
		if second[job] == nil {
			d.Lost = append(d.Lost, DiffLine{Job: job, Project: s.Project, Pool: s.Pool})
		}
	}
	d.Evicted, d.Spared = onlySecond(a.leavers(), b.leavers()), onlySecond(b.leavers(), a.leavers())
	d.Promised, d.Dropped = onlySecond(a.promised(), b.promised()), onlySecond(b.promised(), a.promised())
	for _, list := range []*[]DiffLine{&d.Gained, &d.Lost, &d.Moved} {
		slices.SortFunc(*list, func(a, b DiffLine) int { return cmp.Compare(a.Job, b.Job) })
	}
	return d
}

func samePlace(a, b Placed) bool { return a.Node == b.Node && slices.Equal(a.Devices, b.Devices) }

func (p *Plan) startsByJob() map[ledger.JobID]*Start {
	out := make(map[ledger.JobID]*Start, len(p.Starts))
	for i := range p.Starts {
		out[p.Starts[i].Job] = &p.Starts[i]
	}
	return out
}

// leavers are the attempts a plan tells to leave, whatever for, by job.
func (p *Plan) leavers() []DiffLine {
	var out []DiffLine
	for i := range p.Starts {
		s := &p.Starts[i]
		for k := range s.Evict {
			out = append(out, DiffLine{Job: s.Evict[k].Job, Rule: s.Evict[k].Rule, By: s.Job, Pool: s.Pool})
		}
	}
	for i := range p.Stops {
		if p.Stops[i].Rule != Unreserved {
			out = append(out, DiffLine{Job: p.Stops[i].Job, Rule: p.Stops[i].Rule})
		}
	}
	slices.SortFunc(out, func(a, b DiffLine) int { return cmp.Compare(a.Job, b.Job) })
	return out
}

// promised are the jobs that have a reserved start after the plan.
func (p *Plan) promised() []DiffLine {
	var out []DiffLine
	for i := range p.Reserved {
		if h := p.Reserved[i].Holder; h != nil {
			out = append(out, DiffLine{Job: h.Job, Pool: p.Reserved[i].Pool})
		}
	}
	slices.SortFunc(out, func(a, b DiffLine) int { return cmp.Compare(a.Job, b.Job) })
	return out
}

// onlySecond gives the jobs of b that a does not have; both by job.
func onlySecond(a, b []DiffLine) []DiffLine {
	var out []DiffLine
	for _, line := range b {
		if _, ok := slices.BinarySearchFunc(a, line.Job, func(l DiffLine, id ledger.JobID) int { return cmp.Compare(l.Job, id) }); !ok {
			out = append(out, line)
		}
	}
	return out
}

// UnderPolicy says what the cycle that decides on the snapshot would do otherwise
// under another policy. The snapshot's slices stay as they are.
func UnderPolicy(s *Snapshot, policy Policy) PlanDiff {
	now, then := s.Clone(), s.Clone()
	then.Policy = policy
	then.Policy.Version = s.Policy.Version
	a, b := Decide(now), Decide(then)
	return DiffPlans(&a, &b)
}
