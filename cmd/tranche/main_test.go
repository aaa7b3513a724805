package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

// call is one request as the peer got it.
type call struct {
	Method, Path, Query, Token string
	Body                       []byte
}

// peer answers like a server; a test says what to each "METHOD /path".
type peer struct {
	*httptest.Server
	mu      sync.Mutex
	calls   []call
	answers map[string][]any // the last one is repeated
}

func newPeer(t *testing.T, answers map[string][]any) *peer {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("TRANCHE_TOKEN", "")
	p := &peer{answers: answers}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	t.Setenv("TRANCHE_SERVER", p.URL)
	return p
}

func (p *peer) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	p.calls = append(p.calls, call{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Authorization"), body.Bytes()})
	name := r.Method + " " + r.URL.Path
	list := p.answers[name]
	if len(list) == 0 {
		list = []any{api.Problem{Title: "Not found", Status: 404, Detail: "There is no " + name + "."}}
	}
	if len(list) > 1 {
		p.answers[name] = list[1:]
	}
	if problem, ok := list[0].(api.Problem); ok {
		w.WriteHeader(problem.Status)
	}
	_ = json.NewEncoder(w).Encode(list[0])
}

// tranche runs a command line and gives exit code, output and complaints.
func tranche(in string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

func loggedIn(t *testing.T, answers map[string][]any) *peer {
	p := newPeer(t, answers)
	t.Setenv("TRANCHE_TOKEN", "s3cret")
	return p
}

func wantIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

func TestLoginKeepsTheTokenPrivate(t *testing.T) {
	p := newPeer(t, map[string][]any{"GET /api/v1/whoami": {api.WhoAmI{Name: "Ada", Mail: "ada@example.org"}}})
	code, out, errOut := tranche("s3cret\n", "login")
	if code != 0 || strings.Contains(out+errOut, "s3cret") {
		t.Fatalf("exit %d, %q, %q", code, out, errOut)
	}
	path := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "tranche", "login.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("login file: %v %v", info, err)
	}
	t.Setenv("TRANCHE_SERVER", "")
	code, out, _ = tranche("", "whoami")
	wantIn(t, out, "Ada <ada@example.org>")
	if last := p.calls[len(p.calls)-1]; code != 0 || last.Token != "Bearer s3cret" {
		t.Errorf("exit %d, %+v", code, last)
	}
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the token of one server went to another: %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	if code, _, _ := tranche("", "--server", other.URL, "whoami"); code != exitUsage {
		t.Errorf("another server without a token: exit %d", code)
	}
}

func TestLoginRefusals(t *testing.T) {
	newPeer(t, map[string][]any{"GET /api/v1/whoami": {api.Problem{Status: 401, Title: "Unauthorized", Detail: "This token is not valid."}}})
	if code, _, errOut := tranche("bad\n", "login"); code != exitRefused || !strings.Contains(errOut, "not valid") {
		t.Errorf("wrong token: exit %d, %q", code, errOut)
	}
	if l, err := readLogin(); err != nil || l.Token != "" {
		t.Errorf("a refused token was kept: %v", err)
	}
	if code, _, _ := tranche("", "login"); code != exitUsage {
		t.Errorf("no token: exit %d", code)
	}
	if code, _, _ := tranche("x\n", "--server", "tranche.example.org", "login"); code != exitUsage {
		t.Errorf("server without scheme: exit %d", code)
	}
}

func TestExitCodes(t *testing.T) {
	p := loggedIn(t, nil)
	if code, out, _ := tranche("", "submit", "--help"); code != exitOK || !strings.Contains(out, "Examples:") {
		t.Errorf("help: exit %d", code)
	}
	if code, _, _ := tranche("", "frobnicate"); code != exitUsage {
		t.Errorf("unknown command: exit %d", code)
	}
	if code, _, errOut := tranche("", "why", "9"); code != exitRefused || !strings.Contains(errOut, "There is no") {
		t.Errorf("missing job: exit %d, %q", code, errOut)
	}
	p.Close()
	if code, _, errOut := tranche("", "whoami"); code != exitUnavailable || !strings.Contains(errOut, "cannot be reached") {
		t.Errorf("server gone: exit %d, %q", code, errOut)
	}
	t.Setenv("TRANCHE_TOKEN", "")
	if code, _, errOut := tranche("", "whoami"); code != exitUsage || !strings.Contains(errOut, "tranche login") {
		t.Errorf("not logged in: exit %d, %q", code, errOut)
	}
}

func TestSubmitSendsEveryField(t *testing.T) {
	p := loggedIn(t, map[string][]any{"POST /api/v1/jobs": {api.Job{ID: 7, State: "waiting", Project: "/lab/a", MinRuntimeMS: 5_400_000, Reason: "Short of 2 GPUs."}}})
	code, out, errOut := tranche("", "submit", "-p", "/lab/a", "--pool", "h100", "--preset", "train", "--name", "n", "--nodes", "2",
		"-g", "8", "--cpu-milli", "4000", "--ram-mib", "512", "--workdir", "/w", "-e", "A=1;2", "-e", "B=x y", "-o", "out", "--checkpoint", "signal:USR1",
		"--protect", "1h30m", "--grace", "90s", "--max-runtime", "2d", "--no-resumable", "--when-money-ends", "stop", "-u", "4", "--or-free",
		"--max-charge", "1,240.5", "--key", "k1", "--", "python", "it's.py", "--lr=0.1")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	wantIn(t, out, "job 7 waiting in /lab/a, protected for 1h30m", "Short of 2 GPUs.")
	var got map[string]any
	if err := json.Unmarshal(p.calls[0].Body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"key": "k1", "preset": "train", "name": "n", "project": "/lab/a", "pool": "h100", "nodes": 2.0, "gpus": 8.0, "cpu_milli": 4000.0,
		"ram_mib": 512.0, "command": `python 'it'\''s.py' --lr=0.1`, "workdir": "/w", "output_path": "out", "checkpoint": "signal:USR1",
		"min_runtime_ms": 5_400_000.0, "grace_ms": 90_000.0, "max_runtime_ms": 172_800_000.0, "resumable": false, "when_money_ends": "stop",
		"urgency": 4.0, "or_free": true, "max_charge_units": 4_465_800_000.0,
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %v, want %v", k, got[k], v)
		}
	}
	env, _ := got["env"].(map[string]any)
	if len(got) != len(want)+1 || len(env) != 2 || env["A"] != "1;2" || env["B"] != "x y" {
		t.Errorf("%d fields, env %v", len(got), env)
	}
}

