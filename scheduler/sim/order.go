package sim

import (
	"fmt"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
)

// Order says when a submission's jobs may be queued.
type Order struct {
	Array  *scheduler.Array // nil: one job
	After  []After
	Single string // waits for earlier jobs of this name, owner and project; "" = none
}

// After is one thing to wait for: a job, or an array with all its jobs.
type After struct {
	Needs scheduler.Needs
	Job   ledger.JobID // or
	Array ledger.ArrayID
}

func (a After) String() string {
	if a.Array != 0 {
		return fmt.Sprintf("array A%d", a.Array)
	}
	return fmt.Sprintf("job %d", a.Job)
}

// party is the jobs of one submission, which wait and fall as one.
type party struct {
	jobs   []*job // by index
	atOnce int
	after  []After
	waits  bool // for something of after
	single string
}

// SubmitAll queues a job, or an array of them, as far as its order allows, and
// gives their numbers. What could never start is refused.
func (w *World) SubmitAll(spec scheduler.Job, b Behaviour, o Order) ([]ledger.JobID, error) {
	p := &party{after: o.After, single: o.Single}
	if o.Single != "" {
		for id := ledger.JobID(1); id <= ledger.JobID(w.seq); id++ {
			j := w.jobs[id]
			if j.party != nil && j.party.single == o.Single && j.spec.Project == spec.Project && j.spec.Member == spec.Member && j.life.Job != scheduler.JobOver {
				p.after = append(p.after, After{Needs: scheduler.NeedsAny, Job: id})
			}
		}
	}
	switch scheduler.Depends(w.awaited(p)) {
	case scheduler.Never:
		return nil, fmt.Errorf("what it waits for did not end well: it would never start")
	case scheduler.Waits:
		p.waits = true
	case scheduler.Ready:
	}
	text := ""
	if o.Array != nil {
		p.atOnce, text = o.Array.AtOnce, o.Array.Text
		if p.atOnce > 0 {
			text += "%" + strconv.Itoa(p.atOnce)
		}
		w.arrays = append(w.arrays, p)
	}
	first := spec
	ids := make([]ledger.JobID, o.Array.Size())
	for i := range ids {
		j := w.newJob(spec, b)
		j.party, j.kept = p, true
		p.jobs, ids[i] = append(p.jobs, j), j.spec.ID
		if i == 0 {
			first = j.spec
		}
	}
	w.follow(p)
	w.record(Event{Kind: Submitted, Job: ids[0], Spec: &first, Array: text, After: words(p.after)})
	w.letIn(p)
	return ids, nil
}

// words writes dependencies as a submission does: "ok:12", "any:A4".
func words(after []After) []string {
	var out []string
	for _, a := range after {
		_, number, _ := strings.Cut(a.String(), " ")
		out = append(out, string(a.Needs)+":"+number)
	}
	return out
}

// follow notes what a submission waits for.
func (w *World) follow(p *party) {
	for _, a := range p.after {
		for _, j := range w.jobsOf(a) {
			j.followers = append(j.followers, p)
		}
	}
}

func (w *World) jobsOf(a After) []*job {
	if a.Array != 0 {
		return w.arrays[a.Array-1].jobs
	}
	return []*job{w.jobs[a.Job]}
}

// awaited is what a submission waits for. All jobs of an array ended well: so did it.
func (w *World) awaited(p *party) []scheduler.Awaited {
	var out []scheduler.Awaited
	for _, a := range p.after {
		for _, j := range w.jobsOf(a) {
			out = append(out, scheduler.Awaited{Needs: a.Needs, Over: j.life.Job == scheduler.JobOver, Result: j.life.Result})
		}
	}
	return out
}

// letIn queues the next jobs of a submission, by index, as far as its limit allows.
func (w *World) letIn(p *party) {
	if p.waits {
		return
	}
	going := 0
	for _, j := range p.jobs {
		if j.life.Job == scheduler.JobActive || j.life.Job == scheduler.JobWaiting && !j.kept {
			going++
		}
	}
	room := scheduler.Room(len(p.jobs), p.atOnce, going)
	for _, j := range p.jobs {
		if room > 0 && j.life.Job == scheduler.JobWaiting && j.kept {
			j.kept = false
			spec := j.spec
			w.queue(&spec)
			room--
		}
	}
}

// onward lets a job's change have its effect on those of its submission, and on
// what was to start after it.
func (w *World) onward(j *job, before scheduler.JobPhase) {
	if j.life.Job == before {
		return
	}
	if j.party != nil && j.life.Job != scheduler.JobActive {
		j.kept = j.kept || j.life.Job == scheduler.JobPaused // its place goes to the next
		w.letIn(j.party)
	}
	if j.life.Job != scheduler.JobOver {
		return
	}
	for _, p := range j.followers {
		if !p.waits {
			continue
		}
		switch scheduler.Depends(w.awaited(p)) {
		case scheduler.Ready:
			p.waits = false
			w.letIn(p)
		case scheduler.Never:
			for _, f := range p.jobs {
				if f.life.Job != scheduler.JobOver {
					w.note(w.step(f, scheduler.Event{Kind: scheduler.EvCancelled}))
				}
			}
		case scheduler.Waits:
		}
	}
}

// keptOut says why a waiting job is not in the queue; nil when it is.
func (w *World) keptOut(id ledger.JobID) *scheduler.Reason {
	j := w.jobs[id]
	switch {
	case j.life.Job != scheduler.JobWaiting || !j.kept:
		return nil
	case !j.party.waits:
		return &scheduler.Reason{Job: id, Code: scheduler.WhyArrayLimit, Facts: []scheduler.Fact{{Name: scheduler.FactAtOnce, Value: strconv.Itoa(j.party.atOnce)}}}
	}
	var open []string
	for _, a := range j.party.after {
		for _, on := range w.jobsOf(a) {
			if on.life.Job != scheduler.JobOver {
				open = append(open, a.String())
				break
			}
		}
	}
	return &scheduler.Reason{Job: id, Code: scheduler.WhyDependency, Facts: []scheduler.Fact{{Name: scheduler.FactAfter, Value: strings.Join(open, ", ")}}}
}
