package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/ledger"
	"tranche/store"
)

const (
	replayRoot  = "trace"
	replayPool  = "philly"
	replayModel = "simulated GPU"
	// The longest protected span of a replayed job: what starts in the window's
	// last hour must find lots to its end.
	replayTail = 60 * minute
	// Business time begins so much real time before the window, for setting up.
	replayLead = 10 * time.Second
	drainLimit = 60 * time.Second // for the ends of what is cut off
)

// replay is one run of a trace through the live system.
type replay struct {
	cmd    *demoCommand
	t      terminal
	w      window
	jobs   []traceJob
	report replayReport
	box    *sandbox
	store  *store.Store
	pool   ledger.PoolID
	actors map[string]ledger.Actor // by cluster

	mu     sync.Mutex
	cycles []time.Duration
}

// replay reads the trace, runs it and prints the report.
func (c *demoCommand) replay(ctx context.Context, t terminal) (err error) {
	began := clock()
	r := &replay{cmd: c, t: t, actors: map[string]ledger.Actor{}}
	if r.w, err = c.window(); err != nil {
		return err
	}
	if r.jobs, r.report.LinesSkipped, err = c.readTrace(r.w); err != nil {
		return err
	}
	data, remove, err := c.replayFolder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := r.open(ctx, data, began); err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(t.Err, "Stopping server and PostgreSQL …")
		err = errors.Join(err, r.box.close())
	}()
	if err := r.run(ctx); err != nil {
		return err
	}
	r.report.Seconds = clock().Sub(began).Seconds()
	if err := r.print(); err != nil || c.Exit {
		return err
	}
	fmt.Fprintf(t.Err, "The replay is over; look at it on http://%s until Ctrl-C.\n", r.box.site.listener.Addr())
	return r.box.wait(ctx)
}

// replayFolder is a folder of its own, so that the demo's institute stays as it is.
func (c *demoCommand) replayFolder() (dir string, remove func() error, err error) {
	if c.Data != "" {
		dir, err = filepath.Abs(c.Data)
		return dir, func() error { return nil }, err
	}
	if dir, err = os.MkdirTemp("", "tranche-replay-"); err != nil {
		return "", nil, fmt.Errorf("folder for the replay: %w", err)
	}
	remove = func() error { return os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // jobs and PostgreSQL may be other users
		return "", nil, errors.Join(err, remove())
	}
	return dir, remove, nil
}

