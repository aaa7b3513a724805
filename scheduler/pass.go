package scheduler

import (
	"cmp"
	"math"
	"slices"

	"tranche/ledger"
)

// cursor walks one project's queue in a pass: urgency, then the member with the
// least usage over member share, then queue_seq.
type cursor struct {
	group  int32
	lanes  []*lane
	pos    []int
	looked int
	tried  int      // of them, with a search of their own
	fell   bool     // has lanes of or-free jobs
	queue  *queue   // nil when it only has such lanes
	people []ratio  // poolCycle.people, when there is more than one lane
	dead   []uint64 // bit per kind that cannot start any more in this cycle
	why    map[int32]*Reason
}

func (cu *cursor) isDead(kind int32) bool { return cu.dead[kind/64]>>(kind%64)&1 != 0 }

// pass lets every project's jobs try in order of standing. money 0 is the
// funded pass; money 1 fills what is left with unfunded jobs and never evicts.
func (pc *poolCycle) pass(money int) {
	// Who asks where it stands wants to know all that would take its place.
	brief := pc.s.Quiet && len(pc.asking) == 0
	if brief && pc.allHopeless(money) {
		return
	}
	tn := newTournament(&pc.fields[money])
	pc.enter(tn, money)
	pc.growReasons(money)
	for g := tn.first(); g >= 0 && !pc.spent(); g = tn.first() {
		cu := pc.cursor[g]
		// Without reasons to give, a project that cannot start anything is not gone through.
		if brief && cu.looked == 0 && !cu.fell && !pc.matters(cu, money) && pc.hopeless(cu.queue, money) {
			tn.remove(g)
			continue
		}
		lane := pc.head(cu)
		if lane < 0 {
			tn.remove(g)
			continue
		}
		e := &cu.lanes[lane].jobs[cu.pos[lane]]
		pc.plan.Steps++
		pc.rank++
		cu.looked++
		cu.tried++
		cu.pos[lane]++
		start, why := pc.try(e, g, money)
		if start != nil {
			pc.started(tn, start, e, g, money)
		} else {
			pc.waits(cu, e, why, money)
		}
		if lane = pc.head(cu); lane < 0 {
			tn.remove(g)
		} else {
			tn.update(g, cu.lanes[lane].jobs[cu.pos[lane]].job.QueueSeq)
		}
	}
	for g := tn.first(); g >= 0; g = tn.first() {
		pc.refuseAll(pc.cursor[g], WhyOutOfWork)
		tn.remove(g)
	}
}

// spent says whether the cycle has looked at, or starts, as much as one may.
func (pc *poolCycle) spent() bool {
	return pc.plan.Steps >= pc.p.MaxSteps || pc.p.MaxStarts > 0 && len(pc.plan.Starts) >= pc.p.MaxStarts
}

// growReasons makes room for a reason per waiting job, which are many and large.
func (pc *poolCycle) growReasons(money int) {
	n := 0
	for _, q := range pc.pi.queues[money] {
		n += min(q.jobs, pc.p.HeadsPerProject)
	}
	if !pc.s.Quiet {
		pc.plan.Reasons = slices.Grow(pc.plan.Reasons, n)
	}
}

// allHopeless says that the pass can start nothing at all.
func (pc *poolCycle) allHopeless(money int) bool {
	if money == 1 && pc.fallen != nil || money == 0 && pc.holder != nil {
		return false
	}
	for _, q := range pc.pi.queues[money] {
		if money == 0 && pc.hasLarge(q) {
			return false
		}
		if q.jobs > 0 && !pc.ix.t.suspended[q.group] && !pc.hopeless(q, money) {
			return false
		}
	}
	return true
}

// hasLarge says whether a queue has jobs that may be promised a start.
func (pc *poolCycle) hasLarge(q *queue) bool {
	if !pc.promises() {
		return false
	}
	for i := range q.kinds {
		if pc.isLarge(&pc.pi.shapeOf[pc.pi.kindOf[q.kinds[i].kind].shape].shape) {
			return true
		}
	}
	return false
}

// matters says whether a project's head is to be tried although it cannot start:
// the holder of the reserved start, or a job that may become it.
func (pc *poolCycle) matters(cu *cursor, money int) bool {
	if money == 1 || cu.queue == nil {
		return false
	}
	if cu.queue.first != nil && pc.holder == cu.queue.first.holder {
		return true
	}
	if !pc.hasLarge(cu.queue) {
		return false
	}
	lane := pc.head(cu)
	return lane >= 0 && pc.isLarge(&cu.lanes[lane].jobs[cu.pos[lane]].job.Shape)
}

