package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// busy is a fleet of 128 nodes with 1,000 running and about 2,000 pending jobs
// of 48 projects in 8 programs, in the middle of its work.
func busy(b *testing.B) *World {
	b.Helper()
	w := New(Config{Policy: scheduler.DefaultPolicy(), Start: Epoch, Seed: 1, Quiet: true})
	pool, err := w.AddPool("h100", 1_000_000, 1_000_000_000*ledger.GPUHour)
	if err != nil {
		b.Fatal(err)
	}
	root := w.AddGroup(0, "/lab", false)
	var projects []ledger.GroupID
	for range 8 {
		p := w.AddGroup(root, "/lab/p", false)
		for range 6 {
			projects = append(projects, w.AddGroup(p, "/lab/p/q", true))
		}
	}
	for i, g := range projects {
		if _, err := w.Award(g, pool, ledger.Amount(100_000+1000*i)*ledger.GPUHour, Epoch.Add(90*day)); err != nil {
			b.Fatal(err)
		}
	}
	for range 128 {
		w.AddNode(pool, "n", 8, 64_000, 524_288)
	}
	w.Ended = func(r *scheduler.Run) {
		if w.Life(r.Job).Job == scheduler.JobOver {
			w.submitOne(projects, pool)
		}
	}
	for range 3000 {
		w.submitOne(projects, pool)
	}
	for range 200 {
		w.Advance(w.now.Add(60_000))
		if _, err := w.Cycle(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	return w
}

func (w *World) submitOne(projects []ledger.GroupID, pool ledger.PoolID) {
	gpus := int64(1)
	if w.dice.upTo(99) == 0 {
		gpus = 4
	}
	minMs := 15 * 60_000 * (1 + w.dice.upTo(7))
	if w.dice.upTo(4) == 0 {
		minMs = 0
	}
	w.Submit(scheduler.Job{
		Project: projects[w.dice.upTo(int64(len(projects)-1))], Pool: pool, Member: ledger.PersonID(1 + w.dice.upTo(2)),
		Shape:    scheduler.Shape{Nodes: 1, GPUs: gpus, GPUMilli: 1000, CPUMilli: 8000 * gpus, RAMMiB: 65_536 * gpus},
		Contract: scheduler.Contract{MinMs: minMs, GraceMs: 60_000, Resumable: true},
	}, Behaviour{ForMs: hour + w.dice.upTo(5*hour), ExitMs: -1})
}

// BenchmarkCycle is the cost of a simulated cycle: one second passes, now and
// then a job ends or a protection does. quiet-p50-µs is the median of the cycles
// that started and stopped nothing, p50-µs that of all, evicting ones included.
func BenchmarkCycle(b *testing.B) {
	w := busy(b)
	b.ReportAllocs()
	b.ResetTimer()
	took := make([]time.Duration, 0, b.N)
	var quiet []time.Duration
	for range b.N {
		from := time.Now()
		w.Advance(w.now.Add(1000))
		report, err := w.Cycle(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(from))
		if len(report.Plan.Starts)+len(report.Plan.Stops) == 0 {
			quiet = append(quiet, took[len(took)-1])
		}
	}
	b.StopTimer()
	slices.Sort(took)
	if slices.Sort(quiet); len(quiet) > 0 {
		b.ReportMetric(float64(quiet[len(quiet)/2].Nanoseconds())/1000, "quiet-p50-µs")
		b.ReportMetric(100*float64(len(quiet))/float64(len(took)), "quiet-%")
	}
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
	if err := w.Check(); err != nil {
		b.Fatal(err)
	}
	running := 0
	for _, j := range w.jobs {
		if j.life.Job == scheduler.JobActive {
			running++
		}
	}
	b.ReportMetric(float64(running), "live")
	b.ReportMetric(float64(w.evictions)/float64(w.snap.Cycle), "evictions/cycle")
}
