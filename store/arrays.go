package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// Jobs is how many jobs a submission would make; 0 while its array is unreadable.
func (sub *Submission) Jobs() int64 {
	a, refusal := scheduler.ParseArray(sub.Array)
	if refusal != nil {
		return 0
	}
	return a.Size()
}

// insertArray writes the array itself and gives its number.
func insertArray(ctx context.Context, tx *Tx, e *entering) (id ledger.ArrayID, err error) {
	err = tx.QueryRow(ctx, `insert into job_arrays (project_id, member_id, name, indices, size, lowest, highest, at_once, waits, submitted_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) returning id`, e.job.Project, e.job.Member, e.sub.Name, e.array.Text, e.array.Size(),
		e.array.Indices[0], e.array.Indices[len(e.array.Indices)-1], e.array.AtOnce, e.waits, tx.Now).Scan(&id)
	return id, err
}

// letIn queues the next jobs of arrays, by index, as far as each array's limit
// allows; a paused job leaves its place to the next. The arrays are locked.
func letIn(ctx context.Context, tx *Tx, arrays []ledger.ArrayID) error {
	if len(arrays) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `select id, size, at_once, (select count(*) from jobs j where j.array_id = y.id and (j.state = 'live' or j.state = 'pending' and not j.blocked))
		from job_arrays y where id = any($1) and not waits`, arrays)
	if err != nil {
		return err
	}
	var ids []ledger.ArrayID
	var rooms []int
	var id ledger.ArrayID
	var size, atOnce, going int
	if _, err := pgx.ForEachRow(rows, []any{&id, &size, &atOnce, &going}, func() error {
		ids, rooms = append(ids, id), append(rooms, scheduler.Room(size, atOnce, going))
		return nil
	}); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `update jobs set blocked = false where id in (
		select n.id from unnest($1::bigint[], $2::int[]) u (id, room)
		cross join lateral (select j.id from jobs j where j.array_id = u.id and j.state = 'pending' and j.blocked order by j.array_index limit u.room) n)`, ids, rooms)
	if err != nil {
		return err
	}
	if tag.RowsAffected() > 0 {
		tx.Notify(channelCycle)
	}
	return nil
}

// arrayMove is one event for all jobs of an array that it concerns.
type arrayMove struct {
	kind   scheduler.EventKind
	word   string   // of the jobs' time lines
	states []string // of jobs it is meant for; what of them refuses it stays
	by     ledger.PersonID
}

// moveArray takes jobs of a locked array through an event and gives how many
// changed. Those that have never started all stand alike: one decision is theirs.
func (s *Store) moveArray(ctx context.Context, tx *Tx, array ledger.ArrayID, m arrayMove) (int, error) {
	rows, err := tx.Query(ctx, `select id, state, attempts = 0 and state <> 'live' from jobs where array_id = $1 and state = any($2) order by id for update`, array, m.states)
	if err != nil {
		return 0, err
	}
	fresh := map[string][]ledger.JobID{}
	var others []ledger.JobID
	var id ledger.JobID
	var state string
	var never bool
	if _, err := pgx.ForEachRow(rows, []any{&id, &state, &never}, func() error {
		if never {
			fresh[state] = append(fresh[state], id)
		} else {
			others = append(others, id)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	moved := 0
	for _, state := range m.states {
		n, err := s.moveFresh(ctx, tx, m, state, fresh[state])
		if err != nil {
			return 0, err
		}
		moved += n
	}
	n, err := s.moveOthers(ctx, tx, m, others)
	if err != nil {
		return 0, err
	}
	if moved += n; moved > 0 {
		tx.Notify(channelCycle)
		tx.Notify(channelPage)
	}
	return moved, letIn(ctx, tx, []ledger.ArrayID{array})
}

// moveFresh moves jobs of one array and state that have never started.
func (s *Store) moveFresh(ctx context.Context, tx *Tx, m arrayMove, state string, ids []ledger.JobID) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	step, refusal := scheduler.Advance(scheduler.Life{Job: jobPhase(state)}, scheduler.Event{Kind: m.kind, At: tx.Now})
	if refusal != nil || !step.Changed {
		return 0, nil
	}
	is := jobState(&step.Next)
	batch := &pgx.Batch{}
	var finished ledger.Instant
	if step.Next.Job == scheduler.JobOver {
		finished = tx.Now
		queueTokensFreed(batch, ids)
	}
	batch.Queue(`update jobs set state = $2, result = $3, finished_at = $4, cancel_asked_at = case when $5 then $6::timestamptz end,
		cancel_asked_by = case when $5 then nullif($7::bigint, 0) end,
		blocked = blocked or $2 = 'paused' and exists (select from job_arrays y where y.id = array_id and y.at_once > 0) where id = any($1)`,
		ids, is, step.Next.Result, finished, step.Next.Cancel, tx.Now, m.by)
	batch.Queue(`insert into job_events (job_id, at, kind) select u.id, $2, $3 from unnest($1::bigint[]) u (id)`, ids, tx.Now, m.word)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return 0, fmt.Errorf("write an array's jobs: %w", err)
	}
	if finished != 0 {
		return len(ids), s.afterEnd(ctx, tx, ids)
	}
	return len(ids), nil
}

// moveOthers moves jobs that have started before, each by its own life.
func (s *Store) moveOthers(ctx context.Context, tx *Tx, m arrayMove, ids []ledger.JobID) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	lives, err := loadLives(ctx, tx, ids)
	if err != nil {
		return 0, err
	}
	var moved []*life
	var asked []ledger.JobID
	for _, id := range ids {
		l := lives[id]
		changed, refusal := l.advance(scheduler.Event{Kind: m.kind, At: tx.Now}, m.word, nil)
		if refusal != nil || !changed {
			continue // what runs is not paused
		}
		moved = append(moved, l)
		if l.state.Cancel {
			asked = append(asked, id)
		}
	}
	if len(asked) > 0 && m.by != 0 {
		if _, err := tx.Exec(ctx, `update jobs set cancel_asked_by = $2 where id = any($1)`, asked, m.by); err != nil {
			return 0, err
		}
	}
	return len(moved), s.keep(ctx, tx, moved...)
}

