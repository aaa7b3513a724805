package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// purse names whose lots pay: a project in a pool.
type purse struct {
	project ledger.GroupID
	pool    ledger.PoolID
}

// lockFunds locks everything that a hold of these purses may move, in the order
// that post locks it, and gives their lots and limits as they are now. Lots that
// are over stay out. Two round trips however many purses.
func lockFunds(ctx context.Context, tx *Tx, purses []purse) (map[purse]*ledger.Funds, error) {
	if len(purses) == 0 {
		return nil, nil
	}
	projects, pools := make([]ledger.GroupID, len(purses)), make([]ledger.PoolID, len(purses))
	for i, p := range purses {
		projects[i], pools[i] = p.project, p.pool
	}
	batch := &pgx.Batch{}
	batch.Queue(`select count(*) from (select b.account_id from accounts a join balances b on b.account_id = a.id
		where (a.group_id, a.pool_id) in (select * from unnest($1::bigint[], $2::bigint[])) order by a.id for update of b) locked`, projects, pools)
	out := make(map[purse]*ledger.Funds, len(purses))
	queueFunds(batch, out, projects, pools, tx.Now, `for update of p`)
	return out, tx.SendBatch(ctx, batch).Close()
}

// queueFunds reads lots and limits of project-pool pairs into out.
func queueFunds(batch *pgx.Batch, out map[purse]*ledger.Funds, projects []ledger.GroupID, pools []ledger.PoolID, now ledger.Instant, lock string) {
	batch.Queue(`select l.id, l.project_id, l.pool_id, l.period_id, l.first, l.last, coalesce(b.balance, 0), g.path
		from unnest($1::bigint[], $2::bigint[]) as u(project, pool)
		join groups g on g.id = u.project
		join lots l on l.project_id = u.project and l.pool_id = u.pool and l.last > $3
		left join accounts a on a.kind = $4 and a.pool_id = l.pool_id and a.period_id = l.period_id and a.group_id = l.project_id and a.lot_id = l.id
		left join balances b on b.account_id = a.id
		order by l.pool_id, l.project_id, l.last, l.id`, projects, pools, now, ledger.Available).
		Query(func(rows pgx.Rows) error { return scanLots(rows, out) })
	batch.Queue(`select g.id, u.pool, p.program_id, top.path, p.period_id, p.received, p.used
		from unnest($1::bigint[], $2::bigint[]) as u(project, pool)
		join groups g on g.id = u.project
		join path_limits p on p.pool_id = u.pool
		join groups top on top.id = p.program_id and starts_with(g.path, rtrim(top.path, '/') || '/')
		join periods on periods.id = p.period_id and periods.last > $3
		order by p.program_id, p.pool_id, p.period_id, g.id `+lock, projects, pools, now).
		Query(func(rows pgx.Rows) error { return scanLimits(rows, out) })
}

func scanLots(rows pgx.Rows, out map[purse]*ledger.Funds) error {
	for rows.Next() {
		var l ledger.Lot
		var path string
		if err := rows.Scan(&l.ID, &l.Project, &l.Pool, &l.Period, &l.First, &l.Last, &l.Available, &path); err != nil {
			return err
		}
		key := purse{l.Project, l.Pool}
		f := out[key]
		if f == nil {
			f = &ledger.Funds{Project: l.Project, Pool: l.Pool, Path: path}
			out[key] = f
		}
		f.Lots = append(f.Lots, l)
	}
	return rows.Err()
}

// scanLimits keeps the counters of periods that some lot belongs to.
func scanLimits(rows pgx.Rows, out map[purse]*ledger.Funds) error {
	for rows.Next() {
		var key purse
		var p ledger.PathLimit
		if err := rows.Scan(&key.project, &key.pool, &p.Program, &p.Path, &p.Period, &p.Limit, &p.Used); err != nil {
			return err
		}
		p.Pool = key.pool
		f := out[key]
		if f != nil && slices.ContainsFunc(f.Lots, func(l ledger.Lot) bool { return l.Period == p.Period }) {
			f.Limits = append(f.Limits, p)
		}
	}
	return rows.Err()
}

// lockFundsOf is lockFunds for one purse; without lots it is empty, not nil.
func lockFundsOf(ctx context.Context, tx *Tx, p purse, path string) (*ledger.Funds, error) {
	funds, err := lockFunds(ctx, tx, []purse{p})
	if err != nil {
		return nil, err
	}
	if f := funds[p]; f != nil {
		return f, nil
	}
	return &ledger.Funds{Project: p.project, Pool: p.pool, Path: path}, nil
}