// A lost answer is asked for again under the same key, which the program makes.
func TestSubmitRetriesWithTheSameKey(t *testing.T) {
	busy := api.Problem{Status: 503, Title: "Unavailable"}
	p := loggedIn(t, map[string][]any{"POST /api/v1/jobs": {busy, busy, api.Job{ID: 8}}})
	code, _, errOut := tranche("", "submit", "-p", "/a", "--pool", "x", "--", "make && make test")
	if code != 0 || len(p.calls) != 3 {
		t.Fatalf("exit %d after %d calls: %s", code, len(p.calls), errOut)
	}
	var s api.Submit
	if err := json.Unmarshal(p.calls[0].Body, &s); err != nil || len(s.Key) < 20 || s.Command != "make && make test" || s.Resumable != nil || s.MinRuntimeMS != nil {
		t.Errorf("%+v %v", s, err)
	}
	if !bytes.Equal(p.calls[0].Body, p.calls[2].Body) {
		t.Error("the retry differs from the first try")
	}
}

func TestRefusalNamesFields(t *testing.T) {
	loggedIn(t, map[string][]any{"POST /api/v1/jobs": {api.Problem{
		Status: 422, Title: "Invalid", Detail: "Two fields need another look.", Code: "job.invalid",
		Fields: []api.FieldProblem{{Field: "gpus", Detail: "At most 8 per node."}}, Facts: map[string]string{"needed": "9"},
	}}})
	args := []string{"submit", "-p", "/a", "--pool", "x", "-g", "9", "--", "true"}
	code, _, errOut := tranche("", args...)
	wantIn(t, errOut, "tranche: Two fields", "  gpus: At most 8 per node.", "  needed: 9")
	codeJSON, _, errJSON := tranche("", append([]string{"--json"}, args...)...)
	var p api.Problem
	if err := json.Unmarshal([]byte(errJSON), &p); err != nil || p.Code != "job.invalid" || code != 1 || codeJSON != 1 {
		t.Errorf("exit %d and %d, problem %+v %v", code, codeJSON, p, err)
	}
}

