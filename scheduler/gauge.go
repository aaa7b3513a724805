package scheduler

import (
	"slices"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// Gauge is how much of what a pool has free is of little use, and how long its GPUs
// wait for data.
type Gauge struct {
	Pool ledger.PoolID
	Name string // of the pool
	placing.Indices
	FreeMilli  int64 // free GPUs of healthy nodes, 1/1000
	UnfitMilli int64 // of these, what no job of the mix can take where it is
	Mix        int64 // version of the mix; 0 = nothing is learnt yet
	Stall
}

// Stall is how long GPUs in use wait for data at most: as if their jobs did nothing
// but read.
type Stall struct {
	StallPPM int64
	Nodes    int // healthy nodes with GPUs in use
	Measured int // of them, those whose own readings say what moves
}

// Reading is what a node measures; below 0 what it cannot tell.
type Reading struct{ NetMbps, StoMbps int64 }

// PoolStand is a pool as it stands in a snapshot, for gauging it beside the next.
// It shares nothing with the snapshot.
type PoolStand struct {
	pool  ledger.PoolID
	name  string
	mix   int64
	kinds placing.Mix
	nodes []placing.Node
	ids   []ledger.NodeID
	feeds []feed
}

// feed is what a node gives and what its jobs ask for: network, storage, processors
// that move data; and the GPUs in use, 1/1000.
type feed struct {
	offer, asked [3]int64
	busy         int64
}

// Stands gives every pool that has healthy nodes as it stands in the snapshot. It is
// for who decides on the snapshot, between decisions.
func (s *Snapshot) Stands() []PoolStand {
	var out []PoolStand
	for _, pi := range s.index().pools {
		st := PoolStand{pool: pi.pool.ID, name: pi.pool.Name}
		for i := range pi.rooms {
			if rm := &pi.rooms[i]; rm.node.Health == Healthy {
				st.ids = append(st.ids, rm.node.ID)
				st.nodes = append(st.nodes, rm.alive())
				st.feeds = append(st.feeds, rm.feed())
			}
		}
		if len(st.nodes) == 0 {
			continue
		}
		m := s.mixOf(pi.pool.ID)
		st.mix, st.kinds = m.Version, m.learnt(&judgedBy{whole: pi.sizes(), gpus: pi.gpus()})
		out = append(out, st)
	}
	return out
}

// learnt is the mix of what was submitted alone; while nothing was, the one that is
// assumed.
func (m *Mix) learnt(by *judgedBy) placing.Mix {
	if len(m.Kinds) == 0 {
		known, _ := m.with(by)
		return known
	}
	kinds := make([]placing.Kind, len(m.Kinds))
	for i, k := range m.Kinds {
		kinds[i] = placing.Kind{Ask: askOf(&k.Shape, by.whole.HBMMiB), Weight: k.Ranks}
	}
	known, _ := placing.MixOf(kinds)
	return known
}

// alive is the room as placers see it, without its dead devices.
func (rm *room) alive() placing.Node {
	n := rm.standIn()
	kept := n.Devices[:0]
	for i := range rm.slots {
		if !rm.slots[i].dead {
			kept = append(kept, n.Devices[i])
		}
	}
	n.Devices = kept
	n.Cap[placing.SM], n.Cap[placing.HBM] = int64(len(kept))*placing.WholeGPU, int64(len(kept))*rm.node.HBMMiB
	return n
}

func (rm *room) feed() feed {
	var f feed
	for i, k := range []int{ofNet, ofSto, ofIOC} {
		f.offer[i], f.asked[i] = rm.offer[k], rm.rest[k].settled+rm.rest[k].ending
	}
	for i := range rm.slots {
		f.busy += rm.slots[i].settled + rm.slots[i].ending
	}
	return f
}

// Gauge works it out. readings are what nodes measured lately. Cost: O(nodes × kinds).
func (st *PoolStand) Gauge(readings map[ledger.NodeID]Reading) Gauge {
	g := Gauge{Pool: st.pool, Name: st.name, Mix: st.mix, Indices: placing.Measure(st.nodes, st.kinds)}
	for i := range st.nodes {
		n := &st.nodes[i]
		for d := range n.Devices {
			g.FreeMilli += n.Devices[d].SM
			if n.Devices[d].SM > 0 && !st.useful(n, n.Devices[d]) {
				g.UnfitMilli += n.Devices[d].SM
			}
		}
	}
	var busy, waits int64
	for i := range st.feeds {
		f := &st.feeds[i]
		if f.busy == 0 {
			continue
		}
		g.Nodes++
		r, ok := readings[st.ids[i]]
		if ok && max(r.NetMbps, r.StoMbps) >= 0 {
			g.Measured++
			f.measure(0, r.NetMbps)
			f.measure(1, r.StoMbps)
		}
		busy += f.busy
		waits += f.busy * f.waits() / 1000
	}
	if busy > 0 {
		g.StallPPM = waits * 1000 / busy
	}
	return g
}

// useful says whether some usual job can have a part of the device, or all of it.
func (st *PoolStand) useful(n *placing.Node, d placing.Device) bool {
	return slices.ContainsFunc(st.kinds.Kinds, func(k placing.Kind) bool {
		return k.Count > 0 && d.SM >= k.Share && d.HBM >= k.HBM && n.Fits(&k.Ask)
	})
}

// full is the part of a path from which on a reading says only that it is full, not
// how much was wanted.
const full = 950_000

// measure replaces what is declared by what was measured. A path that is full hides
// what is wanted beyond it: then the larger of the two counts.
func (f *feed) measure(path int, mbps int64) {
	switch {
	case mbps < 0:
	case mbps < f.offer[path]/1000*(full/1000):
		f.asked[path] = mbps
	default:
		f.asked[path] = max(f.asked[path], mbps)
	}
}

// waits is the part of the time that the node's GPUs wait, millionths: what is asked
// for beyond what the narrowest path gives.
func (f *feed) waits() int64 {
	least := int64(placing.Micro)
	for i := range f.offer {
		if f.offer[i] > 0 && f.asked[i] > f.offer[i] {
			least = min(least, f.offer[i]*placing.Micro/f.asked[i])
		}
	}
	return placing.Micro - least
}
