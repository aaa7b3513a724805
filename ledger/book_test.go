package ledger

import (
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestEntryCheckRefuses(t *testing.T) {
	l := lot(7, 1, 0, 100, 0)
	pot := PotAccount(2, 1, 1)
	good := Entry{Key: "award:request:1", Kind: "award", Transfers: []Transfer{{pot, l.Account(Available), 5}}}
	if r := good.Check(); r != nil {
		t.Fatal(r)
	}
	for name, spoil := range map[string]func(*Entry){
		"unknown kind":        func(e *Entry) { e.Kind = "gift"; e.Key = "gift:1" },
		"key of another kind": func(e *Entry) { e.Key = "hold:1" },
		"no transfer":         func(e *Entry) { e.Transfers = nil },
		"amount 0":            func(e *Entry) { e.Transfers[0].Amount = 0 },
		"L13 negative award":  func(e *Entry) { e.Transfers[0].Amount = -5 },
		"against itself":      func(e *Entry) { e.Transfers[0].Debit = e.Transfers[0].Credit },
		"account without lot": func(e *Entry) { e.Transfers[0].Credit.Lot = 0 },
		"pot with a lot":      func(e *Entry) { e.Transfers[0].Debit.Lot = 7 },
		"unknown account":     func(e *Entry) { e.Transfers[0].Debit.Kind = 99 },
		"other pool":          func(e *Entry) { e.Transfers[0].Credit.Pool = 2 },
		"other period":        func(e *Entry) { e.Transfers[0].Credit.Period = 2 },
		"move not in kind":    func(e *Entry) { e.Transfers[0].Credit = l.Account(Spent) },
	} {
		bad := good
		bad.Transfers = append([]Transfer(nil), good.Transfers...)
		spoil(&bad)
		if r := bad.Check(); r == nil || r.Code != "entry.malformed" {
			t.Errorf("%s: %v", name, r)
		}
	}
	hold := Entry{Key: "hold:attempt:1", Kind: "hold", Transfers: []Transfer{{l.Account(Available), lot(8, 1, 0, 100, 0).Account(Held), 5}}}
	if hold.Check() == nil {
		t.Error("units changed their lot")
	}
}

// The canonical form is what seals protect, so it may never change silently.
func TestHashesAreFixed(t *testing.T) {
	e := Entry{
		Key: "award:request:17", Kind: "award", At: 1_790_000_000_000_000, Period: 1, Actor: 5,
		Transfers: []Transfer{{PotAccount(2, 1, 1), lot(7, 1, 0, 1, 0).Account(Available), 60 * GPUHour}},
	}
	transfer, entry := e.Transfers[0].Hash(e.Key, 0), e.Hash()
	seal := SealHash([32]byte{}, 10, 20, [][32]byte{entry})
	for name, c := range map[string][2]string{
		"transfer": {hex.EncodeToString(transfer[:8]), "e9b2c851f4271d03"},
		"entry":    {hex.EncodeToString(entry[:8]), "be01f87690451abb"},
		"seal":     {hex.EncodeToString(seal[:8]), "0926b37d3cc0e4b3"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", name, c[0], c[1])
		}
	}
}

// Any change of content changes the hashes that cover it.
func TestHashCoversEverything(t *testing.T) {
	base := Entry{Key: "hold:a", Kind: "hold", At: 1, Period: 2, Actor: 3, Transfers: []Transfer{
		{lot(7, 1, 0, 1, 0).Account(Available), lot(7, 1, 0, 1, 0).Account(Held), 5},
		{lot(8, 1, 0, 1, 0).Account(Available), lot(8, 1, 0, 1, 0).Account(Held), 5},
	}}
	seen := map[[32]byte]string{base.Hash(): "base"}
	for name, change := range map[string]func(*Entry){
		"key": func(e *Entry) { e.Key += "\n" }, "kind": func(e *Entry) { e.Kind = "x" }, "at": func(e *Entry) { e.At++ },
		"period": func(e *Entry) { e.Period++ }, "actor": func(e *Entry) { e.Actor++ },
		"amount": func(e *Entry) { e.Transfers[1].Amount++ }, "debit": func(e *Entry) { e.Transfers[1].Debit.Group++ },
		"credit": func(e *Entry) { e.Transfers[0].Credit.Kind = Spent }, "fewer": func(e *Entry) { e.Transfers = e.Transfers[:1] },
		"order": func(e *Entry) { e.Transfers[0], e.Transfers[1] = e.Transfers[1], e.Transfers[0] },
	} {
		other := base
		other.Transfers = append([]Transfer(nil), base.Transfers...)
		change(&other)
		if was, ok := seen[other.Hash()]; ok {
			t.Errorf("%s hashes like %s", name, was)
		}
		seen[other.Hash()] = name
	}
	one, two := base.Hash(), [32]byte{1}
	seals := map[[32]byte]bool{}
	for _, s := range [][32]byte{
		SealHash(one, 1, 2, nil), SealHash(two, 1, 2, nil), SealHash(one, 0, 2, nil), SealHash(one, 1, 3, nil),
		SealHash(one, 1, 2, [][32]byte{one}), SealHash(one, 1, 2, [][32]byte{one, two}), SealHash(one, 1, 2, [][32]byte{two, one}),
	} {
		seals[s] = true
	}
	if len(seals) != 7 {
		t.Errorf("%d different seals of 7", len(seals))
	}
}

func TestApplyLeavesRowsAlone(t *testing.T) {
	l := lot(7, 1, 0, 100, 0)
	rows := []Balance{{Account: l.Account(Available), Amount: 10, Ceiling: math.MaxInt64}}
	hold := HoldEntry(HoldInput{Key: "hold:attempt:1", Pieces: []Piece{{Lot: 7, Amount: 10}}, Lots: []Lot{l}})
	after, r := Apply(rows, hold)
	if r != nil || rows[0].Amount != 10 || len(after) != 2 || after[0].Amount+after[1].Amount != 10 {
		t.Fatalf("after %v, rows %v, %v", after, rows, r)
	}
	if _, r := Apply(after, Entry{Key: "hold:attempt:2", Kind: "hold", Transfers: hold.Transfers}); r == nil || r.Kind != Short || r.Facts["short"] != Amount(10).Exact() {
		t.Errorf("second hold: %+v", r)
	}
}

func TestPotFloor(t *testing.T) {
	if got := PotFloor(100*GPUHour, 1_600_000); got != -60*GPUHour {
		t.Errorf("factor 1.6: %s", got.Hours())
	}
	if got := PotFloor(100*GPUHour, 1_000_000); got != 0 {
		t.Errorf("factor 1: %s", got.Hours())
	}
}

// house is a small model institute driven by random commands: program 2 with
// overcommit, projects 3 and 4, two lots each, and the attempts they hold for.
type house struct {
	book     *Book
	limit    PathLimit
	lots     []Lot
	attempts []modelAttempt
	entries  []Entry
	at       Instant
	n        int
}

type modelAttempt struct {
	id                AttemptID
	project           GroupID
	rate              Rate
	hold              []Piece
	ms                int64
	charged, credited Amount
	over              bool
}

// post applies an entry, keeps it for replays and moves the path counter.
func (h *house) post(e Entry) *Refusal {
	if len(e.Transfers) == 0 {
		return nil
	}
	fresh, r := h.book.Apply(e)
	if r == nil && fresh {
		h.entries = append(h.entries, e)
		for _, d := range e.PathDeltas() {
			h.limit.Used += d.Amount
		}
	}
	return r
}

func (h *house) funds(project GroupID) Funds {
	f := Funds{Project: project, Path: fmt.Sprint("/", project), Pool: 1, Limits: []PathLimit{h.limit}}
	for _, l := range h.lots {
		if l.Project == project {
			l.Available = h.book.Balance(l.Account(Available)).Amount
			f.Lots = append(f.Lots, l)
		}
	}
	return f
}

func (h *house) award(t *rapid.T) {
	id := LotID(len(h.lots) + 1)
	l := Lot{
		ID: id, Project: GroupID(rapid.IntRange(3, 4).Draw(t, "project")), Pool: 1, Period: 1,
		Last: Instant(rapid.Int64Range(1, 60).Draw(t, "last")) * 1_000_000,
	}
	e := Entry{Key: fmt.Sprint("award:request:", id), Kind: "award", At: h.at, Period: 1}
	e.add(PotAccount(2, 1, 1), l.Account(Available), Amount(rapid.Int64Range(1, 60_000).Draw(t, "amount")))
	if h.post(e) == nil {
		h.lots = append(h.lots, l)
	}
}

func (h *house) start(t *rapid.T) {
	h.n++
	a := modelAttempt{
		id: AttemptID(h.n), project: GroupID(rapid.IntRange(3, 4).Draw(t, "project")),
		rate: Rate{rapid.Int64Range(1, 9000).Draw(t, "milli"), 1_000_000},
	}
	f := h.funds(a.project)
	pieces, r := f.Draw(a.rate, h.at, 0, rapid.Int64Range(1, 9000).Draw(t, "minimum"))
	if r != nil || len(pieces) == 0 {
		return
	}
	if r := h.post(HoldEntry(HoldInput{Key: fmt.Sprint("hold:attempt:", a.id), At: h.at, Pieces: pieces, Lots: h.lots})); r != nil {
		t.Fatalf("what Draw granted is refused: %v", r)
	}
	a.hold = pieces
	h.attempts = append(h.attempts, a)
}

func (h *house) run(t *rapid.T) {
	a := h.pick(t)
	if a == nil || a.over {
		return
	}
	in := ChargeInput{
		Attempt: a.id, Project: a.project, Pool: 1, Rate: a.rate, Hold: a.hold, Lots: h.lots, FromMs: a.ms,
		ToMs: a.ms + rapid.Int64Range(0, 9000).Draw(t, "ms"), Final: rapid.Bool().Draw(t, "final"), At: h.at,
	}
	e, pieces := Charge(in)
	if r := h.post(e); r != nil {
		t.Fatalf("a charge is refused: %v", r)
	}
	a.charged += a.rate.Cum(in.ToMs) - a.rate.Cum(in.FromMs)
	a.hold, a.ms, a.over = pieces, in.ToMs, in.Final
	if left := Outstanding(pieces); in.Final && left != 0 {
		t.Fatalf("over, but still holds %d", left)
	}
}

func (h *house) credit(t *rapid.T) {
	a := h.pick(t)
	if a == nil {
		return
	}
	h.n++
	in := CreditInput{
		Attempt: a.id, Cause: fmt.Sprint("test-", h.n), Project: a.project, Pool: 1, Hold: a.hold, Lots: h.lots,
		Charged: a.charged, Credited: a.credited, Refund: Amount(rapid.Int64Range(-10, 90_000).Draw(t, "refund")), At: h.at,
	}
	e, r := CreditEntry(in)
	if (r == nil) != (in.Refund > 0 && in.Refund <= a.charged-a.credited) {
		t.Fatalf("refund %d of %d − %d: %v", in.Refund, a.charged, a.credited, r)
	}
	if r != nil {
		return
	}
	if r := h.post(e); r != nil {
		t.Fatalf("a credit is refused: %v", r)
	}
	a.credited += in.Refund
}

func (h *house) pick(t *rapid.T) *modelAttempt {
	if len(h.attempts) == 0 {
		return nil
	}
	return &h.attempts[rapid.IntRange(0, len(h.attempts)-1).Draw(t, "attempt")]
}

// check holds after every command: books at 0, bounds kept, and the counter is
// what spent and held say, less credits, never above its limit.
func (h *house) check(t *rapid.T) {
	checkBook(t, h.book)
	var used Amount
	for _, row := range h.book.Balances() {
		if k := row.Account.Kind; row.Account.Lot != 0 && (k == Held || k == Spent || k == Credit) {
			used += row.Amount
		}
	}
	if used != h.limit.Used || used > h.limit.Limit || used < 0 {
		t.Fatalf("counter %d, books say %d, limit %d", h.limit.Used, used, h.limit.Limit)
	}
}

func drawHouse(t *rapid.T) *house {
	const received = 100_000
	h := &house{book: NewBook(nil), limit: PathLimit{Program: 2, Path: "/2", Pool: 1, Period: 1, Limit: received}}
	pot := PotAccount(2, 1, 1)
	h.book.SetBounds(pot, PotFloor(received, 1_600_000), math.MaxInt64)
	if r := h.post(OpenEntry(Period{ID: 1}, 1, 2, received, 1, 0)); r != nil {
		t.Fatal(r)
	}
	t.Repeat(map[string]func(*rapid.T){
		"award": h.award, "start": h.start, "run": h.run, "credit": h.credit,
		"time": func(t *rapid.T) { h.at += Instant(rapid.Int64Range(1, 5_000_000).Draw(t, "µs")) },
		"":     h.check,
	})
	return h
}

func TestBooksKeepTheirRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { drawHouse(t) })
}

