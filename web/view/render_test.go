package view

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/a-h/templ"
	"golang.org/x/net/html"

	"tranche/ledger"
)

// doc is a rendered page to ask questions of.
type doc struct {
	t    *testing.T
	name string
	root *html.Node
}

func render(t *testing.T, name string, c templ.Component) doc {
	t.Helper()
	var b bytes.Buffer
	if err := c.Render(context.Background(), &b); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	root, err := html.Parse(&b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return doc{t, name, root}
}

func (d doc) elements() []*html.Node {
	var out []*html.Node
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode {
			out = append(out, n)
		}
	}
	return out
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// at gives the elements with a test id.
func (d doc) at(id string) []*html.Node {
	var out []*html.Node
	for _, n := range d.elements() {
		if attr(n, "data-testid") == id {
			out = append(out, n)
		}
	}
	return out
}

// one is the text of the only, or first, element with a test id.
func (d doc) one(id string) string {
	d.t.Helper()
	found := d.at(id)
	if len(found) == 0 {
		d.t.Errorf("%s: nothing with data-testid %q", d.name, id)
		return ""
	}
	return text(found[0])
}

// filler sets every field of a model: strings to s, numbers to 1, 2, 3 and so on,
// slices to two items, pointers to something.
type filler struct {
	s string
	n int64
}

func (f *filler) fill(v reflect.Value) {
	if !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.s)
	case reflect.Int, reflect.Int64:
		f.n++
		v.SetInt(f.n)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.Slice {
			v.SetMapIndex(reflect.ValueOf("project"), reflect.ValueOf([]string{f.s}))
		}
	case reflect.Pointer:
		if v.Type().Elem().PkgPath() == "time" {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	}
}

// filled draws a page whose model holds s in every string; "" draws it empty.
func filled[M any](name string, c func(Shell, M) templ.Component, s string) page {
	shell := Shell{Title: "Title", Who: &Who{Name: "Ada"}}
	var m M
	if s != "" {
		f := &filler{s: s}
		f.fill(reflect.ValueOf(&shell).Elem())
		f.fill(reflect.ValueOf(&m).Elem())
	}
	return page{name, c(shell, m)}
}

func filledPages(s string) []page {
	return []page{
		filled("signin", SignInPage, s), filled("join", JoinPage, s), filled("home", HomePage, s), filled("tree", TreePage, s),
		filled("program", ProgramPage, s), filled("statement", StatementPage, s), filled("requests", RequestsPage, s),
		filled("request-form", RequestFormPage, s), filled("request", RequestPage, s), filled("review", ReviewPage, s),
		filled("jobs", JobsPage, s), filled("job-form", JobFormPage, s), filled("job", JobPage, s), filled("pools", PoolsPage, s),
		filled("pool", PoolPage, s), filled("nodes", NodesPage, s), filled("node", NodePage, s), filled("periods", PeriodsPage, s),
		filled("admin-pools", AdminPoolsPage, s), filled("groups", GroupsPage, s), filled("people", PeoplePage, s),
		filled("tokens", TokensPage, s), filled("export", ExportPage, s), filled("audit", AuditPage, s),
		filled("verify", VerifyPage, s), filled("group-edit", GroupEditPage, s), filled("refusal", ErrorPage, s),
	}
}

const hostile = `javascript:alert(1)//"><script>alert(2)</script>`

// TestPagesAreSound checks every page, full, empty and with hostile text in
// every field, for what a strict policy and assistive technology need.
func TestPagesAreSound(t *testing.T) {
	long := hostile + strings.Repeat("x", 200)
	for kind, pages := range map[string][]page{"full": fullPages(zone(t)), "empty": filledPages(""), "hostile": filledPages(long)} {
		for _, p := range pages {
			d := render(t, kind+" "+p.name, p.c)
			d.checkPolicy()
			d.checkNames()
			if len(d.at("title")) != 1 {
				t.Errorf("%s: %d titles", d.name, len(d.at("title")))
			}
		}
	}
}

