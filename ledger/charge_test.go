package ledger

import (
	"reflect"
	"strings"
	"testing"
)

// held gives a book in which an attempt of so many GPUs has drawn its minimum
// from the lots, which are funded with their Available.
func held(t *testing.T, rate Rate, start Instant, minMs int64, lots ...Lot) (*Book, ChargeInput) {
	t.Helper()
	b := NewBook(nil)
	for _, l := range lots {
		for key, row := range fundedBook(t, l, l.Available).rows {
			b.rows[key] = row
		}
	}
	f := Funds{Project: 3, Path: "/lab/a", Pool: 1, Lots: lots}
	pieces, r := f.Draw(rate, start, 0, minMs)
	if r != nil {
		t.Fatal(r)
	}
	mustApply(t, b, HoldEntry(HoldInput{Key: "hold:attempt:881", At: start, Pieces: pieces, Lots: lots}))
	return b, ChargeInput{Attempt: 881, Project: 3, Pool: 1, Rate: rate, Hold: pieces, Lots: lots}
}

func TestL2SettleOnce(t *testing.T) {
	l := lot(7, 1, 0, farFuture, 100*GPUHour)
	b, in := held(t, gpus(8), 0, 2*hourMs, l)
	in.ToMs, in.Final, in.At = hourMs*3/2, true, Instant(0).Add(hourMs*3/2)
	done, pieces := Charge(in)
	if done.Key != "charge:attempt:881:0ms:5400000ms" || done.Kind != "charge" || done.Period != 1 {
		t.Errorf("entry %+v", done)
	}
	mustApply(t, b, done)
	want := map[Account]string{l.Account(Spent): "12", l.Account(Held): "0", l.Account(Available): "88"}
	wantBalances(t, b, want)
	if fresh, r := b.Apply(done); fresh || r != nil {
		t.Errorf("completion resent: %v, %v", fresh, r)
	}
	// A cancel that read the attempt after the completion has nothing left to do.
	late := in
	late.Hold, late.FromMs, late.ToMs = pieces, in.ToMs, in.ToMs
	if e, _ := Charge(late); len(e.Transfers) != 0 || !strings.HasSuffix(e.Key, ":final") {
		t.Errorf("cancel after completion: %+v", e)
	}
	// One that read before it and proves another end is refused by the books.
	racing := in
	racing.ToMs += 1000
	if e, _ := Charge(racing); e.Key == done.Key {
		t.Error("same key for another end")
	} else if _, r := b.Apply(e); r == nil || r.Kind != Short {
		t.Errorf("racing cancel: %v", r)
	}
	wantBalances(t, b, want)
	checkBook(t, b)
}

func TestL3YearEnd(t *testing.T) {
	july := instant("2026-07-01T00:00:00Z")
	old, fresh := lot(7, 1, 0, july, 100*GPUHour), lot(8, 2, july, farFuture, 100*GPUHour)
	start := july.Add(-hourMs)
	b, in := held(t, gpus(4), start, 6*hourMs, old, fresh)
	if want := []Piece{{Lot: 7, Amount: 4 * GPUHour}, {Lot: 8, Amount: 20 * GPUHour}}; !reflect.DeepEqual(in.Hold, want) {
		t.Fatalf("pieces %v", in.Hold)
	}
	in.ToMs, in.Final, in.At = 2*hourMs, true, start.Add(2*hourMs)
	e, _ := Charge(in)
	mustApply(t, b, e)
	wantBalances(t, b, map[Account]string{
		old.Account(Spent): "4", old.Account(Available): "96", old.Account(Held): "0",
		fresh.Account(Spent): "4", fresh.Account(Available): "96", fresh.Account(Held): "0",
	})
	if e.Period != 0 {
		t.Errorf("spans two periods but is booked in %d", e.Period)
	}
	checkBook(t, b)
}

