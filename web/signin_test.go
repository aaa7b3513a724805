package web

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"tranche/ledger"
	"tranche/store"
	"tranche/store/storetest"
	"tranche/web/devidp"
	"tranche/web/view"
)

// gate is a server and a real OpenID provider, each on its own loopback port.
type gate struct {
	t      *testing.T
	store  *store.Store
	public string // address of the server
	issuer string
}

func newGate(t *testing.T) *gate {
	t.Helper()
	db := storetest.New(t)
	g := &gate{t: t, store: db.Store}
	if _, err := g.store.FoundTree(t.Context(), "lab", "The Lab"); err != nil {
		t.Fatal(err)
	}
	if err := g.store.SetIdentityRoles(t.Context(), []store.IdentityRole{{Group: "lab-admins", Role: ledger.Admin, Path: "/lab"}}); err != nil {
		t.Fatal(err)
	}
	app, idp := httptest.NewUnstartedServer(nil), httptest.NewUnstartedServer(nil)
	g.public, g.issuer = "http://"+app.Listener.Addr().String(), "http://"+idp.Listener.Addr().String()
	provider, err := devidp.New(devidp.Config{Issuer: g.issuer, ClientID: "tranche", ClientSecret: "s", RedirectURI: g.public + callbackURL, People: []devidp.Person{
		{Subject: "ada", Name: "Ada Byron", Username: "ada", Email: "ada@lab.test", Groups: []string{"lab-admins"}}, {Subject: "eve", Name: "Eve", Username: "eve"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := New(Config{
		Store: g.store, PublicURL: g.public, OIDC: OIDC{Issuer: g.issuer, ClientID: "tranche", ClientSecret: "s"},
		DevIdentities: []DevIdentity{{Subject: "ada", Name: "Ada Byron"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	idp.Config.Handler, app.Config.Handler = provider, handler
	for _, s := range []*httptest.Server{idp, app} {
		s.Start()
		t.Cleanup(s.Close)
	}
	return g
}

// visitor is a browser; change may alter the addresses it is redirected to.
func (g *gate) visitor(change func(*url.URL)) *http.Client {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if change != nil {
			change(r.URL)
		}
		return nil
	}}
}

// page reads an answer whole.
func (g *gate) page(resp *http.Response, err error) (status int, at, body string) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, resp.Request.URL.Path, string(b)
}

func (g *gate) signIn(c *http.Client, next string) (status int, at, body string) {
	g.t.Helper()
	return g.page(c.PostForm(g.public+view.SignInDevURL, url.Values{"person": {"ada"}, "next": {next}}))
}

func TestSignInByARealProvider(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := g.visitor(nil)
	status, at, _ := g.page(c.Get(g.public + view.TreeURL))
	if status != 200 || at != view.SignInURL {
		t.Errorf("before sign-in the tree leads to %d %s", status, at)
	}
	home, err := url.Parse(g.public)
	if err != nil {
		t.Fatal(err)
	}
	before := c.Jar.Cookies(home)
	status, at, body := g.signIn(c, view.TreeURL)
	if status != 200 || at != view.TreeURL || !strings.Contains(body, "Ada Byron") || !strings.Contains(body, "admin of /lab") {
		t.Fatalf("after sign-in: %d %s %.400s", status, at, body)
	}
	after := c.Jar.Cookies(home)
	if len(after) != 1 || (len(before) == 1 && before[0].Value == after[0].Value) {
		t.Errorf("the session's token was not renewed: %v, %v", before, after)
	}
	var kept int
	if err := g.store.Pool().QueryRow(t.Context(), "select count(*) from sessions where token = $1", after[0].Value).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("the session's token stands in the database: %d, %v", kept, err)
	}
	status, at, _ = g.page(c.Post(g.public+view.SignOutURL, "", nil))
	if status != 200 || at != view.SignInURL {
		t.Errorf("signing out leads to %d %s", status, at)
	}
	stolen := g.visitor(nil)
	stolen.Jar.SetCookies(home, after)
	if _, at, _ := g.page(stolen.Get(g.public + view.TreeURL)); at != view.SignInURL {
		t.Errorf("the old cookie still opens %s", at)
	}
}

// The provider's own page asks who; the answer comes back the same way.
func TestSignInThroughTheProvidersPage(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := g.visitor(nil)
	_, at, body := g.page(c.Get(g.public + view.SignInOIDCURL))
	if !strings.Contains(body, "Eve") {
		t.Fatalf("the provider's page at %s: %.300s", at, body)
	}
}

func TestSignInRefusesWhatWasTamperedWith(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	set := func(path, name, value string) func(*url.URL) {
		return func(u *url.URL) {
			if q := u.Query(); strings.HasSuffix(u.Path, path) && q.Has(name) {
				q.Set(name, value)
				u.RawQuery = q.Encode()
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*url.URL)
		status int
		says   string
	}{
		{"state", set(callbackURL, "state", "another"), 400, "belongs to another sign-in"},
		{"code", set(callbackURL, "code", "another"), 403, "could not be trusted"},
		{"nonce", set("/authorize", "nonce", "another"), 403, "could not be trusted"},
		{"challenge", set("/authorize", "code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"), 403, "could not be trusted"},
	} {
		browser := g.visitor(c.change)
		status, at, body := g.signIn(browser, "/")
		if status != c.status || at != callbackURL || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d at %s %q", c.name, status, at, firstSentence(body))
		}
		if _, at, _ := g.page(browser.Get(g.public + view.TreeURL)); at != view.SignInURL {
			t.Errorf("%s: signed in all the same", c.name)
		}
	}
	status, _, _ := g.page(g.visitor(nil).Get(g.public + callbackURL + "?code=x&state=y"))
	if status != 400 {
		t.Errorf("a callback nobody started: %d", status)
	}
}

func TestSignInLeadsOnlyInsideThisSite(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{"/tree?pool=2": "/tree?pool=2", "": "/", "https://evil.test": "/", "//evil.test/x": "/", "/\\evil.test": "/", "tree": "/", "/a\nb": "/"} {
		if got := localPath(next); got != want {
			t.Errorf("next %q leads to %q, want %q", next, got, want)
		}
	}
}
