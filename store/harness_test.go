package store

import (
	"testing"

	"tranche/store/testdb"
)

// newStore gives a test of this package its own database and a store on it.
func newStore(t testing.TB) (*Store, *testdb.DB) {
	t.Helper()
	db := testdb.New(t)
	return openStore(t, db), db
}

// openStore opens one more store on db, as a second server would.
func openStore(t testing.TB, db *testdb.DB) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: db.URL, Clock: db.Clock.Now})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}
