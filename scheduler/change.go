package scheduler

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"tranche/ledger"
)

// ChangeKind says what of a waiting job a Change alters.
type ChangeKind string

// The kinds of changes; those of one size are offered in this order.
const (
	ChangeFunds   ChangeKind = "funds"   // nothing of the job: its project gets more GPU-hours
	ChangeCores   ChangeKind = "cores"   // fewer cores and less memory per node
	ChangeMinimum ChangeKind = "minimum" // protected for a shorter time
	ChangeGPUs    ChangeKind = "gpus"    // fewer GPUs on its node
	ChangeNodes   ChangeKind = "nodes"   // fewer nodes
	ChangePool    ChangeKind = "pool"    // another pool, at the end of its queue
	ChangeFree    ChangeKind = "free"    // unfunded: not charged, not protected
)

// Bounds of looking for changes.
const (
	mostChanges = 3
	mostDecides = 20 // a fleet's decision may take 100 ms
	mostPools   = 4  // others looked at
)

// lastInQueue is a place behind every job that waits.
const lastInQueue = math.MaxInt64 / 2

// NodeSize is a pool's reference node: what GPUs, cores and memory are charged
// against. GPUs is 0 in CPU-only pools.
type NodeSize struct {
	Pool     ledger.PoolID
	GPUs     int64
	CPUMilli int64
	RAMMiB   int64
}

// Change is one alteration with which a waiting job starts in the next cycle.
type Change struct {
	Kind      ChangeKind
	From, To  Job           // To has its queue_seq at the end when it moves
	Short     ledger.Amount // ChangeFunds: GPU-hours that are missing
	LimitedBy string        // and whose limit it is; a path
	Start     Start         // what the cycle would do
	given     int64         // what is given up, in ppm of what was asked for
}

// Outlook says what it would take to start a waiting job.
type Outlook struct {
	AsItIs  *Start   // it starts in the next cycle without any change
	Changes []Change // at most 3, the smallest first; each starts it in the next cycle
}

// Changes looks for the smallest changes that start a waiting job in the cycle
// that decides on the snapshot. Each one was tested by deciding on it; at most 20
// decisions are made, each only on the pool in question. The snapshot's slices
// stay as they are. sizes holds the reference node of every pool.
func Changes(s *Snapshot, job Job, sizes []NodeSize) Outlook {
	q := &question{s: s, job: job, sizes: sizes, tables: map[ledger.PoolID]*Snapshot{}}
	start, why := q.asItIs()
	if start != nil || why == nil || q.sizeOf(job.Pool) == nil {
		return Outlook{AsItIs: start}
	}
	q.moreFunds(why)
	q.fewerCores(why)
	q.shorterMinimum()
	q.fewerGPUs()
	q.fewerNodes()
	q.unfunded()
	q.otherPools()
	slices.SortStableFunc(q.found, func(a, b Change) int { return cmp.Compare(a.given, b.given) })
	return Outlook{Changes: q.found[:min(len(q.found), mostChanges)]}
}

// question is one search for changes.
type question struct {
	s       *Snapshot
	job     Job
	sizes   []NodeSize
	tables  map[ledger.PoolID]*Snapshot // quiet snapshots to try on, by pool
	decides int
	ahead   ledger.Amount // what its project's jobs need that lack funds and go before it
	found   []Change
}

// table gives the snapshot a pool's tries are made on: with that pool alone, as
// the pools before it leave it, since they share the bound on evictions and work.
func (q *question) table(pool ledger.PoolID) *Snapshot {
	if t := q.tables[pool]; t != nil {
		return t
	}
	t := q.s.Clone()
	at := slices.IndexFunc(t.Pools, func(p Pool) bool { return p.ID == pool })
	if at < 0 {
		return nil
	}
	t.Quiet = true
	if at > 0 {
		before := t.Clone()
		before.Pools = t.Pools[:at]
		plan := Decide(before)
		q.decides++
		t.Bucket = plan.Bucket
		t.Policy.MaxSteps -= plan.Steps
	}
	t.Pools = t.Pools[at : at+1]
	q.tables[pool] = t
	return t
}

