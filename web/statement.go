package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// entriesShown is one page of a statement.
const entriesShown = 50

// project is a project's statement, now or as of a past instant.
func (s *server) project(w http.ResponseWriter, r *http.Request, g store.Group) error {
	asOf, err := s.parseAsOf(r.FormValue("as_of"))
	if err != nil {
		return err
	}
	st, err := s.store.Statement(r.Context(), g.ID, asOf)
	if err != nil {
		return err
	}
	now, actor := s.store.Now(), actorOf(r)
	m := view.Statement{
		ID: g.ID, Name: g.Title, AsOf: r.FormValue("as_of"), Past: st.Past, Zone: s.zone.String(),
		MaySubmit: actor.May(ledger.JobSubmit, g.Path, now) == nil, MayAsk: actor.May(ledger.RequestWrite, g.Path, now) == nil,
	}
	for _, p := range st.Pools {
		m.Pools = append(m.Pools, view.PoolSum{
			PoolID: p.Pool, Pool: p.PoolName, Awarded: hours(p.Awarded), Spent: hours(p.Spent), Running: hours(p.Running),
			Held: hours(p.Held - p.Running), Usable: hours(p.Usable), Expired: hours(p.Expired), Overrun: hours(p.Overrun),
		})
		m.Usable = append(m.Usable, usableOfPool(g, p))
		if p.Asked > 0 {
			m.Protection = append(m.Protection, protectionText(p, s.dayText(st.AskedSince)))
		}
	}
	for _, l := range st.Lots {
		m.Lots = append(m.Lots, s.lotRow(l, st.At))
	}
	for _, o := range st.Open {
		m.Open = append(m.Open, s.openRow(o))
	}
	if err := s.addEntries(r, &m, g, asOf); err != nil {
		return err
	}
	if err := s.addMembers(r, &m, g); err != nil {
		return err
	}
	if m.Idle, err = s.idleUse(r, g.ID); err != nil {
		return err
	}
	if actor.May(ledger.ExportCharges, g.Path, now) == nil {
		m.ExportURL = view.ExportURL + "?group=" + idText(g.ID)
	}
	shell := s.shell(r, "Budget of "+g.Title, "tree", statementAnswer(g, st))
	if shell.Crumbs, err = s.crumbs(r, g.Path); err != nil {
		return err
	}
	shell.Actions = s.projectActions(actor, g, m)
	return s.show(w, r, view.StatementPage(shell, m))
}

// protectionText compares what was asked for with what was needed.
func protectionText(p store.PoolBalance, since string) string {
	part, err := p.Ran.MulRatio(1_000_000, int64(p.Asked))
	used := int64(part)
	if err != nil || used > 1_000_000 {
		used = 1_000_000
	}
	text := "On " + p.PoolName + ", attempts that ended since " + since + " ran " + percent(used/10_000*10_000) + " of the time they asked protection for: " +
		p.Ran.Hours() + " of " + p.Asked.Hours() + " GPU-h."
	if used < 500_000 {
		text += " A shorter minimum runtime sets less aside and finds a start sooner."
	}
	return text
}

// parseAsOf reads a datetime-local field in the accounting zone; "" is now.
func (s *server) parseAsOf(text string) (ledger.Instant, error) {
	if text == "" {
		return 0, nil
	}
	at, refusal := s.localInstant("as_of", text)
	if refusal != nil {
		return 0, refusal
	}
	return at, nil
}

// localInstant reads a datetime-local field in the accounting zone.
func (s *server) localInstant(field, text string) (ledger.Instant, *ledger.Refusal) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, s.zone); err == nil {
			return ledger.At(t), nil
		}
	}
	return 0, invalid(field, "instant.unreadable", "Write the instant as 2026-11-30T14:20.")
}

func statementAnswer(g store.Group, st store.Statement) string {
	if len(st.Pools) == 0 {
		return g.Title + " has no GPU-hours yet: nothing was awarded."
	}
	verb, suspended := "can use", ""
	if st.Past {
		verb = "could use"
	} else if g.SuspendedAt != 0 {
		suspended = " It is suspended: nothing new starts."
	}
	var parts []string
	for _, p := range st.Pools {
		part := p.Usable.Hours() + " GPU-h on " + p.PoolName
		if p.LimitedBy != "" && p.LimitedBy != g.Path {
			part += " (limited by " + p.LimitedBy + ")"
		}
		parts = append(parts, part)
	}
	return g.Title + " " + verb + " " + strings.Join(parts, " and ") + "." + suspended
}

