package store

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"tranche/ledger"
)

// constraintRefusals says, in one place, what a broken constraint means to a
// person. A constraint without a row here is a fault of the program and
// travels as a wrapped error.
func constraintRefusals() map[string]ledger.Refusal {
	return map[string]ledger.Refusal{
		"balances_within": {Kind: ledger.Short, Code: "funds.short",
			Detail: "There are not enough GPU-hours left for this; somebody may have used them a moment ago. Look at the balance and try again."},
	}
}

// translate turns what ended a transaction into what the caller should see:
// refusals as they are, known constraints as refusals, the rest wrapped.
func (s *Store) translate(name string, err error) error {
	var one *ledger.Refusal
	var many ledger.Refusals
	if errors.As(err, &one) || errors.As(err, &many) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if refusal, ok := constraintRefusals()[pg.ConstraintName]; ok {
			return &refusal
		}
		if pg.Code == "55P03" {
			return &ledger.Refusal{Kind: ledger.Unavailable, Code: "busy",
				Detail: "Somebody else is changing the same thing right now; try again in a moment."}
		}
	}
	return fmt.Errorf("store: %s: %w", name, err)
}
