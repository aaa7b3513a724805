package placing

// FGD places where the expected fragment grows least. Weng et al., "Beware of
// Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
// Descent", USENIX ATC 2023.
//
// A node's fragment for a typical job m is all its free GPU if m asks for none,
// may not use the model, or finds too little CPU or too few devices; otherwise
// what is free on devices too small for m. Memory is ignored. Typical are the most frequent
// jobs that make up 95 % of the mix. The score is
// floor(100·sigmoid((F before - F after)/1000)), F in 1/1000 GPU.
type FGD struct {
	steady
	typical Mix
	all     bool // every dimension decides what is feasible
	next    Node
}

// NewFGDIn7 is fragmentation gradient descent with all dimensions, and all jobs of the
// mix: room for a typical job needs its memory, network and storage too.
func NewFGDIn7(m Mix) *FGD { return &FGD{typical: m, all: true} }

// NewFGDWithIO is FGD whose typical jobs need storage and the processors that move data
// too.
func NewFGDWithIO(m Mix) *FGD { return &FGD{typical: m.typical(95, Sto, IOC), all: true} }

// NewFGD judges by the mix.
func NewFGD(m Mix) *FGD { return &FGD{typical: m.typical(95)} }

// Score tries every device for a part of a GPU and keeps the first of the best.
// Equal totals go to the first node: the published figures need this rule.
func (f *FGD) Score(n *Node, a *Ask) Score {
	before := f.Fragment(n)
	if a.Count != 1 || a.Share >= WholeGPU {
		devices := n.tight(a)
		n.after(&f.next, a, devices)
		return single("fragment descent", f.squash(before-f.Fragment(&f.next)), devices)
	}
	best, top, last := 0, int64(-1), int64(-1)
	for i, d := range n.Devices {
		if !a.holds(d) || d.SM == last && n.Cap[HBM] == 0 {
			continue
		}
		last = d.SM
		n.after(&f.next, a, []int{i})
		if s := f.squash(before - f.Fragment(&f.next)); s > top {
			best, top = i, s
		}
	}
	return single("fragment descent", top, []int{best})
}

// Fragment is the node's expected fragment, in 1/1000 GPU times Weight.
func (f *FGD) Fragment(n *Node) int64 {
	var sum int64
	for i := range f.typical.Kinds {
		k := &f.typical.Kinds[i]
		if f.all {
			sum += k.Weight * lostOn(n, &k.Ask)
		} else {
			sum += k.Weight * fragment(n, &k.Ask)
		}
	}
	return sum
}

// Weight is what Fragment must be divided by.
func (f *FGD) Weight() int64 { return max(1, f.typical.Total) }

// fragment of one typical job.
func fragment(n *Node, m *Ask) int64 {
	if m.Count == 0 || n.Free[CPU] < m.Demand[CPU] || !m.Allows(n.Model) {
		return n.Free[SM]
	}
	var small int64
	room := 0
	for _, d := range n.Devices {
		if d.SM >= m.Share {
			room++
		} else {
			small += d.SM
		}
	}
	if room < m.Count {
		return n.Free[SM]
	}
	return small
}

// squash gives floor(100·sigmoid(x/1000/Weight)) from whole numbers alone: the
// score is at least k exactly when x/Weight is at least 1000·ln(k/(100-k)).
func (f *FGD) squash(x int64) int64 {
	low, high := int64(0), int64(99) // the score is in [low, high]
	weight := f.Weight()
	for low < high {
		k := (low + high + 1) / 2
		if x*1000 >= logit(k)*weight {
			low = k
		} else {
			high = k - 1
		}
	}
	return low
}

// logit is ln(k/(100-k)) in millionths, rounded up, for k of 1 to 99.
func logit(k int64) int64 {
	if k < 50 {
		return 1 - upper[50-k] // rounding up a negative number
	}
	return upper[k-50]
}

// upper[i] is ln((50+i)/(50-i)) in millionths, rounded up.
var upper = [50]int64{
	0, 40006, 80043, 120145, 160343, 200671, 241163, 281852, 322774, 363966,
	405466, 447313, 489549, 532217, 575365, 619040, 663295, 708186, 753772, 800120,
	847298, 895385, 944462, 994623, 1045969, 1098613, 1152680, 1208312, 1265667, 1324926,
	1386295, 1450011, 1516348, 1585628, 1658229, 1734602, 1815290, 1900959, 1992431, 2090742,
	2197225, 2313635, 2442348, 2586690, 2751536, 2944439, 3178054, 3476099, 3891821, 4595120,
}
