package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
)

// victims is a proposal: who leaves for a job, and where the job goes then.
type victims struct {
	rows   []int32 // chosen, in order of choice
	evict  []Evict
	placed []Placed
	tokens int64 // V1 and V3 evictions
}

// undo takes a proposal back: its victims stay.
func (v *victims) undo(pc *poolCycle) {
	if v == nil {
		return
	}
	for _, i := range v.rows {
		pc.unleave(i)
	}
}

// commit makes the victims leave: their commitments end, the tokens are spent.
func (v *victims) commit(pc *poolCycle, s *Start) {
	if v == nil {
		return
	}
	for _, i := range v.rows {
		if g := pc.pi.rows[i].group; g >= 0 {
			pc.fieldOf(pc.marks[i].funded).commit(g, -pc.commitment(int(i)))
		}
		pc.marks[i].stopping = true
	}
	s.Evict = v.evict
	if pc.p.EvictPerMinute > 0 {
		pc.plan.Bucket.MilliTokens -= 1000 * v.tokens
	}
}

// leave treats an attempt as if it were told to stop; unleave takes that back.
func (pc *poolCycle) leave(i int32)   { pc.move(i, pc.pi.rows[i].phase, Ending) }
func (pc *poolCycle) unleave(i int32) { pc.move(i, Ending, pc.pi.rows[i].phase) }

// eviction is one search for victims.
type eviction struct {
	pc      *poolCycle
	job     *Job
	shape   int32
	group   int32
	debug   bool
	need    int64   // milli-GPUs of the job
	promise GPUTime // what its start adds to its side: commitment and margin
	all     []candidate
	removed []GPUTime // commitments of chosen victims, by group
	pairs   []fork    // forks of the chosen V3 victims
	fits    int64     // rooms with place for a rank
	can     []bool    // by room
	ask     ask
	only    []bool // by room: the nodes kept for the holder, at its time; nil = any
}

type candidate struct {
	row    int32
	rule   Rule
	grace  int64
	served ratio
	gives  int64 // milli-GPUs, at most the need
	lost   GPUTime
}

// fork is where a preemptor and a victim part: children of their lowest common
// ancestor.
type fork struct{ mine, theirs int32 }

// nominate finds devices for a funded job that has no free room: among those
// that are being left already, else by evicting. It gives nil and a reason's
// code when nobody may be evicted or it would not help.
func (pc *poolCycle) nominate(e *entry, g int32, minMs int64) (*victims, string) {
	key := victimKey{e.shape, g, e.job.Contract.Urgency}
	if why, failed := pc.memo.noEnd[key]; failed && e.holder == nil {
		return nil, why
	}
	v, why := pc.seek(e, g, minMs)
	if v == nil && e.holder == nil {
		pc.memo.noEnd[key] = why
	}
	return v, why
}

// newEviction looks at every room once.
func (pc *poolCycle) newEviction(e *entry, g int32, minMs int64) *eviction {
	j := e.job
	ev := &eviction{
		pc: pc, job: j, shape: e.shape, group: g, need: j.Rate.MilliGPU, promise: pc.promise(j.Rate.MilliGPU, minMs),
		debug:   minMs <= pc.p.DebugMinMs && max(1, j.Shape.Nodes)*j.Shape.GPUs <= pc.p.DebugGPUs,
		removed: make([]GPUTime, len(pc.ix.t.groups)), can: make([]bool, len(pc.rooms)),
		ask: pc.askOf(e, minMs, true),
	}
	for i := range pc.rooms {
		ev.look(int32(i))
	}
	return ev
}

// promise is what a start adds to its side: its commitment and the margin.
func (pc *poolCycle) promise(milli, minMs int64) GPUTime {
	p := milli * max(pc.p.CommitFloorMs, minMs)
	return p + p/1_000_000*pc.p.MarginPPM
}

func (pc *poolCycle) seek(e *entry, g int32, minMs int64) (*victims, string) {
	if e.holder == nil && pc.hopelessKind(e.kind, g) {
		return nil, pc.looseCode()
	}
	ev := pc.newEviction(e, g, minMs)
	v := &victims{}
	if !ev.enough() {
		if v = ev.choose(); v == nil {
			return nil, WhyStanding
		}
		if v.tokens > 0 && pc.p.EvictPerMinute > 0 && pc.plan.Bucket.MilliTokens < 1000 {
			v.undo(pc)
			return nil, WhyEvictRate
		}
	}
	v.placed = pc.place(pc.rooms, &ev.ask)
	if v.placed == nil {
		v.undo(pc)
		return nil, WhyProtected
	}
	return v, ""
}

func (ev *eviction) enough() bool { return ev.fits >= max(1, ev.job.Shape.Nodes) }

// look notes whether a room has place for a rank once the ending have left.
func (ev *eviction) look(room int32) {
	ev.pc.plan.Steps++
	why, _ := ev.pc.rooms[room].fit(&ev.ask)
	if ok := why == FitsOK && (ev.only == nil || ev.only[room]); ok != ev.can[room] {
		ev.can[room] = ok
		if ok {
			ev.fits++
		} else {
			ev.fits--
		}
	}
}

