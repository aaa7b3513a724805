package sim

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
)

// Epoch is virtual time 0 of scenarios: 2026-10-01T00:00:00Z.
const Epoch = ledger.Instant(1_790_812_800_000_000)

// Runner plays a scenario in a World and checks what it expects.
type Runner struct {
	World  *World
	Cycles int
	Last   *scheduler.Plan // of the latest cycle on the current line
	// Told, when set, is called after every cycle.
	Told func(scheduler.Report)

	policy  scheduler.Policy
	seed    int64
	quiet   bool
	record  bool
	pools   map[string]ledger.PoolID
	groups  map[string]ledger.GroupID
	nodes   map[string]ledger.NodeID
	jobs    map[string]ledger.JobID
	names   map[ledger.JobID]string
	members map[string]ledger.PersonID
	arrays  map[string]array
	current string // the job named last on the line
}

// Options of a run.
type Options struct {
	Quiet  bool
	Record bool
}

// NewRunner is ready to play one scenario.
func NewRunner(o Options) *Runner {
	return &Runner{
		policy: scheduler.DefaultPolicy(), quiet: o.Quiet, record: o.Record,
		pools: map[string]ledger.PoolID{}, groups: map[string]ledger.GroupID{}, nodes: map[string]ledger.NodeID{},
		jobs: map[string]ledger.JobID{}, names: map[ledger.JobID]string{}, members: map[string]ledger.PersonID{}, arrays: map[string]array{},
	}
}

