package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// JobOutlook is what it would take to start a waiting job, and what went before
// it meanwhile.
type JobOutlook struct {
	scheduler.Outlook
	At    ledger.Instant // of the snapshot that was decided on
	Nodes map[ledger.NodeID]string
	Pools map[ledger.PoolID]string
	Ahead []Ahead
}

// NodeName names a node.
func (o *JobOutlook) NodeName(id ledger.NodeID) string { return o.Nodes[id] }

// PoolName names a pool.
func (o *JobOutlook) PoolName(id ledger.PoolID) string { return o.Pools[id] }

// Ahead is what one group had before a job that was submitted earlier.
type Ahead struct {
	Group    ledger.GroupID // below the fork of the two paths; the job's own project when that is the same
	Title    string
	Own      bool                // of the job's own project
	Started  int                 // jobs submitted later that have started since
	Free     int                 // of them, those that started unfunded
	Waiting  int                 // jobs queued later that rank before it now
	Standing *scheduler.Standing // of the group when its latest one started; nil when none decided
}

// Bounds of outlooks kept for readers.
const (
	outlookFresh = 5 * time.Second // real
	mostOutlooks = 256
	mostAhead    = 500 // projects that went first
)

// outlooks are kept for some seconds, whoever asks.
type outlooks struct {
	mu   sync.Mutex
	kept map[ledger.JobID]keptOutlook
}

// keptOutlook is one that is given out again for a while.
type keptOutlook struct {
	outlook JobOutlook
	queued  int64 // the job as it was asked about: a change gives it another outlook
	shape   scheduler.Shape
	minMs   int64
	at      ledger.Instant // real
}

// JobOutlook tries what would start a job in the next cycle. A job that does not
// wait for a start has an empty one. It may take a second on a large fleet, so it
// is kept for some.
func (s *Store) JobOutlook(ctx context.Context, id ledger.JobID) (JobOutlook, error) {
	var out JobOutlook
	var job scheduler.Job
	var path, state string
	var sizes []scheduler.NodeSize
	kept := false
	err := s.readTx(ctx, "outlook", func(tx *Tx) error {
		out = JobOutlook{}
		err := tx.QueryRow(ctx, `select `+jobColumns+`, case when j.blocked then 'blocked' else j.state end, g.path from jobs j join groups g on g.id = j.project_id where j.id = $1`, id).
			Scan(append(jobFields(&job), &state, &path)...)
		if noRow(err) {
			return missingJob(id)
		}
		if err != nil || state != "pending" {
			return err
		}
		if out, kept = s.outlooks.find(&job, tx.Real); kept {
			return nil
		}
		if out.Ahead, err = movedAhead(ctx, tx, &job, path); err != nil {
			return err
		}
		sizes, err = poolSizes(ctx, tx)
		return err
	})
	if err != nil || kept || state != "pending" {
		return out, err
	}
	snap, err := s.Peek(ctx)
	if err != nil {
		return out, err
	}
	out.Nodes, out.Pools = map[ledger.NodeID]string{}, map[ledger.PoolID]string{}
	for i := range snap.Nodes {
		out.Nodes[snap.Nodes[i].ID] = snap.Nodes[i].Name
	}
	for i := range snap.Pools {
		out.Pools[snap.Pools[i].ID] = snap.Pools[i].Name
	}
	out.At, out.Outlook = snap.Now, scheduler.Changes(snap, job, sizes)
	s.outlooks.keep(&job, out, s.Real())
	return out, nil
}

// find gives a kept outlook of the job as it is.
func (k *outlooks) find(job *scheduler.Job, real ledger.Instant) (JobOutlook, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.kept[job.ID]
	age := real - o.at
	if !ok || o.queued != job.QueueSeq || o.shape != job.Shape || o.minMs != job.Contract.MinMs || age < 0 || age >= ledger.Instant(outlookFresh.Microseconds()) {
		return JobOutlook{}, false
	}
	return o.outlook, true
}

