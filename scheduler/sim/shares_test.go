package sim

import (
	"context"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

const (
	hour = int64(3_600_000)
	day  = 24 * hour
)

// lab is the tree of the S cases on nodes of 8 GPUs: /lab {a 50 {a1 70, a2 30}, b 30, c 20}.
type lab struct {
	*World
	pool ledger.PoolID
	leaf map[string]ledger.GroupID
}

func newLab(t *testing.T, nodes int, cfg Config) *lab {
	t.Helper()
	w := New(cfg)
	pool, err := w.AddPool("h100", 1_000_000, 1_000_000_000*ledger.GPUHour)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{World: w, pool: pool, leaf: map[string]ledger.GroupID{}}
	root := w.AddGroup(0, "/lab", false)
	a := w.AddGroup(root, "/lab/a", false)
	w.SetShare(pool, a, 50_000_000)
	for _, g := range []struct {
		name   string
		parent ledger.GroupID
		share  int64
	}{{"a1", a, 70}, {"a2", a, 30}, {"b", root, 30}, {"c", root, 20}} {
		id := w.AddGroup(g.parent, "/lab/"+g.name, true)
		w.SetShare(pool, id, g.share*1_000_000)
		if _, err := w.Award(id, pool, 10_000_000*ledger.GPUHour, cfg.Start.Add(400*day)); err != nil {
			t.Fatal(err)
		}
		l.leaf[g.name] = id
	}
	for range nodes {
		w.AddNode(pool, "n", 8, 64_000, 524_288)
	}
	return l
}

func (l *lab) submit(leaf string, nodes, minMs, forMs int64) ledger.JobID {
	return l.Submit(scheduler.Job{
		Project: l.leaf[leaf], Pool: l.pool, Member: 1,
		Shape:    scheduler.Shape{Nodes: nodes, GPUs: 8, GPUMilli: 1000, CPUMilli: 64_000, RAMMiB: 524_288},
		Contract: scheduler.Contract{MinMs: minMs, GraceMs: 60_000, Resumable: true},
	}, Behaviour{ForMs: forMs, ExitMs: -1})
}

// spin runs a cycle every so often until an instant.
func (l *lab) spin(t *testing.T, every, until int64, each func()) {
	t.Helper()
	for l.Now().Add(every) <= Epoch.Add(until) {
		l.Advance(l.Now().Add(every))
		if each != nil {
			each()
		}
		if _, err := l.Cycle(context.Background()); err != nil {
			t.Fatalf("after %s: %v", scheduler.Span(l.Now().MillisSince(Epoch)), err)
		}
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
}

// portions gives each leaf's part of the funded lookback, in tenths of a percent.
func (l *lab) portions(leaves ...string) map[string]int64 {
	used, sum := map[string]int64{}, int64(0)
	for _, name := range leaves {
		used[name], _ = l.Usage(l.pool, l.leaf[name])
		sum += used[name]
	}
	for name := range used {
		used[name] = used[name] * 1000 / max(1, sum)
	}
	return used
}

func within(t *testing.T, what string, got, want, tolerance int64) {
	t.Helper()
	if got < want-tolerance || got > want+tolerance {
		t.Errorf("%s: %d.%d %%, want %d.%d ± %d.%d", what, got/10, got%10, want/10, want%10, tolerance/10, tolerance%10)
	}
}

// S2: A2 silent for 8 days, the others saturated with 1 h jobs.
func TestS2IdleSibling(t *testing.T) {
	l := newLab(t, 4, Config{Policy: scheduler.DefaultPolicy(), Start: Epoch, Seed: 2, Quiet: true})
	waiting := map[string]int{}
	l.spin(t, 5*60_000, 8*day, func() {
		for _, leaf := range []string{"a1", "b", "c"} {
			for waiting[leaf] = l.Waiting(l.leaf[leaf]); waiting[leaf] < 6; waiting[leaf]++ {
				l.submit(leaf, 1, hour, hour)
			}
		}
	})
	got := l.portions("a1", "b", "c")
	within(t, "A1", got["a1"], 500, 15)
	within(t, "B", got["b"], 300, 15)
	within(t, "C", got["c"], 200, 15)
}

// S6: A1 and B each want all 32 GPUs always, for two weeks. Without reserved
// starts no run of week 2 is longer than 4 h. With them the first day is more
// even, since the one that waits is promised its start; a week later that day
// leaves the lookback, and one run is longer for it, once.
func TestS6NoPingPong(t *testing.T) {
	t.Run("standings alone", func(t *testing.T) { noPingPong(t, false, 4*hour) })
	t.Run("with reserved starts", func(t *testing.T) { noPingPong(t, true, 4*hour+15*60_000) })
}

func noPingPong(t *testing.T, reserved bool, longest int64) {
	policy := scheduler.DefaultPolicy()
	policy.ReservedStarts = reserved
	l := newLab(t, 4, Config{Policy: policy, Start: Epoch, Seed: 6, Quiet: true})
	jobs := map[string]ledger.JobID{"a1": l.submit("a1", 4, hour, -1), "b": l.submit("b", 4, hour, -1)}
	runs := 0
	l.Ended = func(r *scheduler.Run) {
		runs++
		ran := r.ProvenMs
		if ran < hour {
			t.Errorf("attempt %d of job %d ran only %s", r.N, r.Job, scheduler.Span(ran))
		}
		if r.Started >= Epoch.Add(7*day) && ran > longest {
			t.Errorf("attempt %d of job %d ran %s in week 2", r.N, r.Job, scheduler.Span(ran))
		}
	}
	l.spin(t, 60_000, 14*day, nil)
	got := l.portions("a1", "b")
	within(t, "A1 in week 2", got["a1"], 625, 15)
	within(t, "B in week 2", got["b"], 375, 15)
	if runs < 14*6 {
		t.Errorf("only %d runs ended", runs)
	}
	for name, id := range jobs {
		if j := l.Life(id); j.Job == scheduler.JobOver {
			t.Errorf("the job of %s is over", name)
		}
	}
}
