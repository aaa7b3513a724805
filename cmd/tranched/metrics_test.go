package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"tranche/scheduler"
	"tranche/scheduler/placing"
)

// What the leader works out of its pools is told under their names, and no more once
// it does not lead.
func TestPoolIndicesAreMetrics(t *testing.T) {
	m := newMetrics()
	read := func() string {
		w := httptest.NewRecorder()
		m.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	m.observeGauges([]scheduler.Gauge{{Name: "h100", Indices: placing.Indices{Fit: 125_000}, Stall: scheduler.Stall{StallPPM: 31_000}}})
	for _, want := range []string{`tranche_pool_index{index="f_fit",pool="h100"} 0.125`, `tranche_pool_index{index="stall",pool="h100"} 0.031`} {
		if !strings.Contains(read(), want) {
			t.Errorf("no %s", want)
		}
	}
	m.indices.Reset()
	if strings.Contains(read(), "tranche_pool_index{") {
		t.Error("they are told after the leadership")
	}
}