// open starts the sandbox with business time shortly before the window.
func (r *replay) open(ctx context.Context, data string, began time.Time) error {
	address := r.cmd.Listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := listen(ctx, address)
	if err != nil {
		return err
	}
	log := quiet(r.t.Log)
	d := newDemo(listener)
	config, err := d.webConfig(log, r.cmd.Speed)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	lead := ledger.Instant(replayLead.Microseconds() * r.cmd.Speed)
	r.box, err = openSandbox(ctx, sandboxConfig{
		Data: data, Fsync: r.cmd.Data != "", Listener: listener, Business: r.w.From - lead, Speed: r.cmd.Speed, Tick: 250 * time.Millisecond,
		Web: config, Wrap: d.wrap, OnCycle: r.noteCycle, Heart: 2 * time.Second, KeepEnds: true, Log: log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	r.store = r.box.site.store
	fmt.Fprintf(r.t.Err, "PostgreSQL and server are up after %.1f s.\n", clock().Sub(began).Seconds())
	return nil
}

func (r *replay) noteCycle(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cycles = append(r.cycles, took)
}

// run sets up, submits each job at its instant, and stops what is left.
func (r *replay) run(ctx context.Context) error {
	r.box.start(ctx)
	operator, err := r.setUp(ctx)
	if err != nil {
		return fmt.Errorf("set up the replay: %w", err)
	}
	var nodes []simNode
	for i := range r.cmd.Nodes {
		nodes = append(nodes, simNode{Name: fmt.Sprintf("n%03d", i+1), Pool: replayPool, Model: replayModel, HBMMiB: 16_384})
	}
	if err := r.box.join(ctx, operator, nodes); err != nil {
		return err
	}
	if err := r.awaitNodes(ctx); err != nil {
		return err
	}
	if err := r.until(ctx, r.w.From); err != nil {
		return err
	}
	progress, stop := context.WithCancel(ctx)
	defer stop()
	go r.tell(progress)
	if err := r.submitAll(ctx); err != nil {
		return err
	}
	if err := r.until(ctx, r.w.To); err != nil {
		return err
	}
	stop()
	if err := r.cutOff(ctx); err != nil {
		return err
	}
	return r.measure(ctx)
}

// until waits for a business instant.
func (r *replay) until(ctx context.Context, at ledger.Instant) error {
	for {
		left := at - r.store.Now()
		if left <= 0 {
			return ctx.Err()
		}
		if err := sleep(ctx, time.Duration(int64(left)/r.cmd.Speed+1)*time.Microsecond); err != nil {
			return err
		}
	}
}

// setUp makes one project per tenant of the trace and gives each an equal part
// of the supply. It gives an actor who may enrol nodes.
func (r *replay) setUp(ctx context.Context) (ledger.Actor, error) {
	d := &seeding{s: r.store, issuer: "trace"}
	if err := d.found(ctx, replayRoot, "Replayed trace", seedPerson{Subject: "replay", Name: "Replay", Role: ledger.Admin, At: "/" + replayRoot}); err != nil {
		return ledger.Actor{}, err
	}
	pool, err := r.store.CreatePool(ctx, d.cmd("pool"), store.Pool{
		Name: replayPool, GPUModel: replayModel, RatePPM: 1_000_000,
		NodeGPUs: nodeDevices, NodeCPUMilli: nodeCPUMilli, NodeRAMMiB: nodeRAMMiB, NodeHBMMiB: 16_384,
	})
	if err != nil {
		return ledger.Actor{}, err
	}
	r.pool, d.pools[replayPool] = pool, pool
	period := store.PeriodInput{Name: "Replay", First: r.w.From, Last: r.w.To.Add(replayTail), Zone: "UTC"}
	err = d.openPeriod(ctx, period, []supply{{replayPool, int64(r.cmd.Nodes * nodeDevices), 1_000_000}})
	if err != nil {
		return ledger.Actor{}, err
	}
	clusters := traceClusters(r.jobs)
	seconds := int64(period.Last-period.First) / 1_000_000
	part := ledger.Amount(int64(r.cmd.Nodes*nodeDevices) * 1000 * seconds / int64(len(clusters)))
	for _, c := range clusters {
		if err := r.setUpProject(ctx, d, c, part); err != nil {
			return ledger.Actor{}, fmt.Errorf("project %s: %w", c, err)
		}
	}
	return d.actor, nil
}

func (r *replay) setUpProject(ctx context.Context, d *seeding, cluster string, part ledger.Amount) error {
	path := "/" + replayRoot + "/" + cluster
	id, err := r.store.CreateGroup(ctx, d.cmd("group:"+cluster), store.GroupInput{Parent: d.groups["/"+replayRoot], Project: true, Title: "Tenant " + cluster, Slug: cluster})
	if err != nil {
		return err
	}
	d.groups[path] = id
	if err := d.person(ctx, seedPerson{Subject: cluster, Name: "Tenant " + cluster, Role: ledger.PI, At: path}); err != nil {
		return err
	}
	cmd, err := d.as(ctx, cluster, "request:"+cluster)
	if err != nil {
		return err
	}
	request, err := r.store.SaveRequest(ctx, cmd, store.RequestInput{
		Project: id, Period: d.period, Purpose: "An equal part of the fleet for every tenant.", Outcome: "The replay of the trace.",
		Lines: []ledger.RequestLine{{Pool: r.pool, Asked: part}}, Submit: true,
	})
	if err != nil {
		return err
	}
	_, err = r.store.ReviewRequest(ctx, d.cmd("review:"+cluster), store.ReviewCommand{
		Request:  request,
		Decision: ledger.Decision{Action: ledger.Award, Version: 1, Amounts: []ledger.PoolAmount{{Pool: r.pool, Amount: part}}},
	})
	if err != nil {
		return err
	}
	r.actors[cluster], err = r.store.Actor(ctx, d.people[cluster])
	return err
}

// awaitNodes waits until every node has enrolled.
func (r *replay) awaitNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		health, err := r.store.Health(ctx)
		if err != nil {
			return err
		}
		if health.Nodes == int64(r.cmd.Nodes) && health.NodesSilent == 0 {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d nodes have enrolled: %w", health.Nodes-health.NodesSilent, r.cmd.Nodes, err)
		}
	}
}

// submitAll hands each job in at its business instant, as its tenant.
func (r *replay) submitAll(ctx context.Context) error {
	for _, j := range r.jobs {
		if err := r.until(ctx, j.Submitted); err != nil {
			return err
		}
		minMs := j.MinMs
		sub := store.Submission{
			Preset: "train", Name: fmt.Sprintf("line %d", j.Line), Project: "/" + replayRoot + "/" + j.Cluster, Pool: replayPool,
			Nodes: j.Nodes, GPUs: j.GPUs, MinMs: &minMs, OrFree: true, Command: j.command(r.cmd.Speed),
		}
		_, err := r.store.SubmitJob(ctx, store.Command{Actor: r.actors[j.Cluster], Key: fmt.Sprintf("trace:%d", j.Line), Remote: "replay"}, sub)
		if err != nil {
			return fmt.Errorf("submit line %d of the trace: %w", j.Line, err)
		}
		r.report.JobsSubmitted++
	}
	return nil
}

// tell shows how far the replay is.
func (r *replay) tell(ctx context.Context) {
	for sleep(ctx, 5*time.Second) == nil {
		counts, err := r.store.JobCounts(ctx)
		if err != nil {
			return // the replay itself meets it and says so
		}
		now := time.Duration(r.store.Now()-r.w.From) * time.Microsecond
		fmt.Fprintf(r.t.Err, "%5.1f of %d h: %d waiting, %d live, %d over\n", now.Hours(), r.cmd.Hours,
			counts["pending"], counts["live"], counts["finished"]+counts["failed"]+counts["cancelled"])
	}
}

