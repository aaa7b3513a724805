package placing

import (
	"cmp"
	"slices"
)

// Placer judges a node that fits an ask. The higher score wins. A Placer may
// keep a memory of its own, so it serves one caller at a time.
type Placer interface {
	// Score judges the node and picks its devices.
	Score(n *Node, a *Ask) Score
	// Epoch changes when scores of unchanged nodes do, for instance because a
	// price moved; Renew brings such a score up to date.
	Epoch() uint32
	Renew(s *Score)
}

// MaxTerms bounds what a score is made of.
const MaxTerms = 4

// Term is one part of a score under its name.
type Term struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"` // millionths
	Value  int64  `json:"value"`  // before the weight, in the placer's unit
}

// The names of terms.
const (
	TermFuture    = "future"    // stranded GPUs
	TermEvenness  = "evenness"  // variance of what is left over the dimensions
	TermCosine    = "cosine"    // likeness of demand and rest
	TermScarcity  = "scarcity"  // places of rare jobs
	TermTightness = "tightness" // mean of what is left
)

// Score is a node's worth for an ask.
type Score struct {
	Total   int64
	Terms   []Term // what Total is made of, for the question "why this node?"
	Tie     int64  // among equal totals the smaller wins, then the node's place in the list
	Devices []int

	losses []loss
}

// steady is a placer whose scores change only with their node.
type steady struct{}

// Epoch is always the same.
func (steady) Epoch() uint32 { return 0 }

// Renew has nothing to do.
func (steady) Renew(*Score) {}

// single is a score of one unweighted term.
func single(name string, value int64, devices []int) Score {
	return Score{Total: value, Terms: []Term{{name, Micro, value}}, Devices: devices}
}

// residual is the mean of what is left in millionths of what the node has, over
// the dimensions it has.
func residual(n *Node) int64 {
	sum, dims := int64(0), int64(0)
	for d := range Dims {
		if n.Cap[d] > 0 {
			sum += part(n.Free[d], n.Cap[d])
			dims++
		}
	}
	if dims == 0 {
		return 0
	}
	return sum / dims
}

// tieOf orders nodes of equal score: the smaller residual first, then by a mark
// of the state itself, so that neither names nor the order of nodes decide
// between different states. Nodes of equal state are as good as each other.
func tieOf(n *Node) int64 {
	mark := uint64(14695981039346656037) // FNV-1a over whole numbers
	add := func(v int64) {
		mark = (mark ^ uint64(v)) * 1099511628211
		mark ^= mark >> 29
	}
	for _, r := range n.Model {
		add(int64(r))
	}
	for d := range Dims {
		add(n.Cap[d])
		add(n.Free[d])
	}
	var room [32]Device
	for _, d := range sortedDevices(room[:0], n.Devices) {
		add(d.SM)
		add(d.HBM)
	}
	return residual(n)<<40 | int64(mark>>24)
}

// sortedDevices gives the devices by what is left, in the room given.
func sortedDevices(room, devices []Device) []Device {
	room = append(room, devices...)
	slices.SortFunc(room, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.SM, b.SM), cmp.Compare(a.HBM, b.HBM))
	})
	return room
}
