package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"tranche/ledger"
)

// fleetSnapshot is a full fleet with a long queue: every node runs something,
// most of it protected, a tenth past protection, a tenth unfunded.
func fleetSnapshot(nodes, running, pending, projects int) *Snapshot {
	s := &Snapshot{Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, Name: "h100", RatePPM: 1_000_000}}}
	leaves := treeOf(s, projects)
	for i, g := range leaves {
		s.Funds = append(s.Funds, ledger.Funds{Project: g, Pool: 1, Path: fmt.Sprintf("/p%d", i), Lots: []ledger.Lot{{
			ID: ledger.LotID(i + 1), Project: g, Pool: 1, Period: 1, First: begun.Add(-anHour), Last: begun.Add(2000 * anHour), Available: 100_000 * ledger.GPUHour,
		}}})
		s.Usage = append(s.Usage, Usage{Pool: 1, Project: g, Funded: int64(i%97) * 3_600_000_000})
	}
	for i := range nodes {
		n := Node{ID: ledger.NodeID(i + 1), Name: "n", Pool: 1, CPUMilli: 64_000, RAMMiB: 524_288}
		for d := range 8 {
			n.Devices = append(n.Devices, Device{Index: int32(d)})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range running {
		s.Live = append(s.Live, liveOf(i, nodes, running, leaves))
	}
	for i := range pending {
		s.Waiting = append(s.Waiting, jobOf(running+i+1, leaves[(i*7)%len(leaves)], 1+int64(i%3), int64(1+i%4)*15*aMinute))
	}
	slices.SortFunc(s.Waiting, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.QueueSeq, b.QueueSeq))
	})
	return s
}

// treeOf builds a tree six deep with so many projects below it.
func treeOf(s *Snapshot, projects int) []ledger.GroupID {
	add := func(parent ledger.GroupID, project bool) ledger.GroupID {
		id := ledger.GroupID(len(s.Groups) + 1)
		s.Groups = append(s.Groups, Group{ID: id, Parent: parent, Path: fmt.Sprintf("/g%d", id), Project: project})
		s.Shares = append(s.Shares, Share{Pool: 1, Group: id, MicroGPU: int64(1+id%5) * 1_000_000})
		return id
	}
	level := []ledger.GroupID{add(0, false)}
	for range 4 {
		var next []ledger.GroupID
		for _, p := range level {
			for range 3 {
				next = append(next, add(p, false))
			}
		}
		level = next
	}
	var leaves []ledger.GroupID
	for i := range projects {
		leaves = append(leaves, add(level[i%len(level)], true))
	}
	return leaves
}

func jobOf(id int, project ledger.GroupID, gpus, minMs int64) Job {
	return Job{
		ID: ledger.JobID(id), Project: project, Pool: 1, Member: 1, QueueSeq: int64(id), Attempts: 0,
		Shape:    Shape{Nodes: 1, GPUs: gpus, GPUMilli: 1000, CPUMilli: 4000 * gpus, RAMMiB: 32_768 * gpus},
		Rate:     ledger.Rate{MilliGPU: 1000 * gpus, PPM: 1_000_000},
		Contract: Contract{MinMs: minMs, GraceMs: aMinute, MaxMs: 168 * anHour, Resumable: true},
	}
}

func liveOf(i, nodes, running int, leaves []ledger.GroupID) Live {
	l := Live{Job: jobOf(i+1, leaves[(i*13)%len(leaves)], 1, anHour), N: 1, Attempt: ledger.AttemptID(i + 1), Phase: Running, Funded: i%10 != 0}
	l.Started = begun.Add(-int64(i%55) * aMinute)
	l.ProtectedUntil, l.HoldUntilMs = l.Started.Add(anHour), anHour
	if i%10 == 1 {
		l.Started = begun.Add(-70 * aMinute)
		l.ProtectedUntil, l.HoldUntilMs = l.Started.Add(anHour), 75*aMinute
	}
	slot := i * nodes * 8 / running
	l.Placed = []Placed{{Node: ledger.NodeID(slot/8 + 1), Devices: []int32{int32(slot % 8)}, GPUMilli: 1000, CPUMilli: 4000, RAMMiB: 32_768}}
	return l
}

// BenchmarkDecide is one whole decision with all its reasons, from a snapshot
// as it comes from the database.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct{ nodes, running, pending, projects int }{
		{128, 1000, 2000, 200}, {512, 4000, 8000, 800}, {1024, 8192, 20_000, 2000},
	} {
		b.Run(fmt.Sprintf("nodes=%d", size.nodes), func(b *testing.B) {
			s := fleetSnapshot(size.nodes, size.running, size.pending, size.projects)
			var took []time.Duration
			var plan Plan
			b.ReportAllocs()
			for b.Loop() {
				s.ix = nil
				from := time.Now()
				plan = Decide(s)
				took = append(took, time.Since(from))
			}
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
			b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
			b.ReportMetric(float64(len(plan.Starts)), "starts")
		})
	}
}
