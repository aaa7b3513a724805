package scheduler

import (
	"slices"
	"strconv"

	"tranche/ledger"
)

// memos remember what cannot succeed any more in this cycle.
type memos struct {
	never   []int8        // by shape: 0 unknown, 1 the pool could hold it, −1 not even empty
	noRoom  []int8        // by shape: 0 unknown or there was room, 1 no free room
	gone    []int8        // by shape: 0 unknown, 1 place once leavers and unfunded are gone, −1 not even then
	goneAt  []int         // by shape: how many changes of rooms its −1 has followed
	facts   []*roomReason // by shape
	outlook []outlook     // by shape
	noEnd   map[victimKey]string
	usable  map[ledger.GroupID]ledger.Amount
}

// victimKey: whether somebody may be evicted depends on shape (which includes
// the minimum runtime), project and urgency.
type victimKey struct {
	shape   int32
	group   int32
	urgency int8
}

// roomReason counts, once per shape, why the nodes have no room.
type roomReason struct {
	facts []Fact // with the shape's own
	code  string // instead of the search's; "" = as it says
}

func newMemos(pi *poolIndex) memos {
	n := len(pi.shapes)
	bytes := make([]int8, 3*n)
	return memos{
		never: bytes[:n:n], noRoom: bytes[n : 2*n : 2*n], gone: bytes[2*n:], goneAt: make([]int, n), facts: make([]*roomReason, n), outlook: make([]outlook, n),
		noEnd: map[victimKey]string{}, usable: map[ledger.GroupID]ledger.Amount{},
	}
}

// noFree says that a shape has no free room. What is free only shrinks during a
// cycle, so a no is kept.
func (pc *poolCycle) noFree(shape int32) bool {
	if pc.memo.noRoom[shape] == 0 {
		pc.memo.noRoom[shape] = -1
		if pc.count(shape, false) < max(1, pc.pi.shapeOf[shape].shape.Nodes) {
			pc.memo.noRoom[shape] = 1
		}
	}
	return pc.memo.noRoom[shape] > 0
}

// noLeave says that a shape has no place even once all who are leaving and all
// unfunded attempts are gone. Starts that evict make it unknown again.
func (pc *poolCycle) noLeave(shape int32) bool {
	m := &pc.memo
	switch {
	case m.gone[shape] == 0:
		m.gone[shape], m.goneAt[shape] = 1, len(pc.changes)
		if !pc.enoughWith(shape, pc.unfundedTallies()) {
			m.gone[shape] = -1
		}
	case m.gone[shape] < 0 && m.goneAt[shape] < len(pc.changes) && pc.pi.shapeOf[shape].shape.Nodes <= 1:
		// No room had place for the one rank, so only one that has changed can.
		if pc.someWith(shape, pc.changes[m.goneAt[shape]:], pc.unfundedTallies()) {
			m.gone[shape] = 1
		}
		m.goneAt[shape] = len(pc.changes)
	}
	return m.gone[shape] < 0
}

// someWith says whether one of some rooms has place for a rank of a shape once the
// ending and those who give the tallies have left.
func (pc *poolCycle) someWith(shape int32, rooms []int32, tallies []tally) bool {
	a := pc.askFor(&pc.pi.shapeOf[shape], true)
	return slices.ContainsFunc(rooms, func(i int32) bool { return pc.rooms[i].fitsTally(&a, &tallies[i]) })
}

// enoughWith says whether enough rooms have.
func (pc *poolCycle) enoughWith(shape int32, tallies []tally) bool {
	k, n := &pc.pi.shapeOf[shape], int64(0)
	a := pc.askFor(k, true)
	for i := range pc.rooms {
		if pc.rooms[i].fitsTally(&a, &tallies[i]) {
			if n++; n >= max(1, k.shape.Nodes) {
				return true
			}
		}
	}
	return false
}

// count says how many rooms have place for a rank of a shape.
func (pc *poolCycle) count(shape int32, nominated bool) int64 {
	k, n := &pc.pi.shapeOf[shape], int64(0)
	if k.shape.GPUs > pc.widest(nominated) && !k.shape.shared() {
		return 0
	}
	a := pc.askFor(k, nominated)
	for i := range pc.rooms {
		if why, _ := pc.rooms[i].fit(&a); why == FitsOK {
			n++
		}
	}
	return n
}

