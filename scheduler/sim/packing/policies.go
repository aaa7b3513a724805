package packing

import (
	"fmt"
	"slices"
	"strings"

	"tranche/scheduler/placing"
)

// futuresSeed fixes the random futures of ragp-x; it is not the seed of a run.
const futuresSeed = 20230901

// policy is a way to place under the name it has in reports.
type policy struct {
	name   string
	learns bool // its mix is learnt from arrivals instead of given
	placer func(start) placing.Placer
}

// start is what a placer may know before the first job.
type start struct {
	nodes []placing.Node
	mix   placing.Mix
	seed  uint64
}

// policies lists all of them, ours first.
func policies() []policy {
	ragpx := func(w placing.Weights) func(start) placing.Placer {
		return func(s start) placing.Placer { return placing.NewRagpX(s.mix, w, futuresSeed) }
	}
	return []policy{
		{"tranche", false, ragpx(placing.Saturating())},
		{"tranche_learnt", true, ragpx(placing.Saturating())},
		{"tranche_cosine", false, ragpx(placing.SaturatingCosine())},
		{"ragp_io", false, func(start) placing.Placer { return placing.RagpIO() }},
		{"ragp_5d", false, func(start) placing.Placer { return placing.Ragp5D() }},
		{"fgd", false, func(s start) placing.Placer { return placing.NewFGD(s.mix) }},
		{"fgd_io", false, func(s start) placing.Placer { return placing.NewFGDWithIO(s.mix) }},
		{"bestfit_io", false, func(start) placing.Placer { return placing.Tightest{} }},
		{"bestfit", false, func(s start) placing.Placer { return placing.BestFit{Largest: placing.LargestOf(s.nodes)} }},
		{"gpupacking", false, func(start) placing.Placer { return placing.Packing{} }},
		{"gpuclustering", false, func(start) placing.Placer { return placing.Clustering{} }},
		{"dotprod", false, func(s start) placing.Placer { return placing.DotProduct{Largest: placing.LargestOf(s.nodes)} }},
		{"tetris", false, func(start) placing.Placer { return placing.Tetris{} }},
		{"scalar", false, func(start) placing.Placer { return placing.Scalar{} }},
		{"random", false, func(s start) placing.Placer { return placing.NewRandom(s.seed) }},
	}
}

// Names lists the policies.
func Names() []string {
	var all []string
	for _, p := range policies() {
		all = append(all, p.name)
	}
	return all
}

func named(name string) (policy, error) {
	all := policies()
	if i := slices.IndexFunc(all, func(p policy) bool { return p.name == name }); i >= 0 {
		return all[i], nil
	}
	return policy{}, fmt.Errorf("no policy is called %q; there are %s", name, strings.Join(Names(), ", "))
}