// checkPolicy: no script but the two of the head, no inline style or handler, no
// script address.
func (d doc) checkPolicy() {
	d.t.Helper()
	scripts := 0
	for _, n := range d.elements() {
		if n.Data == "script" {
			scripts++
			if text(n) != "" || n.Parent.Data != "head" {
				d.t.Errorf("%s: a script outside the head or with text: %q", d.name, text(n))
			}
		}
		for _, a := range n.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				d.t.Errorf("%s: <%s %s=%q>", d.name, n.Data, a.Key, a.Val)
			}
			if (a.Key == "href" || a.Key == "action") && strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:") {
				d.t.Errorf("%s: <%s> leads to %q", d.name, n.Data, a.Val)
			}
		}
	}
	if scripts != 2 {
		d.t.Errorf("%s: %d scripts, want 2", d.name, scripts)
	}
}

// checkNames: ids are unique, references lead somewhere, each control has a
// name for people and one for tests.
func (d doc) checkNames() {
	d.t.Helper()
	ids, labelled := map[string]bool{}, map[string]bool{}
	for _, n := range d.elements() {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				d.t.Errorf("%s: id %q twice", d.name, id)
			}
			ids[id] = true
		}
		if n.Data == "label" {
			labelled[attr(n, "for")] = true
		}
	}
	for _, n := range d.elements() {
		for _, ref := range slices.Concat(strings.Fields(attr(n, "aria-describedby")), strings.Fields(attr(n, "aria-labelledby")), strings.Fields(attr(n, "for")), strings.Fields(attr(n, "popovertarget"))) {
			if !ids[ref] {
				d.t.Errorf("%s: <%s> refers to %q, which is not there", d.name, n.Data, ref)
			}
		}
		control := slices.Contains([]string{"input", "select", "textarea"}, n.Data) && attr(n, "type") != "hidden"
		if control && !labelled[attr(n, "id")] && n.Parent.Data != "label" {
			d.t.Errorf("%s: <%s name=%q> has no label", d.name, n.Data, attr(n, "name"))
		}
		if control && attr(n, "data-testid") == "" {
			d.t.Errorf("%s: <%s name=%q> has no data-testid", d.name, n.Data, attr(n, "name"))
		}
		if n.Data == "button" && attr(n, "data-testid") == "" && attr(n, "popovertarget") == "" && !strings.HasPrefix(d.name, "hostile") {
			d.t.Errorf("%s: button %q has no data-testid", d.name, text(n))
		}
		if n.Data == "svg" && attr(n, "role") == "" && attr(n, "aria-hidden") == "" && attr(n, "class") != "at" && n.Parent.Data != "a" && n.Parent.Data != "g" {
			d.t.Errorf("%s: a picture without a role", d.name)
		}
	}
}

func TestEmptyPagesGiveTheNextStep(t *testing.T) {
	for _, p := range filledPages("") {
		d := render(t, p.name, p.c)
		links, buttons := 0, 0
		for _, n := range d.elements() {
			inMain := slices.ContainsFunc(slices.Collect(n.Ancestors()), func(a *html.Node) bool { return attr(a, "id") == "main" })
			if inMain && n.Data == "a" {
				links++
			}
			if inMain && n.Data == "button" {
				buttons++
			}
		}
		// Pages whose next step is somebody else's, or the shell's, say so in words.
		words := len(d.at("empty")) + len(d.at("refusal"))
		if links+buttons+words == 0 {
			t.Errorf("%s: an empty page is a dead end", p.name)
		}
	}
}

