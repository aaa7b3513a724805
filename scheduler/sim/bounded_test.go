package sim

import (
	"context"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// A cycle's work is bounded, in steps and in starts. What it leaves out says so, and is not left
// out for ever: with a bound far too small every job still starts.
func TestABoundOnWorkStarvesNobody(t *testing.T) {
	p := scheduler.DefaultPolicy()
	p.MaxSteps, p.MaxStarts = 40, 3
	l := newLab(t, 8, Config{Policy: p, Start: Epoch, Seed: 12})
	var jobs []ledger.JobID
	for i := range 200 {
		leaf := []string{"a1", "a2", "b", "c"}[i%4]
		jobs = append(jobs, l.Submit(scheduler.Job{
			Project: l.leaf[leaf], Pool: l.pool, Member: ledger.PersonID(1 + i%3),
			Shape:    scheduler.Shape{Nodes: 1, GPUs: int64(1 + i%8), GPUMilli: 1000, CPUMilli: 4000, RAMMiB: 16_384},
			Contract: scheduler.Contract{MinMs: int64(i%3) * hour / 2, GraceMs: 60_000, Resumable: true, Urgency: int8(i % 2)},
		}, Behaviour{ForMs: hour, ExitMs: -1}))
	}
	cut, most := 0, int64(0)
	for range 3000 {
		l.Advance(l.Now().Add(60_000))
		if _, err := l.Cycle(context.Background()); err != nil {
			t.Fatal(err)
		}
		most = max(most, l.plan.Steps)
		if len(l.plan.Starts) > p.MaxStarts+1 { // the holder of the reserved start is no part of the queue
			t.Errorf("%d starts in a cycle, bound %d", len(l.plan.Starts), p.MaxStarts)
		}
		for i := range l.plan.Reasons {
			if l.plan.Reasons[i].Code == scheduler.WhyOutOfWork {
				cut++
			}
		}
	}
	if cut == 0 {
		t.Error("no cycle was cut short: the test shows little")
	}
	// One search may begin just before the bound: it looks at every room and every
	// unprotected attempt once.
	if most > p.MaxSteps+1000 {
		t.Errorf("%d steps, bound %d", most, p.MaxSteps)
	}
	for _, id := range jobs {
		if l.Life(id).Job != scheduler.JobOver {
			t.Errorf("job %d never finished", id)
		}
	}
}