// restrict lets only the nodes kept for the holder count.
func (ev *eviction) restrict(nodes []ledger.NodeID) {
	ev.only = make([]bool, len(ev.pc.rooms))
	for _, id := range nodes {
		ev.only[ev.pc.pi.roomOf[id]] = true
	}
	for i := range ev.can {
		if ev.can[i] && !ev.only[i] {
			ev.can[i] = false
			ev.fits--
		}
	}
}

// onKept says whether an attempt has a part on the nodes kept for the holder.
func (ev *eviction) onKept(l *Live) bool {
	for i := range l.Placed {
		if n, ok := ev.pc.pi.roomOf[l.Placed[i].Node]; ok && ev.only[n] {
			return true
		}
	}
	return false
}

func (ev *eviction) lookAround(row int32) {
	l := ev.pc.pi.rows[row].live
	for i := range l.Placed {
		if n, ok := ev.pc.pi.roomOf[l.Placed[i].Node]; ok {
			ev.look(n)
		}
	}
}

// gather lists who may be evicted for the job.
func (ev *eviction) gather() {
	lo := ev.pc.byGroup()
	ev.all = ev.add(make([]candidate, 0, len(lo.unfunded)), lo.unfunded, V1)
	if ev.only != nil {
		ev.all = ev.add(ev.all, lo.past, V4)
		return
	}
	if !ev.pc.noLeave(ev.shape) {
		return // the unfunded go first, and they are enough
	}
	for _, g := range lo.groups {
		switch {
		case g == ev.group:
			ev.all = ev.add(ev.all, lo.funded[g], V2)
		case g >= 0:
			if mine, theirs, ok := ev.pc.ix.t.fork(ev.group, g); ok && ev.under(fork{mine, theirs}, 0) {
				ev.all = ev.add(ev.all, lo.funded[g], V3)
			}
		}
	}
}

// add appends the rows that a rule lets go for the job.
func (ev *eviction) add(to []candidate, rows []int32, rule Rule) []candidate {
	pc := ev.pc
	for _, i := range rows {
		r, m := &pc.pi.rows[i], pc.marks[i]
		pc.plan.Steps++
		if m.stopping || ev.only != nil && !ev.onKept(r.live) || rule == V2 && ev.job.Contract.Urgency <= r.live.Job.Contract.Urgency {
			continue
		}
		c := candidate{row: i, rule: rule, grace: effectiveGrace(pc.p, r.live, m.funded), gives: min(r.milli, ev.need)}
		c.lost = r.milli * max(0, pc.now.MillisSince(lastSaved(r.live)))
		if rule == V3 {
			mine, theirs, _ := pc.ix.t.fork(ev.group, r.group)
			if !ev.under(fork{mine, theirs}, pc.commitment(int(i))) {
				continue
			}
			c.served = pc.fields[0].ratio(theirs)
		} else if r.group >= 0 {
			c.served = pc.fieldOf(m.funded).ratio(r.group)
		}
		to = append(to, c)
	}
	return to
}

// effectiveGrace is how long an attempt may take to leave, ms.
func effectiveGrace(p *Policy, l *Live, funded bool) int64 {
	grace := min(max(0, l.Job.Contract.GraceMs), p.GraceCapMs)
	if !funded {
		grace = min(grace, p.UnfundedGraceMs)
	}
	return grace
}

// GraceMs is how long an attempt may take between SIGTERM and SIGKILL.
func GraceMs(p *Policy, l *Live) int64 { return effectiveGrace(p, l, l.Funded) }

// lastSaved is the instant to which an evicted attempt falls back.
func lastSaved(l *Live) Instant { return max(l.Started, l.Checkpoint, l.Since) }

// under is V3's test at one fork: the preemptor's side, with the job and the
// margin, stays below the victim's side without the commitments of the chosen
// victims and of less more.
func (ev *eviction) under(f fork, less GPUTime) bool {
	fd := &ev.pc.fields[0]
	mine, theirs := fd.ratio(f.mine), fd.ratio(f.theirs)
	mine.time += ev.promise
	theirs.time -= ev.removed[f.theirs] + less
	return mine.compare(theirs) < 0
}

// choose adds victims in the order of what they cost until the job fits, then
// drops those that turned out needless, last first.
func (ev *eviction) choose() *victims {
	ev.gather()
	for i := len(ev.all)/2 - 1; i >= 0; i-- {
		ev.sink(i)
	}
	var chosen []candidate
	for !ev.enough() && len(ev.all) > 0 {
		if c := ev.cheapest(); ev.admit(&c) {
			chosen = append(chosen, c)
			ev.pc.leave(c.row)
			ev.lookAround(c.row)
		}
	}
	if !ev.enough() {
		for _, c := range chosen {
			ev.pc.unleave(c.row)
		}
		return nil
	}
	for n := len(chosen) - 2; n >= 0; n-- {
		row := chosen[n].row
		ev.pc.unleave(row)
		ev.lookAround(row)
		if ev.enough() {
			ev.release(&chosen[n])
			chosen = slices.Delete(chosen, n, n+1)
			continue
		}
		ev.pc.leave(row)
		ev.lookAround(row)
	}
	return ev.proposal(chosen)
}

