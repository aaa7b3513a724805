package scheduler

// outlook is what a shape may expect of a pool: rooms that fit once the ending
// have left, and rooms that could if everybody unprotected left, by devices alone.
// It is worked out once per shape and cycle and follows the rooms that change.
type outlook struct {
	fits, hopes int64
	rooms       []prospect // nil = not looked yet
	seen        int        // changes it knows of
}

// prospect is a room's part of an outlook.
type prospect int8

const (
	hopeless prospect = iota
	hopeful
	fitting
)

// changed notes rooms that a start or its victims have changed for good.
func (pc *poolCycle) changed(placed []Placed) {
	for i := range placed {
		if n, ok := pc.pi.roomOf[placed[i].Node]; ok {
			pc.changes = append(pc.changes, n)
		}
	}
}

// outlook counts what a job's shape may expect now.
func (pc *poolCycle) outlook(e *entry, minMs int64) *outlook {
	look := &pc.memo.outlook[e.shape]
	a := pc.askOf(e, minMs, true)
	if look.rooms == nil {
		look.rooms = make([]prospect, len(pc.rooms))
		for i := range pc.rooms {
			pc.prospect(look, int32(i), &a)
		}
		look.seen = len(pc.changes)
		pc.plan.Steps += int64(len(pc.rooms)) / 8
	}
	for ; look.seen < len(pc.changes); look.seen++ {
		pc.prospect(look, pc.changes[look.seen], &a)
		pc.plan.Steps++
	}
	return look
}

// prospect looks at one room again.
func (pc *poolCycle) prospect(look *outlook, room int32, a *ask) {
	rm, now := &pc.rooms[room], hopeless
	switch why, _ := rm.fit(a); {
	case why == FitsOK:
		now = fitting
	case rm.could(a, pc.byGroup().devices[room]):
		now = hopeful
	}
	was := look.rooms[room]
	look.rooms[room] = now
	if was >= hopeful {
		look.hopes--
	}
	if was == fitting {
		look.fits--
	}
	if now >= hopeful {
		look.hopes++
	}
	if now == fitting {
		look.fits++
	}
}