func TestFormKeepsWhatWasTyped(t *testing.T) {
	f := Form{
		Key:    "key-1",
		Values: map[string][]string{"command": {"python <train>.py"}, "nodes": {"0"}, "project": {"4"}, "at_end": {"stop"}, "or_free": {"on"}},
		Refusals: ledger.Refusals{
			{Kind: ledger.Invalid, Code: "job.nodes", Field: "nodes", Detail: "Nodes is at least 1."},
			{Kind: ledger.Short, Code: "funds.short", Detail: "Short 60 GPU-h, limited by Vision."},
		},
		Next: []Link{{"Submit it free", "/jobs/new?preset=free"}},
	}
	m := JobForm{Form: f, Projects: []Option{{"7", "Segmentation"}, {"4", "Speech"}}, Pools: []Option{{"1", "h100"}}, MayUrgency: 5}
	d := render(t, "job-form", JobFormPage(Shell{Title: "Submit a job"}, m))
	if got := text(d.at("field-command")[0]); got != "python <train>.py" {
		t.Errorf("command: %q", got)
	}
	nodes := d.at("field-nodes")[0]
	if attr(nodes, "value") != "0" || attr(nodes, "aria-invalid") != "true" || attr(nodes, "aria-describedby") != "r-nodes" {
		t.Errorf("nodes: %v", nodes.Attr)
	}
	if got := d.one("refused-nodes"); got != "Nodes is at least 1." {
		t.Errorf("beside the field: %q", got)
	}
	if got := d.one("refusal-funds.short"); got != "Short 60 GPU-h, limited by Vision." {
		t.Errorf("on top: %q", got)
	}
	for id, want := range map[string]bool{"field-or_free": true, "field-resumable": false} {
		if got := slices.ContainsFunc(d.at(id)[0].Attr, func(a html.Attribute) bool { return a.Key == "checked" }); got != want {
			t.Errorf("%s checked: %v", id, got)
		}
	}
	if got := d.chosen("field-project") + d.chosen("field-at_end"); got != "Speechstop" {
		t.Errorf("chosen: %q", got)
	}
	if links := d.linksIn("refusals"); !slices.Contains(links, "#f-nodes") || !slices.Contains(links, "/jobs/new?preset=free") {
		t.Errorf("the summary leads to %v", links)
	}
}

// chosen is the text of a select's chosen option.
func (d doc) chosen(id string) string {
	for n := range d.at(id)[0].Descendants() {
		if n.Data == "option" && slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "selected" }) {
			return text(n)
		}
	}
	return ""
}

func (d doc) linksIn(id string) []string {
	var out []string
	for n := range d.at(id)[0].Descendants() {
		if n.Data == "a" {
			out = append(out, attr(n, "href"))
		}
	}
	return out
}

func TestNumbersOnPages(t *testing.T) {
	for _, c := range []struct{ page, id, want string }{
		{"home", "answer", "You can use 1 240 GPU-h on h100 until 31 December; Vision's pot is the limit."},
		{"home", "usable", "1 240"},
		{"home", "limited-by", "Vision's pot"},
		{"home", "nav-waiting", "2"},
		{"statement", "awarded", "12 600"},
		{"statement", "change", "−16"},
		{"statement", "lot-available", "3 240"},
		{"job", "charged-total", "46.93"},
		{"job", "rank", "3"},
		{"job", "needed", "128 GPU-h"},
		{"job", "attempt-end", "evicted by rule V3 for job 840"},
		{"pool", "ratio", "0.48"},
		{"pool", "next", "next"},
		{"pool", "reason", "Starts now: evicts job 812 by rule V3."},
		{"review", "pot-after", "7 000"},
		{"program", "pot-left", "18 400"},
		{"export", "export-total", "9 070"},
		{"export", "export-csv", "Download 1 204 lines as CSV"},
		{"verify", "sum", "0"},
		{"people", "who", "Ada Byron"},
	} {
		pages := fullPages(zone(t))
		i := slices.IndexFunc(pages, func(p page) bool { return p.name == c.page })
		d := render(t, c.page, pages[i].c)
		if got := d.one(c.id); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.page, c.id, got, c.want)
		}
	}
}

func TestRailFollowsTheRole(t *testing.T) {
	d := render(t, "researcher", HomePage(Shell{Title: "Home", Here: "jobs", Who: &Who{Name: "Ada"}}, Home{}))
	for _, id := range []string{"nav-people", "nav-periods", "nav-audit", "nav-verify", "nav-waiting"} {
		if len(d.at(id)) != 0 {
			t.Errorf("a researcher sees %s", id)
		}
	}
	if got := attr(d.at("nav-jobs")[0], "aria-current"); got != "page" {
		t.Errorf("the lit item: %q", got)
	}
	d = render(t, "auditor", HomePage(Shell{Title: "Home", Who: &Who{Name: "Eve", Audit: true}}, Home{}))
	if len(d.at("nav-audit")) != 1 || len(d.at("nav-verify")) != 1 || len(d.at("nav-periods")) != 0 {
		t.Error("an auditor sees audit and verify, not periods")
	}
}
