package ledger

import (
	"math"
	"testing"
)

func review(t *testing.T, pot, floor, amount Amount) ReviewInput {
	t.Helper()
	return ReviewInput{
		Request: submitted(t), Period: quarter(), Actor: manager(), Now: 21 * day,
		Decision: Decision{Action: Award, Version: 1, Amounts: []PoolAmount{{1, amount}}},
		Pots:     []PotFacts{{Program: 2, Path: "/lab/vision", Pool: 1, Balance: pot, Floor: floor}},
		Lots:     []NewLot{{1, 40}},
	}
}

func TestL12Approval(t *testing.T) {
	in := review(t, 50*GPUHour, 0, 80*GPUHour)
	out, r := Review(in)
	if r == nil || r.Kind != Short || r.Facts["short"] != "30" || r.Facts["limited_by"] != "/lab/vision" || r.Field != "amount.1" {
		t.Fatalf("pot 50: %+v", r)
	}
	if out.Lots != nil || out.Entry.Transfers != nil || in.Request.State != Submitted || in.Request.Lines[0].Awarded != 0 {
		t.Fatalf("a refused award left %+v, %+v", out, in.Request)
	}
	book := NewBook(nil)
	mustApply(t, book, OpenEntry(quarter(), 1, 2, 100*GPUHour, 1, 1))
	in.Pots[0].Balance += 50 * GPUHour
	if out, r = Review(in); r != nil {
		t.Fatal(r)
	}
	mustApply(t, book, out.Entry)
	lot := out.Lots[0]
	wantBalances(t, book, map[Account]string{PotAccount(2, 1, 1): "20", lot.Account(Available): "80"})
	if lot.ID != 40 || lot.First != in.Now || lot.Last != quarter().Last || lot.Available != 80*GPUHour || lot.Project != 3 {
		t.Errorf("lot %+v", lot)
	}
	if out.Request.State != Awarded || out.Request.Version != 2 || out.Request.Lines[0].Awarded != 80*GPUHour || out.Entry.Key != "award:request:17" {
		t.Errorf("%+v, key %s", out.Request, out.Entry.Key)
	}
	// The second reviewer read the request before the first decided.
	second := in
	second.Request, second.Actor.Person = out.Request, 6
	if _, r := Review(second); r == nil || r.Kind != Conflict {
		t.Errorf("second reviewer: %v", r)
	}
	// Both decided at once: the same key with other content cannot be posted.
	second.Request, second.Decision.Amounts = in.Request, []PoolAmount{{1, 60 * GPUHour}}
	if both, r := Review(second); r != nil {
		t.Error(r)
	} else if _, r := book.Apply(both.Entry); r == nil || r.Kind != Conflict {
		t.Errorf("two awards: %v", r)
	}
	checkBook(t, book)
}

func TestL13AwardAmounts(t *testing.T) {
	for name, c := range map[string]struct {
		amounts []PoolAmount
		code    string
	}{
		"negative":    {[]PoolAmount{{1, -1}}, "review.negative"},
		"nothing":     {[]PoolAmount{{1, 0}}, "review.nothing"},
		"no pool":     {nil, "review.nothing"},
		"above asked": {[]PoolAmount{{1, 80*GPUHour + 1}}, "review.above_asked"},
		"other pool":  {[]PoolAmount{{2, 1}}, "review.pool"},
		"twice":       {[]PoolAmount{{1, 1}, {1, 1}}, "review.pool_twice"},
	} {
		in := review(t, 1000*GPUHour, 0, 0)
		in.Decision.Amounts = c.amounts
		if _, r := Review(in); r == nil || r.Code != c.code {
			t.Errorf("%s: %v", name, r)
		}
	}
	in := review(t, 0, 0, GPUHour)
	in.Pots = nil
	if _, r := Review(in); r == nil || r.Kind != Short {
		t.Errorf("no pot: %v", r)
	}
}