// asItIs decides with the job unchanged: it starts, or this is why it waits.
func (q *question) asItIs() (*Start, *Reason) {
	t := q.table(q.job.Pool)
	if t == nil {
		return nil, nil
	}
	job := q.job
	t.PutWaiting(&job)
	t.Quiet = false
	plan := Decide(t)
	q.decides++
	t.Quiet = true
	if start := plan.startOf(job.ID); start != nil {
		return start, nil
	}
	why := plan.reasonOf(job.ID)
	if why != nil && why.Code == WhyFunds {
		q.ahead = plan.lackBefore(t, why, job.Project)
	}
	return nil, why
}

func (p *Plan) startOf(job ledger.JobID) *Start {
	i := slices.IndexFunc(p.Starts, func(s Start) bool { return s.Job == job })
	if i < 0 {
		return nil
	}
	return &p.Starts[i]
}

func (p *Plan) reasonOf(job ledger.JobID) *Reason {
	i := slices.IndexFunc(p.Reasons, func(r Reason) bool { return r.Job == job })
	if i < 0 {
		return nil
	}
	return &p.Reasons[i]
}

// starts tries the job in another form; nil when it would wait, or when enough
// was tried.
func (q *question) starts(job Job) *Start {
	if q.decides >= mostDecides {
		return nil
	}
	t := q.table(job.Pool)
	if t == nil {
		return nil
	}
	was := t.kept().waiting[job.ID]
	t.PutWaiting(&job)
	plan := Decide(t)
	q.decides++
	if was != nil {
		t.PutWaiting(was)
	} else {
		t.DropWaiting(job.ID)
	}
	if start := plan.startOf(job.ID); start != nil {
		own := *start
		return &own
	}
	return nil
}

func (q *question) offer(c Change) {
	c.From = q.job
	q.found = append(q.found, c)
}

// largest offers the largest of n forms, ascending, that starts. Smaller forms
// start whenever larger ones do, or nearly so: what is offered was tried.
func (q *question) largest(kind ChangeKind, n int, form func(i int) Job, given func(j *Job) int64) {
	low, high := -1, n // low starts, high does not
	var best *Start
	for next := 0; high-low > 1; next = low + (high-low)/2 {
		job := form(next)
		if start := q.starts(job); start != nil {
			low, best = next, start
		} else if high = next; low < 0 {
			return
		}
	}
	if best != nil {
		job := form(low)
		q.offer(Change{Kind: kind, To: job, Start: *best, given: given(&job)})
	}
}

// part is what is given up of n when m is left, in ppm.
func part(n, m int64) int64 { return (n - m) * 1_000_000 / max(1, n) }

// shorterMinimum tries the quarter-hours below the minimum runtime, and 5 min.
func (q *question) shorterMinimum() {
	const quarter = 15 * 60_000
	minMs := q.job.Contract.MinMs
	steps := []int64{quarter / 3}
	for ms := int64(quarter); ms < minMs; ms += quarter {
		steps = append(steps, ms)
	}
	if minMs <= steps[0] {
		return
	}
	q.largest(ChangeMinimum, len(steps), func(i int) Job {
		job := q.job
		job.Contract.MinMs = steps[i]
		return job
	}, func(j *Job) int64 { return part(minMs, j.Contract.MinMs) })
}

// fewerGPUs tries a job of one node with fewer GPUs.
func (q *question) fewerGPUs() {
	sh := q.job.Shape
	if sh.Nodes > 1 || sh.shared() {
		return
	}
	q.largest(ChangeGPUs, int(sh.GPUs)-1, func(i int) Job {
		return q.sizeOf(q.job.Pool).Reshape(q.job, sh.Nodes, int64(i+1))
	}, func(j *Job) int64 { return part(sh.GPUs, j.Shape.GPUs) })
}