// cutOff stops the dispatcher, then everything that still runs, and waits until
// it is settled.
func (r *replay) cutOff(ctx context.Context) error {
	r.box.stopDispatch()
	facts, err := r.store.Replay(ctx, r.pool)
	if err != nil {
		return err
	}
	owner := map[ledger.JobID]ledger.Actor{}
	for i, j := range facts.Jobs { // by id, which is the order of submission
		owner[j.ID] = r.actors[r.jobs[i].Cluster]
	}
	for _, j := range facts.Jobs {
		if j.State != "live" {
			continue
		}
		cmd := store.Command{Actor: owner[j.ID], Key: fmt.Sprintf("cut-off:%d", j.ID), Remote: "replay"}
		var refusal *ledger.Refusal
		if err := r.store.CancelJob(ctx, cmd, j.ID); errors.As(err, &refusal) {
			continue // it ended a moment ago
		} else if err != nil {
			return fmt.Errorf("cut off job %d: %w", j.ID, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		counts, err := r.store.JobCounts(ctx)
		if err != nil {
			return err
		}
		if counts["live"] == 0 {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d jobs do not end: %w", counts["live"], err)
		}
	}
}

// measure computes the report.
func (r *replay) measure(ctx context.Context) error {
	r.box.awaitReports(ctx)
	facts, err := r.store.Replay(ctx, r.pool)
	if err != nil {
		return err
	}
	books, err := r.store.Verify(ctx)
	if err != nil {
		return err
	}
	ends, err := readEnds(r.box.ends())
	if err != nil {
		return err
	}
	p := &r.report
	p.count(facts)
	fleet := int64(r.cmd.Nodes) * nodeDevices * 1000
	sum := integrate(replaySteps(facts, r.w), r.w, fleet)
	whole := int64(r.w.To - r.w.From)
	p.FundedGPUHours, p.UnfundedGPUHours = classHours(facts.Segments, "funded", r.w), classHours(facts.Segments, "unfunded", r.w)
	p.EndingGPUHours, p.TakenGPUHours = classHours(facts.Segments, "ending", r.w), gpuHours(sum.taken)
	p.Occupancy, p.OccupancyWhileQueued = percent(sum.occupied, fleet*whole), percent(sum.queuedOccupied, fleet*sum.queued)
	p.TakenWhileQueued, p.QueuedHours = percent(sum.queuedTaken, fleet*sum.queued), hundredths(float64(sum.queued)/3.6e9)
	p.ChargedUnits, p.BooksSum = facts.Spent, facts.Sum
	for _, a := range facts.Attempts {
		units := unitsFromEnds(ends[a.ID], a, r.cmd.Speed)
		if p.AttemptsUnits += units; units != a.Charged {
			fmt.Fprintf(r.t.Err, "attempt %d (job %d, rule %q, cause %s): charged %d units, its launchers say %d: %+v\n",
				a.ID, a.Job, a.StopRule, a.Cause, a.Charged, units, ends[a.ID])
		}
	}
	p.Verify = "ok"
	if !books.OK() {
		p.Verify = books.Faults[0].String()
	}
	var starts []time.Duration
	for _, a := range facts.Attempts {
		if a.Started != 0 && !a.Nominated {
			starts = append(starts, time.Duration(int64(a.Started-a.Since)/r.cmd.Speed)*time.Microsecond)
		}
	}
	slices.Sort(starts)
	p.StartP50Ms, p.StartP90Ms = quantile(starts, 0.5), quantile(starts, 0.9)
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.cycles)
	p.Cycles, p.CycleP50Ms, p.CycleP99Ms = len(r.cycles), quantile(r.cycles, 0.5), quantile(r.cycles, 0.99)
	return nil
}

// count sorts jobs and attempts by what became of them.
func (p *replayReport) count(facts store.ReplayFacts) {
	for _, j := range facts.Jobs {
		switch j.State {
		case "finished":
			p.JobsFinished++
		case "cancelled":
			p.JobsCutOff++
		case "failed":
			p.JobsFailed++
		default:
			p.JobsWaiting++
		}
	}
	p.Attempts = len(facts.Attempts)
	for _, a := range facts.Attempts {
		if a.Cause == "preempted" {
			p.Preemptions++
		}
	}
}

// print writes the report: one JSON object, or the same in lines.
func (r *replay) print() error {
	text, err := json.Marshal(r.report)
	if err != nil {
		return err
	}
	if r.cmd.JSON {
		_, err = fmt.Fprintf(r.t.Out, "%s\n", text)
		return err
	}
	lines := strings.ReplaceAll(strings.Trim(string(text), "{}"), ",\"", "\n\"")
	_, err = fmt.Fprintln(r.t.Out, strings.NewReplacer("\"", "", ":", "  ").Replace(lines))
	return err
}
