package scheduler

import (
	"slices"
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
		if !ev.ownOnly {
			list = ev.candidates(list, lo.byRoom[0][i])
		}
		// The funded come after all unfunded: of no use once those have filled a room.
		if !onlyUnfunded && (bestRoom < 0 || rank(best[len(best)-1].rule) > 0) {
			list = ev.candidates(list, lo.byRoom[1][i])
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

// candidates appends those of a room's rows that may go for the job.
func (ev *eviction) candidates(list []candidate, rows []int32) []candidate {
	ev.pc.plan.Steps += int64(len(rows))
	for _, row := range rows {
		list = slices.Grow(list, 1)[:len(list)+1]
		if !ev.candidate(&list[len(list)-1], row) {
			list = list[:len(list)-1]
		}
	}
	return list
}

// candidate says whether and by which rule a row may go for the job, and fills in c.
func (ev *eviction) candidate(c *candidate, row int32) bool {
	pc := ev.pc
	r, m := &pc.pi.rows[row], pc.marks[row]
	c.row, c.rule = row, V1
	switch {
	case m.stopping, ev.ownOnly && r.group != ev.group:
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
	rm := &ev.pc.rooms[room]
	if !ev.shared && ev.falls(rm, list) {
		return nil
	}
	for i := 1; i < len(list); i++ { // few, and nearly sorted already
		for k := i; k > 0 && ev.before(&list[k], &list[k-1]) < 0; k-- {
			list[k], list[k-1] = list[k-1], list[k]
		}
	}
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
	if full {
		return append(best[:0], chosen...)
	}
	if len(chosen) == len(list) {
		return nil
	}
	// Who was let go first made the side of others too light for them to follow:
	// one of those may do alone.
	for i := range list {
		g := ev.tally(rm)
		g.count(rm, ev.pc.pi.rows[list[i].row].live, 1)
		if rm.fitsTally(&ev.ask, &g) && ev.admit(&list[i]) {
			ev.forget(list[i : i+1])
			return append(best[:0], list[i])
		}
	}
	return nil
}

// falls says at once that even all the candidates have too few devices between
// them.
func (ev *eviction) falls(rm *room, list []candidate) bool {
	lacks := ev.job.Shape.GPUs - rm.free - rm.leaving
	for i := range list {
		lacks -= int64(ev.pc.pi.rows[list[i].row].devices)
	}
	return lacks > 0
}

// forget takes back what admit has counted of candidates.
func (ev *eviction) forget(chosen []candidate) {
	for i := range chosen {
		ev.release(&chosen[i])
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
	return ev.elsewhere(kept)
}

// elsewhere drops those who need not leave because a gang among the others gives a
// place in another room that it leaves too.
func (ev *eviction) elsewhere(kept []candidate) []candidate {
	gang := func(c candidate) bool { return len(ev.pc.pi.rows[c.row].live.Placed) > 1 }
	if len(kept) < 2 || !slices.ContainsFunc(kept, gang) {
		return kept
	}
	return slices.DeleteFunc(kept, func(c candidate) bool {
		ev.pc.unleave(c.row)
		if ev.pc.finds(&ev.ask) {
			ev.release(&c)
			return true
		}
		ev.pc.leave(c.row)
		return false
	})
}
