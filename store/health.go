package store

import (
	"context"

	"tranche/ledger"
)

// Health is what an operator wants to know of a site first.
type Health struct {
	DatabaseClock ledger.Instant // the database's own, real time
	HasRoot       bool
	HasPeriod     bool   // an open one covers the present
	Leader        string // who dispatches; "" = nobody
	Nodes         int64  // that are not retired
	NodesSilent   int64  // of them, not heard for a minute
}

// Health reads it; an error means that the schema is not this program's.
func (s *Store) Health(ctx context.Context) (Health, error) {
	var h Health
	err := s.readTx(ctx, "health", func(tx *Tx) error {
		return tx.QueryRow(ctx, `select clock_timestamp(),
			exists (select from groups where parent_id is null),
			exists (select from periods where state = 'open' and first <= $1 and last > $1),
			(select holder from leader),
			(select count(*) from nodes where retired_at is null),
			(select count(*) from nodes where retired_at is null and coalesce(heartbeat_at < $2, true))`,
			tx.Now, tx.Real.Add(-60_000)).Scan(&h.DatabaseClock, &h.HasRoot, &h.HasPeriod, &h.Leader, &h.Nodes, &h.NodesSilent)
	})
	return h, err
}
