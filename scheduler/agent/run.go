package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tranche/web/api"
)

const (
	callTimeout = 15 * time.Second
	retryFirst  = 100 * time.Millisecond // after a failed call; doubles up to retryLast
	retryLast   = 5 * time.Second
	doneKept    = 4096 // ended attempts remembered against stale orders
)

// node is one running agent.
type node struct {
	cfg  Config
	boot string

	mu       sync.Mutex
	id       identity
	attempts map[key]*attempt
	// repairing: the repair hook runs, or its end is being reported.
	repairing bool
	done      []key // newest last

	watching sync.WaitGroup
	check    *api.Check        // the last one; under mu
	storage  *api.StorageCheck // likewise
}

// Run is the agent of one node until ctx ends, which gives nil; what runs on the
// node goes on and is found again by the next Run on the same state folder. It
// fails when the configuration is wrong, the state folder is in use or unusable,
// or the server refuses the node.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if err := cfg.makeFolders(); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	lock, err := takeLock(filepath.Join(cfg.StateDir, "agent.lock"))
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	if lock == nil {
		return fmt.Errorf("another agent is using the state folder %s", cfg.StateDir)
	}
	defer func() { _ = lock.Close() }() // the lock goes with the descriptor
	n := &node{cfg: cfg, boot: bootID(), attempts: map[key]*attempt{}}
	err = n.run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (n *node) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer n.watching.Wait()
	defer cancel()
	if err := n.identify(ctx); err != nil {
		return err
	}
	if err := n.adopt(ctx); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	if n.cfg.HealthHook != "" {
		n.check = &api.Check{} // there is one, so what the server knows of this node stands
		g.Go(func() error { return n.checkHealth(ctx) })
	}
	if n.cfg.StorageHook != "" {
		n.storage = &api.StorageCheck{}
		g.Go(func() error { return n.checkStorage(ctx) })
	}
	g.Go(func() error { return n.follow(ctx) })
	g.Go(func() error { return n.beat(ctx) })
	return g.Wait()
}

func (n *node) identityPath() string { return filepath.Join(n.cfg.StateDir, "identity.json") }

// identify takes the stored identity if it still fits, else enrols.
func (n *node) identify(ctx context.Context) error {
	devices, err := n.cfg.Devices.Discover(ctx)
	if err != nil {
		return fmt.Errorf("find devices: %w", err)
	}
	n.cfg.Offer.Devices = devices
	offer, err := json.Marshal(n.cfg.Offer)
	if err != nil {
		return err
	}
	var id identity
	err = readJSON(n.identityPath(), &id)
	if err == nil && id.Server == n.cfg.Server && id.Name == n.cfg.Name && (id.Offer == string(offer) || n.cfg.EnrolToken == "") {
		n.id = id
		return nil
	}
	return n.enrol(ctx, string(offer))
}

// enrol introduces the node, waiting for a server that is not there yet.
func (n *node) enrol(ctx context.Context, offer string) error {
	if n.cfg.EnrolToken == "" {
		return errors.New("this node is not enrolled; start the agent with an enrol token")
	}
	req := api.EnrolRequest{
		Token: n.cfg.EnrolToken, Name: n.cfg.Name, Pool: n.cfg.Pool,
		Capacities: n.cfg.Offer, BootID: n.boot, Version: n.cfg.Version,
	}
	var reply api.EnrolReply
	err := n.retry(ctx, "enrol", func() (bool, error) {
		err := n.call(ctx, callTimeout, api.PathEnrol, req, &reply)
		return refused(err) != nil || isDenied(err), err
	})
	if err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	id := identity{
		Server: n.cfg.Server, Name: n.cfg.Name, Node: reply.NodeID, Token: reply.NodeToken,
		SpeedPPM: reply.SpeedPPM, Offer: offer,
	}
	if err := writeDurable(n.identityPath(), id); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	n.mu.Lock()
	n.id = id
	n.mu.Unlock()
	n.cfg.Log.Info("node enrolled", "node", n.cfg.Name, "id", id.Node)
	return nil
}

