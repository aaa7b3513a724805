package placing

import (
	"slices"
	"testing"
)

// node is a machine with 32 cores, 64 GiB and GPUs of 80 GiB of which the given
// compute is left; memory of the devices is left in the same part.
func node(name string, freeCPU int64, free ...int64) Node {
	count := int64(len(free))
	n := NewNode(name, "G", Vector{CPU: 32000, RAM: 65536, SM: count * WholeGPU, HBM: count * 80000}, len(free))
	n.Free[CPU], n.Free[SM], n.Free[HBM] = freeCPU, 0, 0
	for i, f := range free {
		n.Devices[i] = Device{SM: f, HBM: f * 80}
		n.Free[SM] += f
		n.Free[HBM] += f * 80
	}
	return n
}

// ask is a job with cores and count parts of GPUs.
func ask(cpu int64, count int, share int64) Ask {
	return Ask{Demand: Vector{CPU: cpu, SM: int64(count) * share}, Count: count, Share: share}
}

func TestFits(t *testing.T) {
	with := func(a Ask, change func(*Ask)) Ask { change(&a); return a }
	n := node("n", 8000, 500, 500, 1000)
	for _, c := range []struct {
		name string
		ask  Ask
		want bool
	}{
		{"all that is left", ask(8000, 1, 1000), true},
		{"too many cores", ask(8001, 1, 500), false},
		{"enough in sum, on no device", ask(0, 1, 1001), false},
		{"two whole GPUs from halves", ask(0, 2, 1000), false},
		{"another model", with(ask(0, 1, 500), func(a *Ask) { a.Models = []string{"H", "K"} }), false},
		{"the model among others", with(ask(0, 1, 500), func(a *Ask) { a.Models = []string{"G", "H"} }), true},
		{"a model does not matter without GPUs", with(ask(1, 0, 0), func(a *Ask) { a.Models = []string{"H"} }), true},
		{"compute here, memory there", with(ask(0, 1, 500), func(a *Ask) { a.HBM, a.Demand[HBM] = 80001, 80001 }), false},
		{"memory of the whole device", with(ask(0, 1, 10), func(a *Ask) { a.HBM, a.Demand[HBM] = 80000, 80000 }), true},
		{"of what the node has nothing of", with(ask(0, 0, 0), func(a *Ask) { a.Demand[Sto] = 1 }), false},
		{"nothing", ask(0, 0, 0), true},
	} {
		if got := n.Fits(&c.ask); got != c.want {
			t.Errorf("%s: fits is %v", c.name, got)
		}
	}
}

func TestTightPicksTheDeviceThatLeavesLeast(t *testing.T) {
	n := node("n", 8000, 1000, 600, 500, 1000)
	n.Devices[2].HBM = 80000 // little compute left, all memory: more is left of it
	for _, c := range []struct {
		ask  Ask
		want []int
	}{
		{ask(0, 1, 400), []int{1}},
		{ask(0, 1, 700), []int{0}},
		{ask(0, 2, 1000), []int{0, 3}},
		{ask(0, 0, 0), nil},
	} {
		if got := n.tight(&c.ask); !slices.Equal(got, c.want) {
			t.Errorf("%d of %d: devices %v, want %v", c.ask.Count, c.ask.Share, got, c.want)
		}
	}
}

func TestTakeKeepsWhatItCameFrom(t *testing.T) {
	n := node("n", 8000, 1000, 600)
	a := ask(1000, 1, 600)
	var next Node
	n.after(&next, &a, []int{1})
	if next.Free[CPU] != 7000 || next.Free[SM] != 1000 || next.Devices[1].SM != 0 || next.Tags != 1 {
		t.Errorf("after: %+v", next)
	}
	if n.Devices[1].SM != 600 || n.Free[SM] != 1600 || n.Tags != 0 {
		t.Errorf("before has changed: %+v", n)
	}
}

func TestFixedPoint(t *testing.T) {
	for _, c := range [][2]int64{{0, 0}, {1, 1}, {3, 1}, {4, 2}, {15, 3}, {16, 4}, {1<<62 - 1, 1<<31 - 1}, {1 << 62, 1 << 31}} {
		if got := root(c[0]); got != c[1] {
			t.Errorf("root of %d is %d", c[0], got)
		}
	}
	if got := times(1<<40, 1<<40, 1<<50); got != 1<<30 {
		t.Errorf("times gives %d", got)
	}
	if floorDiv(-1, 3) != -1 || floorDiv(-3, 3) != -1 || floorDiv(5, 3) != 1 {
		t.Error("floorDiv does not round down")
	}
}
