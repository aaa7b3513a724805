package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// callbackURL is where the provider sends people back to.
const callbackURL = "/sign-in/callback"

// Session keys. Values are strings and int64 only.
const (
	sessionPerson = "person"
	sessionTry    = "sign-in" // state, nonce, verifier, next: one line each
)

// provider is the OpenID provider, discovered at the first sign-in so that the
// server starts while the provider is away.
type provider struct {
	cfg    OIDC
	public string
	mu     sync.Mutex
	found  *oidc.Provider
}

func newProvider(cfg OIDC, public string) *provider {
	if cfg.GroupsClaim == "" {
		cfg.GroupsClaim = "groups"
	}
	if cfg.Name == "" {
		cfg.Name = "your organisation"
	}
	return &provider{cfg: cfg, public: public}
}

// discover asks the provider for its addresses, once.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		// Key sets are fetched again later, so the context must outlive the request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client()), p.cfg.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("ask the sign-in provider: %w", err)
		}
		p.found = found
	}
	return p.found, &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret,
		Endpoint: p.found.Endpoint(), RedirectURL: p.public + callbackURL,
		Scopes: []string{oidc.ScopeOpenID, "profile", "email", "groups"},
	}, nil
}

func (p *provider) client() *http.Client { return &http.Client{Timeout: 10 * time.Second} }

// try is one sign-in under way: what the callback must bring back.
type try struct{ state, nonce, verifier, next string }

func (t try) String() string {
	return strings.Join([]string{t.state, t.nonce, t.verifier, t.next}, "\n")
}

func parseTry(s string) (try, bool) {
	part := strings.SplitN(s, "\n", 4)
	if len(part) != 4 || part[0] == "" {
		return try{}, false
	}
	return try{part[0], part[1], part[2], part[3]}, true
}

// secret is 32 random bytes as text.
func secret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// localPath keeps a "next" address inside this site.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\n\r\t") {
		return view.HomeURL
	}
	return next
}

// signIn offers the ways to sign in. The demonstration answers to several names
// of this machine, but the provider sends people back to one: they start there,
// or their cookie would be another's.
func (s *server) signIn(w http.ResponseWriter, r *http.Request) error {
	if public, err := url.Parse(s.cfg.PublicURL); s.cfg.Demo != "" && err == nil && r.Host != public.Host {
		http.Redirect(w, r, s.cfg.PublicURL+r.URL.RequestURI(), http.StatusSeeOther)
		return nil
	}
	return s.showSignIn(w, r, http.StatusOK, "")
}

func (s *server) showSignIn(w http.ResponseWriter, r *http.Request, status int, refused string) error {
	m := view.SignIn{Next: localPath(r.FormValue("next")), Refused: refused}
	if s.provider != nil {
		m.Provider = s.provider.cfg.Name
	}
	for _, d := range s.cfg.DevIdentities {
		m.People = append(m.People, view.DevPerson{Key: d.Subject, Name: d.Name, Role: d.Role, Can: d.Can})
	}
	shell := s.bareShell(r, "Sign in")
	shell.Answer = "Sign in to see what you can use, what waits and why."
	return s.showAs(w, r, status, view.SignInPage(shell, m))
}

// signInOIDC sends a person to the provider.
func (s *server) signInOIDC(w http.ResponseWriter, r *http.Request) error {
	return s.startSignIn(w, r, "")
}

// signInDev is the same with a development identity chosen beforehand.
func (s *server) signInDev(w http.ResponseWriter, r *http.Request) error {
	for _, d := range s.cfg.DevIdentities {
		if d.Subject == r.PostFormValue("person") {
			return s.startSignIn(w, r, d.Subject)
		}
	}
	return missing("identity", "There is no such development identity.")
}

func (s *server) startSignIn(w http.ResponseWriter, r *http.Request, hint string) error {
	if s.provider == nil {
		return &ledger.Refusal{Kind: ledger.Unavailable, Code: "sign-in.off", Detail: "Sign-in is not configured on this server; ask its operator."}
	}
	_, conf, err := s.provider.discover(r.Context())
	if err != nil {
		s.log.ErrorContext(r.Context(), "sign-in provider", "cause", err)
		return s.showSignIn(w, r, http.StatusServiceUnavailable, "The sign-in provider does not answer. Try again in a moment.")
	}
	t := try{state: secret(), nonce: secret(), verifier: oauth2.GenerateVerifier(), next: localPath(r.FormValue("next"))}
	s.sessions.Put(r.Context(), sessionTry, t.String())
	opts := []oauth2.AuthCodeOption{oidc.Nonce(t.nonce), oauth2.S256ChallengeOption(t.verifier)}
	if hint != "" {
		opts = append(opts, oauth2.SetAuthURLParam("login_hint", hint))
	}
	http.Redirect(w, r, conf.AuthCodeURL(t.state, opts...), http.StatusSeeOther)
	return nil
}

