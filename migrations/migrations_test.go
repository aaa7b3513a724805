package migrations_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"tranche/ledger"
	"tranche/migrations"
	"tranche/store/testdb"
)

func TestApplyTwiceAndTogether(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := migrations.Apply(t.Context(), db.URL, migrations.Options{AppPassword: `it's a \secret`}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func TestChangedMigrationIsRefused(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, "update migration_sums set sha256 = 'other' where version = 20261130100000")
	err := migrations.Apply(t.Context(), db.URL, migrations.Options{})
	var refusal *ledger.Refusal
	if !errors.As(err, &refusal) || refusal.Code != "migration.changed" || !strings.Contains(refusal.Detail, "20261130100000_schema.sql") {
		t.Errorf("got %v, want a refusal that names the file", err)
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	db.Exec(t, "insert into goose_db_version (version_id, is_applied) values (29990101000000, true)")
	err := migrations.Apply(t.Context(), db.URL, migrations.Options{})
	var refusal *ledger.Refusal
	if !errors.As(err, &refusal) || refusal.Code != "migration.newer" {
		t.Errorf("got %v, want a refusal", err)
	}
}
