package scheduler

import (
	"reflect"
	"testing"

	"tranche/ledger"
)

const (
	aMinute = int64(60_000)
	anHour  = 60 * aMinute
	begun   = Instant(1_790_812_800_000_000)
)

// course is one job with real books: what every event posts is applied.
type course struct {
	t     *testing.T
	life  Life
	book  *ledger.Book
	lot   ledger.Lot
	segs  []Segment
	freed bool
}

// newCourse awards 100 GPU-h and waits.
func newCourse(t *testing.T) *course {
	c := &course{t: t, book: ledger.NewBook(nil), life: Life{Job: JobWaiting}}
	c.lot = ledger.Lot{ID: 1, Project: 2, Pool: 1, Period: 1, First: begun.Add(-anHour), Last: begun.Add(1000 * anHour)}
	for _, e := range []ledger.Entry{
		{Key: "open:1", Kind: "open", At: begun, Transfers: []ledger.Transfer{{Debit: ledger.SupplyAccount(1, 1), Credit: ledger.PotAccount(1, 1, 1), Amount: 500 * ledger.GPUHour}}},
		{Key: "award:1", Kind: "award", At: begun, Transfers: []ledger.Transfer{{Debit: ledger.PotAccount(1, 1, 1), Credit: c.lot.Account(ledger.Available), Amount: 100 * ledger.GPUHour}}},
	} {
		if _, r := c.book.Apply(e); r != nil {
			t.Fatal(r)
		}
	}
	return c
}

func (c *course) funds() *ledger.Funds {
	lot := c.lot
	lot.Available = c.book.Balance(lot.Account(ledger.Available)).Amount
	return &ledger.Funds{Project: 2, Pool: 1, Path: "/lab/a", Lots: []ledger.Lot{lot}}
}

// at carries one event out at an offset and says whether it changed anything.
func (c *course) at(ms int64, ev Event) bool {
	c.t.Helper()
	ev.At, ev.Lots, ev.HoldStepMs = begun.Add(ms), []ledger.Lot{c.lot}, 15*aMinute
	if ev.Funds == nil {
		ev.Funds = c.funds()
	}
	before := c.life
	st, r := Advance(c.life, ev)
	if r != nil {
		c.t.Fatalf("event %d at %s: %v", ev.Kind, Span(ms), r)
	}
	if !reflect.DeepEqual(before, c.life) {
		c.t.Fatalf("event %d changed its input", ev.Kind)
	}
	for _, e := range st.Entries {
		if _, r := c.book.Apply(e); r != nil {
			c.t.Fatalf("event %d posts %s: %v", ev.Kind, e.Key, r)
		}
	}
	if st.Changed {
		c.life, c.segs, c.freed = st.Next, st.Segments, st.Freed
	}
	return st.Changed
}

// start leases (or nominates) an attempt of 8 GPUs on so many nodes.
func (c *course) start(kind EventKind, nodes int, minMs int64, k Contract) {
	c.t.Helper()
	k.MinMs = minMs
	job := Job{ID: 1, Project: 2, Pool: 1, Rate: ledger.Rate{MilliGPU: 8000, PPM: 1_000_000}, Contract: k}
	s := Start{AttemptRef: AttemptRef{1, c.life.Run.N + 1}, Project: 2, Pool: 1, Funded: minMs > 0, MinMs: minMs}
	for i := range nodes {
		s.Placed = append(s.Placed, Placed{Rank: int32(i), Node: ledger.NodeID(i + 1), Devices: []int32{0}, GPUMilli: 1000})
	}
	if minMs > 0 {
		var r *ledger.Refusal
		if s.Hold, r = c.funds().Draw(job.Rate, begun, 0, minMs); r != nil {
			c.t.Fatal(r)
		}
	}
	c.at(0, Event{Kind: kind, Run: NewRun(&job, &s, ledger.AttemptID(s.N), begun)})
}

// books checks available, held, spent and credit in GPU-hours.
func (c *course) books(available, held, spent, credit ledger.Amount) {
	c.t.Helper()
	got := [4]ledger.Amount{}
	for i, kind := range []ledger.AccountKind{ledger.Available, ledger.Held, ledger.Spent, ledger.Credit} {
		got[i] = c.book.Balance(c.lot.Account(kind)).Amount
	}
	got[3] = -got[3]
	h := ledger.GPUHour
	if want := [4]ledger.Amount{available * h, held * h, spent * h, credit * h}; got != want {
		c.t.Errorf("available, held, spent, credit are %v, want %v", got, want)
	}
}