// enter gives every project with waiting jobs of this pass a cursor and its
// place in the tournament. Suspended projects and frozen pools only get reasons.
func (pc *poolCycle) enter(tn *tournament, money int) {
	pc.cursor = make([]*cursor, len(pc.ix.t.groups))
	for _, q := range pc.pi.queues[money] {
		switch {
		case q.first != nil && pc.holder == q.first.holder:
			j := q.first.job
			first := &lane{urgency: math.MaxInt8, member: j.Member, person: pc.pi.personOf(j.Project, j.Member), jobs: []entry{*q.first}}
			pc.cursor[q.group] = &cursor{group: q.group, lanes: append([]*lane{first}, q.lanes...), queue: q}
		case q.jobs > 0:
			pc.cursor[q.group] = &cursor{group: q.group, lanes: q.lanes[:len(q.lanes):len(q.lanes)], queue: q}
		}
	}
	if money == 1 {
		pc.enterFallen()
	}
	sl := pc.newSlab()
	for g, cu := range pc.cursor {
		if cu == nil {
			continue
		}
		pc.ready(cu, sl)
		switch {
		case pc.pi.pool.Frozen:
			pc.refuseAll(cu, WhyFrozen)
		case pc.ix.t.suspended[g]:
			pc.refuseAll(cu, WhySuspended)
		default:
			if lane := pc.head(cu); lane >= 0 {
				tn.update(int32(g), cu.lanes[lane].jobs[0].job.QueueSeq)
			}
		}
	}
}

// slab cuts the cursors' positions and bits from one array each.
type slab struct {
	pos  []int
	dead []uint64
}

func (pc *poolCycle) newSlab() *slab {
	lanes, cursors := 0, 0
	for _, cu := range pc.cursor {
		if cu != nil {
			lanes, cursors = lanes+len(cu.lanes), cursors+1
		}
	}
	return &slab{make([]int, lanes), make([]uint64, cursors*pc.words())}
}

func (pc *poolCycle) words() int { return len(pc.pi.kindOf)/64 + 1 }

// ready gives a cursor its positions and, among several lanes, its members'
// standings.
func (pc *poolCycle) ready(cu *cursor, sl *slab) {
	n, w := len(cu.lanes), pc.words()
	cu.pos, sl.pos = sl.pos[:n:n], sl.pos[n:]
	cu.dead, sl.dead = sl.dead[:w:w], sl.dead[w:]
	if n > 1 {
		pc.weighPeople()
		cu.people = pc.people
	}
}

// enterFallen puts the or-free jobs without funds into the second pass.
func (pc *poolCycle) enterFallen() {
	for g, list := range pc.fallen {
		if len(list) == 0 {
			continue
		}
		if pc.cursor[g] == nil {
			pc.cursor[g] = &cursor{group: int32(g)}
		}
		pc.cursor[g].fell = true
		slices.SortFunc(list, func(a, b entry) int {
			return cmp.Or(cmp.Compare(b.job.Contract.Urgency, a.job.Contract.Urgency),
				cmp.Compare(a.job.Member, b.job.Member), bySeq(a.job, b.job))
		})
		for i := 0; i < len(list); {
			first := list[i].job
			end := i
			for end < len(list) && list[end].job.Contract.Urgency == first.Contract.Urgency && list[end].job.Member == first.Member {
				end++
			}
			pc.cursor[g].lanes = append(pc.cursor[g].lanes,
				&lane{urgency: first.Contract.Urgency, member: first.Member, person: pc.pi.personOf(first.Project, first.Member), jobs: list[i:end]})
			i = end
		}
	}
}

func (pc *poolCycle) refuseAll(cu *cursor, code string) {
	for lane := pc.head(cu); lane >= 0 && !pc.s.Quiet; lane = pc.head(cu) {
		pc.rank++
		cu.looked++
		pc.plan.Reasons = append(pc.plan.Reasons, Reason{Job: cu.lanes[lane].jobs[cu.pos[lane]].job.ID, Code: code, Rank: pc.rank})
		cu.pos[lane]++
	}
}

// head is the lane whose first untried job goes next; −1 when the project has
// none left or was looked at often enough. Jobs of a kind that has failed in
// this cycle fail alike and are passed over.
func (pc *poolCycle) head(cu *cursor) int {
	for {
		best := -1
		for i, ln := range cu.lanes {
			if cu.pos[i] < len(ln.jobs) && (best < 0 || cu.laneLess(i, best)) {
				best = i
			}
		}
		if best < 0 || cu.looked >= pc.p.HeadsPerProject {
			return -1
		}
		e := &cu.lanes[best].jobs[cu.pos[best]]
		if e.holder != nil || !cu.isDead(e.kind) {
			return best
		}
		cu.pos[best]++
		cu.looked++
		pc.rank++
		if why := cu.why[e.kind]; why != nil {
			same := *why
			same.Job, same.Rank = e.job.ID, pc.rank
			pc.plan.Reasons = append(pc.plan.Reasons, same)
		}
	}
}

