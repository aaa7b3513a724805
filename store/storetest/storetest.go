// Package storetest opens a store on a test's own database.
package storetest

import (
	"testing"

	"tranche/store"
	"tranche/store/testdb"
)

// Clock is the clock that only the test moves.
type Clock = testdb.Clock

// DB is a test's store with its database and clock.
type DB struct {
	*testdb.DB
	Store *store.Store
}

// New gives the test a migrated database of its own and a store on it, opened
// as the server opens it. Both are gone after the test. It may be called more
// than once and by parallel tests.
func New(t testing.TB) *DB {
	t.Helper()
	db := testdb.New(t)
	return &DB{DB: db, Store: Open(t, db, store.Config{})}
}

// Open opens one more store on a test's database, as a second server would.
// URL and Clock of cfg are filled from db when they are empty.
func Open(t testing.TB, db *testdb.DB, cfg store.Config) *store.Store {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = db.URL
	}
	if cfg.Clock == nil {
		cfg.Clock = db.Clock.Now
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}
