package store

import (
	"context"
	"fmt"

	"tranche/ledger"
	"tranche/scheduler"
)

// PartRef names one attempt's part as an agent knows it.
type PartRef struct {
	Node    ledger.NodeID
	Attempt ledger.AttemptID
	Fence   int64
	Rank    int32
}

// Claim is a launcher's one-time leave to run user code: the start of record.
// Protection and hold run from here, so the hold is drawn anew when other lots
// are valid now. It says whether an earlier attempt has run. Refused (Conflict)
// when the attempt is closed, was replaced, or is claimed by another launcher;
// refused (Short), with the job back in the queue, when no lot covers it.
func (s *Store) Claim(ctx context.Context, p PartRef, launcher string) (resume bool, err error) {
	var short *ledger.Refusal
	err = s.inTx(ctx, "claim", func(tx *Tx) error {
		short = nil
		l, i, err := lockPart(ctx, tx, p)
		if err != nil {
			return err
		}
		if i < 0 {
			return closedAttempt(p)
		}
		if err := tx.QueryRow(ctx, `select exists (select from attempts where job_id = $1 and n < $2 and started_at is not null)`,
			l.job.ID, l.state.Run.N).Scan(&resume); err != nil {
			return err
		}
		m := &l.state.Run.Members[i]
		if m.Claimed != 0 && !m.Ended && l.state.Run.Phase != 0 {
			if l.parts[i].launcher == launcher {
				return nil
			}
			return refuse(ledger.Conflict, "attempt.claimed", "", fmt.Sprintf("Attempt %d is already claimed by another launcher.", p.Attempt))
		}
		funds, err := lockFundsOf(ctx, tx, purse{l.job.Project, l.job.Pool}, l.path)
		if err != nil {
			return err
		}
		changed, refusal := l.advance(scheduler.Event{Kind: scheduler.EvClaimed, At: tx.Now, Rank: p.Rank, Funds: funds}, "claimed", map[string]int32{"rank": p.Rank})
		switch {
		case refusal != nil && refusal.Kind == ledger.Short:
			short = refusal
			if err := l.withdraw(tx.Now, refusal); err != nil {
				return err
			}
		case refusal != nil:
			return refusal
		case !changed:
			return closedAttempt(p)
		default:
			l.parts[i].launcher = launcher
		}
		return s.keep(ctx, tx, l)
	})
	if err == nil && short != nil {
		return false, short
	}
	return resume, err
}

// withdraw takes back an attempt that nothing has claimed; the job waits again.
func (l *life) withdraw(now ledger.Instant, why *ledger.Refusal) error {
	_, refusal := l.advance(scheduler.Event{Kind: scheduler.EvSignalled, At: now, Rule: scheduler.Replan}, "claim-refused", why.Facts)
	if refusal != nil {
		return refusal
	}
	return nil
}

func closedAttempt(p PartRef) *ledger.Refusal {
	return refuse(ledger.Conflict, "attempt.closed", "", fmt.Sprintf("Attempt %d may not start any more: it was withdrawn, replaced or has ended.", p.Attempt))
}

// lockPart locks the job of an attempt's part and gives the member's index: −1
// when the part is not (or no longer) the job's latest on that node.
func lockPart(ctx context.Context, tx *Tx, p PartRef) (*life, int, error) {
	var job ledger.JobID
	err := tx.QueryRow(ctx, `select job_id from attempts where id = $1`, p.Attempt).Scan(&job)
	if noRow(err) {
		return nil, -1, nil
	}
	if err != nil {
		return nil, -1, err
	}
	l, err := loadLife(ctx, tx, job)
	if err != nil {
		return nil, -1, err
	}
	i := l.member(p.Rank)
	if l.state.Run.Attempt != p.Attempt || l.fence != p.Fence || i < 0 || l.placed[i].Node != p.Node {
		return l, -1, nil
	}
	return l, i, nil
}

