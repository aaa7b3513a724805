package scheduler

import (
	"fmt"
	"slices"

	"tranche/ledger"
)

// stage is the column of the life cycle's table: where a job stands.
type stage int8

const (
	atWaiting stage = iota
	atPaused
	atReserved
	atNominated
	atStarting
	atRunning
	atEnding
	atOver
	stages
)

// act is one cell of the table. It works on the step in place.
type act func(*mover, *Event) *ledger.Refusal

// mover carries one event's work: the step under construction.
type mover struct {
	Step
	r *Run // &Step.Next.Run
}

// moves is the whole life cycle: one row per event, one column per stage
// (waiting, paused, reserved, nominated, starting, running, ending, over).
var moves = map[EventKind][stages]act{
	EvReserved:    {reserve, refuseEv, ignore, refuseEv, refuseEv, refuseEv, refuseEv, refuseEv},
	EvMoved:       {refuseEv, refuseEv, replan, refuseEv, refuseEv, refuseEv, refuseEv, refuseEv},
	EvNominated:   {nominate, refuseEv, nominateReserved, ignore, ignore, refuseEv, refuseEv, refuseEv},
	EvLeased:      {lease, refuseEv, leaseReserved, promote, ignore, ignore, refuseEv, refuseEv},
	EvClaimed:     {refuseClaim, refuseClaim, refuseClaim, refuseClaim, claim, claim, refuseClaim, refuseClaim},
	EvAccrued:     {ignore, ignore, ignore, ignore, ignore, accrue, accrue, ignore},
	EvExtended:    {refuseEv, refuseEv, refuseEv, refuseEv, refuseEv, extend, extend, refuseEv},
	EvMoneyEnded:  {refuseEv, refuseEv, refuseEv, refuseEv, refuseEv, endMoney, ignore, ignore},
	EvSignalled:   {ignore, ignore, withdraw, withdraw, withdraw, signal, ignore, ignore},
	EvCancelled:   {cancelWaiting, cancelWaiting, cancelLive, cancelLive, cancelLive, cancelLive, cancelLive, ignore},
	EvFinished:    {ignore, ignore, ignore, ignore, finish, finish, finish, ignore},
	EvLost:        {ignore, ignore, ignore, withdraw, lose, lose, lose, ignore},
	EvPaused:      {pause, ignore, pauseReserved, refuseEv, refuseEv, refuseEv, refuseEv, refuseEv},
	EvResumed:     {ignore, resume, ignore, ignore, ignore, ignore, ignore, refuseEv},
	EvRenewed:     {refuseEv, refuseEv, refuseEv, refuseEv, refuseEv, renewed, ignore, ignore},
	EvUnprotected: {ignore, ignore, ignore, ignore, ignore, unprotected, ignore, ignore},
	EvReturned:    {readopt, ignore, ignore, ignore, ignore, ignore, ignore, ignore},
}

// Advance is the whole life cycle of a job and the only caller of
// ledger.Charge: what one event makes of the job, which entries are to be
// posted and which occupancy is to be recorded. A late or repeated event gives
// Changed = false. It refuses what contradicts the job's state (a claim of a
// closed attempt, a pause of a running job) and what has no funds at the claim.
// It never changes l.
func Advance(l Life, ev Event) (Step, *ledger.Refusal) {
	m := mover{Step: Step{Next: l, Changed: true}}
	m.Next.Run.Hold = slices.Clone(l.Run.Hold)
	m.Next.Run.Members = slices.Clone(l.Run.Members)
	m.r = &m.Next.Run
	row, ok := moves[ev.Kind]
	if !ok {
		return Step{Next: l}, refuseEv(&m, &ev)
	}
	if ref := row[stageOf(&l)](&m, &ev); ref != nil {
		return Step{Next: l}, ref
	}
	if !m.Changed {
		return Step{Next: l}, nil
	}
	if m.r.Attempt != 0 {
		m.Segments = m.r.Segments()
	}
	return m.Step, nil
}

func stageOf(l *Life) stage {
	switch l.Job {
	case JobPaused:
		return atPaused
	case JobOver:
		return atOver
	case JobActive:
		switch l.Run.Phase {
		case Reserved:
			return atReserved
		case Nominated:
			return atNominated
		case Starting:
			return atStarting
		case Running:
			return atRunning
		case Ending:
			return atEnding
		}
	}
	return atWaiting
}

func ignore(m *mover, _ *Event) *ledger.Refusal {
	m.Changed = false
	return nil
}

func refuseEv(m *mover, _ *Event) *ledger.Refusal {
	return &ledger.Refusal{
		Kind: ledger.Conflict, Code: "job.state",
		Detail: fmt.Sprintf("Job %d is not in a state that allows this; reload the page to see where it stands.", m.r.Job),
	}
}

