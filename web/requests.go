package web

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// requestsShown is one page of the list.
const requestsShown = 50

// requests lists what this person may read, newest first.
func (s *server) requests(w http.ResponseWriter, r *http.Request) error {
	actor := actorOf(r)
	q := store.RequestQuery{State: ledger.RequestState(r.FormValue("state")), Before: ledger.RequestID(formID(r, "before")), Limit: requestsShown + 1}
	list, err := s.store.Requests(r.Context(), actor, q)
	if err != nil {
		return err
	}
	m := view.Requests{State: string(q.State), MayAsk: true}
	if len(list) > requestsShown {
		list = list[:requestsShown]
		m.Pager.Older = r.URL.Path + "?state=" + string(q.State) + "&before=" + idText(list[len(list)-1].ID)
	}
	if q.Before != 0 {
		m.Pager.Newer = r.URL.Path + "?state=" + string(q.State)
	}
	m.Rows = s.requestRows(actor, list)
	m.Pager.Shown = plural(int64(len(list)), "request")
	waiting := 0
	for _, row := range m.Rows {
		if row.Mine {
			waiting++
		}
	}
	answer := "No request waits for you."
	if waiting > 0 {
		answer = plural(int64(waiting), "request") + " here wait for your answer."
	}
	return s.show(w, r, view.RequestsPage(s.shell(r, "Requests", "requests", answer), m))
}

// requestRows shows requests in a list.
func (s *server) requestRows(actor ledger.Actor, list []store.RequestRow) []view.RequestRow {
	var out []view.RequestRow
	for _, row := range list {
		asked, awarded := lineTexts(row)
		out = append(out, view.RequestRow{
			ID: row.ID, Project: row.Title, Purpose: firstLine(row.Purpose), Period: row.PeriodName, Asked: asked, Awarded: awarded,
			State: string(row.State), StateText: stateText(row), At: s.when(row.ChangedAt), By: row.ChangedBy, Mine: s.mayAnswer(actor, row) == nil,
		})
	}
	return out
}

// mayAnswer says why the actor may not answer a request, or nil.
func (s *server) mayAnswer(actor ledger.Actor, row store.RequestRow) *ledger.Refusal {
	now := s.store.Now()
	switch {
	case row.State != ledger.Submitted:
		return &ledger.Refusal{Kind: ledger.Conflict, Code: "request.state", Detail: "This request does not wait for an answer: it is " + string(row.State) + "."}
	case row.Author == actor.Person:
		return &ledger.Refusal{Kind: ledger.Denied, Code: "review.own", Detail: "You wrote this request, so another manager must review it."}
	case actor.Leads(row.Path, now):
		return &ledger.Refusal{Kind: ledger.Denied, Code: "review.leads", Detail: "You lead this project, so another manager must review its request."}
	}
	return actor.May(ledger.RequestReview, row.Path, now)
}

// lineTexts writes what was asked and awarded: "12,000 on h100".
func lineTexts(row store.RequestRow) (asked, awarded string) {
	var a, b []string
	for _, l := range row.Lines {
		a = append(a, l.Asked.Hours()+" on "+l.PoolName)
		if row.State == ledger.Awarded {
			b = append(b, l.Awarded.Hours()+" on "+l.PoolName)
		}
	}
	if len(b) == 0 {
		b = []string{"–"}
	}
	return strings.Join(a, ", "), strings.Join(b, ", ")
}

// sumTexts writes the same for a sentence: "12,000 GPU-h on h100 and 40 GPU-h on a100".
func sumTexts(lines []store.RequestLineRow) (asked, awarded string) {
	var a, b []string
	for _, l := range lines {
		a = append(a, l.Asked.Hours()+" GPU-h on "+l.PoolName)
		b = append(b, l.Awarded.Hours()+" GPU-h on "+l.PoolName)
	}
	return strings.Join(a, " and "), strings.Join(b, " and ")
}

