package ledger

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Period is an accounting span [First, Last), with the zone whose days it follows.
type Period struct {
	ID    PeriodID
	Name  string // "2026-Q4"
	First Instant
	Last  Instant
	Zone  string // IANA name, shown beside every date
}

// Seconds is the period's length; days on change nights have 23 or 25 hours.
func (p Period) Seconds() int64 { return int64(p.Last-p.First) / 1_000_000 }

// Supply is what devices give over the period when they are up for
// availabilityPPM of it (950,000 = 95 %), in units.
func (p Period) Supply(devices, availabilityPPM int64) (Amount, *Refusal) {
	if devices < 1 || availabilityPPM < 1 || availabilityPPM > 1_000_000 || p.Last <= p.First {
		return 0, refuse(Invalid, "period.supply", "devices", "A supply needs at least one device, an availability above 0 and up to 100 %, and a period with a length.")
	}
	perDevice, err := Amount(p.Seconds()*1000).MulRatio(availabilityPPM, 1)
	if err == nil {
		perDevice, err = perDevice.MulRatio(devices, 1_000_000)
	}
	if err != nil {
		return 0, refuse(Invalid, "period.supply", "devices", "This supply is too large to count.")
	}
	return perDevice, nil
}

// OpenEntry brings a pool's supply of a period into the root program's pot.
func OpenEntry(period Period, pool PoolID, root GroupID, supply Amount, at Instant, actor PersonID) Entry {
	key := "open:period:" + strconv.FormatInt(int64(period.ID), 10) + ":pool:" + strconv.FormatInt(int64(pool), 10)
	e := Entry{Key: key, Kind: "open", At: at, Period: period.ID, Actor: actor}
	e.add(SupplyAccount(pool, period.ID), PotAccount(root, pool, period.ID), supply)
	return e
}

// FirstDay is the instant at which a day ("2026-07-01") begins in the zone.
func FirstDay(field, day string, zone *time.Location) (Instant, *Refusal) {
	return dayStart(field, day, zone, 0)
}

// LastDay is the instant at which a day ends in the zone, exclusive: through
// 2026-06-30 in Europe/Paris is until 2026-06-30T22:00:00Z.
func LastDay(field, day string, zone *time.Location) (Instant, *Refusal) {
	return dayStart(field, day, zone, 1)
}

func dayStart(field, day string, zone *time.Location, later int) (Instant, *Refusal) {
	t, err := time.Parse(time.DateOnly, strings.TrimSpace(day))
	if err != nil {
		return 0, refuse(Invalid, "day.unreadable", field, "Write the day as year-month-day, such as 2026-06-30.", "text", clip(day, 40))
	}
	return At(time.Date(t.Year(), t.Month(), t.Day()+later, 0, 0, 0, 0, zone)), nil
}

// RequestState is where a request stands.
type RequestState string

// The states of a request.
const (
	Draft         RequestState = "draft"
	Submitted     RequestState = "submitted"
	Returned      RequestState = "returned"
	Awarded       RequestState = "awarded"
	RequestDenied RequestState = "denied"
	Withdrawn     RequestState = "withdrawn"
)

// RequestAction is what moves a request on.
type RequestAction string

// The actions on a request; the last three are a reviewer's.
const (
	Edit     RequestAction = "edit"
	Submit   RequestAction = "submit"
	Withdraw RequestAction = "withdraw"
	Award    RequestAction = "award"
	Deny     RequestAction = "deny"
	Return   RequestAction = "return"
)

// step is one row of the table of transitions.
type step struct {
	from   RequestState
	action RequestAction
	to     RequestState
}

// steps is the whole life of a request; what is not here is a conflict.
var steps = []step{
	{Draft, Edit, Draft},
	{Draft, Submit, Submitted},
	{Draft, Withdraw, Withdrawn},
	{Submitted, Withdraw, Withdrawn},
	{Submitted, Return, Returned},
	{Submitted, Award, Awarded},
	{Submitted, Deny, RequestDenied},
	{Returned, Edit, Returned},
	{Returned, Submit, Submitted},
	{Returned, Withdraw, Withdrawn},
}

// Next gives the state after an action, or a refusal of kind Conflict.
func (s RequestState) Next(action RequestAction) (RequestState, *Refusal) {
	for _, row := range steps {
		if row.from == s && row.action == action {
			return row.to, nil
		}
	}
	return s, refuse(Conflict, "request.state", "", "This request is "+string(s)+", so it cannot be changed this way any more. Reload the page to see where it stands.",
		"state", string(s), "action", string(action))
}

// RequestLine is what is asked for, and later awarded, in one pool.
type RequestLine struct {
	Pool    PoolID
	Asked   Amount
	Awarded Amount
}

// Request asks for GPU-hours per pool in one period.
type Request struct {
	ID       RequestID
	Project  GroupID
	Path     string // the project's; of a proposed project, its program's path with its name
	Program  GroupID
	Period   PeriodID
	Author   PersonID
	State    RequestState
	Version  int64 // grows with every change; a decision names the one it read
	Title    string
	Purpose  string
	Outcome  string
	Deadline Instant // 0: none
	Lines    []RequestLine
}

// Act moves the request on by one action on the version that was read. It is
// refused as a conflict when the request has changed since, or when its state does
// not know the action.
func (r Request) Act(action RequestAction, version int64) (Request, *Refusal) {
	if version != r.Version {
		return Request{}, refuse(Conflict, "request.version", "",
			"This request was changed after you opened it. Reload the page and decide again.",
			"version", strconv.FormatInt(r.Version, 10), "read", strconv.FormatInt(version, 10))
	}
	state, refusal := r.State.Next(action)
	if refusal != nil {
		return Request{}, refusal
	}
	r.State, r.Version, r.Lines = state, r.Version+1, slices.Clone(r.Lines)
	return r, nil
}

