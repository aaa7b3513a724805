package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// Tenant is an attempt's part on one node.
type Tenant struct {
	AttemptRef
	Project ledger.GroupID
	Phase   Phase
	Placed  Placed
}

// Dimensions along which a node can be too small for a rank of a job.
const (
	FitsOK      = ""
	FitsHealth  = "health"  // suspect, draining, faulted or lost
	FitsLimit   = "limit"   // room, but its protection would reach past what the node is kept for
	FitsDevices = "devices" // too few free whole devices
	FitsSharing = "sharing" // the device's rest is too small, or another project's
	FitsCPU     = "cpu"
	FitsRAM     = "ram"
	FitsHBM     = "hbm"     // no device has the GPU memory beside what is on it
	FitsNet     = "net"     // network
	FitsStorage = "storage" // storage bandwidth
	FitsIOC     = "ioc"     // processors that move data
)

// Fits says whether a node has room for want beside its tenants: FitsOK, or the
// first dimension that lacks. nominated asks for room once every ending tenant
// has left; without it the room must be there now. Decide and Apply both ask
// this one function's rules. Cost: O(devices + tenants).
func Fits(node *Node, tenants []Tenant, project ledger.GroupID, want Placed, nominated bool) string {
	rm := newRoom(node, make([]slot, len(node.Devices)))
	for i := range tenants {
		rm.put(&tenants[i].Placed, tenants[i].Project, tenants[i].Phase, 1)
	}
	return rm.admits(project, &want, nominated)
}

// room is what a node has left. Ending tenants hold their devices until they are
// gone; nominated ones own devices that others still have to leave.
type room struct {
	node    *Node
	health  Health  // the node's; draining during its maintenance
	maint   Instant // nothing is protected beyond it: maintenance begins; 0 = none planned
	kept    Instant // likewise: the reserved start's T*, but for its holder; 0 = not kept
	booked  bool    // some device of it is booked for a slice
	slots   []slot
	free    int64 // alive devices nobody holds or owns
	leaving int64 // alive devices that only ending tenants hold
	partly  int64 // alive devices of which some part is held or owned by who stays
	offer   amounts
	dims    int8 // of offer that count: narrow, or all
	rest    [kinds]split
	state   int32 // its number at the judge; 0 = not looked at since it changed
}

// split counts one resource by who holds it.
type split struct{ settled, ending, nominated int64 }

// now is what is taken as long as the ending are there: whoever is nominated
// takes the place of somebody who leaves.
func (s split) now() int64 { return s.settled + max(s.ending, s.nominated) }

func (s *split) add(p Phase, n int64) {
	switch p {
	case Ending:
		s.ending += n
	case Nominated:
		s.nominated += n
	default:
		s.settled += n
	}
}

// slot is one device: milli-GPUs held by who stays, who leaves, who is to come.
type slot struct {
	split
	held    *held          // what parts of it hold of its memory; nil where none is, or the node does not know it
	project ledger.GroupID // of those who stay or are to come
	leaver  ledger.GroupID // of those who leave
	dead    bool
	shut    bool    // a slice begins at once: not even unfunded work comes
	limit   Instant // nothing is protected beyond it: a slice begins soon after, or has begun; 0 = none
	begins  Instant // that slice
}

// held is the GPU memory of those who have a part of a device, and its variance. Whole
// devices are never shared, so theirs need not be counted. It is not changed but
// replaced: rooms of several cycles have it.
type held struct{ mem, swing split }

func (s *slot) parts() held {
	if s.held == nil {
		return held{}
	}
	return *s.held
}

// hold counts a part that comes (sign 1) or goes (−1).
func (s *slot) hold(p Phase, part *piece, sign int64) {
	h := s.parts()
	h.mem.add(p, sign*part.hbm)
	h.swing.add(p, sign*part.swing)
	s.held = &h
}

// open says whether the bookings of a device allow what asks.
func (s *slot) open(a *ask) bool {
	switch {
	case s.limit == 0 || a.anytime:
		return true
	case a.until == 0:
		return !s.shut
	}
	return a.until <= s.limit
}

// kind tells apart what a device counts as.
func (s *slot) kind() int {
	switch {
	case s.dead || s.settled+s.nominated >= 1000:
		return 0
	case s.settled+s.nominated > 0:
		return 3
	case s.ending > 0:
		return 1
	}
	return 2
}

