package scheduler

import (
	"slices"
	"strconv"
)

// roomAt estimates when a shape's nodes will have enough devices that nobody is
// protected on: the earliest instant, or 0 when that is not foreseeable.
func (pc *poolCycle) roomAt(sh *Shape) Instant {
	key := [2]int64{sh.GPUs, max(1, sh.Nodes)}
	at, known := pc.roomsAt[key]
	if !known {
		if pc.roomsAt == nil {
			pc.roomsAt = map[[2]int64]Instant{}
		}
		at = pc.nodesAt(sh)
		pc.roomsAt[key] = at
	}
	return at
}

func (pc *poolCycle) nodesAt(sh *Shape) Instant {
	free := pc.devicesFreeAt()
	var nodes []Instant
	for i := range pc.rooms {
		at := free[i]
		if pc.rooms[i].health != Healthy || int64(len(at)) < sh.GPUs {
			continue
		}
		if sh.GPUs == 0 {
			nodes = append(nodes, pc.now)
		} else {
			nodes = append(nodes, at[sh.GPUs-1])
		}
	}
	want := int(max(1, sh.Nodes))
	if len(nodes) < want {
		return 0
	}
	slices.Sort(nodes)
	if at := nodes[want-1]; at > pc.now {
		return at
	}
	return 0
}

// devicesFreeAt gives, by room and ascending, when each alive device is free of
// protection. It is worked out once per cycle.
func (pc *poolCycle) devicesFreeAt() [][]Instant {
	if pc.freeAt == nil {
		pc.freeAt = pc.foresee()
	}
	return pc.freeAt
}

func (pc *poolCycle) foresee() [][]Instant {
	busy, out := pc.freeByDevice(), make([][]Instant, len(pc.rooms))
	for n := range pc.rooms {
		out[n] = busy[n][:0]
		for i := range pc.rooms[n].slots {
			if !pc.rooms[n].slots[i].dead {
				out[n] = append(out[n], busy[n][i])
			}
		}
		slices.Sort(out[n])
	}
	return out
}

// freeByDevice gives, by room and slot, when each device is free of protection as
// things stand in the cycle.
func (pc *poolCycle) freeByDevice() [][]Instant {
	busy := pc.devicesByRoom()
	hold := func(placed []Placed, until Instant) {
		for k := range placed {
			n, ok := pc.pi.roomOf[placed[k].Node]
			if !ok {
				continue
			}
			for _, d := range placed[k].Devices {
				if i := pc.rooms[n].slotIndex(d); i >= 0 {
					busy[n][i] = max(busy[n][i], until)
				}
			}
		}
	}
	for i := range pc.plan.Starts {
		hold(pc.plan.Starts[i].Placed, pc.now.Add(pc.plan.Starts[i].MinMs))
	}
	for i := range pc.pi.rows {
		l := pc.pi.rows[i].live
		until := pc.now
		if pc.marks[i].funded && !pc.marks[i].stopping {
			until = max(pc.now, l.ProtectedUntil)
			if l.Started == 0 {
				until = pc.now.Add(l.Job.Contract.MinMs)
			}
		}
		hold(l.Placed, until)
	}
	return busy
}

// devicesByRoom gives room for an instant per device, each the present.
func (pc *poolCycle) devicesByRoom() [][]Instant {
	all, out := make([]Instant, len(pc.pi.slots)), make([][]Instant, len(pc.rooms))
	for i := range all {
		all[i] = pc.now
	}
	for i := range out {
		n := len(pc.rooms[i].slots)
		out[i], all = all[:n:n], all[n:]
	}
	return out
}

func shapeFacts(sh *Shape) []Fact {
	return []Fact{{FactGPUs, strconv.FormatInt(sh.GPUs, 10)}, {FactWant, strconv.FormatInt(max(1, sh.Nodes), 10)}}
}
