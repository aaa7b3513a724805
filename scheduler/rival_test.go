package scheduler

import (
	"testing"

	"pgregory.net/rapid"

	"tranche/ledger"
)

// rivalWorld is a full fleet in which nothing can start: one interactive attempt is
// about to lose its protection, others are protected, past it or unfunded.
type rivalWorld struct {
	t    *rapid.T
	s    *Snapshot
	free [][]int32 // devices nobody has, by node
	next int
}

func newRivalWorld(t *rapid.T) *rivalWorld {
	w := &rivalWorld{t: t, s: &Snapshot{Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, RatePPM: 1_000_000}}}}
	for i, parent := range []ledger.GroupID{0, 1, 1, 2, 2, 3} {
		id := ledger.GroupID(i + 1)
		w.s.Groups = append(w.s.Groups, Group{ID: id, Parent: parent, Path: "/g", Project: id > 3})
		w.s.Shares = append(w.s.Shares, Share{1, id, rapid.Int64Range(1, 2).Draw(t, "share") * 1_000_000})
		if id > 3 {
			w.s.Usage = append(w.s.Usage, Usage{Pool: 1, Project: id, Funded: rapid.Int64Range(0, 1000).Draw(t, "usage") * 12_000_000})
			w.s.Funds = append(w.s.Funds, ledger.Funds{Project: id, Pool: 1, Path: "/g", Lots: []ledger.Lot{{
				ID: ledger.LotID(id), Project: id, Pool: 1, Period: 1, First: begun.Add(-100 * anHour), Last: begun.Add(2000 * anHour), Available: 100_000 * ledger.GPUHour,
			}}})
		}
	}
	gpus := rapid.IntRange(1, 4).Draw(t, "gpus")
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := Node{ID: ledger.NodeID(i + 1), Pool: 1, CPUMilli: 1_000_000, RAMMiB: 10_000_000}
		var all []int32
		for d := range int32(gpus) {
			n.Devices, all = append(n.Devices, Device{Index: d}), append(all, d)
		}
		w.s.Nodes, w.free = append(w.s.Nodes, n), append(w.free, all)
	}
	return w
}

func (w *rivalWorld) job(nodes, gpus int64) Job {
	w.next++
	j := jobOf(w.next, ledger.GroupID(rapid.IntRange(4, 6).Draw(w.t, "project")), nodes, gpus, 1000, anHour)
	j.Contract.Urgency = int8(rapid.IntRange(0, 1).Draw(w.t, "urgency"))
	return j
}

// run puts an attempt on the first nodes that have room; false when none have.
func (w *rivalWorld) run(nodes, gpus int64) *Live {
	l := Live{Job: w.job(nodes, gpus), N: 1, Phase: Running, Funded: true, Started: begun.Add(-2 * anHour), HoldUntilMs: 10 * anHour}
	l.Attempt, l.Job.Attempts = ledger.AttemptID(l.Job.ID), 1
	for i := 0; i < len(w.free) && int64(len(l.Placed)) < nodes; i++ {
		if int64(len(w.free[i])) >= gpus {
			l.Placed = append(l.Placed, Placed{Rank: int32(len(l.Placed)), Node: w.s.Nodes[i].ID, Devices: w.free[i][:gpus], GPUMilli: 1000})
		}
	}
	if int64(len(l.Placed)) < nodes {
		return nil
	}
	for i := range l.Placed {
		n := l.Placed[i].Node - 1
		w.free[n] = w.free[n][gpus:]
	}
	w.s.Live = append(w.s.Live, l)
	return &w.s.Live[len(w.s.Live)-1]
}

// fill leaves no device free; the first attempt is the one that asks.
func (w *rivalWorld) fill() {
	most := int64(len(w.s.Nodes[0].Devices))
	size := func(label string, n int64) int64 { return rapid.Int64Range(1, n).Draw(w.t, label) }
	l := w.run(size("asking nodes", int64(len(w.s.Nodes))), size("asking gpus", most))
	l.Job.Contract.Interactive, l.ProtectedUntil = true, begun.Add(60_000)
	for range 6 {
		w.other(w.run(size("nodes", 3), size("gpus", most)))
	}
	for l := w.run(1, 1); l != nil; l = w.run(1, 1) {
		w.other(l)
	}
	for range rapid.IntRange(1, 8).Draw(w.t, "waiting") {
		w.s.Waiting = append(w.s.Waiting, w.job(size("want nodes", 3), size("want gpus", most)))
	}
}

// other is protected, past it or unfunded.
func (w *rivalWorld) other(l *Live) {
	if l == nil {
		return
	}
	switch rapid.IntRange(0, 5).Draw(w.t, "state") {
	case 0:
		l.ProtectedUntil = begun.Add(-anHour)
	case 1:
		l.Funded = false
	default:
		l.ProtectedUntil = begun.Add(3 * anHour)
	}
}

// Who is named as next evicts, with so many others, once the protection is over;
// when nobody is named, nobody does. Nothing may start before, or it would not be
// the same world afterwards.
func TestARivalIsWhoEvictsAfterProtection(t *testing.T) {
	named := 0
	check(t, func(t *rapid.T) {
		w := newRivalWorld(t)
		w.fill()
		before := Decide(w.s)
		if len(before.Starts) > 0 || len(before.Warnings) != 1 {
			t.Skip("something starts at once")
		}
		rival, ref := before.Warnings[0].Rival, before.Warnings[0].AttemptRef

		w.s.ix = nil
		w.s.Live[0].ProtectedUntil = begun
		after := Decide(w.s)
		var first *Start
		for i := range after.Starts {
			for _, v := range after.Starts[i].Evict {
				if s := &after.Starts[i]; v.AttemptRef == ref && (first == nil || s.Rank < first.Rank) {
					first = s
				}
			}
		}
		switch {
		case rival == nil && first != nil:
			t.Fatalf("nobody was named, job %d evicts it: %+v", first.Job, first)
		case rival != nil && first == nil:
			t.Fatalf("%+v was named, nobody evicts it", rival)
		case rival != nil && (rival.Job != first.Job || rival.Others != len(first.Evict)-1):
			t.Fatalf("%+v was named, it is %+v", rival, first)
		}
		if rival != nil {
			named++
		}
	})
	if named == 0 {
		t.Error("no world had a rival")
	}
}

// check looks at many more worlds than rapid does by itself: each takes a tenth of
// a millisecond, and the rules meet in one of them rarely.
func check(t *testing.T, property func(*rapid.T)) {
	for range 20 {
		rapid.Check(t, property)
	}
}