func newRoom(n *Node, slots []slot) room {
	rm := room{node: n, health: n.Health, slots: slots, offer: n.amounts(), dims: narrow}
	if rm.offer.wide() {
		rm.dims = kinds
	}
	for i := range slots {
		slots[i] = slot{dead: n.Devices[i].Dead}
		if !n.Devices[i].Dead {
			rm.free++
		}
	}
	return rm
}

// slotOf finds a device by its index; nil when the node has none such.
func (rm *room) slotOf(index int32) *slot {
	if i := rm.slotIndex(index); i >= 0 {
		return &rm.slots[i]
	}
	return nil
}

func (rm *room) slotIndex(index int32) int {
	if i := int(index); i < len(rm.slots) && i >= 0 && rm.node.Devices[i].Index == index {
		return i
	}
	return slices.IndexFunc(rm.node.Devices, func(d Device) bool { return d.Index == index })
}

// put adds (sign 1) or takes away (−1) a tenant.
func (rm *room) put(p *Placed, project ledger.GroupID, phase Phase, sign int64) {
	rm.state = 0
	part := rm.node.pieceOf(p.GPUMilli, p.HBMMiB, p.HBMVar)
	for _, d := range p.Devices {
		s := rm.slotOf(d)
		if s == nil {
			continue
		}
		rm.tally(s.kind(), -1)
		s.add(phase, sign*part.milli)
		if part.milli < placing.WholeGPU && rm.node.HBMMiB > 0 {
			s.hold(phase, &part, sign)
		}
		if sign > 0 && phase == Ending {
			s.leaver = project
		} else if sign > 0 {
			s.project = project
		}
		rm.tally(s.kind(), 1)
	}
	want := p.amounts()
	for k := range rm.dims {
		rm.rest[k].add(phase, sign*want[k])
	}
}

func (rm *room) tally(kind int, d int64) {
	switch kind {
	case 1:
		rm.leaving += d
	case 2:
		rm.free += d
	case 3:
		rm.partly += d
	}
}

// takes says whether a device of the room has a part for a project. One physical
// device is shared only within one project.
func (rm *room) takes(s *slot, project ledger.GroupID, want *piece, nominated bool) bool {
	if s.dead {
		return false
	}
	used := s.settled + s.nominated
	if used > 0 && (want.milli >= 1000 || s.project != project) {
		return false
	}
	if !nominated && s.ending > 0 {
		if want.milli >= 1000 || s.leaver != project {
			return false
		}
		used += s.ending
	}
	if used+want.milli > 1000 {
		return false
	}
	return want.milli >= 1000 || rm.remembers(s, want, nominated)
}

// remembers says whether a device has the memory for a part of it beside what is
// on it.
func (rm *room) remembers(s *slot, want *piece, nominated bool) bool {
	if rm.node.HBMMiB == 0 {
		return want.hbm == 0
	}
	h := s.parts()
	hbm, swing := h.mem.settled+h.mem.nominated+want.hbm, h.swing.settled+h.swing.nominated+want.swing
	if !nominated {
		hbm, swing = hbm+h.mem.ending, swing+h.swing.ending
	}
	return rm.node.memory(hbm, swing)
}

// admits checks a placement device by device.
func (rm *room) admits(project ledger.GroupID, want *Placed, nominated bool) string {
	if rm.health != Healthy {
		return FitsHealth
	}
	part := rm.node.pieceOf(want.GPUMilli, want.HBMMiB, want.HBMVar)
	if len(want.Devices) > 0 && want.HBMMiB > rm.node.HBMMiB {
		return FitsHBM
	}
	for _, d := range want.Devices {
		s := rm.slotOf(d)
		if s == nil || !rm.takes(s, project, &part, nominated) {
			if want.GPUMilli < 1000 {
				return FitsSharing
			}
			return FitsDevices
		}
	}
	rest := want.amounts()
	return rm.admitsRest(&rest, nominated)
}

// admitsRest says what of CPU, memory and the like a room lacks.
func (rm *room) admitsRest(want *amounts, nominated bool) string {
	used := *want
	for k := range rm.dims {
		if nominated {
			used[k] += rm.rest[k].settled + rm.rest[k].nominated
		} else {
			used[k] += rm.rest[k].now()
		}
	}
	return rm.offer.short(&used)
}

