package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
)

func arrayOf(text string, more ...func(*Submission)) func(*Submission) {
	return func(s *Submission) {
		s.Array = text
		for _, f := range more {
			f(s)
		}
	}
}

func (k *site) wantInvalid(t testing.TB, sub Submission) {
	t.Helper()
	_, err := k.SubmitJob(t.Context(), k.command(), sub)
	wantRefusal(t, saved(0, err), ledger.Invalid)
}

// states counts the jobs of an array by state: "pending 1998, live 2".
func (k *site) states(t testing.TB, array ledger.ArrayID) string {
	t.Helper()
	var text string
	if err := k.pool.QueryRow(t.Context(), `select coalesce(string_agg(s || ' ' || n, ', ' order by s), '') from (
		select state as s, count(*) as n from jobs where array_id = $1 group by state) c`, array).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func (k *site) wantStates(t testing.TB, array ledger.ArrayID, want string) {
	t.Helper()
	if got := k.states(t, array); got != want {
		t.Errorf("array A%d: %s, want %s", array, got, want)
	}
}

// An array is one submission: the same key gives it again, and lists show one line.
func TestArrayIsSubmittedOnce(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	k.submit(t, "a", 1, 8, anHour)
	minMs := anHour
	sub := Submission{Project: "/lab/a", Pool: "h100", GPUs: 8, MinMs: &minMs, Command: "sweep", Array: "10-2009"}
	cmd := k.command()
	first, err := k.SubmitJob(t.Context(), cmd, sub)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := k.SubmitJob(t.Context(), cmd, sub); err != nil || again != first {
		t.Errorf("job %d again, want %d (%v)", again, first, err)
	}
	k.wantStates(t, 1, "pending 2000")
	page, err := k.Jobs(t.Context(), JobQuery{})
	if err != nil || len(page.Jobs) != 2 || page.Jobs[0].Array == nil || page.Waiting != 2001 {
		t.Fatalf("%d lines, %d waiting, %v", len(page.Jobs), page.Waiting, err)
	}
	if a := page.Jobs[0].Array; a.Size != 2000 || a.Waiting != 2000 || a.FirstJob != first || a.Indices != "10-2009" {
		t.Errorf("%+v", a)
	}
	page, err = k.Jobs(t.Context(), JobQuery{Array: 1, Limit: 3, After: first + 1})
	if err != nil || len(page.Jobs) != 3 || page.Jobs[0].ArrayIndex != 12 || page.Jobs[2].ArrayIndex != 14 {
		t.Errorf("jobs after the second: %+v, %v", page.Jobs, err)
	}
	d, err := k.Job(t.Context(), k.actor, first+1)
	if err != nil || d.Private == nil || d.Private.Command != "sweep" || d.Before != first || d.Next != first+2 {
		t.Errorf("the second job: %+v before %d next %d, %v", d.Private, d.Before, d.Next, err)
	}
	k.wantInvalid(t, Submission{Project: "/lab/a", Pool: "h100", GPUs: 8, Command: "x", Array: "0-10000"})
	k.wantInvalid(t, Submission{Project: "/lab/a", Pool: "h100", GPUs: 8, Command: "x", Array: "0-1", OutputPath: "out.log"})
}

// What an array's job is told.
func TestArrayJobsKnowTheirIndex(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	k.submit(t, "a", 1, 4, anHour, arrayOf("3,9", func(s *Submission) { s.OutputPath, s.Env = "out-%A-%a.log", map[string]string{"LR": "1"} }))
	k.cycle(t)
	var told []string
	for _, o := range k.orders(t)[k.nodes[0]] {
		e := o.Env
		told = append(told, strings.Join([]string{
			o.OutputPath, e["TRANCHE_ARRAY_ID"], e["TRANCHE_ARRAY_INDEX"], e["TRANCHE_ARRAY_COUNT"], e["TRANCHE_ARRAY_MIN"], e["TRANCHE_ARRAY_MAX"], e["LR"],
		}, " "))
	}
	if want := []string{"out-1-3.log 1 3 2 3 9 1", "out-1-9.log 1 9 2 3 9 1"}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// S19: one member's array of 2,000 and another's single job, equal urgency: the
// single job starts as soon as its member's usage is lower.
func TestS19ArrayOf2000AndASingleJob(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	k.db.Exec(t, `insert into persons (issuer, subject, created_at) values ('i', 'other', '2026-10-01')`)
	k.db.Exec(t, `insert into role_grants (person_id, role, group_id, granted_at) values (2, 'researcher', 1, '2026-10-01')`)
	sweeper := k.actor
	other, err := k.Actor(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	as := func(a ledger.Actor) { k.actor = a }
	run := func(id ledger.JobID) {
		t.Helper()
		k.cycle(t)
		k.want(t, id, "starting")
		k.claimAll(t)
		k.pass(time.Hour)
		k.end(t, id, time.Hour, 0, false)
	}
	as(other)
	run(k.submit(t, "a", 1, 8, anHour))
	run(k.submit(t, "a", 1, 8, anHour)) // the other member has had 16 GPU-h
	as(sweeper)
	array := k.submit(t, "a", 1, 8, anHour, arrayOf("0-1999"))
	as(other)
	single := k.submit(t, "a", 1, 8, anHour)
	run(array)     // 0 against 16
	run(array + 1) // 8 against 16
	run(array + 2) // 16 against 16: who came first
	k.cycle(t)     // 24 against 16
	k.want(t, single, "starting")
	k.wantStates(t, 1, "finished 3, pending 1997")
	if r, err := k.Verify(t.Context()); err != nil || !r.OK() {
		t.Errorf("the books: %+v, %v", r, err)
	}
}