func refuseClaim(m *mover, ev *Event) *ledger.Refusal {
	return &ledger.Refusal{
		Kind: ledger.Conflict, Code: "attempt.closed",
		Detail: fmt.Sprintf("Attempt %d of job %d may not start any more: it was withdrawn or has ended.", m.r.N, m.r.Job),
		Facts:  map[string]string{"rank": fmt.Sprint(ev.Rank)},
	}
}

// begin installs the new attempt and posts its hold.
func begin(m *mover, ev *Event, phase Phase) *ledger.Refusal {
	if ev.Run == nil {
		return refuseEv(m, ev)
	}
	m.Next.Run = *ev.Run
	m.r.Hold = slices.Clone(ev.Run.Hold)
	m.r.Members = slices.Clone(ev.Run.Members)
	m.r.Phase, m.r.Since = phase, ev.At
	m.Next.Job = JobActive
	if len(m.r.Hold) > 0 {
		m.Entries = append(m.Entries, m.r.holdEntry(0, m.r.HoldUntilMs, m.r.Hold, ev))
	}
	return nil
}

func nominate(m *mover, ev *Event) *ledger.Refusal { return begin(m, ev, Nominated) }

func lease(m *mover, ev *Event) *ledger.Refusal {
	ref := begin(m, ev, Starting)
	m.r.Leased = ev.At
	return ref
}

// reserve makes a waiting job the holder of its pool's reserved start: the hold
// is posted, devices it has none.
func reserve(m *mover, ev *Event) *ledger.Refusal { return begin(m, ev, Reserved) }

// replan gives the holder other nodes or another instant.
func replan(m *mover, ev *Event) *ledger.Refusal {
	if ev.Reservation == nil {
		return refuseEv(m, ev)
	}
	m.r.Reserved = ev.Reservation
	return nil
}

// takePlace gives the holder the place of its start. Attempt, number and hold are
// those it reserved with.
func takePlace(m *mover, ev *Event, phase Phase) *ledger.Refusal {
	if ev.Run == nil {
		return refuseEv(m, ev)
	}
	m.r.Members, m.r.MilliGPU = slices.Clone(ev.Run.Members), ev.Run.MilliGPU
	m.r.Phase, m.r.Since, m.r.Reserved = phase, ev.At, nil
	return nil
}

func nominateReserved(m *mover, ev *Event) *ledger.Refusal { return takePlace(m, ev, Nominated) }

func leaseReserved(m *mover, ev *Event) *ledger.Refusal {
	m.r.Leased = ev.At
	return takePlace(m, ev, Starting)
}

func promote(m *mover, ev *Event) *ledger.Refusal {
	m.r.Phase, m.r.Leased = Starting, ev.At
	return nil
}

func (r *Run) member(rank int32) *Member {
	for i := range r.Members {
		if r.Members[i].Rank == rank {
			return &r.Members[i]
		}
	}
	return nil
}

// claim starts the record: protection and hold run from here. The gang is
// protected until its latest member's claim + minimum; its elapsed time counts
// from the first.
func claim(m *mover, ev *Event) *ledger.Refusal {
	mem := m.r.member(ev.Rank)
	if mem == nil {
		return refuseClaim(m, ev)
	}
	if mem.Claimed != 0 || mem.Ended {
		return ignore(m, ev)
	}
	if m.r.Started == 0 {
		if m.r.Funded {
			if ref := m.rehold(ev); ref != nil {
				return ref
			}
		}
		m.r.Started, m.r.Phase = ev.At, Running
	}
	mem.Claimed = ev.At
	if m.r.Funded {
		m.r.ProtectedUntil = max(m.r.ProtectedUntil, ev.At.Add(m.r.MinMs))
	}
	return nil
}

// accrue notes what is proven and, past the protection, charges whole steps of
// the attempt's own time line that holds cover. PostAll charges all of it.
func accrue(m *mover, ev *Event) *ledger.Refusal {
	mem := m.r.member(ev.Rank)
	if mem == nil || mem.Ended || ev.ElapsedMs <= mem.ElapsedMs && !ev.PostAll {
		return ignore(m, ev)
	}
	mem.ElapsedMs = max(mem.ElapsedMs, ev.ElapsedMs)
	m.r.ProvenMs = max(m.r.ProvenMs, mem.ElapsedMs)
	to := min(m.r.ProvenMs, m.r.HoldUntilMs)
	if !ev.PostAll {
		to = lastStep(to, m.r.MinMs, ev.HoldStepMs)
	}
	m.charge(m.r.chargeable(to), false, ev)
	return nil
}