// fewerNodes tries a gang on fewer nodes.
func (q *question) fewerNodes() {
	sh := q.job.Shape
	q.largest(ChangeNodes, int(sh.Nodes)-1, func(i int) Job {
		return q.sizeOf(q.job.Pool).Reshape(q.job, int64(i+1), sh.GPUs)
	}, func(j *Job) int64 { return part(sh.Nodes, j.Shape.Nodes) })
}

// fewerCores tries the proportional part of a node, then half of it, when nodes
// lack cores or memory.
func (q *question) fewerCores(why *Reason) {
	if why.Code != WhyNever && why.number(FactRejected+FitsCPU) == 0 && why.number(FactRejected+FitsRAM) == 0 {
		return
	}
	size, sh := q.sizeOf(q.job.Pool), q.job.Shape
	cpu, ram := size.defaults(sh)
	for _, d := range []int64{1, 2} {
		job := q.job
		job.Shape.CPUMilli, job.Shape.RAMMiB = min(sh.CPUMilli, max(1, cpu/d)), min(sh.RAMMiB, max(1, ram/d))
		if job.Shape == sh {
			continue
		}
		job.Rate.MilliGPU = size.charged(job.Shape)
		if start := q.starts(job); start != nil {
			given := max(part(sh.CPUMilli, job.Shape.CPUMilli), part(sh.RAMMiB, job.Shape.RAMMiB))
			q.offer(Change{Kind: ChangeCores, To: job, Start: *start, given: given})
			return
		}
	}
}

// unfunded tries to start it without charge and protection.
func (q *question) unfunded() {
	if q.job.Contract.MinMs == 0 {
		return
	}
	job := q.s.Policy.Unfunded(q.job)
	if start := q.starts(job); start != nil {
		q.offer(Change{Kind: ChangeFree, To: job, Start: *start, given: 1_000_000})
	}
}

// Unfunded gives a job as it would be without funds.
func (p *Policy) Unfunded(job Job) Job {
	job.Contract.MinMs = 0
	job.Contract.GraceMs = min(job.Contract.GraceMs, p.UnfundedGraceMs)
	return job
}

// otherPools tries the pools in which the project can pay for it.
func (q *question) otherPools() {
	tried := 0
	for i := range q.s.Pools {
		to := q.sizeOf(q.s.Pools[i].ID)
		if to == nil || to.Pool == q.job.Pool || !q.pays(to.Pool) {
			continue
		}
		if tried++; tried > mostPools {
			return
		}
		job, ok := to.Move(q.job, q.sizeOf(q.job.Pool), q.s.Pools[i].RatePPM)
		if !ok {
			continue
		}
		job.QueueSeq = lastInQueue
		if start := q.starts(job); start != nil {
			q.offer(Change{Kind: ChangePool, To: job, Start: *start, given: 500_000})
		}
	}
}

// pays says whether the project has anything usable in a pool.
func (q *question) pays(pool ledger.PoolID) bool {
	i := slices.IndexFunc(q.s.Funds, func(f ledger.Funds) bool { return f.Pool == pool && f.Project == q.job.Project })
	if i < 0 {
		return false
	}
	usable, _ := q.s.Funds[i].Usable(q.s.Now)
	return usable > 0
}

// moreFunds tries what is missing to the hold, given to the project and to
// whoever limits it; then also what the jobs of its project would take that lack
// funds before it.
func (q *question) moreFunds(why *Reason) {
	if why.Code != WhyFunds {
		return
	}
	short, refusal := ledger.ParseGPUHours("", why.Fact(FactShort), 0)
	if refusal != nil || short <= 0 {
		return
	}
	t := q.table(q.job.Pool)
	before := t.Funds
	defer func() { t.Funds = before }()
	for _, more := range []ledger.Amount{short, short + q.ahead} {
		t.Funds = withMore(before, &q.job, more, t.Now)
		if start := q.starts(q.job); start != nil {
			q.offer(Change{Kind: ChangeFunds, To: q.job, Short: more, LimitedBy: why.Fact(FactLimitedBy), Start: *start})
			return
		}
		if q.ahead == 0 {
			return
		}
	}
}

