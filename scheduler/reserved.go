package scheduler

import (
	"cmp"
	"slices"
	"strconv"

	"tranche/ledger"
)

// The reserved start bounds the wait of large jobs. One job per pool is promised
// a set of nodes from the instant T* at which every protection there is over;
// until then those nodes take only what is unprotected at T*. The holder is an
// attempt in phase Reserved: it has its hold, but no devices.

// putHolder gives an attempt in phase Reserved its place: the first goes at the
// head of its project's queue. There is one per pool; should a snapshot have
// more, the others are told to wait again.
func (pi *poolIndex) putHolder(l *Live, g int32) {
	i, _ := slices.BinarySearchFunc(pi.holders, l, byAttempt)
	pi.holders = slices.Insert(pi.holders, i, l)
	pi.seatHolder(l, g)
}

func byAttempt(a, b *Live) int {
	return cmp.Or(cmp.Compare(a.Job.ID, b.Job.ID), cmp.Compare(a.N, b.N))
}

func (pi *poolIndex) dropHolder(l *Live, g int32) {
	pi.holders = slices.DeleteFunc(pi.holders, func(h *Live) bool { return h == l })
	if g >= 0 {
		pi.queueOf(&l.Job, g).first = nil
	}
}

func (pi *poolIndex) seatHolder(l *Live, g int32) {
	if g < 0 {
		return
	}
	e := &entry{job: &l.Job, shape: pi.shapeFor(&l.Job), holder: l}
	e.kind = pi.kindFor(&l.Job, e.shape)
	pi.personOf(l.Job.Project, l.Job.Member) // numbered before a cycle counts people
	pi.queueOf(&l.Job, g).first = e
}

// limits gives the rooms what planned maintenance allows, and what the reserved
// start keeps, before anything is placed.
func (pc *poolCycle) limits() {
	for i := 0; pc.pi.maint > 0 && i < len(pc.rooms); i++ {
		n := pc.rooms[i].node
		if w := maintenance(n); !w.none() {
			pc.block(int32(i), w)
		}
		switch {
		case n.MaintFrom == 0 || n.MaintUntil != 0 && pc.now >= n.MaintUntil:
		case pc.now < n.MaintFrom:
			pc.own()
			pc.rooms[i].maint = n.MaintFrom
		case n.Health == Healthy:
			pc.own()
			pc.rooms[i].health, pc.maintained = Draining, true
		}
	}
}

// keep renews the promise: the same nodes, T* as their occupants' protections
// now stand, a node that fell away replaced. A promise that cannot be kept any
// more ends, and its job waits again.
func (pc *poolCycle) keep() {
	defer func() { pc.occ = nil }() // what starts in this cycle is to be counted later
	for i, l := range pc.pi.holders {
		g := pc.ix.t.pos(l.Job.Project)
		if i > 0 || g < 0 || pc.ix.t.suspended[g] || l.Reserved == nil {
			pc.unreserve(l)
			continue
		}
		if pc.pi.pool.Frozen {
			pc.holder = l
			continue
		}
		res, lost, ok := pc.replan(l)
		if !ok || !pc.stillFunded(l, res.At) {
			pc.unreserve(l)
			continue
		}
		pc.holder, pc.promised = l, res
		if len(lost) > 0 || res.At != l.Reserved.At {
			pc.plan.Moves = append(pc.plan.Moves, ReserveMove{l.ref(), l.Attempt, res, lost})
		}
		pc.own()
		for _, id := range res.Nodes {
			pc.rooms[pc.pi.roomOf[id]].kept = res.At
		}
	}
}

func (pc *poolCycle) unreserve(l *Live) {
	pc.plan.Stops = append(pc.plan.Stops, Stop{l.ref(), l.Attempt, Unreserved})
}

// stillFunded says whether lots cover the protected span from T* on, with what
// the hold has set aside.
func (pc *poolCycle) stillFunded(l *Live, at Instant) bool {
	f := pc.fundsOf(l.Job.Pool, l.Job.Project)
	if f == nil {
		return false
	}
	f = copyFunds(f)
	f.GiveBack(l.Hold)
	_, ref := f.Draw(l.Job.Rate, max(at, pc.now), 0, l.Job.Contract.MinMs)
	return ref == nil
}

