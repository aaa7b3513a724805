package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"tranche/ledger"
	"tranche/store"
	"tranche/store/storetest"
)

const hour = ledger.GPUHour

// site is a server on an institute: /lab with programs Vision and Robots,
// projects Segmentation (here) and Arms (elsewhere), one pool, one period.
type site struct {
	t              testing.TB
	db             *storetest.DB
	store          *store.Store
	server         *server
	handler        http.Handler
	lab            ledger.GroupID
	vision, robots ledger.GroupID
	seg, arms      ledger.GroupID
	h100           ledger.PoolID
	q4             ledger.PeriodID
	persons        map[string]ledger.PersonID
	keys           int
}

// newSite makes the institute. The names of people say their roles: "pi here"
// leads Segmentation, "manager elsewhere" manages Robots.
func newSite(t testing.TB) *site {
	t.Helper()
	db := storetest.New(t)
	s := &site{t: t, db: db, store: db.Store, persons: map[string]ledger.PersonID{}}
	var err error
	s.server, err = newServer(Config{Store: s.store, PublicURL: "http://tranche.test", OIDC: OIDC{Issuer: "http://id.test"}})
	s.must(err)
	s.handler = s.server.handler()
	s.lab, err = s.store.FoundTree(t.Context(), "lab", "The Lab")
	s.must(err)
	s.must(s.store.SetIdentityRoles(t.Context(), []store.IdentityRole{{Group: "admins", Role: ledger.Admin, Path: "/lab"}}))
	s.person("admin here", "admins")
	s.vision, s.robots = s.group(s.lab, "Vision", false), s.group(s.lab, "Robots", false)
	s.seg, s.arms = s.group(s.vision, "Segmentation", true), s.group(s.robots, "Arms", true)
	for _, p := range []struct {
		role             ledger.Role
		here, elsewhere_ ledger.GroupID
	}{
		{ledger.Researcher, s.seg, s.arms},
		{ledger.PI, s.seg, s.arms},
		{ledger.Manager, s.vision, s.robots},
		{ledger.Admin, 0, s.robots},
		{ledger.Finance, s.lab, s.robots},
		{ledger.Operator, s.lab, s.robots},
		{ledger.Auditor, s.lab, s.robots},
	} {
		if p.here != 0 {
			s.role(string(p.role)+" here", p.role, p.here)
		}
		s.role(string(p.role)+" elsewhere", p.role, p.elsewhere_)
	}
	s.person("nobody")
	s.h100, err = s.store.CreatePool(t.Context(), s.cmd("admin here"), store.Pool{Name: "h100", GPUModel: "H100", RatePPM: 1_000_000, NodeGPUs: 8, NodeCPUMilli: 64_000, NodeRAMMiB: 512 * 1024, NodeHBMMiB: 80 * 1024})
	s.must(err)
	s.q4, err = s.store.OpenPeriod(t.Context(), s.cmd("admin here"), store.PeriodInput{
		Name: "2026-Q4", First: date(2026, 10), Last: date(2027, 1), Zone: "UTC",
		Supplies: []store.SupplyInput{{Pool: s.h100, Devices: 8, AvailabilityPPM: 950_000, Amount: 1000 * hour}},
	})
	s.must(err)
	return s
}

