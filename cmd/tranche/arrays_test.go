package main

import (
	"testing"

	"tranche/ledger"
	"tranche/web/api"
)

// An array is one line of a list, opens by its number and is commanded by it.
func TestArrays(t *testing.T) {
	whole := api.Array{ID: 4, Name: "sweep", Project: "/lab/a", Pool: "h100", User: "Ada", Indices: "0-99", AtOnce: 8, Size: 100, FirstJob: 20, Finished: 12, Running: 8, Waiting: 80, Charged: 12 * ledger.GPUHour}
	first := api.Job{ID: 20, Name: "sweep", State: "finished", Result: "ok", Project: "/lab/a", Pool: "h100", Nodes: 1, GPUs: 1, InArray: &api.InArray{Array: 4, Index: 0, Size: 100}}
	next := first
	next.ID, next.State, next.Result, next.Reason, next.InArray = 40, "waiting", "", "Waits for 1 GPU.", &api.InArray{Array: 4, Index: 20, Size: 100}
	line := first
	line.Array = &whole
	gone := whole
	gone.Running, gone.Waiting, gone.Cancelled = 0, 0, 88
	p := loggedIn(t, map[string][]any{
		"POST /api/v1/jobs":            {first},
		"GET /api/v1/jobs":             {api.JobList{Jobs: []api.Job{line}}, api.JobList{Jobs: []api.Job{next}}, api.JobList{Jobs: []api.Job{next}}},
		"GET /api/v1/arrays/4":         {whole},
		"POST /api/v1/arrays/4/cancel": {gone},
		"POST /api/v1/jobs/7/cancel":   {api.Job{ID: 7, State: "cancelled"}},
	})
	_, out, _ := tranche("", "submit", "-p", "/lab/a", "--pool", "h100", "-g", "1", "--array", "0-99%8", "--", "python", "x.py")
	wantIn(t, out, "array A4 of 100 jobs", "the first is job 20")
	_, out, _ = tranche("", "jobs")
	wantIn(t, out, "A4 [0-99]", "12 finished, 8 running, 80 waiting", "12", "sweep")
	_, out, _ = tranche("", "jobs", "--array", "A4", "--state", "waiting")
	wantIn(t, out, "40", "sweep [20]")
	if q := p.calls[2].Query; q != "array=4&limit=50&state=waiting" {
		t.Errorf("query %q", q)
	}
	_, out, _ = tranche("", "why", "a4")
	wantIn(t, out, "80 waiting of 100 jobs", "Next is job 40, index 20: Waits for 1 GPU.")
	_, out, _ = tranche("", "job", "A4")
	wantIn(t, out, "indices", "0-99, 100 jobs, 8 at once")
	_, out, _ = tranche("", "cancel", "7", "A4")
	wantIn(t, out, "job 7 cancelled", "array A4: 12 finished, 88 cancelled")
	for _, wrong := range [][]string{{"cancel", "B4"}, {"cancel", "A"}, {"cancel", "0"}, {"jobs", "--array", "4"}} {
		if code, _, errOut := tranche("", wrong...); code != exitUsage || errOut == "" {
			t.Errorf("%v: exit %d, %q", wrong, code, errOut)
		}
	}
}
