package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// ArrayLine is one array with what has become of its jobs.
type ArrayLine struct {
	ID        ledger.ArrayID
	Name      string
	Indices   string // as written: "0-99"
	Size      int
	AtOnce    int // 0: as many as may
	FirstJob  ledger.JobID
	Submitted ledger.Instant
	After     string // "job 12, array A4": what all its jobs still wait for

	Waiting   int // queued or blocked
	Paused    int
	Running   int // starting and ending ones, too
	Finished  int
	Failed    int
	Cancelled int
	Charged   ledger.Amount // net of credits, over all its jobs
}

// Over says whether none of its jobs can run any more.
func (a *ArrayLine) Over() bool { return a.Waiting+a.Paused+a.Running == 0 }

// fillArrays replaces an array's first job by the array itself.
func (page *JobPage) fillArrays(ctx context.Context, tx *Tx) error {
	var ids []ledger.ArrayID
	for i := range page.Jobs {
		if id := page.Jobs[i].ArrayID; id != 0 {
			ids = append(ids, id)
		}
	}
	arrays, err := arrayLines(ctx, tx, ids)
	if err != nil {
		return err
	}
	for i := range page.Jobs {
		page.Jobs[i].Array = arrays[page.Jobs[i].ArrayID]
	}
	return nil
}

// arrayLines reads arrays with their counts, which come from an index alone.
func arrayLines(ctx context.Context, tx *Tx, ids []ledger.ArrayID) (map[ledger.ArrayID]*ArrayLine, error) {
	out := make(map[ledger.ArrayID]*ArrayLine, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := tx.Query(ctx, `select y.id, y.name, y.indices, y.size, y.at_once, y.first_job, y.submitted_at,
			coalesce(case when y.waits then (select string_agg(case when d.on_job is null then 'array A' || d.on_array else 'job ' || d.on_job end, ', ' order by d.on_job, d.on_array)
				from job_dependencies d where d.array_id = y.id
					and exists (select from jobs o where (o.id = d.on_job or o.array_id = d.on_array) and o.state in ('pending', 'paused', 'live'))) end, ''),
			c.waiting, c.paused, c.running, c.finished, c.failed, c.cancelled, c.charged
		from job_arrays y cross join lateral (select count(*) filter (where j.state = 'pending') as waiting, count(*) filter (where j.state = 'paused') as paused,
				count(*) filter (where j.state = 'live') as running, count(*) filter (where j.state = 'finished') as finished,
				count(*) filter (where j.state = 'failed') as failed, count(*) filter (where j.state = 'cancelled') as cancelled, coalesce(sum(j.charged), 0)::bigint as charged
			from jobs j where j.array_id = y.id) c
		where y.id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ArrayLine])
	for i := range lines {
		out[lines[i].ID] = &lines[i]
	}
	return out, err
}

// ArrayDetail is one array with what all its jobs have in common.
type ArrayDetail struct {
	ArrayLine
	First   JobLine     // as it is now; shape and contract are the submitted ones unless it was changed
	Private *JobCommand // nil for readers without the role
	May     JobRights   // over the array: Cancel, Pause, Resume, Logs
}

// Array reads one array for a person: open parts for everybody, private ones by role.
func (s *Store) Array(ctx context.Context, actor ledger.Actor, id ledger.ArrayID) (ArrayDetail, error) {
	var d ArrayDetail
	err := s.readTx(ctx, "array", func(tx *Tx) error {
		d = ArrayDetail{}
		lines, err := arrayLines(ctx, tx, []ledger.ArrayID{id})
		if err != nil {
			return err
		}
		if lines[id] == nil {
			return missingArray(id)
		}
		d.ArrayLine = *lines[id]
		first, err := jobLines(ctx, tx, ` where j.id = $1`, d.FirstJob)
		if err != nil {
			return err
		}
		d.First = first[0]
		mayCancel := actor.MayOwn(ledger.JobCancel, d.First.Path, d.First.Member, tx.Now) == nil
		mayPause := actor.MayOwn(ledger.JobPause, d.First.Path, d.First.Member, tx.Now) == nil
		d.May = JobRights{
			Cancel: mayCancel && !d.Over(), Pause: mayPause && d.Waiting > 0, Resume: mayPause && d.Paused > 0,
			Logs: seesPrivate(actor, d.First.Member, d.First.Path, tx.Now),
		}
		if !d.May.Logs {
			return nil
		}
		d.Private, err = commandOf(ctx, tx, d.FirstJob)
		return err
	})
	return d, err
}

// commandOf reads what a job runs; an array's jobs all run the first one's.
func commandOf(ctx context.Context, tx *Tx, id ledger.JobID) (*JobCommand, error) {
	p := &JobCommand{}
	err := tx.QueryRow(ctx, `select command, workdir, env, output_path, checkpoint from job_commands
		where job_id = (select coalesce(y.first_job, j.id) from jobs j left join job_arrays y on y.id = j.array_id where j.id = $1)`, id).
		Scan(&p.Command, &p.WorkDir, &p.Env, &p.OutputPath, &p.Checkpoint)
	return p, err
}
