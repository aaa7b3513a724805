package sim

import (
	"context"
	"fmt"
	"slices"

	"tranche/scheduler"
)

// Apply carries a plan out in its order. Nothing happens between a snapshot and
// its plan here, so an item that does not hold is an error, not a drop.
func (w *World) Apply(_ context.Context, p *scheduler.Plan) (scheduler.Applied, error) {
	var a scheduler.Applied
	w.snap.Bucket, w.snap.Tried = p.Bucket, p.Tried
	for i := range p.Extend {
		if err := w.extend(&p.Extend[i]); err != nil {
			return a, err
		}
		a.Extended++
	}
	for i := range p.MoneyEnds {
		if err := w.moneyEnds(&p.MoneyEnds[i]); err != nil {
			return a, err
		}
	}
	for i := range p.Stops {
		if err := w.signal(p.Stops[i].AttemptRef, p.Stops[i].Rule); err != nil {
			return a, err
		}
		a.Stopped++
	}
	for _, ref := range p.Unprotect {
		if err := w.do(ref, scheduler.Event{Kind: scheduler.EvUnprotected}); err != nil {
			return a, err
		}
	}
	for i := range p.Renewals {
		if err := w.answer(&p.Renewals[i]); err != nil {
			return a, err
		}
	}
	for i := range p.Warnings {
		j := w.jobs[p.Warnings[i].Job]
		j.warnedMs = p.Warnings[i].LeftMs
		w.showLive(j)
	}
	for _, ref := range p.Promote {
		if err := w.do(ref, scheduler.Event{Kind: scheduler.EvLeased}); err != nil {
			return a, err
		}
		w.planClaims(w.jobs[ref.Job])
		a.Promoted++
	}
	for i := range p.Moves {
		m := &p.Moves[i]
		if err := w.do(m.AttemptRef, scheduler.Event{Kind: scheduler.EvMoved, Reservation: &m.Reservation}); err != nil {
			return a, err
		}
	}
	for i := range p.Slices {
		if err := w.name(&p.Slices[i]); err != nil {
			return a, err
		}
	}
	for i := range p.Starts {
		if err := w.start(&p.Starts[i]); err != nil {
			return a, err
		}
		a.Started++
		a.Evicted += len(p.Starts[i].Evict)
		if p.Starts[i].Nominate {
			a.Nominated++
		}
	}
	for i := range p.Reserves {
		if err := w.reserve(&p.Reserves[i]); err != nil {
			return a, err
		}
	}
	return a, nil
}

// reserve makes a waiting job the holder of its pool's reserved start.
func (w *World) reserve(r *scheduler.Reserve) error {
	j := w.jobs[r.Job]
	if j == nil || j.life.Job != scheduler.JobWaiting {
		return fmt.Errorf("job %d is not waiting", r.Job)
	}
	w.attempt++
	j.placed = nil
	ev := scheduler.Event{Kind: scheduler.EvReserved, Run: scheduler.NewReserve(&j.spec, r, w.attempt, w.now)}
	if ref := w.step(j, ev); ref != nil {
		return fmt.Errorf("reserved start of job %d: %w", r.Job, ref)
	}
	return nil
}

// answer grants new protection, or leaves the attempt as it is.
func (w *World) answer(r *scheduler.Renewal) error {
	j := w.jobs[r.Job]
	j.renewMs = 0
	if r.Refused != nil {
		w.showLive(j)
		return nil
	}
	j.warnedMs = 0
	return w.do(r.AttemptRef, scheduler.Event{Kind: scheduler.EvRenewed, Hold: r.Hold, FromMs: r.FromMs, ToMs: r.ToMs, Until: r.Until})
}

// do takes one event to the attempt it names.
func (w *World) do(ref scheduler.AttemptRef, ev scheduler.Event) error {
	j := w.jobs[ref.Job]
	if j == nil || j.life.Job != scheduler.JobActive || j.life.Run.N != ref.N {
		return fmt.Errorf("attempt %d of job %d is not live", ref.N, ref.Job)
	}
	if r := w.step(j, ev); r != nil {
		return fmt.Errorf("attempt %d of job %d: %w", ref.N, ref.Job, r)
	}
	return nil
}

func (w *World) signal(ref scheduler.AttemptRef, rule scheduler.Rule) error {
	return w.do(ref, scheduler.Event{Kind: scheduler.EvSignalled, Rule: rule})
}

// accrue reports every member's elapsed time, as heartbeats do.
func (w *World) accrue(ref scheduler.AttemptRef) error {
	for _, m := range slices.Clone(w.jobs[ref.Job].life.Run.Members) {
		if m.Claimed == 0 || m.Ended {
			continue
		}
		ev := scheduler.Event{Kind: scheduler.EvAccrued, Rank: m.Rank, ElapsedMs: w.now.MillisSince(m.Claimed)}
		if err := w.do(ref, ev); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) extend(x *scheduler.Extension) error {
	err := w.do(x.AttemptRef, scheduler.Event{Kind: scheduler.EvExtended, Hold: x.Hold, FromMs: x.FromMs, ToMs: x.ToMs})
	if err != nil {
		return err
	}
	return w.accrue(x.AttemptRef)
}

func (w *World) moneyEnds(m *scheduler.MoneyEnd) error {
	if m.Stop {
		return w.signal(m.AttemptRef, scheduler.MoneyEnded)
	}
	if err := w.accrue(m.AttemptRef); err != nil {
		return err
	}
	return w.do(m.AttemptRef, scheduler.Event{Kind: scheduler.EvMoneyEnded, FromMs: m.AtMs})
}

// start checks one start and its evictions against the world as it is, then
// carries out all of it.
func (w *World) start(s *scheduler.Start) error {
	j := w.jobs[s.Job]
	switch {
	case j == nil, !s.Reserved && j.life.Job != scheduler.JobWaiting:
		return fmt.Errorf("job %d is not waiting", s.Job)
	case s.Reserved && (j.life.Job != scheduler.JobActive || j.life.Run.Phase != scheduler.Reserved || j.life.Run.N != s.N):
		return fmt.Errorf("attempt %d of job %d holds no reserved start", s.N, s.Job)
	}
	for i := range s.Placed {
		p := &s.Placed[i]
		tenants := slices.Clone(w.tenants[p.Node])
		for k := range tenants {
			if slices.ContainsFunc(s.Evict, func(e scheduler.Evict) bool { return e.AttemptRef == tenants[k].AttemptRef }) {
				tenants[k].Phase = scheduler.Ending
			}
		}
		if why := scheduler.Fits(&w.snap.Nodes[p.Node-1], tenants, s.Project, *p, s.Nominate); why != scheduler.FitsOK {
			return fmt.Errorf("job %d does not fit on node %d any more: %s", s.Job, p.Node, why)
		}
	}
	for i := range s.Evict {
		if err := w.signal(s.Evict[i].AttemptRef, s.Evict[i].Rule); err != nil {
			return err
		}
	}
	if !s.Reserved {
		w.attempt++
	}
	j.placed = s.Placed
	ev := scheduler.Event{Kind: scheduler.EvLeased, Run: scheduler.NewRun(&j.spec, s, w.attempt, w.now)}
	if s.Nominate {
		ev.Kind = scheduler.EvNominated
	}
	if ref := w.step(j, ev); ref != nil {
		return fmt.Errorf("start of job %d: %w", s.Job, ref)
	}
	if !s.Nominate {
		w.planClaims(j)
	}
	return nil
}