func TestReviewWho(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ReviewInput)
		code   string
	}{
		"author": {func(in *ReviewInput) { in.Request.Author = 5 }, "review.own"},
		"leads": {func(in *ReviewInput) {
			in.Actor.Grants = append(in.Actor.Grants, Grant{Role: PI, Path: "/lab/vision/a"})
		}, "review.leads"},
		"other branch":   {func(in *ReviewInput) { in.Actor.Grants[0].Path = "/lab/visionary" }, "actor.denied"},
		"deputy no more": {func(in *ReviewInput) { in.Actor.Grants[0].Until = in.Now }, "actor.denied"},
		"researcher":     {func(in *ReviewInput) { in.Actor.Grants[0].Role = Researcher }, "actor.denied"},
		"no action":      {func(in *ReviewInput) { in.Decision.Action = Edit }, "review.action"},
		"deny, silent":   {func(in *ReviewInput) { in.Decision.Action = Deny }, "review.reason"},
		"period over":    {func(in *ReviewInput) { in.Now = 100 * day }, "review.period_over"},
	} {
		in := review(t, 100*GPUHour, 0, GPUHour)
		c.change(&in)
		if _, r := Review(in); r == nil || r.Code != c.code {
			t.Errorf("%s: %v", name, r)
		}
	}
	in := review(t, 0, 0, 0)
	in.Decision = Decision{Action: Return, Version: 1, Reason: "Say what for."}
	out, r := Review(in)
	if r != nil || out.Request.State != Returned || len(out.Lots) != 0 || len(out.Entry.Transfers) != 0 {
		t.Errorf("return: %+v, %v", out, r)
	}
}

// A lot awarded ahead begins with its period.
func TestAwardAheadBeginsWithPeriod(t *testing.T) {
	in := review(t, 100*GPUHour, 0, GPUHour)
	in.Now = 5 * day
	out, r := Review(in)
	if r != nil || out.Lots[0].First != quarter().First {
		t.Errorf("%+v, %v", out.Lots, r)
	}
}

func TestL21OvercommitWeighsTheSame(t *testing.T) {
	book := NewBook(nil)
	mustApply(t, book, OpenEntry(quarter(), 1, 2, 100*GPUHour, 1, 1))
	pot := PotAccount(2, 1, 1)
	book.SetBounds(pot, PotFloor(100*GPUHour, 1_600_000), math.MaxInt64)
	weightOf := func() int64 { // the program's: what its pot received, not what is left of it
		return Weight(-book.Balance(SupplyAccount(1, 1)).Amount, quarter().Seconds())
	}
	before := weightOf()
	var projects int64
	for i, path := range []string{"/lab/vision/a", "/lab/vision/b", "/lab/vision/c"} {
		in := review(t, book.Balance(pot).Amount, book.Balance(pot).Floor, 80*GPUHour)
		in.Request.ID, in.Request.Project, in.Request.Path, in.Lots[0].ID = RequestID(i+1), GroupID(i+3), path, LotID(i+1)
		out, r := Review(in)
		if i == 2 {
			if r == nil || r.Facts["short"] != "80" {
				t.Errorf("240 awarded from 100 × 1.6: %v", r)
			}
			break
		}
		if r != nil {
			t.Fatal(r)
		}
		mustApply(t, book, out.Entry)
		projects += Weight(out.Lots[0].Available, quarter().Seconds())
	}
	wantBalances(t, book, map[Account]string{pot: "-60"})
	if after := weightOf(); after != before || before != 100*1_000_000/(90*24) || projects <= before {
		t.Errorf("weight %d before, %d after; projects %d", before, after, projects)
	}
	checkBook(t, book)
}

func TestWeight(t *testing.T) {
	if got := Weight(90*24*7*GPUHour, quarter().Seconds()); got != 7_000_000 {
		t.Errorf("7 GPUs for the whole period weigh %d", got)
	}
	if got := Weight(0, quarter().Seconds()); got != 0 {
		t.Errorf("no lot weighs %d", got)
	}
}
