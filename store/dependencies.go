package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// mostDependencies bounds what one job may wait for.
const mostDependencies = 100

// dependency is one job, or one array with all its jobs, that another waits for.
type dependency struct {
	job   ledger.JobID // or
	array ledger.ArrayID
	needs scheduler.Needs
}

// parseAfter reads dependencies: "ok:12", "any:13:A4". The names afterok and
// afterany are understood, too.
func parseAfter(words []string) ([]dependency, *ledger.Refusal) {
	var out []dependency
	for _, word := range words {
		kind, rest, ok := strings.Cut(strings.TrimSpace(word), ":")
		needs := scheduler.Needs(strings.TrimPrefix(kind, "after"))
		if !ok || needs != scheduler.NeedsOK && needs != scheduler.NeedsAny {
			return nil, refuse(ledger.Invalid, "job.after", "after", "Write ok:12 for a job that must have ended well, any:12 for one that must have ended; ok:A4 for all jobs of array A4.")
		}
		for _, text := range strings.Split(rest, ":") {
			d := dependency{needs: needs}
			digits := strings.TrimPrefix(strings.ToUpper(text), "A")
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || n < 1 {
				return nil, refuse(ledger.Invalid, "job.after", "after", "“"+clipRunes(text, 40)+"” is no job's number and no array's.")
			}
			if digits == text {
				d.job = ledger.JobID(n)
			} else {
				d.array = ledger.ArrayID(n)
			}
			if !slices.ContainsFunc(out, func(o dependency) bool { return o.job == d.job && o.array == d.array }) {
				out = append(out, d)
			}
		}
	}
	if len(out) > mostDependencies {
		return nil, refuse(ledger.Invalid, "job.after", "after", fmt.Sprintf("A job waits for at most %d others.", mostDependencies))
	}
	return out, nil
}

func (d dependency) String() string {
	if d.array != 0 {
		return fmt.Sprintf("array A%d", d.array)
	}
	return fmt.Sprintf("job %d", d.job)
}

// lockName lets one submission of a singleton's name go on at a time, before its
// number is drawn: each of two at once would else not see the other.
func lockName(ctx context.Context, tx *Tx, job *scheduler.Job, name string) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, fmt.Sprintf("singleton %d %d %s", job.Project, job.Member, name))
	return err
}

// sqlAwaited says of dependencies whether each is over, and with which result. Its
// source d has job_id, array_id (who waits), on_job, on_array, kind. An array is
// over when all its jobs are, and for "ok" as soon as one did not end well.
const sqlAwaited = `select coalesce(d.job_id, 0), coalesce(d.array_id, 0), coalesce(d.on_job, 0), coalesce(d.on_array, 0), d.kind, coalesce(o.id, y.id) is not null,
		case when d.on_job is not null then o.state in ('finished', 'failed', 'cancelled') else not y.going or y.bad and d.kind = 'ok' end is true,
		coalesce(case when d.on_job is not null then o.result when y.bad then 'failed' else 'ok' end, '')
	from %s d left join jobs o on o.id = d.on_job
	left join lateral (select a.id, exists (select from jobs m where m.array_id = a.id and m.state in ('pending', 'paused', 'live')) as going,
			exists (select from jobs m where m.array_id = a.id and m.state in ('failed', 'cancelled')) as bad
		from job_arrays a where a.id = d.on_array) y on true`

// waiter is who waits: a job or an array.
type waiter struct {
	job   ledger.JobID
	array ledger.ArrayID
}

// awaitedLine is a row of sqlAwaited.
type awaitedLine struct {
	waiter
	on      dependency
	found   bool
	awaited scheduler.Awaited
}

func readAwaited(ctx context.Context, tx *Tx, source string, args ...any) ([]awaitedLine, error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(sqlAwaited, source), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l awaitedLine, err error) {
		err = row.Scan(&l.job, &l.array, &l.on.job, &l.on.array, &l.on.needs, &l.found, &l.awaited.Over, &l.awaited.Result)
		l.awaited.Needs = l.on.needs
		return l, err
	})
}

