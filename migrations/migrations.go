// Package migrations holds the database's schema as goose files, applies them,
// and gives the server's role its rights.
package migrations

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"tranche/ledger"
)

//go:embed *.sql
var files embed.FS

// AppRole is the login role the server connects as: it owns nothing and cannot
// change or remove what is appended to the books.
const AppRole = "tranche_app"

// lockID keys the session lock that lets one program migrate at a time.
const lockID = 7_417_263_201

// Options of Apply.
type Options struct {
	AppPassword string // password of AppRole; "" leaves it as it is (trust, peer or set by hand)
}

// file is one embedded migration.
type file struct {
	version int64
	name    string
	sum     string
}

// Apply brings the database up to this program's schema, connected as its
// owner. It refuses a database whose applied migrations differ from the files
// of this program, and may be called by several programs at once.
func Apply(ctx context.Context, adminURL string, opt Options) (err error) {
	config, err := pgx.ParseConfig(adminURL)
	if err != nil {
		return fmt.Errorf("migrate: database address: %w", err)
	}
	config.RuntimeParams["application_name"] = "tranche migrate"
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	unlock, err := lock(ctx, conn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	all, err := list(files)
	if err != nil {
		return err
	}
	return apply(ctx, db, conn, files, all, opt)
}

func apply(ctx context.Context, db *sql.DB, conn *sql.Conn, fsys fs.FS, all []file, opt Options) error {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, fsys, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrate: read the migrations: %w", err)
	}
	if _, err := provider.GetDBVersion(ctx); err != nil { // creates goose's table
		return fmt.Errorf("migrate: %w", err)
	}
	if err := checkSums(ctx, conn, all); err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return grant(ctx, conn, opt)
}

// lock waits for other migrating programs and gives the function that unlocks.
// The lock belongs to the session, so a killed program leaves none behind.
func lock(ctx context.Context, conn *sql.Conn) (func() error, error) {
	if _, err := conn.ExecContext(ctx, "select pg_advisory_lock($1)", int64(lockID)); err != nil {
		return nil, fmt.Errorf("migrate: wait for another migration: %w", err)
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, err := conn.ExecContext(ctx, "select pg_advisory_unlock($1)", int64(lockID))
		return err
	}, nil
}

// list reads the migrations with their sums, by version.
func list(fsys fs.FS) ([]file, error) {
	names, err := fs.Glob(fsys, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("migrate: list the migrations: %w", err)
	}
	all := make([]file, 0, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("migrate: file name %s: %w", name, err)
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		sum := sha256.Sum256(text)
		all = append(all, file{version, name, hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.version, b.version) })
	return all, nil
}

// checkSums compares what was applied with this program's files. Sums are
// written before the files are applied, so a kill in between leaves no gap.
func checkSums(ctx context.Context, conn *sql.Conn, all []file) error {
	_, err := conn.ExecContext(ctx, `create table if not exists migration_sums
		(version bigint primary key, name text not null, sha256 text not null)`)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	applied, err := appliedSums(ctx, conn)
	if err != nil {
		return err
	}
	for _, f := range all {
		sum, done := applied[f.version]
		if done && sum != "" && sum != f.sum {
			return &ledger.Refusal{Kind: ledger.Conflict, Code: "migration.changed", Detail: fmt.Sprintf(
				"The migration %s was changed after this database was migrated with it; restore the file and put the change into a new migration.", f.name)}
		}
		delete(applied, f.version)
		_, err := conn.ExecContext(ctx, `insert into migration_sums (version, name, sha256) values ($1, $2, $3)
			on conflict (version) do update set name = excluded.name, sha256 = excluded.sha256`, f.version, f.name, f.sum)
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	for version := range applied {
		return &ledger.Refusal{Kind: ledger.Conflict, Code: "migration.newer", Detail: fmt.Sprintf(
			"This database was migrated by a newer program (migration %d is unknown here); start that version of tranched or a later one.", version)}
	}
	return nil
}

// appliedSums gives the recorded sum ("" when none) of each applied version.
func appliedSums(ctx context.Context, conn *sql.Conn) (_ map[int64]string, err error) {
	rows, err := conn.QueryContext(ctx, `select g.version_id, coalesce(s.sha256, '')
		from goose_db_version g left join migration_sums s on s.version = g.version_id
		where g.is_applied and g.version_id > 0`)
	if err != nil {
		return nil, fmt.Errorf("migrate: read what was applied: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	applied := map[int64]string{}
	for rows.Next() {
		var version int64
		var sum string
		if err := rows.Scan(&version, &sum); err != nil {
			return nil, fmt.Errorf("migrate: read what was applied: %w", err)
		}
		applied[version] = sum
	}
	return applied, rows.Err()
}
