package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// Headroom is one device's memory in MiB: what is in use, what is to come, what its
// jobs declared, and what the dispatcher sets aside for them.
type Headroom struct {
	Jobs     int   // that hold a part of it
	Used     int64 // by the last heartbeat
	Minutes  int64 // that Forecast was worked out from; 0 = there are no readings since its jobs came
	Forecast int64 // the most that is expected in the next five minutes, never less than now
	Declared int64
	Reserved int64
	Learnt   bool // Reserved follows from what ended jobs of the kind used, not from what was declared alone
}

// forecastOver is how far readings count for a forecast, business ms: older ones
// weigh less than a quarter of a percent.
const forecastOver = 2 * 60 * minuteMs

// headroomKey is one device of a node.
type headroomKey struct {
	node ledger.NodeID
	idx  int32
}

// headrooms reads the devices that somebody holds, of these nodes, with what is to
// come on them.
func headrooms(ctx context.Context, tx *Tx, nodes []ledger.NodeID) (map[headroomKey]*Headroom, error) {
	out, since, err := reserved(ctx, tx, nodes)
	if err != nil {
		return nil, err
	}
	return out, addForecasts(ctx, tx, out, since)
}

// reserved reads what is set aside on the devices that somebody holds, and when the
// last of their jobs came.
func reserved(ctx context.Context, tx *Tx, nodes []ledger.NodeID) (map[headroomKey]*Headroom, map[headroomKey]ledger.Instant, error) {
	out := map[headroomKey]*Headroom{}
	since := map[headroomKey]ledger.Instant{}
	variance := map[headroomKey]int64{}
	rows, err := tx.Query(ctx, `select p.node_id, d.idx, coalesce(p.claimed_at, $2), dev.hbm_used_mib,
			case when j.hbm_mib > 0 then j.hbm_mib else dev.hbm_mib * p.gpu_milli / 1000 end,
			case when p.hbm_mib > 0 then p.hbm_mib else dev.hbm_mib * p.gpu_milli / 1000 end, p.hbm_var, p.hbm_mib > 0 and (p.hbm_mib, p.hbm_var) <> (j.hbm_mib, j.hbm_var)
		from placements p join attempts a on a.id = p.attempt_id join jobs j on j.id = a.job_id, unnest(p.devices) d (idx) join devices dev on dev.idx = d.idx
		where dev.node_id = p.node_id and not p.ended and p.node_id = any($1) and a.phase in ('starting', 'running', 'ending') order by p.node_id, d.idx`, nodes, tx.Now)
	if err != nil {
		return nil, nil, err
	}
	var k headroomKey
	var claimed ledger.Instant
	var used, declared, kept, strays int64
	var learnt bool
	_, err = pgx.ForEachRow(rows, []any{&k.node, &k.idx, &claimed, &used, &declared, &kept, &strays, &learnt}, func() error {
		h := out[k]
		if h == nil {
			h = &Headroom{Used: used}
			out[k] = h
		}
		h.Jobs++
		h.Declared += declared
		h.Reserved += kept
		h.Learnt = h.Learnt || learnt
		variance[k] += strays
		since[k] = max(since[k], claimed)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for k, v := range variance {
		out[k].Reserved += placing.Deviation(v)
	}
	return out, since, nil
}

// addForecasts works out what is to come on each device from each minute's most since
// its last job came.
func addForecasts(ctx context.Context, tx *Tx, out map[headroomKey]*Headroom, since map[headroomKey]ledger.Instant) error {
	var nodes []ledger.NodeID
	var indices []int32
	var from []ledger.Instant
	for k, at := range since {
		nodes, indices = append(nodes, k.node), append(indices, k.idx)
		from = append(from, max(at, tx.Now.Add(-forecastOver)))
	}
	rows, err := tx.Query(ctx, `select u.node, u.idx, max(t.hbm_used_mib[array_position(t.devices, u.idx)]), (array_agg(t.hbm_used_mib[array_position(t.devices, u.idx)] order by t.at desc))[1]
		from unnest($1::bigint[], $2::int[], $3::timestamptz[]) u (node, idx, since) join node_telemetry t on t.node_id = u.node and t.at > u.since and t.at <= $4 and t.devices @> array[u.idx]
		group by u.node, u.idx, floor(extract(epoch from t.at) / 60) order by u.node, u.idx, floor(extract(epoch from t.at) / 60)`, nodes, indices, from, tx.Now)
	if err != nil {
		return err
	}
	var k, last headroomKey
	var most, now int64
	var follows placing.Running
	_, err = pgx.ForEachRow(rows, []any{&k.node, &k.idx, &most, &now}, func() error {
		if k != last {
			follows, last = placing.Running{}, k
		}
		follows = follows.Step(most)
		out[k].Minutes, out[k].Forecast = follows.Seen, follows.Next(now)
		return nil
	})
	return err
}
