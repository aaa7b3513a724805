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

// plannedAvailabilityPPM is how much of the time devices are planned to be up.
const plannedAvailabilityPPM = 950_000

// periods lists accounting periods and offers to open the next.
func (s *server) periods(w http.ResponseWriter, r *http.Request) error {
	page, err := s.periodsPage(r, newForm())
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

func (s *server) periodsPage(r *http.Request, form view.Form) (templ.Component, error) {
	list, err := s.store.Periods(r.Context())
	if err != nil {
		return nil, err
	}
	supplies, err := s.store.Supplies(r.Context())
	if err != nil {
		return nil, err
	}
	m := view.Periods{Form: form, Zone: s.zone.String()}
	now := s.store.Now()
	answer := "No period is open: nothing can be awarded."
	for _, p := range list {
		row := view.PeriodRow{ID: p.ID, Name: p.Name, First: s.day(p.First), Last: s.lastDay(p.Last), State: "open"}
		var parts []string
		for _, y := range supplies {
			if y.Period == p.ID {
				parts = append(parts, y.Amount.Hours()+" on "+y.PoolName)
			}
		}
		row.Supply = strings.Join(parts, ", ")
		switch {
		case p.Closed:
			row.State = "closed"
		case now < p.First:
			row.State = "from " + s.day(p.First)
		case now >= p.Last:
			row.State = "over"
		default:
			answer = p.Name + " runs until the end of " + s.lastDay(p.Last) + "."
		}
		m.Rows = append(m.Rows, row)
	}
	if m.Proposed, err = s.proposedSupply(r, form); err != nil {
		return nil, err
	}
	return view.PeriodsPage(s.shell(r, "Periods", "periods", answer), m), nil
}

// proposedSupply is devices × seconds × planned availability of the days typed so
// far; before that the devices are said, and the supply is computed when opened.
func (s *server) proposedSupply(r *http.Request, form view.Form) ([]view.PeriodSupply, error) {
	pools, err := s.store.PoolDevices(r.Context())
	if err != nil {
		return nil, err
	}
	first, noFirst := ledger.FirstDay("first", form.Value("first"), s.zone)
	last, noLast := ledger.LastDay("last", form.Value("last"), s.zone)
	var out []view.PeriodSupply
	for _, p := range pools {
		line := view.PeriodSupply{PoolID: p.Pool, Pool: p.Name, Help: fmt.Sprintf("Left empty: %s × the period's hours × %s.", plural(p.Devices, "device"), percent(plannedAvailabilityPPM))}
		if noFirst == nil && noLast == nil {
			if amount, refusal := (ledger.Period{First: first, Last: last}).Supply(p.Devices, plannedAvailabilityPPM); refusal == nil {
				line.Hours = amount.Hours()
			}
		}
		out = append(out, line)
	}
	return out, nil
}

// openPeriod opens a period with its supplies.
func (s *server) openPeriod(w http.ResponseWriter, r *http.Request) error {
	in, err := s.parsePeriod(r)
	if err == nil {
		_, err = s.store.OpenPeriod(r.Context(), s.command(r), in)
	}
	if err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.periodsPage(r, f) })
	}
	return s.done(w, r, view.PeriodsURL, "Opened. Its supply is in the root's pot.")
}

func (s *server) parsePeriod(r *http.Request) (store.PeriodInput, error) {
	in := store.PeriodInput{Name: r.PostFormValue("name"), Zone: s.zone.String()}
	var rs ledger.Refusals
	keep := func(refusal *ledger.Refusal) {
		if refusal != nil {
			rs = append(rs, refusal)
		}
	}
	var refusal *ledger.Refusal
	in.First, refusal = ledger.FirstDay("first", r.PostFormValue("first"), s.zone)
	keep(refusal)
	in.Last, refusal = ledger.LastDay("last", r.PostFormValue("last"), s.zone)
	keep(refusal)
	pools, err := s.store.PoolDevices(r.Context())
	if err != nil {
		return in, err
	}
	typed, unreadable := parseAmounts(r, "supply_", 0)
	rs = append(rs, unreadable...)
	for _, p := range pools {
		y := store.SupplyInput{Pool: p.Pool, Devices: p.Devices, AvailabilityPPM: plannedAvailabilityPPM}
		if i := slices.IndexFunc(typed, func(a ledger.PoolAmount) bool { return a.Pool == p.Pool }); i >= 0 {
			if y.Amount = typed[i].Amount; y.Amount == 0 {
				continue // 0: this pool supplies nothing
			}
		} else if p.Devices == 0 {
			continue // nothing enrolled, nothing typed
		}
		in.Supplies = append(in.Supplies, y)
	}
	if len(rs) > 0 {
		return in, rs
	}
	return in, nil
}