// Resent entries, in any order, change nothing.
func TestDuplicatesGiveSameBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHouse(t)
		replay := NewBook(nil)
		for _, row := range h.book.Balances() { // order of arrival may break bounds in between, never the sums
			replay.SetBounds(row.Account, math.MinInt64, math.MaxInt64)
		}
		twice := append(append([]Entry(nil), h.entries...), h.entries...)
		for _, e := range rapid.Permutation(twice).Draw(t, "order") {
			if _, r := replay.Apply(e); r != nil {
				t.Fatalf("%s: %v", e.Key, r)
			}
		}
		for _, row := range h.book.Balances() {
			if got := replay.Balance(row.Account).Amount; got != row.Amount {
				t.Fatalf("%s: %d, want %d", row.Account, got, row.Amount)
			}
		}
	})
}

func TestSameKeyOtherContentConflicts(t *testing.T) {
	l := lot(7, 1, 0, farFuture, 0)
	b := fundedBook(t, l, GPUHour)
	before := b.Balances()
	hold := HoldEntry(HoldInput{Key: "hold:attempt:1", Pieces: []Piece{{Lot: 7, Amount: 5}}, Lots: []Lot{l}})
	mustApply(t, b, hold)
	held := b.Balances()
	if fresh, r := b.Apply(hold); fresh || r != nil || !reflect.DeepEqual(b.Balances(), held) || reflect.DeepEqual(before, held) {
		t.Errorf("L18: applied again: %v, %v", fresh, r)
	}
	hold.Transfers[0].Amount = 6
	if _, r := b.Apply(hold); r == nil || r.Kind != Conflict {
		t.Errorf("other content: %v", r)
	}
}