func firstLine(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if r := []rune(line); len(r) > 120 {
		return string(r[:119]) + "…"
	}
	if more {
		return line + " …"
	}
	return line
}

func stateText(row store.RequestRow) string {
	switch row.State {
	case ledger.Submitted:
		return "waits for a manager of its program"
	case ledger.Returned:
		return "sent back to " + row.AuthorName
	case ledger.Awarded:
		for _, l := range row.Lines {
			if l.Awarded < l.Asked {
				return "awarded in part"
			}
		}
		return "awarded"
	}
	return string(row.State)
}

// request is one request with its whole history.
func (s *server) request(w http.ResponseWriter, r *http.Request) error {
	full, err := s.store.Request(r.Context(), actorOf(r), ledger.RequestID(pathID(r)))
	if err != nil {
		return err
	}
	m := s.requestView(actorOf(r), full)
	asked, awarded := sumTexts(full.Lines)
	answer := full.AuthorName + " asks for " + asked + " for " + full.Title + " in " + full.PeriodName + "."
	if full.State == ledger.Awarded {
		answer = full.Title + " was awarded " + awarded + " in " + full.PeriodName + "; asked were " + asked + "."
	}
	return s.show(w, r, view.RequestPage(s.requestShell(r, "Request "+idText(full.ID), answer), m))
}

func (s *server) requestShell(r *http.Request, title, answer string) view.Shell {
	shell := s.shell(r, title, "requests", answer)
	shell.Crumbs = []view.Link{{Text: "Requests", URL: view.RequestsURL}}
	return shell
}

func (s *server) requestView(actor ledger.Actor, full store.RequestFull) view.Request {
	mine := full.Author == actor.Person
	m := view.Request{
		ID: full.ID, Kind: "new budget", Project: full.Title, ProjectID: full.Project, Program: full.ProgramTitle, Period: full.PeriodName,
		By: full.AuthorName, State: string(full.State), StateText: stateText(full.RequestRow), Purpose: full.Purpose, Outcome: full.Outcome, Deadline: s.day(full.Deadline),
		MayReview: s.mayAnswer(actor, full.RequestRow) == nil, Version: full.Version, Key: newForm().Key,
	}
	m.MayEdit = mine && (full.State == ledger.Returned || full.State == ledger.Draft)
	m.MayWithdraw = mine && (full.State == ledger.Draft || full.State == ledger.Submitted || full.State == ledger.Returned)
	names := map[ledger.PoolID]string{}
	for _, l := range full.Lines {
		names[l.Pool] = l.PoolName
		line := view.RequestedLine{Pool: l.PoolName, Asked: hours(l.Asked)}
		if full.State == ledger.Awarded {
			line.Awarded = hours(l.Awarded)
		}
		m.Lines = append(m.Lines, line)
	}
	if n := full.New; n != nil {
		m.New = []view.Fact{{Name: "New project", Value: n.Title, ID: "new-project"}, {Name: "Cost centre", Value: cmp.Or(n.CostCentre, "–")}}
		if len(n.Members) > 0 {
			m.New = append(m.New, view.Fact{Name: "Members to invite", Value: strings.Join(n.Members, ", ")})
		}
	}
	for _, e := range full.Events {
		m.History = append(m.History, view.HistoryRow{At: s.when(e.At), By: e.By, Verb: stepText(e, names), Words: e.Note})
	}
	return m
}

// stepText says what somebody did: "asked for 12,000 GPU-h on h100".
func stepText(e store.RequestEvent, names map[ledger.PoolID]string) string {
	var asked, awarded []string
	for _, l := range e.Lines {
		name := cmp.Or(names[l.Pool], "a pool")
		asked = append(asked, l.Asked.Hours()+" GPU-h on "+name)
		awarded = append(awarded, l.Awarded.Hours()+" GPU-h on "+name)
	}
	switch e.Action {
	case ledger.Submit:
		return "asked for " + strings.Join(asked, " and ")
	case ledger.Edit:
		return "wrote a draft"
	case ledger.Award:
		return "awarded " + strings.Join(awarded, " and ")
	case ledger.Deny:
		return "denied it"
	case ledger.Return:
		return "sent it back"
	}
	return "withdrew it"
}

