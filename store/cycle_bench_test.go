package store

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkCycle is one whole round of the dispatcher against PostgreSQL: snapshot,
// decision, apply, with one job more before each round. The first has 16 nodes, 128
// running attempts and 300 waiting jobs of four projects (target: 15 ms); the second
// 1,024 nodes of 8 devices, all taken, and about 22,000 waiting jobs of 2,000
// projects, and takes minutes to set up.
func BenchmarkCycle(b *testing.B) {
	b.Run("16", func(b *testing.B) { benchmarkCycle(b, 16, 4, 107) })
	b.Run("1024", func(b *testing.B) { benchmarkCycle(b, 1024, 2000, 15) })
}

func benchmarkCycle(b *testing.B, nodes, projects, jobs int) {
	k := newSite(b, nodes)
	names := make([]string, projects)
	for i := range names {
		names[i] = fmt.Sprint("p", i)
		k.project(b, names[i], 40)
		for min := range int64(3) {
			k.submit(b, names[i], 1, 1, min*anHour, func(sub *Submission) { sub.Array = fmt.Sprint("1-", jobs/3) })
		}
	}
	for k.cycle(b).Started > 0 {
		k.claimAll(b)
	}
	var took []time.Duration
	i := 0
	for b.Loop() {
		b.StopTimer()
		k.submit(b, names[i%projects], 1, 1, anHour)
		k.pass(time.Second)
		i++
		began := time.Now()
		b.StartTimer()
		k.cycle(b)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
