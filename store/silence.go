package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// confirmWithin is how long after its grace an attempt's end may stay unconfirmed
// before the node is suspected, real ms.
const confirmWithin = int64(60_000)

// Reconcile looks at who has been silent, in real time: suspects and storms are
// marked, and what ran on a lost node ends at its last heartbeat, is credited
// and waits again. What nodes' health checks lead to comes with it. It says what
// changed, nil when nothing did, and is cheap then.
func (w *World) Reconcile(ctx context.Context) (*scheduler.Reconciled, error) {
	var live scheduler.Liveness
	var frozenNow []ledger.PoolID
	err := w.store.readTx(ctx, "look for silence", func(tx *Tx) error {
		policy, err := loadPolicy(ctx, tx)
		if err != nil {
			return err
		}
		live = scheduler.Liveness{Now: tx.Real, LeaderSince: w.since, FreezePPM: policy.FreezePPM, FreezeNodes: policy.FreezeNodes, Checks: policy.CheckRules()}
		frozenNow = nil
		batch := &pgx.Batch{}
		// Doubted: something was to be gone by now, its kill at the end of the grace
		// included, and nobody has confirmed it.
		batch.Queue(`select n.id, n.pool_id, n.health, coalesce(n.heartbeat_at, n.enrolled_at), n.health_since,
				exists (select from placements p join attempts a on a.id = p.attempt_id join jobs j on j.id = a.job_id
					where p.node_id = n.id and not p.ended and a.phase = 'ending'
						and a.stop_asked_at + (j.grace_ms + $2) * $3 * interval '1 millisecond' < $1),
				n.check_last, n.check_streak, n.check_since, n.degraded_since, n.drained_by_check, n.drain <> ''
			from nodes n where n.retired_at is null order by n.id`, tx.Now, confirmWithin, w.store.Speed()).
			Query(each(&live.Nodes, func(n *scheduler.NodeFacts) []any {
				c := &n.Check
				return []any{&n.ID, &n.Pool, (*healthWord)(&n.Health), &n.LastBeat, &n.Changed, &n.Doubted, &c.Last, &c.Streak, &c.Since, &c.Degraded, &c.Drained, &c.Drain}
			}))
		batch.Queue(`select id from pools where frozen_at is not null order by id`).Query(each(&frozenNow, func(id *ledger.PoolID) []any { return []any{id} }))
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, err
	}
	out := scheduler.Reconcile(live)
	if len(out.Changes) == 0 && len(out.Checks) == 0 && slices.Equal(out.Frozen, frozenNow) {
		return nil, nil
	}
	return &out, w.leader.inLeaderTx(ctx, "silence", func(tx *Tx) error {
		if err := applyChecks(ctx, tx, out.Checks); err != nil {
			return err
		}
		return w.applySilence(ctx, tx, out.Changes, out.Frozen)
	})
}

// applyChecks writes what nodes' health checks have led to. A drain that an
// operator has begun or ended meanwhile is left as it is.
func applyChecks(ctx context.Context, tx *Tx, changes []scheduler.CheckChange) error {
	for _, c := range changes { // by node id
		drain := map[scheduler.Check]string{scheduler.CheckDegraded: DrainSoft, scheduler.CheckFault: DrainHard}[c.Drained]
		var before, after CheckOutcome
		err := tx.QueryRow(ctx, `with was as (select id, degraded_since is not null as degraded, drain, drained_by_check, check_bad_why from nodes where id = $1 for update)
			update nodes n set degraded_since = case when $2 then coalesce(n.degraded_since, $5::timestamptz) end,
				drain = case when was.drain = '' or was.drained_by_check <> '' then $3 else was.drain end,
				drained_by_check = case when was.drain = '' or was.drained_by_check <> '' then $4 else '' end,
				drain_by = case when was.drain = '' or was.drained_by_check <> '' then null else n.drain_by end,
				drain_since = case when was.drain = '' or was.drained_by_check <> '' then case when $3 <> '' then $6::timestamptz end else n.drain_since end,
				drain_why = case when was.drain = '' or was.drained_by_check <> '' then case when $3 <> '' then was.check_bad_why else '' end else n.drain_why end
			from was where n.id = was.id returning was.degraded, was.drain, n.degraded_since is not null, n.drain, n.check_bad_why`,
			c.Node, c.Degraded, drain, c.Drained, tx.Real, tx.Now).Scan(&before.Degraded, &before.Drain, &after.Degraded, &after.Drain, &after.Why)
		if err != nil {
			return fmt.Errorf("carry out the checks of node %d: %w", c.Node, err)
		}
		if err := audit(ctx, tx, Command{}, act{Verb: "node.check", Subject: subjectOf("node", int64(c.Node)), Before: before, After: after}); err != nil {
			return err
		}
	}
	return nil
}

// healthWord scans what the server sees of a node.
type healthWord scheduler.Health

// Scan takes the database's word.
func (h *healthWord) Scan(src any) error {
	word, ok := src.(string)
	if !ok {
		return fmt.Errorf("health of a node: %T", src)
	}
	*h = healthWord(healthOf(word, "", false))
	return nil
}

func wordOfHealth(h scheduler.Health) string {
	switch h {
	case scheduler.Lost:
		return "lost"
	case scheduler.Suspect:
		return "suspect"
	}
	return "healthy"
}

// applySilence writes the transitions and ends what was on lost nodes.
func (w *World) applySilence(ctx context.Context, tx *Tx, changes []scheduler.Transition, frozen []ledger.PoolID) error {
	var lost []ledger.NodeID
	for _, t := range changes {
		if t.To == scheduler.Lost {
			lost = append(lost, t.Node)
		}
	}
	if len(lost) > 0 {
		if err := w.endOnLost(ctx, tx, lost); err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	for _, t := range changes { // by node id, as Reconcile gives them
		why := ""
		if t.To != scheduler.Healthy {
			why = "silent, or an end that nobody confirmed"
		}
		batch.Queue(`update nodes set health = $2, health_since = $3, health_why = $4, orders = orders + 1 where id = $1`,
			t.Node, wordOfHealth(t.To), tx.Real, why)
	}
	if frozen == nil {
		frozen = []ledger.PoolID{}
	}
	batch.Queue(`update pools set frozen_at = case when id = any($1) then coalesce(frozen_at, $2) end,
		frozen_why = case when id = any($1) then 'many nodes fell silent within a few minutes' else '' end
		where (id = any($1)) <> (frozen_at is not null)`, frozen, tx.Real)
	tx.Notify(channelCycle)
	tx.Notify(channelOrders)
	tx.Notify(channelPage)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("mark silent nodes: %w", err)
	}
	return nil
}

// endOnLost ends every part that runs on a lost node at its last heartbeat.
func (w *World) endOnLost(ctx context.Context, tx *Tx, nodes []ledger.NodeID) error {
	rows, err := tx.Query(ctx, `select distinct a.job_id from placements p join attempts a on a.id = p.attempt_id
		where p.node_id = any($1) and not p.ended and a.phase <> 'closed' order by 1`, nodes)
	if err != nil {
		return err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[ledger.JobID])
	if err != nil || len(jobs) == 0 {
		return err
	}
	lives, err := loadLives(ctx, tx, jobs)
	if err != nil {
		return err
	}
	var purses []purse
	for _, id := range jobs {
		if p := (purse{lives[id].job.Project, lives[id].job.Pool}); !slices.Contains(purses, p) {
			purses = append(purses, p)
		}
	}
	funds, err := lockFunds(ctx, tx, purses)
	if err != nil {
		return err
	}
	policy, err := loadPolicy(ctx, tx)
	if err != nil {
		return err
	}
	var changed []*life
	for _, id := range jobs {
		l := lives[id]
		if err := l.loseOn(nodes, funds[purse{l.job.Project, l.job.Pool}], tx.Now, policy.HoldStepMs); err != nil {
			return err
		}
		changed = append(changed, l)
	}
	return w.store.keep(ctx, tx, changed...)
}

// loseOn ends the life's parts on these nodes.
func (l *life) loseOn(nodes []ledger.NodeID, funds *ledger.Funds, now ledger.Instant, stepMs int64) error {
	for i := range l.placed {
		if l.state.Run.Phase == 0 || l.state.Run.Members[i].Ended || !slices.Contains(nodes, l.placed[i].Node) {
			continue
		}
		l.parts[i].detail = "The node fell silent; the attempt ends at its last heartbeat."
		l.parts[i].returns = len(l.parts) == 1 && l.state.Run.Phase == scheduler.Running
		ev := scheduler.Event{
			Kind: scheduler.EvLost, At: now, Rank: l.placed[i].Rank, ElapsedMs: l.parts[i].seenMs, Rule: scheduler.Replan,
			Funds: funds, HoldStepMs: stepMs,
		}
		if _, refusal := l.advance(ev, "lost", map[string]any{"rank": l.placed[i].Rank, "elapsed_ms": l.parts[i].seenMs}); refusal != nil {
			return refusal
		}
	}
	l.noteClose()
	return nil
}