// replan looks at the holder's nodes again. ok is false when one fell away and
// nothing can replace it.
func (pc *poolCycle) replan(l *Live) (res Reservation, lost []ledger.NodeID, ok bool) {
	res = *l.Reserved
	free, minMs := pc.rankFreeAt(&l.Job), l.Job.Contract.MinMs
	stay, lost := pc.standing(res.Nodes, free)
	if len(lost) == 0 {
		// Maintenance planned since then must not put the promise off beyond its
		// bound while other nodes could keep it.
		if res.At = pc.together(stay, free, minMs); res.At <= res.Since.Add(pc.p.CapMs) || !pc.avoid(stay, free, minMs) {
			return res, nil, res.At != never
		}
		was := res
		if res, lost, ok = pc.replace(was, free, minMs); !ok || res.At >= was.At {
			return was, nil, was.At != never
		}
		return res, lost, true
	}
	return pc.replace(res, free, minMs)
}

// standing tells the nodes that can still hold a rank from those that fell away.
func (pc *poolCycle) standing(nodes []ledger.NodeID, free []Instant) (stay []int32, lost []ledger.NodeID) {
	for _, id := range nodes {
		if n, known := pc.pi.roomOf[id]; known && free[n] != never {
			stay = append(stay, n)
		} else {
			lost = append(lost, id)
		}
	}
	return stay, lost
}

// avoid strikes out of free the rooms whose maintenance or slices come in the way
// once all are free of protection, and says whether there are any.
func (pc *poolCycle) avoid(rooms []int32, free []Instant, minMs int64) bool {
	at, found := pc.now, false
	for _, i := range rooms {
		at = max(at, free[i])
	}
	for _, i := range rooms {
		if pc.crosses(i, at, minMs) {
			free[i], found = never, true
		}
	}
	return found
}

// replace gives a promise other nodes for those that fell away; its bound runs
// anew. It is not ok when there are none, or none that are ever free together.
func (pc *poolCycle) replace(res Reservation, free []Instant, minMs int64) (Reservation, []ledger.NodeID, bool) {
	stay, lost := pc.standing(res.Nodes, free)
	from := pc.now
	for _, i := range stay {
		from = max(from, free[i])
	}
	more := pc.replacements(res.Domain, stay, pc.clearFrom(from, free, minMs), len(lost))
	if more == nil {
		return res, lost, false
	}
	stay = append(stay, more...)
	slices.Sort(stay)
	res.Since, res.Domain, res.Nodes = pc.now, pc.commonDomain(stay), pc.nodesOf(stay)
	res.At = pc.together(stay, free, minMs)
	return res, lost, res.At != never
}

// clearFrom gives, by room, when it is free of protection, and of maintenance and
// slices for a minimum runtime, at an instant or later.
func (pc *poolCycle) clearFrom(from Instant, free []Instant, minMs int64) []Instant {
	out := slices.Clone(free)
	for i := range out {
		if at := max(from, out[i]); out[i] != never && pc.crosses(int32(i), at, minMs) {
			out[i] = pc.clear(int32(i), at, minMs)
		}
	}
	return out
}

// replacements are so many rooms more, from the smallest domain around the old
// one that has them, soonest free first.
func (pc *poolCycle) replacements(domain string, stay []int32, free []Instant, n int) []int32 {
	for {
		var more []int32
		for i := range pc.rooms {
			if free[i] != never && inDomain(pc.rooms[i].node.Topology, domain) && !slices.Contains(stay, int32(i)) {
				more = append(more, int32(i))
			}
		}
		if len(more) >= n {
			slices.SortStableFunc(more, func(a, b int32) int { return cmp.Compare(free[a], free[b]) })
			return more[:n]
		}
		if domain == "" {
			return nil
		}
		domain = above(domain)
	}
}

