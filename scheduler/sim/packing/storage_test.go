package packing

import (
	"slices"
	"testing"

	"tranche/scheduler/placing"
)

func someWithStorage(t *testing.T, load int64) ([]placing.Node, []Pod) {
	t.Helper()
	nodes, pods := some(3)
	nodes, pods, err := WithStorage(nodes, pods, load)
	if err != nil {
		t.Fatal(err)
	}
	return nodes, pods
}

// some is a small cluster with a list that asks for twice as much.
func some(seed uint64) (nodes []placing.Node, pods []Pod) {
	dice := placing.NewDice(seed)
	for i := range 12 {
		nodes = append(nodes, placing.NewNode(string(rune('a'+i)), "", placing.Vector{placing.CPU: 96_000, placing.RAM: 400_000, placing.SM: 8000}, 8))
	}
	for range 400 {
		a := placing.Ask{Count: 1 + dice.Below(2), Share: placing.WholeGPU}
		if a.Count == 1 && dice.Below(2) == 0 {
			a.Share = int64(100 + 100*dice.Below(9))
		}
		a.Demand = placing.Vector{placing.CPU: int64(1000 * (1 + dice.Below(20))), placing.RAM: int64(1000 * (1 + dice.Below(60))), placing.SM: int64(a.Count) * a.Share}
		pods = append(pods, Pod{Ask: a})
	}
	return nodes, pods
}

// The list asks for the load that was wanted, heavy kinds six times as much per GPU,
// nobody for more than a job may.
func TestStorageLoadIsWhatWasAsked(t *testing.T) {
	for _, load := range []int64{300_000, 600_000, 900_000} {
		nodes, pods := someWithStorage(t, load)
		var gpus, has, gpu, asked int64
		for i := range nodes {
			gpus, has = gpus+nodes[i].Cap[placing.SM], has+nodes[i].Cap[placing.Sto]
		}
		light, heavy := int64(0), 0
		for i := range pods {
			gpu, asked = gpu+pods[i].Demand[placing.SM], asked+pods[i].Demand[placing.Sto]
			if pods[i].Demand[placing.Sto] > mostStorage {
				t.Errorf("a job asks for %d MB/s", pods[i].Demand[placing.Sto])
			}
			if pods[i].heavy() {
				heavy++
			} else if pods[i].Share == placing.WholeGPU && pods[i].Count == 1 {
				light = pods[i].Demand[placing.Sto]
			}
		}
		for i := range pods {
			if p := &pods[i]; p.heavy() && p.Count == 1 && p.Share == placing.WholeGPU && p.Demand[placing.Sto] != min(mostStorage, 6*light) {
				t.Errorf("a heavy job asks for %d MB/s, a light one for %d", p.Demand[placing.Sto], light)
			}
		}
		got := asked * (gpus / 1000) / (gpu / 1000) * 1000 / (has / 1000)
		if got > load || got < load*97/100 {
			t.Errorf("load %d ppm, want %d", got, load)
		}
		if part := 100 * heavy / len(pods); part < 20 || part > 50 {
			t.Errorf("%d %% of the jobs are heavy", part)
		}
	}
	nodes, pods := some(3)
	if _, _, err := WithStorage(nodes, pods, 100_000_000); err == nil {
		t.Error("a load beyond what jobs may ask for is accepted")
	}
	if nodes[0].Cap[placing.Sto] != 0 || pods[0].Demand[placing.Sto] != 0 {
		t.Error("the input was changed")
	}
	if _, _, err := WithStorage(nil, pods, 1); err == nil {
		t.Error("no nodes are accepted")
	}
}

// With storage too, remembered scores are those worked out afresh, and names and order
// of nodes decide nothing for ragp-x.
func TestStorageSeriesKnowNoOrder(t *testing.T) {
	nodes, pods := someWithStorage(t, 800_000)
	var asks []placing.Ask
	for i := range pods {
		asks = append(asks, pods[i].Ask)
	}
	series := func(nodes []placing.Node, cached bool) (out []int64) {
		nodes = slices.Clone(nodes)
		for i := range nodes {
			nodes[i].Devices = slices.Clone(nodes[i].Devices)
		}
		r := placing.NewRagpX(placing.NewMix(asks), placing.Saturating(), 1)
		b := placing.NewBoard(nodes, asks, r, cached)
		used := int64(0)
		for i := range asks {
			if i%50 == 0 {
				r.Refresh(b.Nodes, 20_000)
			}
			if _, ok := b.Place(i); ok {
				used += asks[i].Demand[placing.SM]
			}
			out = append(out, used)
		}
		return out
	}
	want := series(nodes, true)
	if got := series(nodes, false); !slices.Equal(got, want) {
		t.Error("remembered scores differ")
	}
	other := slices.Clone(nodes)
	slices.Reverse(other)
	for i := range other {
		other[i].Name = "x" + other[i].Name
	}
	if got := series(other, true); !slices.Equal(got, want) {
		t.Error("the order of nodes decides")
	}
}
