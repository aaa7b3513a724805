package store

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

const (
	mixSpanMs  = 28 * 24 * 60 * 60_000 // a pool's mix is that of the last four weeks
	mixEveryMs = 10 * 60_000           // and is learnt anew so often
)

// sqlMixes reads what each pool has learnt.
const sqlMixes = `select pool_id, version, span_ms, kinds from pool_mixes order by pool_id`

func mixFields(m *scheduler.Mix) []any { return []any{&m.Pool, &m.Version, &m.SpanMs, &m.Kinds} }

// Mixes gives what each pool has learnt of its jobs, by pool.
func (s *Store) Mixes(ctx context.Context) ([]scheduler.Mix, error) {
	rows, err := s.pool.Query(ctx, sqlMixes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m scheduler.Mix, err error) { return m, row.Scan(mixFields(&m)...) })
}

// LearnMixes counts what was submitted to each pool in the last four weeks, and keeps
// it where it differs from what was known. A pool that learnt something less than ten
// minutes ago is left alone: whoever remembers scores by a mix has to start anew with
// the next. It gives how many pools learnt.
func (s *Store) LearnMixes(ctx context.Context) (learnt int, err error) {
	err = s.inTx(ctx, "learn mixes", func(tx *Tx) error {
		learnt = 0
		// One at a time: the version counts up.
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtext('pool_mixes'))`); err != nil {
			return err
		}
		known, err := tx.Query(ctx, `select pool_id, version, span_ms, kinds from pool_mixes where learnt_at > $1`, tx.Now.Add(-mixEveryMs))
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(known, func(row pgx.CollectableRow) (m scheduler.Mix, err error) { return m, row.Scan(mixFields(&m)...) })
		if err != nil {
			return err
		}
		counted, first, err := countSubmitted(ctx, tx)
		if err != nil {
			return err
		}
		for pool, kinds := range counted {
			if contains(fresh, pool) {
				continue
			}
			span := min(mixSpanMs, max(scheduler.LeastSpanMs, tx.Now.MillisSince(first[pool])))
			changed, err := keepMix(ctx, tx, scheduler.Learn(pool, 1, span, kinds))
			if err != nil {
				return err
			}
			if changed {
				learnt++
			}
		}
		return nil
	})
	return learnt, err
}

func contains(mixes []scheduler.Mix, pool ledger.PoolID) bool {
	for i := range mixes {
		if mixes[i].Pool == pool {
			return true
		}
	}
	return false
}

// countSubmitted counts the shapes of each pool's jobs of the last four weeks, and
// says when the first of them came.
func countSubmitted(ctx context.Context, tx *Tx) (map[ledger.PoolID][]scheduler.MixKind, map[ledger.PoolID]ledger.Instant, error) {
	rows, err := tx.Query(ctx, `select pool_id, min(submitted_at), count(*), nodes, gpus, gpu_milli, cpu_milli, ram_mib, hbm_mib, net_mbps, sto_mbps, ioc_milli
		from jobs where submitted_at > $1 group by pool_id, nodes, gpus, gpu_milli, cpu_milli, ram_mib, hbm_mib, net_mbps, sto_mbps, ioc_milli`, tx.Now.Add(-mixSpanMs))
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	counted, first := map[ledger.PoolID][]scheduler.MixKind{}, map[ledger.PoolID]ledger.Instant{}
	for rows.Next() {
		var pool ledger.PoolID
		var at ledger.Instant
		var k scheduler.MixKind
		s := &k.Shape
		if err := rows.Scan(&pool, &at, &k.Ranks, &s.Nodes, &s.GPUs, &s.GPUMilli, &s.CPUMilli, &s.RAMMiB, &s.HBMMiB, &s.NetMbps, &s.StoMbps, &s.IOCMilli); err != nil {
			return nil, nil, err
		}
		counted[pool] = append(counted[pool], k)
		if was, ok := first[pool]; !ok || at < was {
			first[pool] = at
		}
	}
	return counted, first, rows.Err()
}

// keepMix writes a pool's mix under the next version unless it is known already.
func keepMix(ctx context.Context, tx *Tx, m scheduler.Mix) (changed bool, err error) {
	var was scheduler.Mix
	err = tx.QueryRow(ctx, `select pool_id, version, span_ms, kinds from pool_mixes where pool_id = $1`, m.Pool).Scan(mixFields(&was)...)
	switch {
	case noRow(err):
	case err != nil:
		return false, err
	case reflect.DeepEqual(was.Kinds, m.Kinds):
		return false, nil
	}
	kinds, err := json.Marshal(m.Kinds)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, `insert into pool_mixes (pool_id, version, span_ms, learnt_at, kinds) values ($1, 1, $2, $3, $4)
		on conflict (pool_id) do update set version = pool_mixes.version + 1, span_ms = $2, learnt_at = $3, kinds = $4`, m.Pool, m.SpanMs, tx.Now, kinds)
	return err == nil, err
}
