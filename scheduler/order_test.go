package scheduler

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"tranche/ledger"
)

// Ratios compare as exact fractions do; a share of 0 comes last.
func TestRatiosCompareExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := ratio{rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(1).Draw(t, "a share")}
		b := ratio{rapid.Int64Min(0).Draw(t, "b"), rapid.Int64Min(1).Draw(t, "b share")}
		if want := big.NewRat(a.time, a.share).Cmp(big.NewRat(b.time, b.share)); a.compare(b) != want || b.compare(a) != -want {
			t.Fatalf("%v against %v: %d, want %d", a, b, a.compare(b), want)
		}
		if zero := (ratio{b.time, 0}); a.compare(zero) >= 0 {
			t.Fatal("a share of 0 is not last")
		}
		if g := gap(a, b); a.compare(b) < 0 && g != 1<<63-1 {
			at, below := a, a
			at.time, below.time = a.time+g, a.time+g-1
			if at.compare(b) < 0 || below.compare(b) >= 0 {
				t.Fatalf("gap of %v to %v is %d", a, b, g)
			}
		}
	})
}

// The tournament fields at every level the sibling that goes first, whatever
// has changed before.
func TestTournamentFieldsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, n := []Group{{ID: 1}}, rapid.IntRange(2, 20).Draw(t, "groups")
		for i := 2; i <= n; i++ {
			groups = append(groups, Group{ID: ledger.GroupID(i), Parent: ledger.GroupID(rapid.IntRange(1, i-1).Draw(t, "parent"))})
		}
		tr := newTree(groups)
		share := make([]int64, n)
		for i := range share {
			share[i] = rapid.Int64Range(0, 3).Draw(t, "share")
		}
		tn := newTournament(newField(tr, share))
		in := map[int32]bool{}
		for g := range tr.groups {
			if len(tr.children[g]) == 0 {
				in[int32(g)] = true
				tn.update(int32(g), rapid.Int64Range(1, 9).Draw(t, "seq"))
			}
		}
		for len(in) > 0 {
			g := tn.first()
			if !in[g] {
				t.Fatalf("fields group %d, which is out", g)
			}
			for other := range in {
				if mine, theirs, ok := tr.fork(g, other); ok && tn.less(theirs, mine) {
					t.Fatalf("fields %d although %d goes first", g, other)
				}
			}
			if rapid.Bool().Draw(t, "starts") {
				tn.f.commit(g, rapid.Int64Range(0, 50).Draw(t, "commitment"))
			}
			if rapid.Bool().Draw(t, "done") {
				delete(in, g)
				tn.remove(g)
			} else {
				tn.update(g, rapid.Int64Range(1, 9).Draw(t, "next"))
			}
		}
		if tn.first() >= 0 {
			t.Fatal("somebody is left over")
		}
	})
}
