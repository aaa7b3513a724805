package scheduler

import (
	"fmt"
	"slices"

	"tranche/ledger"
)

// lots are the facts about lots that an event brought.
func (ev *Event) lots() []ledger.Lot {
	if ev.Funds == nil {
		return ev.Lots
	}
	return slices.Concat(ev.Lots, ev.Funds.Lots)
}

func (r *Run) holdEntry(from, to int64, pieces []ledger.Piece, ev *Event) ledger.Entry {
	return ledger.HoldEntry(ledger.HoldInput{
		Key: fmt.Sprintf("hold:attempt:%d:%dms:%dms", r.Attempt, from, to),
		At:  ev.At, Pieces: pieces, Lots: ev.lots(),
	})
}

// rehold recomputes the hold at the claim, where the record starts: the lots
// valid then may be others than at the nomination. No lot then refuses the claim.
func (m *mover) rehold(ev *Event) *ledger.Refusal {
	if ev.Funds == nil {
		return nil
	}
	f := copyFunds(ev.Funds)
	f.GiveBack(m.r.Hold)
	pieces, ref := f.Draw(m.r.price(), ev.At, 0, m.r.HoldUntilMs)
	if ref != nil {
		return ref
	}
	if slices.Equal(pieces, m.r.Hold) {
		return nil
	}
	release, _ := ledger.ReleaseEntry(ledger.HoldInput{
		Key: fmt.Sprintf("release:attempt:%d:claim", m.r.Attempt),
		At:  ev.At, Pieces: m.r.Hold, Lots: ev.lots(),
	})
	hold := ledger.HoldEntry(ledger.HoldInput{
		Key: fmt.Sprintf("hold:attempt:%d:claim", m.r.Attempt),
		At:  ev.At, Pieces: pieces, Lots: ev.lots(),
	})
	m.Entries = append(m.Entries, release, hold)
	m.r.Hold = pieces
	return nil
}

// chargeable cuts proven elapsed time to what is to be paid for: to where money
// ended, and for whoever is evicted to the signal.
func (r *Run) chargeable(ms int64) int64 {
	if !r.Funded {
		ms = min(ms, r.FundedMs)
	}
	if !r.Rule.chargedToExit() {
		ms = min(ms, r.StopMs)
	}
	return ms
}

// charge settles [ChargedMs, to) and with final releases the rest of the hold.
func (m *mover) charge(to int64, final bool, ev *Event) {
	r := m.r
	to = max(to, r.ChargedMs)
	if to == r.ChargedMs && !final {
		return
	}
	entry, pieces := ledger.Charge(ledger.ChargeInput{
		Attempt: r.Attempt, Project: r.Project, Pool: r.Pool, Rate: r.price(), Hold: r.Hold, Lots: ev.lots(),
		FromMs: r.ChargedMs, ToMs: to, Final: final, At: ev.At,
	})
	if len(entry.Transfers) > 0 {
		m.Entries = append(m.Entries, entry)
	}
	r.Charged += r.price().Cum(to) - r.price().Cum(r.ChargedMs)
	r.ChargedMs, r.Hold = to, pieces
}

// close ends the attempt: holds what ran past the hold, charges, releases,
// credits a broken promise, and says what becomes of the job.
func (m *mover) close(ev *Event) {
	r := m.r
	if r.Started == 0 {
		r.Ended, r.Cause = ev.At, CauseRefused
		m.charge(0, true, ev)
		r.Phase, m.Freed = 0, true
		m.Next.Job = JobWaiting
		if m.Next.Cancel {
			m.Next.Job, m.Next.Result, r.Cause = JobOver, ResultCancelled, CauseCancelled
		}
		return
	}
	if !r.Rule.chargedToExit() {
		r.StopMs = r.stopElapsed()
	}
	r.Ended = r.Started.Add(r.ProvenMs)
	m.cover(ev)
	m.charge(r.chargeable(r.ProvenMs), true, ev)
	m.verdict()
	if r.Rule.credits() || r.Cause == CauseLost {
		m.credit(ev)
	}
	r.Phase, m.Freed = 0, true
}