// newRequest shows the form, empty or filled from the request ?from= names.
func (s *server) newRequest(w http.ResponseWriter, r *http.Request) error {
	form := newForm()
	if project := r.FormValue("project"); project != "" {
		form.Values["project"] = []string{project}
	}
	page, err := s.requestFormPage(r, ledger.RequestID(formID(r, "from")), form)
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// requestFormPage draws the form. from is the draft or returned request that is
// sent again, 0 for a new one.
func (s *server) requestFormPage(r *http.Request, from ledger.RequestID, form view.Form) (templ.Component, error) {
	actor, now := actorOf(r), s.store.Now()
	m := view.RequestForm{Form: form, ID: from}
	var old *store.RequestFull
	if from != 0 {
		full, err := s.store.Request(r.Context(), actor, from)
		if err != nil {
			return nil, err
		}
		old, m.Version = &full, full.Version
		if len(form.Refusals) == 0 {
			s.fillForm(m.Form, full)
		}
		if n := len(full.Events); full.State == ledger.Returned && n > 0 {
			m.Note = full.Events[n-1].Note
		}
	}
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		switch {
		case !g.Project:
			m.Programs = append(m.Programs, view.Option{Value: idText(g.ID), Text: g.Title + " (" + g.Path + ")"})
		case actor.May(ledger.RequestWrite, g.Path, now) == nil:
			m.Projects = append(m.Projects, view.Option{Value: idText(g.ID), Text: g.Title})
		}
	}
	m.Projects = append(m.Projects, view.Option{Value: "new", Text: "a new project, named below"})
	if err := s.addPeriods(r, &m, old); err != nil {
		return nil, err
	}
	title := "Ask for GPU-hours"
	if from != 0 {
		title = "Send request " + idText(from) + " again"
	}
	return view.RequestFormPage(s.requestShell(r, title, "A manager of the program answers; until then nothing is set aside."), m), nil
}

// addPeriods offers periods that are not over, and the pools they supply.
func (s *server) addPeriods(r *http.Request, m *view.RequestForm, old *store.RequestFull) error {
	periods, err := s.store.Periods(r.Context())
	if err != nil {
		return err
	}
	supplies, err := s.store.Supplies(r.Context())
	if err != nil {
		return err
	}
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return err
	}
	now := s.store.Now()
	slices.Reverse(periods) // the present one first
	supplied := map[ledger.PoolID]bool{}
	for _, p := range periods {
		if p.Last <= now || p.Closed || (old != nil && old.Period != p.ID) {
			continue
		}
		m.Periods = append(m.Periods, view.Option{Value: idText(p.ID), Text: p.Name + " (" + s.day(p.First) + " to " + s.lastDay(p.Last) + ")"})
		for _, y := range supplies {
			supplied[y.Pool] = supplied[y.Pool] || y.Period == p.ID
		}
	}
	for _, p := range pools {
		if supplied[p.ID] {
			m.Lines = append(m.Lines, view.RequestLine{PoolID: p.ID, Pool: p.Name, Device: p.GPUModel})
		}
	}
	return nil
}

// fillForm types a stored request into the form.
func (s *server) fillForm(form view.Form, full store.RequestFull) {
	set := func(name, value string) { form.Values[name] = []string{value} }
	set("period", idText(full.Period))
	set("project", idText(full.Project))
	set("purpose", full.Purpose)
	set("outcome", full.Outcome)
	set("deadline", s.lastDay(full.Deadline))
	for _, l := range full.Lines {
		set("hours_"+idText(l.Pool), l.Asked.Exact())
	}
	if n := full.New; n != nil {
		set("project", "new")
		set("new_name", n.Title)
		set("new_program", idText(full.Program))
		set("new_cost_centre", n.CostCentre)
		set("new_members", strings.Join(n.Members, "\n"))
	}
}

