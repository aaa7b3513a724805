package store

import (
	"testing"
	"time"

	"tranche/scheduler"
)

// gauge keeps the gauges of the pools as they are now, and gives how many rows there
// are then.
func (k *site) gauge(t *testing.T) (rows int) {
	t.Helper()
	s, err := k.world.Snapshot(t.Context(), k.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.world.leader.KeepGauges(t.Context(), s.Now, s.Stands()); err != nil {
		t.Fatal(err)
	}
	if err := k.pool.QueryRow(t.Context(), `select count(*) from pool_indices`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// A pool has one row per five minutes, worked out from its nodes, the mix of its own
// jobs and what the nodes measure.
func TestGaugesAreKeptOncePerFiveMinutes(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	k.submit(t, "a", 2, 7, anHour)
	if n, err := k.LearnMixes(t.Context()); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	k.cycle(t)
	k.claimAll(t)
	k.db.Exec(t, `update nodes set sto_mbps = 1000, sto_ppm = case id when 1 then 500000 else 0 end`)
	sto := int64(1000)
	if err := k.Heartbeat(t.Context(), Beat{Node: k.nodes[0], BootID: "b", Flow: NodeFlow{StoMBps: &sto}}); err != nil {
		t.Fatal(err)
	}
	if n := k.gauge(t); n != 1 {
		t.Errorf("kept %d rows", n)
	}
	if n := k.gauge(t); n != 1 {
		t.Errorf("%d rows in the same five minutes", n)
	}
	g, err := k.PoolGauges(t.Context(), 1)
	if err != nil || g.Last == nil || len(g.Day) != 1 || len(g.Week) != 1 {
		t.Fatalf("%+v, %v", g, err)
	}
	want := scheduler.Stall{StallPPM: 250_000, Nodes: 2, Measured: 1} // one of two wants twice what is left
	if l := g.Last; l.Stall != want || l.FreeMilli != 2000 || l.UnfitMilli != 2000 || l.Mix != 1 || l.At != GaugeSlot(k.Now()) {
		t.Errorf("%+v", l)
	}
	if pools, err := k.Occupancy(t.Context()); err != nil || pools[0].Gauge == nil || pools[0].Gauge.GPU != g.Last.GPU {
		t.Errorf("the list of pools says %+v, %v", pools, err)
	}
}

// Points of the week are means of half hours, rows older than an hour do not say how
// it is now, and the sweep takes those of a quarter ago.
func TestGaugesOfADayAndAWeek(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	for i := range 12 {
		k.db.Exec(t, `insert into pool_indices (pool_id, at, gpus, unfit, fit_ppm, shape_ppm, raw_ppm, gpu_ppm, stall_ppm, measured, nodes, mix)
			values (1, $1, 1000, 0, $2, 0, 0, 0, 0, 0, 1, 3)`, GaugeSlot(k.Now()).Time(), int64(i)*1000)
		k.pass(5 * time.Minute)
	}
	k.pass(55 * time.Minute)
	g, err := k.PoolGauges(t.Context(), 1)
	if err != nil || len(g.Day) != 12 || g.Day[11].Fit != 11_000 || g.Last != nil {
		t.Errorf("%d points of the day, last %+v, %v", len(g.Day), g.Last, err)
	}
	sum := int64(0)
	for _, p := range g.Week {
		sum += p.Fit
	}
	if n := int64(len(g.Week)); n < 2 || n > 3 || sum/n < 4_500 || sum/n > 6_500 {
		t.Errorf("points of the week %+v", g.Week)
	}
	k.pass(25 * time.Hour)
	if g, err = k.PoolGauges(t.Context(), 1); err != nil || len(g.Day) != 0 || len(g.Week) == 0 {
		t.Errorf("a day later %d and %d points, %v", len(g.Day), len(g.Week), err)
	}
	if removed, err := k.Sweep(t.Context(), anHour, 26*anHour); err != nil || removed < 11 {
		t.Errorf("swept %d, %v", removed, err)
	}
}
