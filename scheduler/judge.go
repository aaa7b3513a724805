package scheduler

import (
	"cmp"
	"encoding/binary"
	"slices"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// Placers that Policy.Placer may name.
const (
	PlacerBestFit = "best-fit" // the node that keeps the least
	PlacerRagpX   = "ragp-x"   // the node whose rest stays most useful to the pool's own mix of jobs
	PlacerRagpIO  = "ragp-io"  // the node whose rest points the way the demand does
)

// Judged says how a start's nodes were chosen.
type Judged struct {
	Fitting int          `json:"fitting"`         // nodes that had room
	Nodes   []JudgedNode `json:"nodes,omitempty"` // the chosen, at most four, then the next best of other states; none when all that had room were needed
}

// JudgedNode is one node's score, in millionths; the higher wins.
type JudgedNode struct {
	Node   ledger.NodeID  `json:"node"`
	Chosen bool           `json:"chosen,omitempty"`
	Total  int64          `json:"total"`
	Terms  []placing.Term `json:"terms"`
}

// judge scores the rooms of one pool. All it remembers follows from what it judges
// by, so it may live as long as that stays the same, and forgetting costs only time.
type judge struct {
	by     judgedBy
	placer livePlacer
	ragpx  *placing.RagpX // nil with another placer
	due    []int64        // copies of each kind expected, millionths
	room   []int64        // places of each kind, for a cycle's prices
	empty  []int64        // places of each kind when nobody is there
	bare   map[bareKey][]int64
	asks   map[askKey]int32
	asked  []placing.Ask
	states map[string]int32
	nodes  []placing.Node // by state; state numbers count from 1
	scores map[scoreKey]*scored
	seen   []sight // by state, in one decision
	search int32
	all    []fitted // room for one decision's
	key    []byte
	sorted []placing.Device
}

// Memory keeps what placers have worked out about states of nodes, for a world whose
// snapshots are made anew for each cycle. It changes no decision. One snapshot at a
// time may use it.
type Memory struct{ judges map[ledger.PoolID]*judge }

// Remember lets deciding on the snapshot use what was worked out on earlier ones.
func (s *Snapshot) Remember(m *Memory) { s.memory = m }

// judgeOf is the pool's judge that is remembered; nil when none is.
func (m *Memory) judgeOf(pool ledger.PoolID) *judge {
	if m == nil {
		return nil
	}
	return m.judges[pool]
}

func (m *Memory) put(pool ledger.PoolID, j *judge) {
	if m == nil {
		return
	}
	if m.judges == nil {
		m.judges = map[ledger.PoolID]*judge{}
	}
	m.judges[pool] = j
}

// livePlacer is a placer that judges devices somebody else has picked.
type livePlacer interface {
	placing.Placer
	On(n *placing.Node, a *placing.Ask, devices []int) placing.Score
}

// judgedBy is what a judge's memory depends on.
type judgedBy struct {
	placer string
	seed   int64
	mix    int64 // its version
	whole  Node  // the pool's largest node, of which only sizes count
	gpus   int
}

// askKey tells apart what a node can be asked for; memory of devices may follow from
// the node's.
type askKey struct {
	shape Shape
	hbm   int64
}

// scoreKey is a state with an ask, and for a part of a device with what that has left.
type scoreKey struct {
	state, ask int32
	left       placing.Device
}

type scored struct {
	placing.Score
	epoch uint32
}

type sight struct {
	search int32
	score  *scored
}

// Bounds of a judge's memory: beyond them it starts anew.
const (
	mostStates = 20_000
	mostScores = 200_000
)

// judges readies the pool's judge for a cycle; nil when the policy wants best fit or
// nobody waits. It sets the prices of scarce places from the rooms as they are now.
func (pc *poolCycle) judges() *judge {
	if pc.p.Placer != PlacerRagpX && pc.p.Placer != PlacerRagpIO {
		return nil
	}
	pi := pc.pi
	if len(pi.queues[0])+len(pi.queues[1])+len(pi.holders) == 0 || len(pi.rooms) == 0 {
		return nil
	}
	mix := pc.s.mixOf(pi.pool.ID)
	by := judgedBy{placer: pc.p.Placer, seed: pc.p.PlacerSeed, mix: mix.Version, whole: pi.sizes(), gpus: pi.gpus()}
	if j := pi.judge; j == nil || !j.by.same(&by) || len(j.nodes) > mostStates || len(j.scores) > mostScores {
		pi.judge = newJudge(by, mix)
		pc.s.memory.put(pi.pool.ID, pi.judge)
		for i := range pi.rooms {
			pi.rooms[i].state = 0
		}
	}
	pi.judge.price(pi.rooms)
	return pi.judge
}

func (b *judgedBy) same(o *judgedBy) bool {
	return b.placer == o.placer && b.seed == o.seed && b.mix == o.mix && b.gpus == o.gpus &&
		b.whole.amounts() == o.whole.amounts() && b.whole.HBMMiB == o.whole.HBMMiB
}

// sizes are the largest sizes among the pool's nodes.
func (pi *poolIndex) sizes() Node {
	var n Node
	for i := range pi.rooms {
		m := pi.rooms[i].node
		n.CPUMilli, n.RAMMiB, n.HBMMiB = max(n.CPUMilli, m.CPUMilli), max(n.RAMMiB, m.RAMMiB), max(n.HBMMiB, m.HBMMiB)
		n.NetMbps, n.StoMbps, n.IOCMilli = max(n.NetMbps, m.NetMbps), max(n.StoMbps, m.StoMbps), max(n.IOCMilli, m.IOCMilli)
	}
	return n
}

func (pi *poolIndex) gpus() int {
	most := 0
	for i := range pi.rooms {
		most = max(most, len(pi.rooms[i].node.Devices))
	}
	return most
}

func newJudge(by judgedBy, mix *Mix) *judge {
	j := &judge{by: by, asks: map[askKey]int32{}, states: map[string]int32{}, scores: map[scoreKey]*scored{}, bare: map[bareKey][]int64{}}
	if by.placer == PlacerRagpIO {
		j.placer = placing.RagpIO()
		return j
	}
	known, counts := mix.with(&by)
	j.ragpx = placing.NewRagpX(known, placing.Churning(), uint64(by.seed))
	j.placer = j.ragpx
	j.due, j.room, j.empty = make([]int64, len(known.Kinds)), make([]int64, len(known.Kinds)), make([]int64, len(known.Kinds))
	for i := range known.Kinds {
		j.due[i] = placing.Micro
		if mix.SpanMs > 0 {
			j.due[i] += counts[i] * priceAheadMs / mix.SpanMs * placing.Micro
			j.due[i] += counts[i] * priceAheadMs % mix.SpanMs * placing.Micro / mix.SpanMs
		}
	}
	return j
}

// price sets what places of rare jobs are worth, by how many are left.
func (j *judge) price(rooms []room) {
	if j.ragpx == nil {
		return
	}
	clear(j.room)
	clear(j.empty)
	for i := range rooms {
		s := j.state(&rooms[i])
		for kind, places := range j.barePlaces(&rooms[i]) {
			j.empty[kind] += places
		}
		if rooms[i].node.Health == Healthy {
			j.ragpx.Places(&j.nodes[s-1], j.room)
		}
	}
	j.ragpx.Worth(len(rooms), j.empty)
	j.ragpx.Price(j.room, j.due)
}

// bareKey is what an empty node offers.
type bareKey struct {
	offer   amounts
	hbm     int64
	devices int
}

// barePlaces counts the places of each kind on a node with nobody on it. Nodes are of
// few makes, so it is worked out once for each.
func (j *judge) barePlaces(rm *room) []int64 {
	k := bareKey{rm.offer, rm.node.HBMMiB, len(rm.slots)}
	places, ok := j.bare[k]
	if !ok {
		none := room{node: rm.node, offer: rm.offer, dims: rm.dims, slots: make([]slot, len(rm.slots))} // no device of it dead
		n := none.standIn()
		places = make([]int64, len(j.empty))
		j.ragpx.Places(&n, places)
		j.bare[k] = places
	}
	return places
}

// state numbers what is left of a room once the ending have left it. Rooms of equal
// rest share a number.
func (j *judge) state(rm *room) int32 {
	if rm.state > 0 {
		return rm.state
	}
	n := rm.standIn()
	j.sorted = append(j.sorted[:0], n.Devices...)
	slices.SortFunc(j.sorted, func(a, b placing.Device) int {
		return cmp.Or(cmp.Compare(a.SM, b.SM), cmp.Compare(a.HBM, b.HBM))
	})
	j.key = j.key[:0]
	for d := range placing.Dims {
		j.key = binary.AppendVarint(binary.AppendVarint(j.key, n.Cap[d]), n.Free[d])
	}
	for _, d := range j.sorted {
		j.key = binary.AppendVarint(binary.AppendVarint(j.key, d.SM), d.HBM)
	}
	s, ok := j.states[string(j.key)]
	if !ok {
		j.nodes = append(j.nodes, n)
		s = int32(len(j.nodes))
		j.states[string(j.key)] = s
	}
	rm.state = s
	return s
}

// standIn is the room as placers see it: what stays and what is to come has its part,
// what is ending has left.
func (rm *room) standIn() placing.Node {
	n := placing.Node{Devices: make([]placing.Device, len(rm.slots))}
	whole := rm.node.amounts()
	whole[ofSto] = rm.node.StoMbps
	n.Cap = vectorOf(&whole, int64(len(rm.slots))*placing.WholeGPU, int64(len(rm.slots))*rm.node.HBMMiB)
	rest := rm.offer
	for k := range rm.dims {
		rest[k] = max(0, rest[k]-rm.rest[k].settled-rm.rest[k].nominated)
	}
	n.Free = vectorOf(&rest, 0, 0)
	for i := range rm.slots {
		s, d := &rm.slots[i], &n.Devices[i]
		if s.dead || s.settled+s.nominated >= placing.WholeGPU {
			continue
		}
		d.SM = placing.WholeGPU - s.settled - s.nominated
		d.HBM = rm.memoryLeft(s)
		n.Free[placing.SM] += d.SM
		n.Free[placing.HBM] += d.HBM
	}
	return n
}

// memoryLeft is what parts of a device have left of its memory.
func (rm *room) memoryLeft(s *slot) int64 {
	h := s.parts()
	return max(0, rm.node.HBMMiB-h.mem.settled-h.mem.nominated)
}

func vectorOf(a *amounts, sm, hbm int64) placing.Vector {
	return placing.Vector{
		placing.CPU: a[ofCPU], placing.RAM: a[ofRAM], placing.SM: sm, placing.HBM: hbm,
		placing.Net: a[ofNet], placing.Sto: a[ofSto], placing.IOC: a[ofIOC],
	}
}

// askOf is what one rank of a shape asks of a node whose devices have so much memory.
func askOf(sh *Shape, hbm int64) placing.Ask {
	a := placing.Ask{Count: int(sh.GPUs), Share: sh.milli()}
	if sh.GPUs > 0 {
		a.HBM = (&Node{HBMMiB: hbm}).pieceOf(a.Share, sh.HBMMiB, 0).hbm
	}
	want := sh.amounts()
	a.Demand = vectorOf(&want, sh.GPUs*a.Share, sh.GPUs*a.HBM)
	return a
}

func (j *judge) ask(sh *Shape, hbm int64) int32 {
	k := askKey{*sh, hbm}
	k.shape.Nodes = 1
	id, ok := j.asks[k]
	if !ok {
		id = int32(len(j.asked))
		j.asks[k] = id
		j.asked = append(j.asked, askOf(sh, hbm))
	}
	return id
}

// score judges a room that has place for what asks.
func (j *judge) score(rm *room, a *ask) *scored {
	state, shared := j.state(rm), a.shape.shared()
	if int(state) > len(j.seen) {
		j.seen = append(j.seen, make([]sight, len(j.nodes)-len(j.seen))...)
	}
	if s := &j.seen[state-1]; !shared && s.search == j.search {
		return s.score
	}
	k := scoreKey{state: state, ask: j.ask(a.shape, rm.node.HBMMiB)}
	node, want := &j.nodes[state-1], &j.asked[k.ask]
	if shared {
		s := &rm.slots[rm.pick(a)]
		k.left = placing.Device{SM: placing.WholeGPU - s.settled - s.nominated, HBM: rm.memoryLeft(s)}
	}
	got, ok := j.scores[k]
	switch {
	case !ok && shared:
		got = &scored{j.placer.On(node, want, []int{slices.Index(node.Devices, k.left)}), j.placer.Epoch()}
		j.scores[k] = got
	case !ok:
		got = &scored{j.placer.Score(node, want), j.placer.Epoch()}
		j.scores[k] = got
	case got.epoch != j.placer.Epoch():
		j.placer.Renew(&got.Score)
		got.epoch = j.placer.Epoch()
	}
	j.seen[state-1] = sight{j.search, got}
	return got
}

// fitted is a room with place and its score.
type fitted struct {
	room  int32
	score *scored
}

func (a fitted) compare(b fitted, rooms []room) int {
	return cmp.Or(cmp.Compare(b.score.Total, a.score.Total), cmp.Compare(a.score.Tie, b.score.Tie), cmp.Compare(rooms[a.room].node.ID, rooms[b.room].node.ID))
}

// beats says whether a room that was looked at later goes before another. Most do
// not: rooms of equal rest share a score, and the first of them stays.
func (a *fitted) beats(b *fitted, rooms []room) bool {
	return a.score != b.score && a.score.Total >= b.score.Total && a.compare(*b, rooms) < 0
}

// place chooses nodes for every rank of what asks, or gives nil. What it returns
// passes admits on each node. Cost: O(nodes), and O(nodes × log) for gangs.
func (pc *poolCycle) place(rooms []room, a *ask) ([]Placed, *Judged) {
	if pc.judge == nil {
		return bestFit(rooms, a), nil
	}
	return pc.judge.place(rooms, a, pc.s.Quiet)
}

func (j *judge) place(rooms []room, a *ask, quiet bool) ([]Placed, *Judged) {
	need := int(max(1, a.shape.Nodes))
	all := j.all[:0]
	for i := range rooms {
		if rooms[i].lacks(a) {
			continue
		}
		if why, _ := rooms[i].fit(a); why == FitsOK {
			all = append(all, fitted{room: int32(i)})
		}
	}
	if j.all = all; len(all) < need {
		return nil, nil
	}
	var why *Judged
	if !quiet {
		why = &Judged{Fitting: len(all)}
	}
	if len(all) > need {
		best, next := j.best(rooms, a, all, need, quiet)
		if !quiet {
			why.Nodes = append(shown(rooms, best[:min(need, shownChosen)], true), shown(rooms, next, false)...)
		}
		all = best
	}
	slices.SortFunc(all, func(a, b fitted) int { return cmp.Compare(a.room, b.room) })
	out := make([]Placed, need)
	for rank, f := range all {
		out[rank] = rooms[f.room].take(int32(rank), a)
	}
	return out, why
}

// best picks the best so many of the fitting rooms, best first, and the next of
// other states for the explanation.
func (j *judge) best(rooms []room, a *ask, all []fitted, need int, quiet bool) (top, next []fitted) {
	j.search++
	top = make([]fitted, 0, need+1)
	into := func(list []fitted, f fitted) []fitted {
		at, _ := slices.BinarySearchFunc(list, f, func(a, b fitted) int { return a.compare(b, rooms) })
		return slices.Insert(list, at, f)
	}
	for i := range all {
		f := &all[i]
		if f.score = j.score(&rooms[f.room], a); len(top) == need && !f.beats(&top[need-1], rooms) {
			continue
		}
		if top = into(top, *f); len(top) > need {
			top = top[:need]
		}
	}
	if quiet {
		return top, nil
	}
	shown := func(f fitted) func(fitted) bool { return func(o fitted) bool { return o.score == f.score } }
	for _, f := range all {
		if len(next) == shownBeside && !f.beats(&next[shownBeside-1], rooms) ||
			slices.ContainsFunc(top, shown(f)) || slices.ContainsFunc(next, shown(f)) {
			continue
		}
		if next = into(next, f); len(next) > shownBeside {
			next = next[:shownBeside]
		}
	}
	return top, next
}

const (
	shownChosen  = 4           // of a gang's nodes an explanation names so many
	shownBeside  = 3           // and so many of those passed over
	priceAheadMs = 30 * 60_000 // jobs of the next half hour make places scarce
)

func shown(rooms []room, list []fitted, chosen bool) []JudgedNode {
	var out []JudgedNode
	for _, f := range list {
		out = append(out, JudgedNode{Node: rooms[f.room].node.ID, Chosen: chosen, Total: f.score.Total, Terms: slices.Clone(f.score.Terms)})
	}
	return out
}

// finds says whether there is place for every rank of what asks.
func (pc *poolCycle) finds(a *ask) bool {
	left := max(1, a.shape.Nodes)
	for i := range pc.rooms {
		if pc.rooms[i].lacks(a) {
			continue
		}
		if why, _ := pc.rooms[i].fit(a); why == FitsOK {
			if left--; left == 0 {
				return true
			}
		}
	}
	return false
}
