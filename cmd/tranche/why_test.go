package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tranche/web/api"
)

// The command line says what the page says, and how to do what it offers.
func TestWhySaysWhatWouldStartIt(t *testing.T) {
	at, half := time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC), int64(1_800_000)
	p := loggedIn(t, map[string][]any{
		"GET /api/v1/jobs/7/why": {api.Why{Job: 7, Sentence: "It waits for /lab/b."}},
		"GET /api/v1/jobs/7/changes": {api.Outlook{
			Job: 7, At: &at, Ahead: []string{"3 jobs of Vision went first."},
			Changes: []api.Offer{{Kind: "minimum", Text: "Protect it for 30 min instead of 1 h", Effect: "would start now on n3", Change: &api.ChangeJob{MinRuntimeMS: &half}}},
		}},
		"POST /api/v1/jobs/7/change": {api.Job{ID: 7, State: "waiting", Pool: "h100", Nodes: 1, GPUs: 4, MinRuntimeMS: half}},
		"GET /api/v1/order": {api.PoolOrder{
			Pool: "h100", Waiting: 2, Reserved: "Job 9 of Arms has it.", Next: "3-9-8",
			Groups: []api.OrderGroup{{Group: "Vision", Standing: "0.40", Next: true}, {Group: "Segmentation", Depth: 1, Standing: "0.31"}},
			Jobs:   []api.OrderJob{{Rank: 1, Job: 7, Project: "/lab/vision/seg", Shape: "4 GPUs", Standing: "0.40 › 0.31", Reason: "Waits."}},
		}},
	})
	_, out, _ := tranche("", "why", "7")
	wantIn(t, out, "It waits for /lab/b.", "Protect it for 30 min instead of 1 h", "would start now on n3", "tranche change 7 --min 30m", "3 jobs of Vision went first.")
	_, out, _ = tranche("", "--json", "why", "7")
	var all struct {
		Sentence string
		Outlook  api.Outlook
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || all.Sentence == "" || len(all.Outlook.Changes) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	_, out, _ = tranche("", "change", "7", "--min", "30m", "--gpus", "4")
	wantIn(t, out, "job 7 waiting", "protected for 30m")
	var sent api.ChangeJob
	if err := json.Unmarshal(p.calls[len(p.calls)-1].Body, &sent); err != nil || sent.GPUs != 4 || sent.MinRuntimeMS == nil || *sent.MinRuntimeMS != half || sent.Key == "" {
		t.Errorf("sent %+v (%v)", sent, err)
	}
	if code, _, errOut := tranche("", "change", "7"); code != exitUsage || !strings.Contains(errOut, "Say what to change") {
		t.Errorf("nothing to change: exit %d, %q", code, errOut)
	}
	_, out, _ = tranche("", "order", "h100")
	wantIn(t, out, "Job 9 of Arms has it.", "  Segmentation", "0.31", "next", "0.40 › 0.31", "More: --after 3-9-8")
}
