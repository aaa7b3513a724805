package placing

// Scalar balances load: the node wins on which most is left on average over its
// dimensions, as the LeastAllocated strategy of Kubernetes does.
type Scalar struct{ steady }

// Score is the mean of what is left, in millionths.
func (Scalar) Score(n *Node, a *Ask) Score {
	devices := n.tight(a)
	var next Node
	n.after(&next, a, devices)
	return single("left", residual(&next), devices)
}

// Tightest is best fit over all dimensions a node has: least is left on average.
type Tightest struct{ steady }

// Score is the mean of what is taken, in millionths.
func (Tightest) Score(n *Node, a *Ask) Score {
	s := Scalar{}.Score(n, a)
	return single("taken", Micro-s.Total, s.Devices)
}

// Tetris takes the largest dot product of demand and rest, both in parts of the
// machine. Grandl et al., "Multi-resource packing for cluster schedulers",
// SIGCOMM 2014 (the alignment part; jobs come one by one here).
type Tetris struct{ steady }

// Score is the alignment, in millionths.
func (Tetris) Score(n *Node, a *Ask) Score {
	var dot int64
	for d := range Dims {
		if n.Cap[d] > 0 {
			dot += part(n.Free[d], n.Cap[d]) * times(a.Demand[d], 1000*Micro, n.Cap[d]) / (1000 * Micro)
		}
	}
	return single("alignment", dot, n.tight(a))
}

// Largest is the most any node of a cluster has of CPU and GPU: the yardstick of
// the baselines below.
type Largest struct{ CPU, GPU int64 }

// LargestOf reads it off the nodes.
func LargestOf(nodes []Node) Largest {
	l := Largest{1, 1}
	for i := range nodes {
		l.CPU = max(l.CPU, nodes[i].Cap[CPU])
		l.GPU = max(l.GPU, nodes[i].Cap[SM])
	}
	return l
}

// DotProduct is the baseline of the FGD paper (dimensions merged, normalised by
// the largest): floor(100·(1 - (c·dc/C² + g·dg/G²)/2)). It prefers the smallest
// dot product, the reverse of Tetris.
type DotProduct struct {
	steady
	Largest Largest
}

// Score is 0 to 100.
func (p DotProduct) Score(n *Node, a *Ask) Score {
	const nano = 1000 * Micro
	dot := times(n.Free[CPU], nano, p.Largest.CPU)*times(a.Demand[CPU], nano, p.Largest.CPU) +
		times(n.Free[SM], nano, p.Largest.GPU)*times(a.Demand[SM], nano, p.Largest.GPU)
	return single("100 - dot product", floorDiv(2*nano*nano-dot, 2*nano*nano/100), n.tight(a))
}

// BestFit leaves least: 0.5·(c-dc)/C + 0.5·(g-dg)/G is smallest, as an integer
// of 0 to 100.
type BestFit struct {
	steady
	Largest Largest
}

// Score is 0 to 100.
func (p BestFit) Score(n *Node, a *Ask) Score {
	left := part(n.Free[CPU]-a.Demand[CPU], p.Largest.CPU) + part(n.Free[SM]-a.Demand[SM], p.Largest.GPU)
	return single("100 - left", floorDiv(2*Micro-left, 2*Micro/100), n.tight(a))
}
