package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// fillingPool is a pool of 1,213 nodes and what comes to it: an eighth of its jobs take parts
// of a GPU, half one GPU, the rest two, four and eight, some with much storage. Its
// mix was learnt from the same.
func fillingPool() (*Snapshot, []Shape) {
	s := &Snapshot{Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, Name: "h100", RatePPM: 1_000_000}}, Groups: []Group{{ID: 1}, {ID: 2, Parent: 1, Path: "/a", Project: true}}}
	for i := range 1213 {
		n := Node{ID: ledger.NodeID(i + 1), Name: fmt.Sprintf("n%d", i+1), Pool: 1, CPUMilli: 112_000, RAMMiB: 1 << 20, HBMMiB: 80 << 10, NetMbps: 50_000, StoMbps: 16_000, IOCMilli: 12_000}
		if i%4 == 3 {
			n.StoMbps = 32_000
		}
		for d := range int32(8) {
			n.Devices = append(n.Devices, Device{Index: d})
		}
		s.Nodes = append(s.Nodes, n)
	}
	var kinds []Shape
	for i, gpus := range []int64{1, 1, 1, 1, 1, 2, 2, 4, 8} {
		for cores := range int64(4) {
			sh := Shape{Nodes: 1, GPUs: gpus, GPUMilli: 1000, CPUMilli: gpus * (4000 + 3000*cores), RAMMiB: gpus * (32 + 24*cores) << 10}
			sh.NetMbps, sh.StoMbps, sh.IOCMilli = gpus*1000*(1+cores), gpus*400*(1+cores*int64(i%2)), gpus*300*(1+cores)
			if i == 0 {
				sh.GPUMilli = 250 * (1 + cores%3)
				sh.HBMMiB = (10 + 8*cores) << 10
			}
			kinds = append(kinds, sh)
		}
	}
	dice := placing.NewDice(5)
	var jobs []Shape
	counts := map[Shape]int64{}
	for range 12_000 {
		k := kinds[dice.Below(len(kinds))]
		jobs = append(jobs, k)
		counts[k]++
	}
	var seen []MixKind
	for _, k := range kinds {
		seen = append(seen, MixKind{Shape: k, Ranks: counts[k]})
	}
	s.Mixes = []Mix{Learn(1, 1, 24*anHour, seen)}
	return s, jobs
}

// BenchmarkPlace is one decision of the dispatcher among 1,213 nodes: which node, with
// the prices of scarce places set anew every hundred. Jobs come one after the other
// into an empty pool; from 92 % of the GPUs on, the oldest leaves for each that comes.
// cold begins without what was worked out before, as after a change of leader.
func BenchmarkPlace(b *testing.B) {
	for _, placer := range []string{PlacerRagpX, PlacerRagpIO, PlacerBestFit} {
		for _, kept := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/%s", placer, map[bool]string{true: "kept", false: "cold"}[kept]), func(b *testing.B) {
				benchmarkPlace(b, placer, kept)
			})
		}
	}
}

func benchmarkPlace(b *testing.B, placer string, kept bool) {
	s, jobs := fillingPool()
	s.Policy.Placer = placer
	var memory Memory
	var spans []time.Duration
	var pc *poolCycle
	var run churn
	begin := func() {
		run = churn{}
		if !kept {
			memory = Memory{}
		}
		c := *s
		c.ix = nil
		c.Remember(&memory)
		c.Waiting = []Job{jobOf(1, 2, 1, 1, 1000, 0)} // somebody waits
		cy := &cycle{s: &c, p: &c.Policy, ix: c.index(), now: c.Now}
		pc = newPoolCycle(cy, cy.ix.pools[0])
		pc.own()
	}
	begin()
	at := 0
	if kept { // once through, so that it has something to remember
		for ; at < len(jobs); at++ {
			run.place(pc, &jobs[at])
		}
		begin()
		at = 0
	}
	b.ResetTimer()
	for range b.N {
		if at == len(jobs) {
			b.StopTimer()
			begin()
			at = 0
			b.StartTimer()
		}
		from := time.Now()
		if pc.judge != nil && at%100 == 0 {
			pc.judge.price(pc.rooms)
		}
		run.place(pc, &jobs[at])
		spans = append(spans, time.Since(from))
		at++
	}
	slices.Sort(spans)
	b.ReportMetric(float64(spans[len(spans)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(spans[len(spans)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(spans[len(spans)-1].Microseconds())/1000, "max-ms")
}

// churn is who is placed, oldest first.
type churn struct {
	placed []Placed
	gpus   int64
}

// place puts one rank of a shape on the best node, if any has room.
func (c *churn) place(pc *poolCycle, sh *Shape) {
	placed, _ := pc.place(pc.rooms, &ask{project: 2, shape: sh})
	for i := range placed {
		c.put(pc, &placed[i], 1)
		c.placed = append(c.placed, placed[i])
	}
	for c.gpus > 1213*8*1000*92/100 {
		c.put(pc, &c.placed[0], -1)
		c.placed = c.placed[1:]
	}
}

func (c *churn) put(pc *poolCycle, p *Placed, sign int64) {
	pc.rooms[pc.pi.roomOf[p.Node]].put(p, 2, Starting, sign)
	c.gpus += sign * p.GPUMilli * int64(len(p.Devices))
}
