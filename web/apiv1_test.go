package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// client is a program of a person with a token for a project.
func (f *fleet) client(who string, project ledger.GroupID) *api.Client {
	f.t.Helper()
	secret := "trn_" + who + idText(project)
	_, err := f.store.CreateToken(f.t.Context(), f.cmd(who), store.TokenInput{Project: project, Name: "test", Days: 7, Secret: secret})
	f.must(err)
	return f.program(secret)
}

func (f *fleet) program(secret string) *api.Client {
	f.t.Helper()
	server := httptest.NewServer(f.handler)
	f.t.Cleanup(server.Close)
	return &api.Client{Server: server.URL, Token: secret, HTTP: server.Client()}
}

// wantProblem fails unless the error is a refusal with this status and code.
func wantProblem(t *testing.T, err error, status int, code string) *api.Problem {
	t.Helper()
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != status || p.Code != code {
		t.Fatalf("got %v (%+v), want %d %s", err, p, status, code)
	}
	return p
}

func TestAPIFollowsAJobFromSubmissionToCharge(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	ctx, c := t.Context(), f.client("researcher here", f.seg)
	who, err := c.WhoAmI(ctx)
	f.must(err)
	if who.Name != "researcher here" || who.Mail != "researcher.here@lab.test" || !slices.Equal(who.Projects, []string{segPath}) || who.TokenProject != segPath || who.Zone != "UTC" {
		t.Errorf("who %+v", who)
	}
	in := api.Submit{Key: "k1", Name: "api", Project: segPath, Pool: "h100", GPUs: 4, Command: "train", Env: map[string]string{"A": "1"}}
	job, err := c.Submit(ctx, in)
	f.must(err)
	if job.State != "waiting" || job.MinRuntimeMS != 3_600_000 || job.Nodes != 1 || job.Command != "train" || job.Env["A"] != "1" || job.WhenMoneyEnds != api.MoneyGoOn {
		t.Errorf("job %+v", job)
	}
	if again, err := c.Submit(ctx, in); err != nil || again.ID != job.ID {
		t.Errorf("the same key gives job %d, %v", again.ID, err)
	}
	in.GPUs = 5
	_, err = c.Submit(ctx, in)
	wantProblem(t, err, 409, "key.conflict")
	f.cycle()
	f.db.Clock.Advance(30 * time.Minute)
	balances, err := c.Balances(ctx, "", "h100")
	f.must(err)
	if len(balances.Balances) != 1 || balances.Balances[0].Held != 4*hour || balances.Balances[0].Usable != 96*hour || balances.Balances[0].LimitedBy == "" || balances.Balances[0].Expires == nil {
		t.Errorf("balances %+v", balances)
	}
	f.end(job.ID, 30*time.Minute, 3)
	job, err = c.Job(ctx, job.ID)
	f.must(err)
	if job.State != "failed" || job.ExitCode == nil || *job.ExitCode != 3 || job.Charged != 2*hour || job.Held != 0 || len(job.Attempts) != 1 || job.Attempts[0].ElapsedMS != 1_800_000 {
		t.Errorf("job %+v", job)
	}
	var st api.Statement
	f.must(c.Call(ctx, http.MethodGet, api.PathStatement+"?project="+segPath+"&pool=h100&limit=2", nil, &st))
	if len(st.Lines) != 2 || st.Lines[0].Kind != "award" || st.Lines[1].Amount != -4*hour || st.Next == "" || len(st.Lots) != 1 || st.Lots[0].Spent != 2*hour {
		t.Errorf("statement %+v", st)
	}
	var rest api.Statement
	f.must(c.Call(ctx, http.MethodGet, api.PathStatement+"?project="+segPath+"&pool=h100&after="+st.Next, nil, &rest))
	if len(rest.Lines) != 1 || rest.Lines[0].Amount != 2*hour || rest.Next != "" {
		t.Errorf("statement's second page %+v", rest)
	}
}

