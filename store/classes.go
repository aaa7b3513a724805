package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/scheduler/placing"
)

// ClassKey tells kinds of jobs apart whose use of GPU memory is alike.
type ClassKey struct {
	Pool     ledger.PoolID
	Project  ledger.GroupID
	GPUs     int64 // per node
	GPUMilli int64 // of each
}

// ClassOf is the class of a job.
func ClassOf(pool ledger.PoolID, project ledger.GroupID, sh *scheduler.Shape) ClassKey {
	return ClassKey{pool, project, sh.GPUs, cmp.Or(sh.GPUMilli, placing.WholeGPU)}
}

const (
	learnAtOnce   = 100        // attempts that one step learns from
	leastReadings = 3          // an attempt that was read less often says nothing of its memory
	leastSpread   = 12         // nor of its storage demand
	mostRatio     = 10_000_000 // of peak ÷ declared, millionths: more is a mistake in what was declared
)

// LearnPeaks takes the attempts that have ended since into their classes: how much of
// the GPU memory they had declared they used at most. Each attempt counts once,
// whoever leads and however often it is asked; one that its node may still bring back
// waits. It gives how many attempts it has looked at.
func (l *Leader) LearnPeaks(ctx context.Context) (int, error) {
	looked := 0
	err := l.inLeaderTx(ctx, "learn peaks", func(tx *Tx) error {
		ended, err := unlearnt(ctx, tx)
		if err != nil {
			return err
		}
		looked = len(ended)
		learnt := map[ClassKey]jobClass{} // leaders write classes, one after the other: their order does not matter
		for i := range ended {
			e := &ended[i]
			if e.ratio, err = peakOf(ctx, tx, e.attempt); err != nil {
				return fmt.Errorf("peak of attempt %d: %w", e.attempt, err)
			}
			if e.spread, err = spreadOf(ctx, tx, e.attempt); err != nil {
				return fmt.Errorf("spread of attempt %d: %w", e.attempt, err)
			}
			if max(e.ratio, e.spread) < 0 {
				continue
			}
			c, ok := learnt[e.class]
			if !ok {
				if c, err = lockClass(ctx, tx, e.class); err != nil {
					return err
				}
			}
			learnt[e.class] = c.learn(e)
		}
		return keepPeaks(ctx, tx, ended, learnt)
	})
	return looked, err
}

// endedAttempt is one that a class may learn from: its peak of GPU memory over what it
// declared, and how far its storage demand swung. Below 0 is not measured.
type endedAttempt struct {
	attempt       ledger.AttemptID
	class         ClassKey
	ratio, spread int64
}

// jobClass is what is known of a class.
type jobClass struct {
	memory  placing.Class
	storage placing.Spread
}

func (c jobClass) learn(e *endedAttempt) jobClass {
	if e.ratio >= 0 {
		c.memory = c.memory.Learn(e.ratio)
	}
	if e.spread >= 0 {
		c.storage = c.storage.Learn(e.spread)
	}
	return c
}

func unlearnt(ctx context.Context, tx *Tx) ([]endedAttempt, error) {
	rows, err := tx.Query(ctx, `select a.id, a.pool_id, a.project_id, j.gpus, j.gpu_milli from attempts a join jobs j on j.id = a.job_id
		where a.phase = 'closed' and a.hbm_peak_ppm is null
			and not (j.state = 'pending' and j.attempts = a.n and exists (select from placements p where p.attempt_id = a.id and p.returns))
		order by a.ended_at, a.id limit $1 for no key update of a skip locked`, learnAtOnce)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e endedAttempt, err error) {
		c := &e.class
		return e, row.Scan(&e.attempt, &c.Pool, &c.Project, &c.GPUs, &c.GPUMilli)
	})
}

