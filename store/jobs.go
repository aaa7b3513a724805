package store

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// Channels of NOTIFY.
const (
	channelCycle  = "tranche_cycle"  // something may let a job start
	channelOrders = "tranche_orders" // some node's desired state changed
	channelPage   = "tranche_page"   // live pages may look again
)

// Submission asks for a job. Nil pointers and zero values stand for the preset's,
// the policy's or the node's proportional default.
type Submission struct {
	Preset  string // debug, train (default), long, free
	Name    string
	Project string // path
	Pool    string // name

	Nodes    int64
	GPUs     int64 // per node
	GPUMilli int64 // 1..1000 of one GPU
	CPUMilli int64 // per node
	RAMMiB   int64 // per node
	Flow     SubmittedFlow

	Command    string // for /bin/sh -c
	WorkDir    string
	Env        map[string]string
	OutputPath string
	Checkpoint string // "signal:USR1" or a command

	MinMs       *int64
	GraceMs     *int64 // real
	MaxMs       *int64
	Resumable   *bool
	StopOnMoney bool
	OrFree      bool
	Interactive bool     // warned before its protection ends
	After       []string // "ok:12", "any:13:A4": waits for these jobs and arrays
	Singleton   bool     // waits for earlier jobs of its name, owner and project
	Array       string   // "0-99%8": a job for each index, at most so many at once
	Urgency     int
	MaxCharge   ledger.Amount // over the whole job; 0 = no limit
}

// SubmitJob puts a job into its pool's queue and gives its number; of an array,
// the first job's. Every wrong field is named (ledger.Refusals); whoever may not
// submit there is refused.
func (s *Store) SubmitJob(ctx context.Context, cmd Command, sub Submission) (ledger.JobID, error) {
	return runCommand(ctx, s, "job.submit", cmd, sub, func(tx *Tx) (ledger.JobID, error) {
		var refusal *ledger.Refusal
		target, err := loadTarget(ctx, tx, cmd.Actor, sub)
		if err != nil {
			return 0, err
		}
		job, refusals := sub.check(target, cmd.Actor, tx.Now)
		if len(refusals) > 0 {
			return 0, refusals
		}
		job.Member = cmd.Actor.Person
		e := &entering{job: job, sub: &sub, token: cmd.Actor.Token}
		if e.array, refusal = scheduler.ParseArray(sub.Array); refusal != nil {
			return 0, ledger.Refusals{refusal}
		}
		if err := reserveOnToken(ctx, tx, cmd.Actor.Token, job, e.array.Size()); err != nil {
			return 0, err
		}
		deps, waits, err := awaited(ctx, tx, job, &sub, ledger.SightOf(cmd.Actor, target.policy.Closed(), tx.Now))
		if err != nil {
			return 0, err
		}
		e.waits = waits
		if err := insertJobs(ctx, tx, e); err != nil {
			return 0, err
		}
		if err := noteDependencies(ctx, tx, e, deps); err != nil {
			return 0, err
		}
		tx.Notify(channelCycle)
		tx.Notify(channelPage)
		return job.ID, audit(ctx, tx, cmd, e.act())
	})
}

// target is where a submission goes, with the facts its check needs.
type target struct {
	project   ledger.GroupID
	path      string
	suspended bool
	pool      poolFacts
	policy    scheduler.Policy
	nodes     []nodeSize // of the pool, not retired
}

type poolFacts struct {
	id       ledger.PoolID
	name     string
	ratePPM  int64
	gpus     int64 // of the reference node
	cpuMilli int64
	ramMiB   int64
	hbmMiB   int64
	demand   Demand
}

// reference is the pool's reference node.
func (p *poolFacts) reference() nodeSize {
	return nodeSize{p.gpus, scheduler.Node{CPUMilli: p.cpuMilli, RAMMiB: p.ramMiB, HBMMiB: p.hbmMiB}}
}

type nodeSize struct {
	gpus int64
	scheduler.Node
}