func (cu *cursor) laneLess(a, b int) bool {
	x, y := cu.lanes[a], cu.lanes[b]
	if x.urgency != y.urgency {
		return x.urgency > y.urgency
	}
	if x.member != y.member {
		if c := cu.people[x.person].compare(cu.people[y.person]); c != 0 {
			return c < 0
		}
	}
	return bySeq(x.jobs[cu.pos[a]].job, y.jobs[cu.pos[b]].job) < 0
}

// weighPeople gives every member's standing inside their project, once per
// cycle: funded usage and commitment over member share.
func (pc *poolCycle) weighPeople() {
	if pc.people != nil {
		return
	}
	pc.people = make([]ratio, len(pc.pi.people))
	for i := range pc.people {
		pc.people[i].share = 1
	}
	first, _ := slices.BinarySearchFunc(pc.s.Members, pc.pi.pool.ID, func(m MemberUsage, id ledger.PoolID) int { return cmp.Compare(m.Pool, id) })
	for i := first; i < len(pc.s.Members) && pc.s.Members[i].Pool == pc.pi.pool.ID; i++ {
		m := &pc.s.Members[i]
		if id, ok := pc.pi.people[personKey{m.Project, m.Member}]; ok {
			pc.people[id] = ratio{m.Funded, max(1, m.Share)}
		}
	}
	for i := range pc.pi.rows {
		if pc.marks[i].funded {
			pc.people[pc.pi.rows[i].person].time += pc.commitment(i)
		}
	}
}

// started enters a start into the plan and its commitment into the standings.
func (pc *poolCycle) started(tn *tournament, start *Start, e *entry, g int32, money int) {
	pc.plan.Starts = append(pc.plan.Starts, *start)
	if money == 1 && e.job.Contract.MinMs > 0 {
		pc.plan.Reasons = slices.DeleteFunc(pc.plan.Reasons, func(r Reason) bool { return r.Job == e.job.ID })
	}
	pc.countStart(start, e, g, money)
	if money == 0 {
		pc.countMember(e.job)
	}
	pc.fulfilled(e)
	for _, row := range pc.left {
		if g := pc.pi.rows[row].group; g >= 0 {
			tn.restand(g)
		}
	}
}

// lacksRoom says whether a code is that of a job that has all but a place.
func lacksRoom(code string) bool {
	switch code {
	case WhyProtected, WhyStanding, WhyEvictRate, WhyReserved, WhyMaintenance, WhySlice, WhyHolder:
		return true
	}
	return false
}

// countStart enters what a start is promised into the standings.
func (pc *poolCycle) countStart(start *Start, e *entry, g int32, money int) {
	d := e.job.Rate.MilliGPU * max(pc.p.CommitFloorMs, start.MinMs)
	pc.fields[money].commit(g, d)
	if pc.people != nil {
		pc.people[pc.pi.personOf(e.job.Project, e.job.Member)].time += d
	}
}

// waits notes why a job did not start. Kinds fail as a whole, except that jobs
// without funds that may run free go on to the second pass.
func (pc *poolCycle) waits(cu *cursor, e *entry, why *Reason, money int) {
	if money == 0 && e.job.Contract.OrFree && (why.Code == WhyFunds || why.Code == WhyMaxCharge) {
		if pc.fallen == nil {
			pc.fallen = make([][]entry, len(pc.ix.t.groups))
		}
		pc.fallen[cu.group] = append(pc.fallen[cu.group], *e)
	} else if e.holder == nil && why.Code != WhyMemberCap { // another member may have room
		cu.dead[e.kind/64] |= 1 << (e.kind % 64)
		if !pc.s.Quiet {
			if cu.why == nil {
				cu.why = map[int32]*Reason{}
			}
			cu.why[e.kind] = why
		}
	}
	if money == 0 {
		pc.noteLarge(cu, e, why)
		if len(pc.asking) > 0 && lacksRoom(why.Code) {
			pc.failed = append(pc.failed, failedTry{e, cu.group})
		}
	}
	// One that fell into the second pass has said what it lacks.
	if fell := money == 1 && e.job.Contract.MinMs > 0; !pc.s.Quiet && !fell {
		r := *why
		r.Rank = pc.rank
		r.Path = pc.fields[money].path(pc.pi.pool, cu.group)
		why.Path = r.Path
		pc.plan.Reasons = append(pc.plan.Reasons, r)
	}
}
