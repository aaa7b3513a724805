package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tranche/ledger"
)

// fleetSnapshot is a full fleet with a long queue. Of 16 nodes two hold a gang, two
// are shared in quarters of a device, the others run one job on each device; a
// tenth of what runs is unfunded, a tenth past its protection, the rest protected.
// The queue has 1 to 8 GPUs, quarters of a device, gangs of two to four nodes and
// a few of a quarter of the pool; four minimums, three urgencies, three members.
func fleetSnapshot(nodes, running, pending, projects int) *Snapshot {
	s := &Snapshot{Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, Name: "h100", RatePPM: 1_000_000}}}
	leaves := treeOf(s, projects)
	for i, g := range leaves {
		s.Funds = append(s.Funds, ledger.Funds{Project: g, Pool: 1, Path: fmt.Sprintf("/p%d", i), Lots: []ledger.Lot{{
			ID: ledger.LotID(i + 1), Project: g, Pool: 1, Period: 1, First: begun.Add(-anHour), Last: begun.Add(2000 * anHour), Available: 100_000 * ledger.GPUHour,
		}}})
		s.Usage = append(s.Usage, Usage{Pool: 1, Project: g, Funded: int64(i%97) * 3_600_000_000})
		for m := range 3 {
			s.Members = append(s.Members, MemberUsage{Pool: 1, Project: g, Member: ledger.PersonID(1 + m), Funded: int64(i%13*(m+1)) * 100_000_000, Share: 1})
		}
	}
	for i := range nodes {
		n := Node{ID: ledger.NodeID(i + 1), Name: "n", Pool: 1, Topology: fmt.Sprintf("rack%d/switch%d", i/128, i/32), CPUMilli: 64_000, RAMMiB: 524_288}
		for d := range 8 {
			n.Devices = append(n.Devices, Device{Index: int32(d)})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for n := 0; n < nodes && len(s.Live) < running; n++ {
		fillNode(s, n, running, leaves)
	}
	for i := range pending {
		s.Waiting = append(s.Waiting, pendingJob(running+i+1, i, nodes, leaves))
	}
	slices.SortFunc(s.Waiting, func(a, b Job) int { return byQueue(&a, &b) })
	return s
}

// fillNode puts jobs on one node, or on two for a gang.
func fillNode(s *Snapshot, n, running int, leaves []ledger.GroupID) {
	add := func(job Job, placed ...Placed) {
		if len(s.Live) < running {
			s.Live = append(s.Live, liveOf(job, placed))
		}
	}
	part := func(n, rank int, milli int64, devices ...int32) Placed {
		k := int64(len(devices)) * milli
		return Placed{Rank: int32(rank), Node: ledger.NodeID(n + 1), Devices: devices, GPUMilli: milli, CPUMilli: 4 * k, RAMMiB: k * 32_768 / 1000}
	}
	all := []int32{0, 1, 2, 3, 4, 5, 6, 7}
	project := func(i int) ledger.GroupID { return leaves[(i*13)%len(leaves)] }
	switch k := n % 16; {
	case k == 0:
		add(jobOf(len(s.Live)+1, project(n), 2, 8, 1000, anHour), part(n, 0, 1000, all...), part(n+1, 1, 1000, all...))
	case k == 1: // the gang's second node
	case k < 4:
		for i := range 32 {
			add(jobOf(len(s.Live)+1, project(n*8+i/4), 1, 1, 250, anHour), part(n, 0, 250, int32(i/4)))
		}
	default:
		for i := range int32(8) {
			add(jobOf(len(s.Live)+1, project(n*8+int(i)), 1, 1, 1000, anHour), part(n, 0, 1000, i))
		}
	}
}

func pendingJob(id, i, nodes int, leaves []ledger.GroupID) Job {
	onNodes, gpus, milli := int64(1), int64(1+i%3), int64(1000)
	switch i % 20 {
	case 5, 6:
		gpus = 8
	case 7:
		gpus, milli = 1, 250
	case 8:
		onNodes, gpus = int64(2+i%3), 8
	case 9:
		if i%1000 == 9 {
			onNodes, gpus = int64(nodes/4), 8
		}
	}
	minMs := int64(1+i%4) * 15 * aMinute
	if i%10 == 3 {
		minMs = 0
	}
	j := jobOf(id, leaves[(i*7)%len(leaves)], onNodes, gpus, milli, minMs)
	j.Member = ledger.PersonID(1 + i%3)
	j.Contract.Urgency = int8(i / 7 % 3)
	return j
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

func jobOf(id int, project ledger.GroupID, nodes, gpus, milli, minMs int64) Job {
	return Job{
		ID: ledger.JobID(id), Project: project, Pool: 1, Member: 1, QueueSeq: int64(id), Attempts: 0,
		Shape:    Shape{Nodes: nodes, GPUs: gpus, GPUMilli: milli, CPUMilli: 4 * gpus * milli, RAMMiB: gpus * milli * 32_768 / 1000},
		Rate:     ledger.Rate{MilliGPU: nodes * gpus * milli, PPM: 1_000_000},
		Contract: Contract{MinMs: minMs, GraceMs: aMinute, MaxMs: 168 * anHour, Resumable: true},
	}
}

func liveOf(job Job, placed []Placed) Live {
	i := int64(job.ID)
	job.Attempts = 1
	job.Contract.Urgency = int8(i / 7 % 3) // what runs came from the same queue
	l := Live{Job: job, N: 1, Attempt: ledger.AttemptID(job.ID), Phase: Running, Funded: i%10 != 0, Placed: placed}
	l.Started = begun.Add(-(i % 55) * aMinute)
	l.ProtectedUntil, l.HoldUntilMs = l.Started.Add(anHour), anHour
	if i%10 == 1 {
		l.Started = begun.Add(-70 * aMinute)
		l.ProtectedUntil, l.HoldUntilMs = l.Started.Add(anHour), 75*aMinute
	}
	return l
}

// timings collects whole decisions and reports them.
type timings []time.Duration

func (took timings) report(b *testing.B, plan *Plan) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	evictions := 0
	for i := range plan.Starts {
		evictions += len(plan.Starts[i].Evict)
	}
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(float64(len(plan.Starts)), "starts")
	b.ReportMetric(float64(evictions), "evictions")
	b.ReportMetric(float64(plan.Steps)/1000, "ksteps")
	unseen := 0
	for i := range plan.Reasons {
		if plan.Reasons[i].Code == WhyOutOfWork {
			unseen++
		}
	}
	b.ReportMetric(float64(unseen), "unseen") // jobs that the bound on work leaves to the next cycle
}

// BenchmarkDecide is one whole decision with all its reasons, from a snapshot as it
// comes from the database. steady: the eviction bucket holds what a second brings;
// burst: it is full, after a minute without evictions, and hundreds of starts with
// theirs fall into one cycle.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct{ nodes, running, pending, projects int }{
		{128, 1250, 2500, 250}, {512, 5000, 10_000, 1000}, {1024, 10_000, 20_000, 2000},
	} {
		for _, state := range []string{"steady", "burst"} {
			name := fmt.Sprintf("nodes=%d/running=%d/pending=%d/%s", size.nodes, size.running, size.pending, state)
			b.Run(name, func(b *testing.B) {
				s := fleetSnapshot(size.nodes, size.running, size.pending, size.projects)
				if state == "steady" {
					s.Bucket = Bucket{MilliTokens: s.Policy.EvictPerMinute * 1000 / 60, At: s.Now}
				}
				var took timings
				var plan Plan
				b.ReportAllocs()
				for b.Loop() {
					s.ix = nil
					from := time.Now()
					plan = Decide(s)
					took = append(took, time.Since(from))
				}
				took.report(b, &plan)
			})
		}
	}
}

// BenchmarkSlope shows how a decision grows with the queue and with what runs, with
// the evictions of one second.
func BenchmarkSlope(b *testing.B) {
	run := func(name string, running, pending int) {
		b.Run(name, func(b *testing.B) {
			s := fleetSnapshot(1024, running, pending, 2000)
			s.Bucket = Bucket{MilliTokens: s.Policy.EvictPerMinute * 1000 / 60, At: s.Now}
			var took timings
			var plan Plan
			for b.Loop() {
				s.ix = nil
				from := time.Now()
				plan = Decide(s)
				took = append(took, time.Since(from))
			}
			took.report(b, &plan)
		})
	}
	for _, pending := range []int{5000, 10_000, 20_000, 40_000} {
		run(fmt.Sprintf("running=10000/pending=%d", pending), 10_000, pending)
	}
	for _, running := range []int{2500, 5000, 10_000} {
		run(fmt.Sprintf("pending=20000/running=%d", running), running, 20_000)
	}
}