// Run plays the scenario to its end. It stops at the first expectation that
// does not hold and names its line; the World stays as it was then (nil when
// the set-up itself made no sense).
func (r *Runner) Run(ctx context.Context, sc *Scenario) error {
	if err := r.setup(sc); err != nil {
		r.World = nil
		return err
	}
	for i := range sc.Steps {
		if err := r.step(ctx, &sc.Steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// setup builds the world: policy first, pools and nodes, then the tree.
func (r *Runner) setup(sc *Scenario) error {
	passes := []struct {
		verb string
		do   func(*Statement) error
	}{
		{"policy", r.setPolicy},
		{"pool", r.addPool},
		{"node", r.addNodes},
		{"program", func(st *Statement) error { return r.addGroup(st, false) }},
		{"project", func(st *Statement) error { return r.addGroup(st, true) }},
	}
	for n, p := range passes {
		for i := range sc.Setup {
			if st := &sc.Setup[i]; st.Verb == p.verb {
				if err := p.do(st); err != nil {
					return fmt.Errorf("line %d: %w", st.Line, err)
				}
			}
		}
		if n == 0 {
			r.World = New(Config{Policy: r.policy, Start: Epoch, Seed: uint64(r.seed), Quiet: r.quiet, Record: r.record})
		}
	}
	return nil
}

func (r *Runner) setPolicy(st *Statement) error {
	o, p := st.options(), &r.policy
	p.LookbackMs = o.duration("lookback", p.LookbackMs)
	p.CapMs = o.duration("cap", p.CapMs)
	p.CommitFloorMs = o.duration("floor", p.CommitFloorMs)
	p.MarginPPM = o.number("margin_ppm", p.MarginPPM)
	p.GraceMs = o.duration("grace", p.GraceMs)
	p.MaxRuntimeMs = o.duration("max", p.MaxRuntimeMs)
	p.HoldStepMs = o.duration("step", p.HoldStepMs)
	p.HeadsPerProject = int(o.number("heads", int64(p.HeadsPerProject)))
	p.EvictPerMinute = o.number("evict_per_minute", p.EvictPerMinute)
	p.EvictBurst = o.number("evict_burst", p.EvictBurst)
	p.ReservedStarts = o.flag("reserved", p.ReservedStarts)
	p.LargeMinPPM = o.number("large_ppm", p.LargeMinPPM)
	p.HolderEvicts = o.flag("v4", p.HolderEvicts)
	p.PastProtectionPPM = o.number("past_ppm", p.PastProtectionPPM)
	p.IdleUnprotectMs = o.duration("idle_unprotect", p.IdleUnprotectMs)
	p.Placer = o.text("placer", p.Placer)
	r.seed = o.number("seed", r.seed)
	return o.done()
}

func (r *Runner) addPool(st *Statement) error {
	o := st.options()
	rate := o.number("rate_ppm", 1_000_000)
	for _, name := range st.Args {
		if err := r.makePool(name, rate); err != nil {
			return err
		}
	}
	return o.done()
}

func (r *Runner) makePool(name string, ratePPM int64) error {
	if r.pools[name] != 0 {
		return fmt.Errorf("pool %s exists already", name)
	}
	id, err := r.World.AddPool(name, ratePPM, 100_000_000*ledger.GPUHour)
	r.pools[name] = id
	return err
}

func (r *Runner) addNodes(st *Statement) error {
	o := st.options()
	pool := o.text("pool", "gpu")
	gpus := o.number("gpus", 8)
	cores := o.number("cores", 8*gpus)
	ram := o.number("ram_mib", 65_536*gpus)
	topology := o.text("topology", "")
	has := scheduler.Node{
		HBMMiB: o.number("hbm_mib", 0), NetMbps: o.number("net_mbps", 0), StoMbps: o.number("sto_mbps", 0),
		IOCMilli: o.number("ioc_milli", 0), StoPPM: o.number("sto_ppm", 0),
	}
	if err := o.done(); err != nil {
		return err
	}
	if r.pools[pool] == 0 {
		if err := r.makePool(pool, 1_000_000); err != nil {
			return err
		}
	}
	if gpus < 0 || gpus > 1000 {
		return fmt.Errorf("a node has 0 to 1000 GPUs")
	}
	for _, arg := range st.Args {
		list, err := names(arg)
		if err != nil {
			return err
		}
		for _, name := range list {
			if r.nodes[name] != 0 {
				return fmt.Errorf("node %s exists already", name)
			}
			r.nodes[name] = r.World.AddNode(r.pools[pool], name, int(gpus), cores*1000, ram)
			r.World.SetTopology(r.nodes[name], topology)
			r.World.Equip(r.nodes[name], has)
		}
	}
	return nil
}

// addGroup adds programs and projects; a parent that was not named becomes a
// program by itself.
func (r *Runner) addGroup(st *Statement, project bool) error {
	o := st.options()
	share, award := o.number("share", -1), o.text("award", "")
	pool := o.text("pool", "")
	until := o.duration("until", 92*86_400_000)
	if err := o.done(); err != nil {
		return err
	}
	for _, path := range st.Args {
		g, err := r.group(path, project)
		if err != nil {
			return err
		}
		for name, id := range r.pools {
			if share >= 0 && (pool == "" || pool == name) {
				r.World.SetShare(id, g, share*1_000_000)
			}
		}
		if award != "" {
			if err := r.award(g, pool, award, until); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Runner) group(path string, project bool) (ledger.GroupID, error) {
	if id := r.groups[path]; id != 0 {
		return id, nil
	}
	if !strings.HasPrefix(path, "/") || len(path) < 2 || strings.HasSuffix(path, "/") {
		return 0, fmt.Errorf("%q is no path like /lab/a", path)
	}
	parent := ledger.GroupID(0)
	if up := path[:strings.LastIndexByte(path, '/')]; up != "" {
		var err error
		if parent, err = r.group(up, false); err != nil {
			return 0, err
		}
	}
	id := r.World.AddGroup(parent, path, project)
	r.groups[path] = id
	return id, nil
}

func (r *Runner) pool(name string) (ledger.PoolID, error) {
	if name == "" && len(r.pools) == 1 {
		return 1, nil
	}
	id := r.pools[name]
	if id == 0 {
		return 0, fmt.Errorf("say pool=: there are %d pools and %q is none of them", len(r.pools), name)
	}
	return id, nil
}

func (r *Runner) award(g ledger.GroupID, pool, amount string, untilMs int64) error {
	p, err := r.pool(pool)
	if err != nil {
		return err
	}
	a, err := hours(amount)
	if err != nil {
		return err
	}
	_, err = r.World.Award(g, p, a, Epoch.Add(untilMs))
	return err
}

// hours reads "16h" as GPU-hours.
func hours(text string) (ledger.Amount, error) {
	a, ref := ledger.ParseGPUHours("amount", strings.TrimSuffix(text, "h"), 0)
	if ref != nil {
		return 0, fmt.Errorf("%q: %w", text, ref)
	}
	return a, nil
}

// step moves the clock to one line's instant, carries it out and checks it.
func (r *Runner) step(ctx context.Context, s *Step) error {
	r.World.Advance(Epoch.Add(s.AtMs))
	r.Last, r.current = nil, ""
	for i := range s.Do {
		if err := r.do(ctx, &s.Do[i]); err != nil {
			return fmt.Errorf("line %d: %s: %w", s.Do[i].Line, s.Do[i].Verb, err)
		}
	}
	for i := range s.Expect {
		if err := r.expect(&s.Expect[i]); err != nil {
			return fmt.Errorf("line %d: %s: %w", s.Expect[i].Line, s.Expect[i].Verb, err)
		}
	}
	return r.World.Check()
}

func (r *Runner) do(ctx context.Context, st *Statement) error {
	switch st.Verb {
	case "submit":
		return r.submit(st)
	case "cycle":
		return r.cycle(ctx)
	case "cycles":
		return r.cycles(ctx, st)
	case "award":
		return r.moreAward(st)
	case "maintain":
		return r.maintain(st)
	case "book":
		return r.book(st)
	case "member":
		return r.capMember(st)
	case "renew", "idle":
		return r.tell(st)
	case "leader":
		return r.World.Takeover()
	}
	o := st.options()
	code := o.number("code", 0)
	if err := o.done(); err != nil {
		return err
	}
	for _, arg := range st.Args {
		list, err := names(arg)
		if err != nil {
			return err
		}
		if a, ok := r.arrays[arg]; ok {
			list = a.jobs
		}
		for _, name := range list {
			if err := r.command(st.Verb, name, int(code)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Runner) command(verb, name string, code int) error {
	switch verb {
	case "fail-node", "drain", "fault", "silent", "heal", "kill-device":
		id := r.nodes[name]
		if id == 0 {
			return fmt.Errorf("no node %s", name)
		}
		switch verb {
		case "fail-node":
			r.World.FailNode(id)
			return nil
		case "kill-device":
			r.World.KillDevice(id, 0)
			return nil
		}
		r.World.SetHealth(id, map[string]scheduler.Health{"drain": scheduler.Draining, "fault": scheduler.Faulted, "silent": scheduler.Suspect, "heal": scheduler.Healthy}[verb])
		return nil
	case "suspend", "lift":
		id := r.groups[name]
		if id == 0 {
			return fmt.Errorf("no group %s", name)
		}
		r.World.Suspend(id, verb == "suspend")
		return nil
	case "learn":
		if r.pools[name] == 0 {
			return fmt.Errorf("no pool %s", name)
		}
		r.World.Learn(r.pools[name])
		return nil
	case "freeze", "thaw":
		return r.freeze(name, verb == "freeze")
	}
	id := r.jobs[name]
	if id == 0 {
		return fmt.Errorf("no job %s", name)
	}
	r.current = name
	var ref *ledger.Refusal
	switch verb {
	case "finish":
		return r.World.Finish(id, code)
	case "cancel":
		ref = r.World.Cancel(id)
	case "pause":
		ref = r.World.Pause(id)
	case "resume":
		ref = r.World.Resume(id)
	}
	if ref != nil {
		return ref
	}
	return nil
}

func (r *Runner) freeze(name string, on bool) error {
	id, err := r.pool(name)
	if err != nil {
		return err
	}
	r.World.Freeze(id, on)
	return nil
}

// capMember sets a member's cap= on GPUs at once in a project: member anna /lab/a cap=8.
func (r *Runner) capMember(st *Statement) error {
	o := st.options()
	gpus, share := o.number("cap", 0), o.number("share", 1)
	pool, err := r.pool(o.text("pool", ""))
	if err := o.done(); err != nil {
		return err
	}
	if err != nil || len(st.Args) != 2 || r.groups[st.Args[1]] == 0 {
		return fmt.Errorf("needs a member and a project, like anna /lab/a cap=8")
	}
	r.World.SetMember(pool, r.groups[st.Args[1]], r.member(st.Args[0]), share, gpus)
	return nil
}

// tell passes on that a job's owner asks for new protection (for=), or that its
// devices have been unused (since=, since Epoch; without it they are in use).
func (r *Runner) tell(st *Statement) error {
	o := st.options()
	ms, since := o.duration("for", 0), o.duration("since", -1)
	if err := o.done(); err != nil {
		return err
	}
	for _, name := range st.Args {
		id := r.jobs[name]
		if id == 0 || r.World.jobs[id].life.Job != scheduler.JobActive {
			return fmt.Errorf("%s does not run", name)
		}
		r.current = name
		switch {
		case st.Verb == "renew":
			r.World.Renew(id, ms)
		case since >= 0:
			r.World.Idle(id, Epoch.Add(since))
		default:
			r.World.Idle(id, 0)
		}
	}
	return nil
}

// maintain plans a node's maintenance from= until=, both since Epoch; without
// from= it is taken back.
func (r *Runner) maintain(st *Statement) error {
	o := st.options()
	from, until := o.duration("from", 0), o.duration("until", 0)
	if err := o.done(); err != nil {
		return err
	}
	for _, arg := range st.Args {
		list, err := names(arg)
		if err != nil {
			return err
		}
		for _, name := range list {
			if r.nodes[name] == 0 {
				return fmt.Errorf("no node %s", name)
			}
			var a, b ledger.Instant
			if from > 0 {
				a = Epoch.Add(from)
			}
			if until > 0 {
				b = Epoch.Add(until)
			}
			r.World.Maintain(r.nodes[name], a, b)
		}
	}
	return nil
}

// book gives a project a time slice: book PROJECT gpus= from= to= pool=.
func (r *Runner) book(st *Statement) error {
	o := st.options()
	gpus, from, to := o.number("gpus", 1), o.duration("from", 0), o.duration("to", 0)
	pool, err := r.pool(o.text("pool", ""))
	if err := cmp.Or(err, o.done()); err != nil {
		return err
	}
	if len(st.Args) != 1 || r.groups[st.Args[0]] == 0 || gpus < 1 || to <= from {
		return fmt.Errorf("say: book PROJECT gpus=8 from=10h to=12h")
	}
	r.World.Book(r.groups[st.Args[0]], pool, gpus, Epoch.Add(from), Epoch.Add(to))
	return nil
}

func (r *Runner) moreAward(st *Statement) error {
	o := st.options()
	pool, until := o.text("pool", ""), o.duration("until", 92*86_400_000)
	if err := o.done(); err != nil {
		return err
	}
	if len(st.Args) != 2 || r.groups[st.Args[0]] == 0 {
		return fmt.Errorf("needs a project and an amount, like /lab/a 50h")
	}
	return r.award(r.groups[st.Args[0]], pool, st.Args[1], until)
}

func (r *Runner) cycle(ctx context.Context) error {
	report, err := r.World.Cycle(ctx)
	if err != nil {
		return err
	}
	r.Cycles++
	r.Last = report.Plan
	if r.Told != nil {
		r.Told(report)
	}
	return nil
}

// cycles runs one cycle every so often until an instant, both since Epoch.
func (r *Runner) cycles(ctx context.Context, st *Statement) error {
	o := st.options()
	every, until := o.duration("every", 60_000), o.duration("until", 0)
	if err := o.done(); err != nil {
		return err
	}
	if every <= 0 {
		return fmt.Errorf("every= must be above 0")
	}
	for r.World.Now().Add(every) <= Epoch.Add(until) {
		r.World.Advance(r.World.Now().Add(every))
		if err := r.cycle(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) member(name string) ledger.PersonID {
	if r.members[name] == 0 {
		r.members[name] = ledger.PersonID(len(r.members) + 1)
	}
	return r.members[name]
}
