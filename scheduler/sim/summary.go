package sim

import (
	"cmp"
	"maps"
	"slices"

	"tranche/ledger"
	"tranche/scheduler"
)

// Summary is what a run came to.
type Summary struct {
	Cycles    int           `json:"cycles"`
	Starts    int           `json:"starts"`
	Evictions int           `json:"evictions"`
	Until     string        `json:"until"` // virtual time passed
	Jobs      []JobLine     `json:"jobs"`
	Projects  []ProjectLine `json:"projects"`
	BooksSum  ledger.Amount `json:"books_sum"`
}

// JobLine is one job at the end.
type JobLine struct {
	Name     string        `json:"name"`
	State    string        `json:"state"`
	Attempts int32         `json:"attempts"`
	Charged  ledger.Amount `json:"charged_units"`
	Why      string        `json:"why,omitempty"` // of a waiting job, from the last cycle
}

// ProjectLine is one project's money in one pool at the end.
type ProjectLine struct {
	Project   string        `json:"project"`
	Pool      string        `json:"pool"`
	Available ledger.Amount `json:"available_units"`
	Held      ledger.Amount `json:"held_units"`
	Spent     ledger.Amount `json:"spent_units"`
}

// Summary sums up the run so far.
func (r *Runner) Summary() Summary {
	w := r.World
	out := Summary{Cycles: r.Cycles, Starts: w.starts, Evictions: w.evictions, Until: scheduler.Span(w.now.MillisSince(Epoch))}
	for _, id := range slices.Sorted(maps.Keys(r.names)) {
		j := w.jobs[id]
		line := JobLine{Name: r.names[id], State: StateName(&j.life), Attempts: j.spec.Attempts, Charged: j.spec.Charged}
		if line.State == "waiting" && w.plan != nil {
			line.Why = w.why(id)
		}
		out.Jobs = append(out.Jobs, line)
	}
	for i := range w.snap.Funds {
		f := &w.snap.Funds[i]
		out.Projects = append(out.Projects, ProjectLine{
			Project: f.Path, Pool: w.snap.Pools[f.Pool-1].Name, Available: w.Sum(ledger.Available, f.Pool, f.Project),
			Held: w.Sum(ledger.Held, f.Pool, f.Project), Spent: w.Sum(ledger.Spent, f.Pool, f.Project),
		})
	}
	for _, b := range w.book.Balances() {
		out.BooksSum += b.Amount
	}
	return out
}

// why words a waiting job's reason in the last plan.
func (w *World) why(id ledger.JobID) string {
	if kept := w.keptOut(id); kept != nil {
		return scheduler.Sentence(kept, w.cfg.Policy.LookbackMs, w.Names())
	}
	i, ok := slices.BinarySearchFunc(w.plan.Reasons, id, func(x scheduler.Reason, id ledger.JobID) int { return cmp.Compare(x.Job, id) })
	why := scheduler.Reason{Job: id, Code: scheduler.WhyNoCycle}
	if ok {
		why = w.plan.Reasons[i]
	}
	return scheduler.Sentence(&why, w.cfg.Policy.LookbackMs, w.Names())
}

// Tell words what a plan does, one line per item.
func (r *Runner) Tell(p *scheduler.Plan) []string {
	var out []string
	names := r.World.Names()
	for i := range p.Extend {
		out = append(out, "prolongs the hold of "+r.names[p.Extend[i].Job]+" to "+scheduler.Span(p.Extend[i].ToMs))
	}
	for i := range p.MoneyEnds {
		out = append(out, "finds no more money for "+r.names[p.MoneyEnds[i].Job]+": "+scheduler.Sentence(&p.MoneyEnds[i].Short, r.policy.LookbackMs, names))
	}
	for i := range p.Stops {
		out = append(out, "stops "+r.names[p.Stops[i].Job]+": "+scheduler.StopSentence(p.Stops[i].Rule))
	}
	for _, ref := range p.Promote {
		out = append(out, "leases "+r.names[ref.Job]+": its devices are free now")
	}
	for i := range p.Starts {
		s := &p.Starts[i]
		what := "starts "
		if s.Nominate {
			what = "nominates "
		}
		out = append(out, what+r.names[s.Job]+": "+scheduler.StartSentence(s, r.policy.LookbackMs, names))
		for k := range s.Evict {
			out = append(out, "evicts "+r.names[s.Evict[k].Job]+": "+scheduler.EvictionSentence(&s.Evict[k], r.names[s.Job], r.policy.LookbackMs, names))
		}
	}
	return out
}