func (c *course) want(job JobPhase, result Result) {
	c.t.Helper()
	if c.life.Job != job || c.life.Result != result {
		c.t.Errorf("job is %d %q, want %d %q", c.life.Job, c.life.Result, job, result)
	}
}

// L2: 8 GPUs held for 2 h run 90 min: charge 12, release 4; resent and with a
// cancel racing it still 12.
func TestL2SettleOnce(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, 2*anHour, Contract{Resumable: true})
	c.books(84, 16, 0, 0)
	c.at(0, Event{Kind: EvClaimed})
	end := Event{Kind: EvFinished, ElapsedMs: 90 * aMinute}
	c.at(90*aMinute, end)
	c.books(88, 0, 12, 0)
	c.want(JobOver, ResultOK)
	if c.at(91*aMinute, end) || c.at(92*aMinute, Event{Kind: EvCancelled}) {
		t.Error("a late event changed something")
	}
	c.books(88, 0, 12, 0)
}

func TestCancelBeforeTheClaimCostsNothing(t *testing.T) {
	for _, kind := range []EventKind{EvNominated, EvLeased} {
		c := newCourse(t)
		c.start(kind, 1, 2*anHour, Contract{Resumable: true})
		c.at(aMinute, Event{Kind: EvCancelled})
		c.books(100, 0, 0, 0)
		c.want(JobOver, ResultCancelled)
		if !c.freed {
			t.Error("the devices are not free")
		}
		_, r := Advance(c.life, Event{Kind: EvClaimed, At: begun.Add(2 * aMinute)})
		if r == nil || r.Code != "attempt.closed" {
			t.Errorf("a claim of a closed attempt gives %v", r)
		}
	}
}

