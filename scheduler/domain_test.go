package scheduler

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// roomsOf is a cycle over nodes alone.
func roomsOf(now Instant, nodes []Node) *poolCycle {
	pc := &poolCycle{cycle: &cycle{now: now}}
	for i := range nodes {
		pc.rooms = append(pc.rooms, room{node: &nodes[i]})
	}
	return pc
}

// The nodes chosen are together free no later than any others would be, whatever
// maintenance is planned: checked against every combination.
func TestNoOtherNodesAreFreeTogetherSooner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, now := rapid.IntRange(1, 6).Draw(t, "nodes"), begun
		nodes, free, rooms := make([]Node, n), make([]Instant, n), make([]int32, n)
		for i := range nodes {
			rooms[i], free[i] = int32(i), now.Add(rapid.Int64Range(0, 6).Draw(t, "free"))
			if rapid.Bool().Draw(t, "planned") {
				nodes[i].MaintFrom = now.Add(rapid.Int64Range(-2, 8).Draw(t, "from"))
				if rapid.Bool().Draw(t, "ends") {
					nodes[i].MaintUntil = nodes[i].MaintFrom.Add(rapid.Int64Range(1, 5).Draw(t, "long"))
				}
			}
		}
		ranks, minMs := rapid.IntRange(1, n).Draw(t, "ranks"), rapid.Int64Range(1, 4).Draw(t, "min")
		pc := roomsOf(now, nodes)
		got, at := pc.soonest(rooms, free, ranks, minMs)
		best := never
		for set := range 1 << n {
			var some []int32
			for i := range rooms {
				if set>>i&1 == 1 {
					some = append(some, rooms[i])
				}
			}
			if len(some) == ranks {
				best = min(best, pc.together(some, free, minMs))
			}
		}
		if at != best {
			t.Fatalf("rooms %v are free together at %d, others at %d", got, at-now, best-now)
		}
		if at != never && (len(got) != ranks || !slices.IsSorted(got) || pc.together(got, free, minMs) != at) {
			t.Fatalf("%d of rooms %v at %d", ranks, got, at-now)
		}
	})
}

func TestDomainsByLabel(t *testing.T) {
	nodes := []Node{{ID: 1, Topology: "r1/s1"}, {ID: 2, Topology: "r1/s2"}, {ID: 3, Topology: "r10/s1"}, {ID: 4}}
	pc := roomsOf(begun, nodes)
	free := []Instant{begun, begun, begun, begun}
	for _, c := range []struct {
		depth, ranks int
		want         []string
	}{
		{2, 1, []string{"r1/s1", "r1/s2", "r10/s1"}},
		{1, 2, []string{"r1"}},
		{0, 4, []string{""}},
		{0, 5, nil},
	} {
		var got []string
		for _, d := range pc.domainsAt(c.depth, free, c.ranks) {
			got = append(got, d.label)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("depth %d, %d ranks: %q, want %q", c.depth, c.ranks, got, c.want)
		}
	}
	free[1] = never
	if got := pc.domainsAt(1, free, 2); len(got) != 0 {
		t.Errorf("a node that cannot hold a rank counts: %+v", got)
	}
	for _, c := range []struct {
		rooms []int32
		want  string
	}{{[]int32{0}, "r1/s1"}, {[]int32{0, 1}, "r1"}, {[]int32{0, 2}, ""}, {[]int32{0, 3}, ""}, {[]int32{3, 0}, ""}} {
		if got := pc.commonDomain(c.rooms); got != c.want {
			t.Errorf("rooms %v share %q, want %q", c.rooms, got, c.want)
		}
	}
}

// What is left on a node beside those protected beyond an instant.
func TestRoomLeftCountsWhoIsProtectedThen(t *testing.T) {
	n := Node{Devices: []Device{{Index: 0}, {Index: 1}, {Index: 2, Dead: true}, {Index: 3}}, CPUMilli: 10_000, RAMMiB: 100}
	occ := []occupant{
		{&Placed{Devices: []int32{0}, CPUMilli: 4000, RAMMiB: 30}, begun.Add(5)},
		{&Placed{Devices: []int32{0, 1}, CPUMilli: 5000, RAMMiB: 60}, begun.Add(9)},
	}
	for ms, want := range map[int64][3]int64{0: {1, 1000, 10}, 4: {1, 1000, 10}, 5: {1, 5000, 40}, 9: {3, 10_000, 100}} {
		r := roomLeft(&n, occ, begun.Add(ms))
		if got := [3]int64{r.devices, r.offer[ofCPU] - r.used[ofCPU], r.offer[ofRAM] - r.used[ofRAM]}; got != want {
			t.Errorf("at %d ms: %+v, want %+v", ms, got, want)
		}
	}
	if got := freeInstants(occ, begun); !slices.Equal(got, []Instant{begun, begun.Add(5), begun.Add(9)}) {
		t.Errorf("instants %v", got)
	}
}

// A minimum runtime may end where a window begins, and begin where one ends.
func TestWindowsAreHalfOpen(t *testing.T) {
	nodes := []Node{{ID: 1}}
	pc := roomsOf(begun, nodes)
	pc.block(0, window{begun.Add(100), begun.Add(200)})
	for at, want := range map[int64]bool{0: false, 40: false, 41: true, 150: true, 199: true, 200: false} {
		if got := pc.crosses(0, begun.Add(at), 60); got != want {
			t.Errorf("60 ms from %d on cross [100, 200): %t", at, got)
		}
	}
	a, b := window{begun, begun.Add(100)}, window{begun.Add(100), begun.Add(200)}
	if a.meets(b) || b.meets(a) || !a.meets(window{begun.Add(99), begun.Add(100)}) || !b.meets(window{begun, 0}) || (window{begun.Add(200), 0}).meets(b) {
		t.Error("windows that only touch meet, or others do not")
	}
}