// vacated says whether a nominated tenant's place has been left by all others.
func (rm *room) vacated(project ledger.GroupID, p *Placed) bool {
	for _, d := range p.Devices {
		s := rm.slotOf(d)
		if s == nil || s.dead || s.settled+s.ending+s.nominated > 1000 || s.ending > 0 && s.leaver != project {
			return false
		}
		if h := s.held; h != nil && !rm.node.memory(h.mem.settled+h.mem.ending+h.mem.nominated, h.swing.settled+h.swing.ending+h.swing.nominated) {
			return false
		}
	}
	used := p.amounts()
	for k := range rm.dims {
		used[k] += rm.rest[k].settled + rm.rest[k].ending
	}
	return rm.offer.short(&used) == FitsOK
}

// milli is the part of each device a shape takes.
func (s *Shape) milli() int64 {
	if s.GPUMilli <= 0 || s.GPUMilli > 1000 {
		return 1000
	}
	return s.GPUMilli
}

func (s *Shape) shared() bool { return s.milli() < 1000 && s.GPUs == 1 }

// ask is what somebody wants of a room: place for one rank.
type ask struct {
	project   ledger.GroupID
	shape     *Shape
	until     Instant // protected until then if it starts now; 0 = unprotected
	nominated bool    // room that the ending have left counts
	holder    bool    // the reserved start's holder: nodes kept for it are open to it
	anytime   bool    // asks what would be if nothing were kept or booked
}

// open says whether the room's limits allow what asks.
func (rm *room) open(a *ask) bool {
	return a.until == 0 || a.anytime || (rm.maint == 0 || a.until <= rm.maint) && (rm.kept == 0 || a.holder || a.until <= rm.kept)
}

// lacks says at once that a room has too few whole devices, as most do.
func (rm *room) lacks(a *ask) bool {
	return !a.shape.shared() && (rm.free < a.shape.GPUs && (!a.nominated || rm.free+rm.leaving < a.shape.GPUs))
}

// fit says whether one rank of a shape has room and how much would be left over.
func (rm *room) fit(a *ask) (string, leftover) {
	if rm.health != Healthy {
		return FitsHealth, leftover{}
	}
	why, left := rm.fitRoom(a)
	if why == FitsOK && !rm.open(a) {
		why = FitsLimit
	}
	return why, left
}

func (rm *room) fitRoom(a *ask) (string, leftover) {
	sh, devices, lacks := a.shape, rm.free, FitsDevices
	if sh.GPUs > 0 && sh.HBMMiB > rm.node.HBMMiB {
		return FitsHBM, leftover{}
	}
	if a.nominated {
		devices += rm.leaving
	}
	if sh.GPUs > 0 && (sh.shared() || rm.booked) {
		var shut int64
		devices, shut = rm.openTo(a)
		switch {
		case devices+shut >= sh.GPUs:
			lacks = FitsLimit
		case sh.shared() && rm.onlyMemoryLacks(a):
			lacks = FitsHBM
		case sh.shared():
			lacks = FitsSharing
		}
	}
	if devices < sh.GPUs {
		return lacks, leftover{}
	}
	return rm.shapeFits(sh, a.nominated), leftover{
		devices - sh.GPUs, rm.node.CPUMilli - rm.rest[ofCPU].now() - sh.CPUMilli, rm.node.RAMMiB - rm.rest[ofRAM].now() - sh.RAMMiB,
	}
}

// shapeFits is admitsRest for a rank of a shape. Most rooms and shapes know only CPU
// and memory, and are looked at often.
func (rm *room) shapeFits(sh *Shape, nominated bool) string {
	if rm.dims > narrow || sh.wide() {
		want := sh.amounts()
		return rm.admitsRest(&want, nominated)
	}
	cpu, ram := &rm.rest[ofCPU], &rm.rest[ofRAM]
	usedCPU, usedRAM := cpu.settled+cpu.nominated, ram.settled+ram.nominated
	if !nominated {
		usedCPU, usedRAM = cpu.now(), ram.now()
	}
	switch {
	case usedCPU+sh.CPUMilli > rm.offer[ofCPU]:
		return FitsCPU
	case usedRAM+sh.RAMMiB > rm.offer[ofRAM]:
		return FitsRAM
	}
	return FitsOK
}