// L11: attempt 1 dies with its node after 1 h, attempt 2 runs 2 h.
func TestL11AttemptsAndCredit(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, 2*anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.at(anHour+5*aMinute, Event{Kind: EvLost, ElapsedMs: anHour})
	c.want(JobWaiting, "")
	c.books(100, 0, 8, 8)
	if len(c.segs) != 1 || c.segs[0].Class != ClassCredited || c.segs[0].To != begun.Add(anHour) {
		t.Errorf("occupancy %+v", c.segs)
	}
	c.start(EvLeased, 1, 2*anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.at(2*anHour, Event{Kind: EvFinished, ElapsedMs: 2 * anHour})
	c.books(84, 0, 24, 8)
	c.want(JobOver, ResultOK)
}

// A node that is lost gives back what was charged since the last checkpoint alone.
func TestTheCreditBeginsAtTheLastCheckpoint(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, 2*anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.life.Run.Checkpoint = begun.Add(anHour)
	c.at(90*aMinute+5*aMinute, Event{Kind: EvLost, ElapsedMs: 90 * aMinute})
	c.books(92, 0, 12, 4)
}

// The claim draws the hold anew from the lots that are valid then: another one than at
// the nomination, or none, and then it is refused.
func TestTheClaimDrawsFromTheLotsValidThen(t *testing.T) {
	c := newCourse(t)
	c.start(EvNominated, 1, 2*anHour, Contract{Resumable: true})
	c.at(aMinute, Event{Kind: EvLeased})
	over, next := c.lot, c.lot
	over.Last = begun.Add(aMinute)
	next.ID, next.First, next.Available = 2, begun.Add(aMinute), 100*ledger.GPUHour
	claim := Event{Kind: EvClaimed, At: begun.Add(2 * aMinute), Lots: []ledger.Lot{over, next}}
	claim.Funds = &ledger.Funds{Project: 2, Pool: 1, Path: "/lab/a", Lots: []ledger.Lot{over, next}}
	st, refusal := Advance(c.life, claim)
	if h := st.Next.Run.Hold; refusal != nil || len(st.Entries) != 2 || len(h) != 1 || h[0] != (ledger.Piece{Lot: 2, Amount: 16 * ledger.GPUHour}) {
		t.Errorf("hold %+v, %d entries, %v", h, len(st.Entries), refusal)
	}
	claim.Funds.Lots = claim.Funds.Lots[:1]
	if _, refusal = Advance(c.life, claim); refusal == nil || refusal.Kind != ledger.Short {
		t.Errorf("without a lot: %v", refusal)
	}
}

// New protection that would end sooner than the old one changes nothing about it.
// Protection that idleness ends is over then, and the budget goes on paying.
func TestProtectionIsProlongedAndEnded(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, 2*anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.at(aMinute, Event{Kind: EvRenewed, FromMs: 2 * anHour, ToMs: 2 * anHour, Until: begun.Add(anHour)})
	if got := c.life.Run.ProtectedUntil; got != begun.Add(2*anHour) {
		t.Errorf("protected for %s", Span(got.MillisSince(begun)))
	}
	c.at(anHour, Event{Kind: EvUnprotected})
	if c.at(anHour+aMinute, Event{Kind: EvUnprotected}) {
		t.Error("protection ended twice")
	}
	if r := c.life.Run; r.ProtectedUntil != begun.Add(anHour) || !r.Funded || r.HoldUntilMs != 2*anHour {
		t.Errorf("after it ended: protected for %s, funded %t, held for %s", Span(r.ProtectedUntil.MillisSince(begun)), r.Funded, Span(r.HoldUntilMs))
	}
	c.at(90*aMinute, Event{Kind: EvFinished, ElapsedMs: 90 * aMinute})
	c.books(88, 0, 12, 0)
}

// A member that claims late does not take back what a renewal has granted meanwhile.
func TestALateClaimKeepsNewProtection(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 2, 2*anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.at(aMinute, Event{Kind: EvRenewed, FromMs: 2 * anHour, ToMs: 2 * anHour, Until: begun.Add(3 * anHour)})
	c.at(2*aMinute, Event{Kind: EvClaimed, Rank: 1})
	if got := c.life.Run.ProtectedUntil; got != begun.Add(3*anHour) {
		t.Errorf("protected for %s", Span(got.MillisSince(begun)))
	}
}

// Whoever is evicted pays to the signal; the grace is recorded and free.
func TestEvictionPaysToTheSignal(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.at(anHour, Event{Kind: EvExtended, FromMs: anHour, ToMs: anHour + 15*aMinute, Hold: []ledger.Piece{{Lot: 1, Amount: 2 * ledger.GPUHour}}})
	c.books(90, 10, 0, 0)
	c.at(anHour, Event{Kind: EvSignalled, Rule: V3})
	c.at(anHour+aMinute, Event{Kind: EvFinished, ElapsedMs: anHour + aMinute, TermMs: anHour, Exit: Exit{Code: -1, Stopped: true}})
	c.books(92, 0, 8, 0)
	c.want(JobWaiting, "")
	if n := len(c.segs); n != 2 || c.segs[1].Class != ClassEnding || c.segs[1].From != begun.Add(anHour) || c.segs[1].To != begun.Add(anHour+aMinute) {
		t.Errorf("occupancy %+v", c.segs)
	}
	if c.life.Run.Cause != CausePreempted {
		t.Errorf("cause %q", c.life.Run.Cause)
	}
}

// A cancelled job pays to its exit; one that may not resume is over when evicted.
func TestWhoPaysTheGrace(t *testing.T) {
	for _, k := range []struct {
		rule   Rule
		spent  ledger.Amount
		credit ledger.Amount
		result Result
	}{
		{Cancelled, 12, 0, ResultCancelled},
		{MaxRuntime, 12, 0, ResultTimeout},
		{MoneyEnded, 12, 0, ResultFunds},
		{V1, 8, 0, ResultPreempted},
		{V5, 8, 0, ResultPreempted},
		{V5Hard, 8, 8, ResultPreempted},
		{Operator, 8, 8, ResultPreempted},
	} {
		c := newCourse(t)
		c.start(EvLeased, 1, 2*anHour, Contract{})
		c.at(0, Event{Kind: EvClaimed})
		ev := Event{Kind: EvSignalled, Rule: k.rule}
		if k.rule == Cancelled {
			ev = Event{Kind: EvCancelled}
		}
		c.at(anHour, ev)
		c.at(90*aMinute, Event{Kind: EvFinished, ElapsedMs: 90 * aMinute, TermMs: anHour, Exit: Exit{Code: -1, Stopped: true}})
		c.books(100-k.spent+k.credit, 0, k.spent, k.credit)
		c.want(JobOver, k.result)
	}
}

// What ran past its hold before any cycle came is held and charged at its end.
func TestEndCatchesUpWithTheHold(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, anHour, Contract{})
	c.at(0, Event{Kind: EvClaimed})
	c.at(3*anHour, Event{Kind: EvFinished, ElapsedMs: 3 * anHour})
	c.books(76, 0, 24, 0)
	c.want(JobOver, ResultOK)
}

