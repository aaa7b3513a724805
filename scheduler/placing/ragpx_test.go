package placing

import (
	"slices"
	"testing"
)

// world is a small random cluster and what comes to it.
func world(seed uint64) ([]Node, []Ask) {
	dice := NewDice(seed)
	var nodes []Node
	for i := range 12 {
		count := 1 << dice.Below(4)
		n := NewNode("n"+string(rune('a'+i)), []string{"G", "H"}[dice.Below(2)], Vector{
			CPU: int64(count) * 8000, RAM: int64(count) * 64000, SM: int64(count) * WholeGPU,
			HBM: int64(count) * 80000, Sto: int64(dice.Below(2)) * 16000, IOC: 8000,
		}, count)
		nodes = append(nodes, n)
	}
	var asks []Ask
	for range 30 {
		share, count := int64(100*(1+dice.Below(10))), 1
		if share == WholeGPU {
			count = 1 << dice.Below(4)
		}
		a := ask(int64(1000*(1+dice.Below(8))), count, share)
		a.HBM = int64(8000 * max(0, dice.Below(12)-6))
		a.Demand[HBM] = a.HBM * int64(count)
		a.Demand[RAM] = int64(8000 * dice.Below(5))
		a.Demand[IOC] = int64(dice.Below(800))
		if dice.Below(4) == 0 {
			a.Models = []string{"H"}
		}
		asks = append(asks, a)
	}
	asks = append(asks, ask(2000, 0, 0))
	return nodes, asks
}

// clone copies nodes with their devices.
func clone(nodes []Node) []Node {
	all := slices.Clone(nodes)
	for i := range all {
		all[i].Devices = slices.Clone(all[i].Devices)
	}
	return all
}

// fill plays 90 jobs and gives where each went and its score.
func fill(nodes []Node, asks []Ask, seed uint64, cached bool) (where []string, totals []int64) {
	r := NewRagpX(NewMix(asks), Saturating(), 7)
	b := NewBoard(clone(nodes), asks, r, cached)
	dice := NewDice(seed)
	for i := range 90 {
		if i%10 == 0 {
			r.Refresh(b.Nodes, 5000)
		}
		if i == 45 {
			r.Learn(NewMix(asks[:15]))
			b.Forget()
			r.Refresh(b.Nodes, 5000)
		}
		if !cached {
			clear(r.futures.memo)
			for i := range b.Nodes {
				b.Nodes[i].known = nil
			}
		}
		c, ok := b.Place(dice.Below(len(asks)))
		if !ok {
			where, totals = append(where, "-"), append(totals, 0)
			continue
		}
		where, totals = append(where, b.Nodes[c.Node].Name), append(totals, c.Total)
	}
	return where, totals
}

// What is remembered is what would be worked out anew, prices and learning included.
func TestCachedScoreIsTheScore(t *testing.T) {
	for seed := range uint64(20) {
		nodes, asks := world(seed)
		where, totals := fill(nodes, asks, seed, true)
		anew, anewTotals := fill(nodes, asks, seed, false)
		if !slices.Equal(where, anew) || !slices.Equal(totals, anewTotals) {
			t.Fatalf("seed %d: with memory %v %v, without %v %v", seed, where, totals, anew, anewTotals)
		}
	}
}

// Neither the order of nodes nor their names decide: every job gets a node with
// the same score, or none.
func TestOrderAndNamesDecideNothing(t *testing.T) {
	for seed := range uint64(40) {
		nodes, asks := world(seed)
		_, want := fill(nodes, asks, seed, true)
		other := clone(nodes)
		slices.Reverse(other)
		for i := range other {
			other[i].Name = "m" + other[i].Name
		}
		if _, got := fill(other, asks, seed, true); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, in other order %v", seed, want, got)
		}
	}
}

// A score is the sum of its weighted terms, so that "why this node?" adds up.
func TestTermsAddUp(t *testing.T) {
	nodes, asks := world(3)
	for _, w := range []Weights{Saturating(), SaturatingCosine()} {
		r := NewRagpX(NewMix(asks), w, 7)
		r.Refresh(nodes, 5000)
		judged := 0
		for i := range nodes {
			for j := range asks {
				if !nodes[i].Fits(&asks[j]) {
					continue
				}
				judged++
				s, sum := r.Score(&nodes[i], &asks[j]), int64(0)
				for _, term := range s.Terms {
					sum += weigh(term.Weight, term.Value)
				}
				if sum != s.Total || len(s.Terms) != MaxTerms {
					t.Errorf("terms %+v do not add up to %d", s.Terms, s.Total)
				}
			}
		}
		if judged == 0 {
			t.Fatal("nothing fits anywhere")
		}
	}
}

// With jobs of 0.6 GPU only, an empty GPU strands 0.4; one with 0.4 left is lost.
func TestStrandedByHand(t *testing.T) {
	mix := NewMix([]Ask{ask(0, 1, 600)})
	f := newFutures(mix, 1)
	for _, c := range []struct {
		free []int64
		want int64
	}{
		{[]int64{1000}, 400},
		{[]int64{1000, 1000}, 800},
		{[]int64{600, 500}, 500},
		{[]int64{400}, 400},
		{[]int64{0}, 0},
		{[]int64{1000, 0}, 400},
		{[]int64{500, 500}, 1000}, // as much in sum as the one before
	} {
		n := node("n", 32000, c.free...)
		for i := range n.Devices {
			n.Devices[i].HBM = 0 // so that compute alone tells states apart
		}
		if got := f.stranded(&n); got != c.want*sequences {
			t.Errorf("%v strands %d/%d, want %d", c.free, got, sequences, c.want)
		}
	}
}

func TestScarcityPrice(t *testing.T) {
	pair := ask(0, 2, 1000)
	mix := NewMix([]Ask{pair, pair, ask(0, 1, 500)}) // 4500 in all
	p := newPrices(mix, 0, false)
	nodes := []Node{node("a", 32000, 1000, 1000, 1000, 1000), node("b", 32000, 1000, 1000)}
	at := mix.Find(&pair)
	for _, c := range []struct{ expected, worth int64 }{
		{100_000, 2 * Micro}, // far more pairs expected than the three there is room for
		{3375, 2 * Micro / 4},
		{0, 0},
	} {
		// D = 2·expected/4500 copies; 3375 make 1.5 of 3: half, squared a quarter
		if p.refresh(nodes, c.expected); p.worth[at] != c.worth {
			t.Errorf("%d expected: worth %d, want %d", c.expected, p.worth[at], c.worth)
		}
	}
	after := nodes[1]
	var next Node
	a := ask(0, 1, 500)
	after.after(&next, &a, []int{0})
	if got := p.losses(p.places(&nodes[1]), &next); len(got) != 1 || got[0].copies != 1 {
		t.Errorf("losses %+v, want the one pair of b", got)
	}
}
