package web

import (
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// review shows a manager what an award would do.
func (s *server) review(w http.ResponseWriter, r *http.Request) error {
	page, err := s.reviewPage(r, newForm())
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

func (s *server) reviewPage(r *http.Request, form view.Form) (templ.Component, error) {
	actor := actorOf(r)
	full, err := s.store.Request(r.Context(), actor, ledger.RequestID(pathID(r)))
	if err != nil {
		return nil, err
	}
	self := full.Author == actor.Person
	if refusal := s.mayAnswer(actor, full.RequestRow); refusal != nil && !self {
		return nil, refusal
	}
	m := view.Review{
		Request: s.requestView(actor, full), Form: form, Version: full.Version, Self: self, Zone: s.zone.String(),
		First: s.day(max(full.PeriodFirst, s.store.Now())), Last: s.lastDay(full.PeriodLast),
	}
	pots, err := s.store.Pots(r.Context(), full.Program, full.Period)
	if err != nil {
		return nil, err
	}
	var asked []string
	answer := ""
	for _, l := range full.Lines {
		line, short, err := s.reviewLine(r, full, l, pots)
		if err != nil {
			return nil, err
		}
		if short > 0 {
			answer = full.ProgramTitle + "'s pot is " + short.Hours() + " GPU-h short on " + l.PoolName + " for everything asked; award less, or ask for a larger pot."
		}
		m.Lines = append(m.Lines, line)
		asked = append(asked, l.Asked.Hours()+" GPU-h on "+l.PoolName)
	}
	if answer == "" {
		answer = full.ProgramTitle + "'s pot covers the " + strings.Join(asked, " and ") + " that are asked."
	}
	if full.Project != 0 {
		if m.Past, err = s.pastFacts(r, full.Project); err != nil {
			return nil, err
		}
	}
	return view.ReviewPage(s.requestShell(r, "Answer request "+idText(full.ID), answer), m), nil
}

// reviewLine says what awarding one line whole would do to the pot, and how much
// the pot is short for it.
func (s *server) reviewLine(r *http.Request, full store.RequestFull, l store.RequestLineRow, pots []store.Pot) (view.ReviewLine, ledger.Amount, error) {
	line := view.ReviewLine{PoolID: l.Pool, Pool: l.PoolName, Asked: hours(l.Asked)}
	var pot store.Pot
	for _, p := range pots {
		if p.Pool == l.Pool {
			pot = p
		}
	}
	line.Pot, line.After = hours(pot.Left), hours(pot.Left-l.Asked)
	line.Bar = potRow(pot).Bar
	line.Bar.Label = l.PoolName
	short := max(0, l.Asked-pot.Left)
	if short > 0 {
		line.Short = hours(short)
	}
	rows, err := s.readTree(r, l.Pool, full.Period)
	if err != nil {
		return line, short, err
	}
	seconds := int64(full.PeriodLast-full.PeriodFirst) / 1_000_000
	more := ledger.Weight(l.Asked, seconds)
	var siblings, own int64
	for _, row := range rows {
		if row.Parent == full.Program {
			siblings += row.Weight
		}
		if row.ID == full.Project && full.Project != 0 {
			own = row.Weight
			line.ShareNow = shareText(row)
		}
	}
	if siblings+more > 0 {
		line.ShareAfter = percent((own + more) * 1_000_000 / (siblings + more))
	}
	if full.Project != 0 {
		used, err := s.store.PoolUse(r.Context(), full.Project, l.Pool)
		if err != nil {
			return line, short, err
		}
		line.Delivered = hours(used)
	}
	return line, short, nil
}

// pastFacts says what the project had before.
func (s *server) pastFacts(r *http.Request, project ledger.GroupID) ([]view.Fact, error) {
	st, err := s.store.Statement(r.Context(), project, 0)
	if err != nil {
		return nil, err
	}
	var facts []view.Fact
	for _, p := range st.Pools {
		facts = append(facts, view.Fact{Name: "Awarded on " + p.PoolName, Value: p.Awarded.Hours() + " GPU-h", Exact: p.Awarded.Exact()},
			view.Fact{Name: "Spent of it", Value: p.Spent.Hours() + " GPU-h", Exact: p.Spent.Exact()})
	}
	return facts, nil
}

// decide answers a request.
func (s *server) decide(w http.ResponseWriter, r *http.Request) error {
	in, err := s.parseDecision(r)
	var out store.ReviewOutcome
	if err == nil {
		out, err = s.store.ReviewRequest(r.Context(), s.command(r), in)
	}
	if err != nil {
		err = refield(err, "amount.", "award_", "reason", "note", "slug", "")
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.reviewPage(r, f) })
	}
	flash := "Sent back to its author."
	switch out.State {
	case ledger.Awarded:
		flash = "Awarded. The project can use it now."
	case ledger.RequestDenied:
		flash = "Denied. Its author was told why."
	}
	return s.done(w, r, view.RequestURL(in.Request), flash)
}

func (s *server) parseDecision(r *http.Request) (store.ReviewCommand, error) {
	in := store.ReviewCommand{Request: ledger.RequestID(pathID(r)), Decision: ledger.Decision{
		Action:  ledger.RequestAction(r.PostFormValue("decision")),
		Version: formID(r, "version"), Reason: r.PostFormValue("note"),
	}}
	if in.Decision.Action != ledger.Award {
		return in, nil
	}
	var rs ledger.Refusals
	in.Decision.Amounts, rs = parseAmounts(r, "award_", 0)
	var refusal *ledger.Refusal
	if text := r.PostFormValue("first"); text != "" {
		if in.First, refusal = ledger.FirstDay("first", text, s.zone); refusal != nil {
			rs = append(rs, refusal)
		}
	}
	if text := r.PostFormValue("last"); text != "" {
		if in.Last, refusal = ledger.LastDay("last", text, s.zone); refusal != nil {
			rs = append(rs, refusal)
		}
	}
	if len(rs) > 0 {
		return in, rs
	}
	return in, nil
}
