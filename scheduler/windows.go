package scheduler

// window is a span [from, to) in which a node cannot be counted on: planned
// maintenance, or a slice on some device of it. to = 0 leaves the end open.
type window struct{ from, to Instant }

// meets says whether two windows overlap; an empty one meets none.
func (w window) meets(o window) bool {
	return !w.none() && !o.none() && (w.to == 0 || o.from < w.to) && (o.to == 0 || w.from < o.to)
}

func (w window) none() bool { return w.from == 0 && w.to == 0 }

// maintenance is a node's planned one; none where there is none.
func maintenance(n *Node) window {
	if n.MaintFrom == 0 {
		return window{}
	}
	return window{n.MaintFrom, n.MaintUntil}
}

// block notes a window of a room.
func (pc *poolCycle) block(room int32, w window) {
	if pc.blocked == nil {
		pc.blocked = make([][]window, len(pc.rooms))
	}
	pc.blocked[room] = append(pc.blocked[room], w)
}

// inTheWay is the first window of a room that a minimum runtime which begins at an
// instant would run into or begin in.
func (pc *poolCycle) inTheWay(room int32, at Instant, minMs int64) (window, bool) {
	if pc.blocked == nil {
		return window{}, false
	}
	for _, w := range pc.blocked[room] {
		if at.Add(minMs) > w.from && (w.to == 0 || at < w.to) {
			return w, true
		}
	}
	return window{}, false
}

// crosses is inTheWay, yes or no.
func (pc *poolCycle) crosses(room int32, at Instant, minMs int64) bool {
	_, yes := pc.inTheWay(room, at, minMs)
	return yes
}

// clear is the first instant from one on at which a room's minimum runtime crosses
// no window; never where the last one has no end.
func (pc *poolCycle) clear(room int32, at Instant, minMs int64) Instant {
	for at != never {
		w, yes := pc.inTheWay(room, at, minMs)
		if !yes {
			return at
		}
		if at = w.to; at == 0 {
			return never
		}
	}
	return at
}
