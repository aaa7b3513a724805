package store

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"tranche/ledger"
)

func TestSubmitNamesEveryWrongField(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	minMs, grace := minute, int64(20*60_000)
	_, err := k.SubmitJob(t.Context(), k.command(), Submission{
		Project: "/lab/a", Pool: "h100", GPUs: 9, GPUMilli: 500, Command: " ", MinMs: &minMs, GraceMs: &grace, Urgency: 11,
		Env: map[string]string{"1x": "y", "TRANCHE_JOB": "z"},
	})
	var refusals ledger.Refusals
	if !errors.As(err, &refusals) {
		t.Fatalf("got %v, want refusals", err)
	}
	var fields []string
	for _, r := range refusals {
		fields = append(fields, r.Field)
	}
	want := []string{"command", "env", "env", "gpu_milli", "min_runtime_ms", "grace_ms", "urgency"}
	if !slices.Equal(fields, want) {
		t.Errorf("fields %v, want %v", fields, want)
	}
	_, err = k.SubmitJob(t.Context(), k.command(), Submission{Project: "/lab/a", Pool: "h100", GPUs: 9, Nodes: 2, Command: "true"})
	if !errors.As(err, &refusals) || len(refusals) != 1 || refusals[0].Code != "job.too_many_gpus" {
		t.Errorf("9 GPUs on nodes of 8: %v", err)
	}
}

func TestL20ChargesAllCoresOfANodeAs8GPUs(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	greedy := k.submit(t, "a", 1, 1, anHour, func(s *Submission) { s.CPUMilli = 64000 })
	modest := k.submit(t, "a", 1, 1, anHour)
	for job, want := range map[ledger.JobID]int64{greedy: 8000, modest: 1000} {
		var milli int64
		if err := k.pool.QueryRow(t.Context(), `select milli_gpu from jobs where id = $1`, job).Scan(&milli); err != nil || milli != want {
			t.Errorf("job %d is charged for %d milli-GPUs, want %d (%v)", job, milli, want, err)
		}
	}
}

func TestL2SettlesOnceThoughTheEndIsResentAndACancelRaces(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, 2*anHour)
	k.cycle(t)
	k.wantBalance(t, a, "84", "16", "0")
	k.claimAll(t)
	k.pass(90 * time.Minute)
	part := k.parts(t, job)[0]
	end := End{PartRef: part, ElapsedUS: (90 * time.Minute).Microseconds()}
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if _, err := k.Ended(t.Context(), end); err != nil {
				t.Error(err)
			}
		})
	}
	cancel := k.command()
	wait.Go(func() {
		if err := k.CancelJob(t.Context(), cancel, job); err != nil {
			t.Error(err)
		}
	})
	wait.Wait()
	k.wantBalance(t, a, "88", "0", "12")
	if superseded, err := k.Ended(t.Context(), end); err != nil || !superseded {
		t.Errorf("once more: superseded %t, %v", superseded, err)
	}
	k.want(t, job, "finished finished")
}

func TestL18DoubleClicksHaveOneEffect(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	cmd := k.command()
	minMs := anHour
	sub := Submission{Project: "/lab/a", Pool: "h100", GPUs: 1, MinMs: &minMs, Command: "true"}
	first, err := k.SubmitJob(t.Context(), cmd, sub)
	second, err2 := k.SubmitJob(t.Context(), cmd, sub)
	if err != nil || err2 != nil || first != second {
		t.Errorf("submitted twice: %d %v, %d %v", first, err, second, err2)
	}
	sub.GPUs = 2
	var refusal *ledger.Refusal
	if _, err := k.SubmitJob(t.Context(), cmd, sub); !errors.As(err, &refusal) || refusal.Kind != ledger.Conflict {
		t.Errorf("other content under the same key: %v", err)
	}
	cancel := k.command()
	for range 2 {
		if err := k.CancelJob(t.Context(), cancel, first); err != nil {
			t.Error(err)
		}
	}
	if err := k.CancelJob(t.Context(), k.command(), first); err != nil {
		t.Errorf("cancelled again: %v", err)
	}
	k.want(t, first, "cancelled ")
}

func TestPausedJobsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	first, second := k.submit(t, "a", 1, 8, anHour), k.submit(t, "a", 1, 8, anHour)
	if err := k.PauseJob(t.Context(), k.command(), first); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.want(t, first, "paused ")
	k.want(t, second, "starting")
	if err := k.ResumeJob(t.Context(), k.command(), first); err != nil {
		t.Fatal(err)
	}
	if err := k.CancelJob(t.Context(), k.command(), second); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.want(t, first, "starting")
}

func TestClaimAfterCancelIsRefusedAndCostsNothing(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	part := k.parts(t, job)[0]
	if err := k.CancelJob(t.Context(), k.command(), job); err != nil {
		t.Fatal(err)
	}
	var refusal *ledger.Refusal
	if _, err := k.Claim(t.Context(), part, "launcher"); !errors.As(err, &refusal) || refusal.Kind != ledger.Conflict {
		t.Errorf("claim after cancel: %v", err)
	}
	k.wantBalance(t, a, "100", "0", "0")
	k.want(t, job, "cancelled cancelled")
}

func TestClaimIsOnceForOneLauncher(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	part := k.parts(t, job)[0]
	for range 2 {
		if _, err := k.Claim(t.Context(), part, "mine"); err != nil {
			t.Errorf("the same launcher again: %v", err)
		}
	}
	if _, err := k.Claim(t.Context(), part, "other"); err == nil {
		t.Error("another launcher claimed it too")
	}
	part.Fence--
	if _, err := k.Claim(t.Context(), part, "mine"); err == nil {
		t.Error("an older fence claimed it")
	}
}

func TestClaimWithoutALotIsRefusedAndTheJobWaitsAgain(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 0)
	k.lot(t, a, 100, "2026-10-01", "2026-10-05 09:30")
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t) // at 08:00 the lot covers the hour
	part := k.parts(t, job)[0]
	k.pass(45 * time.Minute)
	var refusal *ledger.Refusal
	if _, err := k.Claim(t.Context(), part, "late"); !errors.As(err, &refusal) || refusal.Kind != ledger.Short {
		t.Fatalf("claim at 08:45 of an hour that the lot covers until 09:30: %v", err)
	}
	k.want(t, job, "pending refused")
	k.wantBalance(t, a, "100", "0", "0")
}

func TestL11ALostNodeIsCreditedAndTheJobRunsAgain(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 4, 3*anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	k.pass(time.Hour)
	seen := Seen{Attempt: part.Attempt, Fence: part.Fence, ElapsedUS: time.Hour.Microseconds()}
	if err := k.Heartbeat(t.Context(), Beat{Node: part.Node, BootID: "b", Attempts: []Seen{seen}}); err != nil {
		t.Fatal(err)
	}
	k.pass(6 * time.Minute)
	k.beatAllBut(t, part.Node)
	if changes, err := k.world.Reconcile(t.Context()); err != nil || len(changes.Changes) != 1 {
		t.Fatalf("changes %v, %v", changes, err)
	}
	k.want(t, job, "pending lost")
	k.wantBalance(t, a, "100", "0", "4")
	k.cycle(t)
	if again := k.parts(t, job)[0]; again.Node == part.Node || again.Fence <= part.Fence {
		t.Errorf("runs again as %+v after %+v", again, part)
	}
	k.claimAll(t)
	if superseded, err := k.Ended(t.Context(), End{PartRef: part, ElapsedUS: 2 * time.Hour.Microseconds()}); err != nil || !superseded {
		t.Errorf("the lost attempt's late end: superseded %t, %v", superseded, err)
	}
	k.pass(2 * time.Hour)
	k.end(t, job, 2*time.Hour, 0, false)
	k.wantBalance(t, a, "92", "0", "12")
	if credit := k.balance(t, a, ledger.Credit); credit != "-4" {
		t.Errorf("credited %s, want −4: net 8", credit)
	}
	k.want(t, job, "finished finished")
}

