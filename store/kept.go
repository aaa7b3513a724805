package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// kept holds rows between snapshots. A snapshot asks for the version of each row it
// is about, the number of the transaction that wrote it, which is much less to read
// than the row, and then for the rows of which it has not that version. Within one
// unchanging view a committed transaction has left one version of a row at most, so
// the same number means the same row.
type kept[K comparable, V any] struct {
	rows  map[K]keptRow[V]
	order []K // of this snapshot
	stale []K // of these, the ones to be read
	turn  int64
}

type keptRow[V any] struct {
	version uint64
	turn    int64 // snapshot that has last seen it
	value   V
}

// see scans versions, in the snapshot's order. columns gives where a row's go, and
// how key and version follow from them.
func (k *kept[K, V]) see(columns func() (fields []any, is func() (K, uint64))) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		k.turn++
		k.order, k.stale = k.order[:0], k.stale[:0]
		if k.rows == nil {
			k.rows = map[K]keptRow[V]{}
		}
		fields, is := columns()
		for rows.Next() {
			if err := rows.Scan(fields...); err != nil {
				return err
			}
			key, version := is()
			row, known := k.rows[key]
			if !known || row.version != version {
				k.stale = append(k.stale, key)
			}
			row.version, row.turn = version, k.turn
			k.rows[key] = row
			k.order = append(k.order, key)
		}
		for key := range k.rows {
			if len(k.rows) == len(k.order) {
				break
			}
			if k.rows[key].turn != k.turn {
				delete(k.rows, key)
			}
		}
		return rows.Err()
	}
}

// put keeps a row that was read anew.
func (k *kept[K, V]) put(key K, value V) {
	row := k.rows[key]
	row.value = value
	k.rows[key] = row
}

// place is one part of an attempt.
type place struct {
	attempt ledger.AttemptID
	rank    int32
}

// liveRow is an attempt with its job.
type liveRow struct {
	job      scheduler.Job
	run      scheduler.Run
	renew    int64               // ms that its owner asks to be protected anew; 0 = nothing asked
	warned   int64               // last warning, ms before the protection's end
	idle     ledger.Instant      // what it holds is unused since
	segments []scheduler.Segment // of its occupancy, as far as no closed one records it
}

// queue asks for the versions of waiting jobs, live attempts and their parts.
func (e *eye) queue(batch *pgx.Batch, heads int) {
	var id int64
	var rank int32
	var mine, jobs uint32
	batch.Queue(`select a.id, a.xmin, j.xmin from attempts a join jobs j on j.id = a.job_id where a.phase <> 'closed' order by a.job_id, a.n`).
		Query(e.live.see(func() ([]any, func() (ledger.AttemptID, uint64)) {
			return []any{&id, &mine, &jobs}, func() (ledger.AttemptID, uint64) { return ledger.AttemptID(id), uint64(mine)<<32 | uint64(jobs) }
		}))
	// An array, not a join: whatever the database believes of how many live, it looks at each once.
	batch.Queue(`select p.attempt_id, p.rank, p.xmin from placements p
		where p.attempt_id = any(array(select a.id from attempts a where a.phase <> 'closed')) order by p.attempt_id, p.rank`).
		Query(e.placed.see(func() ([]any, func() (place, uint64)) {
			return []any{&id, &rank, &mine}, func() (place, uint64) { return place{ledger.AttemptID(id), rank}, uint64(mine) }
		}))
	// The heads of every member, so that one member's long array hides nobody.
	batch.Queue(`select j.id, j.version from (select distinct pool_id, project_id, member_id from jobs where state = 'pending' and not blocked) q
		cross join lateral (select h.id, h.xmin as version, h.urgency, h.queue_seq from jobs h where h.state = 'pending' and not h.blocked
			and h.pool_id = q.pool_id and h.project_id = q.project_id and h.member_id = q.member_id
			order by h.urgency desc, h.queue_seq, h.id limit $1) j
		order by q.pool_id, q.project_id, j.urgency desc, j.queue_seq, j.id`, heads).
		Query(e.waiting.see(func() ([]any, func() (ledger.JobID, uint64)) {
			return []any{&id, &mine}, func() (ledger.JobID, uint64) { return ledger.JobID(id), uint64(mine) }
		}))
}

