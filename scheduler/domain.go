package scheduler

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"tranche/ledger"
)

// never is the instant at which a room that cannot hold a rank becomes free.
const never = Instant(math.MaxInt64)

// domain chooses the nodes to keep for a large job: the smallest topology domain
// that could hold it, there the one that is free of protection soonest, and in it
// the nodes that are. It says why when there are none, or none within the cap.
func (pc *poolCycle) domain(j *Job) (Reservation, string) {
	free := pc.rankFreeAt(j)
	deepest := 0
	for i := range pc.rooms {
		deepest = max(deepest, labels(pc.rooms[i].node.Topology))
	}
	why := NoBoundNodes
	for depth := deepest; depth >= 0; depth-- {
		best := Reservation{At: never}
		held := false
		for _, d := range pc.domainsAt(depth, free, int(max(1, j.Shape.Nodes))) {
			held = true
			rooms, at := pc.soonest(d.rooms, free, int(max(1, j.Shape.Nodes)), j.Contract.MinMs)
			if at < best.At {
				best = Reservation{Since: pc.now, At: at, Domain: d.label, Nodes: pc.nodesOf(rooms)}
			}
		}
		if !held {
			continue
		}
		if best.At.MillisSince(pc.now) <= pc.p.CapMs {
			return best, ""
		}
		why = NoBoundStarting
	}
	return Reservation{}, why
}

// candidateDomain is one topology domain with the rooms that could be kept in it.
type candidateDomain struct {
	label string
	rooms []int32 // ascending
}

// domainsAt gives the domains of so many labels that could hold so many ranks,
// by label.
func (pc *poolCycle) domainsAt(depth int, free []Instant, ranks int) []candidateDomain {
	byLabel := map[string][]int32{}
	for i := range pc.rooms {
		if label, ok := prefix(pc.rooms[i].node.Topology, depth); ok && free[i] != never {
			byLabel[label] = append(byLabel[label], int32(i))
		}
	}
	var out []candidateDomain
	for label, rooms := range byLabel {
		if len(rooms) >= ranks {
			out = append(out, candidateDomain{label, rooms})
		}
	}
	slices.SortFunc(out, func(a, b candidateDomain) int { return strings.Compare(a.label, b.label) })
	return out
}