// cheapest takes the first candidate out of the heap. Few are taken of many, so
// they are never sorted as a whole.
func (ev *eviction) cheapest() candidate {
	top, last := ev.all[0], len(ev.all)-1
	ev.all[0] = ev.all[last]
	ev.all = ev.all[:last]
	ev.sink(0)
	return top
}

func (ev *eviction) sink(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(ev.all); c++ {
			if ev.before(&ev.all[c], &ev.all[least]) < 0 {
				least = c
			}
		}
		if least == i {
			return
		}
		ev.all[i], ev.all[least] = ev.all[least], ev.all[i]
		i = least
	}
}

// before is the order of victims: unfunded first, for debug jobs those that
// leave sooner, most over-served, fewest jobs, least progress lost, youngest, id.
func (ev *eviction) before(a, b *candidate) int {
	x, y := ev.pc.pi.rows[a.row].live, ev.pc.pi.rows[b.row].live
	order := cmp.Compare(rank(a.rule), rank(b.rule))
	if ev.debug {
		order = cmp.Or(order, cmp.Compare(a.grace, b.grace))
	}
	if order != 0 {
		return order
	}
	if order = b.served.compare(a.served); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(b.gives, a.gives), cmp.Compare(a.lost, b.lost),
		cmp.Compare(y.Started, x.Started), cmp.Compare(x.Job.ID, y.Job.ID), cmp.Compare(x.N, y.N))
}

func rank(r Rule) int {
	if r == V1 {
		return 0
	}
	return 1
}

// admit checks V3 again with everybody chosen so far, for the new victim and
// for those whose side it makes lighter.
func (ev *eviction) admit(c *candidate) bool {
	r := &ev.pc.pi.rows[c.row]
	if r.group < 0 || !ev.pc.marks[c.row].funded {
		return true
	}
	less := ev.pc.commitment(int(c.row))
	t := ev.pc.ix.t
	for _, f := range ev.pairs {
		if t.within(r.group, f.theirs) && !ev.under(f, less) {
			return false
		}
	}
	if c.rule == V3 {
		mine, theirs, _ := t.fork(ev.group, r.group)
		if !ev.under(fork{mine, theirs}, less) {
			return false
		}
		if f := (fork{mine, theirs}); !slices.Contains(ev.pairs, f) {
			ev.pairs = append(ev.pairs, f)
		}
	}
	ev.remove(r.group, less)
	return true
}

func (ev *eviction) remove(g int32, d GPUTime) {
	for ; g >= 0; g = ev.pc.ix.t.parent[g] {
		ev.removed[g] += d
	}
}

func (ev *eviction) release(c *candidate) {
	if r := &ev.pc.pi.rows[c.row]; r.group >= 0 && ev.pc.marks[c.row].funded {
		ev.remove(r.group, -ev.pc.commitment(int(c.row)))
	}
}

// proposal words the chosen victims with the numbers that decided.
func (ev *eviction) proposal(chosen []candidate) *victims {
	v := &victims{}
	slices.SortFunc(chosen, func(a, b candidate) int {
		x, y := ev.pc.pi.rows[a.row].live, ev.pc.pi.rows[b.row].live
		return cmp.Or(cmp.Compare(x.Job.ID, y.Job.ID), cmp.Compare(x.N, y.N))
	})
	for i := range chosen {
		c := &chosen[i]
		l := ev.pc.pi.rows[c.row].live
		out := Evict{AttemptRef: l.ref(), Attempt: l.Attempt, Rule: c.rule, LostMs: max(0, ev.pc.now.MillisSince(lastSaved(l)))}
		ev.weigh(&out, c)
		v.rows = append(v.rows, c.row)
		v.evict = append(v.evict, out)
		if c.rule == V1 || c.rule == V3 {
			v.tokens++
		}
	}
	return v
}

func (ev *eviction) weigh(out *Evict, c *candidate) {
	pc, r := ev.pc, &ev.pc.pi.rows[c.row]
	if r.group < 0 {
		return
	}
	mine, theirs := ev.group, r.group
	if c.rule == V3 || c.rule == V4 {
		mine, theirs, _ = pc.ix.t.fork(ev.group, r.group)
	}
	out.Standing = pc.fieldOf(pc.marks[c.row].funded).standing(pc.pi.pool, theirs)
	if pc.marks[c.row].funded {
		out.Standing.Commitment -= ev.removed[theirs]
	}
	out.Against = pc.fields[0].standing(pc.pi.pool, mine)
	out.Against.Commitment += ev.promise
}
