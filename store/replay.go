package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// ReplayFacts are the times of everything that ran in a pool: what a replay's
// numbers are computed from.
type ReplayFacts struct {
	Jobs     []JobFacts     // by id
	Attempts []AttemptFacts // by job and number
	Segments []SegmentFacts
	Spent    ledger.Amount // over the pool's spent accounts
	Sum      ledger.Amount // over all accounts: 0 in right books
}

// JobFacts are one job's.
type JobFacts struct {
	ID        ledger.JobID
	State     string
	Submitted ledger.Instant
	Finished  ledger.Instant // 0: not yet
	MilliGPU  int64
}

// AttemptFacts are one attempt's.
type AttemptFacts struct {
	ID            ledger.AttemptID
	Job           ledger.JobID
	MilliGPU      int64 // as charged
	OccupiedMilli int64
	RatePPM       int64
	Funded        bool
	Nominated     bool           // its devices had to be cleared first
	Since         ledger.Instant // nominated or leased
	Started       ledger.Instant // claimed; 0: never
	Ended         ledger.Instant // 0: not yet
	StopRule      string
	Charged       ledger.Amount
	FundedMs      int64 // when not funded: charged up to this elapsed time
	Cause         string
}

// SegmentFacts are one span of recorded occupancy.
type SegmentFacts struct {
	Class         string
	OccupiedMilli int64
	First         ledger.Instant
	Last          ledger.Instant
}

// Replay reads a pool's whole past. It is for replays and other closed runs, not
// for a site that has run for years.
func (s *Store) Replay(ctx context.Context, pool ledger.PoolID) (ReplayFacts, error) {
	var f ReplayFacts
	err := s.readTx(ctx, "replay", func(tx *Tx) error {
		var err error
		f.Jobs, err = collectAll[JobFacts](ctx, tx, `select id, state, submitted_at as submitted, finished_at as finished, milli_gpu
			from jobs where pool_id = $1 order by id`, pool)
		if err != nil {
			return err
		}
		f.Attempts, err = collectAll[AttemptFacts](ctx, tx, `select id, job_id as job, milli_gpu, occupied_milli, rate_ppm, funded,
				leased_at is distinct from since as nominated, since, started_at as started, ended_at as ended, stop_rule, charged, funded_ms, cause
			from attempts a where pool_id = $1 order by job_id, n`, pool)
		if err != nil {
			return err
		}
		f.Segments, err = collectAll[SegmentFacts](ctx, tx, `select class, occupied_milli, first, last from usage_segments where pool_id = $1 order by id`, pool)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select coalesce(sum(b.balance) filter (where a.kind = $2 and a.pool_id = $1), 0)::bigint, coalesce(sum(b.balance), 0)::bigint
			from balances b join accounts a on a.id = b.account_id`, pool, ledger.Spent).Scan(&f.Spent, &f.Sum)
	})
	return f, err
}

// JobCounts counts all jobs by state.
func (s *Store) JobCounts(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := s.readTx(ctx, "count jobs", func(tx *Tx) error {
		type row struct {
			State string
			Count int
		}
		found, err := collectAll[row](ctx, tx, `select state, count(*)::int as count from jobs group by state`)
		for _, r := range found {
			counts[r.State] = r.Count
		}
		return err
	})
	return counts, err
}

// collectAll runs a query and collects its rows by column name.
func collectAll[T any](ctx context.Context, tx *Tx, sql string, args ...any) ([]T, error) {
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByName[T])
}
