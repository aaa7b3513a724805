package scheduler

import (
	"math"
	"math/bits"
)

// loose is who is not protected in a pool: the unfunded, and the funded past
// protection by project. Attempts told to stop in this cycle stay in the lists.
type loose struct {
	unfunded []int32
	past     []int32      // funded, past protection
	has      []bool       // by group: has such
	funded   [][]int32    // past by group; nil until somebody searches
	groups   []int32      // of funded, ascending
	least    []GPUTime    // by group: least commitment of a loose funded attempt in it or below; 0 = there is none
	urgency  []int8       // by group: the least among its loose funded attempts
	reach    []GPUTime    // by group: what a start may at most add and still evict under V3; see reachOf
	known    []int32      // by group: version of reach
	version  int32        // moves with every start of the cycle
	devices  []int64      // by room: devices of all loose attempts, at most
	free     []tally      // by room: what its unfunded would give
	seen     int          // changes of rooms that free knows of
	byRoom   [2][][]int32 // the unfunded, and the funded past protection
}

// looseRows lists the unprotected, once per cycle. Cost: O(rows).
func (pc *poolCycle) looseRows() *loose {
	if pc.loose != nil {
		return pc.loose
	}
	n := len(pc.ix.t.groups)
	lo := &loose{
		unfunded: make([]int32, 0, 16), past: pc.pi.past[:0], has: make([]bool, n), least: make([]GPUTime, n), urgency: make([]int8, n),
		reach: make([]GPUTime, n), known: make([]int32, n), version: 1,
	}
	pc.loose = lo
	for i := range pc.pi.rows {
		r, m := &pc.pi.rows[i], pc.marks[i]
		switch {
		case m.stopping || r.phase != Running && (m.funded || r.phase != Starting):
		case !m.funded:
			lo.unfunded = append(lo.unfunded, int32(i))
		case pc.now >= r.commit && r.group >= 0:
			g := r.group
			if !lo.has[g] {
				lo.has[g], lo.urgency[g] = true, math.MaxInt8
			}
			lo.past = append(lo.past, int32(i))
			lo.urgency[g] = min(lo.urgency[g], r.live.Job.Contract.Urgency)
			pc.noteLeast(g, pc.commitment(i))
		}
	}
	pc.pi.past = lo.past
	return lo
}

// byGroup sorts the funded ones by project, once somebody searches.
func (pc *poolCycle) byGroup() *loose {
	lo := pc.looseRows()
	if lo.funded != nil {
		return lo
	}
	lo.devices = make([]int64, len(pc.rooms))
	for money, list := range [2][]int32{lo.unfunded, lo.past} {
		lo.byRoom[money] = make([][]int32, len(pc.rooms))
		for _, i := range list {
			lo.each(pc, i, func(n int32, p *Placed) {
				lo.devices[n] += int64(len(p.Devices))
				lo.byRoom[money][n] = append(lo.byRoom[money][n], i)
			})
		}
	}
	lo.funded = make([][]int32, len(lo.has))
	for _, i := range lo.past {
		g := pc.pi.rows[i].group
		lo.funded[g] = append(lo.funded[g], i)
	}
	for g := range lo.has {
		if lo.has[g] {
			lo.groups = append(lo.groups, int32(g))
		}
	}
	return lo
}

// each visits an attempt's rooms.
func (lo *loose) each(pc *poolCycle, row int32, do func(n int32, p *Placed)) {
	placed := pc.pi.rows[row].live.Placed
	for i := range placed {
		if n, ok := pc.pi.roomOf[placed[i].Node]; ok {
			do(n, &placed[i])
		}
	}
}

// gone takes an attempt that was told to stop out of what could be had.
func (lo *loose) gone(pc *poolCycle, row int32) {
	lo.each(pc, row, func(n int32, p *Placed) {
		if lo.devices != nil {
			lo.devices[n] -= int64(len(p.Devices))
		}
	})
}

// unfundedTallies are what every room would have from its unfunded. They follow
// the rooms that change: who comes to a shared device counts as who leaves it does.
func (pc *poolCycle) unfundedTallies() []tally {
	lo := pc.byGroup()
	if lo.free == nil {
		lo.free = make([]tally, len(pc.rooms))
		cut := make([]piece, len(pc.pi.slots))
		for i := range pc.rooms {
			n := len(pc.rooms[i].slots)
			lo.free[i].cut, cut = cut[:n:n], cut[n:]
			pc.retally(int32(i))
		}
		lo.seen = len(pc.changes)
	}
	for ; lo.seen < len(pc.changes); lo.seen++ {
		pc.retally(pc.changes[lo.seen])
	}
	return lo.free
}

