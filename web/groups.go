package web

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// choosePool gives the pool the address names, else the first; ID 0 without pools.
func (s *server) choosePool(r *http.Request) (store.Pool, []view.Option, error) {
	pools, err := s.store.Pools(r.Context())
	if err != nil || len(pools) == 0 {
		return store.Pool{}, nil, err
	}
	chosen := pools[0]
	var options []view.Option
	for _, p := range pools {
		options = append(options, view.Option{Value: idText(p.ID), Text: p.Name})
		if idText(p.ID) == r.FormValue("pool") {
			chosen = p
		}
	}
	return chosen, options, nil
}

// tree shows who owns which share of a pool.
func (s *server) tree(w http.ResponseWriter, r *http.Request) error {
	pool, pools, err := s.choosePool(r)
	if err != nil {
		return err
	}
	period, err := s.store.PeriodAt(r.Context(), s.store.Now())
	if err != nil {
		return err
	}
	rows, err := s.readTree(r, pool.ID, period.ID)
	if err != nil {
		return err
	}
	policy, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return err
	}
	m := view.Tree{Period: periodName(period), Pools: pools, Pool: idText(pool.ID)}
	for _, row := range rows {
		m.Rows = append(m.Rows, treeRow(row, policy.LookbackMs))
	}
	answer := "No pool has been set up yet."
	if len(rows) > 0 && pool.ID != 0 {
		root := rows[0]
		answer = "The " + pool.Name + " pool supplies " + root.Received.Hours() + " GPU-h in " + m.Period + "; " +
			root.Use.Spent.Hours() + " are spent, " + root.Use.Held.Hours() + " set aside, " + root.Use.Available.Hours() + " awarded and usable."
	}
	return s.show(w, r, view.TreePage(s.shell(r, "Who owns what", "tree", answer), m))
}

func periodName(p ledger.Period) string {
	if p.ID == 0 {
		return "no open period"
	}
	return p.Name
}

func treeRow(row store.TreeRow, lookbackMs int64) view.TreeRow {
	return view.TreeRow{
		ID: row.ID, Depth: strings.Count(row.Path, "/") - 1, Project: row.Project, Name: row.Title,
		Lead: strings.Join(row.Leads, ", "), Share: shareText(row), Standing: standingText(row, lookbackMs),
		Running: int((row.Running + 999) / 1000), Waiting: int(row.Waiting), Bar: useBar(row),
	}
}

func shareText(row store.TreeRow) string {
	if row.Parent == 0 {
		return "100 %"
	}
	if row.Weight == 0 {
		return "–"
	}
	return percent(row.SharePPM)
}

func standingText(row store.TreeRow, lookbackMs int64) string {
	if row.StandingAt == 0 || row.Standing.MicroGPU == 0 {
		return "–"
	}
	return row.Standing.Times(lookbackMs)
}

// useBar draws what a group has: a project its lots, a program its pot.
func useBar(row store.TreeRow) view.BudgetBar {
	total := row.Use.Given
	if !row.Project {
		total = max(row.Received, row.Use.Spent+row.Use.Held)
	}
	return view.BudgetBar{
		Label: row.Title, URL: view.GroupURL(row.ID), Total: total, Spent: row.Use.Spent, Held: row.Use.Held,
		Expired: row.Use.Expired, DuePPM: -1, ProjectedPPM: -1,
	}
}