// stopElapsed is where an eviction's charge ends: the latest member's SIGTERM
// by its launcher's clock; a member without one ended by itself or was lost.
func (r *Run) stopElapsed() int64 {
	var stop int64
	for i := range r.Members {
		mem := &r.Members[i]
		switch {
		case mem.TermMs > 0:
			stop = max(stop, mem.TermMs)
		case mem.Exit.Lost || mem.Exit.Stopped:
			stop = max(stop, min(mem.ElapsedMs, r.StopMs))
		default:
			stop = max(stop, mem.ElapsedMs)
		}
	}
	return min(stop, r.ProvenMs)
}

// cover draws holds for proven time that ran past the hold because no cycle came
// in between. Where funds end, the contract decides: unfunded from there, or
// charged to overrun.
func (m *mover) cover(ev *Event) {
	r := m.r
	end := r.chargeable(r.ProvenMs)
	if ev.Funds == nil || !r.Funded || end <= r.HoldUntilMs {
		return
	}
	from := r.HoldUntilMs
	f := copyFunds(ev.Funds)
	pieces, reached, ref := drawOn(f, r.draw(), from, end, ev.HoldStepMs)
	if reached > from {
		m.addHold(from, reached, pieces, ev)
	}
	if ref != nil && !r.Contract.StopOnMoney {
		m.goUnfunded(reached)
	}
}

func copyFunds(f *ledger.Funds) *ledger.Funds {
	c := *f
	c.Lots, c.Limits = slices.Clone(f.Lots), slices.Clone(f.Limits)
	return &c
}

// drawing is an attempt as drawOn needs it.
type drawing struct {
	rate    ledger.Tariff
	started Instant
	left    ledger.Amount // of max_charge past what is held; < 0 = no bound
}

func (r *Run) draw() drawing {
	return drawing{r.price(), r.Started, maxChargeLeft(r.Contract.MaxCharge, r.Prior+r.price().Cum(r.HoldUntilMs))}
}

// maxChargeLeft is what a job may still hold under its own limit; −1 = no limit.
func maxChargeLeft(limit, used ledger.Amount) ledger.Amount {
	if limit <= 0 {
		return -1
	}
	return max(0, limit-used)
}

// drawOn prolongs a hold from fromMs in steps until it reaches toMs (the last
// step is cut there) or funds end, and says how far it came and why no further.
// Cost: one Draw per step.
func drawOn(f *ledger.Funds, d drawing, fromMs, toMs, stepMs int64) ([]ledger.Piece, int64, *ledger.Refusal) {
	var pieces []ledger.Piece
	if stepMs <= 0 {
		stepMs = toMs - fromMs
	}
	for fromMs < toMs {
		next := min(fromMs+stepMs, toMs)
		cost := d.rate.Cum(next) - d.rate.Cum(fromMs)
		if d.left >= 0 && cost > d.left {
			return pieces, fromMs, maxChargeRefusal(cost, d.left)
		}
		more, ref := f.Draw(d.rate, d.started, fromMs, next)
		if ref != nil {
			return pieces, fromMs, ref
		}
		if d.left >= 0 {
			d.left -= cost
		}
		pieces = ledger.ExtendHold(pieces, more)
		fromMs = next
	}
	return pieces, fromMs, nil
}

func maxChargeRefusal(needed, left ledger.Amount) *ledger.Refusal {
	return &ledger.Refusal{
		Kind: ledger.Short, Code: "job.max_charge",
		Detail: "The job's own limit leaves " + left.Hours() + " GPU-h of the " + needed.Hours() + " GPU-h needed.",
		Facts: map[string]string{
			"needed": needed.Exact(), "available": left.Exact(), "short": (needed - left).Exact(),
			"limited_by": "the job's own limit",
		},
	}
}