// saveRequest submits a request or keeps a draft; with {id} it sends one again.
func (s *server) saveRequest(w http.ResponseWriter, r *http.Request) error {
	id := ledger.RequestID(pathID(r))
	in, err := s.parseRequest(r, id)
	var saved ledger.RequestID
	if err == nil {
		saved, err = s.store.SaveRequest(r.Context(), s.command(r), in)
	}
	if err != nil {
		err = refield(err, "amount.", "hours_", "lines", "period")
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.requestFormPage(r, id, f) })
	}
	if !in.Submit {
		return s.done(w, r, view.RequestURL(saved), "Kept as a draft. Nobody else sees it.")
	}
	return s.done(w, r, view.RequestURL(saved), "Asked. A manager of the program answers.")
}

// parseRequest reads the form; every unreadable field is named.
func (s *server) parseRequest(r *http.Request, id ledger.RequestID) (store.RequestInput, error) {
	in := store.RequestInput{
		ID: id, Version: formID(r, "version"), Period: ledger.PeriodID(formID(r, "period")),
		Purpose: r.PostFormValue("purpose"), Outcome: r.PostFormValue("outcome"), Submit: r.PostFormValue("verb") != "draft",
	}
	if r.PostFormValue("project") == "new" {
		in.Program = ledger.GroupID(formID(r, "new_program"))
		in.New = &store.NewProject{
			Title: r.PostFormValue("new_name"), CostCentre: strings.TrimSpace(r.PostFormValue("new_cost_centre")),
			Members: strings.Fields(strings.NewReplacer(",", " ", ";", " ").Replace(r.PostFormValue("new_members"))),
		}
	} else {
		in.Project = ledger.GroupID(formID(r, "project"))
	}
	var rs ledger.Refusals
	if text := r.PostFormValue("deadline"); text != "" {
		var refusal *ledger.Refusal
		if in.Deadline, refusal = ledger.LastDay("deadline", text, s.zone); refusal != nil {
			rs = append(rs, refusal)
		}
	}
	lines, more := parseAmounts(r, "hours_", 1)
	for _, l := range lines {
		in.Lines = append(in.Lines, ledger.RequestLine{Pool: l.Pool, Asked: l.Amount})
	}
	if rs = append(rs, more...); len(rs) > 0 {
		return in, rs
	}
	return in, nil
}

// parseAmounts reads the fields "<prefix><pool id>" that are filled in, by pool.
func parseAmounts(r *http.Request, prefix string, low ledger.Amount) ([]ledger.PoolAmount, ledger.Refusals) {
	var out []ledger.PoolAmount
	var rs ledger.Refusals
	for field := range r.PostForm {
		rest, ok := strings.CutPrefix(field, prefix)
		text := strings.TrimSpace(r.PostFormValue(field))
		pool, err := strconv.ParseInt(rest, 10, 64)
		if !ok || err != nil || text == "" {
			continue
		}
		amount, refusal := ledger.ParseGPUHours(field, text, low)
		if refusal != nil {
			rs = append(rs, refusal)
			continue
		}
		out = append(out, ledger.PoolAmount{Pool: ledger.PoolID(pool), Amount: amount})
	}
	slices.SortFunc(out, func(a, b ledger.PoolAmount) int { return cmp.Compare(a.Pool, b.Pool) })
	slices.SortFunc(rs, func(a, b *ledger.Refusal) int { return strings.Compare(a.Field, b.Field) })
	return out, rs
}

// withdraw takes a request back.
func (s *server) withdraw(w http.ResponseWriter, r *http.Request) error {
	id := ledger.RequestID(pathID(r))
	if err := s.store.WithdrawRequest(r.Context(), s.command(r), id, formID(r, "version")); err != nil {
		return err
	}
	return s.done(w, r, view.RequestURL(id), "Withdrawn. It stays in the history.")
}
