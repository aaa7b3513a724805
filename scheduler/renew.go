package scheduler

import (
	"slices"

	"tranche/ledger"
)

// Warnings are given when so much of an interactive attempt's protection is left, ms.
const (
	warnFirst  = 30 * 60_000
	warnSecond = 10 * 60_000
	warnLast   = 2 * 60_000
)

// warnAt is the threshold an attempt has reached with so much left; 0 = none yet.
func warnAt(leftMs int64) int64 {
	for _, at := range [3]int64{warnLast, warnSecond, warnFirst} {
		if leftMs <= at {
			return at
		}
	}
	return 0
}

// asking is an attempt that wants to know where it stands: its owner asked for
// new protection, or it is to be warned.
type asking struct {
	row  int
	warn int64 // threshold, ms; 0 = no warning
}

// asks lists, by job, the attempts that want to know, before the funded pass: the
// pass then notes who would take their devices.
func (pc *poolCycle) asks() {
	for i := range pc.pi.rows {
		r := &pc.pi.rows[i]
		if !r.asks || !pc.marks[i].funded || pc.marks[i].stopping || r.phase != Running {
			continue
		}
		a := asking{row: i}
		if left := r.commit.MillisSince(pc.now); r.live.Job.Contract.Interactive && left > 0 {
			at := warnAt(left)
			// Who is protected for less than a threshold was never that far from its end.
			if said := r.live.WarnedMs; at < r.minMs && (said == 0 || at < said) {
				a.warn = at
			}
		}
		if a.warn > 0 || r.live.RenewMs > 0 {
			pc.asking = append(pc.asking, a)
		}
	}
	slices.SortFunc(pc.asking, func(a, b asking) int { return pc.byRef(a.row, b.row) })
}

// failedTry is a funded job that found no capacity, in the order of the tournament.
type failedTry struct {
	e     *entry
	group int32
}

// answer tells everybody who asked.
func (pc *poolCycle) answer() {
	for _, a := range pc.asking {
		if pc.marks[a.row].stopping {
			continue // evicted meanwhile
		}
		rival := pc.rival(a.row)
		l := pc.pi.rows[a.row].live
		if l.RenewMs > 0 {
			pc.plan.Renewals = append(pc.plan.Renewals, pc.renew(a.row, rival))
		}
		if a.warn > 0 {
			pc.plan.Warnings = append(pc.plan.Warnings, Warning{l.ref(), l.Attempt, a.warn, l.ProtectedUntil, rival})
		}
	}
}

// rival is the first job of those that found no capacity in this cycle which
// could evict the attempt once it is past its protection; nil when nobody could.
func (pc *poolCycle) rival(row int) *Rival {
	r, t := &pc.pi.rows[row], pc.ix.t
	for _, f := range pc.failed {
		if !pc.wouldFit(f.e, r) {
			continue
		}
		j := f.e.job
		out := &Rival{Job: j.ID, Project: j.Project, Rule: V3}
		mine, theirs, apart := t.fork(r.group, f.group)
		promise := pc.promise(j.Rate.MilliGPU, j.Contract.MinMs)
		fd := &pc.fields[0]
		out.Mine, out.Theirs = fd.standing(pc.pi.pool, mine), fd.standing(pc.pi.pool, theirs)
		out.Mine.Commitment -= pc.commitment(row)
		out.Theirs.Commitment += promise
		switch {
		case r.group == f.group:
			if out.Rule = V2; j.Contract.Urgency <= r.live.Job.Contract.Urgency {
				continue
			}
		case !apart || out.Theirs.Compare(out.Mine) >= 0:
			continue
		}
		return out
	}
	return nil
}

// wouldFit says whether a rank of a job would find place on one of an attempt's
// nodes when that left, with everybody unprotected there; by devices alone.
func (pc *poolCycle) wouldFit(e *entry, r *row) bool {
	lo := pc.byGroup()
	for i := range r.live.Placed {
		n, ok := pc.pi.roomOf[r.live.Placed[i].Node]
		if !ok {
			continue
		}
		rm := &pc.rooms[n]
		if rm.health == Healthy && rm.free+rm.leaving+lo.devices[n]+int64(len(r.live.Placed[i].Devices)) >= e.job.Shape.GPUs {
			return true
		}
	}
	return false
}