// firstTry takes the holder before anybody else once its time has come: a place
// that is free, else its own nodes with V4.
func (pc *poolCycle) firstTry() {
	l := pc.holder
	if l == nil || pc.pi.pool.Frozen || pc.now < pc.promised.At {
		return
	}
	g := pc.ix.t.pos(l.Job.Project)
	e := pc.pi.queueOf(&l.Job, g).first
	minMs := l.Job.Contract.MinMs
	pc.rank++
	start := pc.newStart(e, minMs, 0)
	var chosen *victims
	a := pc.askOf(e, minMs, false)
	if start.Placed, start.Judged = pc.place(pc.rooms, &a); start.Placed == nil {
		// A place that V1 to V3 give breaks no more promises than V4 would.
		if chosen, _ = pc.seek(e, g, minMs); chosen == nil {
			chosen = pc.claimNodes(e, g)
		}
		if chosen == nil {
			pc.rank--
			return
		}
		start.Placed, start.Judged, start.Nominate = chosen.placed, chosen.judged, true
	}
	if !pc.s.Quiet {
		start.Path = pc.fields[0].path(pc.pi.pool, g)
	}
	chosen.commit(pc, start)
	pc.settle(start)
	pc.plan.Starts = append(pc.plan.Starts, *start)
	pc.weighPeople()
	pc.countStart(start, e, g, 0)
	pc.countMember(e.job)
	pc.fulfilled(e)
}

// claimNodes empties the holder's own nodes: whoever is past protection there
// leaves under V4, the unfunded under V1. It gives nil while somebody there is
// protected, and when the policy leaves the holder to V1 to V3.
func (pc *poolCycle) claimNodes(e *entry, g int32) *victims {
	if !pc.p.HolderEvicts {
		return nil
	}
	ev := pc.newEviction(e, g, e.job.Contract.MinMs)
	ev.restrict(pc.promised.Nodes)
	v := &victims{}
	if !ev.enough() && ev.hopes() {
		v = ev.choose()
	}
	if v == nil || len(v.evict) == 0 && !ev.enough() {
		return nil
	}
	var own []room
	for _, id := range pc.promised.Nodes {
		own = append(own, pc.rooms[pc.pi.roomOf[id]])
	}
	if v.placed, v.judged = pc.place(own, &ev.ask); v.placed == nil {
		v.undo(pc)
		return nil
	}
	return v
}

// fulfilled ends the promise with its start: the nodes are kept no longer.
func (pc *poolCycle) fulfilled(e *entry) {
	if e.holder == nil {
		return
	}
	pc.holder, pc.served = nil, true
	for i := range pc.rooms {
		if pc.rooms[i].kept != 0 {
			pc.rooms[i].kept = 0
			pc.changes = append(pc.changes, int32(i))
		}
	}
}

// holderReason says what the holder waits for.
func (pc *poolCycle) holderReason(e *entry) *Reason {
	r := &Reason{Job: e.job.ID, Code: WhyHolder}
	if pc.s.Quiet {
		return r
	}
	r.Facts = append(shapeFacts(&e.job.Shape), Fact{FactKept, instantText(pc.promised.At)})
	if latest := pc.latest(); latest != 0 {
		r.Facts = append(r.Facts, Fact{FactLatest, instantText(latest)})
	}
	return r
}

func instantText(at Instant) string { return strconv.FormatInt(int64(at), 10) }

// latest is when the holder starts at the latest: T*, the longest grace that one
// who leaves for it may use, and a cycle. 0 = no bound.
func (pc *poolCycle) latest() Instant {
	if pc.holder == nil || !pc.p.HolderEvicts {
		return 0
	}
	return max(pc.promised.At, pc.now).Add(pc.p.GraceCapMs + cycleMs)
}

// cycleMs is the longest time between two cycles.
const cycleMs = 1000

// isLarge says whether a job needs so much of the pool that it may be promised a
// start.
func (pc *poolCycle) isLarge(sh *Shape) bool {
	if pc.alive == 0 {
		for i := range pc.rooms {
			if h := pc.rooms[i].node.Health; h != Lost && h != Faulted {
				for _, d := range pc.rooms[i].node.Devices {
					if !d.Dead {
						pc.alive++
					}
				}
			}
		}
		pc.alive = max(1, pc.alive)
	}
	return sh.GPUs > 0 && max(1, sh.Nodes)*sh.GPUs >= (pc.alive*pc.p.LargeMinPPM+999_999)/1_000_000
}

// promises says whether the pool may promise a start at all.
func (pc *poolCycle) promises() bool {
	return pc.p.ReservedStarts && !pc.pi.pool.Frozen && !pc.served
}

