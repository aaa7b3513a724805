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

// renew grants new protection in place to an attempt that would win this cycle's
// order and has the funds, or says why not.
func (pc *poolCycle) renew(row int, rival *Rival) Renewal {
	r := &pc.pi.rows[row]
	l := r.live
	elapsed, held := pc.now.MillisSince(l.Started), pc.heldUntil(l)
	out := Renewal{AttemptRef: l.ref(), Attempt: l.Attempt, FromMs: held, ToMs: elapsed + l.RenewMs, Until: max(l.ProtectedUntil, pc.now.Add(l.RenewMs))}
	refuse := func(why Reason) Renewal {
		return Renewal{AttemptRef: l.ref(), Attempt: l.Attempt, FromMs: held, Refused: &why, Rival: rival}
	}
	if max := l.Job.Contract.MaxMs; max > 0 && out.ToMs > max {
		return refuse(Reason{Job: l.Job.ID, Code: WhyMaxRuntime})
	}
	if why := pc.keptFrom(l, out.Until); why != "" {
		return refuse(Reason{Job: l.Job.ID, Code: why})
	}
	// Up to its time the holder lets others be protected on its nodes.
	if rival != nil && rival.Rule != V4 {
		return refuse(Reason{Job: l.Job.ID, Code: WhyRival})
	}
	if out.ToMs <= held {
		out.ToMs = held
		return out
	}
	// What is held already keeps its price; the rest of the new protection costs the full one.
	price := ledger.Price{Rate: l.Job.Rate, Past: l.Past.Renew(held, out.ToMs)}
	need := price.Cum(out.ToMs) - price.Cum(held)
	used := l.Job.Charged - l.Charged + price.Cum(held)
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
	pieces, ref := f.Draw(price, l.Started, held, out.ToMs)
	if ref != nil {
		return refuse(fundsReason(l.Job.ID, ref))
	}
	pc.spread(f, before)
	out.Hold = pieces
	return out
}

// heldUntil is the elapsed time up to which an attempt holds funds, with what this
// cycle has prolonged.
func (pc *poolCycle) heldUntil(l *Live) int64 {
	for i := range pc.plan.Extend {
		if x := &pc.plan.Extend[i]; x.AttemptRef == l.ref() {
			return x.ToMs
		}
	}
	return l.HoldUntilMs
}

// keptFrom says what an attempt's nodes are kept for before an instant: the
// reserved start, maintenance or a slice; "" = nothing.
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
		case rm.booked && slices.ContainsFunc(l.Placed[i].Devices, func(d int32) bool {
			s := rm.slotOf(d)
			return s != nil && s.limit != 0 && until > s.limit
		}):
			return WhySlice
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
