package scheduler

import (
	"cmp"
	"slices"
	"strconv"
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
func (pc *poolCycle) leave(i int32) {
	l := pc.pi.rows[i].live
	pc.pi.occupy(pc.rooms, l, l.Phase, -1)
	pc.pi.occupy(pc.rooms, l, Ending, 1)
}

func (pc *poolCycle) unleave(i int32) {
	l := pc.pi.rows[i].live
	pc.pi.occupy(pc.rooms, l, Ending, -1)
	pc.pi.occupy(pc.rooms, l, l.Phase, 1)
}

// eviction is one search for victims.
type eviction struct {
	pc      *poolCycle
	job     *Job
	group   int32
	debug   bool
	need    int64   // milli-GPUs of the job
	promise GPUTime // what its start adds to its side: commitment and margin
	all     []candidate
	removed []GPUTime // commitments of chosen victims, by group
	pairs   []fork    // forks of the chosen V3 victims
	fits    int64     // rooms with place for a rank
	can     []bool    // by room
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
	if why, failed := pc.memo.noEnd[key]; failed {
		return nil, why
	}
	v, why := pc.seek(e, g, minMs)
	if v == nil {
		pc.memo.noEnd[key] = why
	}
	return v, why
}

func (pc *poolCycle) seek(e *entry, g int32, minMs int64) (*victims, string) {
	j := e.job
	ev := &eviction{
		pc: pc, job: j, group: g, need: j.Rate.MilliGPU,
		debug:   minMs <= pc.p.DebugMinMs && max(1, j.Shape.Nodes)*j.Shape.GPUs <= pc.p.DebugGPUs,
		removed: make([]GPUTime, len(pc.ix.t.groups)), can: make([]bool, len(pc.rooms)),
	}
	ev.promise = j.Rate.MilliGPU * max(pc.p.CommitFloorMs, minMs)
	ev.promise += ev.promise / 1_000_000 * pc.p.MarginPPM
	for i := range pc.rooms {
		ev.look(int32(i))
	}
	v := &victims{}
	if !ev.enough() {
		why := ev.gather()
		if why != "" {
			return nil, why
		}
		if v = ev.choose(); v == nil {
			return nil, WhyStanding
		}
		if v.tokens > 0 && pc.p.EvictPerMinute > 0 && pc.plan.Bucket.MilliTokens < 1000 {
			v.undo(pc)
			return nil, WhyEvictRate
		}
	}
	v.placed = pc.place(pc.rooms, j.Project, &j.Shape, true)
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
	why, _ := ev.pc.rooms[room].fit(ev.job.Project, &ev.job.Shape, true)
	if ok := why == FitsOK; ok != ev.can[room] {
		ev.can[room] = ok
		if ok {
			ev.fits++
		} else {
			ev.fits--
		}
	}
}

func (ev *eviction) lookAround(row int32) {
	l := ev.pc.pi.rows[row].live
	for i := range l.Placed {
		if n, ok := ev.pc.pi.roomOf[l.Placed[i].Node]; ok {
			ev.look(n)
		}
	}
}

// gather lists who may be evicted for the job and checks that all of them
// together would make room. It says why not.
func (ev *eviction) gather() string {
	unprotected := false
	for i := range ev.pc.pi.rows {
		c, loose := ev.candidate(int32(i))
		unprotected = unprotected || loose
		if c.rule != "" {
			ev.all = append(ev.all, c)
		}
	}
	for _, c := range ev.all {
		ev.pc.leave(c.row)
		ev.lookAround(c.row)
	}
	enough := ev.enough()
	for _, c := range ev.all {
		ev.pc.unleave(c.row)
		ev.lookAround(c.row)
	}
	switch {
	case enough:
		return ""
	case unprotected:
		return WhyStanding
	}
	return WhyProtected
}

// candidate says under which rule an attempt may be evicted for the job; loose
// means that it is not protected, whether or not a rule applies.
func (ev *eviction) candidate(i int32) (c candidate, loose bool) {
	pc, r, m := ev.pc, &ev.pc.pi.rows[i], ev.pc.marks[i]
	l := r.live
	ev.pc.plan.Steps++
	if m.stopping || l.Phase != Running && (m.funded || l.Phase != Starting) || m.funded && pc.now < l.ProtectedUntil {
		return c, false
	}
	switch {
	case !m.funded:
		c.rule = V1
	case l.Job.Project == ev.job.Project:
		if ev.job.Contract.Urgency > l.Job.Contract.Urgency {
			c.rule = V2
		}
	case r.group >= 0:
		if mine, theirs, ok := pc.ix.t.fork(ev.group, r.group); ok && ev.under(fork{mine, theirs}, pc.commitment(int(i))) {
			c.rule = V3
			c.served = pc.fields[0].ratio(theirs)
		}
	}
	if c.rule == "" {
		return c, true
	}
	if c.rule != V3 && r.group >= 0 {
		c.served = pc.fieldOf(m.funded).ratio(r.group)
	}
	c.row, c.grace, c.gives = i, effectiveGrace(pc.p, l, m.funded), min(r.milli, ev.need)
	c.lost = r.milli * max(0, pc.now.MillisSince(lastSaved(l)))
	return c, true
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
	slices.SortFunc(ev.all, ev.before)
	var chosen []candidate
	for _, c := range ev.all {
		if ev.enough() {
			break
		}
		if ev.admit(&c) {
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

// before is the order of victims: unfunded first, for debug jobs those that
// leave sooner, most over-served, fewest jobs, least progress lost, youngest, id.
func (ev *eviction) before(a, b candidate) int {
	x, y := ev.pc.pi.rows[a.row].live, ev.pc.pi.rows[b.row].live
	order := cmp.Compare(rank(a.rule), rank(b.rule))
	if ev.debug {
		order = cmp.Or(order, cmp.Compare(a.grace, b.grace))
	}
	return cmp.Or(order, b.served.compare(a.served), cmp.Compare(b.gives, a.gives), cmp.Compare(a.lost, b.lost),
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
		if c.rule != V2 {
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
	if c.rule == V3 {
		mine, theirs, _ = pc.ix.t.fork(ev.group, r.group)
	}
	out.Standing = pc.fieldOf(pc.marks[c.row].funded).standing(pc.pi.pool, theirs)
	if pc.marks[c.row].funded {
		out.Standing.Commitment -= ev.removed[theirs]
	}
	out.Against = pc.fields[0].standing(pc.pi.pool, mine)
	out.Against.Commitment += ev.promise
}

// roomAt estimates when a shape's nodes will have enough devices that nobody is
// protected on: the earliest instant, or 0 when that is not foreseeable.
func (pc *poolCycle) roomAt(sh *Shape) Instant {
	free := pc.devicesFreeAt()
	var nodes []Instant
	for i := range pc.rooms {
		at := free[i]
		if pc.rooms[i].node.Health != Healthy || int64(len(at)) < sh.GPUs {
			continue
		}
		slices.Sort(at)
		if sh.GPUs == 0 {
			nodes = append(nodes, pc.now)
		} else {
			nodes = append(nodes, at[sh.GPUs-1])
		}
	}
	want := int(max(1, sh.Nodes))
	if len(nodes) < want {
		return 0
	}
	slices.Sort(nodes)
	if at := nodes[want-1]; at > pc.now {
		return at
	}
	return 0
}

// devicesFreeAt gives, by room, when each alive device is free of protection.
func (pc *poolCycle) devicesFreeAt() [][]Instant {
	busy := make([]map[int32]Instant, len(pc.rooms))
	hold := func(placed []Placed, until Instant) {
		for k := range placed {
			n, ok := pc.pi.roomOf[placed[k].Node]
			if !ok {
				continue
			}
			if busy[n] == nil {
				busy[n] = map[int32]Instant{}
			}
			for _, d := range placed[k].Devices {
				busy[n][d] = max(busy[n][d], until)
			}
		}
	}
	for i := range pc.plan.Starts {
		hold(pc.plan.Starts[i].Placed, pc.now.Add(pc.plan.Starts[i].MinMs))
	}
	for i := range pc.pi.rows {
		l := pc.pi.rows[i].live
		until := pc.now
		if pc.marks[i].funded && !pc.marks[i].stopping {
			until = max(pc.now, l.ProtectedUntil)
			if l.Started == 0 {
				until = pc.now.Add(l.Job.Contract.MinMs)
			}
		}
		hold(l.Placed, until)
	}
	out := make([][]Instant, len(pc.rooms))
	for n := range pc.rooms {
		for _, d := range pc.rooms[n].node.Devices {
			if !d.Dead {
				out[n] = append(out[n], max(pc.now, busy[n][d.Index]))
			}
		}
	}
	return out
}

func shapeFacts(sh *Shape) []Fact {
	return []Fact{{FactGPUs, strconv.FormatInt(sh.GPUs, 10)}, {FactWant, strconv.FormatInt(max(1, sh.Nodes), 10)}}
}
