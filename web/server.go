// Package web owns HTTP: pages that work without JavaScript, the JSON interface
// and the agents' endpoints. A handler takes the actor, parses its fields, makes
// one store call and renders one view; it decides nothing.
package web

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/pgxstore"
	"github.com/alexedwards/scs/v2"
	"github.com/go-chi/chi/v5"

	"tranche/static"
	"tranche/store"
)

// Config is what the pages need to know. Zone is the accounting zone that
// people see; nil is UTC.
type Config struct {
	Store     *store.Store
	Logger    *slog.Logger
	Zone      *time.Location
	PublicURL string // "https://tranche.example.org", without a slash at the end
	OIDC      OIDC
	// Demo is the banner of the demonstration; "" outside it.
	Demo string
	// DevIdentities are offered as one-click buttons; the provider at
	// OIDC.Issuer must know them.
	DevIdentities []DevIdentity
	// Hosts are the Host headers that are answered; empty means all.
	Hosts []string
}

// OIDC names the OpenID provider. An empty Issuer leaves sign-in switched off.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	Name         string // on the sign-in button
	GroupsClaim  string // default "groups"
}

// DevIdentity is a person of the development provider.
type DevIdentity struct {
	Subject string
	Name    string
	Role    string // "manager of Vision"
	Can     string // "splits Vision's pot and answers requests"
}

// server holds what handlers share. It is immutable after New.
type server struct {
	cfg      Config
	store    *store.Store
	log      *slog.Logger
	zone     *time.Location
	sessions *scs.SessionManager
	provider *provider // nil when sign-in is switched off
	mintKey  [32]byte  // secrets shown once are made from it; new at every start

	nodeTokens nodeTokens
}

// sessionLifetime bounds how long a person stays signed in (real time).
const sessionLifetime = 12 * time.Hour

// New builds the handler of everything that is served to people, programs and
// agents. It opens no connection; the provider is asked at the first sign-in.
func New(cfg Config) (http.Handler, error) {
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	return s.handler(), nil
}

func newServer(cfg Config) (*server, error) {
	if cfg.Store == nil {
		return nil, errors.New("web: no store given")
	}
	cfg.PublicURL = strings.TrimSuffix(cfg.PublicURL, "/")
	public, err := url.Parse(cfg.PublicURL)
	if err != nil || public.Host == "" || (public.Scheme != "http" && public.Scheme != "https") {
		return nil, fmt.Errorf("web: public address %q must be an http or https URL", cfg.PublicURL)
	}
	s := &server{cfg: cfg, store: cfg.Store, log: cfg.Logger, zone: cfg.Zone}
	rand.Read(s.mintKey[:]) // never fails
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.zone == nil {
		s.zone = time.UTC
	}
	s.sessions = scs.New()
	s.sessions.Store = pgxstore.NewWithCleanupInterval(cfg.Store.Pool(), 0)
	s.sessions.HashTokenInStore = true
	s.sessions.Lifetime = sessionLifetime
	s.sessions.Cookie.Name = "tranche"
	s.sessions.Cookie.HttpOnly = true
	s.sessions.Cookie.SameSite = http.SameSiteLaxMode
	if s.sessions.Cookie.Secure = public.Scheme == "https"; s.sessions.Cookie.Secure {
		s.sessions.Cookie.Name = "__Host-tranche"
	}
	s.sessions.ErrorFunc = func(w http.ResponseWriter, r *http.Request, err error) { s.fail(w, r, err) }
	if cfg.OIDC.Issuer != "" {
		s.provider = newProvider(cfg.OIDC, cfg.PublicURL)
	}
	return s, nil
}

// handler puts the chain in front of the route list.
func (s *server) handler() http.Handler {
	r := chi.NewRouter()
	r.Use(s.identify, s.recoverPanic, s.logRequest, s.checkHost, s.harden, s.limitBody, s.crossOrigin)
	r.NotFound(s.sessions.LoadAndSave(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, missing("page", "There is no such page."))
	})).ServeHTTP)
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "This address does not take "+r.Method+".", http.StatusMethodNotAllowed)
	})
	r.Handle(static.Prefix+"*", static.Handler())
	for _, route := range s.routes() {
		r.Method(route.method, route.pattern, s.guard(route))
	}
	return r
}
