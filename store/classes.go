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
	leastReadings = 3          // an attempt that was read less often says nothing
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
		learnt := map[ClassKey]placing.Class{} // leaders write classes, one after the other: their order does not matter
		for i := range ended {
			e := &ended[i]
			if e.ratio, err = peakOf(ctx, tx, e.attempt); err != nil {
				return fmt.Errorf("peak of attempt %d: %w", e.attempt, err)
			}
			if e.ratio < 0 {
				continue
			}
			if _, ok := learnt[e.class]; !ok {
				if learnt[e.class], err = lockClass(ctx, tx, e.class); err != nil {
					return err
				}
			}
			learnt[e.class] = learnt[e.class].Learn(e.ratio)
		}
		return keepPeaks(ctx, tx, ended, learnt)
	})
	return looked, err
}

// endedAttempt is one that a class may learn from; ratio is below 0 where its peak
// was not measured.
type endedAttempt struct {
	attempt ledger.AttemptID
	class   ClassKey
	ratio   int64
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

// lockClass reads a class for an update; a new one is made.
func lockClass(ctx context.Context, tx *Tx, k ClassKey) (c placing.Class, err error) {
	err = tx.QueryRow(ctx, `insert into job_classes as c (pool_id, project_id, gpus, gpu_milli, seen, mean_ppm, var_ppm, at) values ($1, $2, $3, $4, 0, 0, 0, $5)
		on conflict (pool_id, project_id, gpus, gpu_milli) do update set at = $5 returning seen, mean_ppm, var_ppm`,
		k.Pool, k.Project, k.GPUs, k.GPUMilli, tx.Now).Scan(&c.Seen, &c.Mean, &c.Var)
	return c, err
}

func keepPeaks(ctx context.Context, tx *Tx, ended []endedAttempt, learnt map[ClassKey]placing.Class) error {
	batch := &pgx.Batch{}
	ids, ratios := make([]int64, len(ended)), make([]int64, len(ended))
	for i := range ended {
		ids[i], ratios[i] = int64(ended[i].attempt), ended[i].ratio
	}
	batch.Queue(`update attempts a set hbm_peak_ppm = u.ratio from unnest($1::bigint[], $2::bigint[]) u (id, ratio) where a.id = u.id`, ids, ratios)
	for k, c := range learnt {
		batch.Queue(`update job_classes set seen = $5, mean_ppm = $6, var_ppm = $7 where pool_id = $1 and project_id = $2 and gpus = $3 and gpu_milli = $4`,
			k.Pool, k.Project, k.GPUs, k.GPUMilli, c.Seen, c.Mean, c.Var)
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
	known     map[ClassKey]placing.Class
}

func (c *classesKept) queue(batch *pgx.Batch) {
	batch.Queue(`select coalesce(sum(seen), 0)::bigint from job_classes`).QueryRow(func(row pgx.Row) error { return row.Scan(&c.now) })
}

// refresh reads the classes when something was learnt.
func (c *classesKept) refresh(batch *pgx.Batch) {
	if c.known != nil && c.now == c.seen {
		return
	}
	known := map[ClassKey]placing.Class{}
	batch.Queue(`select pool_id, project_id, gpus, gpu_milli, seen, mean_ppm, var_ppm from job_classes where seen >= $1`, placing.EnoughSeen).
		Query(func(rows pgx.Rows) error {
			var k ClassKey
			var v placing.Class
			_, err := pgx.ForEachRow(rows, []any{&k.Pool, &k.Project, &k.GPUs, &k.GPUMilli, &v.Seen, &v.Mean, &v.Var}, func() error {
				known[k] = v
				return nil
			})
			c.seen, c.known = c.now, known
			return err
		})
}

// expect gives a waiting job's memory per device as its kind uses it rather than as
// it declares it: the mean, with the variance of which the dispatcher keeps one
// standard deviation for all on a device together. A job that leaves its whole
// devices' memory open takes it all. hbm is the largest device of the job's pool.
func (c *classesKept) expect(j scheduler.Job, hbm int64) scheduler.Job {
	sh := &j.Shape
	k := ClassOf(j.Pool, j.Project, sh)
	declared := sh.HBMMiB
	if declared == 0 && k.GPUMilli < placing.WholeGPU {
		declared = hbm * k.GPUMilli / placing.WholeGPU
	}
	known, ok := c.known[k]
	if !ok || declared == 0 || sh.GPUs == 0 {
		return j
	}
	// In whole percent, so that shapes which hardly differ are the same.
	mean, swing := declared*percentUp(known.Mean)/100, declared*percentUp(known.Deviation())/100
	if sh.HBMMiB, sh.HBMVar = max(1, mean), swing*swing; mean+swing > hbm {
		sh.HBMMiB, sh.HBMVar = max(hbm, 1), 0 // it is alone on its devices, and has all of them
	}
	return j
}

// percentUp is a part in millionths in percent, rounded up.
func percentUp(ppm int64) int64 { return (ppm + 9_999) / 10_000 }

// largestHBM is the memory of each pool's largest device.
func largestHBM(nodes []scheduler.Node) map[ledger.PoolID]int64 {
	out := map[ledger.PoolID]int64{}
	for i := range nodes {
		out[nodes[i].Pool] = max(out[nodes[i].Pool], nodes[i].HBMMiB)
	}
	return out
}
