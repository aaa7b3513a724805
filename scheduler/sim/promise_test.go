package sim

import (
	"context"
	"fmt"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// promises is an institute whose large jobs wait for reserved starts while nodes
// fall away, go into maintenance and lose devices.
type promises struct {
	*mishaps
	seen *seen
}

// seen counts what became of promises, over all plays.
type seen struct{ reserves, lost, ends, begins, early, v4 int }

func newPromises(t *testing.T, seed uint64, all *seen) *promises {
	p := &promises{mishaps: newMishaps(t, seed), seen: all}
	for i := range ledger.NodeID(4) {
		p.SetTopology(i+1, fmt.Sprintf("rack%d/s%d", 1+i/2, 1+i))
	}
	return p
}

// happen lets chance plan or take back maintenance, kill a device, or change the
// server that decides.
func (p *promises) happen() {
	node := ledger.NodeID(1 + p.pick(4))
	switch p.pick(40) {
	case 0, 1:
		from := p.now.Add(int64(1+p.pick(6)) * hour)
		p.Maintain(node, from, []ledger.Instant{0, from.Add(hour), from.Add(20 * hour)}[p.pick(3)])
	case 2, 3, 4:
		p.Maintain(node, 0, 0)
	case 5:
		if p.now.MillisSince(Epoch) > 2*day {
			p.KillDevice(node, 0)
		}
	case 6:
		if err := p.Takeover(); err != nil {
			p.t.Fatal(err)
		}
	default:
		p.strike()
	}
}

// keeps checks what a plan does to the promise that stands: nobody else is
// protected beyond T* on its nodes, and V4 takes nobody before T*.
func (p *promises) keeps(s *scheduler.Snapshot, plan *scheduler.Plan) {
	held := map[ledger.NodeID]ledger.Instant{}
	at := map[scheduler.AttemptRef]ledger.Instant{}
	note := func(ref scheduler.AttemptRef, r *scheduler.Reservation) {
		clear(held)
		at[ref] = r.At
		for _, n := range r.Nodes {
			held[n] = r.At
		}
	}
	live := s.Flat().Live
	for i := range live {
		if l := &live[i]; l.Phase == scheduler.Reserved {
			note(scheduler.AttemptRef{Job: l.Job.ID, N: l.N}, l.Reserved)
		}
	}
	for i := range plan.Moves {
		note(plan.Moves[i].AttemptRef, &plan.Moves[i].Reservation)
		p.seen.lost += len(plan.Moves[i].Lost)
	}
	for i := range plan.Stops {
		if plan.Stops[i].Rule == scheduler.Unreserved {
			clear(held)
			p.seen.ends++
		}
	}
	for i := range plan.Starts {
		st := &plan.Starts[i]
		if st.Reserved {
			clear(held)
			p.seen.begins++
			if p.now < at[st.AttemptRef] {
				p.seen.early++
			}
		}
		for _, e := range st.Evict {
			if e.Rule == scheduler.V4 {
				p.seen.v4++
				if !st.Reserved || p.now < at[st.AttemptRef] {
					p.t.Fatalf("job %d evicts under V4 before its time", st.Job)
				}
			}
		}
		for _, on := range st.Placed {
			if t, ok := held[on.Node]; ok && st.Funded && p.now.Add(st.MinMs) > t {
				p.t.Fatalf("job %d is protected on node %d beyond T*", st.Job, on.Node)
			}
		}
	}
	p.seen.reserves += len(plan.Reserves)
	p.plausible(plan)
}

// plausible checks every new or renewed promise by itself: as many nodes as the
// job needs, in the domain it names, and no maintenance in its minimum runtime.
func (p *promises) plausible(plan *scheduler.Plan) {
	check := func(ref scheduler.AttemptRef, r *scheduler.Reservation) {
		spec := &p.World.jobs[ref.Job].spec
		if int64(len(r.Nodes)) != spec.Shape.Nodes || r.At < p.now {
			p.t.Fatalf("job %d on %d nodes is promised %v at %d", ref.Job, spec.Shape.Nodes, r.Nodes, r.At-p.now)
		}
		for _, id := range r.Nodes {
			n := &p.snap.Nodes[id-1]
			if n.MaintFrom != 0 && r.At.Add(spec.Contract.MinMs) > n.MaintFrom && (n.MaintUntil == 0 || r.At < n.MaintUntil) {
				p.t.Fatalf("job %d is promised node %d in its maintenance", ref.Job, id)
			}
		}
	}
	for i := range plan.Reserves {
		r := &plan.Reserves[i]
		check(r.AttemptRef, &r.Reservation)
		if wait := r.Reservation.At.MillisSince(p.now); wait > p.cfg.Policy.CapMs {
			p.t.Fatalf("job %d is promised a start in %s", r.Job, scheduler.Span(wait))
		}
	}
	for i := range plan.Moves {
		check(plan.Moves[i].AttemptRef, &plan.Moves[i].Reservation)
	}
}

// Whatever happens around a promise, it is kept by the rules, the same from any
// order of the same input, and every plan applies.
func TestS9PromisesUnderMishaps(t *testing.T) {
	all := &seen{}
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := newPromises(t, 9000+seed, all)
			for step := range 2500 {
				p.happen()
				s, err := p.Snapshot(context.Background(), p.now)
				if err != nil {
					t.Fatal(err)
				}
				var plan *scheduler.Plan
				if step%4 == 0 {
					plan = samePlan(t, &p.dice, s)
				} else {
					decided := scheduler.Decide(s)
					plan = &decided
				}
				p.keeps(s, plan)
				if _, err := p.Cycle(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("seen %+v", *all)
	if all.reserves < 20 || all.lost == 0 || all.ends == 0 || all.begins < 10 || all.early == 0 || all.v4 == 0 {
		t.Errorf("the plays show little: %+v", *all)
	}
}
