package placing

import (
	"math"
	"testing"
)

// Each placer's formula on two nodes, worked out by hand. a is half empty with a
// part of a GPU free; b is empty.
func TestBaselines(t *testing.T) {
	a, b := node("a", 16000, 600, 1000, 0, 0), node("b", 32000, 1000, 1000, 1000, 1000)
	a.Tags = 1 // a part of a GPU runs there
	for i, n := range []*Node{&a, &b} {
		// memory of devices and RAM are other tests' matter
		n.Cap[RAM], n.Free[RAM], n.Cap[HBM], n.Free[HBM] = 0, 0, 0, 0
		for d := range n.Devices {
			n.Devices[d].HBM = 0
		}
		_ = i
	}
	largest := LargestOf([]Node{a, b})
	half := ask(8000, 1, 500) // a quarter of the cores, an eighth of the GPUs
	for _, c := range []struct {
		name   string
		placer Placer
		a, b   int64
		device int // on a
	}{
		// a: rest after 8000/32000 and 1100/4000; b: 24000/32000, 3500/4000
		{"scalar", Scalar{}, (250_000 + 275_000) / 2, (750_000 + 875_000) / 2, 0},
		{"best fit", BestFit{Largest: largest}, 73, 18, 0}, // 100 - 26.25, 100 - 81.25
		// a: 0.5·0.25 + 0.4·0.125; b: 1·0.25 + 1·0.125
		{"tetris", Tetris{}, 175_000, 375_000, 0},
		{"dot product", DotProduct{Largest: largest}, 91, 81, 0}, // 100 - 8.75, 100 - 18.75
		{"packing", Packing{}, 94, 29, 0},                        // 100 - 60/10, 33 - 4
		{"clustering", Clustering{}, 75 + 15, 25, 0},             // 25·0.6 in the band
	} {
		onA, onB := c.placer.Score(&a, &half), c.placer.Score(&b, &half)
		if onA.Total != c.a || onB.Total != c.b {
			t.Errorf("%s: %d and %d, want %d and %d", c.name, onA.Total, onB.Total, c.a, c.b)
		}
		if onA.Devices[0] != c.device || len(onA.Terms) != 1 || onA.Terms[0].Value != c.a {
			t.Errorf("%s: %+v", c.name, onA)
		}
	}
	whole := ask(0, 1, 1000)
	if s := (Packing{}).Score(&a, &whole); s.Total != 49 {
		t.Errorf("opening one idle GPU scores %d, want 49", s.Total)
	}
	if s := (Clustering{}).Score(&a, &whole); s.Total != 15 {
		t.Errorf("beside another kind scores %d, want 15", s.Total)
	}
}

func TestCosine(t *testing.T) {
	n := node("n", 16000, 1000, 0) // rest: half the cores, all RAM, half the GPU and its memory
	for _, c := range []struct {
		demand Vector
		want   float64
	}{
		{Vector{CPU: 1600, RAM: 6554, SM: 100, HBM: 8000}, 0.9999999}, // the rest's own direction: (.05,.1,.05,.05)
		{Vector{CPU: 32}, 0.5 / math.Sqrt(0.25*3+1)},
		{Vector{CPU: 32, SM: 2}, (0.5 + 0.5) / math.Sqrt(2) / math.Sqrt(0.25*3+1)},
		{Vector{}, 0},
	} {
		a := Ask{Demand: c.demand}
		var blind [Dims]bool
		if got := cosine(&n, &a, &blind); math.Abs(float64(got)-c.want*Micro) > 30 {
			t.Errorf("%v: cosine %d, want %.0f", c.demand, got, c.want*Micro)
		}
	}
}

