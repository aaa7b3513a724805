package store

import (
	"reflect"
	"testing"
	"time"

	"tranche/scheduler"
)

// A pool learns what is submitted to it, at most every ten minutes, under a version
// that counts up only with what it knows; what is older than four weeks is forgotten.
func TestAPoolLearnsItsMix(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	learn := func(want int) scheduler.Mix {
		t.Helper()
		if n, err := k.LearnMixes(t.Context()); err != nil || n != want {
			t.Fatalf("%d pools learnt, want %d: %v", n, want, err)
		}
		all, err := k.Mixes(t.Context())
		if err != nil || len(all) > 1 {
			t.Fatalf("%d mixes: %v", len(all), err)
		}
		if len(all) == 0 {
			return scheduler.Mix{}
		}
		return all[0]
	}
	learn(0)
	k.submit(t, "a", 2, 8, anHour)
	k.submit(t, "a", 1, 1, anHour)
	k.submit(t, "a", 1, 1, anHour)
	k.submit(t, "a", 1, 1, anHour)
	one := scheduler.Shape{Nodes: 1, GPUs: 1, GPUMilli: 1000, CPUMilli: 8000, RAMMiB: k.read(t, 2).Shape.RAMMiB}
	m := learn(1)
	if m.Version != 1 || m.SpanMs != anHour || len(m.Kinds) != 2 || !reflect.DeepEqual(m.Kinds[0], scheduler.MixKind{Shape: one, Ranks: 3}) || m.Kinds[1].Ranks != 2 || m.Kinds[1].Shape.Nodes != 1 {
		t.Errorf("the mix of a gang of two and three single GPUs: %+v", m)
	}
	k.submit(t, "a", 1, 8, anHour)
	learn(0) // a moment ago
	k.pass(11 * time.Minute)
	if m = learn(1); m.Version != 2 || m.Kinds[0].Ranks != 3 || m.Kinds[1].Ranks != 3 {
		t.Errorf("one job later: %+v", m)
	}
	k.pass(11 * time.Minute)
	learn(0) // nothing new
	snap, err := k.world.Snapshot(t.Context(), k.Now())
	if err != nil || len(snap.Mixes) != 1 || !reflect.DeepEqual(snap.Mixes[0], m) {
		t.Errorf("the dispatcher sees %+v: %v", snap.Mixes, err)
	}
	k.pass(28*24*time.Hour - 20*time.Minute)
	k.submit(t, "a", 1, 2, anHour)
	if m = learn(1); len(m.Kinds) != 1 || m.Kinds[0].Shape.GPUs != 2 || m.SpanMs != scheduler.LeastSpanMs {
		t.Errorf("four weeks later: %+v", m)
	}
}
