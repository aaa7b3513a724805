package scheduler

import (
	"slices"

	"tranche/ledger"
)

// forkMemo is where a group parts from the preemptor, looked up once per search.
type forkMemo struct {
	search int32
	may    bool // V3 could apply to somebody there
	fork   fork
}

// chooseRoom is choose for a job of one node: it fills the room
// where the last victim needed is cheapest, and drops those that turned out
// needless, last first. Who is evicted elsewhere does not matter to it, so every
// room is looked at by itself. Cost: O(unprotected in rooms that could do).
func (ev *eviction) chooseRoom() *victims {
	pc := ev.pc
	lo := pc.byGroup()
	pc.scratch.search++
	onlyUnfunded := ev.only == nil && !ev.ownOnly && !pc.noLeave(ev.shape)
	best, bestRoom := pc.scratch.chosen[:0], int32(-1)
	list := pc.scratch.all[:0]
	for i := range ev.hope {
		if !ev.hope[i] {
			continue
		}
		list = list[:0]
		for _, row := range lo.byRoom[i] {
			pc.plan.Steps++
			list = slices.Grow(list, 1)[:len(list)+1]
			if !ev.candidate(&list[len(list)-1], row, onlyUnfunded) {
				list = list[:len(list)-1]
			}
		}
		if len(list) == 0 {
			continue
		}
		if got := ev.fill(int32(i), list, best); got != nil {
			best, bestRoom = got, int32(i)
		}
	}
	pc.scratch.all, pc.scratch.chosen = list[:0], best[:0]
	if bestRoom < 0 {
		return nil
	}
	return ev.proposal(ev.prune(bestRoom, best))
}

// candidate says whether and by which rule a row may go for the job, and fills in c.
func (ev *eviction) candidate(c *candidate, row int32, onlyUnfunded bool) bool {
	pc := ev.pc
	r, m := &pc.pi.rows[row], pc.marks[row]
	c.row, c.rule = row, V1
	switch {
	case m.stopping, m.funded && onlyUnfunded, ev.ownOnly && (!m.funded || r.group != ev.group):
		return false
	case !m.funded:
	case ev.only != nil:
		c.rule = V4
	case r.group == ev.group:
		if c.rule = V2; ev.job.Contract.Urgency <= r.live.Job.Contract.Urgency {
			return false
		}
	default:
		f := ev.forkTo(r.group)
		if c.rule, c.fork = V3, f.fork; !f.may || !ev.under(f.fork, pc.commitment(int(row))) {
			return false
		}
		c.served = pc.fields[0].ratio(f.fork.theirs)
		return true
	}
	c.served = ratio{}
	if r.group >= 0 {
		c.served = pc.fieldOf(m.funded).ratio(r.group)
	}
	return true
}

func (ev *eviction) forkTo(g int32) *forkMemo {
	s := ev.pc.scratch
	m := &s.forks[g]
	if m.search != s.search {
		mine, theirs, ok := ev.pc.ix.t.fork(ev.group, g)
		*m = forkMemo{s.search, ok && ev.under(fork{mine, theirs}, 0), fork{mine, theirs}}
	}
	return m
}

// fill gives the first candidates, in order, with which a room fits; nil when
// they do not do, or when the last of them is no cheaper than the last of best.
func (ev *eviction) fill(room int32, list, best []candidate) []candidate {
	if len(best) > 0 { // who is dearer than the last of best changes nothing
		last, n := &best[len(best)-1], 0
		for i := range list {
			if ev.before(&list[i], last) <= 0 {
				list[n] = list[i]
				n++
			}
		}
		if list = list[:n]; n == 0 {
			return nil
		}
	}
	for i := 1; i < len(list); i++ { // few, and nearly sorted already
		for k := i; k > 0 && ev.before(&list[k], &list[k-1]) < 0; k-- {
			list[k], list[k-1] = list[k-1], list[k]
		}
	}
	rm := &ev.pc.rooms[room]
	g := ev.tally(rm)
	chosen, full := ev.pc.scratch.tried[:0], false
	for i := range list {
		c := &list[i]
		if !ev.admit(c) {
			continue
		}
		chosen = append(chosen, *c)
		g.count(rm, ev.pc.pi.rows[c.row].live, 1)
		if full = rm.fitsTally(&ev.ask, &g); full {
			break
		}
	}
	ev.forget(chosen)
	ev.pc.scratch.tried = chosen[:0]
	if !full {
		return nil
	}
	return append(best[:0], chosen...)
}