// What is blind to storage sees no difference where only storage differs.
func TestRagp5DIsBlindToStorage(t *testing.T) {
	a, b := node("a", 16000, 1000), node("b", 16000, 1000)
	a.Cap[Sto], a.Free[Sto], b.Cap[Sto], b.Free[Sto] = 100, 100, 100, 10
	job := ask(8000, 1, 500)
	if s, u := Ragp5D().Score(&a, &job), Ragp5D().Score(&b, &job); s.Total != u.Total {
		t.Errorf("ragp-5d: %d and %d", s.Total, u.Total)
	}
	if s, u := RagpIO().Score(&a, &job), RagpIO().Score(&b, &job); s.Total >= u.Total {
		t.Errorf("ragp-io: %d with storage left over, %d without", s.Total, u.Total)
	}
	job.Demand[Sto] = 11
	if b.Fits(&job) {
		t.Error("room is not checked in the blind dimension")
	}
}

func TestFGDFragment(t *testing.T) {
	mix := NewMix([]Ask{ask(4000, 1, 500), ask(4000, 1, 500), ask(8000, 2, 1000), ask(2000, 0, 0)})
	f := NewFGD(mix)
	n := node("n", 8000, 300, 1000, 700)
	// Halves (twice): 300 is too little for them. Two whole GPUs: none, so all 2000.
	// Without GPU: all 2000. In all 2·300 + 2000 + 2000.
	if got := f.Fragment(&n); got != 4600 || f.Weight() != 4 {
		t.Errorf("fragment %d of %d, want 4600 of 4", got, f.Weight())
	}
	n.Free[CPU] = 3999 // nothing with a GPU gets its cores
	if got := f.Fragment(&n); got != 4*2000 {
		t.Errorf("without cores %d, want 8000", got)
	}
}

// A part of a GPU goes to the device where the fragment shrinks most, the first
// of equals.
func TestFGDScore(t *testing.T) {
	f := NewFGD(NewMix([]Ask{ask(0, 1, 500)}))
	n := node("n", 8000, 1000, 700, 700)
	small := ask(0, 1, 200)
	// 1000 → 800: 0 → 0, sigmoid(0) = 50. 700 → 500: 0 → 0 too. First of equals: 0.
	if s := f.Score(&n, &small); s.Total != 50 || s.Devices[0] != 0 {
		t.Errorf("score %d on %v, want 50 on the first", s.Total, s.Devices)
	}
	large := ask(0, 1, 700)
	// 1000 → 300: fragment +300, floor(100·sigmoid(-0.3)) = 42. 700 → 0: 50.
	if s := f.Score(&n, &large); s.Total != 50 || s.Devices[0] != 1 {
		t.Errorf("score %d on %v, want 50 on the second", s.Total, s.Devices)
	}
	whole := ask(0, 1, 1000)
	if s := f.Score(&n, &whole); s.Total != 50 || s.Devices[0] != 0 {
		t.Errorf("score %d on %v", s.Total, s.Devices)
	}
}

// The whole-number sigmoid is the real one.
func TestFGDSquash(t *testing.T) {
	f := &FGD{typical: Mix{Total: 7}}
	for x := int64(-70_000); x <= 70_000; x += 13 {
		want := math.Floor(100 / (1 + math.Exp(-float64(x)/7000)))
		if got := f.squash(x); got != int64(want) {
			t.Fatalf("%d/7: %d, want %.0f", x, got, want)
		}
	}
	if f.squash(0) != 50 || f.squash(-1<<40) != 0 || f.squash(1<<40) != 99 {
		t.Error("the ends are wrong")
	}
}

func TestTypicalIsTheMostFrequentPart(t *testing.T) {
	var asks []Ask
	for i := range 100 {
		a := ask(1000, 1, 500)
		a.Demand[RAM] = int64(i) // ignored
		if i >= 60 {
			a = ask(2000, 1, 500)
		}
		if i >= 96 {
			a = ask(3000, 1, int64(100+i)) // each once
		}
		asks = append(asks, a)
	}
	mix := NewMix(asks)
	got := mix.typical(95)
	if len(got.Kinds) != 2 || got.Kinds[0].Weight != 60 || got.Kinds[1].Weight != 36 || got.Total != 96 {
		t.Errorf("typical: %+v", got)
	}
}
