package view

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/ledger"
)

func TestPercent(t *testing.T) {
	for bp, want := range map[int64]string{0: "0.00%", 7: "0.07%", 1234: "12.34%", 10_000: "100.00%", -50: "-0.50%"} {
		if got := pct(bp); got != want {
			t.Errorf("%d: %s, want %s", bp, got, want)
		}
	}
}

// A budget bar's parts lie edge to edge from 0 to the whole, and nothing that is
// above zero vanishes.
func TestBudgetPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(0, 1<<58/6)
		some := func(label string) ledger.Amount {
			if rapid.Bool().Draw(t, label+"?") {
				return 0
			}
			return ledger.Amount(amount.Draw(t, label))
		}
		b := BudgetBar{Total: some("total"), Spent: some("spent"), Running: some("running"), Held: some("held"), Limited: some("limited"), Expired: some("expired")}
		at := int64(0)
		for _, p := range b.parts() {
			if p.X != at || p.W < visible/2 {
				t.Fatalf("%s lies at %d and is %d wide; the one before ends at %d", p.Name, p.X, p.W, at)
			}
			at += p.W
		}
		if b.scaleTotal() > 0 && at != whole {
			t.Fatalf("the bar ends at %d: %+v", at, b.parts())
		}
	})
}

func TestBudgetParts(t *testing.T) {
	b := BudgetBar{Total: amt(1000), Spent: amt(500), Held: amt(100), LimitedBy: "Vision", Limited: amt(150)}
	want := []part{
		{MarkSpent, 0, 5000, "spent", amt(500)},
		{MarkHeld, 5000, 1000, "set aside", amt(100)},
		{MarkUsable, 6000, 2500, "usable", amt(250)},
		{MarkLimited, 8500, 1500, "left, but limited by Vision", amt(150)},
	}
	got := b.parts()
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("part %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	// Usage beyond the budget widens the scale; ticks stay where they belong.
	over := BudgetBar{Total: amt(100), Spent: amt(200)}
	if x, beyond := over.tick(500_000); x != 2500 || beyond {
		t.Errorf("half of the budget lies at %d, %v", x, beyond)
	}
	if x, beyond := b.tick(1_200_000); x != whole || !beyond {
		t.Errorf("a pace beyond the budget: %d, %v", x, beyond)
	}
}

func TestContractPlaces(t *testing.T) {
	b := ContractBar{From: at("2026-11-30 10:00"), To: at("2026-11-30 14:00")}
	for s, want := range map[string]int64{"2026-11-30 09:00": 0, "2026-11-30 10:00": 0, "2026-11-30 11:00": 2500, "2026-11-30 14:00": whole, "2026-11-30 18:00": whole} {
		if got := b.place(at(s)); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
	// Labels that would touch stand in two rows.
	b.Points = []ContractPoint{{At: at("2026-11-30 11:00")}, {At: at("2026-11-30 11:05")}, {At: at("2026-11-30 12:00")}}
	rows := []int{}
	for _, p := range b.points() {
		rows = append(rows, p.Row)
	}
	if rows[0] != 0 || rows[1] != 1 || rows[2] != 0 {
		t.Errorf("rows %v", rows)
	}
}

func TestAxis(t *testing.T) {
	berlin := zone(t)
	b := ContractBar{From: at("2026-11-30 09:50"), To: at("2026-11-30 13:40"), Zone: berlin}
	ticks := b.axis()
	if len(ticks) != 8 || ticks[0].Text != "11:00" || ticks[7].Text != "14:30" || ticks[0].X != b.place(at("2026-11-30 10:00")) {
		t.Errorf("%+v", ticks)
	}
	days := ContractBar{From: at("2026-11-27 00:30"), To: at("2026-11-30 12:00"), Zone: berlin}.axis()
	if len(days) != 7 || days[0].Text != "12:00" || days[1].Text != "00:00" {
		t.Errorf("%+v", days)
	}
	if got := (ContractBar{}).axis(); got != nil {
		t.Errorf("no time, no labels: %+v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		from := ledger.At(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)).Add(rapid.Int64Range(0, 86_400_000*400).Draw(t, "from"))
		span := rapid.Int64Range(1000, 86_400_000*60).Draw(t, "span")
		ticks := ContractBar{From: from, To: from.Add(span), Zone: berlin}.axis()
		if len(ticks) > 10 {
			t.Fatalf("%d labels", len(ticks))
		}
		for i := 1; i < len(ticks); i++ {
			if ticks[i].X <= ticks[i-1].X {
				t.Fatalf("labels do not advance: %+v", ticks)
			}
		}
	})
}

func TestStandingPlaces(t *testing.T) {
	rows := standings().places()
	speech, biology, visitors := rows[0], rows[2], rows[3]
	if speech.Used+speech.Committed+speech.Gap != speech.Target {
		t.Errorf("what Speech is owed ends at its tick: %+v", speech)
	}
	if biology.Gap != 0 || biology.Used+biology.Committed <= biology.Target {
		t.Errorf("Biology is beyond its share: %+v", biology)
	}
	if visitors.Target != 0 || visitors.Used == 0 {
		t.Errorf("no share, no tick: %+v", visitors)
	}
	idle := StandingBars{Rows: []StandingRow{{Share: amt(10), Usage: amt(1)}}}.places()[0]
	if idle.Gap != 0 {
		t.Error("nothing is owed where nothing waits")
	}
}

func TestNodeCells(t *testing.T) {
	if x, y := cell(9); x != pitch || y != pitch {
		t.Errorf("the tenth device lies at %d, %d", x, y)
	}
	for n, want := range map[int][2]int{1: {16, 16}, 8: {142, 16}, 9: {142, 34}} {
		if w, h := gridSize(n); w != want[0] || h != want[1] {
			t.Errorf("%d devices: %d × %d", n, w, h)
		}
	}
}

func TestOccupancy(t *testing.T) {
	ps := poolRow().parts()
	last := ps[len(ps)-1]
	if len(ps) != 5 || last.X+last.W != whole || last.Mark != MarkDown {
		t.Errorf("%+v", ps)
	}
}
