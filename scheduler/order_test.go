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

// Between siblings with the same standing the larger share goes first, then the older
// head, then the lower id.
func TestTiesGoToTheLargerShareThenTheOlderHeadThenTheLowerID(t *testing.T) {
	tr := newTree([]Group{{ID: 1}, {ID: 2, Parent: 1}, {ID: 3, Parent: 1}})
	for _, c := range []struct {
		name  string
		share [2]int64
		seq   [2]int64
		want  int32
	}{
		{"share", [2]int64{1, 2}, [2]int64{4, 5}, 2},
		{"head", [2]int64{2, 2}, [2]int64{5, 4}, 2},
		{"id", [2]int64{2, 2}, [2]int64{4, 4}, 1},
		{"id, put in the other way round", [2]int64{0, 0}, [2]int64{4, 4}, 1},
	} {
		tn := newTournament(newField(tr, []int64{9, c.share[0], c.share[1]}))
		tn.update(2, c.seq[1])
		tn.update(1, c.seq[0])
		if got := tn.first(); got != c.want {
			t.Errorf("%s: group %d goes first, want %d", c.name, tr.groups[got].ID, tr.groups[c.want].ID)
		}
	}
}