// CancelArray ends all jobs of an array for good, each as CancelJob does.
func (s *Store) CancelArray(ctx context.Context, cmd Command, id ledger.ArrayID) error {
	return s.arrayCommand(ctx, cmd, "array.cancel", ledger.JobCancel, id, arrayMove{
		kind: scheduler.EvCancelled, word: "cancel-asked", states: []string{"pending", "paused", "live"}, by: cmd.Actor.Person,
	})
}

// PauseArray keeps all jobs of an array that wait from starting; what runs goes on.
func (s *Store) PauseArray(ctx context.Context, cmd Command, id ledger.ArrayID) error {
	return s.arrayCommand(ctx, cmd, "array.pause", ledger.JobPause, id, arrayMove{kind: scheduler.EvPaused, word: "paused", states: []string{"pending", "live"}})
}

// ResumeArray lets all paused jobs of an array wait for their start again.
func (s *Store) ResumeArray(ctx context.Context, cmd Command, id ledger.ArrayID) error {
	return s.arrayCommand(ctx, cmd, "array.resume", ledger.JobPause, id, arrayMove{kind: scheduler.EvResumed, word: "resumed", states: []string{"paused"}})
}

// arrayCommand is the frame of a command on an array: lock, move, audit. Where
// nothing changes there is nothing to note.
func (s *Store) arrayCommand(ctx context.Context, cmd Command, name string, verb ledger.Verb, id ledger.ArrayID, m arrayMove) error {
	_, err := runCommand(ctx, s, name, cmd, id, func(tx *Tx) (int, error) {
		var path string
		var member ledger.PersonID
		err := tx.QueryRow(ctx, `select g.path, y.member_id from job_arrays y join groups g on g.id = y.project_id where y.id = $1 for no key update of y`, id).
			Scan(&path, &member)
		if noRow(err) {
			return 0, missingArray(id)
		}
		if err != nil {
			return 0, err
		}
		if refusal := cmd.Actor.MayOwn(verb, path, member, tx.Now); refusal != nil {
			return 0, refusal
		}
		moved, err := s.moveArray(ctx, tx, id, m)
		if err != nil || moved == 0 {
			return 0, err
		}
		return moved, audit(ctx, tx, cmd, act{Verb: name, Subject: subjectOf("array", int64(id)), After: map[string]int{"jobs": moved}})
	})
	return err
}

func missingArray(id ledger.ArrayID) *ledger.Refusal {
	return &ledger.Refusal{Kind: ledger.Missing, Code: "array.missing", Detail: fmt.Sprintf("There is no array A%d.", id)}
}
