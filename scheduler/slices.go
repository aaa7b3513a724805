package scheduler

import (
	"cmp"
	"slices"
)

// A slice is planned on named devices from the cap and the longest grace before its
// start: whoever is protected there by then is so for no longer than that. From then
// on nothing is protected there past its start less the longest grace; who is left
// there, unfunded or past protection, is told to leave in time (VS). The devices
// stay the same unless they fall away.

// seat is a device by its room and slot.
type seat struct{ room, slot int32 }

// bookings names devices for the slices that come near and shuts them to what
// would stand in the way.
func (pc *poolCycle) bookings() {
	taken := map[seat][]window{}
	for _, s := range pc.near() {
		for _, d := range s.Devices {
			if at, ok := pc.seatOf(d); ok {
				taken[at] = append(taken[at], window{s.From, s.To})
			}
		}
	}
	var free [][]Instant
	for _, s := range pc.near() {
		devices, lost := pc.standingDevices(s)
		if int64(len(devices)) < s.GPUs {
			if free == nil {
				free = pc.freeByDevice()
			}
			devices = append(devices, pc.choose(s, s.GPUs-int64(len(devices)), taken, free)...)
			slices.SortFunc(devices, byNamed)
		}
		if !slices.Equal(devices, s.Devices) {
			pc.plan.Slices = append(pc.plan.Slices, SlicePlan{s.ID, devices, lost})
		}
		pc.shut(s, devices)
	}
}

// near are the pool's slices that are or soon will be planned, by their start.
func (pc *poolCycle) near() []*Slice {
	var out []*Slice
	for i := range pc.s.Slices {
		s := &pc.s.Slices[i]
		if s.Pool == pc.pi.pool.ID && pc.now < s.To && pc.now >= s.From.Add(-pc.p.CapMs-pc.p.GraceCapMs) {
			out = append(out, s)
		}
	}
	return out
}

func byNamed(a, b Named) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index))
}

func (pc *poolCycle) seatOf(d Named) (seat, bool) {
	n, ok := pc.pi.roomOf[d.Node]
	if !ok {
		return seat{}, false
	}
	i := pc.rooms[n].slotIndex(d.Index)
	return seat{n, int32(i)}, i >= 0
}

// standingDevices tells a slice's devices that can still serve it from those that
// fell away. In a storm nothing has.
func (pc *poolCycle) standingDevices(s *Slice) (stay, lost []Named) {
	for _, d := range s.Devices {
		at, ok := pc.seatOf(d)
		if ok && (pc.pi.pool.Frozen || pc.serves(at, s)) {
			stay = append(stay, d)
		} else {
			lost = append(lost, d)
		}
	}
	return stay, lost
}

// serves says whether a device is in service for the whole of a slice, as far as
// anybody knows.
func (pc *poolCycle) serves(at seat, s *Slice) bool {
	rm := &pc.rooms[at.room]
	healthy := rm.health == Healthy || rm.node.Health == Healthy // in maintenance now, which its window tells
	return healthy && !rm.slots[at.slot].dead && !maintenance(rm.node).meets(window{s.From, s.To})
}

// choose names so many devices for a slice: those free of protection in time before
// the others, those that are not kept for the holder first, whole nodes rather than
// parts of many, and lower numbers. It gives fewer where there are no more.
func (pc *poolCycle) choose(s *Slice, want int64, taken map[seat][]window, free [][]Instant) []Named {
	var out []Named
	for _, worse := range [3]int{0, 1, 2} {
		rooms := pc.eligible(s, worse, taken, free)
		slices.SortStableFunc(rooms, func(a, b []seat) int { return cmp.Compare(len(b), len(a)) })
		for _, seats := range rooms {
			for _, at := range seats {
				if int64(len(out)) == want {
					return out
				}
				taken[at] = append(taken[at], window{s.From, s.To})
				n := pc.rooms[at.room].node
				out = append(out, Named{n.ID, n.Devices[at.slot].Index})
			}
		}
	}
	return out
}

// eligible lists, by room, the devices that no other slice has then and that are
// so much worse: 0 free in time, 1 and kept for the holder, 2 protected too long.
func (pc *poolCycle) eligible(s *Slice, worse int, taken map[seat][]window, free [][]Instant) [][]seat {
	var out [][]seat
	for n := range pc.rooms {
		var seats []seat
		for i := range pc.rooms[n].slots {
			at := seat{int32(n), int32(i)}
			if !pc.serves(at, s) || slices.ContainsFunc(taken[at], (window{s.From, s.To}).meets) {
				continue
			}
			grade := 0
			switch {
			case free[n][i] > s.From.Add(-pc.p.GraceCapMs):
				grade = 2
			case pc.keptThen(n, s):
				grade = 1
			}
			if grade == worse {
				seats = append(seats, at)
			}
		}
		if len(seats) > 0 {
			out = append(out, seats)
		}
	}
	return out
}

// keptThen says whether a room is one that the holder of the reserved start would
// run on during a slice.
func (pc *poolCycle) keptThen(room int, s *Slice) bool {
	for _, l := range pc.pi.holders {
		if r := l.Reserved; r != nil && slices.Contains(r.Nodes, pc.rooms[room].node.ID) &&
			(window{r.At, r.At.Add(l.Job.Contract.MinMs)}).meets(window{s.From, s.To}) {
			return true
		}
	}
	return false
}

// shut gives a slice's devices their limits.
func (pc *poolCycle) shut(s *Slice, devices []Named) {
	pc.own()
	limit := s.From.Add(-pc.p.GraceCapMs)
	for _, d := range devices {
		at, ok := pc.seatOf(d)
		if !ok {
			continue
		}
		rm := &pc.rooms[at.room]
		sl := &rm.slots[at.slot]
		rm.booked, pc.booked = true, true
		if sl.limit == 0 || limit < sl.limit {
			sl.limit, sl.begins = limit, s.From
		}
		sl.shut = sl.shut || pc.now < s.From && pc.now >= s.From.Add(-pc.p.UnfundedGraceMs)
		pc.block(at.room, window{limit, s.To})
	}
}

// makesWay says that an attempt has to leave for a slice on a device of it: its
// grace before the slice begins, once it is not protected. Who came while the slice
// was running was lent its devices.
func (pc *poolCycle) makesWay(l *Live, funded bool) bool {
	if !pc.booked || funded && (l.Started == 0 || pc.now < l.ProtectedUntil) || l.Phase == Nominated {
		return false
	}
	for i := range l.Placed {
		n, ok := pc.pi.roomOf[l.Placed[i].Node]
		if !ok || !pc.rooms[n].booked {
			continue
		}
		for _, d := range l.Placed[i].Devices {
			s := pc.rooms[n].slotOf(d)
			if s != nil && s.limit != 0 && l.Since < s.begins && pc.now >= s.begins.Add(-effectiveGrace(pc.p, l, funded)) {
				return true
			}
		}
	}
	return false
}