func (pc *poolCycle) retally(n int32) {
	y, rm := &pc.loose.free[n], &pc.rooms[n]
	y.gain = gain{}
	clear(y.cut)
	for _, row := range pc.loose.byRoom[0][n] {
		if !pc.marks[row].stopping {
			y.count(rm, pc.pi.rows[row].live, 1)
		}
	}
}

// noteLeast keeps the least commitment of the loose, up the tree. A commitment of
// 0 (a policy without floor) counts as 1, which no comparison notices but "none".
func (pc *poolCycle) noteLeast(g int32, d GPUTime) {
	least := pc.loose.least
	for d = max(1, d); g >= 0 && (least[g] == 0 || d < least[g]); g = pc.ix.t.parent[g] {
		least[g] = d
	}
}

// looseCode is the reason's code when nobody can be evicted for a job: because
// all are protected, or because those who are not have had less of their share.
func (pc *poolCycle) looseCode() string {
	if lo := pc.looseRows(); len(lo.unfunded) > 0 || len(lo.past) > 0 {
		return WhyStanding
	}
	return WhyProtected
}

// hopelessKind says, without a search, that no nomination can succeed for a
// kind of job: its shape has no place even when all who are leaving and all
// unfunded are gone, no other project is so over-served that V3 could apply, and
// no attempt of its own project is less urgent.
func (pc *poolCycle) hopelessKind(k, g int32) bool {
	kd, lo := &pc.pi.kindOf[k], pc.looseRows()
	if !pc.noLeave(kd.shape) {
		return false
	}
	if lo.has[g] && kd.urgency > lo.urgency[g] {
		return false
	}
	return pc.promise(kd.milli, kd.minMs) >= pc.reachOf(g)
}

// hopeless says that no job of a project's queue can start in this cycle.
func (pc *poolCycle) hopeless(q *queue, money int) bool {
	for i := range q.kinds {
		k := q.kinds[i].kind
		// Who falls back to run free is not bound to what nodes are kept for.
		if money == 0 && pc.pi.kindOf[k].orFree && (pc.holder != nil || pc.pi.maint > 0 || pc.booked) {
			return false
		}
		if !pc.noFree(pc.pi.kindOf[k].shape) || money == 0 && !pc.hopelessKind(k, q.group) {
			return false
		}
	}
	return true
}

// reachOf is the least promise at which no project beside g could be evicted
// under V3: at each fork the most over-served sibling that has unprotected
// attempts below it sets it. It is kept until the next start.
func (pc *poolCycle) reachOf(g int32) GPUTime {
	lo := pc.loose
	if lo.known[g] == lo.version {
		return lo.reach[g]
	}
	f, t, most := &pc.fields[0], pc.ix.t, GPUTime(0)
	for at := g; at >= 0; at = t.parent[at] {
		siblings := t.roots
		if t.parent[at] >= 0 {
			siblings = t.children[t.parent[at]]
		}
		for _, o := range siblings {
			if o != at && lo.least[o] > 0 {
				theirs := f.ratio(o)
				theirs.time -= lo.least[o] - 1
				most = max(most, gap(f.ratio(at), theirs))
			}
		}
	}
	lo.reach[g], lo.known[g] = most, lo.version
	return most
}

// gap is the least addition to mine that brings it to theirs or above: 0 when it
// is there already, the largest number when it never gets there.
func gap(mine, theirs ratio) GPUTime {
	if mine.compare(theirs) >= 0 {
		return 0
	}
	if theirs.share <= 0 {
		if mine.share <= 0 {
			return theirs.time - mine.time
		}
		return math.MaxInt64
	}
	// ceil(theirs.time · mine.share / theirs.share) − mine.time
	hi, lo := bits.Mul64(uint64(max(0, theirs.time)), uint64(mine.share))
	lo, carry := bits.Add64(lo, uint64(theirs.share-1), 0)
	if hi += carry; hi >= uint64(theirs.share) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(theirs.share))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return GPUTime(q) - mine.time
}