// Without funds the rest goes on unfunded; past segments stay.
func TestMoneyEndsWithinTheRun(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, 12*anHour, Contract{})
	c.at(0, Event{Kind: EvClaimed})
	c.books(4, 96, 0, 0)
	c.at(20*anHour, Event{Kind: EvFinished, ElapsedMs: 20 * anHour})
	c.books(0, 0, 100, 0)
	if n := len(c.segs); n != 2 || c.segs[0].To != begun.Add(12*anHour+30*aMinute) || c.segs[1].Class != ClassUnfunded {
		t.Errorf("occupancy %+v", c.segs)
	}
}

// While protected nothing is posted; after it whole steps of the own time line.
func TestAccrualInSteps(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, anHour, Contract{})
	c.at(0, Event{Kind: EvClaimed})
	c.at(59*aMinute, Event{Kind: EvAccrued, ElapsedMs: 59 * aMinute})
	c.books(92, 8, 0, 0)
	c.at(anHour, Event{Kind: EvExtended, FromMs: anHour, ToMs: anHour + 30*aMinute, Hold: []ledger.Piece{{Lot: 1, Amount: 4 * ledger.GPUHour}}})
	c.at(74*aMinute, Event{Kind: EvAccrued, ElapsedMs: 74 * aMinute})
	c.books(88, 4, 8, 0)
	c.at(76*aMinute, Event{Kind: EvAccrued, ElapsedMs: 76 * aMinute})
	c.books(88, 2, 10, 0)
	if c.at(77*aMinute, Event{Kind: EvAccrued, ElapsedMs: 70 * aMinute}) {
		t.Error("an old heartbeat changed something")
	}
	if c.at(78*aMinute, Event{Kind: EvExtended, FromMs: anHour, ToMs: anHour + 30*aMinute, Hold: []ledger.Piece{{Lot: 1, Amount: 4 * ledger.GPUHour}}}) {
		t.Error("a repeated extension changed something")
	}
}

// A gang counts from its first claim, is protected from its last, ends with its
// last member, and one failure stops the rest.
func TestGang(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 2, anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed, Rank: 1})
	c.at(aMinute, Event{Kind: EvClaimed, Rank: 0})
	if r := &c.life.Run; r.Started != begun || r.ProtectedUntil != begun.Add(anHour+aMinute) {
		t.Errorf("started %d, protected until %d", r.Started, r.ProtectedUntil)
	}
	c.at(30*aMinute, Event{Kind: EvFinished, Rank: 0, ElapsedMs: 29 * aMinute, Exit: Exit{Code: 3}})
	if c.life.Run.Phase != Ending || c.life.Run.Rule != GangFailed {
		t.Fatalf("phase %d, rule %q", c.life.Run.Phase, c.life.Run.Rule)
	}
	c.at(30*aMinute, Event{Kind: EvFinished, Rank: 1, ElapsedMs: 30 * aMinute, TermMs: 30 * aMinute, Exit: Exit{Code: -1, Stopped: true}})
	c.want(JobOver, ResultFailed)
	c.books(96, 0, 4, 0)
}

func TestPauseAndResume(t *testing.T) {
	c := newCourse(t)
	c.at(0, Event{Kind: EvPaused})
	c.want(JobPaused, "")
	c.at(0, Event{Kind: EvResumed})
	c.want(JobWaiting, "")
	c.start(EvLeased, 1, anHour, Contract{})
	if _, r := Advance(c.life, Event{Kind: EvPaused}); r == nil || r.Kind != ledger.Conflict {
		t.Errorf("pausing a live job gives %v", r)
	}
}

// A lost attempt whose node comes back before anything newer started goes on:
// the credit stays, what it runs from there on is charged.
func TestReturnAfterALoss(t *testing.T) {
	c := newCourse(t)
	c.start(EvLeased, 1, 2*anHour, Contract{Resumable: true})
	c.at(0, Event{Kind: EvClaimed})
	c.at(anHour+5*aMinute, Event{Kind: EvLost, ElapsedMs: anHour})
	c.books(100, 0, 8, 8)
	c.at(anHour+10*aMinute, Event{Kind: EvReturned})
	c.want(JobActive, "")
	c.books(92, 8, 8, 8)
	c.at(2*anHour, Event{Kind: EvFinished, ElapsedMs: 2 * anHour})
	c.books(92, 0, 16, 8)
	c.want(JobOver, ResultOK)
}
