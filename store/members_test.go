package store

import (
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// Who leads a project gives its members shares and caps; the dispatcher goes by
// them, and a job beyond its owner's cap says so.
func TestMemberSharesAndCaps(t *testing.T) {
	t.Parallel()
	k := newSite(t, 3)
	a := k.project(t, "a", 1000)
	person := k.actor.Person
	wantRefusal(t, saved(0, k.SetMemberShare(t.Context(), k.command(), a, MemberShare{Person: person, Share: 0})), ledger.Invalid)
	wantRefusal(t, saved(0, k.SetMemberShare(t.Context(), k.command(), a, MemberShare{Person: 99, Share: 1})), ledger.Missing)
	cmd := k.command()
	for range 2 {
		if err := k.SetMemberShare(t.Context(), cmd, a, MemberShare{Person: person, Share: 3, CapGPUs: 8}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := k.submit(t, "a", 1, 8, anHour), k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.want(t, first, "starting")
	k.want(t, second, "pending ")
	d, err := k.Job(t.Context(), k.actor, second)
	if err != nil || d.Reason == nil || d.Reason.Code != scheduler.WhyMemberCap || d.Reason.Fact(scheduler.FactCap) != "8" {
		t.Errorf("reason %+v, %v", d.Reason, err)
	}
	shares, err := k.MemberShares(t.Context(), a)
	if want := (MemberShare{person, 3, 8}); err != nil || shares[person] != want {
		t.Errorf("shares %+v, %v", shares, err)
	}
	if err := k.SetMemberShare(t.Context(), k.command(), a, MemberShare{Person: person, Share: 1}); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.want(t, second, "starting")
}
