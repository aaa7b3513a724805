package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tranche/scheduler"
	"tranche/web/api"
)

// metrics are what Prometheus reads, on a registry of their own.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
	cycles   prometheus.Counter
	cycle    prometheus.Histogram
	starts   prometheus.Counter
	evicted  prometheus.Counter
	waiting  prometheus.Gauge
	leading  prometheus.Gauge
	indices  *prometheus.GaugeVec

	unrecorded  prometheus.Counter
	recordBytes prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tranche_http_requests_total", Help: "Requests answered, by status."}, []string{"status"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tranche_http_request_seconds", Help: "Time to answer, agents' polls left out.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}),
		cycles: prometheus.NewCounter(prometheus.CounterOpts{Name: "tranche_cycles_total", Help: "Dispatcher cycles of this server."}),
		cycle: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tranche_cycle_seconds", Help: "Snapshot, decision and apply of one cycle.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}),
		starts:  prometheus.NewCounter(prometheus.CounterOpts{Name: "tranche_starts_total", Help: "Attempts started or nominated by this server."}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "tranche_evictions_total", Help: "Attempts told to make room by this server."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tranche_waiting_jobs", Help: "Jobs that the last cycle looked at and left waiting."}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tranche_leader", Help: "1 while this server dispatches."}),
		indices: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tranche_pool_index", Help: "F_fit, F_gpu, F_shape, F_raw and stall of a pool, 0 to 1, as the leader last worked them out."}, []string{"pool", "index"}),

		unrecorded:  prometheus.NewCounter(prometheus.CounterOpts{Name: "tranche_cycles_unrecorded_total", Help: "Cycles that replays will miss."}),
		recordBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "tranche_cycle_record_bytes_total", Help: "Bytes of cycle records written."}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.seconds, m.cycles, m.cycle, m.starts, m.evicted, m.waiting, m.leading, m.indices, m.unrecorded, m.recordBytes)
	return m
}

// handler serves the metrics alone.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// statusRecorder remembers an answer's status.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap keeps http.ResponseController working.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// measure counts what h answers.
func (m *metrics) measure(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := clock()
		rec := &statusRecorder{ResponseWriter: w}
		h.ServeHTTP(rec, r)
		if rec.status == 0 {
			rec.status = http.StatusOK
		}
		m.requests.WithLabelValues(strconv.Itoa(rec.status)).Inc()
		if !waits(r) {
			m.seconds.Observe(clock().Sub(began).Seconds())
		}
	})
}

// observeCycle records one cycle of the dispatcher.
func (m *metrics) observeCycle(took time.Duration) {
	m.cycles.Inc()
	m.cycle.Observe(took.Seconds())
}

// waits tells requests that are held open on purpose.
func waits(r *http.Request) bool { return r.URL.Path == api.PathPoll || r.URL.Query().Has("wait_ms") }

// observeReport records what one cycle did.
func (m *metrics) observeReport(r scheduler.Report) {
	m.starts.Add(float64(r.Applied.Started + r.Applied.Nominated))
	m.evicted.Add(float64(r.Applied.Evicted))
	m.waiting.Set(float64(len(r.Plan.Reasons)))
}

// observeGauges tells the pools' indices.
func (m *metrics) observeGauges(gauges []scheduler.Gauge) {
	for i := range gauges {
		g := &gauges[i]
		for name, ppm := range map[string]int64{"f_fit": g.Fit, "f_gpu": g.GPU, "f_shape": g.Shape, "f_raw": g.Raw, "stall": g.StallPPM} {
			m.indices.WithLabelValues(g.Name, name).Set(float64(ppm) / 1_000_000)
		}
	}
}
