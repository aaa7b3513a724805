package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"

	"tranche/ledger"
)

// World is where snapshots come from and where plans are carried out. There are
// two: the database and the simulator.
type World interface {
	Snapshot(ctx context.Context, now Instant) (*Snapshot, error)
	Apply(ctx context.Context, p *Plan) (Applied, error)
}

// Applied says what became of a plan. Items that no longer held dropped out.
type Applied struct {
	Started   int      `json:"started"`
	Nominated int      `json:"nominated"`
	Evicted   int      `json:"evicted"`
	Promoted  int      `json:"promoted"`
	Stopped   int      `json:"stopped"`
	Extended  int      `json:"extended"`
	Dropped   []Reason `json:"dropped,omitempty"`
}

// Report is one dispatcher round.
type Report struct {
	Plan     *Plan     `json:"plan"`
	Applied  Applied   `json:"applied"`
	Snapshot *Snapshot `json:"-"` // what was decided from; the world's own, to be read only
}

// RunCycle takes a snapshot, decides and applies. Nothing else carries a decision
// out, so that the simulator and the server cannot drift apart.
func RunCycle(ctx context.Context, w World, now Instant) (Report, error) {
	s, err := w.Snapshot(ctx, now)
	if err != nil {
		return Report{}, fmt.Errorf("snapshot: %w", err)
	}
	if err := s.Validate(); err != nil {
		return Report{}, fmt.Errorf("snapshot of cycle %d: %w", s.Cycle, err)
	}
	plan := Decide(s)
	applied, err := w.Apply(ctx, &plan)
	if err != nil {
		return Report{Plan: &plan, Snapshot: s}, fmt.Errorf("apply cycle %d: %w", s.Cycle, err)
	}
	return Report{&plan, applied, s}, nil
}

// Validate says what the dispatcher cannot work with: order and identities.
func (s *Snapshot) Validate() error {
	if s.Now <= 0 {
		return fmt.Errorf("has no instant")
	}
	if !ascending(s.Pools, func(p *Pool) int64 { return int64(p.ID) }) {
		return fmt.Errorf("pools are not in order of their ids")
	}
	if !ascending(s.Groups, func(g *Group) int64 { return int64(g.ID) }) {
		return fmt.Errorf("groups are not in order of their ids")
	}
	if !slices.IsSortedFunc(s.Slices, func(a, b Slice) int { return bySlice(&a, &b) }) {
		return fmt.Errorf("slices are not in order of pool, start and id")
	}
	if !ascending(s.Mixes, func(m *Mix) int64 { return int64(m.Pool) }) {
		return fmt.Errorf("mixes are not in order of their pools")
	}
	if !ascending(s.Nodes, func(n *Node) int64 { return int64(n.ID) }) {
		return fmt.Errorf("nodes are not in order of their ids")
	}
	return nil
}

func ascending[T any](list []T, id func(*T) int64) bool {
	for i := 1; i < len(list); i++ {
		if id(&list[i-1]) >= id(&list[i]) {
			return false
		}
	}
	return true
}

// cycle is one decision's working memory.
type cycle struct {
	s     *Snapshot
	p     *Policy
	ix    *index
	now   Instant
	plan  Plan
	funds []ledger.Funds // as the snapshot's; draws are seen by later ones
}

// Decide is the dispatcher: what to start, stop, prolong and why the rest
// waits. It is total and pure; the same snapshot gives the same plan.
//
// Per pool: money first (holds that end are prolonged, or the attempt goes on
// unfunded or stops), then maximum runtimes, drains and promotions, then the
// holder of the reserved start when its time has come, the funded jobs in order of
// standing with the evictions they may make, a new reserved start for a large job
// among those left, and the unfunded ones into what is left.
func Decide(s *Snapshot) Plan {
	c := &cycle{s: s, p: &s.Policy, ix: s.index(), now: s.Now}
	c.plan = Plan{Cycle: s.Cycle, Now: s.Now, Policy: s.Policy.Version, Bucket: c.refill()}
	c.funds = append(c.ix.funds[:0], s.Funds...)
	c.ix.funds = c.funds
	for _, pi := range c.ix.pools {
		pc := newPoolCycle(c, pi)
		pc.limits()
		pc.bookings()
		pc.money()
		pc.stops()
		pc.promote()
		pc.keep()
		pc.standings()
		pc.capMembers()
		pc.asks()
		pc.unprotect()
		pc.firstTry()
		pc.pass(0)
		pc.answer()
		pc.claim()
		pc.pass(1)
		pc.report()
	}
	c.plan.sort()
	return c.plan
}