func TestL10RoundingPartBack(t *testing.T) {
	l := lot(7, 1, 0, farFuture, 10*GPUHour)
	b, in := held(t, gpus(1), 0, 10*hourMs, l)
	in.ToMs, in.Final = hourMs*19/2, true
	e, _ := Charge(in)
	mustApply(t, b, e)
	wantBalances(t, b, map[Account]string{l.Account(Spent): "9.5", l.Account(Available): "0.5"})
}

func TestL11Attempts(t *testing.T) {
	l := lot(7, 1, 0, farFuture, 100*GPUHour)
	b, first := held(t, gpus(4), 0, 3*hourMs, l)
	first.ToMs, first.Final, first.At = hourMs, true, Instant(0).Add(hourMs)
	e, pieces := Charge(first)
	mustApply(t, b, e)
	credit, r := CreditEntry(CreditInput{
		Attempt: 881, Cause: "node-loss", Project: 3, Pool: 1, Hold: pieces, Lots: first.Lots,
		Charged: 4 * GPUHour, Refund: 4 * GPUHour, At: first.At,
	})
	if r != nil {
		t.Fatal(r)
	}
	mustApply(t, b, credit)
	second := first
	second.Attempt, second.Hold = 882, []Piece{{Lot: 7, Amount: 12 * GPUHour}}
	mustApply(t, b, HoldEntry(HoldInput{Key: "hold:attempt:882", Pieces: second.Hold, Lots: second.Lots}))
	second.ToMs = 2 * hourMs
	e, _ = Charge(second)
	mustApply(t, b, e)
	wantBalances(t, b, map[Account]string{l.Account(Spent): "12", l.Account(Credit): "-4", l.Account(Available): "92"})
	// Assigned but never started: the hold comes back and nothing is charged.
	idle := HoldInput{Key: "hold:attempt:883", Pieces: []Piece{{Lot: 7, Amount: 5 * GPUHour}}, Lots: second.Lots}
	mustApply(t, b, HoldEntry(idle))
	idle.Key = "release:attempt:883"
	back, rest := ReleaseEntry(idle)
	mustApply(t, b, back)
	if Outstanding(rest) != 0 {
		t.Errorf("still held: %v", rest)
	}
	wantBalances(t, b, map[Account]string{l.Account(Spent): "12", l.Account(Available): "92", l.Account(Held): "0"})
	checkBook(t, b)
}

func TestL13RefundAboveCharge(t *testing.T) {
	l := lot(7, 1, 0, farFuture, 100*GPUHour)
	in := CreditInput{Attempt: 1, Cause: "dispute", Hold: []Piece{{Lot: 7, Amount: 12 * GPUHour, Spent: 12 * GPUHour}}, Lots: []Lot{l}, Charged: 12 * GPUHour}
	for _, refund := range []Amount{20 * GPUHour, 12*GPUHour + 1, 0, -GPUHour} {
		in.Refund = refund
		if _, r := CreditEntry(in); r == nil || r.Kind != Invalid {
			t.Errorf("refund of %s: %v", refund.Hours(), r)
		}
	}
	in.Refund, in.Credited = 3*GPUHour, 10*GPUHour
	if _, r := CreditEntry(in); r == nil || r.Facts["available"] != "2" {
		t.Errorf("credited twice: %+v", r)
	}
}