// widest is the most whole devices any one node could give.
func (pc *poolCycle) widest(nominated bool) int64 {
	most := int64(0)
	for i := range pc.rooms {
		n := pc.rooms[i].free
		if nominated {
			n += pc.rooms[i].leaving
		}
		most = max(most, n)
	}
	return most
}

// try finds a job its place, its victims and its funds, or says what is missing.
func (pc *poolCycle) try(e *entry, g int32, money int) (*Start, *Reason) {
	j := e.job
	minMs := j.Contract.MinMs
	if money == 1 {
		minMs = 0
	}
	if !pc.couldHold(e) {
		return nil, pc.reason(j, WhyNever)
	}
	if money == 0 && e.holder == nil {
		if why := pc.overCap(e); why != nil {
			return nil, why
		}
		if why := pc.shortOfFunds(j); why != nil {
			return nil, why
		}
	}
	// What it holds was drawn for its time; the lots may not all be valid before.
	if e.holder != nil && pc.now < pc.promised.At && !pc.stillFunded(e.holder, pc.now) {
		return nil, pc.holderReason(e)
	}
	pc.plan.Steps += int64(len(pc.rooms)) / 64
	start := pc.newStart(e, minMs, money)
	var chosen *victims
	// What was found out for a shape counts the limits on protected time, which
	// neither the holder nor a job that falls back to run free is bound to.
	free := e.holder != nil || money == 1 && j.Contract.MinMs > 0
	if a := pc.askOf(e, minMs, false); free || pc.memo.noRoom[e.shape] <= 0 {
		start.Placed, start.Judged = pc.place(pc.rooms, &a)
	}
	if start.Placed == nil {
		if !free {
			pc.memo.noRoom[e.shape] = 1
		}
		if money == 1 {
			return nil, pc.roomReason(e, WhyFull)
		}
		var why string
		if chosen, why = pc.nominate(e, g, minMs); chosen == nil {
			if e.holder != nil {
				return nil, pc.holderReason(e)
			}
			return nil, pc.roomReason(e, why)
		}
		start.Placed, start.Judged, start.Nominate = chosen.placed, chosen.judged, true
	}
	if money == 0 && e.holder == nil {
		pieces, why := pc.draw(j, minMs)
		if why != nil {
			chosen.undo(pc)
			return nil, why
		}
		start.Hold = pieces
	}
	if !pc.s.Quiet {
		start.Path = pc.fields[money].path(pc.pi.pool, g)
	}
	chosen.commit(pc, start)
	pc.settle(start)
	return start, nil
}

func (pc *poolCycle) newStart(e *entry, minMs int64, money int) *Start {
	s := &Start{AttemptRef: AttemptRef{e.job.ID, e.job.Attempts + 1}, Project: e.job.Project, Pool: e.job.Pool, Funded: money == 0, MinMs: minMs, Rank: pc.rank}
	if s.Funded {
		s.PastPPM = pc.p.pastPPM()
	}
	if e.holder != nil {
		s.AttemptRef, s.Reserved, s.PastPPM = e.holder.ref(), true, 0
	}
	return s
}

// askOf is what a job wants of a room when it starts now with a minimum runtime.
func (pc *poolCycle) askOf(e *entry, minMs int64, nominated bool) ask {
	a := ask{project: e.job.Project, shape: &e.job.Shape, nominated: nominated, holder: e.holder != nil}
	if minMs > 0 {
		a.until = pc.now.Add(minMs)
	}
	return a
}

// askFor is what a shape wants of a room when it starts now.
func (pc *poolCycle) askFor(k *shapeKey, nominated bool) ask {
	a := ask{project: k.project, shape: &k.shape, nominated: nominated}
	if k.minMs > 0 {
		a.until = pc.now.Add(k.minMs)
	}
	return a
}

