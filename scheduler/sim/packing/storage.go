package packing

import (
	"fmt"
	"slices"

	"tranche/scheduler/placing"
)

// The synthetic storage of the trace, which has none: what a node's storage gives per
// GPU, how much more heavy kinds of jobs move per GPU than others, and how much a job
// asks for at most. In measured data one GPU's jobs take a quarter to three quarters
// of a network card, and what they ask for differs eight times.
const (
	nodeStorage  = 3000   // MB/s per GPU of a node
	heavyPercent = 35     // of the kinds
	heavyTimes   = 6      // as much per GPU as the others
	mostStorage  = 10_000 // MB/s, one job
	kindsSeed    = 35     // which kinds are heavy follows from it
)

// WithStorage gives nodes storage and jobs a demand for it, such that the list asks
// for loadPPM of the cluster's storage by the time it has asked for as much GPU as the
// cluster has. It refuses a load that jobs within their bounds do not reach.
func WithStorage(nodes []placing.Node, pods []Pod, loadPPM int64) ([]placing.Node, []Pod, error) {
	nodes, pods = slices.Clone(nodes), slices.Clone(pods)
	var gpus, storage, asked int64
	for i := range nodes {
		n := &nodes[i]
		n.Cap[placing.Sto] = nodeStorage * n.Cap[placing.SM] / placing.WholeGPU
		n.Free[placing.Sto] = n.Cap[placing.Sto]
		gpus += n.Cap[placing.SM]
		storage += n.Cap[placing.Sto]
	}
	for i := range pods {
		asked += pods[i].Demand[placing.SM]
	}
	if gpus == 0 || asked == 0 {
		return nil, nil, fmt.Errorf("without GPUs there is no storage to ask for")
	}
	want := storage / 100 * loadPPM / 10_000 * (asked / placing.WholeGPU) / (gpus / placing.WholeGPU) // of the whole list
	low, high := int64(0), int64(mostStorage)
	for low < high { // the largest rate of a light kind with which the list stays within it
		base := (low + high + 1) / 2
		if demandOf(pods, base) <= want {
			low = base
		} else {
			high = base - 1
		}
	}
	if low == mostStorage {
		return nil, nil, fmt.Errorf("a storage load of %d %% is more than its jobs can ask for", loadPPM/10_000)
	}
	for i := range pods {
		pods[i].Demand[placing.Sto] = pods[i].storage(low)
	}
	return nodes, pods, nil
}

func demandOf(pods []Pod, base int64) (sum int64) {
	for i := range pods {
		sum += pods[i].storage(base)
	}
	return sum
}

// storage is what a job asks for when light kinds move base MB/s per GPU.
func (p *Pod) storage(base int64) int64 {
	if p.Count == 0 {
		return 0
	}
	if p.heavy() {
		base *= heavyTimes
	}
	return min(mostStorage, base*p.Demand[placing.SM]/placing.WholeGPU)
}

// heavy says whether a job's kind moves much data: chance, the same in every run.
func (p *Pod) heavy() bool {
	mark := uint64(kindsSeed)
	for _, v := range []int64{p.Demand[placing.CPU], p.Demand[placing.RAM], int64(p.Count), p.Share} {
		d := placing.NewDice(mark ^ uint64(v))
		mark = mark*31 + uint64(d.Below(1<<30))
	}
	d := placing.NewDice(mark)
	return d.Below(100) < heavyPercent
}