func (p *Plan) sort() {
	byRef := func(a, b AttemptRef) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.N, b.N)) }
	slices.SortFunc(p.Extend, func(a, b Extension) int { return byRef(a.AttemptRef, b.AttemptRef) })
	slices.SortFunc(p.MoneyEnds, func(a, b MoneyEnd) int { return byRef(a.AttemptRef, b.AttemptRef) })
	slices.SortFunc(p.Stops, func(a, b Stop) int { return byRef(a.AttemptRef, b.AttemptRef) })
	slices.SortFunc(p.Promote, byRef)
	slices.Sort(p.Tried)
	slices.SortFunc(p.Unprotect, byRef)
	slices.SortFunc(p.Renewals, func(a, b Renewal) int { return byRef(a.AttemptRef, b.AttemptRef) })
	slices.SortFunc(p.Warnings, func(a, b Warning) int { return byRef(a.AttemptRef, b.AttemptRef) })
	p.Reasons = sortedReasons(p.Reasons)
}

// sortedReasons sorts by job. There are as many as jobs wait, and they are large:
// their places are sorted, and each is moved once.
func sortedReasons(list []Reason) []Reason {
	const places = 21 // bits: two million reasons, and job numbers up to four million million
	order := make([]int64, len(list))
	for i := range list {
		order[i] = int64(list[i].Job)<<places | int64(i)
	}
	slices.Sort(order)
	out := slices.Clone(list)
	for i := range order {
		out[i] = list[order[i]&(1<<places-1)]
	}
	return out
}

// refill gives the eviction bucket what came in since it was last looked at. What
// is less than a thousandth of a token stays in the time that is still to be counted:
// cycles that follow each other fast would else never fill a slow bucket.
func (c *cycle) refill() Bucket {
	b, rate, full := c.s.Bucket, c.p.EvictPerMinute, c.p.EvictBurst*1000
	if b.At == 0 {
		return Bucket{MilliTokens: full, At: c.now}
	}
	const perMilli, most = 60_000, Instant(3_600_000_000) // µs
	passed := min(c.now-b.At, most)
	if passed <= 0 {
		return b
	}
	came := rate * int64(passed) / perMilli
	b.MilliTokens += came
	if b.MilliTokens >= full || passed == most || rate <= 0 {
		return Bucket{MilliTokens: min(full, b.MilliTokens), At: c.now}
	}
	b.At += Instant((came*perMilli + rate - 1) / rate)
	return b
}

// fundsOf finds a project's funds in a pool; nil when it never had a lot.
func (c *cycle) fundsOf(pool ledger.PoolID, project ledger.GroupID) *ledger.Funds {
	i := sort.Search(len(c.funds), func(i int) bool { // by place: funds are large
		f := &c.funds[i]
		return f.Pool > pool || f.Pool == pool && f.Project >= project
	})
	if i == len(c.funds) || c.funds[i].Pool != pool || c.funds[i].Project != project {
		return nil
	}
	return &c.funds[i]
}

// spread lets every project below an overcommitted ancestor see a draw.
func (c *cycle) spread(f *ledger.Funds, before []ledger.PathLimit) {
	for i := range f.Limits {
		l := &f.Limits[i]
		d := l.Used - before[i].Used
		if d == 0 {
			continue
		}
		for n := range c.funds {
			o := &c.funds[n]
			if o == f || o.Pool != f.Pool {
				continue
			}
			k := slices.IndexFunc(o.Limits, func(x ledger.PathLimit) bool { return x.Program == l.Program && x.Period == l.Period })
			if k >= 0 {
				o.Limits = slices.Clone(o.Limits)
				o.Limits[k].Used += d
			}
		}
	}
}

