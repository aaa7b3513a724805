package packing

import (
	"errors"
	"slices"

	"tranche/scheduler/placing"
)

// Marks are the instants that are read, in arrived GPU as a percentage of the
// cluster's. The last one ends a run.
func Marks() []int { return []int{50, 80, 90, 95, 100, 105, 110, 120, 130} }

// Options is one run.
type Options struct {
	Nodes  []placing.Node // empty ones; not changed
	Pods   []Pod
	Policy string
	Seed   uint64 // of the order of arrivals and of nodes
}

// Mark is what is read at an instant. GPUs are in 1/1000.
type Mark struct {
	ArrivedPct int
	Allocated  int64
	Idle       int64
	Fragment   int64 // of Idle, what the typical jobs could not use (FGD's measure)
}

// Result is what one run gave.
type Result struct {
	Capacity int64 // 1/1000 GPU
	Marks    []Mark
	Placed   int
	Lost     int
}

// Run plays one run. It is an error if the nodes have no GPUs, no job asks for one,
// or no policy has the name.
func Run(o Options) (Result, error) {
	p, err := named(o.Policy)
	if err != nil {
		return Result{}, err
	}
	r := newRun(o, p)
	if r.Capacity == 0 {
		return Result{}, errors.New("the nodes have no GPUs")
	}
	for _, mark := range Marks() {
		for r.arrived*100 < int64(mark)*r.Capacity {
			if !r.next() {
				return Result{}, errors.New("no job asks for GPUs")
			}
		}
		r.mark(mark)
	}
	return r.Result, nil
}

// run is a run under way.
type run struct {
	Result
	board   *placing.Board
	ragpx   *placing.RagpX // the placer, if it has prices
	learns  bool
	judge   *placing.FGD // measures fragments whatever the policy
	asks    []placing.Ask
	kind    []int // of each pod, its position in asks
	order   []int // pods still to come, last first
	dice    placing.Dice
	seen    []placing.Ask
	arrived int64 // 1/1000 GPU asked for so far
	used    int64
	priced  int64 // percent of arrivals at the last refresh of prices
	learnt  int64 // percent of arrivals at which the mix is learnt next
}

func newRun(o Options, p policy) *run {
	r := &run{dice: placing.NewDice(o.Seed), learns: p.learns, learnt: 2, priced: -1}
	all := make([]placing.Ask, len(o.Pods))
	for i := range o.Pods {
		all[i] = o.Pods[i].Ask
	}
	mix := placing.NewMix(all)
	for i := range mix.Kinds {
		r.asks = append(r.asks, mix.Kinds[i].Ask)
	}
	for i := range o.Pods {
		r.kind = append(r.kind, mix.Find(&o.Pods[i].Ask))
		r.order = append(r.order, i)
	}
	r.shuffle(len(r.order), func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
	nodes := slices.Clone(o.Nodes)
	for i := range nodes {
		nodes[i].Devices = slices.Clone(nodes[i].Devices)
		r.Capacity += nodes[i].Cap[placing.SM]
	}
	r.shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	given := mix
	if p.learns {
		given = placing.Mix{}
	}
	placer := p.placer(start{nodes: nodes, mix: given, seed: o.Seed})
	r.ragpx, _ = placer.(*placing.RagpX)
	r.judge = placing.NewFGD(mix)
	r.board = placing.NewBoard(nodes, r.asks, placer, true)
	return r
}

func (r *run) shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, r.dice.Below(i+1))
	}
}

// next lets one job arrive: the list in its shuffled order, then any of it again.
// It is false if the list cannot fill the cluster.
func (r *run) next() bool {
	var pod int
	switch n := len(r.order); {
	case n > 0:
		pod, r.order = r.order[n-1], r.order[:n-1]
	case r.arrived == 0:
		return false
	default:
		pod = r.dice.Below(len(r.kind))
	}
	r.prepare()
	kind := r.kind[pod]
	a := &r.asks[kind]
	r.arrived += a.Demand[placing.SM]
	if r.learns {
		r.seen = append(r.seen, *a)
	}
	if _, ok := r.board.Place(kind); !ok {
		r.Lost++
		return true
	}
	r.Placed++
	r.used += a.Demand[placing.SM]
	return true
}

// prepare learns the mix at 2, 4, 8, ... percent of arrivals, and refreshes prices
// at every percent.
func (r *run) prepare() {
	if r.ragpx == nil {
		return
	}
	percent := r.arrived * 100 / r.Capacity
	if r.learns && percent >= r.learnt {
		r.ragpx.Learn(placing.NewMix(r.seen))
		r.board.Forget()
		r.learnt, r.priced = r.learnt*2, -1
	}
	if percent > r.priced {
		// Jobs go on coming when the cluster is full, so some are always expected.
		r.ragpx.Refresh(r.board.Nodes, max(r.Capacity-r.used, r.Capacity/20))
		r.priced = percent
	}
}

// mark reads what is to be compared.
func (r *run) mark(arrived int) {
	m := Mark{ArrivedPct: arrived, Allocated: r.used, Idle: r.Capacity - r.used}
	for i := range r.board.Nodes {
		m.Fragment += r.judge.Fragment(&r.board.Nodes[i])
	}
	m.Fragment /= r.judge.Weight()
	r.Marks = append(r.Marks, m)
}
