package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/store/embedpg"
	"tranche/web"
	"tranche/web/devidp"
)

// idpPath is where the development sign-in provider is mounted.
const idpPath = "/dev-sign-in"

// demoCommand shows everything on one machine.
type demoCommand struct {
	Listen string `help:"Address on this machine, since the demo lets anybody in who can reach it (default: 127.0.0.1:8080; with --trace any free port)."`
	Data   string `help:"Data folder (default: $XDG_DATA_HOME/tranche, or /var/lib/tranche for root)." placeholder:"DIR"`
	Speed  int64  `help:"Business time per real time; a trace's replay needs more." default:"60"`

	traceFlags `embed:"" group:"Replay of a trace:"`
}

// Validate names every problem of the command line at once.
func (c *demoCommand) Validate() error {
	var problems []error
	host, _, err := net.SplitHostPort(c.Listen)
	if c.Listen == "" {
		host, err = "localhost", nil
	}
	if err != nil {
		problems = append(problems, fmt.Errorf("--listen %q is not host:port", c.Listen))
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		problems = append(problems, fmt.Errorf("--listen %q: the demo signs anybody in, so it listens on this machine only: use 127.0.0.1", c.Listen))
	}
	if c.Speed < 1 || c.Speed > 10_000 {
		problems = append(problems, fmt.Errorf("--speed %d is not between 1 and 10000", c.Speed))
	}
	return errors.Join(problems...)
}

