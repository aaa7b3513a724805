package ledger

import (
	"testing"

	"pgregory.net/rapid"
)

// fundedBook opens period 1 of pool 1 and awards one lot from program 2.
func fundedBook(t *testing.T, l Lot, amount Amount) *Book {
	t.Helper()
	b := NewBook(nil)
	mustApply(t, b, OpenEntry(Period{ID: l.Period}, l.Pool, 2, amount, 1, 9))
	award := Entry{Key: "award:request:1", Kind: "award", At: 2, Period: l.Period, Actor: 9}
	award.add(PotAccount(2, l.Pool, l.Period), l.Account(Available), amount)
	mustApply(t, b, award)
	return b
}

func mustApply(t testing.TB, b *Book, e Entry) {
	t.Helper()
	if _, r := b.Apply(e); r != nil {
		t.Fatalf("%s: %v", e.Key, r)
	}
}

// checkBook fails when balances do not add up to 0 or one leaves its bounds.
func checkBook(t rapid.TB, b *Book) {
	t.Helper()
	var sum Amount
	for _, row := range b.Balances() {
		sum += row.Amount
		if row.Amount < row.Floor || row.Amount > row.Ceiling {
			t.Fatalf("%s stands at %d, outside %d..%d", row.Account, row.Amount, row.Floor, row.Ceiling)
		}
	}
	if sum != 0 {
		t.Fatalf("books add up to %d", sum)
	}
}

// wantBalances compares some balances, in GPU-hours.
func wantBalances(t *testing.T, b *Book, want map[Account]string) {
	t.Helper()
	for a, hours := range want {
		if got := b.Balance(a).Amount.Exact(); got != hours {
			t.Errorf("%s: %s GPU-h, want %s", a, got, hours)
		}
	}
}