// poolCycle decides for one pool.
type poolCycle struct {
	*cycle
	pi                   *poolIndex
	rooms                []room   // the index's own until something is put into them
	owned                bool     // rooms are the cycle's own
	marks                []mark   // by row
	due, over, nominated []int    // rows whose hold ends, whose maximum runtime is over, that wait for their devices
	fields               [2]field // funded, unfunded
	cursor               []*cursor
	fallen               [][]entry // or-free jobs without funds, by group
	rank                 int
	loose                *loose
	freeAt               [][]Instant
	roomsAt              map[[2]int64]Instant // roomAt, by GPUs per node and nodes
	memo                 memos
	people               []ratio    // by person: funded usage and commitment over member share
	maintained           bool       // some node is in its planned maintenance now
	booked               bool       // some device is booked for a slice
	blocked              [][]window // by room: maintenance and slices; nil = none
	holder               *Live      // of the reserved start; nil = nobody
	promised             Reservation
	served               bool     // the holder starts in this cycle
	large                []*entry // heads of projects that are owed a reserved start, in order
	alive                int64    // devices in service; 0 = not counted yet
	occ                  [][]occupant
	scratch              *scratch
	judge                *judge // nil = best fit
	caps                 *memberCaps
	asking               []asking
	failed               []failedTry // when somebody asks
	changes              []int32     // rooms that starts and victims have changed, in order
	left                 []int32     // rows of the last start's victims
}

// mark is what this cycle has changed about a live attempt.
type mark struct {
	funded   bool
	stopping bool
}

func newPoolCycle(c *cycle, pi *poolIndex) *poolCycle {
	pi.marks = slices.Grow(pi.marks[:0], len(pi.rows))[:len(pi.rows)]
	pc := &poolCycle{cycle: c, pi: pi, rooms: pi.rooms, marks: pi.marks, scratch: &pi.scratch}
	for i := range pi.rows {
		r := &pi.rows[i]
		pc.marks[i] = mark{funded: r.funded, stopping: r.phase == Ending}
		switch {
		case r.phase == Nominated:
			pc.nominated = append(pc.nominated, i)
		case r.holdEnd != 0 && c.now >= r.holdEnd:
			pc.due = append(pc.due, i)
		}
		if r.end != 0 && c.now >= r.end {
			pc.over = append(pc.over, i)
		}
	}
	pc.memo = newMemos(pi)
	pc.judge = pc.judges()
	return pc
}

// own makes the rooms the cycle's own before something is put into them.
func (pc *poolCycle) own() {
	if !pc.owned {
		pc.rooms, pc.owned = pc.pi.copyRooms(), true
	}
}

// move takes an attempt from one phase to another in the cycle's rooms.
func (pc *poolCycle) move(i int32, from, to Phase) {
	pc.own()
	l := pc.pi.rows[i].live
	pc.pi.occupy(pc.rooms, l, from, -1)
	pc.pi.occupy(pc.rooms, l, to, 1)
}

// commitment is what an attempt is still promised: 0 when it ends.
func (pc *poolCycle) commitment(i int) GPUTime {
	m, r := pc.marks[i], &pc.pi.rows[i]
	if m.stopping {
		return 0
	}
	left := int64(0)
	if m.funded {
		left = r.minMs
		if r.commit != 0 {
			left = r.commit.MillisSince(pc.now)
		}
	}
	return r.milli * max(pc.p.CommitFloorMs, left)
}

// standings fills both fields with usage and commitments, ancestors derived.
func (pc *poolCycle) standings() {
	t := pc.ix.t
	pc.fields = [2]field{*newField(t, pc.pi.share), *newField(t, pc.pi.share)}
	first, _ := slices.BinarySearchFunc(pc.s.Usage, pc.pi.pool.ID, func(u Usage, id ledger.PoolID) int { return cmp.Compare(u.Pool, id) })
	for i := first; i < len(pc.s.Usage) && pc.s.Usage[i].Pool == pc.pi.pool.ID; i++ {
		u := &pc.s.Usage[i]
		if g := t.pos(u.Project); g >= 0 {
			pc.fields[0].usage[g] += u.Funded
			pc.fields[1].usage[g] += u.Unfunded
		}
	}
	for i := range pc.pi.rows {
		if g := pc.pi.rows[i].group; g >= 0 {
			pc.fieldOf(pc.marks[i].funded).commitment[g] += pc.commitment(i)
		}
	}
	pc.fields[0].sumUp()
	pc.fields[1].sumUp()
}

func (pc *poolCycle) fieldOf(funded bool) *field {
	if funded {
		return &pc.fields[0]
	}
	return &pc.fields[1]
}

// report says where every group stands after the cycle.
func (pc *poolCycle) report() {
	if pc.s.Quiet {
		return
	}
	f := &pc.fields[0]
	for g := range f.usage {
		if f.usage[g] != 0 || f.commitment[g] != 0 || f.share[g] != 0 {
			pc.plan.Standings = append(pc.plan.Standings, f.standing(pc.pi.pool, int32(g)))
		}
	}
}