// group is a program's page or a project's statement.
func (s *server) group(w http.ResponseWriter, r *http.Request) error {
	g, err := s.store.Group(r.Context(), ledger.GroupID(pathID(r)))
	if err != nil {
		return err
	}
	if g.Project {
		return s.project(w, r, g)
	}
	page, err := s.programPage(r, g, newForm())
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// crumbs lead from the root to a group's parent.
func (s *server) crumbs(r *http.Request, path string) ([]view.Link, error) {
	all, err := s.store.Ancestry(r.Context(), path)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var links []view.Link
	for _, g := range all[:len(all)-1] {
		links = append(links, view.Link{Text: g.Title, URL: view.GroupURL(g.ID)})
	}
	return links, nil
}

// programPage draws a program with its pots, its children and the split form.
func (s *server) programPage(r *http.Request, g store.Group, form view.Form) (templ.Component, error) {
	period, err := s.store.PeriodAt(r.Context(), s.store.Now())
	if err != nil {
		return nil, err
	}
	m := view.Program{ID: g.ID, Name: g.Title, Period: periodName(period)}
	pots, err := s.store.Pots(r.Context(), g.ID, period.ID)
	if err != nil {
		return nil, err
	}
	for _, p := range pots {
		m.Pots = append(m.Pots, potRow(p))
	}
	if m.Children, err = s.childRows(r, g, period.ID); err != nil {
		return nil, err
	}
	now := s.store.Now()
	if len(pots) > 0 && actorOf(r).May(ledger.SplitWrite, g.Path, now) == nil {
		if m.Split, err = s.splitForm(r, g, period.ID, pots, form); err != nil {
			return nil, err
		}
	}
	requests, err := s.store.Requests(r.Context(), actorOf(r), store.RequestQuery{Program: g.ID, Limit: 20})
	if err != nil {
		return nil, err
	}
	m.Requests = s.requestRows(actorOf(r), requests)
	if m.Idle, err = s.idleUse(r, g.ID); err != nil {
		return nil, err
	}
	shell := s.shell(r, g.Title, "tree", potAnswer(g, m.Period, pots))
	if shell.Crumbs, err = s.crumbs(r, g.Path); err != nil {
		return nil, err
	}
	shell.Actions = s.groupActions(actorOf(r), g)
	return view.ProgramPage(shell, m), nil
}

func potAnswer(g store.Group, period string, pots []store.Pot) string {
	var parts []string
	for _, p := range pots {
		if p.Received > 0 {
			parts = append(parts, p.Left.Hours()+" of "+p.Received.Hours()+" GPU-h on "+p.PoolName)
		}
	}
	if len(parts) == 0 {
		return g.Title + " has no pot in " + period + "."
	}
	return g.Title + " has " + strings.Join(parts, " and ") + " left to hand out in " + period + "."
}

func potRow(p store.Pot) view.PotRow {
	given := p.ToPrograms + p.ToProjects
	return view.PotRow{
		PoolID: p.Pool, Pool: p.PoolName, Received: hours(p.Received), Split: hours(p.ToPrograms), Awarded: hours(p.ToProjects), Left: hours(p.Left),
		Bar: view.BudgetBar{Label: p.PoolName, URL: view.PoolURL(p.Pool), Total: max(p.Received, given), Spent: given, Pot: true, DuePPM: -1, ProjectedPPM: -1},
	}
}

// childRows lists what is directly below a program, once per pool it has budget in.
func (s *server) childRows(r *http.Request, g store.Group, period ledger.PeriodID) ([]view.ChildRow, error) {
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return nil, err
	}
	policy, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return nil, err
	}
	var out []view.ChildRow
	listed := map[ledger.GroupID]bool{}
	for i, p := range pools {
		rows, err := s.readTree(r, p.ID, period)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			budget := row.Use.Given
			if !row.Project {
				budget = row.Received
			}
			last := i == len(pools)-1 && !listed[row.ID]
			if row.Parent != g.ID || (budget == 0 && !last) {
				continue
			}
			listed[row.ID] = true
			c := view.ChildRow{ID: row.ID, Name: row.Title, Project: row.Project, Lead: strings.Join(row.Leads, ", ")}
			if budget > 0 {
				c.Pool, c.Share, c.Standing = p.Name, shareText(row), standingText(row, policy.LookbackMs)
				c.Budget, c.Used, c.Usable = hours(budget), hours(row.Use.Spent), hours(row.Use.Available)
			}
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b view.ChildRow) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// splitForm is the form that divides one pool's pot.
func (s *server) splitForm(r *http.Request, g store.Group, period ledger.PeriodID, pots []store.Pot, form view.Form) (*view.Split, error) {
	pot := pots[0]
	for _, p := range pots {
		if idText(p.Pool) == r.FormValue("pool") {
			pot = p
		}
	}
	parts, err := s.store.Splits(r.Context(), g.ID, pot.Pool, period)
	if err != nil {
		return nil, err
	}
	m := &view.Split{
		Form: form, Period: period, Version: pot.Version, Pool: idText(pot.Pool), Pot: hours(pot.Received),
		PotMilliHours: int64(pot.Received / (ledger.GPUHour / 1000)), Mode: splitMode(r, parts),
	}
	for _, p := range pots {
		m.Pools = append(m.Pools, view.Option{Value: idText(p.Pool), Text: p.PoolName})
	}
	for _, p := range parts {
		row := view.SplitRow{ID: p.Child, Name: p.Title, Value: partText(p, pot, m.Mode), Other: percent(partPPM(p, pot)), Floor: hours(p.Floor)}
		if m.Mode == "percent" {
			row.Other = p.Amount.Hours() + " GPU-h"
		}
		m.Rows = append(m.Rows, row)
	}
	return m, nil
}

// partPPM is a part as it was given in percent, else what it comes to.
func partPPM(p store.SplitPart, pot store.Pot) int64 {
	if p.PPM > 0 {
		return p.PPM
	}
	return ratio(p.Amount, pot.Received)
}