// signInCallback takes the person back from the provider.
func (s *server) signInCallback(w http.ResponseWriter, r *http.Request) error {
	t, ok := parseTry(s.sessions.PopString(r.Context(), sessionTry))
	if !ok || s.provider == nil {
		return s.showSignIn(w, r, http.StatusBadRequest, "This sign-in was not started here, or too long ago. Start it again.")
	}
	if subtle.ConstantTimeCompare([]byte(t.state), []byte(r.FormValue("state"))) != 1 {
		return s.showSignIn(w, r, http.StatusBadRequest, "The answer of the sign-in provider belongs to another sign-in. Start it again.")
	}
	if r.FormValue("error") != "" {
		return s.showSignIn(w, r, http.StatusForbidden, "The sign-in provider refused. Start again, or ask its operators.")
	}
	id, err := s.provider.identify(r.Context(), r.FormValue("code"), t)
	if err != nil {
		s.log.WarnContext(r.Context(), "sign-in failed", "request", visitOf(r.Context()).id, "cause", err)
		return s.showSignIn(w, r, http.StatusForbidden, "The sign-in provider's answer could not be trusted. Start it again.")
	}
	id.Remote = remoteOf(r)
	person, err := s.store.SignIn(r.Context(), id)
	if err != nil {
		return err
	}
	// A new token: whoever knew the old one is not signed in with it.
	if err := s.sessions.RenewToken(r.Context()); err != nil {
		return err
	}
	s.sessions.Put(r.Context(), sessionPerson, int64(person))
	http.Redirect(w, r, t.next, http.StatusSeeOther)
	return nil
}

// claims are what Tranche reads of an identity, from the token or from userinfo.
type claims struct {
	Name     string `json:"name"`
	Email    string `json:"email"`
	Username string `json:"preferred_username"`
}

// identify trades the code for an identity: token verified, nonce compared,
// userinfo merged in.
func (p *provider) identify(ctx context.Context, code string, t try) (store.Identity, error) {
	found, conf, err := p.discover(ctx)
	if err != nil {
		return store.Identity{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client())
	token, err := conf.Exchange(ctx, code, oauth2.VerifierOption(t.verifier))
	if err != nil {
		return store.Identity{}, fmt.Errorf("exchange the code: %w", err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return store.Identity{}, errors.New("no id_token in the answer")
	}
	idToken, err := found.Verifier(&oidc.Config{ClientID: p.cfg.ClientID}).Verify(ctx, raw)
	if err != nil {
		return store.Identity{}, fmt.Errorf("verify the id_token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(idToken.Nonce), []byte(t.nonce)) != 1 {
		return store.Identity{}, errors.New("the nonce differs")
	}
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return store.Identity{}, fmt.Errorf("userinfo: %w", err)
	}
	if info.Subject != idToken.Subject {
		return store.Identity{}, errors.New("userinfo speaks of another person")
	}
	id := store.Identity{Issuer: idToken.Issuer, Subject: idToken.Subject}
	for _, source := range []interface{ Claims(any) error }{idToken, info} {
		if err := p.merge(&id, source); err != nil {
			return store.Identity{}, err
		}
	}
	return id, nil
}

// merge fills what is still empty in the identity.
func (p *provider) merge(id *store.Identity, source interface{ Claims(any) error }) error {
	var c claims
	if err := source.Claims(&c); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	if id.Name == "" {
		id.Name = c.Name
	}
	if id.Email == "" {
		id.Email = c.Email
	}
	if id.Username == "" {
		id.Username = c.Username
	}
	var all map[string]any
	if err := source.Claims(&all); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	if list, ok := all[p.cfg.GroupsClaim].([]any); ok && id.Groups == nil {
		for _, g := range list {
			if name, ok := g.(string); ok {
				id.Groups = append(id.Groups, name)
			}
		}
	}
	return nil
}

func (s *server) signOut(w http.ResponseWriter, r *http.Request) error {
	if err := s.sessions.Destroy(r.Context()); err != nil {
		return err
	}
	http.Redirect(w, r, view.SignInURL, http.StatusSeeOther)
	return nil
}

type actorKey struct{}

// actorOf is the person a guarded handler works for.
func actorOf(r *http.Request) ledger.Actor {
	a, _ := r.Context().Value(actorKey{}).(ledger.Actor)
	return a
}

// errAnonymous means: nobody is signed in.
var errAnonymous = errors.New("nobody is signed in")

// resolve finds who sends a request: a session for people, a bearer token for
// programs. Grants are read again every time.
func (s *server) resolve(r *http.Request) (ledger.Actor, error) {
	if isAPI(r) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			return ledger.Actor{}, errAnonymous
		}
		return s.store.TokenActor(r.Context(), token)
	}
	person := s.sessions.GetInt64(r.Context(), sessionPerson)
	if person == 0 {
		return ledger.Actor{}, errAnonymous
	}
	return s.store.Actor(r.Context(), ledger.PersonID(person))
}

// command is the head of every store command: who, which key, from where.
func (s *server) command(r *http.Request) store.Command {
	return store.Command{Actor: actorOf(r), Key: formKey(r), Remote: remoteOf(r)}
}

// remoteOf is the address a request came from, without its port.
func remoteOf(r *http.Request) string {
	if i := strings.LastIndexByte(r.RemoteAddr, ':'); i > 0 {
		return r.RemoteAddr[:i]
	}
	return r.RemoteAddr
}
