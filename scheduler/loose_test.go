package scheduler

import (
	"testing"

	"tranche/ledger"
)

// A job that comes to a shared device in this cycle is counted there when somebody
// else is to leave it: the last job still finds the other device's unfunded tenant.
func TestUnfundedRoomFollowsSharedDevices(t *testing.T) {
	s := &Snapshot{
		Cycle: 1, Now: begun, Policy: DefaultPolicy(), Pools: []Pool{{ID: 1, RatePPM: 1_000_000}},
		Groups: []Group{{ID: 1, Path: "/lab"}, {ID: 2, Parent: 1, Path: "/lab/a", Project: true}, {ID: 3, Parent: 1, Path: "/lab/b", Project: true}},
		Shares: []Share{{1, 1, 2_000_000}, {1, 2, 1_000_000}, {1, 3, 1_000_000}},
		Funds: []ledger.Funds{{Project: 2, Pool: 1, Path: "/lab/a", Lots: []ledger.Lot{{
			ID: 1, Project: 2, Pool: 1, Period: 1, First: begun.Add(-anHour), Last: begun.Add(1000 * anHour), Available: 100 * ledger.GPUHour,
		}}}},
		Nodes: []Node{{ID: 1, Pool: 1, CPUMilli: 640_000, RAMMiB: 10_000_000, Devices: []Device{{Index: 0}, {Index: 1}}}},
	}
	unfunded := func(id int, project ledger.GroupID, milli int64, device int32) {
		l := Live{Job: jobOf(id, project, 1, 1, milli, 0), N: 1, Attempt: ledger.AttemptID(id), Phase: Running, Started: begun.Add(-anHour)}
		l.Placed = []Placed{{Node: 1, Devices: []int32{device}, GPUMilli: milli, CPUMilli: 1000, RAMMiB: 1000}}
		s.Live = append(s.Live, l)
	}
	unfunded(1, 3, 400, 0)
	unfunded(2, 2, 500, 1)
	for i, shape := range []Shape{{Nodes: 1, GPUs: 2}, {Nodes: 1, GPUs: 1, GPUMilli: 250}, {Nodes: 1, GPUs: 1, GPUMilli: 400}, {Nodes: 1, GPUs: 1}} {
		j := jobOf(10+i, 2, shape.Nodes, shape.GPUs, shape.milli(), anHour)
		j.Contract.Urgency = int8(5 - i)
		s.Waiting = append(s.Waiting, j)
	}
	s.Waiting[0].Contract.MinMs = 9000 * anHour // no lot is valid so long: it waits, and why is worked out
	plan := Decide(s)
	if plan.startOf(13) == nil {
		t.Errorf("starts %+v, the last waits: %+v", plan.Starts, plan.reasonOf(13))
	}
}
