package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

func TestAPIDrainsANode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	ctx, c := t.Context(), f.client("operator here", f.lab)
	job := f.job("researcher here", segPath, "runs", 6)
	f.cycle()
	d, err := f.store.Job(ctx, f.cmd("researcher here").Actor, job)
	f.must(err)
	name := d.Runs[0].NodeNames[0]
	in := api.Drain{Key: "d", Why: "fan 3 fails"}
	for range 2 { // a lost answer is asked for again
		n, err := c.DrainNode(ctx, name, in)
		f.must(err)
		if n.Health != "draining" || n.Drain == nil || n.Drain.Mode != api.DrainSoft || n.Drain.By != "operator here" || n.Occupied != 6 {
			t.Errorf("node %+v", n)
		}
		if len(n.Events) != 1 || n.Events[0].What != "soft drain" || n.Events[0].Why != "fan 3 fails" {
			t.Errorf("events %+v", n.Events)
		}
		if len(n.Holders) != 1 || n.Holders[0].Job != job || n.Holders[0].Project != segPath || !n.Holders[0].Funded || n.Holders[0].ProtectedUntil == nil || len(n.Holders[0].Devices) != 6 {
			t.Errorf("holders %+v", n.Holders)
		}
	}
	in.Why = "another"
	_, err = c.DrainNode(ctx, name, in)
	wantProblem(t, err, 409, "key.conflict")
	_, err = c.DrainNode(ctx, name, api.Drain{Key: "e"})
	if p := wantProblem(t, err, 422, "node.drain_why"); len(p.Fields) != 1 || p.Fields[0].Field != "why" {
		t.Errorf("fields %+v", p.Fields)
	}
	_, err = c.DrainNode(ctx, name, api.Drain{Key: "e", Why: "x", Mode: "gently"})
	wantProblem(t, err, 422, "node.drain")
	_, err = c.DrainNode(ctx, "n99", api.Drain{Key: "e", Why: "x"})
	wantProblem(t, err, 404, "node.missing")
	_, err = f.client("pi here", f.seg).DrainNode(ctx, name, api.Drain{Key: "e", Why: "x"})
	wantProblem(t, err, 403, "actor.token_project")
	_, err = f.client("operator elsewhere", f.robots).DrainNode(ctx, name, api.Drain{Key: "e", Why: "x"})
	wantProblem(t, err, 403, "actor.token_project")
	list, err := c.Nodes(ctx, "h100", "", 0)
	f.must(err)
	for _, n := range list.Nodes {
		if (n.Health == "draining") != (n.Name == name) || (n.Occupied == 6) != (n.Name == name) || n.Holders != nil {
			t.Errorf("list says %+v", n)
		}
	}
	n, err := c.UndrainNode(ctx, idText(list.Nodes[0].ID), "u")
	f.must(err)
	if n.ID != list.Nodes[0].ID || n.Health != "healthy" || n.Drain != nil {
		t.Errorf("by its number: %+v", n)
	}
}

// A program plans maintenance as the page does: same instants, same refusals.
func TestAPIPlansMaintenance(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	ctx, c := t.Context(), f.client("operator here", f.lab)
	now := f.store.Now().Time()
	from := now.Add(24 * time.Hour).Truncate(time.Minute)
	for i, text := range []string{from.Format(time.RFC3339), from.Format("2006-01-02T15:04"), from.Format("2006-01-02 15:04"), from.In(time.FixedZone("", 7200)).Format(time.RFC3339)} {
		n, err := c.MaintainNode(ctx, "n1", api.Maintain{Key: "m" + idText(ledger.NodeID(i)), From: text, Until: from.Add(time.Hour).Format(time.RFC3339), Why: "new firmware"})
		f.must(err)
		if m := n.Maintenance; m == nil || !m.From.Equal(from) || m.Until == nil || !m.Until.Equal(from.Add(time.Hour)) || m.Why != "new firmware" {
			t.Errorf("%s: %+v", text, m)
		}
	}
	if page := f.as("operator here").open(view.NodeURL(f.nodes[0])); !strings.Contains(page.one("maintenance-text"), "new firmware") {
		t.Errorf("the page says %q", page.one("maintenance-text"))
	}
	for name, c2 := range map[string]struct {
		in    api.Maintain
		field string
	}{
		"past":        {api.Maintain{From: now.Add(-time.Hour).Format(time.RFC3339), Why: "x"}, "from"},
		"ends before": {api.Maintain{From: from.Format(time.RFC3339), Until: now.Format(time.RFC3339), Why: "x"}, "until"},
		"no reason":   {api.Maintain{From: from.Format(time.RFC3339)}, "why"},
		"nothing":     {api.Maintain{}, "from"},
		"unreadable":  {api.Maintain{From: "tomorrow", Why: "x"}, "from"},
		"clear and":   {api.Maintain{Clear: true, Why: "x"}, "clear"},
	} {
		c2.in.Key = name
		_, err := c.MaintainNode(ctx, "n1", c2.in)
		if p := wantProblem(t, err, 422, map[bool]string{true: "instant.unreadable", false: "node.maintenance"}[name == "unreadable"]); len(p.Fields) == 0 || p.Fields[0].Field != c2.field {
			t.Errorf("%s: fields %+v", name, p.Fields)
		}
	}
	n, err := c.MaintainNode(ctx, "n1", api.Maintain{Key: "clear", Clear: true})
	f.must(err)
	if n.Maintenance != nil || n.Events[0].What != "took the planned maintenance back" {
		t.Errorf("%+v, %+v", n.Maintenance, n.Events)
	}
	_, err = c.MaintainNode(ctx, "n7", api.Maintain{Key: "other", Clear: true})
	wantProblem(t, err, 404, "node.missing")
}

