// Package devidp is a real OpenID provider for the demo and the tests: code flow
// with PKCE, signed tokens, userinfo. Anybody may sign in as anybody, so it must
// only ever be reachable from the machine it runs on.
package devidp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Person is somebody the provider knows.
type Person struct {
	Subject  string
	Name     string
	Username string
	Email    string
	Groups   []string
}

// Config describes the provider and its one client.
type Config struct {
	Issuer       string // "http://localhost:8080/dev-sign-in"; its path is where the handler is mounted
	ClientID     string
	ClientSecret string
	RedirectURI  string
	People       []Person // in the order of the page
	Log          *slog.Logger
}

// New builds the provider's handler. A request with a login_hint that is a
// known subject signs in as that person at once; otherwise a page asks who.
func New(cfg Config) (http.Handler, error) {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil || issuer.Host == "" {
		return nil, fmt.Errorf("development sign-in: issuer %q is no address", cfg.Issuer)
	}
	p := &provider{cfg: cfg, prefix: strings.TrimSuffix(issuer.Path, "/")}
	clients := map[string]*storage.Client{cfg.ClientID: storage.WebClient(cfg.ClientID, cfg.ClientSecret, cfg.RedirectURI)}
	p.storage = &keeper{Storage: storage.NewStorageWithClients(people{cfg.People}, clients), provider: p}
	var key [32]byte
	rand.Read(key[:]) // never fails
	var options []op.Option
	if issuer.Scheme == "http" {
		options = append(options, op.WithAllowInsecure())
	}
	if cfg.Log != nil {
		options = append(options, op.WithLogger(cfg.Log))
	}
	protocol, err := op.NewProvider(&op.Config{CryptoKey: key, CodeMethodS256: true, AuthMethodPost: true}, p.storage, op.StaticIssuer(cfg.Issuer), options...)
	if err != nil {
		return nil, fmt.Errorf("development sign-in: %w", err)
	}
	p.callback = func(ctx context.Context, id string) string {
		return op.AuthCallbackURL(protocol)(op.ContextWithIssuer(ctx, cfg.Issuer), id)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+loginPath, p.ask)
	mux.HandleFunc("POST "+loginPath, p.choose)
	mux.Handle("/", protocol)
	return http.StripPrefix(p.prefix, mux), nil
}

const (
	loginPath   = "/login"
	requestID   = "request"
	maxFormSize = 1 << 12 // bytes
)

// provider is the part that people see.
type provider struct {
	cfg      Config
	prefix   string
	storage  *keeper
	callback func(ctx context.Context, id string) string
}

// keeper is the library's in-memory storage, with our sign-in page and groups.
type keeper struct {
	*storage.Storage
	provider *provider
}

// client sends people to our sign-in page.
type client struct {
	op.Client
	prefix string
}

// LoginURL is the page that asks who somebody is.
func (c client) LoginURL(id string) string {
	return c.prefix + loginPath + "?" + url.Values{requestID: {id}}.Encode()
}

// GetClientByClientID gives the one client.
func (k *keeper) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := k.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{found, k.provider.prefix}, nil
}

// SetUserinfoFromRequest fills an id_token.
func (k *keeper) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	err := k.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
	k.addGroups(info, token.GetSubject())
	return err
}

// SetUserinfoFromToken answers the userinfo endpoint.
func (k *keeper) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string) error {
	err := k.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin)
	k.addGroups(info, subject)
	return err
}

func (k *keeper) addGroups(info *oidc.UserInfo, subject string) {
	for _, p := range k.provider.cfg.People {
		if p.Subject == subject {
			info.AppendClaims("groups", p.Groups)
		}
	}
}

// people looks persons up for the library's storage. The password is the
// subject: who may reach the provider may be anybody.
type people struct{ all []Person }

func (s people) GetUserByID(id string) *storage.User {
	for _, p := range s.all {
		if p.Subject == id {
			first, last, _ := strings.Cut(p.Name, " ")
			return &storage.User{
				ID: p.Subject, Username: p.Username, Password: p.Subject, FirstName: first, LastName: last,
				Email: p.Email, EmailVerified: true,
			}
		}
	}
	return nil
}

func (s people) GetUserByUsername(name string) *storage.User {
	for _, p := range s.all {
		if p.Username == name {
			return s.GetUserByID(p.Subject)
		}
	}
	return nil
}

// ExampleClientID names no service account: there is none.
func (people) ExampleClientID() string { return "none" }

// signIn ends a sign-in as one person and gives the address to go on at.
func (p *provider) signIn(ctx context.Context, id, subject string) (string, error) {
	user := people{p.cfg.People}.GetUserByID(subject)
	if user == nil {
		return "", errors.New("nobody of that name is known here")
	}
	if err := p.storage.CheckUsernamePassword(user.Username, user.Password, id); err != nil {
		return "", errors.New("this sign-in was not started here, or too long ago: start it again")
	}
	return p.callback(ctx, id), nil
}

// ask shows who one can be, or takes the hint.
func (p *provider) ask(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get(requestID)
	request, err := p.storage.AuthRequestByID(r.Context(), id)
	if err != nil {
		http.Error(w, "This sign-in was not started here, or too long ago: start it again.", http.StatusBadRequest)
		return
	}
	if started, ok := request.(*storage.AuthRequest); ok && started.LoginHint != "" {
		if to, err := p.signIn(r.Context(), id, started.LoginHint); err == nil {
			http.Redirect(w, r, to, http.StatusSeeOther)
			return
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	w.Header().Set("Cache-Control", "no-store")
	err = page().Execute(w, struct {
		Action, ID string
		People     []Person
	}{p.prefix + loginPath, id, p.cfg.People})
	if err != nil && p.cfg.Log != nil {
		p.cfg.Log.Debug("sign-in page", "cause", err) // the browser went away
	}
}

// choose takes the answer.
func (p *provider) choose(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormSize)
	to, err := p.signIn(r.Context(), r.PostFormValue(requestID), r.PostFormValue("person"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func page() *template.Template {
	return template.Must(template.New("who").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Development sign-in</title></head>
<body><h1>Who are you today?</h1>
<p>This provider is part of the demonstration. It asks for no password and only answers on this machine.</p>
<form method="post" action="{{.Action}}"><input type="hidden" name="request" value="{{.ID}}">
{{range .People}}<p><button name="person" value="{{.Subject}}">{{.Name}}</button></p>
{{end}}</form></body></html>
`))
}
