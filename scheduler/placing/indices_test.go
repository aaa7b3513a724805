package placing

import (
	"slices"
	"testing"
)

// two nodes with four whole GPUs each, half of a node's CPU per GPU.
func pair(free ...[]int64) []Node {
	var nodes []Node
	for _, f := range free {
		n := NewNode("n", "", Vector{CPU: 4000, RAM: 4000, SM: 4000, HBM: 4000}, 4)
		n.Free[SM], n.Free[HBM] = 0, 0
		for i, sm := range f {
			n.Devices[i] = Device{SM: sm, HBM: sm}
			n.Free[SM] += sm
			n.Free[HBM] += sm
		}
		n.Free[CPU], n.Free[RAM] = n.Free[SM], n.Free[SM]
		nodes = append(nodes, n)
	}
	return nodes
}

func gpus(count int) Ask {
	q := int64(count)
	return Ask{Demand: Vector{CPU: 1000 * q, RAM: 1000 * q, SM: 1000 * q, HBM: 1000 * q}, Count: count, Share: 1000, HBM: 1000}
}

// Half the GPUs are free. On one node, a job of four fits and nothing is lost; two and
// two, none does.
func TestIndicesByHand(t *testing.T) {
	whole, half := []int64{1000, 1000, 1000, 1000}, []int64{1000, 1000, 0, 0}
	none := []int64{0, 0, 0, 0}
	four, mixed := NewMix([]Ask{gpus(4)}), NewMix([]Ask{gpus(4), gpus(1), gpus(1), gpus(1)})
	parts := NewMix([]Ask{{Demand: Vector{CPU: 600, RAM: 600, SM: 600, HBM: 600}, Count: 1, Share: 600, HBM: 600}})
	for _, c := range []struct {
		name  string
		nodes []Node
		mix   Mix
		want  Indices
	}{
		{"empty", pair(whole, whole), mixed, Indices{}},
		{"full", pair(none, none), mixed, Indices{}},
		{"together", pair(whole, none), mixed, Indices{}},
		{"apart", pair(half, half), four, Indices{Fit: 500_000, GPU: 500_000}},                           // 1 of 2 jobs of four, 4 of 8 GPUs
		{"apart, mixed", pair(half, half), mixed, Indices{Fit: 125_000, GPU: 125_000}},                   // a quarter of the jobs
		{"slivers", pair([]int64{400, 400, 400, 400}, none), parts, Indices{Fit: 250_000, GPU: 200_000}}, // 2 of 8 parts pooled; 1.6 of 8 GPUs
	} {
		if got := Measure(c.nodes, c.mix); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// One node has lost its CPU, the other its GPUs: as unlike as nodes can be.
func TestDispersionByHand(t *testing.T) {
	nodes := pair([]int64{1000, 1000, 1000, 1000}, []int64{0, 0, 0, 0})
	for i := range nodes {
		nodes[i].Cap = Vector{CPU: 4000, SM: 4000}
	}
	nodes[0].Free = Vector{SM: 4000}
	nodes[1].Free = Vector{CPU: 4000}
	if got := Measure(nodes, Mix{}); got.Shape != Micro || got.Raw != Micro {
		t.Errorf("opposite nodes: %+v", got)
	}
	nodes[1].Free = Vector{SM: 4000} // both without CPU: the mix's doing, not the placement's
	if got := Measure(nodes, Mix{}); got.Shape != 0 || got.Raw != Micro {
		t.Errorf("alike nodes: %+v", got)
	}
	nodes[1].Cap[Sto], nodes[1].Free[Sto] = 100, 50 // only one of them has storage
	if got := Measure(nodes, Mix{}); got.Shape != 0 || got.Raw != Micro {
		t.Errorf("with storage on one: %+v", got)
	}
	if got := Measure(nil, Mix{}); got != (Indices{}) {
		t.Errorf("no nodes: %+v", got)
	}
}

// Whatever is placed, indices stay within 0 and 1, and the order of nodes changes
// nothing.
func TestIndicesAreBoundedAndKnowNoOrder(t *testing.T) {
	for seed := range uint64(20) {
		nodes, asks := world(seed)
		mix := NewMix(asks)
		board := NewBoard(nodes, asks, RagpIO(), true)
		for i := range asks {
			board.Place(i)
			x := Measure(board.Nodes, mix)
			for _, v := range []int64{x.Fit, x.GPU, x.Shape, x.Raw} {
				if v < 0 || v > Micro {
					t.Fatalf("seed %d, job %d: %+v", seed, i, x)
				}
			}
			other := clone(board.Nodes)
			slices.Reverse(other)
			if y := Measure(other, mix); x != y {
				t.Fatalf("seed %d, job %d: %+v, reversed %+v", seed, i, x, y)
			}
		}
	}
}
