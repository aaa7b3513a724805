package ledger

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decision is a reviewer's answer to the version of a request that was read.
type Decision struct {
	Action  RequestAction // Award, Deny or Return
	Version int64
	Reason  string // required to deny or return
	Amounts []PoolAmount
}

// PoolAmount is an amount in one pool.
type PoolAmount struct {
	Pool   PoolID
	Amount Amount
}

// PotFacts is a program's pot in one pool and period.
type PotFacts struct {
	Program GroupID
	Path    string
	Pool    PoolID
	Balance Amount
	Floor   Amount // 0, or PotFloor with overcommit
}

// NewLot gives the id that an award's lot in one pool will have.
type NewLot struct {
	Pool PoolID
	ID   LotID
}

// ReviewInput is all that a review depends on.
type ReviewInput struct {
	Request  Request
	Period   Period
	Actor    Actor
	Decision Decision
	Pots     []PotFacts // of the program that pays, one per pool awarded
	Lots     []NewLot   // one per pool awarded
	Now      Instant
}

// ReviewResult is what a review leads to. Lots and Entry are empty unless it
// awards; lots begin with the period, or now when it has begun.
type ReviewResult struct {
	Request Request
	Lots    []Lot
	Entry   Entry
}

// Review answers a request. It is refused, with nothing changed, when the actor
// may not review there, wrote the request or leads the project; when the request
// has changed since it was read or is not waiting for a review; when an amount is
// negative, above what was asked, or nothing is awarded at all; and when a pot is
// short, naming its program.
func Review(in ReviewInput) (ReviewResult, *Refusal) {
	if r := mayReview(in); r != nil {
		return ReviewResult{}, r
	}
	next, r := in.Request.Act(in.Decision.Action, in.Decision.Version)
	if r != nil {
		return ReviewResult{}, r
	}
	if r := checkReason(in.Decision); r != nil {
		return ReviewResult{}, r
	}
	if in.Decision.Action != Award {
		return ReviewResult{Request: next}, nil
	}
	return award(in, next)
}

// mayReview says whether the actor may decide about this request at all.
func mayReview(in ReviewInput) *Refusal {
	switch in.Decision.Action {
	case Award, Deny, Return:
	default:
		return refuse(Invalid, "review.action", "action", "Award, deny or return the request.")
	}
	if r := in.Actor.May(RequestReview, in.Request.Path, in.Now); r != nil {
		return r
	}
	if in.Actor.Person == in.Request.Author {
		return refuse(Denied, "review.own", "", "You wrote this request, so another manager must review it.")
	}
	if in.Actor.Leads(in.Request.Path, in.Now) {
		return refuse(Denied, "review.leads", "", "You lead this project, so another manager must review its request.")
	}
	return nil
}

func checkReason(d Decision) *Refusal {
	reason := strings.TrimSpace(d.Reason)
	if utf8.RuneCountInString(reason) > maxPurpose {
		return refuse(Invalid, "review.reason_long", "reason", "Shorten the reason to at most "+strconv.Itoa(maxPurpose)+" characters.")
	}
	if reason == "" && d.Action != Award {
		return refuse(Invalid, "review.reason", "reason", "Write the reason: the author will read it.")
	}
	return nil
}

// award checks the amounts against what was asked and what the pots hold, and
// makes the lots and the entry. next is the request in its new state.
func award(in ReviewInput, next Request) (ReviewResult, *Refusal) {
	if in.Period.ID != next.Period || in.Period.Last <= in.Now {
		return ReviewResult{}, refuse(Conflict, "review.period_over", "", "Period "+in.Period.Name+" is over, so nothing can be awarded in it any more.")
	}
	key := "award:request:" + strconv.FormatInt(int64(next.ID), 10)
	out := ReviewResult{Entry: Entry{Key: key, Kind: "award", At: in.Now, Period: next.Period, Actor: in.Actor.Person}}
	for _, a := range in.Decision.Amounts {
		i := slices.IndexFunc(next.Lines, func(l RequestLine) bool { return l.Pool == a.Pool })
		if r := checkAward(a, i, next.Lines); r != nil {
			return ReviewResult{}, r
		}
		if a.Amount == 0 {
			continue
		}
		pot, r := potFor(in.Pots, a)
		if r != nil {
			return ReviewResult{}, r
		}
		next.Lines[i].Awarded = a.Amount
		lot := Lot{
			ID: lotID(in.Lots, a.Pool), Project: next.Project, Pool: a.Pool, Period: next.Period,
			First: max(in.Period.First, in.Now), Last: in.Period.Last, Available: a.Amount,
		}
		out.Lots = append(out.Lots, lot)
		out.Entry.add(PotAccount(pot.Program, a.Pool, next.Period), lot.Account(Available), a.Amount)
	}
	if len(out.Lots) == 0 {
		return ReviewResult{}, refuse(Invalid, "review.nothing", firstField(next.Lines), "Award more than 0 GPU-hours in at least one pool, or deny the request.")
	}
	out.Request = next
	return out, nil
}

// checkAward checks one pool's amount; i is its line, or −1.
func checkAward(a PoolAmount, i int, lines []RequestLine) *Refusal {
	field := AmountField(a.Pool)
	if i < 0 {
		return refuse(Invalid, "review.pool", field, "Nothing was asked for in this pool.")
	}
	if lines[i].Awarded != 0 {
		return refuse(Invalid, "review.pool_twice", field, "This pool is answered twice.")
	}
	if a.Amount < 0 {
		return refuse(Invalid, "review.negative", field, "An award cannot be negative.")
	}
	if asked := lines[i].Asked; a.Amount > asked {
		return refuse(Invalid, "review.above_asked", field, "At most the "+asked.Hours()+" GPU-h asked for can be awarded.", "asked", asked.Exact())
	}
	return nil
}

// potFor finds the pot that pays an amount, or says how much it is short.
func potFor(pots []PotFacts, a PoolAmount) (PotFacts, *Refusal) {
	i := slices.IndexFunc(pots, func(p PotFacts) bool { return p.Pool == a.Pool })
	if i < 0 {
		return PotFacts{}, refuse(Short, "pot.missing", AmountField(a.Pool), "The program received nothing in this pool for this period, so it has nothing to award.",
			"needed", a.Amount.Exact(), "available", "0", "short", a.Amount.Exact())
	}
	return pots[i], pots[i].shortOf(AmountField(a.Pool), a.Amount)
}

// shortOf refuses to take more out of a pot than it may give.
func (p PotFacts) shortOf(field string, amount Amount) *Refusal {
	left := p.Balance - p.Floor
	if amount <= left {
		return nil
	}
	by := sentenceGroup(p.Path, p.Program)
	return refuse(Short, "pot.short", field,
		"Short "+(amount-left).Hours()+" GPU-h, limited by program "+by+": its pot has "+left.Hours()+" GPU-h left to give.",
		"needed", amount.Exact(), "available", left.Exact(), "short", (amount - left).Exact(), "limited_by", by)
}

// lotID finds the id set aside for a pool's lot.
func lotID(lots []NewLot, pool PoolID) LotID {
	for _, l := range lots {
		if l.Pool == pool {
			return l.ID
		}
	}
	panic("ledger: no lot id for pool " + strconv.FormatInt(int64(pool), 10) + " of an award")
}

func firstField(lines []RequestLine) string {
	if len(lines) == 0 {
		return ""
	}
	return AmountField(lines[0].Pool)
}
