package scheduler

import (
	"testing"

	"tranche/ledger"
)

// twoNodes have eight GPUs, 16,000 MB/s and 50,000 Mbit/s each; one job holds seven GPUs on each
// and asks for so much storage, and the mix knows jobs of two GPUs alone.
func twoNodes(stoMbps int64) *Snapshot {
	s := &Snapshot{Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, Name: "h100", RatePPM: 1_000_000}}}
	for id := ledger.NodeID(1); id <= 2; id++ {
		n := Node{ID: id, Pool: 1, CPUMilli: 64_000, RAMMiB: 512_000, NetMbps: 50_000, StoMbps: 16_000, HBMMiB: 81_920}
		p := Placed{Node: id, GPUMilli: 1000, CPUMilli: 56_000, RAMMiB: 448_000, Flow: Flow{StoMbps: stoMbps}}
		for d := range int32(8) {
			n.Devices = append(n.Devices, Device{Index: d})
			if d < 7 {
				p.Devices = append(p.Devices, d)
			}
		}
		s.Nodes = append(s.Nodes, n)
		s.Live = append(s.Live, Live{Job: Job{ID: ledger.JobID(id), Pool: 1}, N: 1, Phase: Running, Placed: []Placed{p}})
	}
	s.Mixes = []Mix{Learn(1, 7, anHour, []MixKind{{Shape: Shape{Nodes: 1, GPUs: 2, GPUMilli: 1000, CPUMilli: 16_000, RAMMiB: 128_000}, Ranks: 9}})}
	return s
}

// Two GPUs are free, one on each node, and the usual job wants two: none of it fits,
// though it would if they lay together. A dead device is no free one, and a node that
// takes nothing new counts not at all.
func TestGaugeSaysWhatIsOfNoUse(t *testing.T) {
	s := twoNodes(0)
	gauge := func() Gauge { return s.Stands()[0].Gauge(nil) }
	g := gauge()
	if g.FreeMilli != 2000 || g.UnfitMilli != 2000 || g.Mix != 7 {
		t.Errorf("free %d, of no use %d, mix %d", g.FreeMilli, g.UnfitMilli, g.Mix)
	}
	if g.Fit != 125_000 || g.GPU != 125_000 { // one copy of eight; two GPUs of sixteen
		t.Errorf("F_fit %d, F_gpu %d; want an eighth each", g.Fit, g.GPU)
	}
	s.Mixes = nil // one GPU is enough for some of what is assumed
	if s.ix = nil; gauge().UnfitMilli != 0 || gauge().Mix != 0 {
		t.Errorf("nothing is learnt: %+v", gauge())
	}
	s.Nodes[0].Devices[7].Dead = true
	if s.ix = nil; gauge().FreeMilli != 1000 {
		t.Errorf("a dead device is free: %+v", gauge())
	}
	s.Nodes[0].Health, s.Nodes[1].Health = Draining, Suspect
	if s.ix = nil; len(s.Stands()) != 0 {
		t.Error("a pool without a healthy node is gauged")
	}
}

// GPUs wait for what is asked beyond what the storage gives: measured where a node
// tells, declared where it does not, and the larger where the path is full.
func TestGaugeSaysHowLongGPUsWait(t *testing.T) {
	for _, c := range []struct {
		name     string
		declared int64
		leftPPM  int64
		said     map[ledger.NodeID]Reading
		stall    int64
		measured int
	}{
		{"declared, enough", 16_000, 0, nil, 0, 0},
		{"declared, a fifth too much", 20_000, 0, nil, 200_000, 0},
		{"degraded to a half", 16_000, 500_000, nil, 500_000, 0},
		{"one node measures little", 20_000, 0, map[ledger.NodeID]Reading{1: {NetMbps: -1, StoMbps: 8_000}}, 100_000, 1},
		{"both are full", 20_000, 0, map[ledger.NodeID]Reading{1: {100, 16_000}, 2: {100, 15_500}}, 200_000, 2},
		{"the network is too narrow", 100, 0, map[ledger.NodeID]Reading{1: {NetMbps: 100_000, StoMbps: 1}}, 250_000, 1},
		{"a node that cannot tell", 20_000, 0, map[ledger.NodeID]Reading{1: {-1, -1}}, 200_000, 0},
	} {
		s := twoNodes(c.declared)
		s.Nodes[0].StoPPM, s.Nodes[1].StoPPM = c.leftPPM, c.leftPPM
		g := s.Stands()[0].Gauge(c.said)
		if g.StallPPM != c.stall || g.Measured != c.measured || g.Nodes != 2 {
			t.Errorf("%s: %+v, want %d from %d", c.name, g.Stall, c.stall, c.measured)
		}
	}
}
