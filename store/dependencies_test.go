package store

import (
	"fmt"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// A job after another waits outside the queue, at its place; it is queued when
// that has ended as asked, and cancelled, with all that follow it, when it cannot.
func TestJobsStartAfterOthers(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	after := func(words ...string) func(*Submission) { return func(s *Submission) { s.After = words } }
	first := k.submit(t, "a", 1, 8, anHour)
	good := k.submit(t, "a", 1, 8, anHour, after("ok:1"))
	third := k.submit(t, "a", 1, 8, anHour, after("afterok:2", "any:1"))
	whatever := k.submit(t, "a", 1, 8, anHour, after("any:3"))
	k.cycle(t)
	k.want(t, first, "starting")
	for _, id := range []ledger.JobID{good, third, whatever} {
		d, err := k.Job(t.Context(), k.actor, id)
		if err != nil || d.State != "waiting" || d.Reason == nil || d.Reason.Code != scheduler.WhyDependency {
			t.Errorf("job %d: %s, %+v, %v", id, d.State, d.Reason, err)
		}
	}
	k.claimAll(t)
	k.pass(time.Minute)
	k.end(t, first, time.Minute, 0, false)
	k.cycle(t)
	k.want(t, good, "starting")
	k.want(t, third, "pending ")
	k.claimAll(t)
	k.pass(time.Minute)
	k.end(t, good, time.Minute, 1, false) // fails: what needs it cannot start, what only waits for its end can
	k.want(t, third, "cancelled ")
	k.cycle(t)
	k.want(t, whatever, "starting")
	letters := 0
	if err := k.pool.QueryRow(t.Context(), `select count(*) from outbox where kind = 'job.dependency'`).Scan(&letters); err != nil || letters != 1 {
		t.Errorf("%d letters, %v", letters, err)
	}
	noted := 0
	if err := k.pool.QueryRow(t.Context(), `select count(*) from audit where verb = 'job.never' and subject = 'job 3'`).Scan(&noted); err != nil || noted != 1 {
		t.Errorf("%d audit lines, %v", noted, err)
	}
	for _, words := range [][]string{{"ok:2"}, {"ok:99"}, {"maybe:1"}, {"ok:x"}, {"ok"}} {
		sub := Submission{Project: "/lab/a", Pool: "h100", GPUs: 8, Command: "true", After: words}
		if _, err := k.SubmitJob(t.Context(), k.command(), sub); err == nil {
			t.Errorf("%v was taken", words)
		} else {
			wantRefusal(t, saved(0, err), ledger.Invalid)
		}
	}
	if id := k.submit(t, "a", 1, 8, anHour, after("any:2", "ok:1")); k.blocked(t, id) {
		t.Error("a job whose dependencies are met is blocked")
	}
}

// Cancelling a job that waits lets go, or ends, what follows it.
func TestCancellingResolvesWhatFollows(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	one := k.submit(t, "a", 1, 8, anHour)
	two := k.submit(t, "a", 1, 8, anHour, func(s *Submission) { s.After = []string{"ok:1"} })
	three := k.submit(t, "a", 1, 8, anHour, func(s *Submission) { s.After = []string{"ok:2"} })
	if err := k.CancelJob(t.Context(), k.command(), one); err != nil {
		t.Fatal(err)
	}
	for _, id := range []ledger.JobID{one, two, three} {
		k.want(t, id, "cancelled ")
	}
}

// Whose two awaited jobs end in the same moment is queued, not forgotten.
func TestTwoEndsAtOnceLetGo(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	var pairs [8][3]ledger.JobID
	for i := range pairs {
		a, b := k.submit(t, "a", 1, 8, anHour), k.submit(t, "a", 1, 8, anHour)
		pairs[i] = [3]ledger.JobID{a, b, k.submit(t, "a", 1, 8, anHour, func(s *Submission) { s.After = []string{fmt.Sprintf("any:%d:%d", a, b)} })}
	}
	for _, p := range pairs {
		ended := make(chan error, 2)
		commands := [2]Command{k.command(), k.command()}
		for i, cmd := range commands {
			go func() { ended <- k.CancelJob(t.Context(), cmd, p[i]) }()
		}
		for range commands {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		if k.blocked(t, p[2]) {
			t.Errorf("job %d waits for ever", p[2])
		}
	}
}

// A singleton starts when the one before it has ended.
func TestOneJobOfANameAtATime(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	named := func(s *Submission) { s.Name, s.Singleton = "nightly", true }
	one, two := k.submit(t, "a", 1, 8, anHour, named), k.submit(t, "a", 1, 8, anHour, named)
	other := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.want(t, one, "starting")
	k.want(t, two, "pending ")
	k.want(t, other, "starting")
	k.claimAll(t)
	k.pass(time.Minute)
	k.end(t, one, time.Minute, 1, false)
	k.cycle(t)
	k.want(t, two, "starting")
}

func (k *site) blocked(t testing.TB, job ledger.JobID) bool {
	t.Helper()
	var blocked bool
	if err := k.pool.QueryRow(t.Context(), `select blocked from jobs where id = $1`, job).Scan(&blocked); err != nil {
		t.Fatal(err)
	}
	return blocked
}