// beatAllBut lets every node but one give a sign of life.
func (k *site) beatAllBut(t testing.TB, silent ledger.NodeID) {
	t.Helper()
	for _, n := range k.nodes {
		if n != silent {
			if err := k.Heartbeat(t.Context(), Beat{Node: n, BootID: "b"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The node is back before anything newer has started: the attempt goes on where
// it is, with its number, its fence and its protection.
func TestL11AReturningAttemptIsTakenBackUnlessANewerHasStarted(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 4, 3*anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	beat := func(after time.Duration) {
		t.Helper()
		seen := Seen{Attempt: part.Attempt, Fence: part.Fence, ElapsedUS: after.Microseconds()}
		if err := k.Heartbeat(t.Context(), Beat{Node: part.Node, BootID: "b", Attempts: []Seen{seen}}); err != nil {
			t.Fatal(err)
		}
	}
	k.pass(time.Hour)
	beat(time.Hour)
	k.pass(6 * time.Minute)
	if _, err := k.world.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.want(t, job, "pending lost")
	k.cycle(t) // the only node is lost: nothing newer can start
	if orders := k.orders(t)[part.Node]; len(orders) != 1 || orders[0].Stop || !orders[0].Claimed {
		t.Errorf("the lost node's orders are %+v, want to keep it running", orders)
	}
	beat(66 * time.Minute)
	k.want(t, job, "running")
	if _, err := k.world.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.wantBalance(t, a, "92", "8", "4") // 4 credited; the rest of the 3 hours is set aside again
	k.pass(54 * time.Minute)
	k.end(t, job, 2*time.Hour, 0, false)
	k.want(t, job, "finished finished")
	k.wantBalance(t, a, "96", "0", "8")
	var used, rows int
	if err := k.pool.QueryRow(t.Context(), `select sum(extract(epoch from last - first))::int, count(*) from usage_segments`).Scan(&used, &rows); err != nil || used != 7200 || rows != 2 {
		t.Errorf("%d s of occupancy in %d rows, want 7200 in 2 (%v)", used, rows, err)
	}
	if r, err := k.Verify(t.Context()); err != nil || !r.OK() {
		t.Errorf("verify: %+v %v", r, err)
	}
}

func TestAReportBeyondWhatTheServerSawIsCutAndFlagged(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, 2*anHour)
	k.cycle(t)
	k.claimAll(t)
	k.pass(time.Hour)
	k.end(t, job, 90*time.Minute, 0, false)
	k.wantBalance(t, a, "92", "0", "8")
	var flagged string
	if err := k.pool.QueryRow(t.Context(), `select flagged from placements`).Scan(&flagged); err != nil || flagged == "" {
		t.Errorf("flagged %q (%v)", flagged, err)
	}
	within := k.submit(t, "a", 1, 8, 2*anHour)
	k.cycle(t)
	k.claimAll(t)
	k.pass(time.Hour)
	k.end(t, within, time.Hour+time.Second, 0, false) // a second more is believed
	k.wantBalance(t, a, "83.9977778", "0", "16.0022222")
}

func TestAnOperatorsStopIsCreditedAndTheJobWaitsAgain(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, 2*anHour)
	k.cycle(t)
	k.claimAll(t)
	k.pass(30 * time.Minute)
	if err := k.StopJob(t.Context(), k.command(), job, "the cooling fails"); err != nil {
		t.Fatal(err)
	}
	k.pass(time.Minute)
	k.end(t, job, 31*time.Minute, 143, true)
	k.want(t, job, "pending preempted")
	k.wantBalance(t, a, "100", "0", "4")
	if credit := k.balance(t, a, ledger.Credit); credit != "-4" {
		t.Errorf("credited %s, want -4", credit)
	}
}
