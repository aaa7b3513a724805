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
	judged *Judged
	tokens int64 // V1 and V3 evictions
}

// scratch is room for searches, kept between them.
type scratch struct {
	all, chosen []candidate
	gains       []gain // by room; zero between searches
	removed     []GPUTime
	rooms       []bool
	forks       []forkMemo // by group
	search      int32
	tried       []candidate
	cut         []piece
}

// clear gives the room for one search, emptied.
func (s *scratch) clear(groups, rooms int) (removed []GPUTime, can, hope []bool) {
	if len(s.removed) < groups {
		s.removed, s.forks = make([]GPUTime, groups), make([]forkMemo, groups)
	}
	if len(s.rooms) < 2*rooms {
		s.rooms, s.gains = make([]bool, 2*rooms), make([]gain, rooms)
	}
	removed, can, hope = s.removed[:groups], s.rooms[:rooms], s.rooms[rooms:2*rooms]
	clear(removed)
	clear(can)
	return removed, can, hope
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
	if pc.left = nil; v == nil {
		return
	}
	pc.left = v.rows
	for _, i := range v.rows {
		if g := pc.pi.rows[i].group; g >= 0 {
			pc.fieldOf(pc.marks[i].funded).commit(g, -pc.commitment(int(i)))
		}
		pc.marks[i].stopping = true
		pc.byGroup().gone(pc, i)
		pc.changed(pc.pi.rows[i].live.Placed)
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
	fits    int64     // rooms with place for a rank
	can     []bool    // by room
	ask     ask
	only    []bool   // by room: the nodes kept for the holder, at its time; nil = any
	hope    []bool   // by room: could take a rank if all unprotected left
	shared  bool     // the job wants a part of a device
	single  bool     // one node
	ownOnly bool     // no tokens are left: V2 alone
	expect  *outlook // nil for the holder
}

type candidate struct {
	row    int32
	rule   Rule
	fork   fork // of V3
	served ratio
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
		debug: minMs <= pc.p.DebugMinMs && max(1, j.Shape.Nodes)*j.Shape.GPUs <= pc.p.DebugGPUs,
		ask:   pc.askOf(e, minMs, true), shared: j.Shape.shared(),
	}
	ev.removed, ev.can, ev.hope = pc.scratch.clear(len(pc.ix.t.groups), len(pc.rooms))
	ev.single = j.Shape.Nodes <= 1
	if e.holder != nil { // what a shape may expect leaves the holder's nodes out
		for i := range pc.rooms {
			ev.look(int32(i))
		}
		return ev
	}
	ev.expect = pc.outlook(e, minMs)
	ev.fits = ev.expect.fits
	if ev.single { // rooms are looked at one by one
		return ev
	}
	for i, p := range ev.expect.rooms {
		ev.can[i] = p == fitting
	}
	return ev
}

// promise is what a start adds to its side: its commitment and the margin.
func (pc *poolCycle) promise(milli, minMs int64) GPUTime {
	p := milli * max(pc.p.CommitFloorMs, minMs)
	return p + p/1_000_000*pc.p.MarginPPM
}

func (pc *poolCycle) seek(e *entry, g int32, minMs int64) (*victims, string) {
	j := e.job
	if e.holder == nil && pc.hopelessKind(e.kind, g) {
		return nil, pc.looseCode()
	}
	spent := pc.p.EvictPerMinute > 0 && pc.plan.Bucket.MilliTokens < 1000
	if e.holder == nil {
		switch look := pc.outlook(e, minMs); {
		case look.fits >= max(1, j.Shape.Nodes):
		case look.hopes < max(1, j.Shape.Nodes):
			return nil, WhyProtected
		case spent && (!pc.loose.has[g] || j.Contract.Urgency <= pc.loose.urgency[g]):
			return nil, WhyEvictRate // whoever it found, it could not ask them to leave
		}
	}
	ev := pc.newEviction(e, g, minMs)
	ev.ownOnly = spent
	v := &victims{}
	if !ev.enough() {
		if spent && !ev.hopesOwn() || !spent && !ev.hopes() {
			return nil, WhyProtected
		}
		if v = ev.choose(); v == nil {
			return nil, WhyStanding
		}
	}
	v.placed, v.judged = pc.place(pc.rooms, &ev.ask)
	if v.placed == nil {
		v.undo(pc)
		return nil, WhyProtected
	}
	return v, ""
}

