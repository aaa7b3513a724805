package ledger

import (
	"math"
	"reflect"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

// instant reads a UTC time for tests.
func instant(s string) Instant {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return At(t)
}

const farFuture = Instant(math.MaxInt64)

func lot(id LotID, period PeriodID, first, last Instant, available Amount) Lot {
	return Lot{ID: id, Project: 3, Pool: 1, Period: period, First: first, Last: last, Available: available}
}

func TestL1Race(t *testing.T) {
	f := Funds{Project: 3, Path: "/lab/a", Pool: 1, Lots: []Lot{lot(7, 1, 0, farFuture, 100*GPUHour)}}
	stale := Funds{Project: 3, Path: "/lab/a", Pool: 1, Lots: []Lot{f.Lots[0]}}
	first, r := f.Draw(gpus(10), 0, 0, 8*hourMs)
	if r != nil || Outstanding(first) != 80*GPUHour || f.Lots[0].Available != 20*GPUHour {
		t.Fatalf("first hold: %v, %v, left %d", first, r, f.Lots[0].Available)
	}
	_, r = f.Draw(gpus(10), 0, 0, 8*hourMs)
	if r == nil || r.Kind != Short || r.Facts["short"] != "60" || r.Facts["available"] != "20" || r.Facts["limited_by"] != "/lab/a" {
		t.Fatalf("second hold: %+v", r)
	}
	if f.Lots[0].Available != 20*GPUHour {
		t.Errorf("a refused hold left %d", f.Lots[0].Available)
	}
	// The same race in the books: both drew from what they read before.
	second, _ := stale.Draw(gpus(10), 0, 0, 8*hourMs)
	book := fundedBook(t, f.Lots[0], 100*GPUHour)
	mustApply(t, book, HoldEntry(HoldInput{Key: "hold:attempt:1", Pieces: first, Lots: f.Lots}))
	if _, r := book.Apply(HoldEntry(HoldInput{Key: "hold:attempt:2", Pieces: second, Lots: f.Lots})); r == nil || r.Kind != Short || r.Facts["short"] != "60" {
		t.Errorf("second hold in the books: %+v", r)
	}
	if got := book.Balance(f.Lots[0].Account(Available)).Amount; got != 20*GPUHour {
		t.Errorf("available %d", got)
	}
}

func TestL4LastDay(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	last, r := LastDay("last", "2026-06-30", paris)
	if r != nil || last != instant("2026-06-30T22:00:00Z") {
		t.Fatalf("last %s, %v", last.Time(), r)
	}
	f := Funds{Path: "/lab/a", Lots: []Lot{lot(7, 1, 0, last, GPUHour)}}
	if _, r := f.Draw(gpus(1), instant("2026-06-30T21:59:59Z"), 0, 1000); r != nil {
		t.Errorf("21:59:59: %v", r)
	}
	for _, late := range []string{"2026-06-30T22:00:00Z", "2026-06-30T22:10:00Z"} {
		if _, r := f.Draw(gpus(1), instant(late), 0, 1000); r == nil || r.Kind != Short {
			t.Errorf("%s: %v", late, r)
		}
		if usable, _ := f.Usable(instant(late)); usable != 0 {
			t.Errorf("%s: usable %d", late, usable)
		}
	}
}

func TestL5ChangeNight(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	first, _ := FirstDay("first", "2026-10-25", berlin)
	last, _ := LastDay("last", "2026-10-25", berlin)
	if hours := last.MillisSince(first) / hourMs; hours != 25 {
		t.Errorf("the day has %d hours", hours)
	}
	from, to := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC)
	if from.In(berlin).Format("15:04") != "02:30" || to.In(berlin).Format("15:04") != "02:30" {
		t.Fatal("not the change night")
	}
	if got := gpus(1).Cum(At(to).MillisSince(At(from))); got != GPUHour {
		t.Errorf("charged %s", got.Hours())
	}
}

func TestL8Tree(t *testing.T) {
	program := PathLimit{Program: 2, Path: "/lab/vision", Pool: 1, Period: 1, Limit: 100 * GPUHour, Used: 70 * GPUHour}
	b := Funds{Project: 4, Path: "/lab/vision/b", Pool: 1, Lots: []Lot{lot(8, 1, 0, farFuture, 80*GPUHour)}, Limits: []PathLimit{program}}
	if usable, by := b.Usable(0); usable != 30*GPUHour || by != "/lab/vision" {
		t.Fatalf("usable %s, limited by %s", usable.Hours(), by)
	}
	_, r := b.Draw(gpus(40), 0, 0, hourMs)
	if r == nil || r.Facts["limited_by"] != "/lab/vision" || r.Facts["available"] != "30" || r.Facts["short"] != "10" {
		t.Fatalf("40 GPU-h: %+v", r)
	}
	b.Limits[0].Limit += 50 * GPUHour
	if usable, by := b.Usable(0); usable != 80*GPUHour || by != "/lab/vision/b" {
		t.Errorf("after +50: usable %s, limited by %s", usable.Hours(), by)
	}
	pieces, r := b.Draw(gpus(40), 0, 0, hourMs)
	if r != nil || b.Limits[0].Used != 110*GPUHour {
		t.Fatalf("after +50: %v, used %s", r, b.Limits[0].Used.Hours())
	}
	b.GiveBack(pieces)
	if b.Limits[0].Used != 70*GPUHour || b.Lots[0].Available != 80*GPUHour {
		t.Errorf("given back: %+v", b)
	}
}

