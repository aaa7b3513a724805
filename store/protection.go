package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// loadProtection compares, per pool, what the attempts that ended in the period of
// At asked to be protected for with the part of it that they ran. Whoever could
// not use it through no fault of its own (node lost, stopped by operators) does
// not count.
func (st *Statement) loadProtection(ctx context.Context, tx *Tx) error {
	err := tx.QueryRow(ctx, `select coalesce(max(first), $1::timestamptz - interval '90 days') from periods where first <= $1`, st.At).Scan(&st.AskedSince)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `select a.pool_id, p.name,
			trunc(sum(a.milli_gpu::numeric * a.min_ms) / 1000)::bigint,
			trunc(sum(a.milli_gpu::numeric * least(a.min_ms, coalesce(a.elapsed_ms, 0))) / 1000)::bigint
		from attempts a join pools p on p.id = a.pool_id
		where a.project_id = $1 and a.phase = 'closed' and a.min_ms > 0 and a.ended_at >= $2 and a.ended_at <= $3
			and a.started_at is not null and a.cause <> 'lost' and a.stop_rule not in ('operator', 'V5-hard', 'lost')
		group by a.pool_id, p.name order by p.name`, st.Group.ID, st.AskedSince, st.At)
	if err != nil {
		return err
	}
	var pool ledger.PoolID
	var name string
	var asked, ran ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&pool, &name, &asked, &ran}, func() error {
		p := st.pool(pool, name)
		p.Asked, p.Ran = asked, ran
		return nil
	})
	return err
}