// What every lot together cannot pay goes to overrun; it comes back first.
func TestChargeOverrunAndCreditBackwards(t *testing.T) {
	july := instant("2026-07-01T00:00:00Z")
	old, fresh := lot(7, 1, 0, july, GPUHour), lot(8, 2, july, farFuture, GPUHour)
	b, in := held(t, gpus(1), july.Add(-hourMs), 2*hourMs, old, fresh)
	in.ToMs, in.Final, in.At = 5*hourMs, true, july.Add(4*hourMs)
	e, pieces := Charge(in)
	mustApply(t, b, e)
	over, overSpent := OverrunAccount(Overrun, 3, 1), OverrunAccount(Spent, 3, 1)
	wantBalances(t, b, map[Account]string{old.Account(Spent): "1", fresh.Account(Spent): "1", over: "-3", overSpent: "3"})
	credit := CreditInput{Attempt: 881, Cause: "1", Project: 3, Pool: 1, Hold: pieces, Lots: in.Lots, Charged: 5 * GPUHour, Refund: GPUHour * 7 / 2, At: in.At}
	e, r := CreditEntry(credit)
	if r != nil {
		t.Fatal(r)
	}
	mustApply(t, b, e)
	wantBalances(t, b, map[Account]string{over: "0", fresh.Account(Available): "0.5", old.Account(Expired): "0"})
	credit.Cause, credit.Credited, credit.Refund = "2", GPUHour*7/2, GPUHour*3/2
	if e, r = CreditEntry(credit); r != nil {
		t.Fatal(r)
	}
	mustApply(t, b, e)
	// The old lot is over, so its refund expires; spent stays gross.
	wantBalances(t, b, map[Account]string{
		over: "0", fresh.Account(Available): "1", old.Account(Expired): "1", old.Account(Available): "0",
		old.Account(Spent): "1", OverrunAccount(Credit, 3, 1): "-3",
	})
	checkBook(t, b)
}

// A late report about less than was charged already charges nothing.
func TestChargeNeverRunsBackwards(t *testing.T) {
	_, in := held(t, gpus(1), 0, hourMs, lot(7, 1, 0, farFuture, GPUHour))
	in.FromMs, in.ToMs = hourMs, hourMs/2
	if e, pieces := Charge(in); len(e.Transfers) != 0 || !reflect.DeepEqual(pieces, in.Hold) {
		t.Errorf("charged %+v", e)
	}
}

func TestExtendHoldJoinsLots(t *testing.T) {
	hold := []Piece{{Lot: 7, Amount: 4, Spent: 4}}
	got := ExtendHold(hold, []Piece{{Lot: 7, Amount: 2}, {Lot: 8, Amount: 1}})
	if want := []Piece{{Lot: 7, Amount: 6, Spent: 4}, {Lot: 8, Amount: 1}}; !reflect.DeepEqual(got, want) || hold[0].Amount != 4 {
		t.Errorf("got %v, hold now %v", got, hold)
	}
	released := ExtendHold([]Piece{{Lot: 7, Amount: 4, Released: 4}}, []Piece{{Lot: 7, Amount: 2}})
	if len(released) != 2 || Outstanding(released) != 2 {
		t.Errorf("after a release: %v", released)
	}
}

func TestReleaseOfLotOverExpires(t *testing.T) {
	l := lot(7, 1, 0, 1000, GPUHour)
	e, _ := ReleaseEntry(HoldInput{Key: "release:attempt:1", At: 1000, Pieces: []Piece{{Lot: 7, Amount: 5, Spent: 2}}, Lots: []Lot{l}})
	if want := []Transfer{{l.Account(Held), l.Account(Expired), 3}}; !reflect.DeepEqual(e.Transfers, want) || e.Period != 1 {
		t.Errorf("got %+v", e)
	}
}

// A lot that pays twice within one hold is one transfer.
func TestHoldEntryJoinsTransfers(t *testing.T) {
	one, two := lot(7, 1, 0, 9, 0), lot(8, 2, 0, 9, 0)
	e := HoldEntry(HoldInput{Key: "hold:attempt:1", Pieces: []Piece{{Lot: 7, Amount: 3}, {Lot: 8, Amount: 1}, {Lot: 7, Amount: 4}}, Lots: []Lot{one, two}})
	want := []Transfer{{one.Account(Available), one.Account(Held), 7}, {two.Account(Available), two.Account(Held), 1}}
	if !reflect.DeepEqual(e.Transfers, want) || e.Period != 0 {
		t.Errorf("got %+v", e)
	}
}