func TestL9Coverage(t *testing.T) {
	july := instant("2026-07-01T00:00:00Z")
	f := Funds{Path: "/lab/a", Lots: []Lot{lot(7, 1, 0, july, 100*GPUHour)}}
	if _, r := f.Draw(gpus(1), instant("2026-07-05T00:00:00Z"), 0, hourMs); r == nil {
		t.Error("booked after the lot's end")
	}
	_, r := f.Draw(gpus(4), july.Add(-hourMs), 0, 6*hourMs)
	if r == nil || r.Facts["short"] != "20" || r.Facts["uncovered_from"] != "2026-07-01T00:00:00Z" {
		t.Errorf("over the boundary: %+v", r)
	}
}

// A lot that ends inside a millisecond pays for that millisecond; the next lot goes on without a gap.
func TestDrawJoinsLotsWithinMillisecond(t *testing.T) {
	f := Funds{Lots: []Lot{lot(1, 1, 0, 1_000_500, GPUHour), lot(2, 2, 1_000_500, farFuture, GPUHour)}}
	pieces, r := f.Draw(Rate{1000, 1_000_000}, 0, 999, 1003)
	if want := []Piece{{Lot: 1, Amount: 2}, {Lot: 2, Amount: 2}}; r != nil || !reflect.DeepEqual(pieces, want) {
		t.Errorf("got %v, %v; want %v", pieces, r, want)
	}
}

func fundsGen() *rapid.Generator[Funds] {
	return rapid.Custom(func(t *rapid.T) Funds {
		f := Funds{Project: 3, Path: "/p", Pool: 1}
		for i := range rapid.IntRange(0, 5).Draw(t, "lots") {
			first := rapid.Int64Range(0, 40).Draw(t, "first")
			last := first + rapid.Int64Range(1, 60).Draw(t, "length")
			f.Lots = append(f.Lots, lot(LotID(i+1), PeriodID(rapid.Int64Range(1, 2).Draw(t, "period")),
				Instant(first*1000), Instant(last*1000), Amount(rapid.Int64Range(0, 200).Draw(t, "available"))))
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "limits") {
			f.Limits = append(f.Limits, PathLimit{
				Program: GroupID(i + 10), Pool: 1, Period: PeriodID(rapid.Int64Range(1, 2).Draw(t, "limit period")),
				Limit: Amount(rapid.Int64Range(0, 300).Draw(t, "limit")), Used: Amount(rapid.Int64Range(0, 300).Draw(t, "used")),
			})
		}
		return f
	})
}

func cloneFunds(f Funds) Funds {
	f.Lots, f.Limits = append([]Lot(nil), f.Lots...), append([]PathLimit(nil), f.Limits...)
	return f
}

// A hold is the exact price, paid only by lots valid at each millisecond, and no
// lot or ancestor gives more than it has; a refusal changes nothing.
func TestDrawNeverOverdraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fundsGen().Draw(t, "funds")
		before := cloneFunds(f)
		rate := Rate{MilliGPU: rapid.Int64Range(1, 9000).Draw(t, "milli"), PPM: 1_000_000}
		start := Instant(rapid.Int64Range(0, 30_000).Draw(t, "start"))
		from := rapid.Int64Range(0, 20).Draw(t, "from")
		to := from + rapid.Int64Range(0, 50).Draw(t, "length")
		due := rate.Cum(to) - rate.Cum(from)
		pieces, r := f.Draw(rate, start, from, to)
		if r != nil {
			if !reflect.DeepEqual(f, before) || r.Kind != Short || due == 0 {
				t.Fatalf("refused (%v) but changed funds, or nothing was due", r)
			}
			return
		}
		if Outstanding(pieces) != due {
			t.Fatalf("pieces %v, due %d", pieces, due)
		}
		checkCover(t, before, pieces, rate, start, from, to)
		for i, l := range f.Limits {
			if was := before.Limits[i]; l.Used > max(l.Limit, was.Used) {
				t.Fatalf("limit crossed: %+v", l)
			}
		}
		for _, l := range f.Lots {
			if l.Available < 0 {
				t.Fatalf("overdrawn: %+v", l)
			}
		}
		f.GiveBack(pieces)
		if !reflect.DeepEqual(f, before) {
			t.Fatalf("given back: %+v, before %+v", f, before)
		}
	})
}

// checkCover walks every millisecond and asks whether the piece that pays for it
// is of a lot valid when it begins.
func checkCover(t *rapid.T, f Funds, pieces []Piece, rate Rate, start Instant, from, to int64) {
	n, left := 0, Amount(0)
	for ms := from; ms < to; ms++ {
		for need := rate.Cum(ms+1) - rate.Cum(ms); need > 0; {
			if left == 0 {
				left = pieces[n].Amount
				n++
			}
			if l := lotOf(f.Lots, pieces[n-1].Lot); !l.ValidAt(start.Add(ms)) {
				t.Fatalf("lot %d pays for millisecond %d, when it is not valid", l.ID, ms)
			}
			part := min(need, left)
			need, left = need-part, left-part
		}
	}
	if left != 0 || n != len(pieces) {
		t.Fatalf("pieces %v outlast the hold", pieces)
	}
}

func TestUsableNeverMoreThanDrawGives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fundsGen().Draw(t, "funds")
		at := Instant(rapid.Int64Range(0, 60).Draw(t, "at") * 1000)
		usable, _ := f.Usable(at)
		rate := Rate{MilliGPU: int64(usable) * 1000, PPM: 1_000_000} // one millisecond costs it all
		if usable > 0 {
			probe := cloneFunds(f)
			if pieces, r := probe.Draw(rate, at, 0, 1); r != nil || Outstanding(pieces) != usable {
				t.Fatalf("usable %d: %v, %v", usable, pieces, r)
			}
		}
		rate.MilliGPU += 1000
		if _, r := f.Draw(rate, at, 0, 1); r == nil || r.Facts["available"] != usable.Exact() {
			t.Fatalf("one unit above usable %d: %+v", usable, r)
		}
	})
}
