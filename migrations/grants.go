package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// appendOnly lists the tables the server may read and add to, and nothing else.
// This is the one place that says so; grants are laid anew at every migration.
func appendOnly() []string { return []string{"entries", "transfers", "seals", "audit"} }

// ownersOnly lists the tables the server may only read.
func ownersOnly() []string { return []string{"goose_db_version", "migration_sums"} }

// grant gives AppRole its rights on everything the migrations made, in one
// transaction, so the server never runs with more in between.
func grant(ctx context.Context, conn *sql.Conn, opt Options) (err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("migrate: grants: %w", err)
	}
	defer func() {
		if back := tx.Rollback(); back != nil && !errors.Is(back, sql.ErrTxDone) {
			err = errors.Join(err, back)
		}
	}()
	statements := []string{
		`revoke create on schema public from public`,
		`grant usage on schema public to ` + AppRole,
		`grant select, insert, update, delete on all tables in schema public to ` + AppRole,
		`grant usage, select on all sequences in schema public to ` + AppRole,
		`alter default privileges in schema public grant select, insert, update, delete on tables to ` + AppRole,
		`alter default privileges in schema public grant usage, select on sequences to ` + AppRole,
	}
	if opt.AppPassword != "" {
		statements = append(statements, `alter role `+AppRole+` password `+quote(opt.AppPassword))
	}
	for _, table := range append(appendOnly(), ownersOnly()...) {
		rights := "select"
		if slices.Contains(appendOnly(), table) {
			rights = "select, insert"
		}
		statements = append(statements,
			`revoke all on table `+table+` from `+AppRole,
			`grant `+rights+` on table `+table+` to `+AppRole)
	}
	// Roles belong to the cluster: two databases granting at once would update
	// the same catalogue rows.
	if _, err := tx.ExecContext(ctx, "select pg_advisory_xact_lock($1)", int64(lockID+1)); err != nil {
		return fmt.Errorf("migrate: grants: %w", err)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("migrate: grants: %s: %w", strings.Fields(statement)[0], err)
		}
	}
	return tx.Commit()
}

// quote writes a string literal. Passwords cannot be parameters of ALTER ROLE.
func quote(s string) string {
	s = strings.ReplaceAll(s, `\`, `\\`)
	return ` E'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}