// renew grants new protection in place to an attempt that would win this cycle's
// order and has the funds, or says why not.
func (pc *poolCycle) renew(row int, rival *Rival) Renewal {
	r := &pc.pi.rows[row]
	l := r.live
	elapsed := pc.now.MillisSince(l.Started)
	out := Renewal{AttemptRef: l.ref(), Attempt: l.Attempt, FromMs: l.HoldUntilMs, ToMs: elapsed + l.RenewMs, Until: max(l.ProtectedUntil, pc.now.Add(l.RenewMs))}
	refuse := func(why Reason) Renewal {
		return Renewal{AttemptRef: l.ref(), Attempt: l.Attempt, FromMs: l.HoldUntilMs, Refused: &why, Rival: rival}
	}
	if max := l.Job.Contract.MaxMs; max > 0 && out.ToMs > max {
		return refuse(Reason{Job: l.Job.ID, Code: WhyMaxRuntime})
	}
	if why := pc.keptFrom(l, out.Until); why != "" {
		return refuse(Reason{Job: l.Job.ID, Code: why})
	}
	if rival != nil {
		return refuse(Reason{Job: l.Job.ID, Code: WhyRival})
	}
	if out.ToMs <= l.HoldUntilMs {
		out.ToMs = l.HoldUntilMs
		return out
	}
	// What is held already keeps its price; the rest of the new protection costs the full one.
	price := ledger.Price{Rate: l.Job.Rate, Past: l.Past.Renew(l.HoldUntilMs, out.ToMs)}
	need := price.Cum(out.ToMs) - price.Cum(l.HoldUntilMs)
	used := l.Job.Charged - l.Charged + price.Cum(l.HoldUntilMs)
	if left := maxChargeLeft(l.Job.Contract.MaxCharge, used); left >= 0 && need > left {
		why := fundsReason(l.Job.ID, maxChargeRefusal(need, left))
		why.Code = WhyMaxCharge
		return refuse(why)
	}
	f := pc.fundsOf(l.Job.Pool, l.Job.Project)
	if f == nil {
		return refuse(pc.noFunds(&l.Job, need))
	}
	before := f.Limits
	pieces, ref := f.Draw(price, l.Started, l.HoldUntilMs, out.ToMs)
	if ref != nil {
		return refuse(fundsReason(l.Job.ID, ref))
	}
	pc.spread(f, before)
	out.Hold = pieces
	return out
}

// keptFrom says what an attempt's nodes are kept for before an instant: the
// reserved start or maintenance; "" = nothing.
func (pc *poolCycle) keptFrom(l *Live, until Instant) string {
	for i := range l.Placed {
		n, ok := pc.pi.roomOf[l.Placed[i].Node]
		if !ok {
			continue
		}
		switch rm := &pc.rooms[n]; {
		case rm.maint != 0 && until > rm.maint:
			return WhyMaintenance
		case rm.kept != 0 && until > rm.kept:
			return WhyReserved
		}
	}
	return ""
}

// unprotect ends the protection of attempts that have been idle for too long.
func (pc *poolCycle) unprotect() {
	if pc.p.IdleUnprotectMs <= 0 {
		return
	}
	for i := range pc.pi.rows {
		r := &pc.pi.rows[i]
		idle := r.live.IdleSince
		if idle != 0 && r.phase == Running && pc.marks[i].funded && pc.now < r.commit && pc.now.MillisSince(idle) >= pc.p.IdleUnprotectMs {
			pc.plan.Unprotect = append(pc.plan.Unprotect, r.live.ref())
		}
	}
}

// renewed installs new protection in place; what charges it covers is held.
func renewed(m *mover, ev *Event) *ledger.Refusal {
	if !m.r.Funded || ev.FromMs != m.r.HoldUntilMs || ev.ToMs < m.r.HoldUntilMs {
		return refuseEv(m, ev)
	}
	if ev.ToMs > m.r.HoldUntilMs {
		m.r.Past = m.r.Past.Renew(ev.FromMs, ev.ToMs)
		m.addHold(ev.FromMs, ev.ToMs, ev.Hold, ev)
	}
	m.r.ProtectedUntil = max(m.r.ProtectedUntil, ev.Until)
	return nil
}

// unprotected ends the protection now; the hold stays and pays on.
func unprotected(m *mover, ev *Event) *ledger.Refusal {
	if !m.r.Funded || ev.At >= m.r.ProtectedUntil {
		return ignore(m, ev)
	}
	m.r.ProtectedUntil = ev.At
	return nil
}
