package sim

import (
	"context"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// Where a slice is planned, from when on, and who makes way for it.
func TestWhereASliceIsPlanned(t *testing.T) {
	play(t, "slice_near")
	play(t, "slice_two")
	play(t, "slice_whole")
	play(t, "slice_holder")
	play(t, "slice_storm")
	play(t, "slice_victims")
	play(t, "grace_cap")
}

// A slice keeps its devices from cycle to cycle; one that dies is replaced, alone,
// by one that is free in time; a node that goes into maintenance then is not taken.
func TestASliceKeepsItsDevices(t *testing.T) {
	w := New(Config{Policy: scheduler.DefaultPolicy(), Start: Epoch})
	pool, err := w.AddPool("h100", 1_000_000, 1_000*ledger.GPUHour)
	if err != nil {
		t.Fatal(err)
	}
	root := w.AddGroup(0, "/lab", false)
	project := w.AddGroup(root, "/lab/a", true)
	var nodes []ledger.NodeID
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, w.AddNode(pool, name, 4, 64_000, 524_288))
	}
	w.Maintain(nodes[0], Epoch.Add(5*hour), Epoch.Add(7*hour))
	slice := w.Book(project, pool, 4, Epoch.Add(6*hour), Epoch.Add(8*hour))
	cycle := func() []scheduler.SlicePlan {
		report, err := w.Cycle(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return report.Plan.Slices
	}
	first := cycle()
	if len(first) != 1 || first[0].Slice != slice || len(first[0].Devices) != 4 || len(first[0].Lost) > 0 {
		t.Fatalf("planned %+v", first)
	}
	for i, d := range first[0].Devices {
		if d != (scheduler.Named{Node: nodes[1], Index: int32(i)}) {
			t.Errorf("device %d is %v, want one whole node, and not that in maintenance", i, d)
		}
	}
	w.Advance(w.now.Add(hour))
	if again := cycle(); len(again) > 0 {
		t.Errorf("planned anew: %+v", again)
	}
	w.KillDevice(nodes[1], 2)
	next := cycle()
	if len(next) != 1 || len(next[0].Lost) != 1 || next[0].Lost[0] != (scheduler.Named{Node: nodes[1], Index: 2}) {
		t.Fatalf("after a device died: %+v", next)
	}
	if got, want := next[0].Devices[3], (scheduler.Named{Node: nodes[2], Index: 0}); got != want || next[0].Devices[2].Index != 3 {
		t.Errorf("its place takes %v, want %v: %+v", got, want, next[0].Devices)
	}
	// In a storm nothing has fallen away; afterwards a node that is still sick has.
	w.SetHealth(nodes[1], scheduler.Suspect)
	w.Freeze(pool, true)
	if plans := cycle(); len(plans) > 0 {
		t.Errorf("planned anew in a storm: %+v", plans)
	}
	w.Freeze(pool, false)
	if plans := cycle(); len(plans) != 1 || len(plans[0].Lost) != 3 || plans[0].Devices[0].Node != nodes[2] {
		t.Errorf("after the storm: %+v", plans)
	}
}
