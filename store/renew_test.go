package store

import (
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// New protection is asked for once, answered by the next cycle and kept with the
// attempt; what stands against it is said.
func TestRenewalIsAnsweredByTheNextCycle(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 40)
	k.project(t, "b", 1000)
	job := k.submit(t, "a", 1, 8, anHour, func(s *Submission) { s.Interactive = true })
	if err := k.RenewJob(t.Context(), k.command(), job, 0); err == nil || !strings.Contains(err.Error(), "no protection to renew") {
		t.Errorf("of a waiting job: %v", err)
	}
	k.cycle(t)
	k.claimAll(t)
	before, err := k.DesiredState(t.Context(), k.nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	k.pass(35 * time.Minute)
	k.cycle(t)
	if w := k.lastRun(t, job).Warning(); w == nil || w.LeftMs != 30*60_000 || w.Rival != nil {
		t.Errorf("warning %+v", w)
	}
	if d, err := k.DesiredState(t.Context(), k.nodes[0]); err != nil || len(d.Orders) != 1 || d.Version <= before.Version || d.Orders[0].Run.Warning() == nil {
		t.Errorf("the node is not told: %+v, %v", d, err)
	}
	cmd := k.command()
	for range 2 { // a double click asks once
		if err := k.RenewJob(t.Context(), cmd, job, 2*anHour); err != nil {
			t.Fatal(err)
		}
	}
	if run := k.lastRun(t, job); run.RenewMs != 2*anHour || run.Answer() != nil {
		t.Errorf("before the cycle: %d ms, %+v", run.RenewMs, run.Answer())
	}
	k.cycle(t)
	run := k.lastRun(t, job)
	if answer := run.Answer(); run.RenewMs != 0 || answer == nil || answer.Refused != nil || run.ProtectedUntil != k.Now().Add(2*anHour) || run.Warning() != nil {
		t.Errorf("after it: %+v, protected until %v", answer, run.ProtectedUntil.Time())
	}
	if got := k.balance(t, a, ledger.Held); got != "20.6666667" {
		t.Errorf("held %s, want 8 + 12.666667", got)
	}
	if err := k.RenewJob(t.Context(), k.command(), job, 6*anHour); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	if answer := k.lastRun(t, job).Answer(); answer == nil || answer.Refused == nil || answer.Refused.Code != scheduler.WhyFunds {
		t.Errorf("beyond the funds: %+v", answer)
	}
	if err := k.RenewJob(t.Context(), k.command(), job, 9*anHour); err == nil || !strings.Contains(err.Error(), "8 h") {
		t.Errorf("beyond the cap: %v", err)
	}
	letters := 0
	if err := k.pool.QueryRow(t.Context(), `select count(*) from outbox where kind = 'job.warned' and person_id = 1`).Scan(&letters); err != nil || letters != 1 {
		t.Errorf("%d letters, %v", letters, err)
	}
}

func (k *site) lastRun(t testing.TB, job ledger.JobID) *AttemptLine {
	t.Helper()
	d, err := k.Job(t.Context(), k.actor, job)
	if err != nil {
		t.Fatal(err)
	}
	return &d.Runs[len(d.Runs)-1]
}
