package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"tranche/store"
	"tranche/web"
)

// clock is the program's one wall clock; everything else is given instants.
func clock() time.Time { return time.Now() }

const (
	stopPatience = time.Second      // requests under way get this long before their contexts end
	stopLimit    = 10 * time.Second // and this long before their connections are cut
)

// serveCommand runs a server in production.
type serveCommand struct {
	Config `embed:""`
}

func (c *serveCommand) Run(ctx context.Context, t terminal) error {
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return err
	}
	s, err := openSite(ctx, siteConfig{
		Store: store.Config{URL: c.DatabaseURL, Password: c.DatabasePassword, Clock: clock, Log: t.Log},
		Web: web.Config{Logger: t.Log, Zone: zone, PublicURL: c.PublicURL, Hosts: c.hosts(), OIDC: web.OIDC{
			Issuer: c.OIDCIssuer, ClientID: c.OIDCClientID, ClientSecret: c.OIDCClientSecret,
			Name: c.OIDCName, GroupsClaim: c.OIDCGroupsClaim,
		}},
		Listen: c.Listen, MetricsListen: c.MetricsListen, Tick: time.Second, RecordBytes: c.RecordMiB << 20,
	})
	if err != nil {
		return err
	}
	defer s.close()
	roles, err := identityRoles(c.IdentityRoles)
	if err != nil {
		return err
	}
	if err := s.store.SetIdentityRoles(ctx, roles); err != nil {
		return fmt.Errorf("TRANCHE_IDENTITY_ROLES: %w", err)
	}
	t.Log.Info("serving", "listen", s.listener.Addr().String(), "public", c.PublicURL, "version", version())
	return s.run(ctx, ctx)
}

// siteConfig is what a running server needs, in production and in the demo.
type siteConfig struct {
	Store         store.Config
	Web           web.Config // Store is filled in
	Listen        string
	Listener      net.Listener             // taken instead of Listen when given
	MetricsListen string                   // "" = none
	Tick          time.Duration            // longest real time between two cycles
	RecordBytes   int64                    // room for cycle records
	OnCycle       func(took time.Duration) // told after each cycle; nil = nobody
}

// site is one server: its store, its listeners and its loops.
type site struct {
	cfg      siteConfig
	log      *slog.Logger
	store    *store.Store
	handler  http.Handler
	listener net.Listener
	scraped  net.Listener // for Prometheus, or nil
	metrics  *metrics
	holder   string // this process in the leader's row
}

// openSite opens everything that can fail to open: the database first, then the
// addresses, so that nothing is served before it works.
func openSite(ctx context.Context, cfg siteConfig) (*site, error) {
	s := &site{cfg: cfg, log: cfg.Store.Log, metrics: newMetrics()}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s.holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	if s.store, err = store.Open(ctx, cfg.Store); err != nil {
		return nil, err
	}
	cfg.Web.Store = s.store
	s.handler, err = web.New(cfg.Web)
	if s.listener = cfg.Listener; err == nil && s.listener == nil {
		s.listener, err = listen(ctx, cfg.Listen)
	}
	if err == nil && cfg.MetricsListen != "" {
		s.scraped, err = listen(ctx, cfg.MetricsListen)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close gives back what openSite took; run must have ended.
func (s *site) close() {
	for _, l := range []net.Listener{s.listener, s.scraped} {
		if l != nil {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				s.log.Warn("close listener", "cause", err)
			}
		}
	}
	s.store.Close()
}

// run serves and keeps time until ctx ends or one of the loops fails, and decides
// until deciding ends, which comes from ctx.
func (s *site) run(ctx, deciding context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveHTTP(ctx, s.listener, s.metrics.measure(s.handler), s.log) })
	if s.scraped != nil {
		group.Go(func() error { return serveHTTP(ctx, s.scraped, s.metrics.handler(), s.log) })
	}
	group.Go(func() error {
		both, cancel := context.WithCancel(deciding)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return s.dispatch(both)
	})
	group.Go(func() error { return s.keepTime(ctx) })
	return group.Wait()
}

// serveHTTP serves until ctx ends, then lets requests finish. There is no write
// timeout: agents' polls and logs stay open; bodies are bounded by the handler.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		patience := time.AfterFunc(stopPatience, cut)
		defer patience.Stop()
		limit, done := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer done()
		stopped <- server.Shutdown(limit)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return <-stopped
}

// listen opens an address, or says in one sentence why it cannot.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if inUse(err) {
		return nil, fmt.Errorf("%s is in use by another program: stop that one, or choose another address with --listen", address)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return l, nil
}
