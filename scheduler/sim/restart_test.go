package sim

import (
	"context"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// lateEnd reports an end long after it happened, by the launcher's own clock.
func (w *World) lateEnd(t *testing.T, id ledger.JobID, elapsedMs int64) {
	t.Helper()
	j := w.jobs[id]
	for i := range j.life.Run.Members {
		ev := scheduler.Event{
			Kind: scheduler.EvFinished, Rank: j.life.Run.Members[i].Rank, ElapsedMs: elapsedMs,
			Funds: w.fundsOf(j.spec.Pool, j.spec.Project),
		}
		if ref := w.step(j, ev); ref != nil {
			t.Fatal(ref)
		}
	}
}

// S11: the scheduler dies at 13:37, two jobs end at 13:45, it is back at 13:57
// with its clock 90 s behind. Usage is that of the agents' starts and stops, and
// the next decision is that of a scheduler that never died.
func TestS11RestartClockAndLateReports(t *testing.T) {
	const (
		minute  = int64(60_000)
		started = 12 * hour
		died    = started + 97*minute
		ended   = 105 * minute // elapsed, 13:45
		back    = started + 117*minute
		behind  = 90_000
	)
	play := func(dies bool) (*lab, *scheduler.Plan) {
		l := newLab(t, 4, Config{Policy: scheduler.DefaultPolicy(), Start: Epoch, Seed: 11})
		l.Advance(Epoch.Add(started))
		length := ended
		if dies {
			length = -1 // its end is reported by hand
		}
		x, y := l.submit("a1", 1, 4*hour, length), l.submit("b", 2, 4*hour, length)
		l.submit("c", 1, 4*hour, -1)
		if _, err := l.Cycle(context.Background()); err != nil {
			t.Fatal(err)
		}
		until := back - behind
		if dies {
			until = died
		}
		l.spin(t, minute, until, nil)
		l.Advance(Epoch.Add(back - behind))
		if dies {
			for range 2 { // the first answer is lost
				l.lateEnd(t, y, ended)
				l.lateEnd(t, x, ended)
			}
		}
		l.submit("a2", 1, hour, hour)
		l.submit("b", 4, hour, hour)
		report, err := l.Cycle(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		return l, report.Plan
	}
	alive, want := play(false)
	reborn, got := play(true)
	if got.Hash() != func() [32]byte { p := *want; p.Cycle = got.Cycle; return p.Hash() }() {
		t.Errorf("after the restart:\n%s\nwithout:\n%s", text(got), text(want))
	}
	for leaf, gpus := range map[string]int64{"a1": 8, "b": 16, "c": 8} {
		truth := gpus * ended // agents' start and stop
		if leaf == "c" {
			truth = gpus * (back - behind - started)
		}
		for name, l := range map[string]*lab{"without a restart": alive, "after it": reborn} {
			if funded, unfunded := l.Usage(l.pool, l.leaf[leaf]); funded != truth*1000 || unfunded != 0 {
				t.Errorf("usage of %s %s: %d, want %d", leaf, name, funded, truth*1000)
			}
		}
		if a, b := alive.Sum(ledger.Spent, alive.pool, alive.leaf[leaf]), reborn.Sum(ledger.Spent, reborn.pool, reborn.leaf[leaf]); a != b {
			t.Errorf("spent by %s: %s without a restart, %s after it", leaf, a.Exact(), b.Exact())
		}
	}
}
