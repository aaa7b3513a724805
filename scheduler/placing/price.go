package placing

import "math"

// prices says what it costs to take away the last places of rare jobs: those of
// several GPUs, and those that need certain models. With A copies of job m that
// still fit on all nodes together and D copies expected, a copy is worth
// q·s·min(1, D/A)² GPUs: next to nothing while there is plenty, its whole size
// when it gets scarce.
type prices struct {
	mix     Mix
	gpu     int64            // of the mix, 1/1000 GPU
	rare    []int            // kinds with a price
	onModel map[string][]int // of rare, those that may use the model
	unit    []int64          // per kind, what a copy is worth when scarce, millionths
	worth   []int64          // per kind, what it is worth now
	epoch   uint32
}

// loss is copies of a kind that no longer fit.
type loss struct {
	kind   int
	copies int64
}

func newPrices(m Mix, epoch uint32, relative bool) *prices {
	p := &prices{mix: m, gpu: m.gpu(), onModel: map[string][]int{}, worth: make([]int64, len(m.Kinds)), unit: make([]int64, len(m.Kinds)), epoch: epoch}
	for i := range m.Kinds {
		if !relative {
			p.unit[i] = m.Kinds[i].Demand[SM] * (Micro / WholeGPU)
		}
		if k := &m.Kinds[i]; k.Count > 1 || k.Count > 0 && len(k.Models) > 0 {
			p.rare = append(p.rare, i)
		}
	}
	return p
}

// refresh sets the prices from what is left on the nodes. expected is the GPU
// that jobs still to come will ask for, 1/1000 GPU.
func (p *prices) refresh(nodes []Node, expected int64) {
	if p.gpu == 0 {
		p.epoch++
		return
	}
	room, due := make([]int64, len(p.worth)), make([]int64, len(p.worth))
	for i := range nodes {
		for _, kind := range p.on(nodes[i].Model) {
			room[kind] += copies(&nodes[i], &p.mix.Kinds[kind].Ask)
		}
	}
	for _, kind := range p.rare {
		// D = (weight/total)·expected/(gpu/total)
		due[kind] = times(times(p.mix.Kinds[kind].Weight, expected, 1), Micro, p.gpu)
	}
	p.price(room, due)
}

// price sets what a copy of each rare kind is worth: its GPU times min(1, D/A)²
// with A places and D copies expected, these in millionths.
func (p *prices) price(room, due []int64) {
	p.epoch++
	for _, kind := range p.rare {
		scarcity := int64(Micro)
		if room[kind] > 0 {
			scarcity = min(Micro, due[kind]/room[kind])
		}
		p.worth[kind] = times(scarcity*scarcity/Micro, p.unit[kind], Micro)
	}
}

// on lists the priced kinds that may use the model.
func (p *prices) on(model string) []int {
	list, ok := p.onModel[model]
	if !ok {
		for _, kind := range p.rare {
			if p.mix.Kinds[kind].Allows(model) {
				list = append(list, kind)
			}
		}
		p.onModel[model] = list
	}
	return list
}

// places counts, for every rare kind on the node's model, how many more fit.
func (p *prices) places(n *Node) []int64 {
	var all []int64
	for _, kind := range p.on(n.Model) {
		all = append(all, copies(n, &p.mix.Kinds[kind].Ask))
	}
	return all
}

// losses compares the places there were with what fits after.
func (p *prices) losses(places []int64, after *Node) []loss {
	var all []loss
	for i, kind := range p.on(after.Model) {
		if places[i] == 0 {
			continue
		}
		if lost := places[i] - copies(after, &p.mix.Kinds[kind].Ask); lost > 0 {
			all = append(all, loss{kind, lost})
		}
	}
	return all
}

// of is what the losses cost, in millionths of a GPU.
func (p *prices) of(all []loss) int64 {
	var sum int64
	for _, l := range all {
		sum += l.copies * p.worth[l.kind]
	}
	return sum
}

// copies is how many of the ask fit on what is left of the node, whose model
// allows it.
func copies(n *Node, a *Ask) int64 {
	most := int64(math.MaxInt64)
	for d := range Dims {
		if a.Demand[d] > n.Free[d] {
			return 0
		}
		if a.Demand[d] > 0 && d != SM && d != HBM {
			most = min(most, n.Free[d]/a.Demand[d])
		}
	}
	var onDevices int64
	for _, d := range n.Devices {
		if !a.holds(d) {
			continue
		}
		fit := d.SM / max(1, a.Share)
		if a.HBM > 0 {
			fit = min(fit, d.HBM/a.HBM)
		}
		onDevices += fit
	}
	return min(most, onDevices/int64(max(1, a.Count)))
}