// keep forgets everything once too much is kept: it lives for seconds anyway.
func (k *outlooks) keep(job *scheduler.Job, o JobOutlook, real ledger.Instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil || len(k.kept) >= mostOutlooks {
		k.kept = map[ledger.JobID]keptOutlook{}
	}
	k.kept[job.ID] = keptOutlook{o, job.QueueSeq, job.Shape, job.Contract.MinMs, real}
}

// overtaker is one project with jobs that went before another's.
type overtaker struct {
	project                ledger.GroupID
	path                   string
	started, free, waiting int
	facts                  []byte // startFacts of its latest start, funded ones first
}

const sqlOvertakers = `select g.id, g.path, x.started, x.free, x.waiting, x.facts from (
		select project_id, sum(started)::int as started, sum(free)::int as free, sum(waiting)::int as waiting, (array_agg(facts order by started desc))[1] as facts from (
			select a.project_id, count(*) as started, count(*) filter (where a.min_ms = 0) as free, 0 as waiting,
				(array_agg(a.start_facts order by a.min_ms > 0 desc, a.since desc))[1] as facts
			from attempts a join jobs j on j.id = a.job_id
			where a.pool_id = $1 and a.since >= $2 and a.phase <> 'reserved' and j.queue_seq > $3 and j.submitted_at >= $2 group by a.project_id
			union all
			select j.project_id, 0, 0, count(*), null from jobs j join job_reasons r on r.job_id = j.id
			where j.pool_id = $1 and j.state = 'pending' and not j.blocked and j.queue_seq > $3 and r.rank < (select rank from job_reasons where job_id = $4) group by j.project_id) y
		group by project_id order by sum(started) + sum(waiting) desc, project_id limit $5) x
	join groups g on g.id = x.project_id order by x.started + x.waiting desc, g.id`

// movedAhead counts, by group, the jobs of the pool that were queued after the
// job and have started since, and those that rank before it now.
func movedAhead(ctx context.Context, tx *Tx, job *scheduler.Job, path string) ([]Ahead, error) {
	rows, err := tx.Query(ctx, sqlOvertakers, job.Pool, job.Submitted, job.QueueSeq, job.ID, mostAhead)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o overtaker, err error) {
		return o, row.Scan(&o.project, &o.path, &o.started, &o.free, &o.waiting, &o.facts)
	})
	if err != nil {
		return nil, err
	}
	var out []Ahead
	var branches []string
	for i := range list {
		o := &list[i]
		branch, depth := forkOf(path, o.path)
		at := slices.Index(branches, branch)
		if at < 0 {
			at, branches, out = len(out), append(branches, branch), append(out, Ahead{Own: o.path == path})
		}
		a := &out[at]
		a.Started, a.Free, a.Waiting = a.Started+o.started, a.Free+o.free, a.Waiting+o.waiting
		var start startFacts
		if a.Standing == nil && !a.Own && o.started > o.free && json.Unmarshal(o.facts, &start) == nil && depth < len(start.Path) {
			a.Standing = &start.Path[depth]
		}
	}
	return out, nameBranches(ctx, tx, branches, out)
}

// forkOf gives the path at which another project's branch leaves the job's, and
// how deep below the root's children that is. Within the job's own project it is
// the project.
func forkOf(mine, other string) (branch string, depth int) {
	a, b := strings.Split(mine, "/"), strings.Split(other, "/") // "", root, child …
	n := 2
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	n = min(n, len(b)-1)
	return strings.Join(b[:n+1], "/"), n - 2
}

func nameBranches(ctx context.Context, tx *Tx, branches []string, out []Ahead) error {
	rows, err := tx.Query(ctx, `select path, id, title from groups where path = any($1)`, branches)
	if err != nil {
		return err
	}
	var path, title string
	var id ledger.GroupID
	_, err = pgx.ForEachRow(rows, []any{&path, &id, &title}, func() error {
		if at := slices.Index(branches, path); at >= 0 {
			out[at].Group, out[at].Title = id, title
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b Ahead) int { return cmp.Compare(b.Started+b.Waiting, a.Started+a.Waiting) })
	return err
}