// forget takes back what admit has counted of candidates.
func (ev *eviction) forget(chosen []candidate) {
	for i := range chosen {
		ev.release(&chosen[i])
	}
	ev.pairs = ev.pairs[:0]
}

// tally counts what leavers give one room: devices that several share come free
// with the last of them.
type tally struct {
	gain
	cut []int64 // by slot: milli-GPUs that leave
}

func (ev *eviction) tally(rm *room) tally {
	s := ev.pc.scratch
	if len(s.cut) < len(rm.slots) {
		s.cut = make([]int64, len(rm.slots))
	}
	clear(s.cut)
	return tally{cut: s.cut[:len(rm.slots)]}
}

// fitsTally is fitsWith, also for a part of a device.
func (rm *room) fitsTally(a *ask, y *tally) bool {
	if !a.shape.shared() {
		return rm.fitsWith(a, y.gain)
	}
	if rm.health != Healthy || !rm.open(a) || !rm.restFits(a, y.gain) {
		return false
	}
	for i := range rm.slots {
		if rm.slots[i].takesBeside(a.project, a.shape.milli(), y.cut[i]) {
			return true
		}
	}
	return false
}

// takesBeside says whether a device has a part for a project once the ending and
// so many milli-GPUs of those who stay have left.
func (s *slot) takesBeside(project ledger.GroupID, milli, cut int64) bool {
	used := s.settled - cut + s.nominated
	return !s.dead && used+milli <= 1000 && (used <= 0 || s.project == project)
}

// count adds an attempt's parts in the room, or takes them back (−1).
func (y *tally) count(rm *room, l *Live, sign int64) {
	for i := range l.Placed {
		p := &l.Placed[i]
		if p.Node != rm.node.ID {
			continue
		}
		y.countPart(rm, p, sign)
	}
}

func (y *tally) countPart(rm *room, p *Placed, sign int64) {
	y.cpu += sign * p.CPUMilli
	y.ram += sign * p.RAMMiB
	for _, d := range p.Devices {
		k := rm.slotIndex(d)
		if k < 0 || rm.slots[k].dead {
			continue
		}
		s, was := &rm.slots[k], y.cut[k]
		y.cut[k] += sign * p.GPUMilli
		switch full := s.settled; {
		case s.nominated > 0:
		case was < full && y.cut[k] >= full:
			y.devices++
		case was >= full && y.cut[k] < full:
			y.devices--
		}
	}
}

// prune drops the needless, last first, and lets the others leave.
func (ev *eviction) prune(room int32, chosen []candidate) []candidate {
	rm := &ev.pc.rooms[room]
	g := ev.tally(rm)
	for i := range chosen {
		ev.admit(&chosen[i])
		g.count(rm, ev.pc.pi.rows[chosen[i].row].live, 1)
	}
	kept := slices.Clone(chosen[len(chosen)-1:])
	for n := len(chosen) - 2; n >= 0; n-- {
		c := chosen[n]
		l := ev.pc.pi.rows[c.row].live
		g.count(rm, l, -1)
		if rm.fitsTally(&ev.ask, &g) {
			ev.release(&c)
			continue
		}
		g.count(rm, l, 1)
		kept = append(kept, c)
	}
	for i := range kept {
		ev.pc.leave(kept[i].row)
	}
	return kept
}
