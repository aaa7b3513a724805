package store

import (
	"context"
	"encoding/json"
	"fmt"

	"tranche/ledger"
	"tranche/scheduler"
)

// RenewJob asks for new protection in place for a job that runs funded; ms 0 asks
// for its declared minimum. The next cycle grants or refuses it; the answer is
// shown with the attempt. Asking again replaces what was not answered yet.
func (s *Store) RenewJob(ctx context.Context, cmd Command, id ledger.JobID, ms int64) error {
	type content struct {
		Job ledger.JobID
		Ms  int64
	}
	_, err := runCommand(ctx, s, "job.renew", cmd, content{id, ms}, func(tx *Tx) (ledger.JobID, error) {
		l, err := loadLife(ctx, tx, id)
		if err != nil {
			return 0, err
		}
		if refusal := cmd.Actor.MayOwn(ledger.JobPause, l.path, l.job.Member, tx.Now); refusal != nil {
			return 0, refusal
		}
		policy, err := loadPolicy(ctx, tx)
		if err != nil {
			return 0, err
		}
		if refusal := l.mayRenew(&policy, &ms); refusal != nil {
			return 0, refusal
		}
		if _, err := tx.Exec(ctx, `update attempts set renew_ms = $2, renew_asked_at = $3, renew_answer = null, renew_answered_at = null where id = $1`,
			l.state.Run.Attempt, ms, tx.Now); err != nil {
			return 0, err
		}
		tx.Notify(channelCycle)
		return id, audit(ctx, tx, cmd, act{Verb: "job.renew", Subject: fmt.Sprintf("job %d", id), After: content{id, ms}})
	})
	return err
}

// mayRenew checks what the cycle need not be asked about, and fills in the length.
func (l *life) mayRenew(p *scheduler.Policy, ms *int64) *ledger.Refusal {
	r := &l.state.Run
	if l.state.Job != scheduler.JobActive || r.Phase != scheduler.Running || !r.Funded {
		return &ledger.Refusal{
			Kind: ledger.Conflict, Code: "job.not_funded",
			Detail: fmt.Sprintf("Job %d does not run on a budget now, so there is no protection to renew.", l.job.ID),
		}
	}
	if *ms == 0 {
		*ms = r.MinMs
	}
	if *ms < leastMinimumMs || *ms > p.CapMs {
		return refuse(ledger.Invalid, "job.renew", "for",
			"New protection lasts from "+ledger.FormatMillis(leastMinimumMs)+" to "+ledger.FormatMillis(p.CapMs)+".")
	}
	return nil
}

// unprotect ends the protection of an attempt that was idle for too long.
func (c *carrying) unprotect(ref scheduler.AttemptRef) {
	if l := c.live(ref); l != nil {
		if _, refusal := l.advance(scheduler.Event{Kind: scheduler.EvUnprotected, At: c.plan.Now}, "unprotected", nil); refusal != nil {
			c.drop(ref.Job, "attempt")
		}
	}
}

// renewal grants new protection, or lets the attempt know why not.
func (c *carrying) renewal(r *scheduler.Renewal) error {
	l := c.live(r.AttemptRef)
	if l == nil || l.state.Run.Phase != scheduler.Running {
		return nil
	}
	kind := "renewal-refused"
	if r.Refused == nil {
		p := purse{l.job.Project, l.job.Pool}
		if !c.draw(p, r.Hold) {
			return nil // asked again in the next cycle
		}
		var lots []ledger.Lot
		if f := c.funds[p]; f != nil {
			lots = f.Lots
		}
		kind = "renewed"
		ev := scheduler.Event{Kind: scheduler.EvRenewed, At: c.plan.Now, Hold: r.Hold, FromMs: r.FromMs, ToMs: r.ToMs, Until: r.Until, Lots: lots}
		if _, refusal := l.advance(ev, "", nil); refusal != nil {
			return nil // prolonged meanwhile: asked again in the next cycle
		}
	}
	answer, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("renewal of job %d: %w", r.Job, err)
	}
	c.extra.Queue(`update attempts set renew_ms = 0, renew_answer = $2, renew_answered_at = $3, warned_ms = case when $4 then 0 else warned_ms end where id = $1`,
		r.Attempt, answer, c.plan.Now, r.Refused == nil)
	c.extra.Queue(`insert into job_events (job_id, attempt_n, at, kind, detail) values ($1, $2, $3, $4, $5)`, r.Job, r.N, c.plan.Now, kind, answer)
	c.tell(l)
	return nil
}

// tell lets the nodes of an attempt fetch what its command is to be told.
func (c *carrying) tell(l *life) {
	for i := range l.placed {
		c.told = append(c.told, l.placed[i].Node)
	}
}

// warning tells an attempt's owner that its protection ends soon.
func (c *carrying) warning(w *scheduler.Warning) error {
	l := c.live(w.AttemptRef)
	if l == nil {
		return nil
	}
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("warning of job %d: %w", w.Job, err)
	}
	c.extra.Queue(`update attempts set warned_ms = $2, warning = $3 where id = $1`, w.Attempt, w.LeftMs, text)
	c.extra.Queue(`insert into job_events (job_id, attempt_n, at, kind, detail) values ($1, $2, $3, 'warned', $4)`, w.Job, w.N, c.plan.Now, text)
	c.tell(l)
	// For whom it may have to go is said on its page, to those who may see it.
	c.extra.Queue(`insert into outbox (at, kind, person_id, subject, body) values ($1, 'job.warned', $2, $3, jsonb_build_object('job', $4::bigint, 'left_ms', $5::bigint))`,
		c.plan.Now, l.job.Member, fmt.Sprintf("Job %d is protected for another %s", w.Job, ledger.FormatMillis(w.LeftMs)), w.Job, w.LeftMs)
	return nil
}

// Answer is what the dispatcher said to the newest ask for new protection; nil
// when there was none or it is not answered yet.
func (a *AttemptLine) Answer() *scheduler.Renewal {
	var r scheduler.Renewal
	if len(a.renewAnswer) == 0 || json.Unmarshal(a.renewAnswer, &r) != nil {
		return nil
	}
	return &r
}

// Warning is the newest warning that the attempt's protection ends; nil when it
// was not warned, or has new protection since.
func (a *AttemptLine) Warning() *scheduler.Warning {
	var w scheduler.Warning
	if len(a.warning) == 0 || json.Unmarshal(a.warning, &w) != nil || w.Until != a.ProtectedUntil {
		return nil
	}
	return &w
}