// sqlPeak is the most that any device of an attempt held while it ran, as part of
// what was declared for it: by the job, or as large a part of the device's memory as
// of its compute. What a device holds that several jobs share counts for each in
// proportion to what they declared.
const sqlPeak = `with part as (
		select p.node_id, d.idx, p.claimed_at as first, coalesce(p.ended_at, a.ended_at) as last, p.gpu_milli,
			case when j.hbm_mib > 0 then j.hbm_mib else dev.hbm_mib * p.gpu_milli / 1000 end as declared
		from placements p join attempts a on a.id = p.attempt_id join jobs j on j.id = a.job_id, unnest(p.devices) d (idx)
			join devices dev on dev.idx = d.idx
		where p.attempt_id = $1 and p.claimed_at is not null and dev.node_id = p.node_id),
	beside as (
		select p.node_id, d.idx, p.claimed_at as first, coalesce(p.ended_at, 'infinity') as last,
			case when j.hbm_mib > 0 then j.hbm_mib else dev.hbm_mib * p.gpu_milli / 1000 end as declared
		from part join placements p on p.node_id = part.node_id and part.gpu_milli < 1000 and p.gpu_milli < 1000 and p.attempt_id <> $1 and part.idx = any(p.devices)
				and p.claimed_at <= part.last and (not p.ended or p.ended_at >= part.first)
			join attempts a on a.id = p.attempt_id join jobs j on j.id = a.job_id, unnest(p.devices) d (idx)
			join devices dev on dev.idx = d.idx
		where dev.node_id = p.node_id and d.idx = part.idx),
	reading as (
		select t.at, t.hbm_used_mib[array_position(t.devices, part.idx)] as used,
			part.declared + coalesce((select sum(b.declared) from beside b where b.node_id = part.node_id and b.idx = part.idx and b.first < t.at and t.at <= b.last), 0) as declared
		from part join node_telemetry t on t.node_id = part.node_id and t.at > part.first and t.at <= part.last and t.devices @> array[part.idx])
	select count(distinct at), coalesce(max(used * 1000000 / declared), -1)::bigint from reading where declared > 0`

// peakOf gives the peak in millionths of what was declared; −1 when telemetry says
// too little.
func peakOf(ctx context.Context, tx *Tx, attempt ledger.AttemptID) (int64, error) {
	var readings, ratio int64
	if err := tx.QueryRow(ctx, sqlPeak, attempt).Scan(&readings, &ratio); err != nil {
		return 0, err
	}
	if readings < leastReadings {
		return -1, nil
	}
	return min(ratio, mostRatio), nil
}

// sqlSpread is how far what a node read and wrote swung while the attempt had it to
// itself, in its last day: only then is it the attempt's own.
const sqlSpread = `with part as (
		select p.attempt_id, p.node_id, greatest(p.claimed_at, coalesce(p.ended_at, a.ended_at) - interval '1 day') as first, coalesce(p.ended_at, a.ended_at) as last
		from placements p join attempts a on a.id = p.attempt_id where p.attempt_id = $1 and p.claimed_at is not null),
	beside as (
		select p.node_id, p.claimed_at as first, coalesce(p.ended_at, 'infinity') as last
		from part join placements p on p.node_id = part.node_id and p.attempt_id <> part.attempt_id and p.claimed_at <= part.last
			and (not p.ended or p.ended and p.ended_at >= part.first)),
	reading as (
		select t.sto_mbps from part join node_telemetry t on t.node_id = part.node_id and t.at > part.first and t.at <= part.last and t.sto_mbps is not null
		where not exists (select from beside b where b.node_id = part.node_id and b.first < t.at and t.at <= b.last))
	select count(*), coalesce((var_pop(sto_mbps) * 1000000 / nullif(avg(sto_mbps) ^ 2, 0))::bigint, -1) from reading`

// spreadOf gives variance over squared mean of an attempt's storage demand in
// millionths; −1 when telemetry says too little.
func spreadOf(ctx context.Context, tx *Tx, attempt ledger.AttemptID) (int64, error) {
	var readings, spread int64
	if err := tx.QueryRow(ctx, sqlSpread, attempt).Scan(&readings, &spread); err != nil {
		return 0, err
	}
	if readings < leastSpread {
		return -1, nil
	}
	return min(spread, mostRatio), nil
}

// lockClass reads a class for an update; a new one is made.
func lockClass(ctx context.Context, tx *Tx, k ClassKey) (c jobClass, err error) {
	err = tx.QueryRow(ctx, `insert into job_classes as c (pool_id, project_id, gpus, gpu_milli, seen, mean_ppm, var_ppm, at) values ($1, $2, $3, $4, 0, 0, 0, $5)
		on conflict (pool_id, project_id, gpus, gpu_milli) do update set at = $5 returning seen, mean_ppm, var_ppm, sto_seen, sto_var_ppm`,
		k.Pool, k.Project, k.GPUs, k.GPUMilli, tx.Now).Scan(c.fields()...)
	return c, err
}

func (c *jobClass) fields() []any {
	return []any{&c.memory.Seen, &c.memory.Mean, &c.memory.Var, &c.storage.Seen, &c.storage.Var}
}