// noteLarge remembers, in the order of the tournament, large jobs at the head of
// their project that found no capacity.
func (pc *poolCycle) noteLarge(cu *cursor, e *entry, why *Reason) {
	if cu.tried != 1 || e.holder != nil || !pc.promises() || !pc.isLarge(&e.job.Shape) {
		return
	}
	if lacksRoom(why.Code) {
		pc.large = append(pc.large, e)
		pc.plan.Tried = append(pc.plan.Tried, e.job.ID)
	}
}

// claim promises a start to the first large job that is owed it, when nobody
// holds the pool's.
func (pc *poolCycle) claim() {
	view := ReserveView{Pool: pc.pi.pool.ID}
	for _, e := range pc.large {
		if pc.holder == nil && pc.entitled(e) && pc.reserveFor(e, &view) {
			continue
		}
		if len(view.Queue) < mostQueue {
			view.Queue = append(view.Queue, e.job.ID)
		}
	}
	if l := pc.holder; l != nil {
		ref := l.ref()
		view.Holder, view.At, view.Latest = &ref, pc.promised.At, pc.latest()
		if view.Latest == 0 {
			view.NoBound = NoBoundSwitch
		}
	}
	if !pc.s.Quiet && (view.Holder != nil || len(view.Queue) > 0) {
		pc.plan.Reserved = append(pc.plan.Reserved, view)
	}
}

// mostQueue bounds the queue for the reserved start that people see.
const mostQueue = 10

// Why a pool's reserved start has no bound.
const (
	NoBoundSwitch   = "v4-off"      // the policy does not let the holder evict
	NoBoundStarting = "starting"    // who is to start on the nodes first may be protected beyond the cap
	NoBoundNodes    = "nodes"       // not enough nodes that could be kept
	NoBoundFunds    = "funds"       // no funds for the protected span at T*
	NoBoundFirst    = "first-tries" // it has not failed twice yet, or its group has had its share
)

// entitled says whether a job failed for capacity in the last cycle too and its
// groups have had at most what their siblings had on average, at every level.
func (pc *poolCycle) entitled(e *entry) bool {
	if _, again := slices.BinarySearch(pc.s.Tried, e.job.ID); !again {
		return false
	}
	f, t := &pc.fields[0], pc.ix.t
	for at := t.pos(e.job.Project); at >= 0 && t.parent[at] >= 0; at = t.parent[at] {
		mean := ratio{}
		for _, o := range t.children[t.parent[at]] {
			if f.share[o] > 0 {
				mean.time += f.usage[o] + f.commitment[o]
				mean.share += f.share[o]
			}
		}
		if f.ratio(at).compare(mean) > 0 {
			return false
		}
	}
	return true
}

// reserveFor makes a job the holder, or says in the view why it cannot be.
func (pc *poolCycle) reserveFor(e *entry, view *ReserveView) bool {
	j := e.job
	res, why := pc.domain(j)
	if why != "" {
		view.NoBound = cmp.Or(view.NoBound, why)
		return false
	}
	f := pc.fundsOf(j.Pool, j.Project)
	if f == nil {
		return false
	}
	before := f.Limits
	pieces, ref := f.Draw(j.Rate, res.At, 0, j.Contract.MinMs)
	if ref != nil {
		view.NoBound = cmp.Or(view.NoBound, NoBoundFunds)
		return false
	}
	pc.spread(f, before)
	clear(pc.memo.usable)
	g := pc.ix.t.pos(j.Project)
	r := Reserve{AttemptRef: AttemptRef{j.ID, j.Attempts + 1}, Project: j.Project, Pool: j.Pool, MinMs: j.Contract.MinMs, Hold: pieces, Reservation: res, PastPPM: pc.p.pastPPM()}
	if !pc.s.Quiet {
		r.Path = pc.fields[0].path(pc.pi.pool, g)
	}
	pc.holder, pc.promised = &Live{Job: *j, N: j.Attempts + 1}, res
	for i := range pc.plan.Reasons {
		if w := &pc.plan.Reasons[i]; w.Job == j.ID {
			told := pc.holderReason(e)
			w.Code, w.Facts, r.Rank = told.Code, told.Facts, w.Rank
		}
	}
	pc.plan.Reserves = append(pc.plan.Reserves, r)
	return true
}
