package web

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// index is one of a pool's indices: what it is called, and what it says in a sentence.
type index struct {
	id, name, title string
	of              func(*scheduler.Gauge) int64
	means           func(*scheduler.Gauge) string
	gpus            bool // of pools with GPUs alone
}

// indexList are the indices in the order pages show them.
func indexList() []index {
	return []index{
		{"fit", "F_fit", "Lost to scatter", func(g *scheduler.Gauge) int64 { return g.Fit }, fitText, false},
		{"gpu", "F_gpu", "Free but of no use", func(g *scheduler.Gauge) int64 { return g.GPU }, gpuText, true},
		{"shape", "F_shape", "Uneven by placement", func(g *scheduler.Gauge) int64 { return g.Shape }, placementText, false},
		{"raw", "F_raw", "Uneven in all", func(g *scheduler.Gauge) int64 { return g.Raw }, rawText, false},
		{"stall", "stall", "Waiting for data", func(g *scheduler.Gauge) int64 { return g.StallPPM }, stallText, true},
	}
}

func fitText(g *scheduler.Gauge) string {
	if g.Fit < 500 {
		return "What is free lies well: nothing is lost because it is spread over several nodes."
	}
	return "Of the usual jobs that the empty pool could hold, " + share(g.Fit) + " would find room if what is free lay together, but find it on no single node."
}

func gpuText(g *scheduler.Gauge) string {
	if g.GPU < 500 {
		return "Nearly every free GPU is of use to the next usual job."
	}
	return "Of all GPUs, " + share(g.GPU) + " are free but of no use to the next usual job: too small a part of a GPU, too few on one node, or short of cores, memory or bandwidth beside them."
}

func placementText(g *scheduler.Gauge) string {
	if g.Shape < 20_000 {
		return "Placement has left the nodes much alike: none is short of what another has too much of."
	}
	return "Placement has left some nodes short of what others have too much of. 0 is even, 100 % the most uneven possible."
}

func rawText(*scheduler.Gauge) string {
	return "The same with what the mix of jobs itself leaves over, such as cores beside full GPUs. Compare it with itself over time, not between pools."
}

func stallText(g *scheduler.Gauge) string {
	switch {
	case g.Nodes == 0:
		return "No GPU is in use."
	case g.StallPPM == 0:
		return "Every node in use can feed its GPUs, " + stallBasis(g) + "."
	}
	return "GPUs in use wait for data at most " + share(g.StallPPM) + " of the time, " + stallBasis(g) + "; a job that computes while it reads waits less."
}

// stallBasis says what a stall was worked out from.
func stallBasis(g *scheduler.Gauge) string {
	switch g.Measured {
	case 0:
		return "by what jobs declare (no node measures what moves)"
	case g.Nodes:
		return "by what the nodes measure"
	}
	return fmt.Sprintf("by what %d of %d nodes measure and the jobs on the others declare", g.Measured, g.Nodes)
}

// share writes millionths in percent, to a tenth below ten.
func share(ppm int64) string {
	if ppm < 100_000 {
		n := (ppm + 500) / 1000
		return strconv.FormatInt(n/10, 10) + "." + strconv.FormatInt(n%10, 10) + " %"
	}
	return percentWhole(ppm)
}

// freeText says in a sentence how many free GPUs are of use.
func freeText(g *scheduler.Gauge) string {
	free, unfit := milliText(g.FreeMilli), milliText(g.UnfitMilli)
	switch {
	case g.FreeMilli == 0:
		return "No GPU is free."
	case g.UnfitMilli == 0 && g.FreeMilli == 1000:
		return "The one free GPU can take some job of the usual mix."
	case g.UnfitMilli == 0:
		return "All " + free + " free GPUs can take some job of the usual mix."
	}
	return unfit + " of " + free + " free GPUs cannot take any job of the usual mix."
}

