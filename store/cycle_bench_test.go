package store

import (
	"testing"
	"time"
)

// BenchmarkCycle is one whole round of the dispatcher against PostgreSQL, with 16
// nodes, 128 running attempts and 300 waiting jobs of four projects, to which one
// is added before each round. Target: 15 ms.
func BenchmarkCycle(b *testing.B) {
	k := newSite(b, 16)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		k.project(b, name, 10_000)
	}
	for i := range 428 {
		k.submit(b, names[i%4], 1, 1, int64(i%3)*anHour)
	}
	k.cycle(b)
	k.claimAll(b)
	i := 0
	for b.Loop() {
		b.StopTimer()
		k.submit(b, names[i%4], 1, 1, anHour)
		k.pass(time.Second)
		i++
		b.StartTimer()
		k.cycle(b)
	}
}
