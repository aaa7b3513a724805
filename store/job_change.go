package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// JobChange says what of a waiting job is to be otherwise; zero and nil fields
// stay. Cores and memory follow GPUs and pool unless they are given.
type JobChange struct {
	Pool     string // name
	Nodes    int64
	GPUs     int64 // per node
	CPUMilli int64 // per node
	RAMMiB   int64 // per node
	MinMs    *int64
}

// ChangeJob alters a job that waits or is paused. It keeps its place in the queue
// when it asks for less in the same pool; else it goes to the end of the queue.
// Charged GPUs and rate are those of the new shape.
func (s *Store) ChangeJob(ctx context.Context, cmd Command, id ledger.JobID, ch JobChange) error {
	type content struct {
		Job    ledger.JobID
		Change JobChange
	}
	_, err := runCommand(ctx, s, "job.change", cmd, content{id, ch}, func(tx *Tx) (ledger.JobID, error) {
		l, err := loadLife(ctx, tx, id)
		if err != nil {
			return 0, err
		}
		if refusal := cmd.Actor.MayOwn(ledger.JobPause, l.path, l.job.Member, tx.Now); refusal != nil {
			return 0, refusal
		}
		if l.state.Job != scheduler.JobWaiting && l.state.Job != scheduler.JobPaused {
			return 0, &ledger.Refusal{
				Kind: ledger.Conflict, Code: "job.not_waiting",
				Detail: fmt.Sprintf("Job %d no longer waits; only a waiting job can be changed.", id),
			}
		}
		was := l.job
		is, err := ch.apply(ctx, tx, cmd.Actor, l)
		if err != nil {
			return 0, err
		}
		if is.Shape == was.Shape && is.Contract == was.Contract && is.Pool == was.Pool {
			return id, nil
		}
		if err := changeOnToken(ctx, tx, id, &was, is); err != nil {
			return 0, err
		}
		if err := rewriteJob(ctx, tx, &was, is); err != nil {
			return 0, err
		}
		tx.Notify(channelCycle)
		tx.Notify(channelPage)
		return id, audit(ctx, tx, cmd, act{Verb: "job.change", Subject: fmt.Sprintf("job %d", id), Before: was, After: is})
	})
	return err
}

// apply gives the job as it would be; what is wrong with it is refused by field,
// as when it is submitted.
func (ch *JobChange) apply(ctx context.Context, tx *Tx, actor ledger.Actor, l *life) (*scheduler.Job, error) {
	sizes, err := poolSizes(ctx, tx)
	if err != nil {
		return nil, err
	}
	sub := Submission{Project: l.path, Pool: ch.Pool, Command: "true"} // what it runs stays, and was checked before
	if sub.Pool == "" {
		if err := tx.QueryRow(ctx, `select name from pools where id = $1`, l.job.Pool).Scan(&sub.Pool); err != nil {
			return nil, err
		}
	}
	t, err := loadTarget(ctx, tx, actor, sub)
	if err != nil {
		return nil, err
	}
	job := l.job
	from, to := sizeIn(sizes, job.Pool), sizeIn(sizes, t.pool.id)
	if t.pool.id != job.Pool {
		var ok bool
		if job, ok = to.Move(job, from, t.pool.ratePPM); !ok {
			return nil, refuse(ledger.Invalid, "job.pool_kind", "pool", "A job for GPUs cannot move to a pool without, nor the other way round; submit it anew.")
		}
	}
	job = to.Reshape(job, or(ch.Nodes, job.Shape.Nodes), or(ch.GPUs, job.Shape.GPUs))
	job.Contract.MinMs = given(ch.MinMs, job.Contract.MinMs)
	if job.Contract.MinMs == 0 {
		job = t.policy.Unfunded(job)
	}
	c := &job.Contract
	sub.Nodes, sub.GPUs, sub.GPUMilli = job.Shape.Nodes, job.Shape.GPUs, job.Shape.GPUMilli
	sub.CPUMilli, sub.RAMMiB = or(ch.CPUMilli, job.Shape.CPUMilli), or(ch.RAMMiB, job.Shape.RAMMiB)
	sub.Flow = flowOf(&job.Shape.Flow)
	sub.MinMs, sub.GraceMs, sub.MaxMs, sub.MaxCharge = &c.MinMs, &c.GraceMs, &c.MaxMs, c.MaxCharge
	checked, refusals := sub.check(t, actor, tx.Now)
	if len(refusals) > 0 {
		return nil, refusals
	}
	job.Shape, job.Rate = checked.Shape, checked.Rate
	return &job, nil
}

