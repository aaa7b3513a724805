package store

import (
	"context"
	"fmt"

	"tranche/ledger"
)

// RaiseReserves sets aside more memory for running jobs on parts of devices where more
// is expected of a device within five minutes than is set aside for them together:
// each gets its portion of it. A device of which less than half of that is in use is
// not looked at, and nothing is taken back before a job ends. It gives how many jobs'
// parts were raised.
func (l *Leader) RaiseReserves(ctx context.Context) (int64, error) {
	var raised int64
	err := l.inLeaderTx(ctx, "raise reserves", func(tx *Tx) error {
		raised = 0
		var nodes []ledger.NodeID
		if err := tx.QueryRow(ctx, `select coalesce(array_agg(distinct node_id), '{}') from placements where not ended and gpu_milli < 1000`).Scan(&nodes); err != nil || len(nodes) == 0 {
			return err
		}
		kept, since, err := reserved(ctx, tx, nodes)
		if err != nil {
			return err
		}
		for k, h := range kept {
			if 2*h.Used < h.Reserved {
				delete(since, k)
			}
		}
		if err := addForecasts(ctx, tx, kept, since); err != nil {
			return err
		}
		var on []ledger.NodeID
		var indices []int32
		var expected []int64
		for k, h := range kept {
			if h.Minutes > 0 && h.Forecast > h.Reserved {
				on, indices, expected = append(on, k.node), append(indices, k.idx), append(expected, h.Forecast)
			}
		}
		if len(on) == 0 {
			return nil
		}
		tag, err := tx.Exec(ctx, `with due as (
				select p.attempt_id, p.rank, u.expected, dev.hbm_mib as whole, case when p.hbm_mib > 0 then p.hbm_mib else dev.hbm_mib * p.gpu_milli / 1000 end as has, p.node_id, u.idx
				from unnest($1::bigint[], $2::int[], $3::bigint[]) u (node, idx, expected)
					join placements p on p.node_id = u.node and not p.ended and p.gpu_milli < 1000 and p.devices[1] = u.idx
					join devices dev on dev.node_id = u.node and dev.idx = u.idx
				order by p.attempt_id, p.rank for update of p),
			portion as (select attempt_id, rank, (has * least(expected, whole) / sum(has) over (partition by node_id, idx))::bigint + 1 as gets, has from due where has > 0)
			update placements p set hbm_mib = portion.gets, hbm_var = 0 from portion where p.attempt_id = portion.attempt_id and p.rank = portion.rank and portion.gets > portion.has`,
			on, indices, expected)
		if err != nil {
			return fmt.Errorf("set aside more memory: %w", err)
		}
		raised = tag.RowsAffected()
		return nil
	})
	return raised, err
}