func date(year, month int) ledger.Instant {
	return ledger.At(time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) person(name string, groups ...string) ledger.PersonID {
	s.t.Helper()
	id, err := s.store.SignIn(s.t.Context(), store.Identity{Issuer: "https://id.test", Subject: name, Name: name, Email: strings.ReplaceAll(name, " ", ".") + "@lab.test", Groups: groups})
	s.must(err)
	s.persons[name] = id
	return id
}

func (s *site) role(name string, role ledger.Role, group ledger.GroupID) {
	s.t.Helper()
	s.must(s.store.GrantRole(s.t.Context(), s.cmd("admin here"), store.RoleInput{Person: s.person(name), Group: group, Role: role}))
}

func (s *site) group(parent ledger.GroupID, title string, project bool) ledger.GroupID {
	s.t.Helper()
	id, err := s.store.CreateGroup(s.t.Context(), s.cmd("admin here"), store.GroupInput{Parent: parent, Project: project, Title: title})
	s.must(err)
	return id
}

// cmd is a fresh command of a person.
func (s *site) cmd(name string) store.Command {
	s.t.Helper()
	actor, err := s.store.Actor(s.t.Context(), s.persons[name])
	s.must(err)
	s.keys++
	return store.Command{Actor: actor, Key: fmt.Sprintf("key-%d", s.keys), Remote: "192.0.2.1"}
}

// split gives one child of a program a new total.
func (s *site) split(by string, program, child ledger.GroupID, amount ledger.Amount) {
	s.t.Helper()
	pots, err := s.store.Pots(s.t.Context(), program, s.q4)
	s.must(err)
	_, err = s.store.SplitPot(s.t.Context(), s.cmd(by), store.SplitCommand{
		Program: program, Pool: s.h100, Period: s.q4, Version: pots[0].Version,
		Wants: []store.SplitWant{{Child: child, Amount: amount}},
	})
	s.must(err)
}

// session signs a person in and gives the cookie.
func (s *site) session(person ledger.PersonID) *http.Cookie {
	s.t.Helper()
	sm := s.server.sessions
	ctx, err := sm.Load(context.Background(), "")
	s.must(err)
	sm.Put(ctx, sessionPerson, int64(person))
	token, _, err := sm.Commit(ctx)
	s.must(err)
	return &http.Cookie{Name: sm.Cookie.Name, Value: token}
}

// browser is one person's browser without JavaScript; nil cookie: nobody signed in.
type browser struct {
	site   *site
	cookie *http.Cookie
}

func (s *site) as(name string) *browser {
	s.t.Helper()
	id, ok := s.persons[name]
	if !ok {
		s.t.Fatalf("no person %q", name)
	}
	return &browser{s, s.session(id)}
}

// send asks the handler and parses the answer as a page.
func (b *browser) send(method, path string, form url.Values) *answer {
	b.site.t.Helper()
	var r *http.Request
	if method == http.MethodPost {
		r = httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	} else {
		r = httptest.NewRequest(method, path, nil)
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	w := httptest.NewRecorder()
	b.site.handler.ServeHTTP(w, r)
	a := &answer{t: b.site.t, name: method + " " + path, status: w.Code, header: w.Result().Header, body: w.Body.String()}
	root, err := html.Parse(strings.NewReader(a.body))
	b.site.must(err)
	a.root = root
	return a
}

func (b *browser) get(path string) *answer {
	b.site.t.Helper()
	return b.send(http.MethodGet, path, nil)
}

// open is get that expects a page.
func (b *browser) open(path string) *answer {
	b.site.t.Helper()
	a := b.get(path)
	if a.status != http.StatusOK {
		b.site.t.Fatalf("%s: %d %s", a.name, a.status, a.one("refusal"))
	}
	return a
}

// submit sends a form of a page as a browser does: every field as it stands,
// changed by the given values, with the given button.
func (b *browser) submit(page *answer, formID string, changes map[string]string) *answer {
	b.site.t.Helper()
	action, form := page.form(formID)
	for name, value := range changes {
		form.Set(name, value)
	}
	return b.send(http.MethodPost, action, form)
}

// follow expects a redirect and opens where it leads.
func (b *browser) follow(a *answer) *answer {
	b.site.t.Helper()
	if a.status != http.StatusSeeOther {
		b.site.t.Fatalf("%s: %d instead of a redirect: %s %s", a.name, a.status, a.all("refusals"), a.all("refusal"))
	}
	return b.open(a.header.Get("Location"))
}

// answer is one answer, with its page.
type answer struct {
	t      testing.TB
	name   string
	status int
	header http.Header
	body   string
	root   *html.Node
}

func attribute(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// at gives the elements with a data-testid below n.
func at(n *html.Node, id string) []*html.Node {
	var out []*html.Node
	for c := range n.Descendants() {
		if v, _ := attribute(c, "data-testid"); c.Type == html.ElementNode && v == id {
			out = append(out, c)
		}
	}
	return out
}

// all gives the texts of the elements with a data-testid.
func (a *answer) all(id string) []string {
	var out []string
	for _, n := range at(a.root, id) {
		out = append(out, textOf(n))
	}
	return out
}

// one is the text of the first element with a data-testid; "" when there is none.
func (a *answer) one(id string) string {
	if all := a.all(id); len(all) > 0 {
		return all[0]
	}
	return ""
}

// want checks the text of the first element with a data-testid.
func (a *answer) want(id, text string) {
	a.t.Helper()
	if got := a.one(id); got != text {
		a.t.Errorf("%s: %s is %q, want %q", a.name, id, got, text)
	}
}

// form gives where a form posts and its fields as they stand.
func (a *answer) form(id string) (string, url.Values) {
	a.t.Helper()
	found := at(a.root, id)
	if len(found) == 0 {
		a.t.Fatalf("%s: no form %q: %s", a.name, id, a.one("refusal"))
	}
	action, _ := attribute(found[0], "action")
	values := url.Values{}
	for n := range found[0].Descendants() {
		name, ok := attribute(n, "name")
		if n.Type != html.ElementNode || !ok {
			continue
		}
		switch n.Data {
		case "input":
			value, _ := attribute(n, "value")
			kind, _ := attribute(n, "type")
			if _, checked := attribute(n, "checked"); checked || (kind != "radio" && kind != "checkbox") {
				values.Add(name, value)
			}
		case "textarea":
			values.Add(name, textOf(n))
		case "select":
			values.Add(name, chosen(n))
		}
	}
	return action, values
}

// chosen is the selected option's value, else the first one's.
func chosen(n *html.Node) string {
	first, picked := "", ""
	for o := range n.Descendants() {
		if o.Type != html.ElementNode || o.Data != "option" {
			continue
		}
		value, _ := attribute(o, "value")
		if first == "" {
			first = value
		}
		if _, selected := attribute(o, "selected"); selected {
			picked = value
		}
	}
	if picked != "" {
		return picked
	}
	return first
}