func TestAPIWhyIsThePagesText(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "history", 8)
	f.job("researcher here", segPath, "running", 8)
	f.cycle()
	id := f.job("researcher here", segPath, "waits", 8)
	f.cycle()
	why, err := f.client("researcher here", f.seg).Why(t.Context(), id)
	f.must(err)
	page := f.as("researcher here").open(view.JobURL(id))
	squeeze := strings.NewReplacer(" ", "", "\u00a0", "")
	if why.Sentence == "" || squeeze.Replace(why.Sentence) != squeeze.Replace(page.one("why-sentence")) || why.Job != id {
		t.Errorf("program reads %q, person reads %q", why.Sentence, page.one("why-sentence"))
	}
	var text string
	for _, l := range why.Lines {
		text += l.Label + "|" + l.Value + "|" + l.Detail + "\n"
	}
	for _, standing := range page.all("standing") {
		if !strings.Contains(text, "|"+standing+"|") {
			t.Errorf("standing %q of the page is not in\n%s", standing, text)
		}
	}
	if !why.At.Equal(f.store.Now().Time()) {
		t.Errorf("decided at %v", why.At)
	}
	if why.Facts["nodes"] != "1" || why.Code == "" || !strings.Contains(text, "Place|1 of 1|") {
		t.Errorf("code %q, facts %v, lines\n%s", why.Code, why.Facts, text)
	}
}

