package storetest_test

import (
	"testing"
	"time"

	"tranche/store/storetest"
)

// Each call gives a database of its own; the price of one is printed with -v.
func TestNewGivesSeparateDatabases(t *testing.T) {
	t.Parallel()
	first := storetest.New(t)
	begun := time.Now()
	second := storetest.New(t)
	t.Logf("a second database took %v", time.Since(begun))
	second.Exec(t, "create table only_here (n int)")
	var there bool
	err := first.Store.Pool().QueryRow(t.Context(), "select to_regclass('only_here') is not null").Scan(&there)
	if err != nil || there {
		t.Errorf("the first database sees the second's table: %t, %v", there, err)
	}
	begin := first.Store.Now()
	first.Clock.Advance(time.Minute)
	if first.Store.Now() != begin.Add(60_000) {
		t.Error("the store does not follow the test's clock")
	}
}