// partText is what a part's field holds, exact to the ppm or to the unit.
func partText(p store.SplitPart, pot store.Pot, mode string) string {
	if mode != "percent" {
		return p.Amount.Exact()
	}
	ppm := partPPM(p, pot)
	text := fmt.Sprintf("%d.%04d", ppm/10_000, ppm%10_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// splitMode is the mode that was typed, else the one the newest split was given in.
func splitMode(r *http.Request, parts []store.SplitPart) string {
	if mode := r.FormValue("mode"); mode == "percent" || mode == "hours" {
		return mode
	}
	if slices.ContainsFunc(parts, func(p store.SplitPart) bool { return p.PPM > 0 }) {
		return "percent"
	}
	return "hours"
}

// split divides a program's pot.
func (s *server) split(w http.ResponseWriter, r *http.Request) error {
	g, err := s.store.Group(r.Context(), ledger.GroupID(pathID(r)))
	if err != nil {
		return err
	}
	in, err := s.parseSplit(r, g)
	if err == nil {
		_, err = s.store.SplitPot(r.Context(), s.command(r), in)
	}
	if err != nil {
		return s.again(w, r, refield(err, "part.", "share_"), func(f view.Form) (templ.Component, error) { return s.programPage(r, g, f) })
	}
	return s.done(w, r, view.GroupURL(g.ID)+"?pool="+idText(in.Pool), "The pot of "+g.Title+" is split. It takes effect at once.")
}

// parseSplit reads every child's part; a field left empty gives nothing. A part
// that was given in GPU-hours and stands unchanged among percentages is left as it
// is: what it comes to in percent is rounded.
func (s *server) parseSplit(r *http.Request, g store.Group) (store.SplitCommand, error) {
	in := store.SplitCommand{Program: g.ID, Pool: ledger.PoolID(formID(r, "pool")), Period: ledger.PeriodID(formID(r, "period")), Version: formID(r, "version")}
	var rs ledger.Refusals
	children, err := s.store.Splits(r.Context(), g.ID, in.Pool, in.Period)
	if err != nil {
		return in, err
	}
	pots, err := s.store.Pots(r.Context(), g.ID, in.Period)
	if err != nil {
		return in, err
	}
	var pot store.Pot
	if i := slices.IndexFunc(pots, func(p store.Pot) bool { return p.Pool == in.Pool }); i >= 0 {
		pot = pots[i]
	}
	for _, c := range children {
		field := "share_" + idText(c.Child)
		if _, sent := r.PostForm[field]; !sent {
			continue
		}
		want := store.SplitWant{Child: c.Child, ByPPM: r.PostFormValue("mode") == "percent"}
		var refusal *ledger.Refusal
		if text := strings.TrimSpace(r.PostFormValue(field)); text == "" {
			want.ByPPM = false
		} else if want.ByPPM && c.PPM == 0 && text == partText(c, pot, "percent") {
			continue
		} else if want.ByPPM {
			want.PPM, refusal = parsePercent(field, text)
		} else {
			want.Amount, refusal = ledger.ParseGPUHours(field, text, 0)
		}
		if refusal != nil {
			rs = append(rs, refusal)
			continue
		}
		in.Wants = append(in.Wants, want)
	}
	if len(rs) > 0 {
		return in, rs
	}
	return in, nil
}

// parsePercent reads "35", "35.5" or "35,5 %" as parts per million, exactly.
func parsePercent(field, text string) (int64, *ledger.Refusal) {
	t := strings.ReplaceAll(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%")), ",", ".")
	whole, rest, _ := strings.Cut(t, ".")
	if len(rest) > 4 {
		return 0, invalid(field, "percent.digits", "Write a percentage with at most four decimals.")
	}
	n, err := strconv.ParseUint(whole+rest+"0000"[len(rest):], 10, 32)
	if err != nil || whole == "" {
		return 0, invalid(field, "percent.unreadable", "Write a percentage, such as 35 or 12.5.")
	}
	return int64(n), nil
}

// formID is a number of a form field, 0 when it is none.
func formID(r *http.Request, field string) int64 {
	id, err := strconv.ParseInt(r.FormValue(field), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// groupActions offers what this person may do to a group as a whole.
func (s *server) groupActions(actor ledger.Actor, g store.Group) []view.Action {
	now := s.store.Now()
	actions := []view.Action{{Text: "People and roles", URL: view.MembersURL(g.ID), ID: "group-people"}}
	if actor.May(ledger.TreeWrite, g.Path, now) != nil {
		return actions
	}
	fields := func() []view.Option { return []view.Option{{Value: "key", Text: newForm().Key}} }
	verb := func(v string) string { return view.GroupVerbURL(g.ID, v) }
	if g.SuspendedAt == 0 {
		actions = append(actions, view.Action{
			Text: "Suspend", URL: verb("suspend"), Post: true, Harm: true, Fields: fields(), ID: "suspend",
			Confirm: "No waiting job below " + g.Title + " starts until it is resumed. What runs goes on and is charged.",
		})
	} else {
		actions = append(actions, view.Action{Text: "Resume", URL: verb("resume"), Post: true, Fields: fields(), ID: "resume", Help: "Waiting jobs may start again."})
	}
	if g.Parent != 0 {
		actions = append(actions, view.Action{
			Text: "Archive", URL: verb("archive"), Post: true, Harm: true, Fields: fields(), ID: "archive",
			Confirm: "Its books stay; nobody can use it any more. It must be empty and quiet.",
		})
	}
	return append(actions, view.Action{Text: "Change", URL: view.EditGroupURL(g.ID), ID: "group-edit"})
}