func (c *demoCommand) Run(ctx context.Context, t terminal) error {
	if c.Trace != "" {
		return c.replay(ctx, t)
	}
	began := clock()
	address := c.Listen
	if address == "" {
		address = "127.0.0.1:8080"
	}
	listener, err := listen(ctx, address)
	if err != nil {
		return err
	}
	data, err := c.folder()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	log := quiet(t.Log)
	d := newDemo(listener)
	config, err := d.webConfig(log, c.Speed)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	box, err := openSandbox(ctx, sandboxConfig{
		Data: data, Fsync: true, Listener: listener, Business: ledger.At(began), Speed: c.Speed, Tick: time.Second,
		Web: config, Wrap: d.wrap, Heart: 5 * time.Second, Log: log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	err = d.show(ctx, t, box, began)
	fmt.Fprintln(t.Err, "Stopping jobs, server and PostgreSQL …")
	return errors.Join(err, box.close())
}

// folder is where the demo keeps its data.
func (c *demoCommand) folder() (string, error) {
	if c.Data != "" {
		return filepath.Abs(c.Data)
	}
	return embedpg.DefaultDir()
}

// quiet keeps the demo's terminal readable: it shows warnings only, unless the
// user asked for more.
func quiet(log *slog.Logger) *slog.Logger {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		return log
	}
	return slog.New(levelHandler{log.Handler(), slog.LevelWarn})
}

// levelHandler passes on what is at least Level.
type levelHandler struct {
	slog.Handler
	level slog.Level
}

func (h levelHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// demo is what differs from a production server: sign-in, hosts, banner.
type demo struct {
	port string
	idp  http.Handler
}

func newDemo(l net.Listener) *demo {
	_, port, _ := net.SplitHostPort(l.Addr().String()) // a listener's address has a port
	return &demo{port: port}
}

func (d *demo) public() string { return "http://localhost:" + d.port }

func (d *demo) issuer() string { return d.public() + idpPath }

// webConfig describes the demo's pages and makes its sign-in provider.
func (d *demo) webConfig(log *slog.Logger, speed int64) (web.Config, error) {
	zone, err := time.LoadLocation(seedZone)
	if err != nil {
		return web.Config{}, err
	}
	cfg := web.Config{
		Logger: log, Zone: zone, PublicURL: d.public(),
		Demo: fmt.Sprintf("Demonstration: anybody on this machine may sign in as anybody. One real second is %s of business time.",
			ledger.FormatMillis(speed*1000)),
		OIDC:  web.OIDC{Issuer: d.issuer(), ClientID: "tranche-demo", ClientSecret: "demo", Name: "the development provider"},
		Hosts: []string{"localhost:" + d.port, "127.0.0.1:" + d.port},
	}
	var people []devidp.Person
	for _, p := range seedPeople() {
		people = append(people, devidp.Person{Subject: p.Subject, Name: p.Name, Username: p.Subject, Email: p.Subject + seedMail})
		if p.Label != "" {
			cfg.DevIdentities = append(cfg.DevIdentities, web.DevIdentity{Subject: p.Subject, Name: p.Name, Role: p.Label, Can: p.Can})
		}
	}
	people = append(people, devidp.Person{Subject: "nadia", Name: "Nadia Newcomer", Username: "nadia", Email: "nadia" + seedMail})
	d.idp, err = devidp.New(devidp.Config{
		Issuer: d.issuer(), ClientID: cfg.OIDC.ClientID, ClientSecret: cfg.OIDC.ClientSecret,
		RedirectURI: d.public() + "/sign-in/callback", People: people, Log: log,
	})
	return cfg, err
}

// wrap puts the sign-in provider beside the pages, and leads people who typed
// the address in numbers to the name that their cookies belong to.
func (d *demo) wrap(pages http.Handler) http.Handler {
	numbers := "127.0.0.1:" + d.port
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		program := strings.HasPrefix(r.URL.Path, "/agent/") || strings.HasPrefix(r.URL.Path, "/api/")
		switch {
		case r.Host == numbers && !program && r.Method == http.MethodGet && r.URL.Path != "/healthz" && r.URL.Path != "/readyz":
			http.Redirect(w, r, d.public()+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		case strings.HasPrefix(r.URL.Path, idpPath+"/") && r.Host == strings.TrimPrefix(d.public(), "http://"):
			d.idp.ServeHTTP(w, r)
		default:
			pages.ServeHTTP(w, r)
		}
	})
}

// show seeds, starts the nodes, says that all is ready, and waits.
func (d *demo) show(ctx context.Context, t terminal, box *sandbox, began time.Time) error {
	box.start(ctx)
	operator, err := d.seed(ctx, box)
	if err != nil {
		return err
	}
	if err := box.join(ctx, operator, seedNodes()); err != nil {
		return err
	}
	fmt.Fprintf(t.Err, banner, box.cfg.Data, box.url())
	fmt.Fprintf(t.Out, "Tranche is ready on %s (%.1f s)\n", d.public(), clock().Sub(began).Seconds())
	return box.wait(ctx)
}

const banner = `
  DEMONSTRATION: anybody on this machine may sign in as anybody.
  Data      %s
  Database  %s
  Ctrl-C stops everything; the next start goes on from here.

`

// seed fills a new data folder, once, and gives the operator.
func (d *demo) seed(ctx context.Context, box *sandbox) (ledger.Actor, error) {
	marker := filepath.Join(box.cfg.Data, "seeded")
	done, err := os.ReadFile(marker)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return ledger.Actor{}, err
	}
	if string(done) != d.issuer() {
		seeded, err := seedInstitute(ctx, box.site.store, d.issuer())
		if err == nil {
			err = seeded.submit(ctx)
		}
		if err != nil {
			return ledger.Actor{}, err
		}
		if err := os.WriteFile(marker, []byte(d.issuer()), 0o600); err != nil {
			return ledger.Actor{}, fmt.Errorf("remember that the example institute is there: %w", err)
		}
	}
	for _, p := range seedPeople() {
		if p.Role == ledger.Operator {
			id, err := box.site.store.SignIn(ctx, store.Identity{
				Issuer: d.issuer(), Subject: p.Subject, Name: p.Name,
				Username: p.Subject, Email: p.Subject + seedMail, Remote: "setup",
			})
			if err != nil {
				return ledger.Actor{}, err
			}
			return box.site.store.Actor(ctx, id)
		}
	}
	return ledger.Actor{}, errors.New("the example institute has no operator")
}