// A token that a program makes enrols a node; asking again gives the same one.
func TestAPIEnrolsNodes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	ctx, c := t.Context(), f.client("operator here", f.lab)
	in := api.NewEnrolToken{Key: "e", Pool: "h100"}
	first, err := c.NewEnrolToken(ctx, in)
	f.must(err)
	again, err := c.NewEnrolToken(ctx, in)
	f.must(err)
	if first != again || first.Hours != 24 || first.Uses != 1 || !strings.Contains(first.Command, "TRANCHE_ENROL_TOKEN="+first.Token+" tranche agent --server http://tranche.test") {
		t.Errorf("first %+v, again %+v", first, again)
	}
	other, err := c.NewEnrolToken(ctx, api.NewEnrolToken{Key: "f", Pool: "h100"})
	f.must(err)
	if other.Token == first.Token {
		t.Error("two commands made one token")
	}
	_, err = f.store.Enrol(ctx, store.EnrolInput{Token: first.Token, Secret: "s", Name: "new", CPUMilli: 1, RAMMiB: 1})
	f.must(err)
	if n, err := c.Node(ctx, "new"); err != nil || n.Pool != "h100" {
		t.Errorf("%+v, %v", n, err)
	}
	_, err = c.NewEnrolToken(ctx, api.NewEnrolToken{Key: "g", Pool: "b200"})
	wantProblem(t, err, 422, "pool.missing")
	_, err = c.NewEnrolToken(ctx, api.NewEnrolToken{Key: "g", Pool: "h100", Hours: 1000})
	wantProblem(t, err, 422, "enrol.hours")
	_, err = f.client("researcher here", f.seg).NewEnrolToken(ctx, in)
	wantProblem(t, err, 403, "actor.token_project")
}

func TestAPISetsMembersSharesAndCaps(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "history", 8) // 4 GPU-h
	ctx, c := t.Context(), f.client("pi here", f.seg)
	kofi := f.persons["researcher here"]
	member := func(list api.Members) api.Member {
		i := slices.IndexFunc(list.Members, func(m api.Member) bool { return m.Person == kofi })
		if i < 0 {
			t.Fatalf("not listed: %+v", list)
		}
		return list.Members[i]
	}
	list, err := c.Members(ctx, segPath)
	f.must(err)
	if m := member(list); len(list.Members) != 2 || m.Share != 1 || m.Cap != 0 || m.Used != 4*hour || m.Mail == "" || !slices.Equal(m.Roles, []string{"researcher"}) {
		t.Errorf("list %+v", list)
	}
	in := api.SetMember{Key: "s", Project: segPath, Person: kofi, Share: 3, Cap: 8}
	for range 2 {
		list, err = c.SetMember(ctx, in)
		f.must(err)
		if m := member(list); m.Share != 3 || m.Cap != 8 {
			t.Errorf("set to %+v", m)
		}
	}
	in.Key, in.Share, in.Cap = "t", 1001, -1
	_, err = c.SetMember(ctx, in)
	if p := wantProblem(t, err, 422, "member.share"); len(p.Fields) != 2 || p.Fields[1].Field != "cap_gpus" {
		t.Errorf("fields %+v", p.Fields)
	}
	in.Share, in.Cap, in.Person = 1, 0, f.persons["researcher elsewhere"]
	_, err = c.SetMember(ctx, in)
	wantProblem(t, err, 404, "member.missing")
	in.Person, in.Project = kofi, armsPath
	_, err = c.SetMember(ctx, in)
	wantProblem(t, err, 403, "actor.token_project")
	in.Project = "/lab/nowhere"
	_, err = c.SetMember(ctx, in)
	wantProblem(t, err, 422, "project.missing")
	in.Project = segPath
	mine := f.client("researcher here", f.seg)
	_, err = mine.SetMember(ctx, in)
	wantProblem(t, err, 403, "actor.denied")
	list, err = mine.Members(ctx, segPath)
	f.must(err)
	for _, m := range list.Members {
		if (m.Mail != "") != (m.Person == kofi) {
			t.Errorf("a researcher sees the mail %q of %s", m.Mail, m.Name)
		}
	}
	f.must(f.store.RevokeRole(ctx, f.cmd("pi here"), store.RoleInput{Person: kofi, Role: ledger.Researcher, Group: f.seg}))
	_, err = c.SetMember(ctx, in)
	wantProblem(t, err, 404, "member.missing")
}

