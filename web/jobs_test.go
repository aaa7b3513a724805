package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

func TestSubmitFormNamesEveryWrongFieldAndKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	b := f.as("researcher here")
	page := b.open(view.NewJobURL)
	typed := map[string]string{
		"project": segPath, "pool": "h100", "name": "late-night", "gpus": "9", "command": "  ", "minimum": "soon", "grace": "2 h",
		"environment": "SEED", "max_charge": "a lot", "urgency": "8",
	}
	again := b.submit(page, "job-form", typed)
	if again.status != http.StatusUnprocessableEntity {
		t.Fatalf("status %d: %s", again.status, again.one("refusal"))
	}
	_, form := again.form("job-form")
	for _, name := range []string{"name", "gpus", "minimum", "environment", "max_charge", "urgency"} {
		if form.Get(name) != typed[name] {
			t.Errorf("field %s lost what was typed: %q, want %q", name, form.Get(name), typed[name])
		}
	}
	list := again.one("refusals")
	for _, sentence := range []string{"duration with its unit", "KEY=VALUE", "GPU-hours as a number", "No node of pool h100 has 9 GPUs", "Say what to run", "Grace is at most", "Urgency above 5"} {
		if !strings.Contains(list, sentence) {
			t.Errorf("refusals do not say %q: %s", sentence, list)
		}
	}
	fixed := b.submit(again, "job-form", map[string]string{
		"gpus": "2", "command": "train", "minimum": "90 min", "grace": "60 s", "environment": "SEED=7\nMODE=fast",
		"max_charge": "12.5", "urgency": "5",
	})
	job := b.follow(fixed)
	job.want("title", "late-night")
	job.want("contract-minimum", "90 min")
	if !strings.Contains(job.one("flash"), "waits for its start") {
		t.Errorf("flash %q", job.one("flash"))
	}
}

func TestCheckSaysTheCostAndSubmitsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	b := f.as("researcher here")
	checked := b.submit(b.open(view.NewJobURL), "job-form", map[string]string{"gpus": "4", "minimum": "2 h", "command": "train", "check": "1"})
	checked.want("quote", "Sets aside 8 GPU-h on h100 when it starts: 4 charged GPUs, protected for 2 h. Nothing was submitted.")
	if rows := b.open(view.JobsURL).all("job-row"); checked.status != 200 || len(rows) != 0 {
		t.Errorf("status %d, %d jobs", checked.status, len(rows))
	}
	if wrong := b.submit(checked, "job-form", map[string]string{"gpus": "40", "check": "1"}); wrong.status != 422 || !strings.Contains(wrong.one("refusals"), "No node of pool h100 has 40 GPUs") {
		t.Errorf("status %d, %q", wrong.status, wrong.one("refusals"))
	}
}

func TestWaitingJobOffersItsOwnerANextStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	eight := int64(8 * 3_600_000)
	id := f.job("researcher elsewhere", armsPath, "too dear", 8, func(s *store.Submission) { s.MinMs = &eight; s.Env = map[string]string{"SEED": "7"} })
	f.cycle()
	owner := f.as("researcher elsewhere")
	if steps := owner.open(view.JobURL(id)).one("changes"); !strings.Contains(steps, "Ask for GPU-hours") {
		t.Errorf("steps %q", steps)
	}
	if steps := f.as("researcher here").open(view.JobURL(id)).one("changes"); steps != "" {
		t.Errorf("somebody else is offered %q", steps)
	}
	form := owner.open(view.NewJobURL + "?from=" + idText(id) + "&preset=free")
	free := owner.follow(owner.submit(form, "job-form", nil))
	free.want("contract-minimum", "free")
	free.want("job-command", "train --epochs 3")
	if !strings.Contains(free.body, "SEED") || free.one("title") != "too dear" {
		t.Errorf("the form lost the environment or the name %q", free.one("title"))
	}
	_, strange := f.as("researcher here").open(view.NewJobURL + "?from=" + idText(id)).form("job-form")
	if strange.Get("command") != "" || strange.Get("gpus") != "8" {
		t.Errorf("somebody else's form has command %q", strange.Get("command"))
	}
}

func TestPresetFillsTheForm(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	_, form := f.as("researcher here").open(view.NewJobURL + "?preset=long&name=again").form("job-form")
	if form.Get("minimum") != "8 h" || form.Get("name") != "again" {
		t.Errorf("minimum %q, name %q", form.Get("minimum"), form.Get("name"))
	}
}

func TestSameFormTwiceMakesOneJob(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	b := f.as("researcher here")
	page := b.open(view.NewJobURL)
	fields := map[string]string{"project": segPath, "pool": "h100", "command": "train"}
	first, second := b.submit(page, "job-form", fields), b.submit(page, "job-form", fields)
	if first.header.Get("Location") == "" || first.header.Get("Location") != second.header.Get("Location") {
		t.Errorf("first led to %q, second to %q", first.header.Get("Location"), second.header.Get("Location"))
	}
}

