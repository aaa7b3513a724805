package scheduler

import (
	"cmp"
	"slices"
)

// money prolongs the holds that end, oldest job first. Where no funds are left
// the attempt goes on unfunded from its hold's end, or is stopped in time to be
// gone by then. It also catches up with several steps at once after a gap.
func (pc *poolCycle) money() {
	slices.SortFunc(pc.due, pc.byRef)
	for _, i := range pc.due {
		pc.prolong(i)
	}
}

// byRef orders rows by job and attempt.
func (pc *poolCycle) byRef(a, b int) int {
	x, y := pc.pi.rows[a].live, pc.pi.rows[b].live
	return cmp.Or(cmp.Compare(x.Job.ID, y.Job.ID), cmp.Compare(x.N, y.N))
}

// lead is how long before its hold's end an attempt must have more funds: one
// that stops with the money needs its grace inside the hold.
func (l *Live) lead() int64 {
	if l.Job.Contract.StopOnMoney {
		return l.Job.Contract.GraceMs
	}
	return 0
}

// prolong draws whole steps until the hold outlasts now.
func (pc *poolCycle) prolong(i int) {
	l := pc.pi.rows[i].live
	step := max(1, pc.p.HoldStepMs)
	lacking := pc.now.MillisSince(l.Started) + l.lead() - l.HoldUntilMs
	to := l.HoldUntilMs + (lacking/step+1)*step
	d := drawing{l.price(), l.Started, maxChargeLeft(l.Job.Contract.MaxCharge, l.Job.Charged-l.Charged+l.price().Cum(l.HoldUntilMs))}
	reached := l.HoldUntilMs
	var short Reason
	if f := pc.fundsOf(l.Job.Pool, l.Job.Project); f != nil {
		before := f.Limits
		pieces, until, ref := drawOn(f, d, l.HoldUntilMs, to, step)
		pc.spread(f, before)
		if reached = until; reached > l.HoldUntilMs {
			pc.plan.Extend = append(pc.plan.Extend, Extension{l.ref(), l.Attempt, l.HoldUntilMs, reached, pieces})
		}
		if ref == nil {
			return
		}
		short = fundsReason(l.Job.ID, ref)
	} else {
		short = pc.noFunds(&l.Job, l.price().Cum(to)-l.price().Cum(l.HoldUntilMs))
	}
	if l.Phase != Running {
		return
	}
	end := MoneyEnd{l.ref(), l.Attempt, reached, l.Job.Contract.StopOnMoney, short}
	pc.plan.MoneyEnds = append(pc.plan.MoneyEnds, end)
	if end.Stop {
		pc.halt(i)
	} else {
		pc.marks[i].funded = false
	}
}

// halt marks an attempt as told to stop in this cycle.
func (pc *poolCycle) halt(i int) {
	l := pc.pi.rows[i].live
	pc.marks[i].stopping = true
	pc.move(int32(i), l.Phase, Ending)
}

// stops ends attempts that need no preemptor to end: at their maximum runtime, on
// draining or faulted nodes, and where a slice begins.
func (pc *poolCycle) stops() {
	for i := range pc.pi.rows {
		if pc.pi.sick == 0 && !pc.maintained && !pc.booked {
			break
		}
		l, funded := pc.pi.rows[i].live, pc.marks[i].funded
		if rule := pc.drains(l, funded); rule != "" {
			pc.stop(i, rule)
		} else if !pc.pi.pool.Frozen && pc.makesWay(l, funded) {
			pc.stop(i, VS)
		}
	}
	for _, i := range pc.over {
		pc.stop(i, MaxRuntime)
	}
}

func (pc *poolCycle) stop(i int, rule Rule) {
	if pc.marks[i].stopping {
		return
	}
	l := pc.pi.rows[i].live
	pc.plan.Stops = append(pc.plan.Stops, Stop{l.ref(), l.Attempt, rule})
	pc.halt(i)
}

// drains is the rule that takes an attempt off its nodes: a hard fault at once,
// a soft one at the end of protection (unfunded at once). What has not been
// claimed yet goes back to wait. In a storm nothing is drained.
func (pc *poolCycle) drains(l *Live, funded bool) Rule {
	if pc.pi.pool.Frozen {
		return ""
	}
	worst := Healthy
	for i := range l.Placed {
		if n, ok := pc.pi.roomOf[l.Placed[i].Node]; ok {
			worst = max(worst, pc.rooms[n].health)
		}
	}
	switch {
	case worst == Healthy, worst == Lost:
		return ""
	case l.Phase == Nominated, l.Phase == Starting && worst != Suspect:
		return Replan
	case worst == Faulted:
		return V5Hard
	case worst == Draining && (!funded || pc.now >= l.ProtectedUntil):
		return V5
	}
	return ""
}

// promote leases the nominated attempts whose devices everybody else has left.
func (pc *poolCycle) promote() {
	if pc.pi.pool.Frozen {
		return
	}
	slices.SortFunc(pc.nominated, pc.byRef)
	for _, i := range pc.nominated {
		if pc.marks[i].stopping {
			continue
		}
		l := pc.pi.rows[i].live
		if pc.allVacated(l) {
			pc.plan.Promote = append(pc.plan.Promote, l.ref())
			pc.move(int32(i), Nominated, Starting)
		}
	}
}

func (pc *poolCycle) allVacated(l *Live) bool {
	for i := range l.Placed {
		n, ok := pc.pi.roomOf[l.Placed[i].Node]
		if !ok || !pc.rooms[n].vacated(l.Job.Project, &l.Placed[i]) {
			return false
		}
	}
	return true
}
