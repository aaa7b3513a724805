package store

import (
	"testing"
	"time"

	"tranche/ledger"
)

// Planned maintenance: nothing is protected into it, who is past protection
// leaves when it begins, and it can be taken back.
func TestPlannedMaintenance(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	m := Maintenance{From: k.Now().Add(2 * anHour), Until: k.Now().Add(3 * anHour), Why: "new firmware"}
	for _, bad := range []Maintenance{{From: m.From}, {From: m.From, Until: m.From, Why: "x"}, {From: k.Now().Add(-anHour), Why: "x"}, {Until: m.Until, Why: "x"}} {
		if err := k.PlanMaintenance(t.Context(), k.command(), k.nodes[0], bad); err == nil {
			t.Errorf("%+v was planned", bad)
		}
	}
	cmd := k.command()
	for range 2 {
		if err := k.PlanMaintenance(t.Context(), cmd, k.nodes[0], m); err != nil {
			t.Fatal(err)
		}
	}
	long, short := k.submit(t, "a", 1, 4, 4*anHour), k.submit(t, "a", 1, 4, anHour)
	k.cycle(t)
	k.want(t, long, "pending ")
	k.want(t, short, "starting")
	k.claimAll(t)
	k.pass(2*time.Hour + time.Minute)
	k.cycle(t)
	k.want(t, short, "ending")
	d, err := k.Node(t.Context(), k.nodes[0])
	if err != nil || d.MaintFrom != m.From || d.MaintWhy != "new firmware" || len(d.Events) != 1 {
		t.Errorf("%+v, %v", d.NodeLine, err)
	}
	if back, ok := d.Events[0].MaintenanceOf(); !ok || back != m {
		t.Errorf("audited %+v", back)
	}
	if err := k.PlanMaintenance(t.Context(), k.command(), k.nodes[0], Maintenance{}); err != nil {
		t.Fatal(err)
	}
	k.pass(30 * time.Second)
	k.end(t, short, 2*time.Hour+time.Minute+30*time.Second, 143, true)
	k.cycle(t)
	k.want(t, long, "starting")
	wantRefusal(t, k.PlanMaintenance(t.Context(), k.command(), 99, Maintenance{From: k.Now().Add(anHour), Why: "x"}), ledger.Missing)
}
