package web

import (
	"strings"
	"testing"

	"tranche/scheduler"
	"tranche/web/api"
	"tranche/web/view"
)

// keepGauges works the pools' indices out of what the dispatcher sees now.
func (f *fleet) keepGauges() {
	f.t.Helper()
	s, err := f.world.Snapshot(f.t.Context(), f.store.Now())
	f.must(err)
	_, err = f.leader.KeepGauges(f.t.Context(), s.Now, s.Stands())
	f.must(err)
}

// A pool says on its page, in the list and in the interface how useful what it has
// free is, and in words what that means.
func TestAPoolSaysHowUsefulWhatIsFreeIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	pool := f.as("researcher here").open(view.PoolURL(f.h100))
	if pool.all("indices") != nil {
		t.Error("a pool that nothing is known of has indices")
	}
	for range 2 {
		f.job("researcher here", segPath, "here", 7)
	}
	_, err := f.store.LearnMixes(t.Context())
	f.must(err)
	f.cycle()
	f.keepGauges()
	pool = f.as("researcher here").open(view.PoolURL(f.h100))
	if got := pool.one("indices-answer"); got != "2 of 2 free GPUs cannot take any job of the usual mix." {
		t.Errorf("answer %q", got)
	}
	rows := pool.all("index")
	if len(rows) != 5 || !strings.Contains(rows[0], "F_fit") || !strings.Contains(rows[1], "Of all GPUs, 13 % are free but of no use") || !strings.Contains(rows[4], "by what jobs declare") {
		t.Errorf("rows %q", rows)
	}
	if note := pool.one("indices-note"); !strings.Contains(note, "last four weeks (version 1)") {
		t.Errorf("note %q", note)
	}
	c := f.client("researcher here", f.seg)
	list, err := c.Pools(t.Context())
	f.must(err)
	got, err := c.PoolIndices(t.Context(), "h100", api.SpanWeek)
	f.must(err)
	if got.Now == nil || len(got.Points) != 1 || got.Now.UnfitMilliGPUs != 2000 || got.Now.StallFrom != api.StallDeclared || len(got.Words) != 6 || list.Pools[0].Indices == nil || *list.Pools[0].Indices != *got.Now {
		t.Errorf("%+v; the list says %+v", got, list.Pools[0].Indices)
	}
	_, err = c.PoolIndices(t.Context(), "h100", "year")
	wantProblem(t, err, 422, "pool.span")
	_, err = c.PoolIndices(t.Context(), "h999", "")
	wantProblem(t, err, 404, "pool.missing")
}

// Each sentence says what its number means, whatever the number.
func TestIndicesInWords(t *testing.T) {
	for _, c := range []struct {
		g    scheduler.Gauge
		say  func(*scheduler.Gauge) string
		want string
	}{
		{scheduler.Gauge{FreeMilli: 64_000, UnfitMilli: 6500}, freeText, "6.5 of 64 free GPUs cannot take any job of the usual mix."},
		{scheduler.Gauge{FreeMilli: 1000}, freeText, "The one free GPU can take some job of the usual mix."},
		{scheduler.Gauge{FreeMilli: 9000}, freeText, "All 9 free GPUs can take some job of the usual mix."},
		{scheduler.Gauge{}, freeText, "No GPU is free."},
		{scheduler.Gauge{}, stallText, "No GPU is in use."},
		{scheduler.Gauge{Stall: scheduler.Stall{Nodes: 3, Measured: 3}}, stallText, "Every node in use can feed its GPUs, by what the nodes measure."},
		{scheduler.Gauge{Stall: scheduler.Stall{StallPPM: 31_400, Nodes: 3, Measured: 1}}, stallText, "GPUs in use wait for data at most 3.1 % of the time, by what 1 of 3 nodes measure and the jobs on the others declare; a job that computes while it reads waits less."},
	} {
		if got := c.say(&c.g); got != c.want {
			t.Errorf("%+v: %q, want %q", c.g, got, c.want)
		}
	}
}