// awaited looks what a submission must wait for, and whether it still must. A
// singleton waits for every earlier job of its name, owner and project. What is
// not over cannot end unseen while this is being submitted.
func awaited(ctx context.Context, tx *Tx, job *scheduler.Job, sub *Submission, sight ledger.Sight) ([]dependency, bool, error) {
	deps, refusal := parseAfter(sub.After)
	if refusal != nil {
		return nil, false, ledger.Refusals{refusal}
	}
	if d, err := unseen(ctx, tx, sight, deps); err != nil || d != nil {
		if err == nil {
			err = ledger.Refusals{nothingToAwait(*d)}
		}
		return nil, false, err
	}
	if sub.Singleton {
		same, err := sameName(ctx, tx, job, sub.Name)
		if err != nil {
			return nil, false, err
		}
		for _, id := range same {
			if !slices.ContainsFunc(deps, func(d dependency) bool { return d.job == id }) {
				deps = append(deps, dependency{job: id, needs: scheduler.NeedsAny})
			}
		}
	}
	if len(deps) == 0 {
		return nil, false, nil
	}
	jobs, arrays, kinds := dependencyColumns(deps)
	// Locked in the order of their numbers, as everybody locks jobs.
	if _, err := tx.Exec(ctx, `select id from jobs where id = any($1) or array_id = any($2) and state in ('pending', 'paused', 'live') order by id for share`, jobs, arrays); err != nil {
		return nil, false, err
	}
	lines, err := readAwaited(ctx, tx, `(select 0 as job_id, 0 as array_id, nullif(j, 0) as on_job, nullif(a, 0) as on_array, k as kind
		from unnest($1::bigint[], $2::bigint[], $3::text[]) u (j, a, k))`, jobs, arrays, kinds)
	if err != nil {
		return nil, false, err
	}
	var all []scheduler.Awaited
	for i := range lines {
		l := &lines[i]
		if !l.found {
			return nil, false, ledger.Refusals{nothingToAwait(l.on)}
		}
		if all = append(all, l.awaited); scheduler.Depends(all[i:]) == scheduler.Never {
			return nil, false, ledger.Refusals{refuse(ledger.Invalid, "job.after", "after", sentenceCase(l.on.String())+" did not end well, so a job after it would never start.")}
		}
	}
	return deps, scheduler.Depends(all) == scheduler.Waits, nil
}

func nothingToAwait(d dependency) *ledger.Refusal {
	return refuse(ledger.Invalid, "job.after", "after", "There is no "+d.String()+" to wait for.")
}

func sentenceCase(words string) string { return strings.ToUpper(words[:1]) + words[1:] }

// sameName finds the earlier jobs that a singleton waits for.
func sameName(ctx context.Context, tx *Tx, job *scheduler.Job, name string) ([]ledger.JobID, error) {
	if err := lockName(ctx, tx, job, name); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `select id from jobs where project_id = $1 and member_id = $2 and name = $3
		and state in ('pending', 'paused', 'live') order by id desc limit $4`, job.Project, job.Member, name, mostDependencies)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[ledger.JobID])
}

// dependencyColumns gives dependencies as columns; 0 stands for none.
func dependencyColumns(deps []dependency) (jobs []ledger.JobID, arrays []ledger.ArrayID, kinds []string) {
	for _, d := range deps {
		jobs, arrays, kinds = append(jobs, d.job), append(arrays, d.array), append(kinds, string(d.needs))
	}
	return jobs, arrays, kinds
}

// noteDependencies writes what a fresh job, or array, was submitted to start after.
func noteDependencies(ctx context.Context, tx *Tx, e *entering, deps []dependency) error {
	if len(deps) == 0 {
		return nil
	}
	job := e.job.ID
	if e.array != nil {
		job = 0
	}
	jobs, arrays, kinds := dependencyColumns(deps)
	_, err := tx.Exec(ctx, `insert into job_dependencies (job_id, array_id, on_job, on_array, kind)
		select nullif($1::bigint, 0), nullif($2::bigint, 0), nullif(u.j, 0), nullif(u.a, 0), u.k from unnest($3::bigint[], $4::bigint[], $5::text[]) u (j, a, k)`,
		job, e.arrayID, jobs, arrays, kinds)
	return err
}

// afterEnd lets what waited for jobs that are over go on: who has all it waited for
// is queued, who waits for an end that cannot come any more is cancelled and told.
func (s *Store) afterEnd(ctx context.Context, tx *Tx, over []ledger.JobID) error {
	if len(over) == 0 {
		return nil
	}
	jobs, arrays, err := lockWaiting(ctx, tx, over)
	if err != nil || len(jobs)+len(arrays) == 0 {
		return err
	}
	lines, err := readAwaited(ctx, tx, `(select * from job_dependencies where job_id = any($1) or array_id = any($2) order by job_id, array_id, on_job, on_array)`, jobs, arrays)
	if err != nil {
		return err
	}
	all := map[waiter][]scheduler.Awaited{}
	for i := range lines {
		all[lines[i].waiter] = append(all[lines[i].waiter], lines[i].awaited)
	}
	var ready, never []ledger.JobID
	var readyArrays, neverArrays []ledger.ArrayID
	for _, id := range jobs {
		switch scheduler.Depends(all[waiter{job: id}]) {
		case scheduler.Ready:
			ready = append(ready, id)
		case scheduler.Never:
			never = append(never, id)
		case scheduler.Waits:
		}
	}
	for _, id := range arrays {
		switch scheduler.Depends(all[waiter{array: id}]) {
		case scheduler.Ready:
			readyArrays = append(readyArrays, id)
		case scheduler.Never:
			neverArrays = append(neverArrays, id)
		case scheduler.Waits:
		}
	}
	if err := release(ctx, tx, ready, readyArrays); err != nil {
		return err
	}
	if err := s.neverStart(ctx, tx, never); err != nil {
		return err
	}
	for _, id := range neverArrays {
		if err := s.neverStartArray(ctx, tx, id); err != nil {
			return err
		}
	}
	return nil
}