func TestBadValuesAreUsageErrors(t *testing.T) {
	p := loggedIn(t, nil)
	base := []string{"submit", "-p", "/a", "--pool", "x"}
	for _, bad := range [][]string{
		{"--protect", "soon", "--", "true"},
		{"--protect", "-1h", "--", "true"},
		{"--preset", "huge", "--", "true"},
		{"--max-charge", "1,5", "--", "true"},
		{"--"},
		{"--gpus", "x", "--", "true"},
	} {
		if code, _, errOut := tranche("", append(base, bad...)...); code != exitUsage {
			t.Errorf("%v: exit %d, %s", bad, code, errOut)
		}
	}
	if len(p.calls) != 0 {
		t.Errorf("%d calls were made", len(p.calls))
	}
}

func TestJobPages(t *testing.T) {
	code1, at := 1, time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)
	job := api.Job{
		ID: 7, Name: "tune", Project: "/lab/a", Pool: "h100", User: "ada", State: "finished", Result: "failed", ExitCode: &code1,
		Nodes: 2, GPUs: 4, MinRuntimeMS: 3_600_000, GraceMS: 60_000, Charged: 12 * ledger.GPUHour, Submitted: at,
		Attempts: []api.Attempt{{Number: 1, State: "ended", Funded: true, Nodes: []string{"n1", "n2"}, ElapsedMS: 90_000, Cause: "exit", ExitCode: &code1}},
	}
	p := loggedIn(t, map[string][]any{
		"GET /api/v1/jobs":   {api.JobList{Jobs: []api.Job{job}, Next: "abc"}},
		"GET /api/v1/jobs/7": {job},
		"GET /api/v1/jobs/7/why": {api.Why{
			Job: 7, Sentence: "It waits for /lab/b.", At: at,
			Lines: []api.WhyLine{{Label: "standing", Value: "1.4", Detail: "the winner has 0.9"}},
		}},
		"GET /api/v1/balances": {api.Balances{At: at, Balances: []api.Balance{{Project: "/lab/a", Pool: "h100", Usable: 30 * ledger.GPUHour, LimitedBy: "/lab"}}}},
	})
	_, out, _ := tranche("", "jobs", "--mine", "--state", "finished", "--limit", "5")
	wantIn(t, out, "finished, failed, exit 1", "2 × 4 GPU", "1h", "12", "More: --after abc")
	if q := p.calls[0].Query; q != "limit=5&mine=1&state=finished" {
		t.Errorf("query %q", q)
	}
	_, out, _ = tranche("", "job", "7")
	wantIn(t, out, "job 7 tune", "attempt 1", "funded, on n1 n2, ran 1m30s", "exit, exit 1", "2026-11-30 22:00:00 UTC")
	_, out, _ = tranche("", "why", "7", "--no-changes")
	wantIn(t, out, "It waits for /lab/b.", "standing", "the winner has 0.9")
	_, out, _ = tranche("", "balance", "/lab/a")
	wantIn(t, out, "USABLE", "30", "/lab")
	_, out, _ = tranche("", "--json", "job", "7")
	var again api.Job
	if err := json.Unmarshal([]byte(out), &again); err != nil || again.Attempts[0].Nodes[1] != "n2" || again.Charged != job.Charged {
		t.Errorf("%v: %s", err, out)
	}
}