// Revise replaces what a draft or returned request says, and submits it when
// in.Submit is set. Project, program, period and author stay.
func (r Request) Revise(in RequestInput, version int64) (Request, Refusals) {
	action := Edit
	if in.Submit {
		action = Submit
	}
	next, refusal := r.Act(action, version)
	if refusal != nil {
		return Request{}, Refusals{refusal}
	}
	typed, rs := NewRequest(in)
	if len(rs) > 0 {
		return Request{}, rs
	}
	next.Title, next.Purpose, next.Outcome = typed.Title, typed.Purpose, typed.Outcome
	next.Deadline, next.Lines = typed.Deadline, typed.Lines
	return next, nil
}

// Bounds of a request's texts, in characters.
const (
	maxTitle   = 200
	maxPurpose = 4000
)

// RequestInput is a request as typed. A draft may be incomplete; what is
// submitted may not. Pools are those that the period has a supply in.
type RequestInput struct {
	ID       RequestID // 0: new
	Project  GroupID
	Path     string
	Program  GroupID
	Period   Period
	Pools    []PoolID
	Author   PersonID
	Title    string
	Purpose  string
	Outcome  string
	Deadline Instant
	Lines    []RequestLine // Awarded is ignored; lines asking 0 are left out
	Submit   bool
	Now      Instant
}

// AmountField names the form field of one pool's GPU-hours.
func AmountField(pool PoolID) string { return "amount." + strconv.FormatInt(int64(pool), 10) }

// NewRequest checks what was typed and gives the request in state draft or
// submitted at version 1, or one refusal for every wrong field.
func NewRequest(in RequestInput) (Request, Refusals) {
	title, purpose, outcome := strings.TrimSpace(in.Title), strings.TrimSpace(in.Purpose), strings.TrimSpace(in.Outcome)
	var rs Refusals
	rs = checkText(rs, "title", "title", title, maxTitle, in.Submit)
	rs = checkText(rs, "purpose", "purpose: what the GPU-hours are for", purpose, maxPurpose, in.Submit)
	rs = checkText(rs, "outcome", "outcome: what will exist afterwards", outcome, maxPurpose, in.Submit)
	if in.Project == 0 && in.Path == "" {
		rs = append(rs, refuse(Invalid, "request.project", "project", "Choose the project that asks."))
	}
	if in.Period.ID == 0 {
		rs = append(rs, refuse(Invalid, "request.period", "period", "Choose a period."))
	} else if in.Period.Last <= in.Now {
		rs = append(rs, refuse(Invalid, "request.period_over", "period", "Period "+in.Period.Name+" is over; choose a later one."))
	}
	if in.Deadline != 0 && in.Deadline < in.Now {
		rs = append(rs, refuse(Invalid, "request.deadline_past", "deadline", "The deadline has passed; choose a later day or none."))
	}
	lines, more := checkLines(in)
	if rs = append(rs, more...); len(rs) > 0 {
		return Request{}, rs
	}
	state := Draft
	if in.Submit {
		state = Submitted
	}
	return Request{
		ID: in.ID, Project: in.Project, Path: in.Path, Program: in.Program, Period: in.Period.ID, Author: in.Author,
		State: state, Version: 1, Title: title, Purpose: purpose, Outcome: outcome, Deadline: in.Deadline, Lines: lines,
	}, nil
}

// checkText adds a refusal when a text is too long, or missing though required.
// Drafts need a title too, to be found again.
func checkText(rs Refusals, field, what, text string, most int, required bool) Refusals {
	if n := utf8.RuneCountInString(text); n > most {
		return append(rs, refuse(Invalid, "request.too_long", field, "Shorten the "+field+": it has "+strconv.Itoa(n)+" characters, at most "+strconv.Itoa(most)+" fit.",
			"characters", strconv.Itoa(n), "most", strconv.Itoa(most)))
	}
	if text == "" && (required || field == "title") {
		return append(rs, refuse(Invalid, "request.missing", field, "Write a "+what+"."))
	}
	return rs
}

// checkLines gives the lines that ask for something, sorted by pool.
func checkLines(in RequestInput) ([]RequestLine, Refusals) {
	var rs Refusals
	var lines []RequestLine
	for _, l := range in.Lines {
		field := AmountField(l.Pool)
		switch {
		case l.Asked < 0:
			rs = append(rs, refuse(Invalid, "request.amount", field, "Ask for more than 0 GPU-hours, or leave the pool empty."))
		case l.Asked == 0:
		case !slices.Contains(in.Pools, l.Pool):
			rs = append(rs, refuse(Invalid, "request.pool", field, "This pool has no supply in the period."))
		case slices.ContainsFunc(lines, func(o RequestLine) bool { return o.Pool == l.Pool }):
			rs = append(rs, refuse(Invalid, "request.pool_twice", field, "This pool is asked for twice; add the two up."))
		default:
			lines = append(lines, RequestLine{Pool: l.Pool, Asked: l.Asked})
		}
	}
	if in.Submit && len(lines) == 0 && len(rs) == 0 {
		field := "lines"
		if len(in.Pools) > 0 {
			field = AmountField(in.Pools[0])
		}
		rs = append(rs, refuse(Invalid, "request.empty", field, "Ask for GPU-hours in at least one pool."))
	}
	slices.SortFunc(lines, func(a, b RequestLine) int { return int(a.Pool - b.Pool) })
	return lines, rs
}
