package store

import (
	"context"
	"encoding/json"
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

// dependency is one job that another waits for.
type dependency struct {
	on    ledger.JobID
	needs scheduler.Needs
}

// parseAfter reads dependencies: "ok:12", "any:13:14". The names afterok and
// afterany are understood, too.
func parseAfter(words []string) ([]dependency, *ledger.Refusal) {
	var out []dependency
	for _, word := range words {
		kind, rest, ok := strings.Cut(strings.TrimSpace(word), ":")
		needs := scheduler.Needs(strings.TrimPrefix(kind, "after"))
		if !ok || needs != scheduler.NeedsOK && needs != scheduler.NeedsAny {
			return nil, refuse(ledger.Invalid, "job.after", "after", "Write ok:12 for a job that must have ended well, any:12 for one that must have ended.")
		}
		for _, text := range strings.Split(rest, ":") {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 1 {
				return nil, refuse(ledger.Invalid, "job.after", "after", "“"+text+"” is no job's number.")
			}
			if !slices.ContainsFunc(out, func(d dependency) bool { return d.on == ledger.JobID(n) }) {
				out = append(out, dependency{ledger.JobID(n), needs})
			}
		}
	}
	if len(out) > mostDependencies {
		return nil, refuse(ledger.Invalid, "job.after", "after", fmt.Sprintf("A job waits for at most %d others.", mostDependencies))
	}
	return out, nil
}

// lockName lets one submission of a singleton's name go on at a time, before its
// number is drawn: each of two at once would else not see the other.
func lockName(ctx context.Context, tx *Tx, job *scheduler.Job, name string) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, fmt.Sprintf("singleton %d %d %s", job.Project, job.Member, name))
	return err
}

// dependOn notes what a fresh job waits for, and blocks it while it must. A
// singleton waits for every earlier job of its name, owner and project.
func dependOn(ctx context.Context, tx *Tx, job *scheduler.Job, sub *Submission) error {
	deps, refusal := parseAfter(sub.After)
	if refusal != nil {
		return ledger.Refusals{refusal}
	}
	if sub.Singleton {
		rows, err := tx.Query(ctx, `select id from jobs where project_id = $1 and member_id = $2 and name = $3 and id < $4
			and state in ('pending', 'paused', 'live') order by id desc limit $5`, job.Project, job.Member, sub.Name, job.ID, mostDependencies)
		if err != nil {
			return err
		}
		same, err := pgx.CollectRows(rows, pgx.RowTo[ledger.JobID])
		if err != nil {
			return err
		}
		for _, id := range same {
			if !slices.ContainsFunc(deps, func(d dependency) bool { return d.on == id }) {
				deps = append(deps, dependency{id, scheduler.NeedsAny})
			}
		}
	}
	if len(deps) == 0 {
		return nil
	}
	// Locked in the order of their numbers, as everybody locks jobs: none of them
	// ends unseen while this one is being submitted.
	slices.SortFunc(deps, func(a, b dependency) int { return int(a.on - b.on) })
	on, kinds := make([]ledger.JobID, len(deps)), make([]string, len(deps))
	for i, d := range deps {
		on[i], kinds[i] = d.on, string(d.needs)
	}
	rows, err := tx.Query(ctx, `select id, state, result from jobs where id = any($1) and id < $2 order by id for share`, on, job.ID)
	if err != nil {
		return err
	}
	var awaited []scheduler.Awaited
	var id ledger.JobID
	var state string
	var result scheduler.Result
	found := map[ledger.JobID]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&id, &state, &result}, func() error {
		found[id] = true
		i := slices.Index(on, id)
		awaited = append(awaited, scheduler.Awaited{Needs: deps[i].needs, Over: jobPhase(state) == scheduler.JobOver, Result: result})
		if scheduler.Depends(awaited[len(awaited)-1:]) == scheduler.Never {
			return ledger.Refusals{refuse(ledger.Invalid, "job.after", "after", fmt.Sprintf("Job %d did not end well, so a job after it would never start.", id))}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, id := range on {
		if !found[id] {
			return ledger.Refusals{refuse(ledger.Invalid, "job.after", "after", fmt.Sprintf("There is no job %d to wait for.", id))}
		}
	}
	if _, err := tx.Exec(ctx, `insert into job_dependencies (job_id, on_job, kind) select $1, u.o, u.k from unnest($2::bigint[], $3::text[]) u (o, k)`, job.ID, on, kinds); err != nil {
		return err
	}
	if scheduler.Depends(awaited) == scheduler.Waits {
		_, err = tx.Exec(ctx, `update jobs set blocked = true where id = $1`, job.ID)
	}
	return err
}

// afterEnd lets what waited for jobs that are over go on: who has all it waited for
// is queued, who waits for an end that cannot come any more is cancelled and told.
func (s *Store) afterEnd(ctx context.Context, tx *Tx, over []ledger.JobID) error {
	// Locked before their dependencies are read: of two ends at once, each the last
	// that a job waits for but for the other, the second sees the first.
	rows, err := tx.Query(ctx, `select id from jobs where blocked and state in ('pending', 'paused')
		and id in (select job_id from job_dependencies where on_job = any($1)) order by id for update`, over)
	if err != nil {
		return err
	}
	waiting, err := pgx.CollectRows(rows, pgx.RowTo[ledger.JobID])
	if err != nil || len(waiting) == 0 {
		return err
	}
	rows, err = tx.Query(ctx, `select d.job_id, d.kind, o.state, o.result from job_dependencies d join jobs o on o.id = d.on_job
		where d.job_id = any($1) order by d.job_id, o.id`, waiting)
	if err != nil {
		return err
	}
	awaited := map[ledger.JobID][]scheduler.Awaited{}
	var order []ledger.JobID
	var id ledger.JobID
	var kind scheduler.Needs
	var state string
	var result scheduler.Result
	if _, err := pgx.ForEachRow(rows, []any{&id, &kind, &state, &result}, func() error {
		if awaited[id] == nil {
			order = append(order, id)
		}
		awaited[id] = append(awaited[id], scheduler.Awaited{Needs: kind, Over: jobPhase(state) == scheduler.JobOver, Result: result})
		return nil
	}); err != nil {
		return err
	}
	var ready, never []ledger.JobID
	for _, id := range order {
		switch scheduler.Depends(awaited[id]) {
		case scheduler.Ready:
			ready = append(ready, id)
		case scheduler.Never:
			never = append(never, id)
		case scheduler.Waits:
		}
	}
	if len(ready) > 0 {
		if _, err := tx.Exec(ctx, `update jobs set blocked = false where id = any($1)`, ready); err != nil {
			return err
		}
		tx.Notify(channelCycle)
	}
	return s.neverStart(ctx, tx, never)
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
		body, err := json.Marshal(map[string]any{"job": id})
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into outbox (at, kind, person_id, subject, body) values ($1, 'job.dependency', $2, $3, $4)`,
			tx.Now, l.job.Member, fmt.Sprintf("Job %d is cancelled: a job it was to follow did not end well", id), body); err != nil {
			return err
		}
		if err := audit(ctx, tx, Command{}, act{Verb: "job.never", Subject: subjectOf("job", int64(id)), After: map[string]string{"state": "cancelled", "why": "dependency-failed"}}); err != nil {
			return err
		}
	}
	return s.keep(ctx, tx, list...)
}