func or(n, otherwise int64) int64 {
	if n != 0 {
		return n
	}
	return otherwise
}

// less says that a changed job asks for nothing more than before, in the same pool.
func less(is, was *scheduler.Job) bool {
	a, b := is.Shape, was.Shape
	return is.Pool == was.Pool && a.Nodes <= b.Nodes && a.GPUs <= b.GPUs && a.GPUMilli <= b.GPUMilli && a.CPUMilli <= b.CPUMilli &&
		a.RAMMiB <= b.RAMMiB && a.HBMMiB <= b.HBMMiB && a.NetMbps <= b.NetMbps && a.StoMbps <= b.StoMbps && a.IOCMilli <= b.IOCMilli && is.Contract.MinMs <= was.Contract.MinMs
}

// rewriteJob writes a changed job and sets its place in the queue.
func rewriteJob(ctx context.Context, tx *Tx, was, is *scheduler.Job) error {
	s, c := &is.Shape, &is.Contract
	err := tx.QueryRow(ctx, `update jobs set pool_id = $2, nodes = $3, gpus = $4, gpu_milli = $5, cpu_milli = $6, ram_mib = $7, hbm_mib = $13, net_mbps = $14, sto_mbps = $15, ioc_milli = $16,
			hbm_var = $17, sto_var = $18, ioc_var = $19, milli_gpu = $8,
			rate_ppm = $9, min_ms = $10, grace_ms = $11, queue_seq = case when $12 then queue_seq else nextval('queue_seq') end
		where id = $1 returning queue_seq`, is.ID, is.Pool, s.Nodes, s.GPUs, s.GPUMilli, s.CPUMilli, s.RAMMiB, is.Rate.MilliGPU,
		is.Rate.PPM, c.MinMs, c.GraceMs, less(is, was),
		s.HBMMiB, s.NetMbps, s.StoMbps, s.IOCMilli, s.HBMVar, s.StoVar, s.IOCVar).Scan(&is.QueueSeq)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into job_events (job_id, at, kind, detail) values ($1, $2, 'changed', $3)`, is.ID, tx.Now, struct {
		Before *scheduler.Job `json:"before"`
		After  *scheduler.Job `json:"after"`
	}{was, is})
	return err
}

// changeOnToken sets aside, or gives back, what a job may cost from its token's
// limit when it begins, or ceases, to be charged.
func changeOnToken(ctx context.Context, tx *Tx, id ledger.JobID, was, is *scheduler.Job) error {
	if (was.Contract.MinMs > 0) == (is.Contract.MinMs > 0) {
		return nil
	}
	var token int64
	if err := tx.QueryRow(ctx, `select coalesce(token_id, 0) from jobs where id = $1`, id).Scan(&token); err != nil {
		return err
	}
	if is.Contract.MinMs > 0 {
		return reserveOnToken(ctx, tx, token, is, 1)
	}
	batch := &pgx.Batch{}
	queueTokenSettled(batch, id, was.Charged)
	return tx.SendBatch(ctx, batch).Close()
}

// poolSizes gives the reference node of every pool.
func poolSizes(ctx context.Context, tx *Tx) ([]scheduler.NodeSize, error) {
	rows, err := tx.Query(ctx, `select id, node_gpus, node_cpu_milli, node_ram_mib from pools order by id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[scheduler.NodeSize])
}

func sizeIn(sizes []scheduler.NodeSize, pool ledger.PoolID) *scheduler.NodeSize {
	for i := range sizes {
		if sizes[i].Pool == pool {
			return &sizes[i]
		}
	}
	return &scheduler.NodeSize{Pool: pool}
}