// The page offers an operator a token where the role is held; with it a program
// does what the page does.
func TestOperatorsMakeTokensForTheFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	operator := f.as("operator here")
	made := operator.submit(operator.open(view.TokensURL), "token-form", map[string]string{"name": "night script"})
	secret := strings.Fields(made.one("token-secret"))
	if made.status != http.StatusOK || len(secret) == 0 || !strings.Contains(made.one("token-row"), "The Lab") {
		t.Fatalf("%d %q %q", made.status, secret, made.one("token-row"))
	}
	c := f.program(secret[len(secret)-1])
	if n, err := c.DrainNode(t.Context(), "n1", api.Drain{Key: "d", Why: "x", Mode: api.DrainHard}); err != nil || n.Drain.Mode != api.DrainHard {
		t.Errorf("%+v, %v", n, err)
	}
}

// What a node's checks did is told in words, on its page and to programs alike.
func TestNodeEventsOfHealthChecks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	for _, e := range []struct{ before, after string }{
		{`{"degraded":false,"drain":"","why":""}`, `{"degraded":true,"drain":"","why":"slow disk"}`},
		{`{"degraded":true,"drain":"","why":""}`, `{"degraded":true,"drain":"soft","why":"slow disk"}`},
		{`{"degraded":true,"drain":"soft","why":""}`, `{"degraded":false,"drain":"","why":"slow disk"}`},
	} {
		f.db.Exec(t, `insert into audit (at, person_id, remote, verb, subject, before, after) values (now(), 0, '', 'node.check', $1, $2, $3)`, "node "+idText(f.nodes[0]), e.before, e.after)
	}
	n, err := f.client("operator here", f.lab).Node(t.Context(), "n1")
	f.must(err)
	var told []string
	for _, e := range n.Events {
		told = append(told, e.By+" "+e.What+" "+e.Why)
	}
	want := []string{
		"Its health checks found it good again and gave it back ",
		"Its health checks drained it, soft slow disk",
		"Its health checks found it degraded; nothing new starts on it slow disk",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
	if page := f.as("researcher here").open(view.NodeURL(f.nodes[0])); !strings.Contains(page.one("history"), "Its health checks drained it, soft slow disk") {
		t.Errorf("the page tells %q", page.one("history"))
	}
}

// The list says what is planned; the page of a node that its checks drained says
// what ends that.
func TestNodesPageSaysWhatKeepsWorkOff(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.must(f.store.PlanMaintenance(t.Context(), f.cmd("operator here"), f.nodes[0], store.Maintenance{From: f.store.Now().Add(3_600_000), Why: "new firmware"}))
	f.db.Exec(t, `update nodes set drain = 'soft', drain_why = 'slow disk', drained_by_check = 'degraded', drain_since = now() where id = $1`, int64(f.nodes[1]))
	operator := f.as("operator here")
	rows := operator.open(view.NodesURL).all("node-row")
	if len(rows) != 2 || !strings.Contains(rows[0], "maintenance from") || !strings.Contains(rows[0], "new firmware") || !strings.Contains(rows[1], "soft drain by its health checks: slow disk") {
		t.Errorf("rows %q", rows)
	}
	if text := operator.open(view.NodeURL(f.nodes[1])).one("drained-by-checks"); !strings.Contains(text, "give it back") {
		t.Errorf("the page says %q", text)
	}
	f.must(f.store.DrainNode(t.Context(), f.cmd("operator here"), f.nodes[1], store.DrainSoft, "mine"))
	if text := operator.open(view.NodeURL(f.nodes[1])).one("drained-by-checks"); text != "" {
		t.Errorf("of an operator's drain the page says %q", text)
	}
}
