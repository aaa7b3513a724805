package web

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// An array is one line of the list, opens to its jobs by pages, and is commanded as one.
func TestArrayIsOneLineThatOpens(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	b := f.as("researcher here")
	form := b.open(view.NewJobURL)
	typed := map[string]string{"name": "sweep", "gpus": "4", "command": "train", "array": "0-1999%x", "minimum": "1 h"}
	wrong := b.submit(form, "job-form", typed)
	if _, again := wrong.form("job-form"); wrong.status != http.StatusUnprocessableEntity || again.Get("array") != "0-1999%x" || !strings.Contains(wrong.one("refusals"), "how many may run at once") {
		t.Fatalf("status %d: %s", wrong.status, wrong.one("refusals"))
	}
	typed["array"], typed["check"] = "0-1999%50", "1"
	if quoted := b.submit(form, "job-form", typed).one("quote"); !strings.Contains(quoted, "Each of its 2000 jobs") {
		t.Errorf("quote %q", quoted)
	}
	delete(typed, "check")
	array := b.follow(b.submit(form, "job-form", typed))
	array.want("title", "sweep")
	array.want("array-at-once", "50")
	f.cycle()
	list := b.open(view.JobsURL)
	if rows := list.all("job-row"); len(rows) != 1 {
		t.Errorf("%d lines", len(rows))
	}
	list.want("array-text", "2 running, 1 998 waiting")
	page := b.open(view.ArrayURL(1) + "?state=waiting")
	if rows := page.all("job-row"); len(rows) != 50 || !strings.HasPrefix(rows[0], "2") {
		t.Errorf("%d jobs wait, the first: %q", len(rows), rows[0])
	}
	job := b.open(view.JobURL(60))
	if !strings.Contains(job.one("in-array"), "59") || job.one("why-sentence") != "Its array lets 50 of its jobs go at once, in the order of their indices; it is queued when its turn has come." {
		t.Errorf("%q, %q", job.one("in-array"), job.one("why-sentence"))
	}
	if stranger := f.as("researcher elsewhere").open(view.ArrayURL(1)); stranger.one("array-cancel") != "" || stranger.one("job-command") != "" {
		t.Error("a stranger may cancel it, or reads its command")
	}
	over := b.follow(b.press(b.open(view.ArrayURL(1)), "array-cancel-yes"))
	if got := over.one("array-counts"); !strings.Contains(got, "2 000 cancelled") && !strings.Contains(got, "1 998 cancelled") {
		t.Errorf("after the cancellation: %q", got)
	}
}

// Programs submit, read and command arrays.
func TestAPIArrays(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	ctx, c := t.Context(), f.client("researcher here", f.seg)
	first, err := c.Submit(ctx, api.Submit{Key: "k1", Name: "sweep", Project: segPath, Pool: "h100", GPUs: 8, Command: "train", Array: "0-9:3"})
	f.must(err)
	if in := first.InArray; in == nil || in.Array != 1 || in.Index != 0 || in.Size != 4 {
		t.Fatalf("first %+v", first.InArray)
	}
	f.cycle()
	f.db.Clock.Advance(30 * time.Minute)
	f.end(first.ID, 30*time.Minute, 0)
	list, err := c.Jobs(ctx, api.JobQuery{})
	f.must(err)
	if len(list.Jobs) != 1 || list.Jobs[0].Array == nil || list.Jobs[0].Array.Finished != 1 || list.Jobs[0].Array.Waiting != 3 || list.Jobs[0].Array.Charged != 4*hour {
		t.Errorf("list %+v", list.Jobs)
	}
	var indices []int32
	for q := (api.JobQuery{Array: 1, Limit: 3}); ; {
		page, err := c.Jobs(ctx, q)
		f.must(err)
		for i := range page.Jobs {
			indices = append(indices, page.Jobs[i].InArray.Index)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if len(indices) != 4 || indices[0] != 0 || indices[3] != 9 {
		t.Errorf("indices %v", indices)
	}
	a, err := c.PauseArray(ctx, 1, "p")
	if err != nil || a.Paused != 3 {
		t.Errorf("paused %+v, %v", a, err)
	}
	a, err = c.ResumeArray(ctx, 1, "r")
	if err != nil || a.Waiting != 3 {
		t.Errorf("resumed %+v, %v", a, err)
	}
	a, err = c.CancelArray(ctx, 1, "c")
	if err != nil || a.Cancelled != 3 || a.Finished != 1 {
		t.Errorf("cancelled %+v, %v", a, err)
	}
	_, err = c.Array(ctx, ledger.ArrayID(7))
	wantProblem(t, err, 404, "array.missing")
	_, err = c.Submit(ctx, api.Submit{Key: "k2", Project: segPath, Pool: "h100", GPUs: 8, Command: "train", Array: "9-0"})
	wantProblem(t, err, 422, "job.array")
}

// A token's spending limit must cover all jobs of an array; those that are
// cancelled before they start give their part back.
func TestTokenLimitCoversAnArray(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	ctx := t.Context()
	_, err := f.store.CreateToken(ctx, f.cmd("researcher here"), store.TokenInput{Project: f.seg, Name: "bounded", Days: 1, Limit: 40 * hour, Secret: "trn_bounded"})
	f.must(err)
	c := f.program("trn_bounded")
	used := func() ledger.Amount {
		t.Helper()
		who, err := c.WhoAmI(ctx)
		f.must(err)
		return *who.TokenUsed
	}
	most := ledger.Amount(10 * hour)
	in := api.Submit{Key: "five", Project: segPath, Pool: "h100", GPUs: 8, Command: "train", Array: "0-4", MaxCharge: &most}
	_, err = c.Submit(ctx, in)
	if p := wantProblem(t, err, 409, "token.limit_reached"); p.Facts["short"] != "10" {
		t.Errorf("facts %v", p.Facts)
	}
	in.Key, in.Array = "three", "0-2"
	first, err := c.Submit(ctx, in)
	f.must(err)
	if got := used(); got != 30*hour {
		t.Errorf("%s GPU-h set aside for three jobs", got.Exact())
	}
	f.cycle()
	f.db.Clock.Advance(30 * time.Minute)
	f.end(first.ID, 30*time.Minute, 0) // costs 4 GPU-h
	_, err = c.CancelArray(ctx, first.InArray.Array, "cancel")
	f.must(err)
	if got := used(); got != 4*hour {
		t.Errorf("%s GPU-h are still set aside or spent, want 4", got.Exact())
	}
}