// verdict decides the attempt's cause and what becomes of the job: an attempt
// that was stopped or lost and may resume goes back to its old place.
func (m *mover) verdict() {
	r := m.r
	stopped, lost, failed := false, false, false
	for i := range r.Members {
		e := &r.Members[i].Exit
		stopped = stopped || e.Stopped
		lost = lost || e.Lost
		failed = failed || !e.Stopped && !e.Lost && (e.Code != 0 || e.Signal != 0)
	}
	again := ResultPreempted
	switch {
	case m.Next.Cancel && (stopped || lost):
		r.Cause, m.Next.Result = CauseCancelled, ResultCancelled
	case lost:
		r.Cause, again = CauseLost, ResultLost
	case r.Rule == GangFailed, !stopped && failed:
		r.Cause, m.Next.Result = CauseFinished, ResultFailed
	case !stopped:
		r.Cause, m.Next.Result = CauseFinished, ResultOK
	case r.Rule == MaxRuntime:
		r.Cause, m.Next.Result = CauseMaxRuntime, ResultTimeout
	case r.Rule == MoneyEnded:
		r.Cause, m.Next.Result = CauseMoney, ResultFunds
	default:
		r.Cause = CausePreempted
	}
	m.Next.Job = JobOver
	if m.Next.Result != "" {
		return
	}
	if r.Contract.Resumable {
		m.Next.Job = JobWaiting
		return
	}
	m.Next.Result = again
}

// readopt reopens an attempt that was lost with its node and still runs there,
// while nothing newer has started. Its hold is drawn anew from where charging
// stopped to where it reached before; without funds it goes on unfunded. What was
// credited stays so: the silence was the institute's. A gang cannot come back:
// its other members were told to stop.
func readopt(m *mover, ev *Event) *ledger.Refusal {
	r := m.r
	if r.Cause != CauseLost || r.Rule != "" || len(r.Members) != 1 || r.Members[0].Rank != ev.Rank || m.Next.Cancel {
		return ignore(m, ev)
	}
	r.Phase, r.Ended, r.Cause = Running, 0, ""
	r.Members[0].Ended, r.Members[0].Exit = false, Exit{}
	m.Next.Job = JobActive
	if !r.Funded || r.ChargedMs >= r.HoldUntilMs {
		return nil
	}
	f := copyFunds(ev.Funds)
	pieces, ref := f.Draw(r.price(), r.Started, r.ChargedMs, r.HoldUntilMs)
	if ref != nil {
		r.HoldUntilMs = r.ChargedMs
		m.goUnfunded(r.ChargedMs)
		return nil
	}
	if len(pieces) > 0 {
		m.Entries = append(m.Entries, ledger.HoldEntry(ledger.HoldInput{
			Key: fmt.Sprintf("hold:attempt:%d:%dms:%dms:return", r.Attempt, r.ChargedMs, r.HoldUntilMs),
			At:  ev.At, Pieces: pieces, Lots: ev.lots(),
		}))
	}
	r.Hold = append(r.Hold, pieces...)
	return nil
}

// credit gives back what was charged since the last checkpoint, else since the
// start, less what an earlier loss has given back already.
func (m *mover) credit(ev *Event) {
	r := m.r
	from, cause := int64(0), string(r.Cause)
	if r.Checkpoint > r.Started {
		from = r.Checkpoint.MillisSince(r.Started)
	}
	if r.CreditToMs > 0 {
		from, cause = max(from, r.CreditToMs), fmt.Sprintf("%s:%dms", r.Cause, r.ChargedMs)
	}
	refund := r.price().Cum(r.ChargedMs) - r.price().Cum(from)
	if refund <= 0 {
		return
	}
	entry, ref := ledger.CreditEntry(ledger.CreditInput{
		Attempt: r.Attempt, Cause: cause, Project: r.Project, Pool: r.Pool, Hold: r.Hold,
		Lots: ev.lots(), Charged: r.Charged, Credited: r.Credited, Refund: refund, At: ev.At,
	})
	if ref != nil {
		return
	}
	m.Entries = append(m.Entries, entry)
	r.Credited += refund
	if r.CreditToMs == 0 || from > r.CreditToMs {
		r.CreditFromMs = from
	}
	r.CreditToMs = r.ChargedMs
}