// End is a launcher's truth about one attempt's part. Times are real µs since
// the claim; TermUS is 0 when no ordered SIGTERM was delivered.
type End struct {
	PartRef
	ExitCode  int
	Signal    int
	ElapsedUS int64
	TermUS    int64
	Stopped   bool // ended after the server's stop
	Lost      bool // the node has no end record of it
	Detail    string
}

// Ended takes an end record, any number of times: charges, releases, frees the
// devices and decides what becomes of the job. superseded says that a newer
// fence or an earlier close had already decided.
func (s *Store) Ended(ctx context.Context, e End) (superseded bool, err error) {
	err = s.inTx(ctx, "ended", func(tx *Tx) error {
		l, i, err := lockPart(ctx, tx, e.PartRef)
		if err != nil {
			return err
		}
		superseded = i < 0 || l.state.Run.Members[i].Ended || l.state.Run.Phase == 0
		if superseded {
			return forgetReturn(ctx, tx, e.PartRef)
		}
		funds, err := lockFundsOf(ctx, tx, purse{l.job.Project, l.job.Pool}, l.path)
		if err != nil {
			return err
		}
		policy, err := loadPolicy(ctx, tx)
		if err != nil {
			return err
		}
		ev := s.endEvent(&e, l, i, tx.Now)
		ev.Funds, ev.HoldStepMs = funds, policy.HoldStepMs
		l.parts[i].detail = clipRunes(e.Detail, 500)
		if _, refusal := l.advance(ev, "ended", endDetail{e.Rank, e.ExitCode, e.Signal, ev.ElapsedMs, l.parts[i].flagged}); refusal != nil {
			return refusal
		}
		l.noteClose()
		return s.keep(ctx, tx, l)
	})
	return superseded, err
}

type endDetail struct {
	Rank      int32  `json:"rank"`
	ExitCode  int    `json:"exit_code"`
	Signal    int    `json:"signal,omitempty"`
	ElapsedMs int64  `json:"elapsed_ms"`
	Flagged   string `json:"flagged,omitempty"`
}

// endEvent turns an end record into an event of the life cycle. A report that
// exceeds what the server itself saw by more than a real second is cut to it.
func (s *Store) endEvent(e *End, l *life, i int, now ledger.Instant) scheduler.Event {
	m := l.state.Run.Members[i]
	ev := scheduler.Event{
		Kind: scheduler.EvFinished, At: now, Rank: e.Rank, ElapsedMs: s.businessMs(e.ElapsedUS), TermMs: s.businessMs(e.TermUS),
		Exit: scheduler.Exit{Code: e.ExitCode, Signal: e.Signal, Stopped: e.Stopped || e.TermUS > 0},
	}
	if m.Claimed == 0 {
		ev.ElapsedMs, ev.TermMs = 0, 0
		return ev
	}
	if span := now.MillisSince(m.Claimed); ev.ElapsedMs > span+1000*s.Speed() {
		l.parts[i].flagged = fmt.Sprintf("reported %s, but only %s had passed; cut to that",
			ledger.FormatMillis(ev.ElapsedMs), ledger.FormatMillis(span))
		ev.ElapsedMs, ev.TermMs = span, min(ev.TermMs, span)
	}
	if e.Lost {
		ev.Kind, ev.ElapsedMs = scheduler.EvLost, max(ev.ElapsedMs, l.parts[i].seenMs)
	}
	return ev
}

// noteClose adds what became of the job to its time line, once it is decided.
func (l *life) noteClose() {
	if !l.freed {
		return
	}
	r := &l.state.Run
	type closed struct {
		Cause    scheduler.Cause  `json:"cause"`
		Result   scheduler.Result `json:"result,omitempty"`
		Charged  ledger.Amount    `json:"charged_units"`
		Credited ledger.Amount    `json:"credited_units,omitempty"`
	}
	kind := "requeued"
	if l.state.Job == scheduler.JobOver {
		kind = "finished"
	}
	l.events = append(l.events, lifeEvent{kind, closed{r.Cause, l.state.Result, r.Charged, r.Credited}})
}
