package placing

import "math/bits"

// Cosine is RAGP as published: the node wins whose rest points the way the
// demand does, max cos(d/C, residual/C). Kaarat, Reddy Batthula, Segall, "Fitting
// the Void: Residual-Aware Geometric Packing for GenAI Workloads", 2026. With
// all seven dimensions it is ragp-io, without storage and the processors that
// move data ragp-5d.
type Cosine struct {
	steady
	Blind [Dims]bool // dimensions left out of both vectors; room is checked all the same
}

// RagpIO sees all seven dimensions.
func RagpIO() *Cosine { return &Cosine{} }

// Ragp5D is blind to storage and to the processors that move data.
func Ragp5D() *Cosine { return &Cosine{Blind: [Dims]bool{Sto: true, IOC: true}} }

// Score is the cosine in millionths.
func (c *Cosine) Score(n *Node, a *Ask) Score { return c.On(n, a, n.tight(a)) }

// On is the cosine, whatever the devices; they decide between equals.
func (c *Cosine) On(n *Node, a *Ask, devices []int) Score {
	s := single(TermCosine, cosine(n, a, &c.Blind), devices)
	var next Node
	n.after(&next, a, s.Devices)
	s.Tie = tieOf(&next)
	return s
}

// cosine of demand and rest, each in parts of the capacity, in millionths. A
// dimension the node has nothing of is in neither vector; one that is not asked
// for but left over stays and lowers the cosine.
func cosine(n *Node, a *Ask, blind *[Dims]bool) int64 {
	var dot, demand2, rest2 int64
	for d := range Dims {
		if n.Cap[d] <= 0 || blind[d] {
			continue
		}
		want := times(a.Demand[d], 1000*Micro, n.Cap[d]) // billionths: demands are small
		rest := part(n.Free[d], n.Cap[d])
		dot += want * rest
		demand2 += want * want
		rest2 += rest * rest
	}
	// The rest's length is kept with 9 more bits, so that it is not coarser than
	// a millionth when little is left.
	length := root(demand2)
	restLength := root(rest2 << 18)
	if length == 0 || restLength == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(dot), 512*Micro)
	first, _ := bits.Div64(high, low, uint64(length))
	return min(Micro, int64(first/uint64(restLength)))
}

// unevenness is the variance of what is left over the dimensions a node has, in
// parts of the capacity, in millionths.
func unevenness(n *Node) int64 {
	var sum, squares, dims int64
	for d := range Dims {
		if n.Cap[d] <= 0 {
			continue
		}
		rest := part(n.Free[d], n.Cap[d])
		sum += rest
		squares += rest * rest
		dims++
	}
	if dims == 0 {
		return 0
	}
	return (dims*squares - sum*sum) / (dims * dims) / Micro
}