func TestJobPageFollowsAJobFromQueueToCharge(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	b := f.as("researcher here")
	id := f.job("researcher here", segPath, "follow me", 4)
	page := b.open(view.JobURL(id))
	if page.one("job-state") != "waiting" || !strings.Contains(page.one("why-sentence"), "has not looked at it yet") {
		t.Errorf("state %q, why %q", page.one("job-state"), page.one("why-sentence"))
	}
	f.cycle()
	page = b.open(view.JobURL(id))
	if page.one("job-state") != "running, protected until 09:00" || !strings.Contains(page.one("why-sentence"), "No other job may stop it before 09:00") {
		t.Errorf("state %q, why %q", page.one("job-state"), page.one("why-sentence"))
	}
	f.db.Clock.Advance(30 * time.Minute)
	part := f.parts(id)[0]
	_, err := f.store.AppendLog(t.Context(), part, 0, []byte("epoch 1\nepoch 2\rdone\x1b[0m\n"))
	f.must(err)
	f.end(id, 30*time.Minute, 0)
	page = b.open(view.JobURL(id))
	page.want("job-state", "finished")
	page.want("attempt-end", "exit 0")
	page.want("charged-total", "2")
	if tail := page.one("log-tail"); tail != "epoch 1 done[0m" {
		t.Errorf("output %q", tail)
	}
	kinds := map[string]int{}
	for _, row := range at(page.root, "charge-row") {
		kind, _ := attribute(row, "data-kind")
		kinds[kind]++
	}
	if kinds["set aside"] != 1 || kinds["charge"] != 1 || kinds["given back"] != 1 {
		t.Errorf("movements %v", kinds)
	}
	if log := b.get(view.JobLogURL(id)); log.body != "epoch 1\nepoch 2\rdone\x1b[0m\n" || !strings.HasPrefix(log.header.Get("Content-Type"), "text/plain") {
		t.Errorf("output %q as %q", log.body, log.header.Get("Content-Type"))
	}
}

func TestOthersSeeShapeAndReasonButNoCommandOrOutput(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	id := f.run("researcher here", segPath, "private", 1)
	page := f.as("researcher elsewhere").open(view.JobURL(id))
	if strings.Contains(page.body, "train --epochs") || page.one("log-tail") != "" || page.one("job-cancel") != "" {
		t.Error("somebody of another project sees the command, the output or the cancel button")
	}
	if !strings.HasPrefix(page.one("answer"), "1 GPU on h100") {
		t.Error("the shape is hidden")
	}
	if own := f.as("pi here").open(view.JobURL(id)); !strings.Contains(own.body, "train --epochs 3") {
		t.Error("the project's PI does not see the command")
	}
}

func TestPauseResumeCancelFromThePage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	b := f.as("researcher here")
	id := f.job("researcher here", segPath, "verbs", 1)
	for _, step := range []struct{ button, state string }{{"job-pause", "paused"}, {"job-resume", "waiting"}, {"job-cancel", "cancelled"}} {
		page := b.open(view.JobURL(id))
		form := at(page.root, step.button)
		if len(form) == 0 {
			t.Fatalf("no %s", step.button)
		}
		verb := strings.TrimPrefix(step.button, "job-")
		after := b.follow(b.send(http.MethodPost, view.JobVerbURL(id, verb), map[string][]string{"key": {step.button}}))
		after.want("job-state", step.state)
	}
}

func TestOperatorStopsWithAReasonThatTheOwnerReads(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	id := f.job("researcher here", segPath, "runaway", 8)
	f.cycle()
	f.db.Clock.Advance(10 * time.Minute)
	b := f.as("operator here")
	page := b.open(view.JobURL(id))
	if empty := b.submit(page, "stop-form", map[string]string{"reason": " "}); empty.status != 422 || !strings.Contains(empty.one("refusals"), "Say in up to 500") {
		t.Errorf("a stop without reason gives %d %q", empty.status, empty.one("refusals"))
	}
	after := b.follow(b.submit(page, "stop-form", map[string]string{"reason": "fills the disk of n1"}))
	after.want("job-state", "ending: stopped by an operator")
	f.end(id, 10*time.Minute, 143)
	if why := f.as("researcher here").open(view.JobURL(id)).one("why-sentence"); !strings.Contains(why, "Reason given: fills the disk of n1") {
		t.Errorf("why %q", why)
	}
	if at(f.as("pi here").open(view.JobURL(id)).root, "stop-form") != nil {
		t.Error("a PI is offered the operator's stop")
	}
}

func TestEvictedJobSaysRuleStandingsAndWhatWasLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	victim := f.job("researcher elsewhere", armsPath, "free rider", 8, func(s *store.Submission) { s.Preset = "free" })
	f.cycle()
	f.db.Clock.Advance(10 * time.Minute)
	funded := f.job("researcher here", segPath, "funded", 8)
	f.cycle()
	page := f.as("researcher elsewhere").open(view.JobURL(victim))
	page.want("eviction-rule", "V1")
	page.want("eviction-by", "job "+idText(funded))
	page.want("eviction-lost", "10 min")
	if why := page.one("why-sentence"); !strings.Contains(why, "Evicted (V1)") {
		t.Errorf("why %q", why)
	}
	if state := f.as("pi here").open(view.JobURL(funded)).one("job-state"); state != "starting when its GPUs are left" {
		t.Errorf("the preemptor is %q", state)
	}
}

