package store

import (
	"context"

	"tranche/migrations"
)

// MigrateOptions are the choices of Migrate.
type MigrateOptions = migrations.Options

// Migrate brings the database behind adminURL up to this program's schema and
// gives the server's role its rights. It refuses (ledger.Refusal, Conflict) when
// an applied migration differs from this program's.
func Migrate(ctx context.Context, adminURL string, opt MigrateOptions) error {
	return migrations.Apply(ctx, adminURL, opt)
}