// onlyMemoryLacks says whether some device has the compute that a part of one
// asks for, though not its memory.
func (rm *room) onlyMemoryLacks(a *ask) bool {
	slim := piece{milli: a.shape.milli()}
	if a.shape.HBMMiB == 0 {
		return false
	}
	for i := range rm.slots {
		if rm.takes(&rm.slots[i], a.project, &slim, a.nominated) {
			return true
		}
	}
	return false
}

// piece is what a shape takes of each device of a room.
func (rm *room) piece(sh *Shape) piece { return rm.node.pieceOf(sh.milli(), sh.HBMMiB, sh.HBMVar) }

// openTo counts the devices that could take a part of what asks, and those that
// only their bookings shut to it.
func (rm *room) openTo(a *ask) (open, shut int64) {
	if rm.free+rm.leaving+rm.partly == 0 {
		return 0, 0
	}
	want := rm.piece(a.shape)
	for i := range rm.slots {
		s := &rm.slots[i]
		switch {
		case !rm.takes(s, a.project, &want, a.nominated):
		case s.open(a):
			open++
		default:
			shut++
		}
	}
	return open, shut
}

// leftover is what a node keeps after a rank is placed: best fit wants little.
type leftover struct{ devices, cpu, ram int64 }

func (a leftover) compare(b leftover) int {
	return cmp.Or(cmp.Compare(a.devices, b.devices), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.ram, b.ram))
}

// take names the devices one rank gets: for a part of a device the fullest one
// that has room, else the first free ones.
func (rm *room) take(rank int32, a *ask) Placed {
	sh := a.shape
	p := Placed{Rank: rank, Node: rm.node.ID, GPUMilli: sh.milli(), CPUMilli: sh.CPUMilli, RAMMiB: sh.RAMMiB, Flow: sh.Flow}
	if sh.GPUs == 0 {
		p.Devices = []int32{}
		return p
	}
	p.Devices = make([]int32, 0, sh.GPUs)
	if sh.shared() {
		if i := rm.pick(a); i >= 0 {
			p.Devices = append(p.Devices, rm.node.Devices[i].Index)
		}
		return p
	}
	want := rm.piece(sh)
	for i := range rm.slots {
		if int64(len(p.Devices)) < sh.GPUs && rm.slots[i].open(a) && rm.takes(&rm.slots[i], a.project, &want, a.nominated) {
			p.Devices = append(p.Devices, rm.node.Devices[i].Index)
		}
	}
	return p
}

// pick is the place of the fullest device that has room for a part of one; −1 if
// none has.
func (rm *room) pick(a *ask) int {
	fullest, most, want := -1, int64(-1), rm.piece(a.shape)
	for i := range rm.slots {
		s := &rm.slots[i]
		if s.settled+s.nominated > most && s.open(a) && rm.takes(s, a.project, &want, a.nominated) {
			fullest, most = i, s.settled+s.nominated
		}
	}
	return fullest
}

// bestFit takes the nodes that keep the least; ties go to the lower id. Rooms
// are sorted by node id. Cost: O(nodes), and O(nodes × log) for gangs.
func bestFit(rooms []room, a *ask) []Placed {
	sh := a.shape
	if sh.Nodes <= 1 {
		best, least := -1, leftover{}
		for i := range rooms {
			if rooms[i].lacks(a) {
				continue
			}
			why, left := rooms[i].fit(a)
			if why == FitsOK && (best < 0 || left.compare(least) < 0) {
				best, least = i, left
			}
		}
		if best < 0 {
			return nil
		}
		return []Placed{rooms[best].take(0, a)}
	}
	type candidate struct {
		i    int
		left leftover
	}
	var all []candidate
	for i := range rooms {
		if rooms[i].lacks(a) {
			continue
		}
		if why, left := rooms[i].fit(a); why == FitsOK {
			all = append(all, candidate{i, left})
		}
	}
	if int64(len(all)) < sh.Nodes {
		return nil
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.left.compare(b.left), cmp.Compare(rooms[a.i].node.ID, rooms[b.i].node.ID))
	})
	all = all[:sh.Nodes]
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(rooms[a.i].node.ID, rooms[b.i].node.ID) })
	out := make([]Placed, len(all))
	for rank, c := range all {
		out[rank] = rooms[c.i].take(int32(rank), a)
	}
	return out
}