// refresh reads the rows that are new or have changed.
func (e *eye) refresh(ctx context.Context, tx *Tx) error {
	batch := &pgx.Batch{}
	e.classes.refresh(batch)
	if len(e.waiting.stale) > 0 {
		batch.Queue(`select `+jobColumns+` from jobs j where j.id = any($1)`, e.waiting.stale).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var j scheduler.Job
				if err := rows.Scan(jobFields(&j)...); err != nil {
					return err
				}
				e.waiting.put(j.ID, j)
			}
			return rows.Err()
		})
	}
	if len(e.live.stale) > 0 {
		batch.Queue(`select `+jobColumns+`, `+attemptColumns+`, a.renew_ms, a.warned_ms, a.idle_since
			from attempts a join jobs j on j.id = a.job_id where a.id = any($1)`, e.live.stale).
			Query(e.scanLive)
	}
	if len(e.placed.stale) > 0 {
		attempts, ranks := make([]ledger.AttemptID, len(e.placed.stale)), make([]int32, len(e.placed.stale))
		for i, p := range e.placed.stale {
			attempts[i], ranks[i] = p.attempt, p.rank
		}
		batch.Queue(`select `+memberColumns+` from unnest($1::bigint[], $2::int[]) u (attempt, rank)
			join placements p on p.attempt_id = u.attempt and p.rank = u.rank`, attempts, ranks).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var m memberRow
				if err := rows.Scan(m.fields()...); err != nil {
					return err
				}
				e.placed.put(place{m.attempt, m.placed.Rank}, m)
			}
			return rows.Err()
		})
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

func (e *eye) scanLive(rows pgx.Rows) error {
	for rows.Next() {
		var l liveRow
		var fence int64
		var phase string
		var recorded ledger.Instant
		fields := append(jobFields(&l.job), attemptFields(&l.run, &fence, &phase, &recorded)...)
		if err := rows.Scan(append(fields, &l.renew, &l.warned, &l.idle)...); err != nil {
			return err
		}
		l.run.Contract = l.job.Contract
		enterPhase(&l.run, phase)
		l.segments = after(l.run.Segments(), recorded)
		e.live.put(l.run.Attempt, l)
	}
	return rows.Err()
}

// fill puts what is kept into a snapshot, in its order. Snapshots share what is kept
// and change none of it.
func (e *eye) fill(r *reading) {
	s := r.snap
	most := largest(s.Nodes)
	for _, id := range e.waiting.order {
		j := e.waiting.rows[id].value
		s.Waiting = append(s.Waiting, e.classes.expect(j, most[j.Pool]))
	}
	at := make(map[ledger.AttemptID]int, len(e.live.order))
	for _, id := range e.live.order {
		l := e.live.rows[id].value
		at[id] = len(r.runs)
		r.runs = append(r.runs, l.run)
		r.segments = append(r.segments, l.segments)
		live := l.run.Live(l.job, nil)
		live.Hold = append(live.Hold, r.promised[id]...)
		if l.run.Phase == scheduler.Reserved {
			live.Job = e.classes.expect(live.Job, most[live.Job.Pool])
		}
		if l.run.Phase == scheduler.Running {
			live.RenewMs, live.WarnedMs, live.IdleSince = l.renew, l.warned, l.idle
		}
		s.Live = append(s.Live, live)
	}
	for _, p := range e.placed.order {
		m := e.placed.rows[p].value
		l := &s.Live[at[p.attempt]]
		l.ProvenMs = max(l.ProvenMs, m.part.seenMs)
		l.Placed = append(l.Placed, m.placed) // a gang owns its devices until the last member has ended
	}
}
