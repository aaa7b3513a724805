package store

import (
	"testing"
	"time"
)

// S13: the repair hook is ordered once, when the draining node is empty, and again
// only for another drain.
func TestS13RepairIsOrderedOnceWhenEmpty(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	node := k.nodes[0]
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	ordered := func(want int64) {
		t.Helper()
		for range 2 { // asked every few seconds
			if _, err := k.world.AskRepairs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		d, err := k.DesiredState(t.Context(), node)
		if err != nil || d.Repair != want {
			t.Errorf("order %d, want %d, %v", d.Repair, want, err)
		}
	}
	ordered(0)
	if err := k.DrainNode(t.Context(), k.command(), node, DrainSoft, "fan 3"); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	ordered(0) // protected for an hour
	k.pass(time.Hour + time.Minute)
	k.cycle(t)
	k.end(t, job, time.Hour+time.Minute, 143, true)
	ordered(1)
	for range 2 {
		if err := k.Repaired(t.Context(), node, Repair{N: 1, Output: "fan changed\n"}); err != nil {
			t.Fatal(err)
		}
	}
	ordered(0)
	d, err := k.Node(t.Context(), node)
	if err != nil || d.Repaired != "exit code 0\nfan changed" || d.RepairDone == 0 || len(d.Events) != 2 {
		t.Errorf("%+v, %d events, %v", d.NodeLine, len(d.Events), err)
	}
	if err := k.UndrainNode(t.Context(), k.command(), node); err != nil {
		t.Fatal(err)
	}
	ordered(0)
	k.pass(time.Minute)
	if err := k.DrainNode(t.Context(), k.command(), node, DrainHard, "again"); err != nil {
		t.Fatal(err)
	}
	ordered(2)
	if err := k.Repaired(t.Context(), node, Repair{N: 1}); err != nil { // a late report of the first
		t.Fatal(err)
	}
	ordered(2)
}
