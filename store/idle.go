package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// idleHeardMs is how old a device's reading may be, real ms, to say something.
const idleHeardMs = 60_000

// idleReading is one running attempt with what telemetry says of it.
type idleReading struct {
	attempt ledger.AttemptID
	job     ledger.JobID
	n       int32
	member  ledger.PersonID
	mark    scheduler.IdleMark
	pct     int64
	heard   bool
}

// MarkIdle looks at what every funded running attempt does with its devices and
// keeps since when they are unused. It gives how many attempts it marked idle.
func (w *World) MarkIdle(ctx context.Context) (int, error) {
	marked := 0
	err := w.leader.inLeaderTx(ctx, "mark idle", func(tx *Tx) error {
		marked = 0
		policy, err := loadPolicy(ctx, tx)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `select a.id, a.job_id, a.n, j.member_id, a.quiet_since, a.idle_since, a.idle_ms, max(d.util_pct), bool_and(d.util_pct >= 0 and d.seen_at >= $1)
			from attempts a join jobs j on j.id = a.job_id join placements p on p.attempt_id = a.id and not p.ended
			join devices d on d.node_id = p.node_id and d.idx = any(p.devices)
			where a.phase = 'running' and a.funded group by a.id, j.id order by a.id`, tx.Real.Add(-idleHeardMs))
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r idleReading, err error) {
			return r, row.Scan(&r.attempt, &r.job, &r.n, &r.member, &r.mark.QuietSince, &r.mark.IdleSince, &r.mark.IdleMs, &r.pct, &r.heard)
		})
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		marked = queueIdle(batch, all, &policy, tx.Now)
		if batch.Len() == 0 {
			return nil
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("mark idle: %w", err)
		}
		return nil
	})
	return marked, err
}

// queueIdle writes the marks that changed, and tells the owner once per spell.
func queueIdle(batch *pgx.Batch, all []idleReading, policy *scheduler.Policy, now ledger.Instant) int {
	var ids []ledger.AttemptID
	var quiet, idle []*ledger.Instant
	var ms []int64
	marked := 0
	for i := range all {
		r := &all[i]
		next := r.mark.Step(policy, r.pct*10_000, r.heard, now)
		if next == r.mark {
			continue
		}
		ids, ms = append(ids, r.attempt), append(ms, next.IdleMs)
		quiet, idle = append(quiet, instantPtr(next.QuietSince)), append(idle, instantPtr(next.IdleSince))
		if next.IdleSince != 0 && r.mark.IdleSince == 0 {
			marked++
			batch.Queue(`insert into job_events (job_id, attempt_n, at, kind) values ($1, $2, $3, 'idle')`, r.job, r.n, now)
			batch.Queue(`insert into outbox (at, kind, person_id, subject, body) values ($1, 'job.idle', $2, $3, jsonb_build_object('job', $4::bigint, 'since', $5::timestamptz))`,
				now, r.member, fmt.Sprintf("Job %d does not use its GPUs", r.job), r.job, next.IdleSince)
		}
	}
	if len(ids) == 0 {
		return 0
	}
	locked := slices.Clone(ids)
	slices.Sort(locked)
	batch.Queue(`select from attempts where id = any($1) order by id for update`, locked)
	batch.Queue(`update attempts a set quiet_since = u.quiet, idle_since = u.idle, idle_ms = u.ms
		from unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::bigint[]) u (id, quiet, idle, ms) where a.id = u.id and a.phase = 'running'`,
		ids, quiet, idle, ms)
	return marked
}

func instantPtr(at ledger.Instant) *ledger.Instant {
	if at == 0 {
		return nil
	}
	return &at
}

// IdleUse is what a group was charged without using it.
type IdleUse struct {
	Jobs   int64
	Amount ledger.Amount // at most what was charged
	Of     ledger.Amount // charged in the same time
}

// IdleUse gives what the projects in a group were charged without use, of the
// attempts that started inside the last span.
func (s *Store) IdleUse(ctx context.Context, group ledger.GroupID, spanMs int64) (IdleUse, error) {
	var out IdleUse
	err := s.readTx(ctx, "idle use", func(tx *Tx) error {
		return tx.QueryRow(ctx, `select count(distinct job_id) filter (where units > 0), coalesce(sum(units), 0)::bigint, coalesce(sum(net), 0)::bigint from (
				select a.job_id, a.charged - a.credited as net, least(a.charged - a.credited,
					(a.milli_gpu::numeric * a.rate_ppm * (a.idle_ms + coalesce(extract(epoch from coalesce(a.ended_at, $3) - a.idle_since) * 1000, 0)) / 1000000000)::bigint) as units
				from attempts a join groups g on g.id = a.project_id join groups top on top.id = $1
				where (g.id = top.id or starts_with(g.path, rtrim(top.path, '/') || '/')) and a.started_at >= $2) x`,
			group, tx.Now.Add(-spanMs), tx.Now).Scan(&out.Jobs, &out.Amount, &out.Of)
	})
	return out, err
}