// lackBefore sums what the jobs of the project need that go before a job and
// lack funds themselves.
func (p *Plan) lackBefore(t *Snapshot, own *Reason, project ledger.GroupID) ledger.Amount {
	var sum ledger.Amount
	for i := range p.Reasons {
		r := &p.Reasons[i]
		if r.Code != WhyFunds || r.Rank >= own.Rank || r.Rank == 0 {
			continue
		}
		if j := t.index().waiting[r.Job]; j != nil && j.Project == project {
			sum += j.Rate.Cum(j.Contract.MinMs)
		}
	}
	return sum
}

// withMore gives funds with a lot of so much, valid as long as any hold lasts,
// and every limit above it raised by as much.
func withMore(funds []ledger.Funds, job *Job, more ledger.Amount, now Instant) []ledger.Funds {
	out := slices.Clone(funds)
	at, ok := slices.BinarySearchFunc(out, job, func(f ledger.Funds, j *Job) int {
		return cmp.Or(cmp.Compare(f.Pool, j.Pool), cmp.Compare(f.Project, j.Project))
	})
	if !ok {
		out = slices.Insert(out, at, ledger.Funds{Project: job.Project, Pool: job.Pool})
	}
	f := &out[at]
	lot := ledger.Lot{
		Project: job.Project, Pool: job.Pool, First: now, Last: math.MaxInt64, Available: more,
	}
	for _, l := range f.Lots {
		if l.ValidAt(now) {
			lot.Period = l.Period
		}
	}
	f.Lots = append(slices.Clone(f.Lots), lot)
	f.Limits = slices.Clone(f.Limits)
	for i := range f.Limits {
		f.Limits[i].Limit += more
	}
	return out
}

func (q *question) sizeOf(pool ledger.PoolID) *NodeSize {
	i := slices.IndexFunc(q.sizes, func(n NodeSize) bool { return n.Pool == pool })
	if i < 0 {
		return nil
	}
	return &q.sizes[i]
}

// shape is a job's shape as the books measure it.
func (n *NodeSize) shape(sh Shape) ledger.Shape {
	milli := sh.GPUMilli
	if milli == 0 {
		milli = 1000
	}
	return ledger.Shape{
		Nodes: max(1, sh.Nodes), GPUs: sh.GPUs, GPUMilli: milli, CPUMilli: sh.CPUMilli, RAMMiB: sh.RAMMiB,
		NodeGPUs: n.GPUs, NodeCPUMilli: n.CPUMilli, NodeRAMMiB: n.RAMMiB,
	}
}

// defaults are the cores and memory that go with a shape's GPUs.
func (n *NodeSize) defaults(sh Shape) (cpuMilli, ramMiB int64) {
	return max(1, ledger.DefaultCPU(n.shape(sh))), max(1, ledger.DefaultRAM(n.shape(sh)))
}

func (n *NodeSize) charged(sh Shape) int64 { return max(1, ledger.ChargedMilliGPU(n.shape(sh))) }

// Reshape gives a job other nodes and GPUs per node. Cores and memory per node
// follow its GPUs, as their defaults do; the rate is that of the new shape.
func (n *NodeSize) Reshape(job Job, nodes, gpus int64) Job {
	was := job.Shape
	job.Shape.Nodes, job.Shape.GPUs = nodes, gpus
	if gpus != 1 && job.Shape.shared() {
		job.Shape.GPUMilli = 1000 // only a job with one GPU per node takes a part of it
	}
	if gpus != was.GPUs && was.GPUs > 0 && gpus > 0 {
		job.follow(n, n, was)
	}
	job.Rate.MilliGPU = n.charged(job.Shape)
	return job
}

