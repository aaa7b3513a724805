package ledger

import (
	"slices"
	"strconv"
)

// HoldInput says which pieces are set aside, why and for whom. Lots must hold
// every lot that a piece names.
type HoldInput struct {
	Key    string // "hold:attempt:881" for HoldEntry, "release:attempt:881:claim" for ReleaseEntry
	At     Instant
	Actor  PersonID
	Pieces []Piece
	Lots   []Lot
}

// HoldEntry sets aside what the pieces hold: Available → Held. The caller drew
// them with Funds.Draw, so only a race can refuse the entry.
func HoldEntry(in HoldInput) Entry {
	e := Entry{Key: in.Key, Kind: "hold", At: in.At, Actor: in.Actor}
	for _, p := range in.Pieces {
		lot := lotOf(in.Lots, p.Lot)
		if n := p.rest(); n > 0 {
			e.add(lot.Account(Available), lot.Account(Held), n)
		}
	}
	e.settlePeriod()
	return e
}

// ReleaseEntry gives back everything the pieces still hold, to Available or,
// where the lot is over at At, to Expired. It gives the pieces afterwards. An
// entry without transfers means there was nothing to give back; it is not posted.
func ReleaseEntry(in HoldInput) (Entry, []Piece) {
	e := Entry{Key: in.Key, Kind: "release", At: in.At, Actor: in.Actor}
	pieces := slices.Clone(in.Pieces)
	e.release(pieces, in.Lots)
	e.settlePeriod()
	return e, pieces
}

// ChargeInput is proven usage of one attempt. FromMs and ToMs are elapsed: what
// has been charged already, and what is proven now. Lots must hold every lot that
// a piece names.
type ChargeInput struct {
	Attempt AttemptID
	Project GroupID
	Pool    PoolID
	Rate    Tariff
	Hold    []Piece
	Lots    []Lot
	FromMs  int64
	ToMs    int64
	Final   bool // the attempt is over: release the rest
	At      Instant
}

// Charge settles usage: rate.Cum(ToMs) − rate.Cum(FromMs) out of the hold's
// pieces in their order, and what exceeds them out of Overrun. It never refuses:
// the usage has happened. With Final the rest of the hold is released in the same
// entry. It gives the entry and the pieces afterwards; an entry without transfers
// is not posted. The key holds both ends, so that a report sent twice posts once;
// an entry that only releases ends in ":final". The attempt's overrun so far is
// what it was charged less what its pieces say was spent.
func Charge(in ChargeInput) (Entry, []Piece) {
	e := Entry{Key: chargeKey(in), Kind: "charge", At: in.At}
	pieces := slices.Clone(in.Hold)
	due := in.Rate.Cum(max(in.FromMs, in.ToMs)) - in.Rate.Cum(in.FromMs)
	for i := range pieces {
		p := &pieces[i]
		part := min(due, p.rest())
		if part <= 0 {
			continue
		}
		lot := lotOf(in.Lots, p.Lot)
		e.add(lot.Account(Held), lot.Account(Spent), part)
		p.Spent += part
		due -= part
	}
	if due > 0 {
		e.add(OverrunAccount(Overrun, in.Project, in.Pool), OverrunAccount(Spent, in.Project, in.Pool), due)
	}
	if in.Final {
		e.release(pieces, in.Lots)
	}
	e.settlePeriod()
	return e, pieces
}

func chargeKey(in ChargeInput) string {
	key := "charge:attempt:" + strconv.FormatInt(int64(in.Attempt), 10) +
		":" + strconv.FormatInt(in.FromMs, 10) + "ms:" + strconv.FormatInt(max(in.FromMs, in.ToMs), 10) + "ms"
	if in.Final && in.ToMs <= in.FromMs {
		key += ":final"
	}
	return key
}

// CreditInput is a correction in a project's favour for one attempt.
type CreditInput struct {
	Attempt  AttemptID
	Cause    string // ends the key: "node-loss", "drain", "operator-stop"
	Project  GroupID
	Pool     PoolID
	Hold     []Piece // as charged
	Lots     []Lot   // every lot that a piece names
	Charged  Amount  // gross, over the attempt's whole life
	Credited Amount  // before this one
	Refund   Amount  // > 0
	At       Instant
	Actor    PersonID
}

// CreditEntry refunds part of an attempt's charges in the reverse order of their
// consumption: first what went to Overrun, then the last pieces; what earlier
// credits refunded is passed over. Spent stays gross: Credit → Available, or →
// Expired where the lot is over at At. A refund that is not above 0, or above
// what was charged and not yet credited, is refused.
func CreditEntry(in CreditInput) (Entry, *Refusal) {
	if in.Refund <= 0 {
		return Entry{}, refuse(Invalid, "credit.amount", "amount", "A credit must be above 0 GPU-h.")
	}
	if left := in.Charged - in.Credited; in.Refund > left {
		return Entry{}, refuse(Invalid, "credit.above_charge", "amount",
			"This attempt has "+left.Hours()+" GPU-h of charges left to credit, not "+in.Refund.Hours()+" GPU-h.",
			"needed", in.Refund.Exact(), "available", left.Exact())
	}
	e := Entry{Key: "credit:attempt:" + strconv.FormatInt(int64(in.Attempt), 10) + ":" + in.Cause, Kind: "credit", At: in.At, Actor: in.Actor}
	skip, refund := in.Credited, in.Refund
	take := func(consumed Amount, debit, credit Account) {
		passed := min(skip, consumed)
		skip -= passed
		if part := min(refund, consumed-passed); part > 0 {
			e.add(debit, credit, part)
			refund -= part
		}
	}
	overrun := in.Charged
	for _, p := range in.Hold {
		overrun -= p.Spent
	}
	take(overrun, OverrunAccount(Credit, in.Project, in.Pool), OverrunAccount(Overrun, in.Project, in.Pool))
	for _, p := range slices.Backward(in.Hold) {
		lot := lotOf(in.Lots, p.Lot)
		take(p.Spent, lot.Account(Credit), lot.restAccount(in.At))
	}
	e.settlePeriod()
	return e, nil
}

// release gives back what the pieces still hold and marks them.
func (e *Entry) release(pieces []Piece, lots []Lot) {
	for i := range pieces {
		p := &pieces[i]
		if n := p.rest(); n > 0 {
			lot := lotOf(lots, p.Lot)
			e.add(lot.Account(Held), lot.restAccount(e.At), n)
			p.Released += n
		}
	}
}

// restAccount is where units that come back to a lot go.
func (l Lot) restAccount(at Instant) Account {
	if at >= l.Last {
		return l.Account(Expired)
	}
	return l.Account(Available)
}

// lotOf finds a piece's lot. A hold whose lots were not all loaded cannot be
// booked anywhere, which is a fault of the caller.
func lotOf(lots []Lot, id LotID) Lot {
	for _, l := range lots {
		if l.ID == id {
			return l
		}
	}
	panic("ledger: lot " + strconv.FormatInt(int64(id), 10) + " of a hold was not loaded")
}
