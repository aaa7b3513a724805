package web

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// hostile is a name that would run if any page forgot to escape it, 200
// characters long.
const hostile = `"><script>alert(11)</script><img src=x onerror=alert(2)>` + m36 + m36 + m36 + m36

const m36 = "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"

// Every page shows hostile names of 200 characters as text.
func TestPagesEscapeHostileNames(t *testing.T) {
	t.Parallel()
	if len(hostile) != 200 {
		t.Fatalf("the name has %d characters", len(hostile))
	}
	s := newScene(t)
	ctx := t.Context()
	s.must(s.store.RenameGroup(ctx, s.cmd("admin here"), s.seg, hostile, "00123"))
	s.must(s.store.RenameGroup(ctx, s.cmd("admin here"), s.vision, hostile, ""))
	for name := range s.persons {
		groups := []string(nil)
		if name == "admin here" {
			groups = []string{"admins"}
		}
		_, err := s.store.SignIn(ctx, store.Identity{Issuer: "https://id.test", Subject: name, Name: hostile, Email: "a@b.test", Groups: groups})
		s.must(err)
	}
	_, err := s.store.SaveRequest(ctx, s.cmd("pi here"), store.RequestInput{
		Project: s.seg, Period: s.q4, Purpose: hostile, Outcome: hostile, Submit: true,
		Lines: []ledger.RequestLine{{Pool: s.h100, Asked: hour}},
	})
	s.must(err)
	_, err = s.store.AskToJoin(ctx, s.cmd("researcher elsewhere"), s.seg, hostile)
	s.must(err)
	admin, rows, shown := s.as("admin here"), s.expectations(), 0
	for _, rt := range s.server.routes() {
		row := rows[rt.method+" "+rt.pattern]
		if rt.method != http.MethodGet || rt.scope == open || isProgram(rt.pattern) {
			continue
		}
		path := row.path
		if path == "" {
			path = rt.pattern
		}
		page := admin.get(path)
		if page.status >= 500 {
			t.Errorf("%s: %d", page.name, page.status)
		}
		if !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
			continue
		}
		shown += strings.Count(page.body, "&lt;script&gt;")
		checkNoneRuns(t, page)
	}
	if shown < 20 {
		t.Errorf("the name was shown %d times only: the test looks at the wrong pages", shown)
	}
}

// checkNoneRuns looks for what a strict policy forbids: scripts in the page,
// event attributes, styles set by content.
func checkNoneRuns(t *testing.T, page *answer) {
	t.Helper()
	for n := range page.root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if src, ok := attribute(n, "src"); n.Data == "script" && (!ok || !strings.HasPrefix(src, "/static/")) {
			t.Errorf("%s: a script in the page: %q", page.name, textOf(n))
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || (a.Key == "style") || (a.Key == "href" && strings.HasPrefix(a.Val, "javascript:")) {
				t.Errorf("%s: <%s %s=%q>", page.name, n.Data, a.Key, a.Val)
			}
		}
	}
}

func TestEveryAnswerIsHardened(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, path := range []string{view.SignInURL, "/no-such-page", "/healthz", view.TreeURL} {
		a := (&browser{site: s}).get(path)
		policy := a.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'; script-src 'self'; style-src 'self'") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "form-action 'self' http://id.test") {
			t.Errorf("%s: policy %q", path, policy)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"} {
			if got := a.header.Get(header); got != want {
				t.Errorf("%s: %s is %q", path, header, got)
			}
		}
		if a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: no request id", path)
		}
	}
	if a := (&browser{site: s}).get("/no-such-page"); a.status != 404 || a.one("refusal") == "" {
		t.Errorf("an unknown page: %d %q", a.status, a.one("refusal"))
	}
	if a := (&browser{site: s}).get("/readyz"); a.status != 200 {
		t.Errorf("readyz: %d", a.status)
	}
}

func TestForeignSitesCannotPost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cookie := s.session(s.persons["admin here"])
	for _, c := range []struct {
		header, value string
		status        int
	}{{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403}, {"Origin", "http://evil.test", 403}, {"Sec-Fetch-Site", "same-origin", 303}, {"Origin", "http://example.com", 303}} {
		form := url.Values{"key": {c.header + c.value}}
		r := httptest.NewRequest(http.MethodPost, view.GroupVerbURL(s.vision, "suspend"), strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(c.header, c.value)
		r.AddCookie(cookie)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: %s: %d, want %d", c.header, c.value, w.Code, c.status)
		}
	}
}

func TestForeignHostsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	handler, err := New(Config{Store: s.store, PublicURL: "http://localhost:8080", Demo: "A demonstration.", Hosts: []string{"localhost:8080", "127.0.0.1:8080"}})
	s.must(err)
	for host, want := range map[string]int{"localhost:8080": 303, "127.0.0.1:8080": 303, "evil.test": 421, "localhost.evil.test:8080": 421} {
		r := httptest.NewRequest(http.MethodGet, view.TreeURL, nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("host %s: %d, want %d", host, w.Code, want)
		}
	}
	// Sign-in begins under the name that the provider sends people back to.
	r := httptest.NewRequest(http.MethodGet, view.SignInURL+"?next=%2Ftree", nil)
	r.Host = "127.0.0.1:8080"
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if to := w.Header().Get("Location"); w.Code != 303 || to != "http://localhost:8080/sign-in?next=%2Ftree" {
		t.Errorf("sign-in under another name: %d %s", w.Code, to)
	}
}

// A fault's text is for the log; people get a reference that leads to it.
func TestFaultsShowAReferenceOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var lines bytes.Buffer
	s.server.log = slog.New(slog.NewTextHandler(&lines, nil))
	for name, h := range map[string]http.HandlerFunc{
		"error": func(w http.ResponseWriter, r *http.Request) { s.server.fail(w, r, errors.New("password=hunter2")) },
		"panic": func(http.ResponseWriter, *http.Request) { panic("password=hunter2") },
	} {
		for _, path := range []string{"/tree", "/api/v1/jobs"} {
			lines.Reset()
			w := httptest.NewRecorder()
			s.server.identify(s.server.recoverPanic(h)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			ref := w.Header().Get("X-Request-Id")
			if w.Code != 500 || strings.Contains(w.Body.String(), "hunter2") || !strings.Contains(w.Body.String(), ref) {
				t.Errorf("%s at %s: %d %.300s", name, path, w.Code, w.Body.String())
			}
			if log := lines.String(); !strings.Contains(log, ref) || !strings.Contains(log, "hunter2") {
				t.Errorf("%s at %s: the log has not both reference and cause: %s", name, path, log)
			}
		}
	}
}

// The log names routes, never addresses: those may hold secrets.
func TestLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var lines bytes.Buffer
	s.server.log = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.as("pi here").get(inviteURL + "the-secret?code=the-secret")
	if log := lines.String(); strings.Contains(log, "the-secret") || !strings.Contains(log, "/invites/{secret}") {
		t.Errorf("log: %s", log)
	}
}

func TestLargeBodiesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.as("pi here").send(http.MethodPost, view.RequestsURL, url.Values{"key": {"k"}, "project": {idText(s.seg)}, "purpose": {strings.Repeat("x", maxBody)}})
	if a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a form of more than a MiB: %d %q", a.status, a.one("refusal"))
	}
}
