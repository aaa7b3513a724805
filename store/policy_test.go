package store

import (
	"errors"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// A policy is saved as a new version, once, from the version it was made from;
// a knob that an old version lacks has its default.
func TestPolicyIsVersioned(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.db.Exec(t, `insert into role_grants (person_id, role, group_id, granted_at) values (1, 'admin', 1, '2026-10-01')`)
	admin, err := k.Actor(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	cmd := func() Command { c := k.command(); c.Actor = admin; return c }
	p := scheduler.DefaultPolicy()
	p.MarginPPM = 100_000
	first := cmd()
	for range 2 { // a double click
		if v, err := k.SavePolicy(t.Context(), first, 1, p, "calmer"); err != nil || v != 2 {
			t.Fatalf("version %d, %v", v, err)
		}
	}
	p.CapMs /= 2
	wantRefusal(t, saved(k.SavePolicy(t.Context(), cmd(), 1, p, "an admin who looked earlier")), ledger.Conflict)
	wantRefusal(t, saved(k.SavePolicy(t.Context(), cmd(), 2, p, "")), ledger.Invalid)
	bad := p
	bad.GraceMs = bad.GraceCapMs + 1
	wantRefusal(t, saved(k.SavePolicy(t.Context(), cmd(), 2, bad, "why")), ledger.Invalid)
	k.project(t, "below", 1)
	k.db.Exec(t, `update role_grants set group_id = (select max(id) from groups) where role = 'admin'`)
	if admin, err = k.Actor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, saved(k.SavePolicy(t.Context(), cmd(), 2, p, "an admin of a project only")), ledger.Denied)
	k.db.Exec(t, `insert into policies (version, policy, made_at, why) values (3, '{"cap_ms": 3600000}', '2026-10-02', 'by hand')`)
	now, err := k.PolicyNow(t.Context())
	if err != nil || now.Version != 3 || now.CapMs != 3_600_000 || !now.ReservedStarts || now.MarginPPM != 50_000 {
		t.Errorf("%+v, %v", now, err)
	}
	history, err := k.PolicyHistory(t.Context())
	if err != nil || len(history) != 2 || history[1].Why != "calmer" || len(history[1].Turns) != 1 || history[1].Turns[0].Knob.Name != "margin_ppm" || len(history[0].Turns) != 2 {
		t.Errorf("%+v, %v", history, err)
	}
}

func saved(_ int64, err error) error {
	var many ledger.Refusals
	if errors.As(err, &many) && len(many) > 0 {
		return many[0]
	}
	return err
}

// What the next cycle would do otherwise is said without doing it.
func TestPolicyPreviewShowsTheNextCycle(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	job := k.submit(t, "a", 1, 8, 8*anHour)
	p := scheduler.DefaultPolicy()
	if diff, err := k.PolicyPreview(t.Context(), p); err != nil || !diff.Empty() {
		t.Errorf("the same policy: %+v, %v", diff, err)
	}
	p.HeadsPerProject = 1
	p.MaxSteps = 1000
	k.db.Exec(t, `update nodes set maint_from = $1`, k.Now().Add(anHour).Time())
	k.peek.at = 0 // what was read before the maintenance was planned is stale
	if diff, err := k.PolicyPreview(t.Context(), p); err != nil || !diff.Empty() {
		t.Errorf("nothing can start: %+v, %v", diff, err)
	}
	k.want(t, job, "pending ")
}
