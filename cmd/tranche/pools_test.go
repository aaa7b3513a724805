package main

import (
	"encoding/json"
	"testing"
	"time"

	"tranche/web/api"
)

func TestPools(t *testing.T) {
	x := api.PoolIndices{At: time.Date(2026, 12, 3, 7, 0, 0, 0, time.UTC), FitPPM: 81_000, StallPPM: 9_960, StallFrom: api.StallMixed, FreeMilliGPUs: 6500, UnfitMilliGPUs: 500}
	p := loggedIn(t, map[string][]any{
		"GET /api/v1/pools":              {api.PoolList{Pools: []api.Pool{{Name: "h100", Nodes: 4, Devices: 32, Funded: 20, Ending: 1, Waiting: 3, Indices: &x}, {Name: "cpu"}}}, api.PoolList{}},
		"GET /api/v1/pools/h100/indices": {api.PoolIndexList{Pool: "h100", Now: &x, Words: []string{"0.5 of 6.5 free GPUs cannot take any job of the usual mix."}, Points: []api.PoolIndices{x}}, api.PoolIndexList{Pool: "h100"}},
	})
	_, out, _ := tranche("", "pools")
	wantIn(t, out, "h100", "21", "8.1 %", "1.0 %", "–")
	_, out, _ = tranche("", "pools")
	wantIn(t, out, "no pool yet")
	_, out, _ = tranche("", "pools", "show", "h100", "--span", "week")
	wantIn(t, out, "0.5 of 6.5 free GPUs", "2026-12-03 07:00:00 UTC", "8.1 %", "mixed", "6.5")
	if q := p.calls[2].Query; q != "span=week" {
		t.Errorf("query %q", q)
	}
	_, out, _ = tranche("", "--json", "pools", "show", "h100")
	var again api.PoolIndexList
	if err := json.Unmarshal([]byte(out), &again); err != nil || again.Pool != "h100" {
		t.Errorf("%v: %s", err, out)
	}
	if code, _, _ := tranche("", "pools", "show", "h100", "--span", "year"); code != exitUsage {
		t.Errorf("a span that is none: exit %d", code)
	}
}