// adminPools lists pools and offers to make one.
func (s *server) adminPools(w http.ResponseWriter, r *http.Request) error {
	page, err := s.adminPoolsPage(r, newForm())
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

func (s *server) adminPoolsPage(r *http.Request, form view.Form) (templ.Component, error) {
	pools, err := s.store.Occupancy(r.Context())
	if err != nil {
		return nil, err
	}
	demand, err := s.demands(r)
	if err != nil {
		return nil, err
	}
	rows := make([]view.PoolRow, len(pools))
	for i := range pools {
		rows[i] = poolRow(&pools[i])
	}
	return view.AdminPoolsPage(s.shell(r, "Pools set up", "admin-pools", plural(int64(len(rows)), "pool")+" set up."), view.AdminPools{Form: form, Rows: rows, Demand: demand}), nil
}

// createPool makes a pool; its node numbers are those of one node.
func (s *server) createPool(w http.ResponseWriter, r *http.Request) error {
	in := store.Pool{
		Name: strings.TrimSpace(r.PostFormValue("name")), GPUModel: strings.TrimSpace(r.PostFormValue("device")), RatePPM: formID(r, "rate_ppm"),
		NodeGPUs: formID(r, "gpus"), NodeCPUMilli: formID(r, "cpus") * 1000, NodeRAMMiB: formID(r, "memory_gib") * 1024, NodeHBMMiB: formID(r, "hbm_gib") * 1024,
		Demand: demandForm(r),
	}
	if in.GPUModel == "" {
		in.NodeGPUs, in.NodeHBMMiB = 0, 0
	}
	id, err := s.store.CreatePool(r.Context(), s.command(r), in)
	if err != nil {
		err = refield(err, "node_gpus", "gpus", "node_cpu_milli", "cpus", "node_ram_mib", "memory_gib", "node_hbm_mib", "hbm_gib", "gpu_net_mbps", "net_mbps", "gpu_sto_mbps", "sto_mbps", "gpu_ioc_milli", "io_milli")
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.adminPoolsPage(r, f) })
	}
	return s.done(w, r, view.PoolURL(id), "Made. Enrol nodes into it next.")
}

// groups lists the tree and offers to make a program or project.
func (s *server) groups(w http.ResponseWriter, r *http.Request) error {
	page, err := s.groupsPage(r, newForm())
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

func (s *server) groupsPage(r *http.Request, form view.Form) (templ.Component, error) {
	rows, err := s.readTree(r, 0, 0)
	if err != nil {
		return nil, err
	}
	m := view.Groups{Form: form}
	now := s.store.Now()
	for _, row := range rows {
		m.Programs = append(m.Programs, treeRow(row, 1))
		if !row.Project && actorOf(r).May(ledger.TreeWrite, row.Path, now) == nil {
			m.Parents = append(m.Parents, view.Option{Value: idText(row.ID), Text: row.Title + " (" + row.Path + ")"})
		}
	}
	return view.GroupsPage(s.shell(r, "Programs and projects", "groups", plural(int64(len(rows)), "group")+" in the tree."), m), nil
}

// createGroup makes a program or project.
func (s *server) createGroup(w http.ResponseWriter, r *http.Request) error {
	in := store.GroupInput{
		Parent: ledger.GroupID(formID(r, "parent")), Project: r.PostFormValue("kind") == "project",
		Title: r.PostFormValue("name"), CostCentre: r.PostFormValue("cost_centre"),
	}
	id, err := s.store.CreateGroup(r.Context(), s.command(r), in)
	if err != nil {
		return s.again(w, r, refield(err, "slug", "name"), func(f view.Form) (templ.Component, error) { return s.groupsPage(r, f) })
	}
	return s.done(w, r, view.GroupURL(id), "Made. Give somebody a role here next.")
}

// auditShown is one page of the audit.
const auditShown = 100

// audit lists what people did, newest first.
func (s *server) audit(w http.ResponseWriter, r *http.Request) error {
	q := store.AuditQuery{Verb: r.FormValue("verb"), Person: ledger.PersonID(formID(r, "person")), Before: formID(r, "before"), Limit: auditShown + 1}
	lines, err := s.store.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	verbs, err := s.store.AuditVerbs(r.Context())
	if err != nil {
		return err
	}
	m := view.Audit{Verb: q.Verb, Person: r.FormValue("person"), Verbs: []view.Option{{Value: "", Text: "every deed"}}}
	for _, v := range verbs {
		m.Verbs = append(m.Verbs, view.Option{Value: v, Text: v})
	}
	keep := r.URL.Query()
	keep.Del("before")
	if q.Before != 0 {
		m.Pager.Newer = view.AuditURL + query(keep)
	}
	if len(lines) > auditShown {
		lines = lines[:auditShown]
		keep.Set("before", strconv.FormatInt(lines[auditShown-1].ID, 10))
		m.Pager.Older = view.AuditURL + query(keep)
	}
	for _, l := range lines {
		m.Rows = append(m.Rows, view.AuditRow{
			ID: l.ID, At: s.when(l.At), By: l.Name, From: l.Remote, Verb: l.Verb, What: l.Subject, URL: subjectURL(l.Subject),
			Before: string(l.Before), After: string(l.After),
		})
	}
	m.Pager.Shown = plural(int64(len(lines)), "deed")
	return s.show(w, r, view.AuditPage(s.shell(r, "Audit", "audit", plural(int64(len(lines)), "deed")+" on this page, newest first."), m))
}

// subjectURL leads from an audit line's subject ("request 17") to its page.
func subjectURL(subject string) string {
	what, id, ok := strings.Cut(subject, " ")
	pages := map[string]string{"request": view.RequestsURL, "group": "/groups", "job": view.JobsURL, "pool": view.PoolsURL, "node": view.NodesURL}
	if page := pages[what]; ok && page != "" {
		return page + "/" + id
	}
	return ""
}
