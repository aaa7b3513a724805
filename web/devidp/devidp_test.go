package devidp

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// peer is a client of the provider, as the server is one.
type peer struct {
	issuer   string
	conf     oauth2.Config
	provider *oidc.Provider
	browser  *http.Client
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p := &peer{issuer: server.URL + "/dev"}
	const back = "http://localhost:1/callback"
	idp, err := New(Config{Issuer: p.issuer, ClientID: "tranche", ClientSecret: "s", RedirectURI: back, People: []Person{
		{Subject: "ana", Name: "Ana Petrova", Username: "ana", Email: "ana@example.org", Groups: []string{"vision", "pis"}},
		{Subject: "kofi", Name: "Kofi Mensah", Username: "kofi", Email: "kofi@example.org"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/dev/", idp)
	if p.provider, err = oidc.NewProvider(t.Context(), p.issuer); err != nil {
		t.Fatal(err)
	}
	p.conf = oauth2.Config{
		ClientID: "tranche", ClientSecret: "s", Endpoint: p.provider.Endpoint(), RedirectURL: back,
		Scopes: []string{"openid", "profile", "email", "groups"},
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.browser = &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), back) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	return p
}

// code follows a sign-in to the callback.
func (p *peer) code(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Query().Get("code") == "" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: no code in %q: %s", resp.Status, to, body)
	}
	if to.Query().Get("state") != "st" {
		t.Errorf("state %q", to.Query().Get("state"))
	}
	return to.Query().Get("code")
}

func (p *peer) start(verifier, hint string) string {
	return p.conf.AuthCodeURL("st", oidc.Nonce("n1"), oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("login_hint", hint))
}

// claims redeems a code and reads who it was.
func (p *peer) claims(ctx context.Context, t *testing.T, code, verifier string) (subject string, all map[string]any) {
	t.Helper()
	token, err := p.conf.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		t.Fatal("no id_token")
	}
	id, err := p.provider.Verifier(&oidc.Config{ClientID: "tranche"}).Verify(ctx, raw)
	if err != nil || id.Nonce != "n1" {
		t.Fatalf("nonce %q, error %v", id.Nonce, err)
	}
	info, err := p.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Claims(&all); err != nil {
		t.Fatal(err)
	}
	return id.Subject, all
}

func TestHintSignsInAtOnce(t *testing.T) {
	p := newPeer(t)
	verifier := oauth2.GenerateVerifier()
	resp, err := p.browser.Get(p.start(verifier, "ana"))
	subject, all := p.claims(t.Context(), t, p.code(t, resp, err), verifier)
	groups, _ := all["groups"].([]any)
	if subject != "ana" || all["name"] != "Ana Petrova" || all["email"] != "ana@example.org" || all["preferred_username"] != "ana" || len(groups) != 2 {
		t.Errorf("subject %q, claims %v", subject, all)
	}
}

func TestPageAsksWhoAndCodeNeedsItsVerifier(t *testing.T) {
	p := newPeer(t)
	verifier := oauth2.GenerateVerifier()
	resp, err := p.browser.Get(p.start(verifier, "nobody"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	id := regexp.MustCompile(`name="request" value="([^"]+)"`).FindSubmatch(body)
	if id == nil || !strings.Contains(string(body), "Kofi Mensah") {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	resp, err = p.browser.PostForm(p.issuer+"/login", url.Values{"request": {string(id[1])}, "person": {"kofi"}})
	code := p.code(t, resp, err)
	if _, err := p.conf.Exchange(t.Context(), code, oauth2.VerifierOption(oauth2.GenerateVerifier())); err == nil {
		t.Error("a code was redeemed with another verifier")
	}
	resp, err = p.browser.PostForm(p.issuer+"/login", url.Values{"request": {"made-up"}, "person": {"kofi"}})
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a made-up request: %v %v", resp.Status, err)
	}
	resp.Body.Close()
}
