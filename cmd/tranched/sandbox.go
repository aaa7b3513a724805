package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"tranche/ledger"
	"tranche/scheduler/agent"
	"tranche/store"
	"tranche/store/embedpg"
	"tranche/web"
	"tranche/web/api"
)

// databaseName is the sandbox's database in its own PostgreSQL.
const databaseName = "tranche"

// simNode is one simulated node of a pool.
type simNode struct {
	Name, Pool, Model string
	HBMMiB            int64
	StorageHook       string
}

// The simulated nodes' size, which is also their pools' reference node.
const (
	nodeCPUMilli = 128_000
	nodeRAMMiB   = 2_048 * 1024
	nodeNetMbps  = 200_000
	nodeStoMbps  = 16_000
	nodeIOCMilli = 16_000
)

// sandboxConfig describes a whole site on this machine.
type sandboxConfig struct {
	Data     string // folder; "" = the user's own
	Fsync    bool
	Listener net.Listener
	Business ledger.Instant // where business time begins in a new data folder
	Speed    int64          // business ms in a real one
	Tick     time.Duration
	Web      web.Config
	Wrap     func(http.Handler) http.Handler // around the pages; nil = none
	OnCycle  func(took time.Duration)
	Heart    time.Duration // between a node's heartbeats
	KeepEnds bool          // keep the launchers' end records in Data/ends
	Log      *slog.Logger
}

// sandbox is PostgreSQL, one server and simulated nodes, all ended by close.
type sandbox struct {
	cfg      sandboxConfig
	postgres *embedpg.Server
	site     *site

	stopSite, stopDispatch, stopAgents context.CancelFunc
	loops, agents                      *errgroup.Group
	states                             []string // state folders of the nodes
}

// openSandbox starts PostgreSQL and opens the store; nothing is served yet.
func openSandbox(ctx context.Context, cfg sandboxConfig) (_ *sandbox, err error) {
	if cfg.Data == "" {
		if cfg.Data, err = embedpg.DefaultDir(); err != nil {
			return nil, err
		}
	}
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, err
	}
	b := &sandbox{cfg: cfg}
	b.postgres, err = embedpg.Start(ctx, embedpg.Options{Dir: cfg.Data, Fsync: cfg.Fsync, Settings: []string{"shared_buffers=64MB", "jit=off", "max_connections=60"}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := b.postgres.CreateDatabase(ctx, databaseName); err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx, b.postgres.URL(databaseName, embedpg.Owner), store.MigrateOptions{}); err != nil {
		return nil, err
	}
	b.site, err = openSite(ctx, siteConfig{
		Store: store.Config{
			URL: b.url(), Clock: clock, Log: cfg.Log,
			Timeline: store.Timeline{Real: ledger.At(clock()), Business: cfg.Business, Speed: cfg.Speed},
		},
		Web: cfg.Web, Listener: cfg.Listener, Tick: cfg.Tick, OnCycle: cfg.OnCycle, RecordBytes: sandboxRecords,
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(cfg.Data, addressFile), []byte(b.url()+"\n"), 0o600)
	}
	if err == nil && cfg.Wrap != nil {
		b.site.handler = cfg.Wrap(b.site.handler)
	}
	return b, err
}

// addressFile names, in a sandbox's folder, where its database is while it runs.
const addressFile = "database-url"

// sandboxRecords is the room for cycle records on somebody's own machine, bytes.
const sandboxRecords = 256 << 20

// url is the database's address as the server uses it.
func (b *sandbox) url() string { return b.postgres.URL(databaseName, "tranche_app") }

// server is the address that the nodes use.
func (b *sandbox) server() string {
	u := url.URL{Scheme: "http", Host: b.site.listener.Addr().String()}
	return u.String()
}

// start begins to serve, to decide and to keep time.
func (b *sandbox) start(ctx context.Context) {
	ctx, b.stopSite = context.WithCancel(ctx)
	deciding, stop := context.WithCancel(ctx)
	b.stopDispatch = stop
	b.loops, ctx = errgroup.WithContext(ctx)
	b.loops.Go(func() error { return b.site.run(ctx, deciding) })
	b.loops.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-b.postgres.Done():
			return errors.New("PostgreSQL has stopped")
		}
	})
}