// retry calls until it works, is final, or ctx ends; it pauses in between.
func (n *node) retry(ctx context.Context, what string, call func() (final bool, err error)) error {
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		final, err := call()
		if err == nil || final {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.cfg.Log.Debug("call failed, trying again", "node", n.cfg.Name, "call", what, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// call sends one request as this node.
func (n *node) call(ctx context.Context, limit time.Duration, path string, in, out any) error {
	n.mu.Lock()
	token := n.id.Token
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := api.Client{Server: n.cfg.Server, Token: token, HTTP: n.cfg.HTTP}
	return c.Call(ctx, http.MethodPost, path, in, out)
}

// isDenied tells a token that the server does not take (any more).
func isDenied(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden)
}

// follow polls the desired state and brings the node there.
func (n *node) follow(ctx context.Context) error {
	var seen int64
	for {
		var want api.Desired
		err := n.retry(ctx, "poll", func() (bool, error) {
			req := api.PollRequest{Version: seen, WaitMS: n.cfg.PollWait.Milliseconds()}
			err := n.call(ctx, n.cfg.PollWait+callTimeout, api.PathPoll, req, &want)
			return isDenied(err), err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isDenied(err):
			if err := n.enrol(ctx, n.id.Offer); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		seen = want.Version
		n.reach(ctx, want)
		if want.Repair != nil {
			n.repair(ctx, *want.Repair)
		}
	}
}

// reach starts what is wanted and not here, and stops what is here and not
// wanted. It never waits for any of it.
func (n *node) reach(ctx context.Context, want api.Desired) {
	listed := map[key]bool{}
	for _, o := range want.Attempts {
		k := key{o.Attempt, o.Fence, o.Rank}
		listed[k] = true
		n.mu.Lock()
		a, over := n.attempts[k], slices.Contains(n.done, k)
		n.mu.Unlock()
		switch {
		case over: // an answer that was under way while we reported the end
		case a == nil:
			n.begin(ctx, k, o)
		default:
			n.tell(k, o.Notices) // before the stop, which they explain
			if o.Action == api.ActionStop {
				a.stop(n.cfg.Log, stop{Kind: o.StopKind, GraceMS: o.GraceMS})
			}
		}
	}
	n.mu.Lock()
	var unlisted []*attempt
	for k, a := range n.attempts {
		if !listed[k] {
			unlisted = append(unlisted, a)
		}
	}
	n.mu.Unlock()
	for _, a := range unlisted {
		a.stop(n.cfg.Log, stop{Kind: "unlisted", GraceMS: a.task.Order.GraceMS})
	}
}

// adopt takes over what an earlier agent left in the spool.
func (n *node) adopt(ctx context.Context) error {
	root := filepath.Join(n.cfg.StateDir, "attempts")
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		k, ok := parseKey(e.Name())
		if !ok {
			continue
		}
		a := &attempt{key: k, dir: filepath.Join(root, e.Name()), adopted: true}
		err := readJSON(filepath.Join(a.dir, fileTask), &a.task)
		if errors.Is(err, os.ErrNotExist) { // the agent died before it could start anything
			if err := os.RemoveAll(a.dir); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		n.cfg.Log.Info("attempt found again", "node", n.cfg.Name, "attempt", k.Attempt)
		n.watch(ctx, a)
	}
	return nil
}

// watch follows an attempt to its acknowledged end in a goroutine of its own.
func (n *node) watch(ctx context.Context, a *attempt) {
	n.mu.Lock()
	n.attempts[a.key] = a
	n.mu.Unlock()
	n.watching.Go(func() {
		err := n.conclude(ctx, a)
		if ctx.Err() != nil {
			return // the next agent goes on from the spool
		}
		if err != nil {
			n.cfg.Log.Error("attempt cannot be concluded", "node", n.cfg.Name, "attempt", a.key.Attempt, "error", err)
		}
		n.mu.Lock()
		delete(n.attempts, a.key)
		n.done = append(n.done, a.key)
		if len(n.done) > doneKept {
			n.done = slices.Delete(n.done, 0, len(n.done)-doneKept)
		}
		n.mu.Unlock()
	})
}

// beat sends heartbeats. A missed one is not repeated: the next says it all.
func (n *node) beat(ctx context.Context) error {
	tick := time.NewTicker(n.cfg.Heartbeat)
	defer tick.Stop()
	for {
		if err := n.call(ctx, callTimeout, api.PathHeartbeat, n.vitals(ctx), nil); err != nil {
			n.cfg.Log.Debug("heartbeat failed", "node", n.cfg.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// vitals is what the node has to say right now.
func (n *node) vitals(ctx context.Context) api.Heartbeat {
	n.mu.Lock()
	var here []*attempt
	for _, a := range n.attempts {
		here = append(here, a)
	}
	check, storage := n.check, n.storage
	n.mu.Unlock()
	slices.SortFunc(here, func(a, b *attempt) int { return int(a.key.Attempt - b.key.Attempt) })
	h := api.Heartbeat{BootID: n.boot, Attempts: []api.AttemptSeen{}, Check: check, Storage: storage}
	busy := map[int][]Tenant{}
	for _, a := range here {
		seen := a.seen()
		if seen.State != api.StateEnded {
			for _, d := range a.task.Order.Spec.Devices {
				busy[d] = append(busy[d], Tenant{a.key.Attempt, cmp.Or(a.task.Order.Spec.GPUMilli, 1000)})
			}
		}
		h.Attempts = append(h.Attempts, seen)
	}
	use, err := n.cfg.Devices.Read(ctx, busy)
	if err != nil {
		n.cfg.Log.Warn("devices cannot be read", "node", n.cfg.Name, "error", err)
		for _, d := range n.cfg.Offer.Devices {
			use = append(use, api.DeviceUse{Index: d.Index, UtilPct: -1})
		}
	}
	h.Devices, h.Flow, h.BootUS = use, n.cfg.Flow.Read(busy), bootMicros()
	return h
}