func keepPeaks(ctx context.Context, tx *Tx, ended []endedAttempt, learnt map[ClassKey]jobClass) error {
	batch := &pgx.Batch{}
	ids, ratios := make([]int64, len(ended)), make([]int64, len(ended))
	for i := range ended {
		ids[i], ratios[i] = int64(ended[i].attempt), ended[i].ratio
	}
	batch.Queue(`update attempts a set hbm_peak_ppm = u.ratio from unnest($1::bigint[], $2::bigint[]) u (id, ratio) where a.id = u.id`, ids, ratios)
	for k, c := range learnt {
		batch.Queue(`update job_classes set seen = $5, mean_ppm = $6, var_ppm = $7, sto_seen = $8, sto_var_ppm = $9 where pool_id = $1 and project_id = $2 and gpus = $3 and gpu_milli = $4`,
			k.Pool, k.Project, k.GPUs, k.GPUMilli, c.memory.Seen, c.memory.Mean, c.memory.Var, c.storage.Seen, c.storage.Var)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// Class gives what is known of a class of jobs; one that nothing has ended of is
// empty. Known says whether it counts: until then only what is declared does.
func (s *Store) Class(ctx context.Context, k ClassKey) (c placing.Class, err error) {
	err = s.pool.QueryRow(ctx, `select seen, mean_ppm, var_ppm from job_classes where pool_id = $1 and project_id = $2 and gpus = $3 and gpu_milli = $4`,
		k.Pool, k.Project, k.GPUs, k.GPUMilli).Scan(&c.Seen, &c.Mean, &c.Var)
	if noRow(err) {
		return placing.Class{}, nil
	}
	return c, err
}

// classesKept are the classes between snapshots. seen, the attempts in all of them,
// grows with every change.
type classesKept struct {
	seen, now int64
	known     map[ClassKey]jobClass
}

func (c *classesKept) queue(batch *pgx.Batch) {
	batch.Queue(`select coalesce(sum(seen + sto_seen), 0)::bigint from job_classes`).QueryRow(func(row pgx.Row) error { return row.Scan(&c.now) })
}

// refresh reads the classes when something was learnt.
func (c *classesKept) refresh(batch *pgx.Batch) {
	if c.known != nil && c.now == c.seen {
		return
	}
	known := map[ClassKey]jobClass{}
	batch.Queue(`select pool_id, project_id, gpus, gpu_milli, seen, mean_ppm, var_ppm, sto_seen, sto_var_ppm from job_classes where greatest(seen, sto_seen) >= $1`, placing.EnoughSeen).
		Query(func(rows pgx.Rows) error {
			var k ClassKey
			var v jobClass
			_, err := pgx.ForEachRow(rows, append([]any{&k.Pool, &k.Project, &k.GPUs, &k.GPUMilli}, v.fields()...), func() error {
				known[k] = v
				return nil
			})
			c.seen, c.known = c.now, known
			return err
		})
}

// expect gives a waiting job's memory per device as its kind uses it rather than as
// it declares it: the mean, with the variance of which the dispatcher keeps one
// standard deviation for all on a device together; and the variance of its storage
// demand likewise. most is the largest of each among the pool's nodes: alone on a node
// of that size, the job must fit.
func (c *classesKept) expect(j scheduler.Job, most nodeSize) scheduler.Job {
	sh := &j.Shape
	k := ClassOf(j.Pool, j.Project, sh)
	known, ok := c.known[k]
	if !ok {
		return j
	}
	if known.memory.Known() {
		expectMemory(sh, known.memory, most.HBMMiB, k.GPUMilli)
	}
	if known.storage.Known() && sh.StoMbps > 0 {
		swing := min(sh.StoMbps*percentUp(known.storage.Deviation())/100, max(0, most.StoMbps-sh.StoMbps))
		sh.StoVar = swing * swing
	}
	return j
}

// expectMemory sets a shape's memory. Whole devices whose memory is left open are
// taken with all of it.
func expectMemory(sh *scheduler.Shape, c placing.Class, hbm, milli int64) {
	declared := sh.HBMMiB
	if declared == 0 && milli < placing.WholeGPU {
		declared = hbm * milli / placing.WholeGPU
	}
	if declared == 0 || sh.GPUs == 0 {
		return
	}
	// In whole percent, so that shapes which hardly differ are the same.
	mean, swing := declared*percentUp(c.Mean)/100, declared*percentUp(c.Deviation())/100
	if sh.HBMMiB, sh.HBMVar = max(1, mean), swing*swing; mean+swing > hbm {
		sh.HBMMiB, sh.HBMVar = max(hbm, 1), 0 // it is alone on its devices, and has all of them
	}
}

// percentUp is a part in millionths in percent, rounded up.
func percentUp(ppm int64) int64 { return (ppm + 9_999) / 10_000 }

// largest are the largest sizes among each pool's nodes.
func largest(nodes []scheduler.Node) map[ledger.PoolID]nodeSize {
	out := map[ledger.PoolID]nodeSize{}
	for i := range nodes {
		n := &nodes[i]
		most := out[n.Pool]
		most.HBMMiB, most.StoMbps = max(most.HBMMiB, n.HBMMiB), max(most.StoMbps, n.StoMbps)
		out[n.Pool] = most
	}
	return out
}
