package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Programs with an overcommit factor above 1 keep two things beside their pot:
// a floor below 0 for it, and one counter per pool and period of what everything
// below them has spent and held. Both follow from the entries.

// moveLimits carries new entries over to the pots' floors and the counters.
func moveLimits(ctx context.Context, tx *Tx, entries []ledger.Entry) error {
	var used usedColumns
	var received receivedColumns
	for _, e := range entries {
		for _, d := range e.PathDeltas() {
			used.projects = append(used.projects, int64(d.Project))
			used.pools = append(used.pools, int64(d.Pool))
			used.periods = append(used.periods, int64(d.Period))
			used.deltas = append(used.deltas, int64(d.Amount))
		}
		for _, t := range e.Transfers {
			received.add(t)
		}
	}
	if len(received.pools) > 0 {
		if err := received.move(ctx, tx); err != nil {
			return err
		}
	}
	if len(used.projects) == 0 {
		return nil
	}
	return used.move(ctx, tx)
}

// usedColumns are changes of "spent + held" of projects.
type usedColumns struct{ projects, pools, periods, deltas []int64 }

// sqlUsedNet nets the changes per counter; its order is the order of locking.
const sqlUsedNet = `with net as (
		select p.id as program_id, d.pool_id, d.period_id, sum(d.delta)::bigint as delta
		from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) d (project_id, pool_id, period_id, delta)
		join groups g on g.id = d.project_id
		join groups p on p.overcommit_ppm > 1000000 and starts_with(g.path, rtrim(p.path, '/') || '/')
		group by 1, 2, 3) `

func (c usedColumns) move(ctx context.Context, tx *Tx) error {
	args := []any{c.projects, c.pools, c.periods, c.deltas}
	batch := &pgx.Batch{}
	batch.Queue(sqlUsedNet+`select from path_limits l join net using (program_id, pool_id, period_id)
		order by program_id, pool_id, period_id for update of l`, args...)
	batch.Queue(sqlUsedNet+`update path_limits l set used = used + net.delta from net
		where (l.program_id, l.pool_id, l.period_id) = (net.program_id, net.pool_id, net.period_id) and net.delta <> 0`, args...)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("move the path counters: %w", err)
	}
	return nil
}

// receivedColumns are transfers into and between pots.
type receivedColumns struct{ froms, tos, pools, periods, amounts []int64 }

// add takes a transfer that a pot may have received; from 0 is the supply.
func (c *receivedColumns) add(t ledger.Transfer) {
	if t.Credit.Kind != ledger.Pot || (t.Debit.Kind != ledger.Pot && t.Debit.Kind != ledger.Supply) {
		return
	}
	c.froms = append(c.froms, int64(t.Debit.Group))
	c.tos = append(c.tos, int64(t.Credit.Group))
	c.pools = append(c.pools, int64(t.Credit.Pool))
	c.periods = append(c.periods, int64(t.Credit.Period))
	c.amounts = append(c.amounts, int64(t.Amount))
}

// sqlReceivedNet nets what overcommitted programs received: from above counts,
// given back upwards counts against it, given on below does not count.
const sqlReceivedNet = `with net as (
		select p.id as program_id, t.pool_id, t.period_id, p.overcommit_ppm,
			sum(case when t.to_id = p.id then t.amount else -t.amount end)::bigint as delta
		from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) t (from_id, to_id, pool_id, period_id, amount)
		join groups p on p.overcommit_ppm > 1000000 and (
			(p.id = t.to_id and t.from_id = coalesce(p.parent_id, 0)) or (p.id = t.from_id and t.to_id = p.parent_id))
		group by 1, 2, 3) `

func (c *receivedColumns) move(ctx context.Context, tx *Tx) error {
	args := []any{c.froms, c.tos, c.pools, c.periods, c.amounts}
	batch := &pgx.Batch{}
	batch.Queue(sqlReceivedNet+`select from path_limits l join net using (program_id, pool_id, period_id)
		order by program_id, pool_id, period_id for update of l`, args...)
	batch.Queue(sqlReceivedNet+`update path_limits l set received = received + net.delta from net
		where (l.program_id, l.pool_id, l.period_id) = (net.program_id, net.pool_id, net.period_id)`, args...)
	batch.Queue(sqlReceivedNet+`insert into path_limits (program_id, pool_id, period_id, received)
		select program_id, pool_id, period_id, delta from net where not exists (select from path_limits l
			where (l.program_id, l.pool_id, l.period_id) = (net.program_id, net.pool_id, net.period_id))`, args...)
	batch.Queue(sqlReceivedNet+`update balances b set floor = -div(l.received::numeric * (net.overcommit_ppm - 1000000), 1000000)::bigint
		from net join path_limits l using (program_id, pool_id, period_id)
		join accounts a on a.kind = $6 and a.pool_id = net.pool_id and a.period_id = net.period_id and a.group_id = net.program_id and a.lot_id = 0
		where b.account_id = a.id`, append(args, int16(ledger.Pot))...)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("move the pots' floors: %w", err)
	}
	return nil
}
