package scheduler

import "tranche/ledger"

// gain is what leavers would give a room: whole devices, CPU and memory.
type gain struct{ devices, cpu, ram int64 }

// fitsWith says whether a rank of whole devices finds place once the ending have
// left and a gain came in.
func (rm *room) fitsWith(a *ask, g gain) bool {
	devices := rm.free + rm.leaving
	if rm.booked {
		devices, _ = rm.openTo(a)
	}
	return rm.health == Healthy && devices+g.devices >= a.shape.GPUs && rm.open(a) && rm.restFits(a, g)
}

// could says whether a room may have the devices that are asked for once so many
// more have been left: not fewer than it will, perhaps more.
func (rm *room) could(a *ask, more int64) bool {
	n := rm.free + rm.leaving + more
	if rm.booked {
		open := int64(0)
		for i := range rm.slots {
			if !rm.slots[i].dead && rm.slots[i].open(a) {
				open++
			}
		}
		n = min(n, open)
	}
	return rm.health == Healthy && rm.open(a) && (a.shape.shared() || n >= a.shape.GPUs)
}

func (rm *room) restFits(a *ask, g gain) bool {
	return rm.cpu.settled+rm.cpu.nominated-g.cpu+a.shape.CPUMilli <= rm.node.CPUMilli &&
		rm.ram.settled+rm.ram.nominated-g.ram+a.shape.RAMMiB <= rm.node.RAMMiB
}

// gainOf is what a room gains for one who asks when a tenant of whole devices
// leaves it.
func (rm *room) gainOf(p *Placed, a *ask) gain {
	g := gain{cpu: p.CPUMilli, ram: p.RAMMiB}
	for _, d := range p.Devices {
		if s := rm.slotOf(d); s != nil && !s.dead && s.open(a) {
			g.devices++
		}
	}
	return g
}

func (g *gain) add(o gain, sign int64) {
	g.devices += sign * o.devices
	g.cpu += sign * o.cpu
	g.ram += sign * o.ram
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
	if !a.shape.shared() && !rm.booked {
		return rm.fitsWith(a, y.gain)
	}
	if rm.health != Healthy || !rm.open(a) || !rm.restFits(a, y.gain) {
		return false
	}
	lacks, milli := a.shape.GPUs, a.shape.milli()
	for i := range rm.slots {
		if rm.slots[i].open(a) && rm.slots[i].takesBeside(a.project, milli, y.cut[i]) {
			lacks--
		}
	}
	return lacks <= 0
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