// indicesOf is a pool's section of indices; nil when there are none yet.
func (s *server) indicesOf(b *store.Board) *view.Indices {
	last := b.Gauges.Last
	if last == nil {
		return nil
	}
	m := &view.Indices{Note: "As of " + s.clock(last.At) + ", over nodes that take work; one point per 5 minutes, per half hour over the week. "}
	if b.Devices > 0 {
		m.Answer = freeText(&last.Gauge)
	}
	if last.Mix == 0 {
		m.Note += "Nothing is learnt of this pool's jobs yet: jobs of 1, 2, 4 … GPUs are assumed to be as likely."
	} else {
		m.Note += "The usual mix is what was submitted to this pool in the last four weeks (version " + strconv.FormatInt(last.Mix, 10) + ")."
	}
	now := s.store.Now()
	for _, x := range indexList() {
		if x.gpus && b.Devices == 0 {
			continue
		}
		row := view.IndexRow{ID: x.id, Name: x.name, Title: x.title, Now: share(x.of(&last.Gauge)), Means: x.means(&last.Gauge)}
		row.Day = chartOf(&x, "24 h", b.Gauges.Day, now, store.DaySpanMs, 3*store.GaugeEveryMs)
		row.Week = chartOf(&x, "7 days", b.Gauges.Week, now, store.WeekSpanMs, 18*store.GaugeEveryMs)
		m.Rows = append(m.Rows, row)
	}
	return m
}

func chartOf(x *index, label string, rows []store.GaugeRow, now ledger.Instant, spanMs, gapMs int64) view.LineChart {
	c := view.LineChart{Label: label, Name: x.name, From: now.Add(-spanMs), To: now, GapMs: gapMs, Stall: x.id == "stall"}
	for i := range rows {
		c.Points = append(c.Points, view.ChartPoint{At: rows[i].At, PPM: x.of(&rows[i].Gauge)})
	}
	return c
}

// wireIndices is one row of a pool's indices.
func wireIndices(r *store.GaugeRow) api.PoolIndices {
	from := api.StallMixed
	switch r.Measured {
	case 0:
		from = api.StallDeclared
	case r.Nodes:
		from = api.StallMeasured
	}
	return api.PoolIndices{
		At: r.At.Time(), FitPPM: r.Fit, GPUPPM: r.GPU, ShapePPM: r.Shape, RawPPM: r.Raw, StallPPM: r.StallPPM, StallFrom: from,
		FreeMilliGPUs: r.FreeMilli, UnfitMilliGPUs: r.UnfitMilli, MixVersion: r.Mix,
	}
}

// poolNamed finds a pool by its name.
func (s *server) poolNamed(r *http.Request, name string) (store.Pool, error) {
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return store.Pool{}, err
	}
	for _, p := range pools {
		if p.Name == name {
			return p, nil
		}
	}
	return store.Pool{}, &ledger.Refusal{Kind: ledger.Missing, Code: "pool.missing", Field: "pool", Detail: "There is no pool " + name + "."}
}

// apiPoolIndices gives a pool's indices now, in words, and over a day or a week.
func (s *server) apiPoolIndices(w http.ResponseWriter, r *http.Request) error {
	span := r.URL.Query().Get("span")
	if span != "" && span != api.SpanDay && span != api.SpanWeek {
		return invalid("span", "pool.span", "The span is "+api.SpanDay+" or "+api.SpanWeek+".")
	}
	pool, err := s.poolNamed(r, chi.URLParam(r, "pool"))
	if err != nil {
		return err
	}
	g, err := s.store.PoolGauges(r.Context(), pool.ID)
	if err != nil {
		return err
	}
	rows, out := g.Day, api.PoolIndexList{Pool: pool.Name, Points: []api.PoolIndices{}}
	if span == api.SpanWeek {
		rows = g.Week
	}
	for i := range rows {
		out.Points = append(out.Points, wireIndices(&rows[i]))
	}
	if g.Last != nil {
		now := wireIndices(g.Last)
		out.Now = &now
		if pool.NodeGPUs > 0 {
			out.Words = append(out.Words, freeText(&g.Last.Gauge))
		}
		for _, x := range indexList() {
			if !x.gpus || pool.NodeGPUs > 0 {
				out.Words = append(out.Words, x.title+" ("+x.name+") "+share(x.of(&g.Last.Gauge))+": "+x.means(&g.Last.Gauge))
			}
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