func TestAPIListsPagesAndFilters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	for range 5 {
		f.job("researcher here", segPath, "seg", 1)
	}
	f.job("researcher elsewhere", armsPath, "arms", 1)
	c := f.client("researcher here", f.seg)
	var seen []ledger.JobID
	for q := (api.JobQuery{Project: "/lab/vision", Limit: 2}); ; {
		page, err := c.Jobs(t.Context(), q)
		f.must(err)
		for _, j := range page.Jobs {
			seen = append(seen, j.ID)
			if j.Command != "" {
				t.Error("a list carries commands")
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if !slices.Equal(seen, []ledger.JobID{5, 4, 3, 2, 1}) {
		t.Errorf("pages give %v", seen)
	}
	all, err := c.Jobs(t.Context(), api.JobQuery{})
	f.must(err)
	mine, err := c.Jobs(t.Context(), api.JobQuery{Mine: true})
	f.must(err)
	if len(all.Jobs) != 6 || len(mine.Jobs) != 5 {
		t.Errorf("%d jobs, %d mine", len(all.Jobs), len(mine.Jobs))
	}
	_, err = c.Jobs(t.Context(), api.JobQuery{State: "asleep"})
	wantProblem(t, err, 422, "job.state")
	f.cycle()
	var pools api.PoolList
	var nodes api.NodeList
	f.must(c.Call(t.Context(), http.MethodGet, api.PathPools, nil, &pools))
	f.must(c.Call(t.Context(), http.MethodGet, api.PathNodes+"?pool=h100", nil, &nodes))
	if len(pools.Pools) != 1 || pools.Pools[0].Funded != 6 || pools.Pools[0].Idle != 2 || len(nodes.Nodes) != 1 || len(nodes.Nodes[0].Jobs) != 6 {
		t.Errorf("pools %+v, nodes %+v", pools, nodes)
	}
}

func TestAPICommandsAreIdempotentAndBound(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	ctx, c := t.Context(), f.client("researcher here", f.seg)
	id := f.job("researcher here", segPath, "mine", 1)
	other := f.job("researcher elsewhere", armsPath, "theirs", 1)
	for _, step := range []struct {
		do    func() (api.Job, error)
		state string
	}{
		{func() (api.Job, error) { return c.Pause(ctx, id, "p") }, "paused"},
		{func() (api.Job, error) { return c.Resume(ctx, id, "r") }, "waiting"},
		{func() (api.Job, error) { return c.Cancel(ctx, id, "c") }, "cancelled"},
		{func() (api.Job, error) { return c.Cancel(ctx, id, "c") }, "cancelled"},
	} {
		if job, err := step.do(); err != nil || job.State != step.state {
			t.Errorf("got %q, %v; want %s", job.State, err, step.state)
		}
	}
	_, err := c.Cancel(ctx, other, "c2")
	wantProblem(t, err, 403, "actor.token_project")
	if _, err := c.Cancel(ctx, 999, "c3"); err == nil {
		t.Error("a job that does not exist is cancelled")
	}
	_, err = f.client("pi here", f.seg).Submit(ctx, api.Submit{Key: "k", Project: armsPath, Pool: "h100", GPUs: 1, Command: "true"})
	wantProblem(t, err, 403, "actor.token_project")
}

func TestAPINamesFieldsAndKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	c := f.client("researcher here", f.seg)
	short := int64(1)
	_, err := c.Submit(t.Context(), api.Submit{Key: "k", Project: segPath, Pool: "h100", GPUs: 99, Command: " ", MinRuntimeMS: &short, Urgency: 12})
	p := wantProblem(t, err, 422, "job.command")
	var fields []string
	for _, f := range p.Fields {
		fields = append(fields, f.Field)
	}
	for _, want := range []string{"command", "gpus", "min_runtime_ms", "urgency"} {
		if !slices.Contains(fields, want) {
			t.Errorf("field %s is not named: %q", want, fields)
		}
	}
	send := func(body, key string) (int, api.Problem) {
		r := httptest.NewRequest(http.MethodPost, api.PathJobs, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+c.Token)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, r)
		var p api.Problem
		f.must(json.Unmarshal(w.Body.Bytes(), &p))
		if w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s is answered as %s", body, w.Header().Get("Content-Type"))
		}
		return w.Code, p
	}
	good := `{"project":"` + segPath + `","pool":"h100","gpus":1,"command":"true"}`
	for _, c := range []struct {
		body, key string
		status    int
		code      string
	}{
		{good, "", 422, "key.missing"},
		{good, "header-key", 201, ""},
		{`{"gpu": 1}`, "a", 422, "body.unknown_field"},
		{`{"gpus": "8"}`, "b", 422, "body.type"},
		{`nonsense`, "c", 422, "body.unreadable"},
		{good + good, "d", 422, "body.trailing"},
	} {
		if status, p := send(c.body, c.key); status != c.status || p.Code != c.code {
			t.Errorf("%s with key %q: %d %s, want %d %s", c.body, c.key, status, p.Code, c.status, c.code)
		}
	}
}

func TestAPITokensAreAskedForAndEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	_, err := f.program("").WhoAmI(t.Context())
	wantProblem(t, err, 401, "token.needed")
	_, err = f.program("trn_guess").WhoAmI(t.Context())
	wantProblem(t, err, 401, "token.unknown")
	c := f.client("pi here", f.seg)
	_, err = c.WhoAmI(t.Context())
	f.must(err)
	f.db.Clock.Advance(8 * 24 * time.Hour)
	_, err = c.WhoAmI(t.Context())
	wantProblem(t, err, 401, "token.unknown")
}

func TestAPITokenSpendsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	ctx := t.Context()
	_, err := f.store.CreateToken(ctx, f.cmd("researcher here"), store.TokenInput{Project: f.seg, Name: "bounded", Days: 1, Limit: 10 * hour, Secret: "trn_bounded"})
	f.must(err)
	c := f.program("trn_bounded")
	submit := func(key string, most ledger.Amount) (api.Job, error) {
		in := api.Submit{Key: key, Project: segPath, Pool: "h100", GPUs: 4, Command: "train"}
		if most > 0 {
			in.MaxCharge = &most
		}
		return c.Submit(ctx, in)
	}
	_, err = submit("none", 0)
	wantProblem(t, err, 422, "token.max_charge")
	first, err := submit("first", 6*hour)
	f.must(err)
	_, err = submit("second", 6*hour)
	if p := wantProblem(t, err, 409, "token.limit_reached"); p.Facts["available"] != "4" || p.Facts["short"] != "2" {
		t.Errorf("facts %v", p.Facts)
	}
	if _, err = c.Submit(ctx, api.Submit{Key: "free", Preset: api.PresetFree, Project: segPath, Pool: "h100", GPUs: 1, Command: "train"}); err != nil {
		t.Errorf("an unfunded job needs no limit: %v", err)
	}
	f.cycle()
	f.db.Clock.Advance(30 * time.Minute)
	f.end(first.ID, 30*time.Minute, 0) // costs 2 GPU-h
	if _, err = submit("second", 6*hour); err != nil {
		t.Errorf("what the first did not cost is not given back: %v", err)
	}
	who, err := c.WhoAmI(ctx)
	f.must(err)
	if who.TokenLimit == nil || *who.TokenLimit != 10*hour || *who.TokenUsed != 8*hour || who.TokenExpires == nil {
		t.Errorf("who %+v", who)
	}
}

func TestAPILogsFollowTheOutput(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	ctx, c := t.Context(), f.client("researcher here", f.seg)
	id := f.job("researcher here", segPath, "talks", 1)
	f.cycle()
	part := f.parts(id)[0]
	_, err := f.store.AppendLog(ctx, part, 0, []byte("one\n"))
	f.must(err)
	first, err := c.Logs(ctx, id, api.LogQuery{})
	f.must(err)
	if string(first.Data) != "one\n" || first.NextOffset != 4 || first.End {
		t.Errorf("first piece %+v", first)
	}
	// The next piece arrives while the program waits for it.
	waited := make(chan error, 1)
	go func() {
		_, err := f.store.AppendLog(ctx, part, 4, []byte("two\n"))
		waited <- err
	}()
	second, err := c.Logs(ctx, id, api.LogQuery{Attempt: first.Attempt, Offset: 4, WaitMS: 20_000})
	f.must(errors.Join(err, <-waited))
	if string(second.Data) != "two\n" || second.NextOffset != 8 {
		t.Errorf("second piece %+v", second)
	}
	f.end(id, time.Minute, 0)
	last, err := c.Logs(ctx, id, api.LogQuery{Attempt: first.Attempt, Offset: 8, WaitMS: 20_000})
	f.must(err)
	if len(last.Data) != 0 || !last.End {
		t.Errorf("last piece %+v", last)
	}
	_, err = f.client("researcher elsewhere", f.arms).Logs(ctx, id, api.LogQuery{})
	wantProblem(t, err, 403, "actor.token_project")
}

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
				Required   []string
			}
		}
	}
	f.must(f.program("").Call(t.Context(), http.MethodGet, api.PathOpenAPI, nil, &doc))
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %q", doc.OpenAPI)
	}
	served := 0
	for _, route := range f.server.routes() {
		if !strings.HasPrefix(route.pattern, "/api/") {
			continue
		}
		served++
		call, ok := doc.Paths[route.pattern][strings.ToLower(route.method)]
		if !ok || call.OperationID == "" || len(call.Responses) != 2 {
			t.Errorf("%s %s is not described", route.method, route.pattern)
		}
		for _, r := range call.Responses {
			for kind, c := range r.Content {
				if ref, ok := c.Schema["$ref"].(string); ok && doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")].Properties == nil {
					t.Errorf("%s %s: %s refers to %s, which is not there", route.method, route.pattern, kind, ref)
				}
			}
		}
	}
	if served != 32 {
		t.Errorf("%d routes are served", served)
	}
	job := doc.Components.Schemas["Job"]
	if job.Properties["min_runtime_ms"] == nil || !slices.Contains(job.Required, "project") || slices.Contains(job.Required, "command") {
		t.Errorf("Job is %+v", job)
	}
}
