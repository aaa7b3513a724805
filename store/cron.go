package store

import (
	"context"
	"fmt"

	"tranche/ledger"
)

// CronRun runs one occurrence of a timed job once over all servers: the first to
// record (job, at) runs fn, the others return with ran false. What fn returns is
// recorded with the occurrence; a failed one is not tried again, the next is.
func (s *Store) CronRun(ctx context.Context, job string, at ledger.Instant, fn func(context.Context) (outcome string, err error)) (ran bool, err error) {
	err = s.inTx(ctx, "begin "+job, func(tx *Tx) error {
		tag, err := tx.Exec(ctx, `insert into cron_runs (job, scheduled_for, started_at) values ($1, $2, $3)
			on conflict do nothing`, job, at, tx.Real)
		ran = tag.RowsAffected() == 1
		return err
	})
	if err != nil || !ran {
		return false, err
	}
	outcome, failed := fn(ctx)
	if failed != nil {
		outcome = "failed: " + failed.Error()
	}
	err = s.inTx(context.WithoutCancel(ctx), "end "+job, func(tx *Tx) error {
		_, err := tx.Exec(ctx, `update cron_runs set finished_at = $3, outcome = $4 where job = $1 and scheduled_for = $2`, job, at, tx.Real, outcome)
		return err
	})
	if failed != nil {
		return true, fmt.Errorf("%s: %w", job, failed)
	}
	return true, err
}

// Sweep removes what only costs space: sessions that ended, telemetry older than
// telemetryMs, and gauges of pools, records of commands and timed runs older than recordsMs. It
// decides nothing: whatever follows from the clock is derived when it is read.
func (s *Store) Sweep(ctx context.Context, telemetryMs, recordsMs int64) (removed int64, err error) {
	err = s.inTx(ctx, "sweep", func(tx *Tx) error {
		removed = 0
		for _, d := range []struct {
			sql    string
			before ledger.Instant
		}{
			{`delete from sessions where expiry < $1`, tx.Real},
			{`delete from node_telemetry where at < $1`, tx.Real.Add(-telemetryMs)},
			{`delete from pool_indices where at < $1`, tx.Now.Add(-recordsMs)},
			{`delete from command_keys where at < $1`, tx.Now.Add(-recordsMs)},
			{`delete from cron_runs where started_at < $1`, tx.Real.Add(-recordsMs)},
		} {
			tag, err := tx.Exec(ctx, d.sql, d.before)
			if err != nil {
				return err
			}
			removed += tag.RowsAffected()
		}
		return nil
	})
	return removed, err
}