// lockWaiting finds who waits for jobs that are over, or for arrays of theirs. They
// are locked before what they wait for is read: of two ends at once, each the last
// that a job waits for but for the other, the second sees the first.
func lockWaiting(ctx context.Context, tx *Tx, over []ledger.JobID) ([]ledger.JobID, []ledger.ArrayID, error) {
	const on = `(on_job = any($1) or on_array in (select array_id from jobs where id = any($1)))`
	rows, err := tx.Query(ctx, `select id from job_arrays where waits and id in (select array_id from job_dependencies where `+on+`) order by id for update`, over)
	if err != nil {
		return nil, nil, err
	}
	arrays, err := pgx.CollectRows(rows, pgx.RowTo[ledger.ArrayID])
	if err != nil {
		return nil, nil, err
	}
	rows, err = tx.Query(ctx, `select id from jobs where blocked and state in ('pending', 'paused') and id in (select job_id from job_dependencies where `+on+`) order by id for update`, over)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[ledger.JobID])
	return jobs, arrays, err
}

// release queues jobs and arrays that have all they waited for.
func release(ctx context.Context, tx *Tx, jobs []ledger.JobID, arrays []ledger.ArrayID) error {
	if len(jobs) > 0 {
		if _, err := tx.Exec(ctx, `update jobs set blocked = false where id = any($1)`, jobs); err != nil {
			return err
		}
		tx.Notify(channelCycle)
	}
	if len(arrays) > 0 {
		if _, err := tx.Exec(ctx, `update job_arrays set waits = false where id = any($1)`, arrays); err != nil {
			return err
		}
		// Where no limit keeps them, paused ones go back to the queue when they are resumed.
		if _, err := tx.Exec(ctx, `update jobs set blocked = false where state = 'paused' and array_id in (select id from job_arrays where id = any($1) and at_once = 0)`, arrays); err != nil {
			return err
		}
	}
	return letIn(ctx, tx, arrays)
}

// neverStart cancels jobs whose dependency cannot be met any more.
func (s *Store) neverStart(ctx context.Context, tx *Tx, ids []ledger.JobID) error {
	if len(ids) == 0 {
		return nil
	}
	lives, err := loadLives(ctx, tx, ids)
	if err != nil {
		return err
	}
	list := make([]*life, 0, len(lives))
	for _, id := range ids {
		l := lives[id]
		if _, refusal := l.advance(scheduler.Event{Kind: scheduler.EvCancelled, At: tx.Now}, "dependency-failed", nil); refusal != nil {
			return refusal
		}
		list = append(list, l)
		if err := mail(ctx, tx, letter{
			Kind: "job.dependency", Person: l.job.Member, Body: map[string]any{"job": id},
			Subject: fmt.Sprintf("Job %d is cancelled: a job it was to follow did not end well", id),
		}); err != nil {
			return err
		}
		if err := audit(ctx, tx, Command{}, act{Verb: "job.never", Subject: subjectOf("job", int64(id)), After: map[string]string{"state": "cancelled", "why": "dependency-failed"}}); err != nil {
			return err
		}
	}
	return s.keep(ctx, tx, list...)
}

// neverStartArray cancels all jobs of an array whose dependency cannot be met any more.
func (s *Store) neverStartArray(ctx context.Context, tx *Tx, id ledger.ArrayID) error {
	moved, err := s.moveArray(ctx, tx, id, arrayMove{kind: scheduler.EvCancelled, word: "dependency-failed", states: []string{"pending", "paused"}})
	if err != nil || moved == 0 {
		return err
	}
	var member ledger.PersonID
	if err := tx.QueryRow(ctx, `select member_id from job_arrays where id = $1`, id).Scan(&member); err != nil {
		return err
	}
	if err := mail(ctx, tx, letter{
		Kind: "array.dependency", Person: member, Body: map[string]any{"array": id, "jobs": moved},
		Subject: fmt.Sprintf("Array A%d is cancelled: a job it was to follow did not end well", id),
	}); err != nil {
		return err
	}
	return audit(ctx, tx, Command{}, act{Verb: "array.never", Subject: subjectOf("array", int64(id)), After: map[string]any{"jobs": moved, "why": "dependency-failed"}})
}
