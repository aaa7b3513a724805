package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// rooms of a small pool: whole, half full, nearly full, and two of equal rest.
func judgedPool() *Snapshot {
	s := &Snapshot{
		Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, Name: "h100", RatePPM: 1_000_000}},
		Groups: []Group{{ID: 1}, {ID: 2, Parent: 1, Path: "/a", Project: true}}, Shares: []Share{{Pool: 1, Group: 2, MicroGPU: 1_000_000}},
	}
	for i, taken := range []int64{0, 4, 7, 4, 2, 0} {
		n := Node{ID: ledger.NodeID(i + 1), Name: fmt.Sprintf("n%d", i+1), Pool: 1, CPUMilli: 64_000, RAMMiB: 524_288, HBMMiB: 80_000, StoMbps: 16_000}
		for d := range int32(8) {
			n.Devices = append(n.Devices, Device{Index: d})
		}
		s.Nodes = append(s.Nodes, n)
		if taken > 0 {
			p := Placed{Node: n.ID, GPUMilli: 1000, CPUMilli: 8000 * taken, RAMMiB: 65_536 * taken, Flow: Flow{StoMbps: 500 * taken}}
			for d := range int32(taken) {
				p.Devices = append(p.Devices, d)
			}
			s.Live = append(s.Live, liveOf(jobOf(100+i, 2, 1, taken, 1000, anHour), []Placed{p}))
		}
	}
	s.Mixes = []Mix{Learn(1, 1, anHour, []MixKind{
		{Shape: Shape{Nodes: 1, GPUs: 8, GPUMilli: 1000, CPUMilli: 64_000, RAMMiB: 524_288}, Ranks: 6},
		{Shape: Shape{Nodes: 1, GPUs: 1, GPUMilli: 1000, CPUMilli: 8000, RAMMiB: 65_536, Flow: Flow{StoMbps: 500}}, Ranks: 40},
	})}
	return s
}

// placeOf decides on one waiting job alone.
func placeOf(t *testing.T, s *Snapshot, sh Shape) *Start {
	t.Helper()
	j := jobOf(1, 2, 1, 1, 1000, 0)
	j.Shape, j.Contract.OrFree = sh, true
	s.Waiting = []Job{j}
	p := Decide(s.Flat())
	if len(p.Starts) != 1 {
		t.Fatalf("%d starts: %+v", len(p.Starts), p.Reasons)
	}
	return &p.Starts[0]
}

// A start is where the highest score is, says so, and its terms add up.
func TestAStartSaysHowItsNodeWasChosen(t *testing.T) {
	sh := Shape{Nodes: 1, GPUs: 1, GPUMilli: 1000, CPUMilli: 8000, RAMMiB: 65_536, Flow: Flow{StoMbps: 500}}
	for placer, terms := range map[string]int{PlacerRagpX: 4, PlacerRagpIO: 1, PlacerBestFit: 0} {
		s := judgedPool()
		s.Policy.Placer = placer
		got := placeOf(t, s, sh)
		if placer == PlacerBestFit {
			if got.Judged != nil || got.Placed[0].Node != 3 {
				t.Errorf("best fit went to %d: %+v", got.Placed[0].Node, got.Judged)
			}
			continue
		}
		j := got.Judged
		if j == nil || j.Fitting != 6 || len(j.Nodes) != 4 || !j.Nodes[0].Chosen || j.Nodes[0].Node != got.Placed[0].Node {
			t.Fatalf("%s: judged %+v", placer, j)
		}
		for i, n := range j.Nodes {
			sum := int64(0)
			for _, term := range n.Terms {
				sum += term.Weight * term.Value / placing.Micro
			}
			if sum != n.Total || len(n.Terms) != terms || i > 0 && (n.Chosen || n.Total > j.Nodes[i-1].Total) {
				t.Errorf("%s: place %d: %+v", placer, i, n)
			}
		}
	}
}