// Following goes through all attempts of a job and ends with the last.
func TestLogsFollow(t *testing.T) {
	p := loggedIn(t, map[string][]any{"GET /api/v1/jobs/7/logs": {
		api.Logs{Attempt: 1, NextOffset: 4, Data: []byte("one\n")},
		api.Logs{Attempt: 1, NextOffset: 8, Data: []byte("two\n"), End: true, NextAttempt: 2},
		api.Logs{Attempt: 2, NextOffset: 3, Data: []byte("go\n")},
		api.Logs{Attempt: 2, NextOffset: 3, End: true},
	}})
	code, out, errOut := tranche("", "logs", "-f", "7")
	if code != 0 || out != "one\ntwo\ngo\n" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	var queries []string
	for _, c := range p.calls {
		queries = append(queries, c.Query)
	}
	want := "offset=0&rank=0&wait_ms=25000 attempt=1&offset=4&rank=0&wait_ms=25000 attempt=2&offset=0&rank=0&wait_ms=25000 attempt=2&offset=3&rank=0&wait_ms=25000"
	if got := strings.Join(queries, " "); got != want {
		t.Errorf("queries\n%s, want\n%s", got, want)
	}
}

// One refused job does not keep the others from being cancelled.
func TestCancelSeveral(t *testing.T) {
	p := loggedIn(t, map[string][]any{
		"POST /api/v1/jobs/7/cancel": {api.Job{ID: 7, State: "cancelled"}},
		"POST /api/v1/jobs/9/cancel": {api.Job{ID: 9, State: "ending"}},
	})
	code, out, errOut := tranche("", "cancel", "7", "8", "9")
	wantIn(t, out, "job 7 cancelled", "job 9 ending")
	wantIn(t, errOut, "There is no")
	var first, last api.Command
	_ = json.Unmarshal(p.calls[0].Body, &first)
	_ = json.Unmarshal(p.calls[2].Body, &last)
	if code != exitRefused || first.Key == "" || first.Key == last.Key {
		t.Errorf("exit %d, keys %q and %q", code, first.Key, last.Key)
	}
}

func TestShellText(t *testing.T) {
	for want, words := range map[string][]string{
		"a && b":            {"--", "a && b"},
		"python x.py":       {"python", "x.py"},
		`echo '' 'a b' '$'`: {"echo", "", "a b", "$"},
		`echo 'it'\''s'`:    {"echo", "it's"},
		"":                  {"--"},
	} {
		if got := shellText(words); got != want {
			t.Errorf("%q became %q, want %q", words, got, want)
		}
	}
}

func TestAgentConfiguration(t *testing.T) {
	t.Setenv("TRANCHE_ENROL_TOKEN", "join")
	t.Setenv("TRANCHE_SERVER", "")
	c := agentCommand{Name: "n1", Devices: "sim:8:H100:81559", StateDir: "/x", UserMap: map[string]string{"*": "nobody"}}
	cfg, err := c.config(t.Context(), &terminal{Server: "http://s/", Err: &bytes.Buffer{}})
	if err != nil || cfg.Server != "http://s" || cfg.EnrolToken != "join" || cfg.Users["*"] != "nobody" {
		t.Errorf("%+v %v", cfg, err)
	}
	found, err := cfg.Devices.Discover(t.Context())
	if err != nil || len(found) != 8 || found[7].Model != "H100" || found[7].HBMMiB != 81559 {
		t.Errorf("%+v %v", found, err)
	}
	for _, bad := range []string{"", "sim", "sim:0:H100:1", "sim:8::1", "sim:x:H100:1"} {
		if _, err := deviceSource(t.Context(), bad, "n"); err == nil {
			t.Errorf("--devices %q was taken", bad)
		}
	}
	if code, _, errOut := tranche("", "agent"); code != exitUsage || !strings.Contains(errOut, "--server") {
		t.Errorf("no server: exit %d, %q", code, errOut)
	}
}