// lastStep is the last instant ≤ ms at which an unprotected attempt settles:
// the end of its protection, then every step after it. Before that: 0.
func lastStep(ms, minMs, stepMs int64) int64 {
	switch {
	case ms < minMs:
		return 0
	case stepMs <= 0:
		return ms
	}
	return minMs + (ms-minMs)/stepMs*stepMs
}

func extend(m *mover, ev *Event) *ledger.Refusal {
	if ev.ToMs <= m.r.HoldUntilMs {
		return ignore(m, ev)
	}
	if !m.r.Funded || ev.FromMs != m.r.HoldUntilMs || !m.r.Rule.chargedToExit() {
		return refuseEv(m, ev)
	}
	m.addHold(ev.FromMs, ev.ToMs, ev.Hold, ev)
	return nil
}

func (m *mover) addHold(from, to int64, pieces []ledger.Piece, ev *Event) {
	if len(pieces) > 0 {
		m.Entries = append(m.Entries, m.r.holdEntry(from, to, pieces, ev))
	}
	m.r.Hold = append(m.r.Hold, pieces...)
	m.r.HoldUntilMs = to
}

// endMoney lets the attempt go on unfunded from FromMs of its elapsed time. It
// never turns back within the attempt.
func endMoney(m *mover, ev *Event) *ledger.Refusal {
	if !m.r.Funded {
		return ignore(m, ev)
	}
	m.goUnfunded(ev.FromMs)
	return nil
}

func (m *mover) goUnfunded(atMs int64) {
	m.r.Funded, m.r.FundedMs = false, atMs
}

// signal: told to stop. Before its claim an attempt is withdrawn instead.
func signal(m *mover, ev *Event) *ledger.Refusal {
	m.r.Phase, m.r.Signalled, m.r.Rule = Ending, ev.At, ev.Rule
	m.r.StopMs = max(0, ev.At.MillisSince(m.r.Started))
	m.StopAll = true
	return nil
}

// withdraw closes an attempt that nothing has claimed: it costs nothing.
func withdraw(m *mover, ev *Event) *ledger.Refusal {
	m.r.Rule = ev.Rule
	m.close(ev)
	return nil
}

func cancelWaiting(m *mover, _ *Event) *ledger.Refusal {
	m.Next.Job, m.Next.Result, m.Next.Cancel = JobOver, ResultCancelled, true
	return nil
}

// cancelLive: before the claim it costs 0; a running attempt pays to its exit;
// one that is ending already will not come back.
func cancelLive(m *mover, ev *Event) *ledger.Refusal {
	if m.Next.Cancel {
		return ignore(m, ev)
	}
	m.Next.Cancel = true
	switch m.r.Phase {
	case Reserved, Nominated, Starting:
		m.r.Rule = Cancelled
		m.close(ev)
	case Running:
		ev.Rule = Cancelled
		return signal(m, ev)
	}
	return nil
}

func pause(m *mover, _ *Event) *ledger.Refusal {
	m.Next.Job = JobPaused
	return nil
}

// pauseReserved gives the reserved start up.
func pauseReserved(m *mover, ev *Event) *ledger.Refusal {
	m.r.Rule = Unreserved
	m.close(ev)
	m.Next.Job = JobPaused
	return nil
}

func resume(m *mover, _ *Event) *ledger.Refusal {
	m.Next.Job = JobWaiting
	return nil
}

// finish takes one member's end record. The last one closes the attempt; a
// failure before that stops the rest of the gang.
func finish(m *mover, ev *Event) *ledger.Refusal {
	mem := m.r.member(ev.Rank)
	if mem == nil || mem.Ended {
		return ignore(m, ev)
	}
	mem.Ended, mem.Exit = true, ev.Exit
	mem.ElapsedMs = max(mem.ElapsedMs, ev.ElapsedMs)
	mem.TermMs = ev.TermMs
	if ev.Exit.Lost {
		mem.ElapsedMs = ev.ElapsedMs
	}
	m.r.ProvenMs = max(m.r.ProvenMs, mem.ElapsedMs)
	if m.r.allEnded() || m.r.Started == 0 {
		m.close(ev)
		return nil
	}
	if ev.Exit == (Exit{}) || m.r.Phase == Ending {
		return nil
	}
	ev.Rule = GangFailed
	if ev.Exit.Lost {
		ev.Rule = NodeLost
	}
	return signal(m, ev)
}

// lose: the member's node has been silent too long. Its last heartbeat is the
// end of what is proven.
func lose(m *mover, ev *Event) *ledger.Refusal {
	ev.Exit = Exit{Code: -1, Lost: true}
	return finish(m, ev)
}

func (r *Run) allEnded() bool {
	for i := range r.Members {
		if !r.Members[i].Ended {
			return false
		}
	}
	return true
}