func (ev *eviction) enough() bool { return ev.fits >= max(1, ev.job.Shape.Nodes) }

// look notes whether a room has place for a rank once the ending and the chosen
// have left.
func (ev *eviction) look(room int32) {
	ev.pc.plan.Steps++
	if ok := (ev.only == nil || ev.only[room]) && ev.has(room); ok != ev.can[room] {
		ev.can[room] = ok
		if ok {
			ev.fits++
		} else {
			ev.fits--
		}
	}
}

// has is room.fit with what the chosen victims would give.
func (ev *eviction) has(room int32) bool {
	if ev.shared {
		why, _ := ev.pc.rooms[room].fit(&ev.ask)
		return why == FitsOK
	}
	return ev.pc.rooms[room].fitsWith(&ev.ask, &ev.pc.scratch.gains[room])
}

// whole says whether all of an attempt's devices are its own.
func (l *Live) whole() bool {
	for i := range l.Placed {
		if l.Placed[i].GPUMilli < 1000 && len(l.Placed[i].Devices) > 0 {
			return false
		}
	}
	return true
}

// take treats an attempt as if it left (sign 1) or stayed after all (−1). Those
// who have their devices for themselves are only counted; the rooms change when
// the search is over.
func (ev *eviction) take(row int32, sign int64) {
	pc := ev.pc
	l := pc.pi.rows[row].live
	switch {
	case !ev.shared && l.whole():
		for i := range l.Placed {
			if n, ok := pc.pi.roomOf[l.Placed[i].Node]; ok {
				pc.scratch.gains[n].add(pc.rooms[n].gainOf(&l.Placed[i], &ev.ask), sign)
				ev.look(n)
			}
		}
		return
	case sign > 0:
		pc.leave(row)
	default:
		pc.unleave(row)
	}
	for i := range l.Placed {
		if n, ok := pc.pi.roomOf[l.Placed[i].Node]; ok {
			ev.look(n)
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

// gather lists who may be evicted for the job, of those whose leaving could make
// a room fit.
func (ev *eviction) gather() {
	lo := ev.pc.byGroup()
	if ev.ownOnly {
		ev.all = ev.add(ev.pc.scratch.all[:0], lo.funded[ev.group], V2, fork{})
		return
	}
	ev.all = ev.add(ev.pc.scratch.all[:0], lo.unfunded, V1, fork{})
	if ev.only != nil {
		ev.all = ev.add(ev.all, lo.past, V4, fork{})
		return
	}
	if !ev.pc.noLeave(ev.shape) {
		return // the unfunded go first, and they are enough
	}
	ev.all = ev.add(ev.all, lo.funded[ev.group], V2, fork{})
	t := ev.pc.ix.t
	for at := ev.group; at >= 0; at = t.parent[at] {
		siblings := t.roots
		if t.parent[at] >= 0 {
			siblings = t.children[t.parent[at]]
		}
		for _, o := range siblings {
			if f := (fork{at, o}); o != at && lo.least[o] > 0 && ev.under(f, lo.least[o]-1) {
				ev.gatherBelow(o, f)
			}
		}
	}
}

// gatherBelow lists the V3 candidates in a group and below it, which all part
// from the preemptor at the same fork.
func (ev *eviction) gatherBelow(g int32, f fork) {
	lo := ev.pc.loose
	ev.all = ev.add(ev.all, lo.funded[g], V3, f)
	for _, c := range ev.pc.ix.t.children[g] {
		if lo.least[c] > 0 {
			ev.gatherBelow(c, f)
		}
	}
}

// add appends the rows that a rule lets go for the job.
func (ev *eviction) add(to []candidate, rows []int32, rule Rule, f fork) []candidate {
	pc := ev.pc
	for _, i := range rows {
		r, m := &pc.pi.rows[i], pc.marks[i]
		pc.plan.Steps++
		if m.stopping || !ev.helps(r.live) || rule == V2 && ev.job.Contract.Urgency <= r.live.Job.Contract.Urgency {
			continue
		}
		c := candidate{row: i, rule: rule, fork: f}
		if rule == V3 {
			if !ev.under(f, pc.commitment(int(i))) {
				continue
			}
			c.served = pc.fields[0].ratio(f.theirs)
		} else if r.group >= 0 {
			c.served = pc.fieldOf(m.funded).ratio(r.group)
		}
		to = append(to, c)
	}
	return to
}

// helps says whether an attempt has a part where its leaving, with that of all
// others who may leave, could make place for a rank.
func (ev *eviction) helps(l *Live) bool {
	for i := range l.Placed {
		if n, ok := ev.pc.pi.roomOf[l.Placed[i].Node]; ok && ev.hope[n] {
			return true
		}
	}
	return false
}

// hopesOwn is hopes for V2 alone: rooms with unprotected attempts of the project
// itself.
func (ev *eviction) hopesOwn() bool {
	pc, lo := ev.pc, ev.pc.byGroup()
	clear(ev.hope)
	n := ev.fits
	for _, row := range lo.funded[ev.group] {
		pc.plan.Steps++
		lo.each(pc, row, func(k int32, _ *Placed) {
			rm := &pc.rooms[k]
			if !ev.hope[k] && rm.could(&ev.ask, lo.devices[k]) {
				ev.hope[k] = true
				n++
			}
		})
	}
	return n >= max(1, ev.job.Shape.Nodes)
}

// hopes marks the rooms that could take a rank if everybody unprotected left, and
// says whether they are enough. It counts devices alone, so it may hope in vain.
func (ev *eviction) hopes() bool {
	if ev.expect != nil {
		for i, p := range ev.expect.rooms {
			ev.hope[i] = p >= hopeful
		}
		return ev.expect.hopes >= max(1, ev.job.Shape.Nodes)
	}
	pc, lo, n := ev.pc, ev.pc.byGroup(), int64(0)
	for i := range pc.rooms {
		ev.hope[i] = (ev.only == nil || ev.only[i]) && pc.rooms[i].could(&ev.ask, lo.devices[i])
		if ev.hope[i] {
			n++
		}
	}
	return n >= max(1, ev.job.Shape.Nodes)
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
	if ev.single {
		return ev.chooseRoom()
	}
	ev.gather()
	ev.pc.scratch.all = ev.all[:0]
	for i := len(ev.all)/2 - 1; i >= 0; i-- {
		ev.sink(i)
	}
	chosen, refused := ev.pc.scratch.chosen[:0], []candidate(nil)
	for !ev.enough() && len(ev.all) > 0 {
		if c := ev.cheapest(); ev.admit(&c) {
			chosen = append(chosen, c)
			ev.take(c.row, 1)
		} else {
			refused = append(refused, c)
		}
	}
	ev.pc.scratch.chosen = chosen[:0]
	if !ev.enough() {
		for i := range chosen {
			ev.take(chosen[i].row, -1)
		}
		ev.forget(chosen)
		if chosen = ev.alone(refused); chosen == nil {
			return nil
		}
	}
	kept := len(chosen) - 1 // the last one made it fit
	for n := len(chosen) - 2; n >= 0; n-- {
		ev.take(chosen[n].row, -1)
		if ev.enough() {
			ev.release(&chosen[n])
			continue
		}
		ev.take(chosen[n].row, 1)
		kept--
		chosen[kept] = chosen[n]
	}
	chosen = chosen[kept:]
	for i := range chosen { // what was only counted becomes true
		if l := ev.pc.pi.rows[chosen[i].row].live; !ev.shared && l.whole() {
			ev.take(chosen[i].row, -1)
			ev.pc.leave(chosen[i].row)
		}
	}
	return ev.proposal(chosen)
}

// alone is the first of those that were refused who makes the job fit by itself:
// whom others had made their side too light for may do without them.
func (ev *eviction) alone(refused []candidate) []candidate {
	for i := range refused {
		c := refused[i : i+1]
		ev.take(c[0].row, 1)
		if ev.enough() && ev.admit(&c[0]) {
			return c
		}
		ev.take(c[0].row, -1)
	}
	return nil
}

// admit checks V3 again with everybody chosen so far. That covers them, too: all whose
// leaving makes a side lighter part from the preemptor at the same fork.
func (ev *eviction) admit(c *candidate) bool {
	r := &ev.pc.pi.rows[c.row]
	if r.group < 0 || !ev.pc.marks[c.row].funded {
		return true
	}
	less := ev.pc.commitment(int(c.row))
	if c.rule == V3 && !ev.under(c.fork, less) {
		return false
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