func usableOfPool(g store.Group, p store.PoolBalance) view.UsableRow {
	return view.UsableRow{
		ProjectID: g.ID, Project: g.Title, PoolID: p.Pool, Pool: p.PoolName, Usable: hours(p.Usable), LimitedBy: limitText(p.LimitedBy, g.Path),
		Bar: view.BudgetBar{
			Label: p.PoolName, URL: view.PoolURL(p.Pool), Total: max(p.Awarded, p.Spent+p.Held+p.Expired), Spent: p.Spent, Running: p.Running,
			Held: p.Held - p.Running, Expired: p.Expired, DuePPM: -1, ProjectedPPM: -1,
		},
	}
}

// limitText says who limits: the project's own lots, or a group above it.
func limitText(limitedBy, path string) string {
	switch limitedBy {
	case "":
		return "–"
	case path:
		return "its own lots"
	}
	return limitedBy
}

func (s *server) lotRow(l store.LotBalance, at ledger.Instant) view.LotRow {
	row := view.LotRow{
		ID: l.ID, Pool: l.PoolName, From: l.Request, First: view.When{Text: s.dayText(l.First), Exact: s.exact(l.First)}, Last: s.until(l.Last),
		Awarded: hours(l.Awarded), Spent: hours(l.Spent - l.Credited), Running: hours(l.Running), Held: hours(l.Held - l.Running), Available: hours(l.Available),
		State: "current",
	}
	expired := l.Expired
	switch {
	case at >= l.Last:
		row.State = "expired"
		expired += l.Available
	case at < l.First:
		row.State = "from " + s.day(l.First)
	}
	due := int64(-1)
	if span := int64(l.Last - l.First); at >= l.First && at < l.Last && span > 0 {
		due = int64((at - l.First).MillisSince(0)) * 1_000_000 / max(1, span/1000)
	}
	row.Bar = view.BudgetBar{
		Label: l.PoolName + ", " + l.PeriodName, Total: l.Awarded, Spent: l.Spent - l.Credited, Running: l.Running, Held: l.Held - l.Running,
		Expired: expired, DuePPM: due, ProjectedPPM: -1,
	}
	return row
}

// openRow is an attempt that occupies devices now.
func (s *server) openRow(o store.OpenAttempt) view.OpenRow {
	now := s.store.Now()
	row := view.OpenRow{JobID: o.Job, Job: cmp.Or(o.Name, "job "+idText(o.Job)), Pool: o.PoolName, Shape: shapeText(o.Nodes, o.GPUs, 1000, 0), Since: s.when(o.StartedAt), Held: hours(o.Held), Charged: hours(o.Charged)}
	switch {
	case o.Phase == "nominated" || o.Phase == "starting":
		row.Class, row.ClassText = view.MarkStarting, "starting"
	case o.Phase == "ending":
		row.Class, row.ClassText = view.MarkEnding, "ending"
	case !o.Funded:
		row.Class, row.ClassText = view.MarkUnfunded, "unfunded"
	case now < o.ProtectedUntil:
		row.Class, row.ClassText, row.Until = view.MarkProtected, "protected until "+s.clock(o.ProtectedUntil), s.when(o.ProtectedUntil)
	default:
		row.Class, row.ClassText, row.Until = view.MarkPast, "past protection", s.when(o.StartedAt.Add(o.HoldUntilMs))
	}
	return row
}

