package scheduler

import "tranche/ledger"

// gain is what leavers would give a room: whole devices, and what else they took.
type gain struct {
	devices int64
	rest    amounts
}

// fitsWith says whether a rank of whole devices finds place once the ending have
// left and a gain came in.
func (rm *room) fitsWith(a *ask, g *gain) bool {
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

func (rm *room) restFits(a *ask, g *gain) bool {
	if a.shape.GPUs > 0 && a.shape.HBMMiB > rm.node.HBMMiB {
		return false
	}
	if rm.dims == narrow && !a.shape.wide() {
		cpu, ram := &rm.rest[ofCPU], &rm.rest[ofRAM]
		return cpu.settled+cpu.nominated-g.rest[ofCPU]+a.shape.CPUMilli <= rm.offer[ofCPU] &&
			ram.settled+ram.nominated-g.rest[ofRAM]+a.shape.RAMMiB <= rm.offer[ofRAM]
	}
	used := a.shape.amounts()
	for k := range rm.dims {
		used[k] += rm.rest[k].settled + rm.rest[k].nominated - g.rest[k]
	}
	return rm.offer.short(&used) == FitsOK
}

// gainOf is what a room gains for one who asks when a tenant of whole devices
// leaves it.
func (rm *room) gainOf(p *Placed, a *ask) gain {
	g := gain{rest: p.amounts()}
	for _, d := range p.Devices {
		if s := rm.slotOf(d); s != nil && !s.dead && s.open(a) {
			g.devices++
		}
	}
	return g
}

func (g *gain) add(o gain, sign int64) {
	g.devices += sign * o.devices
	g.rest.add(&o.rest, sign)
}

// tally counts what leavers give one room: devices that several share come free
// with the last of them.
type tally struct {
	gain
	cut []piece // by slot: what of it leaves
}

func (ev *eviction) tally(rm *room) tally {
	s := ev.pc.scratch
	if len(s.cut) < len(rm.slots) {
		s.cut = make([]piece, len(rm.slots))
	}
	clear(s.cut)
	return tally{cut: s.cut[:len(rm.slots)]}
}

// fitsTally is fitsWith, also for a part of a device.
func (rm *room) fitsTally(a *ask, y *tally) bool {
	if !a.shape.shared() && !rm.booked {
		return rm.fitsWith(a, &y.gain)
	}
	if rm.health != Healthy || !rm.open(a) || !rm.restFits(a, &y.gain) {
		return false
	}
	lacks, want := a.shape.GPUs, rm.piece(a.shape)
	for i := range rm.slots {
		if rm.slots[i].open(a) && rm.takesBeside(&rm.slots[i], a.project, &want, &y.cut[i]) {
			lacks--
		}
	}
	return lacks <= 0
}

// takesBeside says whether a device has a part for a project once the ending and
// what is cut of those who stay have left.
func (rm *room) takesBeside(s *slot, project ledger.GroupID, want, cut *piece) bool {
	used := s.settled - cut.milli + s.nominated
	if s.dead || used+want.milli > 1000 || used > 0 && s.project != project {
		return false
	}
	if rm.node.HBMMiB == 0 {
		return want.hbm == 0
	}
	h := s.parts()
	return want.milli >= 1000 || rm.node.memory(h.mem.settled-cut.hbm+h.mem.nominated+want.hbm, h.swing.settled-cut.swing+h.swing.nominated+want.swing)
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
	part := rm.node.pieceOf(p.GPUMilli, p.HBMMiB, p.HBMVar)
	if rm.dims == narrow {
		y.rest[ofCPU] += sign * p.CPUMilli
		y.rest[ofRAM] += sign * p.RAMMiB
	} else {
		rest := p.amounts()
		y.rest.add(&rest, sign)
	}
	for _, d := range p.Devices {
		k := rm.slotIndex(d)
		if k < 0 || rm.slots[k].dead {
			continue
		}
		s, was := &rm.slots[k], y.cut[k].milli
		y.cut[k].milli += sign * part.milli
		y.cut[k].hbm += sign * part.hbm
		y.cut[k].swing += sign * part.swing
		switch full := s.settled; {
		case s.nominated > 0:
		case was < full && y.cut[k].milli >= full:
			y.devices++
		case was >= full && y.cut[k].milli < full:
			y.devices--
		}
	}
}
