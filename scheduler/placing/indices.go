package placing

// Indices say how much of what is free is of little use. All are in millionths, from
// 0 (none of it) to 1.
type Indices struct {
	// Fit is the share of the capacity that the usual jobs could have if what is
	// free lay on one node, but on no single node have. The main index: full and
	// empty at once.
	//
	//	Σ_m p_m · max(0, P_m − K_m) / K_m(empty)
	//
	// K_m copies of job m fit, P_m would in the pooled rest.
	Fit int64 `json:"f_fit"`
	// GPU is the share of the GPUs that are free but not usable where they are,
	// for a usual job: Weng et al., "Beware of Fragmentation" (2023), with all
	// dimensions deciding what is feasible.
	GPU int64 `json:"f_gpu"`
	// Shape is how unlike the nodes' rests are beyond what the mix alone makes of
	// them: 4/(N·D) · Σ (ρ_nd − ρ_n. − ρ_.d + ρ_..)².
	Shape int64 `json:"f_shape"`
	// Raw is how uneven each rest is over the dimensions: 4/N · Σ_n Var_d(ρ_n).
	Raw int64 `json:"f_raw"`
}

// Measure works the indices out for nodes and the mix of jobs they get. ρ is what is
// left of Cap, which a caller sets to what a node can give now; dimensions that some
// node has nothing of are left out of Shape and Raw. Cost: O(nodes × (dims + kinds)).
func Measure(nodes []Node, m Mix) Indices {
	var x Indices
	if len(nodes) == 0 {
		return x
	}
	x.Shape, x.Raw = dispersion(nodes)
	x.Fit, x.GPU = misfit(nodes, &m), unusable(nodes, &m)
	return x
}

// shared lists the dimensions that every node has.
func shared(nodes []Node) []int {
	var dims []int
	for d := range Dims {
		all := true
		for i := range nodes {
			all = all && nodes[i].Cap[d] > 0
		}
		if all {
			dims = append(dims, d)
		}
	}
	return dims
}

func dispersion(nodes []Node) (shape, raw int64) {
	dims := shared(nodes)
	n, k := int64(len(nodes)), int64(len(dims))
	if k == 0 {
		return 0, 0
	}
	var ofDim [Dims]int64
	var all int64
	ofNode := make([]int64, len(nodes))
	for i := range nodes {
		for _, d := range dims {
			r := part(nodes[i].Free[d], nodes[i].Cap[d])
			ofNode[i] += r
			ofDim[d] += r
			all += r
		}
	}
	// ρ_nd − ρ_n. − ρ_.d + ρ_.., each mean with its own divisor
	for i := range nodes {
		var uneven int64
		for _, d := range dims {
			r := part(nodes[i].Free[d], nodes[i].Cap[d])
			off := r - ofNode[i]/k
			uneven += off * off
			off += all/(n*k) - ofDim[d]/n
			shape += off * off / Micro
		}
		raw += uneven / k / Micro
	}
	return min(Micro, 4*shape/(n*k)), min(Micro, 4*raw/n)
}

// misfit is Fit.
func misfit(nodes []Node, m *Mix) int64 {
	var sum, weight int64
	for i := range m.Kinds {
		a := &m.Kinds[i].Ask
		var pooled Vector
		var fit, empty int64
		for n := range nodes {
			if !a.Allows(nodes[n].Model) {
				continue
			}
			for d := range Dims {
				pooled[d] += nodes[n].Free[d]
			}
			fit += copies(&nodes[n], a)
			whole := nodes[n].emptied()
			empty += copies(&whole, a)
		}
		if empty == 0 {
			continue
		}
		weight += m.Kinds[i].Weight
		lost := max(0, pooledCopies(&pooled, a)-fit)
		sum += m.Kinds[i].Weight * min(Micro, lost*Micro/empty)
	}
	if weight == 0 {
		return 0
	}
	return sum / weight
}

// pooledCopies is how many of the ask the rest of all nodes would hold on one.
func pooledCopies(pooled *Vector, a *Ask) int64 {
	most := int64(-1)
	for d := range Dims {
		if a.Demand[d] > 0 && (most < 0 || pooled[d]/a.Demand[d] < most) {
			most = pooled[d] / a.Demand[d]
		}
	}
	return max(0, most)
}

// emptied is the node with nothing on it.
func (n *Node) emptied() Node {
	e := *n
	e.known, e.Free, e.Devices = nil, n.Cap, make([]Device, len(n.Devices))
	for i := range e.Devices {
		e.Devices[i] = Device{SM: n.Cap[SM] / int64(len(n.Devices)), HBM: n.Cap[HBM] / int64(len(n.Devices))}
	}
	return e
}

// unusable is GPU.
func unusable(nodes []Node, m *Mix) int64 {
	var gpus, sum int64
	for n := range nodes {
		gpus += nodes[n].Cap[SM]
	}
	if gpus == 0 || m.Total == 0 {
		return 0
	}
	for i := range m.Kinds {
		k := &m.Kinds[i]
		var lost int64
		for n := range nodes {
			lost += lostOn(&nodes[n], &k.Ask)
		}
		sum += k.Weight * (lost * Micro / gpus)
	}
	return sum / m.Total
}

// lostOn is the GPU left on a node that one kind of job cannot have there.
func lostOn(n *Node, a *Ask) int64 {
	if a.Count == 0 || !n.Fits(a) {
		return n.Free[SM]
	}
	var lost int64
	for _, d := range n.Devices {
		if !a.holds(d) {
			lost += d.SM
		}
	}
	return lost
}