// follow sets cores and memory in proportion: what was the default becomes the
// default, anything else keeps its part of it.
func (j *Job) follow(from, to *NodeSize, was Shape) {
	wasCPU, wasRAM := from.defaults(was)
	cpu, ram := to.defaults(j.Shape)
	j.Shape.CPUMilli = max(1, ratioOf(was.CPUMilli, cpu, wasCPU))
	j.Shape.RAMMiB = max(1, ratioOf(was.RAMMiB, ram, wasRAM))
	j.Shape.Flow = was.Flow.times(j.Shape.GPUs*j.Shape.milli(), was.GPUs*was.milli())
}

// times is what so many more or fewer GPUs ask for: of each of them as before.
func (f Flow) times(a, b int64) Flow {
	if a == b || b == 0 {
		return f
	}
	f.NetMbps, f.StoMbps, f.IOCMilli = ratioOf(f.NetMbps, a, b), ratioOf(f.StoMbps, a, b), ratioOf(f.IOCMilli, a, b)
	f.StoVar, f.IOCVar = ratioOf(ratioOf(f.StoVar, a, b), a, b), ratioOf(ratioOf(f.IOCVar, a, b), a, b)
	return f
}

// ratioOf is n·a/b, for sizes of machines.
func ratioOf(n, a, b int64) int64 {
	if a == b {
		return n
	}
	return n/b*a + n%b*a/b
}

// Move gives a job another pool, whose reference node is n: the same GPUs, its
// part of a node's cores and memory, that pool's rate. Jobs of CPU-only pools and
// of pools with GPUs do not change places.
func (n *NodeSize) Move(job Job, from *NodeSize, ratePPM int64) (Job, bool) {
	if (n.GPUs == 0) != (from.GPUs == 0) {
		return job, false
	}
	was := job.Shape
	job.Pool, job.Rate.PPM = n.Pool, ratePPM
	if n.GPUs > 0 {
		job.follow(from, n, was)
	}
	job.Rate.MilliGPU = n.charged(job.Shape)
	return job, true
}

// Text says what to change: "Protect it for 30 min instead of 1 h".
func (c *Change) Text(pool func(ledger.PoolID) string) string {
	from, to := &c.From, &c.To
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	switch c.Kind {
	case ChangeFunds:
		return c.Short.Hours() + " more GPU-h"
	case ChangeCores:
		return "Ask for " + thousandths(to.Shape.CPUMilli) + " cores and " + number(to.Shape.RAMMiB/1024) + " GiB per node"
	case ChangeMinimum:
		return "Protect it for " + ledger.FormatMillis(to.Contract.MinMs) + " instead of " + ledger.FormatMillis(from.Contract.MinMs)
	case ChangeGPUs:
		return "Take " + count(to.Shape.GPUs, "GPU", "GPUs") + " instead of " + number(from.Shape.GPUs)
	case ChangeNodes:
		return "Take " + count(to.Shape.Nodes, "node", "nodes") + " instead of " + number(from.Shape.Nodes)
	case ChangePool:
		return "Move it to pool " + pool(to.Pool)
	}
	return "Run it free, unfunded"
}

func thousandths(milli int64) string {
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli/1000, 10) + "." + strconv.FormatInt(milli%1000/100, 10)
}

// StartEffect says what carrying out a start means: "would start now on n3".
func StartEffect(s *Start, node func(ledger.NodeID) string) string {
	var text string
	switch {
	case len(s.Evict) > 0:
		text = "would be nominated: " + count(int64(len(s.Evict)), "attempt leaves", "attempts leave") + " for it"
	case s.Nominate:
		text = "would be nominated: it takes over devices that are being left"
	default:
		text = "would start now"
		if n := len(s.Placed); n > 0 {
			text += " on " + node(s.Placed[0].Node)
			if n > 1 {
				text += " and " + count(int64(n-1), "other node", "other nodes")
			}
		}
	}
	if !s.Funded {
		text += ", unprotected"
	}
	return text
}