// soonest chooses so many of the rooms that they are together free of protection,
// and of maintenance and slices for a whole minimum runtime, as early as any so many of them
// are; those that are free first. It gives never when there are not enough.
// Cost: O(n log n) in rooms.
func (pc *poolCycle) soonest(rooms []int32, free []Instant, ranks int, minMs int64) ([]int32, Instant) {
	type turn struct {
		at Instant
		by int // rooms that open (+1) or close (−1) then
	}
	var turns []turn
	for _, i := range rooms {
		at := pc.clear(i, free[i], minMs)
		for at != never {
			turns = append(turns, turn{at, 1})
			w, shuts := pc.nextAfter(i, at)
			if !shuts {
				break
			}
			turns = append(turns, turn{w.from.Add(-minMs) + 1, -1})
			if at = w.to; at == 0 {
				break
			}
			at = pc.clear(i, at, minMs)
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	at, open := never, 0
	for _, t := range turns {
		if open += t.by; open >= ranks {
			at = t.at
			break
		}
	}
	if at == never {
		return nil, never
	}
	chosen := slices.DeleteFunc(slices.Clone(rooms), func(i int32) bool { return free[i] > at || pc.crosses(i, at, minMs) })
	slices.SortStableFunc(chosen, func(a, b int32) int { return cmp.Compare(free[a], free[b]) })
	chosen = chosen[:ranks]
	slices.Sort(chosen)
	return chosen, at
}

// nextAfter is the first window of a room that begins at an instant or later.
func (pc *poolCycle) nextAfter(room int32, at Instant) (first window, found bool) {
	if pc.blocked == nil {
		return first, false
	}
	for _, w := range pc.blocked[room] {
		if w.from >= at && (!found || w.from < first.from) {
			first, found = w, true
		}
	}
	return first, found
}

// together is the first instant at which all rooms are free of protection and
// from which the whole minimum runtime crosses no planned maintenance and no slice
// of them; never when one is out of service for good.
func (pc *poolCycle) together(rooms []int32, free []Instant, minMs int64) Instant {
	at := pc.now
	for _, i := range rooms {
		at = max(at, free[i])
	}
	for before := Instant(0); at != before && at != never; { // each round passes one window at least
		before = at
		for _, i := range rooms {
			at = max(at, pc.clear(i, at, minMs))
		}
	}
	return at
}

func (pc *poolCycle) nodesOf(rooms []int32) []ledger.NodeID {
	out := make([]ledger.NodeID, len(rooms))
	for k, i := range rooms {
		out[k] = pc.rooms[i].node.ID
	}
	return out
}

// rankFreeAt gives, by room, when one rank of a job finds place there if nobody
// protected comes in between and whoever is past protection leaves; never for
// rooms that cannot hold it or are out of service.
func (pc *poolCycle) rankFreeAt(j *Job) []Instant {
	occ := pc.occupants()
	out := make([]Instant, len(pc.rooms))
	for i := range pc.rooms {
		out[i] = never
		rm := &pc.rooms[i]
		if rm.health != Healthy && (rm.node.Health != Healthy || rm.node.MaintUntil == 0) {
			continue
		}
		for _, at := range freeInstants(occ[i], pc.now) {
			if roomLeft(rm.node, occ[i], at).holds(&j.Shape) {
				out[i] = at
				break
			}
		}
	}
	return out
}

// occupant is an attempt's part on one node and how long it is protected.
type occupant struct {
	placed *Placed
	until  Instant
}

// occupants lists, by room, who is or will be protected there. Who is nominated
// starts once its victims have left, so at worst a grace later.
func (pc *poolCycle) occupants() [][]occupant {
	if pc.occ != nil {
		return pc.occ
	}
	pc.occ = make([][]occupant, len(pc.rooms))
	add := func(placed []Placed, until Instant) {
		for k := range placed {
			if n, ok := pc.pi.roomOf[placed[k].Node]; ok && until > pc.now {
				pc.occ[n] = append(pc.occ[n], occupant{&placed[k], until})
			}
		}
	}
	for i := range pc.pi.rows {
		r := &pc.pi.rows[i]
		if !pc.marks[i].funded || pc.marks[i].stopping {
			continue
		}
		switch {
		case r.commit != 0:
			add(r.live.Placed, r.commit)
		case r.phase == Nominated:
			add(r.live.Placed, max(pc.now, r.live.Since.Add(pc.p.GraceCapMs)).Add(r.minMs))
		default:
			add(r.live.Placed, pc.now.Add(r.minMs))
		}
	}
	for i := range pc.plan.Starts {
		s := &pc.plan.Starts[i]
		wait := int64(0)
		if s.Nominate {
			wait = pc.p.GraceCapMs
		}
		if s.Funded {
			add(s.Placed, pc.now.Add(wait+s.MinMs))
		}
	}
	return pc.occ
}

// freeInstants are now and every later instant at which somebody's protection ends.
func freeInstants(occ []occupant, now Instant) []Instant {
	out := []Instant{now}
	for i := range occ {
		out = append(out, occ[i].until)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// remains is what a node has beside those who are protected beyond an instant.
type remains struct {
	devices, hbm int64 // hbm of each device
	offer        amounts
	used         amounts
}

func roomLeft(n *Node, occ []occupant, at Instant) remains {
	r := remains{hbm: n.HBMMiB, offer: n.amounts()}
	for _, d := range n.Devices {
		taken := d.Dead
		for i := range occ {
			taken = taken || occ[i].until > at && slices.Contains(occ[i].placed.Devices, d.Index)
		}
		if !taken {
			r.devices++
		}
	}
	for i := range occ {
		if occ[i].until > at {
			rest := occ[i].placed.amounts()
			r.used.add(&rest, 1)
		}
	}
	return r
}

// Offers says whether an empty node with so many devices could hold a rank, once its
// storage is well.
func (n *Node) Offers(devices int64, sh *Shape) bool {
	if devices < sh.GPUs || n.CPUMilli < sh.CPUMilli || n.RAMMiB < sh.RAMMiB {
		return false
	}
	if !sh.wide() && sh.HBMMiB == 0 {
		return true
	}
	offer := n.amounts()
	offer[ofSto] = n.StoMbps
	return remains{devices: devices, hbm: n.HBMMiB, offer: offer}.holds(sh)
}

func (r remains) holds(sh *Shape) bool {
	if r.devices < sh.GPUs || sh.GPUs > 0 && sh.HBMMiB > r.hbm {
		return false
	}
	if r.offer[ofCPU]-r.used[ofCPU] < sh.CPUMilli || r.offer[ofRAM]-r.used[ofRAM] < sh.RAMMiB {
		return false
	}
	if !sh.wide() {
		return true
	}
	used, want := r.used, sh.amounts()
	used.add(&want, 1)
	return r.offer.short(&used) == FitsOK
}

// labels counts the labels of a topology path: "rack3/switch1" has 2.
func labels(topology string) int {
	if topology == "" {
		return 0
	}
	return strings.Count(topology, "/") + 1
}

// prefix is the first labels of a topology path; not ok when it has fewer.
func prefix(topology string, depth int) (string, bool) {
	if depth == 0 {
		return "", true
	}
	if labels(topology) < depth {
		return "", false
	}
	parts := strings.SplitN(topology, "/", depth+1)
	return strings.Join(parts[:depth], "/"), true
}

func inDomain(topology, domain string) bool {
	return domain == "" || topology == domain || strings.HasPrefix(topology, domain+"/")
}

// above is the next larger domain.
func above(domain string) string {
	if i := strings.LastIndexByte(domain, '/'); i >= 0 {
		return domain[:i]
	}
	return ""
}

// commonDomain is the smallest domain that holds all rooms.
func (pc *poolCycle) commonDomain(rooms []int32) string {
	d := pc.rooms[rooms[0]].node.Topology
	for _, i := range rooms[1:] {
		for !inDomain(pc.rooms[i].node.Topology, d) {
			d = above(d)
		}
	}
	return d
}