// settle takes the room a start was given.
func (pc *poolCycle) settle(s *Start) {
	pc.own()
	pc.changed(s.Placed)
	phase := Starting
	if s.Nominate {
		phase = Nominated
	}
	for i := range s.Placed {
		pc.rooms[pc.pi.roomOf[s.Placed[i].Node]].put(&s.Placed[i], s.Project, phase, 1)
	}
	// A no about free room stays a no, a yes may not; so it is with the room that
	// leavers and unfunded give, unless more leave now: then the rooms that have
	// changed are asked again, all of them for a gang.
	for i := range pc.memo.noRoom {
		pc.memo.noRoom[i] = max(0, pc.memo.noRoom[i])
		if pc.memo.gone[i] > 0 || len(s.Evict) > 0 && pc.pi.shapeOf[i].shape.Nodes > 1 {
			pc.memo.gone[i] = 0
		}
	}
	if pc.loose != nil {
		pc.loose.version++
	}
}

// couldHold says whether the pool could hold the shape with nobody in it.
func (pc *poolCycle) couldHold(e *entry) bool {
	if pc.memo.never[e.shape] == 0 {
		pc.memo.never[e.shape] = -1
		sh, nodes := &e.job.Shape, int64(0)
		for i := range pc.rooms {
			if rm := &pc.rooms[i]; rm.node.Offers(int64(len(rm.slots)), sh) {
				nodes++
			}
		}
		if nodes >= max(1, sh.Nodes) {
			pc.memo.never[e.shape] = 1
		}
	}
	return pc.memo.never[e.shape] > 0
}

// shortOfFunds is the quick look before any placing: what is usable now would
// not do, and no later lot helps.
func (pc *poolCycle) shortOfFunds(j *Job) *Reason {
	need := j.Rate.Cum(j.Contract.MinMs)
	if left := maxChargeLeft(j.Contract.MaxCharge, j.Charged); left >= 0 && need > left {
		r := fundsReason(j.ID, maxChargeRefusal(need, left))
		r.Code = WhyMaxCharge
		return &r
	}
	f := pc.fundsOf(j.Pool, j.Project)
	if f == nil {
		r := pc.noFunds(j, need)
		return &r
	}
	usable, known := pc.memo.usable[j.Project]
	if !known {
		usable, _ = f.Usable(pc.now)
		pc.memo.usable[j.Project] = usable
	}
	if need <= usable {
		return nil
	}
	if _, ref := copyFunds(f).Draw(j.Rate, pc.now, 0, j.Contract.MinMs); ref != nil {
		r := fundsReason(j.ID, ref)
		return &r
	}
	return nil
}

// draw takes the hold for the whole protected span.
func (pc *poolCycle) draw(j *Job, minMs int64) ([]ledger.Piece, *Reason) {
	f := pc.fundsOf(j.Pool, j.Project)
	before := f.Limits
	pieces, ref := f.Draw(j.Rate, pc.now, 0, minMs)
	if ref != nil {
		r := fundsReason(j.ID, ref)
		return nil, &r
	}
	if len(before) > 0 {
		pc.spread(f, before)
		clear(pc.memo.usable)
	}
	delete(pc.memo.usable, j.Project)
	return pieces, nil
}

// noFunds is the reason of a project that has no lot in the pool.
func (pc *poolCycle) noFunds(j *Job, need ledger.Amount) Reason {
	path := ""
	if g := pc.ix.t.pos(j.Project); g >= 0 {
		path = pc.ix.t.groups[g].Path
	}
	return fundsReason(j.ID, &ledger.Refusal{Facts: map[string]string{
		"needed": need.Exact(), "available": ledger.Amount(0).Exact(), "short": need.Exact(), "limited_by": path,
	}})
}

func (pc *poolCycle) reason(j *Job, code string, facts ...Fact) *Reason {
	r := &Reason{Job: j.ID, Code: code}
	if !pc.s.Quiet {
		r.Facts = append(shapeFacts(&j.Shape), facts...)
	}
	return r
}

