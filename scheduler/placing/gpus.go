package placing

import "math/bits"

// Packing fills GPUs in use before it opens idle ones, and nodes in use before
// idle nodes: the GpuPacking baseline of the FGD paper.
type Packing struct{ steady }

// Score is, on an idle node, 33 less its GPUs; where an idle GPU must be opened,
// 50 less those opened; on GPUs in use, 100 less a tenth of what they have free in
// percent. Jobs without GPUs score 0.
func (Packing) Score(n *Node, a *Ask) Score {
	devices := n.tight(a)
	if a.Count == 0 {
		return single("packing", 0, devices)
	}
	idle, free := 0, int64(0)
	for _, d := range n.Devices {
		if d.SM == WholeGPU {
			idle++
		} else {
			free += d.SM
		}
	}
	opened := 0
	for _, i := range devices {
		if n.Devices[i].SM == WholeGPU {
			opened++
		}
	}
	switch {
	case idle == len(n.Devices):
		return single("packing", int64(max(0, 33-idle)), devices)
	case opened > 0:
		return single("packing", int64(max(33, 50-opened)), devices)
	}
	return single("packing", max(50, 100-free/10/10), devices)
}

// Clustering keeps jobs with the same number of GPUs together: the GpuClustering
// baseline of the FGD paper.
type Clustering struct{ steady }

// Score has bands of 25: nodes with nothing but the same kind, nodes with it and
// others, empty nodes, nodes with other kinds only; within a band the fuller
// node is better. Jobs without GPUs score 0.
func (Clustering) Score(n *Node, a *Ask) Score {
	devices := n.tight(a)
	if a.Count == 0 {
		return single("clustering", 0, devices)
	}
	same := n.Tags>>a.Tag()&1 == 1
	band := int64(0)
	switch {
	case same && bits.OnesCount32(n.Tags) == 1:
		band = 75
	case same:
		band = 50
	case n.Tags == 0:
		band = 25
	}
	used := part(n.Cap[SM]-n.Free[SM], n.Cap[SM])
	return single("clustering", band+25*used/Micro, devices)
}
