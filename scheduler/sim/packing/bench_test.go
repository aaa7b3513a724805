package packing

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkPlace is one decision of ragp-x among the 1,213 nodes of the trace,
// while 130 % of their GPUs are asked for. Refreshing prices counts.
func BenchmarkPlace(b *testing.B) {
	nodes, pods := openb(b, "default.csv")
	o := Options{Nodes: nodes, Pods: pods, Policy: "tranche", Seed: 42}
	p, err := named(o.Policy)
	if err != nil {
		b.Fatal(err)
	}
	var spans []time.Duration
	r := newRun(o, p)
	b.ResetTimer()
	for range b.N {
		if r.arrived*100 >= 130*r.Capacity {
			b.StopTimer()
			r = newRun(o, p)
			b.StartTimer()
		}
		from := time.Now()
		if !r.next() {
			b.Fatal("no job comes")
		}
		spans = append(spans, time.Since(from))
	}
	slices.Sort(spans)
	b.ReportMetric(float64(spans[len(spans)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(spans[len(spans)-1].Microseconds())/1000, "max-ms")
}
