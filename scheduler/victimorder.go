package scheduler

import "cmp"

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
	order := cmp.Compare(rank(a.rule), rank(b.rule))
	if ev.debug && order == 0 {
		order = cmp.Compare(ev.graceOf(a), ev.graceOf(b))
	}
	if order != 0 {
		return order
	}
	if order = b.served.compare(a.served); order != 0 {
		return order
	}
	// The attempts themselves are looked at last: they lie about in memory.
	p, q := &ev.pc.pi.rows[a.row], &ev.pc.pi.rows[b.row]
	if order = cmp.Compare(min(q.milli, ev.need), min(p.milli, ev.need)); order != 0 {
		return order
	}
	x, y := p.live, q.live
	return cmp.Or(cmp.Compare(ev.lostBy(p), ev.lostBy(q)), cmp.Compare(y.Started, x.Started), cmp.Compare(x.Job.ID, y.Job.ID), cmp.Compare(x.N, y.N))
}

func (ev *eviction) graceOf(c *candidate) int64 {
	return effectiveGrace(ev.pc.p, ev.pc.pi.rows[c.row].live, ev.pc.marks[c.row].funded)
}

// lostBy is the GPU-time since the last checkpoint, or the start.
func (ev *eviction) lostBy(r *row) GPUTime {
	return r.milli * max(0, ev.pc.now.MillisSince(lastSaved(r.live)))
}

func rank(r Rule) int {
	if r == V1 {
		return 0
	}
	return 1
}
