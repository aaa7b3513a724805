package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// StorageRun is one run of a node's storage hook. N differs from run to run; 0 = it
// has not run yet since the agent started.
type StorageRun struct {
	N      int64
	PPM    int64  // of the nominal bandwidth
	Failed string // why the hook said nothing; "" when PPM counts
}

// saidPPM is what the run says of the storage; nil when it says nothing.
func (r *StorageRun) saidPPM() *int64 {
	if r == nil || r.N == 0 || r.Failed != "" {
		return nil
	}
	return &r.PPM
}

// StorageOutcome is what the runs had made of a node's storage at one point.
type StorageOutcome struct {
	Degraded bool  `json:"degraded"`
	MeanPPM  int64 `json:"mean_ppm"` // moving mean of what the hook says
}

// storageRow is what is kept of one node's storage between runs.
type storageRow struct {
	node   ledger.NodeID
	run    int64
	health placing.Health
}

// takeStorage takes the runs of storage hooks that are new. The state they lead to
// is in the database, so a restart of anything forgets nothing; a run that failed
// says nothing and leaves it as it is; without a hook there is none.
func takeStorage(ctx context.Context, tx *Tx, beats []Beat) error {
	byNode := make(map[ledger.NodeID]*Beat, len(beats))
	nodes, runs := make([]int64, len(beats)), make([]int64, len(beats))
	for i := range beats {
		nodes[i], runs[i] = int64(beats[i].Node), -1
		if r := beats[i].Storage; r != nil {
			runs[i] = r.N
		}
		byNode[beats[i].Node] = &beats[i]
	}
	rows, err := tx.Query(ctx, `select n.id, n.sto_run, n.sto_mean_ppm, n.sto_runs, n.sto_streak, n.sto_degraded_at is not null
		from nodes n join unnest($1::bigint[], $2::bigint[]) u (node, run) on u.node = n.id and u.run not in (0, n.sto_run) order by n.id for update of n`, nodes, runs)
	if err != nil {
		return err
	}
	due, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r storageRow, err error) {
		return r, row.Scan(&r.node, &r.run, &r.health.Mean, &r.health.Seen, &r.health.Streak, &r.health.Degraded)
	})
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for i := range due {
		if err := due[i].take(ctx, tx, batch, byNode[due[i].node].Storage); err != nil {
			return err
		}
	}
	return tx.SendBatch(ctx, batch).Close()
}

// take brings one node's state up to a run; nil: its agent has no hook any more.
func (s *storageRow) take(ctx context.Context, tx *Tx, batch *pgx.Batch, r *StorageRun) error {
	next := s.health
	failed, run := "", int64(-1)
	switch {
	case r == nil:
		next = placing.Health{}
	case r.saidPPM() == nil:
		run, failed = r.N, firstBytes(r.Failed, 500)
	default:
		run, next = r.N, s.health.Step(r.PPM)
	}
	left := int64(0)
	if next.Degraded {
		left = min(max(1, next.Mean), placing.Micro)
	}
	batch.Queue(`update nodes set sto_run = $2::bigint, sto_run_at = $3::timestamptz, sto_failed = $4, sto_said_ppm = case when $2 < 0 then null else coalesce($5::bigint, sto_said_ppm) end,
		sto_mean_ppm = $6, sto_runs = $7, sto_streak = $8, sto_ppm = $9::bigint, sto_degraded_at = case when $9 > 0 then coalesce(sto_degraded_at, $3) end where id = $1`,
		s.node, run, tx.Real, failed, r.saidPPM(), next.Mean, next.Seen, next.Streak, left)
	if next.Degraded == s.health.Degraded {
		return nil
	}
	tx.Notify(channelCycle)
	tx.Notify(channelPage)
	err := audit(ctx, tx, Command{}, act{
		Verb: "node.storage", Subject: subjectOf("node", int64(s.node)),
		Before: StorageOutcome{s.health.Degraded, s.health.Mean}, After: StorageOutcome{next.Degraded, next.Mean},
	})
	if err != nil {
		return fmt.Errorf("storage of node %d: %w", s.node, err)
	}
	return nil
}