// What all nodes of a kind are called and how they are numbered decides nothing: the
// chosen node has the same rest.
func TestNumbersOfNodesDecideNothing(t *testing.T) {
	for _, sh := range []Shape{
		{Nodes: 1, GPUs: 1, GPUMilli: 1000, CPUMilli: 8000, RAMMiB: 65_536},
		{Nodes: 1, GPUs: 1, GPUMilli: 250, CPUMilli: 2000, RAMMiB: 16_384, Flow: Flow{HBMMiB: 30_000}},
		{Nodes: 1, GPUs: 3, GPUMilli: 1000, CPUMilli: 24_000, RAMMiB: 196_608, Flow: Flow{StoMbps: 6000}},
		{Nodes: 1, GPUs: 4, GPUMilli: 1000, CPUMilli: 1000, RAMMiB: 1024},
	} {
		want := placeOf(t, judgedPool(), sh).Judged.Nodes[0]
		s := judgedPool()
		last := ledger.NodeID(len(s.Nodes) + 1)
		for i := range s.Nodes {
			s.Nodes[i].ID, s.Nodes[i].Name = last-s.Nodes[i].ID, "m"
		}
		slices.Reverse(s.Nodes)
		for i := range s.Live {
			p := &s.Live[i].Placed[0]
			p.Node = last - p.Node
		}
		got := placeOf(t, s, sh).Judged.Nodes[0]
		if alike := map[ledger.NodeID]ledger.NodeID{1: 6, 2: 4, 4: 2, 6: 1}; got.Total != want.Total || got.Node != last-want.Node && got.Node != last-alike[want.Node] {
			t.Errorf("%+v: node %d of %d, renumbered %d of %d", sh, want.Node, want.Total, last-got.Node, got.Total)
		}
	}
}

// Whole nodes are kept for the jobs that need them as long as others do: the pool
// often gets jobs of eight GPUs.
func TestScarceWholeNodesAreKept(t *testing.T) {
	for gpus := int64(1); gpus <= 4; gpus++ {
		got := placeOf(t, judgedPool(), Shape{Nodes: 1, GPUs: gpus, GPUMilli: 1000, CPUMilli: 8000 * gpus, RAMMiB: 65_536 * gpus})
		if n := got.Placed[0].Node; n == 1 || n == 6 {
			t.Errorf("%d GPUs broke the whole node %d: %+v", gpus, n, got.Judged)
		}
	}
}

// Nothing that is remembered changes a decision, and a mix of another version, or
// another seed, starts the memory anew.
func TestMemoryOfScoresChangesNothing(t *testing.T) {
	var m Memory
	sh := Shape{Nodes: 1, GPUs: 1, GPUMilli: 500, CPUMilli: 4000, RAMMiB: 32_768}
	for round := range 6 {
		s := judgedPool()
		s.Policy.PlacerSeed += int64(round / 3)
		s.Mixes[0].Version += int64(round % 2)
		s.Mixes[0].Kinds[0].Ranks += int64(round % 2)
		j := jobOf(1, 2, 1, 1, 1000, 0)
		j.Shape = sh
		s.Waiting = []Job{j}
		fresh := Decide(s.Flat())
		s.Remember(&m)
		kept := Decide(s)
		if string(fresh.Bytes()) != string(kept.Bytes()) {
			t.Errorf("round %d: remembered %s, afresh %s", round, kept.Bytes(), fresh.Bytes())
		}
	}
}

func TestLearnCountsRanksAndKeepsTheFrequent(t *testing.T) {
	var shapes []MixKind
	for i := range int64(MostKinds + 50) {
		shapes = append(shapes, MixKind{Shape: Shape{Nodes: 1 + i%3, GPUs: 1, GPUMilli: 1000, CPUMilli: 1000 + i, RAMMiB: 1}, Ranks: 1 + i})
	}
	m := Learn(1, 7, anHour, shapes)
	slices.Reverse(shapes)
	if again := Learn(1, 7, anHour, shapes); !slices.Equal(again.Kinds, m.Kinds) || m.Version != 7 || m.SpanMs != anHour {
		t.Error("the order of shapes decides")
	}
	if len(m.Kinds) != MostKinds || m.Kinds[0].Ranks != 3*(MostKinds+49) || m.Kinds[0].Shape.Nodes != 1 {
		t.Errorf("%d kinds, the most frequent %+v", len(m.Kinds), m.Kinds[0])
	}
	if !slices.IsSortedFunc(m.Kinds, func(a, b MixKind) int { return int(b.Ranks - a.Ranks) }) {
		t.Error("not most frequent first")
	}
}

func TestDeviationRoundsUp(t *testing.T) {
	for n, want := range map[int64]int64{-4: 0, 0: 0, 1: 1, 2: 2, 4: 2, 5: 3, 9: 3, 10: 4, 1 << 40: 1 << 20, 1<<40 + 1: 1<<20 + 1, 1 << 62: 1 << 31} {
		if got := placing.Deviation(n); got != want {
			t.Errorf("√%d = %d, want %d", n, got, want)
		}
	}
}