// loadTarget finds project and pool; what is missing there is a refusal of its field.
func loadTarget(ctx context.Context, tx *Tx, actor ledger.Actor, sub Submission) (*target, error) {
	t := &target{path: sub.Project}
	var refusals ledger.Refusals
	var kind string
	var archived bool
	err := tx.QueryRow(ctx, `select id, kind, suspended_at is not null, archived_at is not null from groups where path = $1`, sub.Project).
		Scan(&t.project, &kind, &t.suspended, &archived)
	switch {
	case noRow(err) || (err == nil && (kind != "project" || archived)):
		refusals = append(refusals, noProject(sub.Project))
	case err != nil:
		return nil, err
	default:
		if denied := actor.May(ledger.JobSubmit, sub.Project, tx.Now); denied != nil {
			sight, err := sightOf(ctx, tx, actor)
			if err != nil {
				return nil, err
			}
			if sight.Sees(sub.Project) {
				return nil, denied
			}
			refusals = append(refusals, noProject(sub.Project))
		}
		if t.suspended {
			refusals = append(refusals, &ledger.Refusal{
				Kind: ledger.Conflict, Code: "project.suspended", Field: "project",
				Detail: "Project " + sub.Project + " is suspended and starts nothing new; ask its PI or manager.",
			})
		}
	}
	p := &t.pool
	err = tx.QueryRow(ctx, `select id, name, rate_ppm, node_gpus, node_cpu_milli, node_ram_mib, node_hbm_mib, gpu_net_mbps, gpu_sto_mbps, gpu_ioc_milli from pools where name = $1`, sub.Pool).
		Scan(&p.id, &p.name, &p.ratePPM, &p.gpus, &p.cpuMilli, &p.ramMiB, &p.hbmMiB, &p.demand.NetMbps, &p.demand.StoMbps, &p.demand.IOCMilli)
	if noRow(err) {
		refusals = append(refusals, refuse(ledger.Invalid, "pool.missing", "pool", "There is no pool "+sub.Pool+"; choose one of the list."))
	} else if err != nil {
		return nil, err
	}
	if len(refusals) > 0 {
		return nil, refusals
	}
	if t.policy, err = loadPolicy(ctx, tx); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `select d.count, n.cpu_milli, n.ram_mib, n.net_mbps, n.sto_mbps, n.ioc_milli, coalesce(d.hbm, 0)
		from nodes n cross join lateral (select count(*), min(hbm_mib) filter (where not dead) as hbm from devices where node_id = n.id) d where n.pool_id = $1 and n.retired_at is null order by n.id`, p.id)
	if err != nil {
		return nil, err
	}
	t.nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n nodeSize, err error) {
		return n, row.Scan(&n.gpus, &n.CPUMilli, &n.RAMMiB, &n.NetMbps, &n.StoMbps, &n.IOCMilli, &n.HBMMiB)
	})
	return t, err
}

// noProject refuses a project that is not there, or that the actor may not know of.
func noProject(path string) *ledger.Refusal {
	return refuse(ledger.Invalid, "project.missing", "project", "There is no project "+path+"; choose one of yours.")
}

// entering is a submission that has passed its check, on its way into the queue.
type entering struct {
	job     *scheduler.Job // the first one's number and place come with its row
	sub     *Submission
	token   int64
	array   *scheduler.Array
	waits   bool // for what it is to start after
	arrayID ledger.ArrayID
}

// act is what the audit notes of a submission.
func (e *entering) act() act {
	if e.array == nil {
		return act{Verb: "job.submit", Subject: subjectOf("job", int64(e.job.ID)), After: e.job}
	}
	return act{Verb: "array.submit", Subject: subjectOf("array", int64(e.arrayID)), After: map[string]any{
		"first": e.job, "indices": e.array.Text, "jobs": e.array.Size(), "at_once": e.array.AtOnce,
	}}
}

// insertJobs writes the job, or the jobs of the array, with what they run, and
// sets the first one's number. All of an array's jobs run the first one's command.
func insertJobs(ctx context.Context, tx *Tx, e *entering) error {
	indices, atOnce := []*int32{nil}, 0
	if e.array != nil {
		var err error
		if e.arrayID, err = insertArray(ctx, tx, e); err != nil {
			return err
		}
		indices, atOnce = make([]*int32, len(e.array.Indices)), e.array.AtOnce
		for i := range indices {
			indices[i] = &e.array.Indices[i]
		}
	}
	j, sub := e.job, e.sub
	c, f := &j.Contract, &j.Shape.Flow
	// Numbers and places are drawn in the order of the indices.
	err := tx.QueryRow(ctx, `with fresh as (insert into jobs (project_id, pool_id, member_id, name, preset, nodes, gpus, gpu_milli, cpu_milli, ram_mib,
			hbm_mib, net_mbps, sto_mbps, ioc_milli, hbm_var, sto_var, ioc_var, milli_gpu, rate_ppm, min_ms, grace_ms, max_ms, resumable, stop_on_money, or_free, max_charge, urgency, interactive, queue_seq, state, submitted_at, token_id,
			array_id, array_index, listed, blocked)
		select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $28, $29, $30, $31, $32, $33, $34, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, nextval('queue_seq'), 'pending', $22, nullif($23::bigint, 0),
			nullif($24::bigint, 0), u.i, u.n = 1, $25 or ($26::int > 0 and u.n > $26::int)
		from (select i, n from unnest($27::int[]) with ordinality u (i, n) order by n) u returning id, queue_seq),
		noted as (insert into job_events (job_id, at, kind) select id, $22, 'submitted' from fresh order by id)
		select min(id), min(queue_seq) from fresh`,
		j.Project, j.Pool, j.Member, sub.Name, sub.Preset, j.Shape.Nodes, j.Shape.GPUs, j.Shape.GPUMilli, j.Shape.CPUMilli, j.Shape.RAMMiB,
		j.Rate.MilliGPU, j.Rate.PPM, c.MinMs, c.GraceMs, c.MaxMs, c.Resumable, c.StopOnMoney, c.OrFree, c.MaxCharge, c.Urgency, c.Interactive, tx.Now, e.token,
		e.arrayID, e.waits, atOnce, indices, f.HBMMiB, f.NetMbps, f.StoMbps, f.IOCMilli, f.HBMVar, f.StoVar, f.IOCVar).
		Scan(&j.ID, &j.QueueSeq)
	if err != nil {
		return err
	}
	j.Submitted = tx.Now
	env := sub.Env
	if env == nil {
		env = map[string]string{}
	}
	if _, err = tx.Exec(ctx, `insert into job_commands (job_id, command, workdir, env, output_path, checkpoint) values ($1, $2, $3, $4, $5, $6)`,
		j.ID, sub.Command, sub.WorkDir, env, sub.OutputPath, sub.Checkpoint); err != nil || e.array == nil {
		return err
	}
	_, err = tx.Exec(ctx, `update job_arrays set first_job = $2 where id = $1`, e.arrayID, j.ID)
	return err
}