// join starts the agents of simulated nodes, which enrol with a token made by
// the actor, an operator at the root.
func (b *sandbox) join(ctx context.Context, operator ledger.Actor, nodes []simNode) error {
	tokens := map[string]string{}
	for _, n := range nodes {
		if tokens[n.Pool] != "" {
			continue
		}
		tokens[n.Pool] = rand.Text()
		_, err := b.site.store.CreateEnrolToken(ctx, store.Command{Actor: operator, Key: "enrol:" + rand.Text()},
			store.EnrolTokenInput{Pool: n.Pool, Hours: 24, Uses: len(nodes), Secret: tokens[n.Pool]})
		if err != nil {
			return fmt.Errorf("enrol the nodes: %w", err)
		}
	}
	ctx, b.stopAgents = context.WithCancel(ctx)
	b.agents, ctx = errgroup.WithContext(ctx)
	for _, n := range nodes {
		cfg, err := b.agentConfig(n, tokens[n.Pool])
		if err != nil {
			return err
		}
		b.states = append(b.states, cfg.StateDir)
		b.agents.Go(func() error { return agent.Run(ctx, cfg) })
	}
	return nil
}

func (b *sandbox) agentConfig(n simNode, token string) (agent.Config, error) {
	cfg := agent.Config{
		Server: b.server(), Name: n.Name, Pool: n.Pool, EnrolToken: token,
		StateDir: filepath.Join(b.cfg.Data, "nodes", n.Name), ScratchDir: filepath.Join(b.cfg.Data, "scratch"),
		Devices: agent.Simulated{Node: n.Name, Count: nodeDevices, Model: n.Model, HBMMiB: n.HBMMiB},
		Offer:   api.Capacities{CPUMilli: nodeCPUMilli, RAMMiB: nodeRAMMiB, NetMbps: nodeNetMbps, StoMbps: nodeStoMbps, IOCMilli: nodeIOCMilli, Topology: "room1/" + n.Pool},
		Flow:    agent.SimulatedFlow{}, StorageHook: n.StorageHook,
		Users: map[string]string{}, Heartbeat: b.cfg.Heart, Version: version(), Log: b.cfg.Log,
	}
	if os.Geteuid() == 0 {
		if _, err := user.Lookup("nobody"); err != nil {
			return cfg, errors.New("jobs never run as root and this machine has no user nobody to run them as: start the demo as an ordinary user")
		}
		cfg.Users["*"] = "nobody"
	}
	if b.cfg.KeepEnds {
		cfg.KeepEnds = b.ends()
		if err := os.MkdirAll(cfg.KeepEnds, 0o700); err != nil {
			return cfg, fmt.Errorf("folder for end records: %w", err)
		}
	}
	return cfg, nil
}

// ends is where the launchers' end records are kept.
func (b *sandbox) ends() string { return filepath.Join(b.cfg.Data, "ends") }

// wait returns when ctx ends or something of the sandbox has failed.
func (b *sandbox) wait(ctx context.Context) error {
	failed := make(chan error, 2)
	go func() { failed <- b.loops.Wait() }()
	go func() { failed <- b.agents.Wait() }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// close ends everything in the order that loses nothing: no new starts, then the
// running jobs as at a machine's shutdown, whose ends are still reported and
// charged, then agents, server and database.
func (b *sandbox) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var problems []error
	if b.stopDispatch != nil {
		b.stopDispatch()
	}
	for _, dir := range b.states {
		problems = append(problems, agent.StopLaunchers(ctx, dir))
	}
	if b.agents != nil {
		b.awaitReports(ctx)
		b.stopAgents()
		problems = append(problems, b.agents.Wait())
	}
	if b.loops != nil {
		b.stopSite()
		problems = append(problems, b.loops.Wait())
	}
	if b.site != nil {
		b.site.close()
	}
	problems = append(problems, b.postgres.Stop())
	if err := os.Remove(filepath.Join(b.cfg.Data, addressFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// awaitReports waits, for a few seconds at most, until the agents have reported
// what ended; what is left over they report after the next start.
func (b *sandbox) awaitReports(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, dir := range b.states {
		for {
			left, err := os.ReadDir(filepath.Join(dir, "attempts"))
			if len(left) == 0 || errors.Is(err, fs.ErrNotExist) {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}