// addEntries lists what touched the project, newest first.
func (s *server) addEntries(r *http.Request, m *view.Statement, g store.Group, asOf ledger.Instant) error {
	q := store.MovementQuery{Project: g.ID, Before: formID(r, "before"), Newest: true, Limit: entriesShown}
	if asOf != 0 {
		q.To = asOf + 1 // the page includes its instant
	}
	page, err := s.store.Movements(r.Context(), q)
	if err != nil {
		return err
	}
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return err
	}
	for _, mv := range page.Movements {
		row := view.EntryRow{
			ID: mv.EntryID, At: s.when(mv.At), Kind: mv.Kind, Text: entryText(mv), URL: entryURL(mv), Key: mv.Key,
			Change: signed(mv.Change), Balance: hours(mv.Balance),
		}
		if i := slices.IndexFunc(pools, func(p store.Pool) bool { return p.ID == mv.Pool }); i >= 0 {
			row.Pool = pools[i].Name
		}
		m.Entries = append(m.Entries, row)
	}
	m.Pager.Shown = plural(int64(len(m.Entries)), "line")
	keep := url.Values{}
	if m.AsOf != "" {
		keep.Set("as_of", m.AsOf)
	}
	if q.Before != 0 {
		m.Pager.Newer = view.GroupURL(g.ID) + query(keep)
	}
	if page.Next != 0 {
		keep.Set("before", strconv.FormatInt(page.Next, 10))
		m.Pager.Older = view.GroupURL(g.ID) + query(keep)
	}
	return nil
}

// query writes values behind a "?", or nothing.
func query(v url.Values) string {
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// entryText says what an entry did to the project.
func entryText(mv store.Movement) string {
	var parts []string
	for _, p := range []struct {
		amount     ledger.Amount
		more, less string
	}{{mv.Held, "set aside", "no longer set aside"}, {mv.Spent - mv.Overrun, "spent", "unspent"}, {mv.Expired, "expired", "revived"}, {-mv.Credit, "credited", "credit taken back"}, {mv.Overrun, "beyond every lot", "beyond every lot, credited"}} {
		switch {
		case p.amount > 0:
			parts = append(parts, p.amount.Hours()+" GPU-h "+p.more)
		case p.amount < 0:
			parts = append(parts, (-p.amount).Hours()+" GPU-h "+p.less)
		}
	}
	text := strings.ToUpper(mv.Kind[:1]) + mv.Kind[1:]
	if id, ok := keyPart(mv.Key, "request"); ok {
		text += " of request " + id
	}
	if id, ok := keyPart(mv.Key, "attempt"); ok {
		text += " of attempt " + id
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// keyPart finds the number that follows a word in an entry's key.
func keyPart(key, word string) (string, bool) {
	parts := strings.Split(key, ":")
	i := slices.Index(parts, word)
	if i < 0 || i+1 >= len(parts) {
		return "", false
	}
	return parts[i+1], true
}

// entryURL leads to the cause that has a page of its own.
func entryURL(mv store.Movement) string {
	if mv.Job != 0 {
		return view.JobURL(mv.Job)
	}
	if id, ok := keyPart(mv.Key, "request"); ok {
		return view.RequestsURL + "/" + id
	}
	return ""
}

// addMembers lists who belongs to the project.
func (s *server) addMembers(r *http.Request, m *view.Statement, g store.Group) error {
	known, err := s.readMembership(r, g)
	if err != nil {
		return err
	}
	url := ""
	if actorOf(r).May(ledger.PeopleInvite, g.Path, s.store.Now()) == nil {
		url = view.GroupURL(g.ID) + "/member"
	}
	for _, p := range known.people {
		share, capGPUs := memberTexts(known.shares[p.Person])
		m.Members = append(m.Members, view.MemberRow{
			Share: share, Cap: capGPUs, URL: url, Key: uuid.NewString(), PersonID: p.Person, Name: p.Name,
			Role: roleName(p.Role), Usage: hours(known.used[p.Person]), Until: s.until(p.Until),
		})
	}
	return nil
}

func (s *server) projectActions(actor ledger.Actor, g store.Group, m view.Statement) []view.Action {
	var actions []view.Action
	if m.MaySubmit {
		actions = append(actions, view.Action{Text: "Submit a job", URL: view.NewJobURL + "?project=" + idText(g.ID), ID: "submit-job"})
	}
	if m.MayAsk {
		actions = append(actions, view.Action{Text: "Ask for GPU-hours", URL: view.NewRequestURL + "?project=" + idText(g.ID), ID: "ask"})
	}
	if m.ExportURL != "" {
		actions = append(actions, view.Action{Text: "Export charges", URL: m.ExportURL, ID: "export"})
	}
	if !m.MaySubmit && !m.MayAsk {
		actions = append(actions, view.Action{Text: "Ask to join", URL: view.JoinURL + "?project=" + idText(g.ID), ID: "ask-join"})
	}
	return append(actions, s.groupActions(actor, g)...)
}
