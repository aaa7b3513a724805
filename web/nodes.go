package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

// showNodes lists nodes by pool, and lets operators enrol new ones.
func (s *server) showNodes(w http.ResponseWriter, r *http.Request) error {
	page, err := s.nodesPage(r, newForm(), "")
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// nodesPage builds the list; token is a new enrolment token, shown once.
func (s *server) nodesPage(r *http.Request, form view.Form, token string) (templ.Component, error) {
	q := r.URL.Query()
	after, err := queryNumber(r, "after")
	if err != nil {
		return nil, err
	}
	page, err := s.readNodes(r, store.NodeQuery{Pool: q.Get("pool"), After: ledger.NodeID(after)})
	if err != nil {
		return nil, err
	}
	nodes := page.Nodes
	m := view.Nodes{Pager: view.Pager{Back: "First nodes", Forth: "More nodes", Shown: counted(len(nodes), "node shown", "nodes shown")}}
	if page.More {
		m.Pager.Older = view.NodesURL + "?" + url.Values{"pool": {q.Get("pool")}, "after": {idText(nodes[len(nodes)-1].ID)}}.Encode()
	}
	if after != 0 {
		m.Pager.Newer = view.NodesURL + "?" + url.Values{"pool": {q.Get("pool")}}.Encode()
	}
	for i, first := 0, 0; i < len(nodes); i++ {
		n := &nodes[i]
		m.Rows = append(m.Rows, s.nodeRow(n))
		if i+1 == len(nodes) || nodes[i+1].Pool != n.Pool {
			m.Grids = append(m.Grids, s.nodeGrid(n.PoolName, nodes[first:i+1]))
			first = i + 1
			if n.FrozenWhy != "" {
				m.Frozen += frozenText(n.PoolName, n.FrozenWhy) + " "
			}
		}
	}
	if mayAnywhere(actorOf(r), ledger.NodeEnrol, s.store.Now()) {
		m.Enrol = &view.Enrol{Form: form, Token: token}
		if m.Enrol.Pools, err = s.poolOptions(r, ""); err != nil {
			return nil, err
		}
		if token != "" {
			m.Enrol.Command = s.agentLine(token)
		}
	}
	answer := plural(int64(page.All), "node") + " enrolled, all healthy."
	if page.Unhealthy > 0 {
		verb := " are"
		if page.Unhealthy == 1 {
			verb = " is"
		}
		answer = fmt.Sprintf("%d of %s%s not healthy.", page.Unhealthy, plural(int64(page.All), "node"), verb)
	}
	shell := s.shell(r, "Nodes", "nodes", answer)
	if token == "" {
		shell.Refresh = r.URL.RequestURI()
	}
	return view.NodesPage(shell, m), nil
}

// agentLine is what to start on a machine that is to become a node.
func (s *server) agentLine(token string) string {
	return "TRANCHE_ENROL_TOKEN=" + token + " tranche agent --server " + s.cfg.PublicURL
}

// byChecks stands where a person's name would, for a drain that nobody asked for.
const byChecks = "its health checks"

// healthText is a node's health in one word: what an operator asked for first.
func healthText(n *store.NodeLine) string {
	if n.Health == "healthy" && n.Drain != "" {
		return "draining"
	}
	if n.Health == "healthy" && n.Degraded != 0 {
		return "degraded"
	}
	return n.Health
}

// note says in a few words why a node is not plainly healthy.
func note(n *store.NodeLine) string {
	text := n.HealthWhy
	switch {
	case n.Drain != "":
		text = n.Drain + " drain by " + cmp.Or(n.DrainBy, byChecks) + ": " + n.DrainWhy
	case n.Degraded != 0:
		text = "its health checks say: " + cmp.Or(n.CheckBadWhy, "degraded")
	}
	if n.Storage.Degraded != 0 {
		text = joinNotes(text, "storage degraded, counts with "+percentWhole(n.Storage.MeanPPM))
	}
	if n.Simulated {
		text = joinNotes(text, "simulated")
	}
	return text
}

func joinNotes(text, more string) string {
	if text == "" {
		return more
	}
	return text + ", " + more
}

func (s *server) nodeRow(n *store.NodeLine) view.NodeRow {
	return view.NodeRow{
		ID: n.ID, Name: n.Name, PoolID: n.Pool, Pool: n.PoolName, Health: healthText(n), Devices: len(n.Devices), Occupied: occupied(n),
		Heartbeat: s.whenReal(n.Heartbeat), Note: s.noteWithPlan(n),
	}
}

// noteWithPlan is note with the maintenance that is planned.
func (s *server) noteWithPlan(n *store.NodeLine) string {
	text := note(n)
	if !s.isMaintained(n) {
		return text
	}
	plan := "maintenance from " + s.when(n.MaintFrom).Exact + ": " + n.MaintWhy
	if text == "" {
		return plan
	}
	return text + "; " + plan
}

// occupied counts the devices that somebody holds.
func occupied(n *store.NodeLine) int {
	held := map[int32]bool{}
	for _, h := range n.Holders {
		for _, d := range h.Devices {
			held[d] = true
		}
	}
	return len(held)
}

// whenReal shows an instant of real time, which signs of life are measured in.
func (s *server) whenReal(at ledger.Instant) view.When {
	if at == 0 {
		return view.When{Text: "never"}
	}
	text := "just now"
	if seconds := s.store.Real().MillisSince(at) / 1000; seconds > 0 {
		text = ledger.FormatMillis(seconds*1000) + " ago"
	}
	return view.When{Text: text, Exact: at.Time().In(s.zone).Format("2006-01-02 15:04:05 MST")}
}

// nodeGrid draws nodes × devices.
func (s *server) nodeGrid(label string, nodes []store.NodeLine) view.NodeGrid {
	g := view.NodeGrid{Label: label}
	for i := range nodes {
		n := &nodes[i]
		node := view.GridNode{ID: n.ID, Name: n.Name, Health: healthText(n)}
		for _, d := range n.Devices {
			node.Devices = append(node.Devices, s.gridDevice(n, d))
		}
		g.Nodes = append(g.Nodes, node)
	}
	return g
}

// holderOf finds who holds a device; nil when it is idle.
func holderOf(n *store.NodeLine, index int32) *store.Holder {
	for i := range n.Holders {
		for _, d := range n.Holders[i].Devices {
			if d == index {
				return &n.Holders[i]
			}
		}
	}
	return nil
}

func (s *server) gridDevice(n *store.NodeLine, d store.DeviceLine) view.GridDevice {
	h := holderOf(n, d.Index)
	if h == nil {
		if d.Dead || n.Health == "lost" {
			return view.GridDevice{Mark: view.MarkDown}
		}
		return view.GridDevice{Mark: view.MarkIdle}
	}
	state, mark := s.stateOf(&h.Job)
	return view.GridDevice{Mark: mark, Who: heldBy(&h.Job), Until: state, Why: holderText(&h.Job), URL: view.JobURL(h.Job.ID)}
}

// heldBy names a device's holder and its project.
func heldBy(j *store.JobLine) string {
	if j.ID == scheduler.HiddenJob {
		return scheduler.JobName(j.ID)
	}
	return jobName(j) + ", " + j.Title
}

// holderText says what a device's holder takes, and whose it is.
func holderText(j *store.JobLine) string {
	if j.ID == scheduler.HiddenJob {
		return shapeOf(j)
	}
	return shapeOf(j) + " of " + j.Owner
}

// enrolToken makes an enrolment token and shows it once.
func (s *server) enrolToken(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	f := &formReader{values: r.PostForm}
	cmd := s.command(r)
	in := store.EnrolTokenInput{Pool: f.text("pool"), Hours: f.number("hours"), Uses: int(max(1, f.number("uses"))), Secret: s.mint(cmd, "enrol")}
	var err error
	if len(f.refusals) > 0 {
		err = f.refusals
	} else {
		_, err = s.store.CreateEnrolToken(r.Context(), cmd, in)
	}
	if err != nil {
		return s.again(w, r, err, func(form view.Form) (templ.Component, error) { return s.nodesPage(r, form, "") })
	}
	page, err := s.nodesPage(r, newForm(), in.Secret)
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// showNode is one node: its devices, who is on them, what people did to it.
func (s *server) showNode(w http.ResponseWriter, r *http.Request) error {
	page, err := s.nodePage(r, nodeForms{newForm(), newForm()})
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// nodeForms are the forms on a node's page.
type nodeForms struct{ drain, maintain view.Form }

func (s *server) nodePage(r *http.Request, forms nodeForms) (templ.Component, error) {
	d, err := s.readNode(r, ledger.NodeID(pathID(r)))
	if err != nil {
		return nil, err
	}
	n := &d.NodeLine
	m := view.Node{
		ID: n.ID, Name: n.Name, PoolID: n.Pool, Pool: n.PoolName, Health: healthText(n), Facts: s.nodeFacts(n), Grid: s.nodeGrid("", []store.NodeLine{*n}),
		Devices: s.deviceRows(n), Headroom: s.headroomOf(&d), Form: forms.drain, Maintain: forms.maintain, Zone: s.zone.String(), Maintenance: s.maintenanceText(n), MayDrain: mayAnywhere(actorOf(r), ledger.NodeWrite, s.store.Now()), Draining: n.Drain != "", Waits: s.drainText(n),
	}
	for i := range n.Holders {
		row := s.runningRow(&n.Holders[i].Job)
		row.Node = n.Name
		m.Attempts = append(m.Attempts, row)
	}
	for i := range d.Events {
		m.Events = append(m.Events, s.nodeEvent(&d.Events[i]))
	}
	answer := plural(int64(len(n.Holders)), "job") + " on " + plural(int64(len(n.Devices)), "device") + "; it is " + m.Health + "."
	if why := note(n); why != "" && m.Health != "healthy" {
		answer = plural(int64(len(n.Holders)), "job") + " on " + plural(int64(len(n.Devices)), "device") + "; it is " + m.Health + ": " + why + "."
	}
	shell := s.shell(r, n.Name, "nodes", answer)
	shell.Crumbs = []view.Link{{Text: "Nodes", URL: view.NodesURL}, {Text: n.PoolName, URL: view.PoolURL(n.Pool)}}
	shell.Refresh = r.URL.Path
	return view.NodePage(shell, m), nil
}

func (s *server) nodeFacts(n *store.NodeLine) []view.Fact {
	facts := []view.Fact{
		{Name: "Capacity", Value: plural(int64(len(n.Devices)), "device") + ", " + milliText(n.CPUMilli) + " cores, " + gibText(n.RAMMiB)},
		{Name: "Heard of", Value: s.whenReal(n.Heartbeat).Text, Exact: s.whenReal(n.Heartbeat).Exact},
		{Name: "Agent", Value: n.Version},
		{Name: "Enrolled", Value: s.when(n.Enrolled).Text, Exact: s.when(n.Enrolled).Exact},
	}
	if n.Topology != "" {
		facts = append(facts, view.Fact{Name: "Place", Value: n.Topology})
	}
	facts = append(facts, flowFacts(n)...)
	if n.CheckLast != scheduler.CheckNone {
		said := string(n.CheckLast)
		if n.CheckWhy != "" {
			said += ": " + n.CheckWhy
		}
		facts = append(facts, view.Fact{Name: "Last health check", Value: said, ID: "node-check"})
	}
	if n.Degraded != 0 {
		since := s.whenReal(n.Degraded)
		facts = append(facts, view.Fact{Name: "Degraded since", Value: since.Text, Exact: since.Exact, ID: "node-degraded"})
	}
	switch {
	case n.RepairDone != 0:
		facts = append(facts, view.Fact{Name: "Repair hook", Value: s.when(n.RepairDone).Text + ": " + n.Repaired, Exact: s.when(n.RepairDone).Exact, ID: "node-repair"})
	case n.RepairAsked != 0:
		facts = append(facts, view.Fact{Name: "Repair hook", Value: "ordered " + s.when(n.RepairAsked).Text, Exact: s.when(n.RepairAsked).Exact, ID: "node-repair"})
	}
	if text := note(n); text != "" {
		facts = append(facts, view.Fact{Name: "Note", Value: text, ID: "node-note"})
	}
	return facts
}

func (s *server) deviceRows(n *store.NodeLine) []view.DeviceRow {
	var rows []view.DeviceRow
	for _, d := range n.Devices {
		square := s.gridDevice(n, d)
		row := view.DeviceRow{Index: int(d.Index), Model: d.Model, UUID: d.UUID, Mark: square.Mark, Health: "healthy"}
		if d.Dead {
			row.Health = "dead"
		}
		if d.Seen != 0 {
			row.Use, row.Memory = strconv.FormatInt(d.UtilPct, 10)+" %", fmt.Sprintf("%d of %d GiB", d.HBMUsedMiB/1024, d.HBMMiB/1024)
		}
		if h := holderOf(n, d.Index); h != nil {
			row.Who, row.JobID = jobName(&h.Job), h.Job.ID
			if h.Job.ID == scheduler.HiddenJob {
				row.Who = heldBy(&h.Job)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// drainText says what a drain would do now, or what ends the one there is.
func (s *server) drainText(n *store.NodeLine) string {
	switch {
	case n.Drain != "" && n.DrainBy == "":
		return "Its health checks drained it, and give it back after a row of good ones. Taken back by hand, it gets a while before they drain it again."
	case n.Drain != "":
		return ""
	}
	if len(n.Holders) == 0 {
		return "Nothing runs here: it is empty at once."
	}
	var last ledger.Instant
	for i := range n.Holders {
		if a := n.Holders[i].Job.Last; a != nil && a.Funded {
			last = max(last, a.ProtectedUntil)
		}
	}
	soft := "Soft: empty within minutes. "
	if last > s.store.Now() {
		soft = "Soft: empty soon after " + s.clockOrDay(last) + ". "
	}
	return soft + "Hard: " + counted(len(n.Holders), "job stops", "jobs stop") + " now; what was charged since their last checkpoint is credited."
}

// nodeEvent says what somebody did to a node.
func (s *server) nodeEvent(e *store.NodeEvent) view.HistoryRow {
	row := view.HistoryRow{At: s.when(e.At), By: e.By, Verb: e.Verb}
	if m, ok := e.MaintenanceOf(); ok {
		row.Verb, row.Words = "planned maintenance from "+s.when(m.From).Exact, m.Why
		if m.From == 0 {
			row.Verb = "took the planned maintenance back"
		}
	}
	if result, ok := e.RepairOf(); ok {
		row.By, row.Verb, row.Words = "The node", "ran its repair hook", result
	}
	if after, ok := e.StorageOf(); ok {
		row = storageEvent(row, after)
	}
	if before, after, ok := e.CheckOf(); ok {
		row.By, row.Verb, row.Words = "Its health checks", checkText(before, after), after.Why
		if !after.Degraded {
			row.Words = "" // of the last bad one, which is over
		}
	}
	if mode, why, ok := e.DrainOf(); ok {
		row.Verb, row.Words = mode+" drain", why
		if mode == "" {
			row.Verb = "took it into work again"
		}
	}
	return row
}

// checkText says what a row of health checks has led to.
func checkText(before, after store.CheckOutcome) string {
	switch {
	case after.Drain != "" && before.Drain == "":
		return "drained it, " + after.Drain
	case after.Degraded:
		return "found it degraded; nothing new starts on it"
	case before.Drain != "" && after.Drain == "":
		return "found it good again and gave it back"
	}
	return "found it good again"
}

// drainNode keeps new work off a node.
func (s *server) drainNode(w http.ResponseWriter, r *http.Request) error {
	id := ledger.NodeID(pathID(r))
	err := s.store.DrainNode(r.Context(), s.command(r), id, r.PostFormValue("mode"), r.PostFormValue("reason"))
	if err != nil {
		return s.again(w, r, err, func(form view.Form) (templ.Component, error) {
			return s.nodePage(r, nodeForms{drain: form, maintain: newForm()})
		})
	}
	return s.done(w, r, view.NodeURL(id), "The node takes nothing new.")
}

// undrainNode lets a node take work again.
func (s *server) undrainNode(w http.ResponseWriter, r *http.Request) error {
	id := ledger.NodeID(pathID(r))
	if err := s.store.UndrainNode(r.Context(), s.command(r), id); err != nil {
		return err
	}
	return s.done(w, r, view.NodeURL(id), "The node takes work again.")
}