func TestListIsKeysetPagedAndFiltered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	for i := range 60 {
		f.job("researcher here", segPath, fmt.Sprint("seg ", i), 1)
	}
	other := f.job("researcher elsewhere", armsPath, "other", 1)
	b := f.as("researcher here")
	first := b.open(view.JobsURL)
	rows := first.all("job-row")
	if len(rows) != 50 || !strings.HasPrefix(rows[0], "other ") || first.one("answer") != "61 jobs wait and 0 run now." {
		t.Fatalf("%d rows, the first %q", len(rows), rows[0])
	}
	second := b.open(view.JobsURL + "?before=" + idText(other-49))
	if got := second.all("job-row"); len(got) != 11 || !strings.HasPrefix(got[10], "seg 0 ") {
		t.Errorf("second page has %d rows", len(got))
	}
	back := b.open(view.JobsURL + "?after=" + idText(other-50))
	if got := back.all("job-row"); len(got) != 50 || got[0] != rows[0] {
		t.Errorf("the page before has %d rows", len(got))
	}
	if got := b.open(view.JobsURL + "?project=/lab/robots").all("job-row"); len(got) != 1 {
		t.Errorf("program Robots has %d jobs", len(got))
	}
	if got := f.as("researcher elsewhere").open(view.JobsURL + "?mine=on&state=waiting&pool=h100").all("job-row"); len(got) != 1 {
		t.Errorf("%d jobs are mine", len(got))
	}
	if a := b.get(view.JobsURL + "?state=lost"); a.status != http.StatusUnprocessableEntity {
		t.Errorf("an unknown state gives %d", a.status)
	}
}

func TestHostileAndLongNamesStayText(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	evil := `<script>alert(1)</script>"><img src=x onerror=alert(2)>`
	name := evil + strings.Repeat("n", 200-len(evil))
	id := f.job("researcher here", segPath, name, 1, func(s *store.Submission) { s.Command = "echo " + evil; s.Env = map[string]string{"A": evil} })
	f.cycle()
	_, err := f.store.AppendLog(t.Context(), f.parts(id)[0], 0, []byte(evil+"\n"))
	f.must(err)
	b := f.as("researcher here")
	for _, path := range []string{view.JobsURL, view.JobURL(id), view.PoolURL(f.h100), view.NodesURL, view.NodeURL(f.nodes[0]), view.HomeURL} {
		page := b.open(path)
		if strings.Contains(page.body, "<script>alert") || strings.Contains(page.body, "<img") {
			t.Errorf("%s has markup out of a job's name", path)
		}
		if path != view.NodesURL && !strings.Contains(page.body, "&lt;script&gt;alert(1)") {
			t.Errorf("%s does not show the name", path)
		}
	}
}

func TestListOf10000JobsStaysFast(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	f.job("researcher here", segPath, "seed", 1)
	f.db.Exec(t, `insert into jobs (project_id, pool_id, member_id, name, nodes, gpus, cpu_milli, ram_mib, milli_gpu, rate_ppm, min_ms, grace_ms, max_ms,
		resumable, stop_on_money, or_free, queue_seq, state, submitted_at)
		select project_id, pool_id, member_id, 'bulk ' || n, nodes, gpus, cpu_milli, ram_mib, milli_gpu, rate_ppm, min_ms, grace_ms, max_ms,
		resumable, stop_on_money, or_free, queue_seq + n, case when n % 5 = 0 then 'pending' else 'finished' end, submitted_at
		from jobs, generate_series(1, 10000) n where id = 1`)
	f.db.Exec(t, `analyze jobs`)
	b := f.as("researcher here")
	for _, path := range []string{"", "?before=5000", "?state=waiting&project=" + segPath, "?after=9000", "?mine=on"} {
		var best time.Duration
		for try := range 5 {
			began := time.Now()
			page := b.open(view.JobsURL + path)
			if took := time.Since(began); try == 0 || took < best {
				best = took
			}
			if len(page.all("job-row")) != 50 {
				t.Fatalf("%s has %d rows", path, len(page.all("job-row")))
			}
		}
		if best > 250*time.Millisecond {
			t.Errorf("%q takes %v at best", path, best)
		}
	}
}

func TestSpansAsPeopleTypeThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "1 h": 3_600_000, "90 min": 5_400_000, "1h30m": 5_400_000, "60 s": 60_000, "7 days": 604_800_000, "1 d 2 h": 93_600_000} {
		if got, refusal := parseSpan("minimum", text); refusal != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, refusal, want)
		}
	}
	for _, text := range []string{"", "soon", "90", "1 h 2", "-1 h", "1.5 h", "99999999999 days", "1 h 1 h 1 h 1 h 1 h"} {
		if got, refusal := parseSpan("minimum", text); refusal == nil || refusal.Kind != ledger.Invalid {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}
