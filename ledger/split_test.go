package ledger

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func splitInput(children ...SplitChild) SplitInput {
	for i := range children {
		c := &children[i]
		c.Group, c.Account = GroupID(i+10), PotAccount(GroupID(i+10), 1, 1)
		c.Path = "/lab/" + string(rune('a'+i))
	}
	return SplitInput{
		Program: 2, Path: "/lab", Pool: 1, Period: 1, Received: 100 * GPUHour, Balance: 100 * GPUHour, FactorPPM: 1_000_000,
		Children: children, Now: 20 * day, Actor: Actor{Person: 5, Grants: []Grant{{Role: Manager, Path: "/lab"}}},
	}
}

func TestSplitPercentAndHours(t *testing.T) {
	in := splitInput(SplitChild{ByPPM: true, PPM: 333_333}, SplitChild{Want: 20 * GPUHour}, SplitChild{ByPPM: true, PPM: 333_333})
	e, amounts, rs := Split(in)
	if len(rs) > 0 {
		t.Fatal(rs)
	}
	if whole := amounts[0].After + amounts[2].After; whole != Amount(100*GPUHour/1_000_000*666_666) || amounts[1].After != 20*GPUHour {
		t.Errorf("parts %v", amounts)
	}
	book := NewBook(nil)
	mustApply(t, book, OpenEntry(Period{ID: 1}, 1, 2, 100*GPUHour, 1, 1))
	mustApply(t, book, e)
	wantBalances(t, book, map[Account]string{PotAccount(11, 1, 1): "20"})
	if e.Key != "split:program:2:pool:1:period:1:version:1" {
		t.Errorf("key %s", e.Key)
	}
	checkBook(t, book)
}

func TestSplitRefuses(t *testing.T) {
	all := SplitChild{Want: 100 * GPUHour}
	for name, c := range map[string]struct {
		in   SplitInput
		code string
	}{
		"above the pot":     {splitInput(all, SplitChild{Want: 1}), "pot.short"},
		"given on":          {splitInput(SplitChild{Now: 50 * GPUHour, Balance: 20 * GPUHour, Want: 20 * GPUHour}), "split.given_on"},
		"negative":          {splitInput(SplitChild{Want: -1}), "split.negative"},
		"negative percent":  {splitInput(SplitChild{ByPPM: true, PPM: -1}), "split.percent"},
		"more than any pot": {splitInput(SplitChild{Want: math.MaxInt64}, SplitChild{Want: math.MaxInt64}), "split.too_large"},
	} {
		if _, _, rs := Split(c.in); len(rs) != 1 || rs[0].Code != c.code {
			t.Errorf("%s: %v", name, rs)
		}
	}
	in := splitInput(all)
	in.Latest = 3
	if _, _, rs := Split(in); len(rs) != 1 || rs[0].Kind != Conflict {
		t.Errorf("version: %v", rs)
	}
	in.Version, in.Actor.Grants = 3, append(in.Actor.Grants, Grant{Role: PI, Path: "/lab/a"})
	if _, _, rs := Split(in); len(rs) != 1 || rs[0].Code != "split.leads" {
		t.Errorf("gives more to the project they lead: %v", rs)
	}
	in.Actor.Grants = nil
	if _, _, rs := Split(in); len(rs) != 1 || rs[0].Kind != Denied {
		t.Errorf("nobody: %v", rs)
	}
	in = splitInput(all, SplitChild{})
	in.Children[1].Group = in.Children[0].Group
	if _, _, rs := Split(in); len(rs) != 1 || rs[0].Code != "split.twice" {
		t.Errorf("twice: %v", rs)
	}
}

func TestSplitDecreaseNamesHowFar(t *testing.T) {
	_, _, rs := Split(splitInput(SplitChild{Now: 50 * GPUHour, Balance: 20 * GPUHour, Want: 20 * GPUHour}))
	if len(rs) != 1 || rs[0].Facts["short"] != "10" || rs[0].Detail != "/lab/a has already given on, set aside or spent 30 GPU-h; it cannot go below that." {
		t.Errorf("%+v", rs)
	}
}

// Whatever is split again and again, with overcommit and with parts given on below,
// the books take every entry that Split grants and never cross the factor.
func TestSplitsKeepBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.Int64Range(1_000_000, 3_000_000).Draw(t, "factor")
		const received = 1_000
		book, given := NewBook(nil), []Amount{0, 0, 0}
		pot := PotAccount(2, 1, 1)
		book.SetBounds(pot, PotFloor(received, factor), math.MaxInt64)
		if _, r := book.Apply(OpenEntry(Period{ID: 1}, 1, 2, received, 1, 1)); r != nil {
			t.Fatal(r)
		}
		for version := range rapid.Int64Range(1, 8).Draw(t, "splits") {
			in := splitInput(make([]SplitChild, 3)...)
			in.Received, in.Balance, in.FactorPPM, in.Version, in.Latest = received, book.Balance(pot).Amount, factor, version, version
			for i := range in.Children {
				c := &in.Children[i]
				c.Now, c.Balance = given[i], book.Balance(c.Account).Amount
				c.ByPPM = rapid.Bool().Draw(t, "percent")
				c.PPM, c.Want = rapid.Int64Range(0, 900_000).Draw(t, "ppm"), Amount(rapid.Int64Range(0, 1500).Draw(t, "want"))
			}
			e, amounts, rs := Split(in)
			if len(rs) > 0 || len(e.Transfers) == 0 {
				continue
			}
			if _, r := book.Apply(e); r != nil {
				t.Fatalf("granted but refused: %v", r)
			}
			var sum Amount
			for i, a := range amounts {
				given[i] = a.After
				sum += a.After
			}
			if limit := received - PotFloor(received, factor); sum > limit {
				t.Fatalf("%d split, %d allowed", sum, limit)
			}
			checkBook(t, book)
		}
	})
}