// roomFacts counts, once per shape, why the nodes have no room and estimates
// when they will.
func (pc *poolCycle) roomFacts(e *entry) *roomReason {
	if rr := pc.memo.facts[e.shape]; rr != nil {
		return rr
	}
	rr := &roomReason{facts: shapeFacts(&e.job.Shape)}
	pc.memo.facts[e.shape] = rr
	sh := &e.job.Shape
	a := pc.askOf(e, e.job.Contract.MinMs, false)
	dims := [...]string{FitsOK, FitsDevices, FitsSharing, FitsCPU, FitsRAM, FitsHBM, FitsNet, FitsStorage, FitsIOC, FitsHealth, FitsLimit}
	var counts [len(dims)]int
	for i := range pc.rooms {
		why, _ := pc.rooms[i].fit(&a)
		counts[slices.Index(dims[:], why)]++
	}
	rr.facts = append(rr.facts, Fact{FactFree, strconv.Itoa(counts[0])}, Fact{FactNodes, strconv.Itoa(len(pc.rooms))})
	for k := 1; k < len(dims); k++ {
		if counts[k] > 0 {
			rr.facts = append(rr.facts, Fact{FactRejected + dims[k], strconv.Itoa(counts[k])})
		}
	}
	if lacks := max(1, sh.Nodes)*sh.GPUs - pc.freeGPUs(); lacks > 0 {
		rr.facts = append(rr.facts, Fact{FactLacks, strconv.FormatInt(lacks, 10)})
	}
	if at := pc.roomAt(sh); at > 0 {
		rr.facts = append(rr.facts, Fact{FactUntil, strconv.FormatInt(int64(at), 10)})
	}
	pc.limited(e, rr, int64(counts[0]), int64(counts[len(dims)-1]))
	return rr
}

// freeGPUs counts the whole devices on healthy nodes that nobody has.
func (pc *poolCycle) freeGPUs() int64 {
	var n int64
	for i := range pc.rooms {
		if pc.rooms[i].health == Healthy {
			n += pc.rooms[i].free
		}
	}
	return n
}

func (pc *poolCycle) roomReason(e *entry, code string) *Reason {
	r := &Reason{Job: e.job.ID, Code: code}
	if pc.s.Quiet {
		return r
	}
	rr := pc.roomFacts(e)
	r.Facts = rr.facts
	if rr.code != "" {
		r.Code = rr.code
	}
	return r
}

// limited says that nodes have room for a shape but are kept for something: the
// reserved start, maintenance or a slice.
func (pc *poolCycle) limited(e *entry, rr *roomReason, free, kept int64) {
	need := max(1, e.job.Shape.Nodes)
	if kept+free < need {
		free, kept = pc.emptied(e)
	}
	if kept == 0 || free >= need || kept+free < need {
		return
	}
	if rr.code = pc.keptBy(e); rr.code == WhyReserved {
		rr.facts = append(rr.facts, Fact{FactHolder, strconv.FormatInt(int64(pc.holder.Job.ID), 10)}, Fact{FactKept, instantText(pc.promised.At)})
	}
}

// keptBy says what shuts the first room that a job's protection would be too long
// for: the reserved start, maintenance, or else a slice.
func (pc *poolCycle) keptBy(e *entry) string {
	a := pc.askOf(e, e.job.Contract.MinMs, true)
	for i := range pc.rooms {
		switch rm := &pc.rooms[i]; {
		case rm.health != Healthy:
		case rm.kept != 0 && !a.holder && a.until > rm.kept && pc.holder != nil:
			return WhyReserved
		case rm.maint != 0 && a.until > rm.maint:
			return WhyMaintenance
		}
	}
	return WhySlice
}

// emptied counts the rooms that have place for a rank once the ending and the
// unfunded have left, and those that then still lack only time. Where no room is
// kept for anything, both are 0.
func (pc *poolCycle) emptied(e *entry) (free, kept int64) {
	a := pc.askOf(e, e.job.Contract.MinMs, true)
	whenever := a
	whenever.anytime = true
	gone := pc.unfundedTallies()
	for i := range pc.rooms {
		if rm := &pc.rooms[i]; (!rm.open(&a) || rm.booked) && rm.fitsTally(&whenever, &gone[i]) && !rm.fitsTally(&a, &gone[i]) {
			kept++
		}
	}
	for i := range pc.rooms {
		if kept > 0 && pc.rooms[i].fitsTally(&a, &gone[i]) {
			free++
		}
	}
	return free, kept
}