// CancelJob ends a job for good: what waits never starts, what has not claimed
// costs nothing, what runs gets its grace. Cancelling again is no further effect.
func (s *Store) CancelJob(ctx context.Context, cmd Command, id ledger.JobID) error {
	return s.jobCommand(ctx, cmd, "job.cancel", id, func(tx *Tx, l *life) error {
		if refusal := cmd.Actor.MayOwn(ledger.JobCancel, l.path, l.job.Member, tx.Now); refusal != nil {
			return refusal
		}
		changed, refusal := l.advance(scheduler.Event{Kind: scheduler.EvCancelled, At: tx.Now}, "cancel-asked", nil)
		if refusal != nil {
			return refusal
		}
		if !changed {
			return nil
		}
		_, err := tx.Exec(ctx, `update jobs set cancel_asked_by = $2 where id = $1`, id, cmd.Actor.Person)
		return err
	})
}

// PauseJob keeps a waiting job from starting; pausing again is no further effect.
func (s *Store) PauseJob(ctx context.Context, cmd Command, id ledger.JobID) error {
	return s.jobCommand(ctx, cmd, "job.pause", id, pauseWith(cmd, scheduler.EvPaused, "paused"))
}

// ResumeJob lets a paused job wait for its start again, at its old place.
func (s *Store) ResumeJob(ctx context.Context, cmd Command, id ledger.JobID) error {
	return s.jobCommand(ctx, cmd, "job.resume", id, pauseWith(cmd, scheduler.EvResumed, "resumed"))
}

func pauseWith(cmd Command, kind scheduler.EventKind, word string) func(*Tx, *life) error {
	return func(tx *Tx, l *life) error {
		if refusal := cmd.Actor.MayOwn(ledger.JobPause, l.path, l.job.Member, tx.Now); refusal != nil {
			return refusal
		}
		if _, refusal := l.advance(scheduler.Event{Kind: kind, At: tx.Now}, word, nil); refusal != nil {
			return refusal
		}
		tx.Notify(channelCycle)
		return nil
	}
}

// StopJob is an operator's stop of what runs. The attempt ends with its grace and
// is credited; a resumable job waits again.
func (s *Store) StopJob(ctx context.Context, cmd Command, id ledger.JobID, why string) error {
	why = strings.TrimSpace(why)
	return s.jobCommand(ctx, cmd, "job.stop", id, func(tx *Tx, l *life) error {
		if refusal := cmd.Actor.May(ledger.JobStop, l.path, tx.Now); refusal != nil {
			return refusal
		}
		if why == "" || utf8.RuneCountInString(why) > 500 {
			return refuse(ledger.Invalid, "job.stop_why", "reason", "Say in up to 500 characters why; the job's owner will read it.")
		}
		if l.state.Job != scheduler.JobActive {
			return &ledger.Refusal{
				Kind: ledger.Conflict, Code: "job.not_running",
				Detail: fmt.Sprintf("Job %d does not run; there is nothing to stop.", id),
			}
		}
		l.stopFacts = map[string]string{"why": why}
		_, refusal := l.advance(scheduler.Event{Kind: scheduler.EvSignalled, At: tx.Now, Rule: scheduler.Operator}, "stopped", l.stopFacts)
		if refusal != nil {
			return refusal
		}
		return nil
	})
}

// jobCommand is the frame of a command on one job: lock, decide, write, audit.
func (s *Store) jobCommand(ctx context.Context, cmd Command, verb string, id ledger.JobID, fn func(*Tx, *life) error) error {
	_, err := runCommand(ctx, s, verb, cmd, id, func(tx *Tx) (ledger.JobID, error) {
		l, err := loadLife(ctx, tx, id)
		if err != nil {
			return 0, err
		}
		before := jobState(&l.state)
		if err := fn(tx, l); err != nil {
			return 0, err
		}
		if err := s.keep(ctx, tx, l); err != nil {
			return 0, err
		}
		type state struct {
			State string `json:"state"`
		}
		return id, audit(ctx, tx, cmd, act{
			Verb: verb, Subject: fmt.Sprintf("job %d", id),
			Before: state{before}, After: state{jobState(&l.state)},
		})
	})
	return err
}
