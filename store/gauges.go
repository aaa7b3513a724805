package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// GaugeEveryMs is how far apart the rows of a pool's gauges are, business ms.
const GaugeEveryMs = 5 * minuteMs

// GaugeSlot is the instant of the row that an instant belongs to.
func GaugeSlot(at ledger.Instant) ledger.Instant {
	const slot = ledger.Instant(GaugeEveryMs * 1000)
	return at - at%slot
}

// KeepGauges works out how much of what pools have free is of little use, and how
// long their GPUs wait for data, and keeps it as the row of an instant's five minutes.
// A row that is there already stays. It gives what it worked out.
func (l *Leader) KeepGauges(ctx context.Context, at ledger.Instant, stands []scheduler.PoolStand) ([]scheduler.Gauge, error) {
	readings, err := l.store.readings(ctx)
	if err != nil {
		return nil, err
	}
	gauges := make([]scheduler.Gauge, len(stands))
	for i := range stands {
		gauges[i] = stands[i].Gauge(readings)
	}
	return gauges, l.inLeaderTx(ctx, "keep gauges", func(tx *Tx) error {
		for i := range gauges {
			g := &gauges[i]
			_, err := tx.Exec(ctx, `insert into pool_indices (pool_id, at, gpus, unfit, fit_ppm, shape_ppm, raw_ppm, gpu_ppm, stall_ppm, measured, nodes, mix)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) on conflict do nothing`,
				g.Pool, GaugeSlot(at), g.FreeMilli, g.UnfitMilli, g.Fit, g.Shape, g.Raw, g.GPU, g.StallPPM, g.Measured, g.Nodes, g.Mix)
			if err != nil {
				return fmt.Errorf("gauge of pool %d: %w", g.Pool, err)
			}
		}
		return nil
	})
}

// readings is what nodes that were heard of in the last minute say moves through them.
func (s *Store) readings(ctx context.Context) (map[ledger.NodeID]scheduler.Reading, error) {
	out := map[ledger.NodeID]scheduler.Reading{}
	err := s.readTx(ctx, "readings", func(tx *Tx) error {
		clear(out)
		rows, err := tx.Query(ctx, `select id, coalesce(net_now_mbps, -1), coalesce(sto_now_mbps, -1) from nodes
			where retired_at is null and heartbeat_at > $1 and coalesce(net_now_mbps, sto_now_mbps) is not null`, tx.Real.Add(-idleHeardMs))
		if err != nil {
			return err
		}
		var node ledger.NodeID
		var r scheduler.Reading
		_, err = pgx.ForEachRow(rows, []any{&node, &r.NetMbps, &r.StoMbps}, func() error {
			out[node] = r
			return nil
		})
		return err
	})
	return out, err
}

// GaugeRow is one row of a pool's gauges; of a span of several rows, their mean.
type GaugeRow struct {
	At ledger.Instant // when it begins
	scheduler.Gauge
}

// Spans that a pool's gauges are shown over, and how far apart the points are then,
// business ms.
const (
	DaySpanMs   = 24 * 60 * minuteMs
	WeekSpanMs  = 7 * DaySpanMs
	dayPointMs  = GaugeEveryMs
	weekPointMs = 30 * minuteMs
)

// PoolGauges are a pool's last row and the points of its last day and week, oldest
// first.
type PoolGauges struct {
	Last *GaugeRow // nil = none yet
	Day  []GaugeRow
	Week []GaugeRow
}

// PoolGauges reads a pool's gauges.
func (s *Store) PoolGauges(ctx context.Context, pool ledger.PoolID) (PoolGauges, error) {
	var g PoolGauges
	err := s.readTx(ctx, "pool gauges", func(tx *Tx) (err error) {
		g, err = poolGauges(ctx, tx, pool)
		return err
	})
	return g, err
}

func poolGauges(ctx context.Context, tx *Tx, pool ledger.PoolID) (g PoolGauges, err error) {
	if g.Day, err = gaugePoints(ctx, tx, pool, tx.Now.Add(-DaySpanMs), dayPointMs); err != nil {
		return g, err
	}
	if g.Week, err = gaugePoints(ctx, tx, pool, tx.Now.Add(-WeekSpanMs), weekPointMs); err != nil {
		return g, err
	}
	last, err := lastGauges(ctx, tx, pool)
	if row, ok := last[pool]; ok {
		g.Last = &row
	}
	return g, err
}

// gaugePoints are the means over pieces of a span.
func gaugePoints(ctx context.Context, tx *Tx, pool ledger.PoolID, from ledger.Instant, pieceMs int64) ([]GaugeRow, error) {
	rows, err := tx.Query(ctx, `select min(at), avg(gpus)::bigint, avg(unfit)::bigint, avg(fit_ppm)::bigint, avg(shape_ppm)::bigint, avg(raw_ppm)::bigint, avg(gpu_ppm)::bigint,
			avg(stall_ppm)::bigint, avg(measured)::int, avg(nodes)::int, max(mix)
		from pool_indices where pool_id = $1 and at >= $2 group by floor(extract(epoch from at) * 1000 / $3::bigint) order by 1`, pool, from, pieceMs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r GaugeRow, err error) {
		r.Pool = pool
		return r, row.Scan(r.fields()...)
	})
}

func (r *GaugeRow) fields() []any {
	return []any{&r.At, &r.FreeMilli, &r.UnfitMilli, &r.Fit, &r.Shape, &r.Raw, &r.GPU, &r.StallPPM, &r.Measured, &r.Nodes, &r.Mix}
}

// gaugesOld is how old a row may be to say how a pool is now, business ms.
const gaugesOld = 60 * minuteMs

// lastGauges reads each pool's last row, or one pool's, where it is not old.
func lastGauges(ctx context.Context, tx *Tx, pool ledger.PoolID) (map[ledger.PoolID]GaugeRow, error) {
	rows, err := tx.Query(ctx, `select distinct on (pool_id) pool_id, at, gpus, unfit, fit_ppm, shape_ppm, raw_ppm, gpu_ppm, stall_ppm, measured, nodes, mix
		from pool_indices where ($1 = 0 or pool_id = $1) and at > $2 order by pool_id, at desc`, pool, tx.Now.Add(-gaugesOld))
	if err != nil {
		return nil, err
	}
	out := map[ledger.PoolID]GaugeRow{}
	var r GaugeRow
	_, err = pgx.ForEachRow(rows, append([]any{&r.Pool}, r.fields()...), func() error {
		out[r.Pool] = r
		return nil
	})
	return out, err
}
