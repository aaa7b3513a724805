package store

import (
	"testing"
	"time"

	"tranche/ledger"
)

// Groups of the identity provider are roles: gained and lost at sign-in.
func TestIdentityGroupsBecomeRolesAtSignIn(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.SetIdentityRoles(t.Context(), []IdentityRole{{Group: "admins", Role: ledger.Admin, Path: "/lab"}, {Group: "vision-leads", Role: ledger.Manager, Path: "/lab/vision"}}))
	person := k.person(t, "Rosalind", "vision-leads", "unknown")
	actor, err := k.Actor(t.Context(), person)
	k.must(t, err)
	if len(actor.Grants) != 1 || actor.Grants[0].Role != ledger.Manager || actor.Grants[0].Path != "/lab/vision" || actor.Name != "Rosalind" {
		t.Errorf("actor %+v", actor)
	}
	k.grant(t, person, ledger.Researcher, k.seg)
	if again := k.person(t, "Rosalind"); again != person {
		t.Errorf("the second sign-in made person %d, want %d", again, person)
	}
	actor, err = k.Actor(t.Context(), person)
	k.must(t, err)
	if len(actor.Grants) != 1 || actor.Grants[0].Role != ledger.Researcher {
		t.Errorf("after the group was lost: %+v, want the granted role only", actor.Grants)
	}
}

func TestRolesEndAndTheLastAdminStays(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.GrantRole(t.Context(), k.as(t, k.ada), RoleInput{Person: k.nobody, Role: ledger.Manager, Group: k.vision, Until: k.Now().Add(3_600_000)}))
	if a := k.as(t, k.nobody).Actor; a.May(ledger.SplitWrite, "/lab/vision", k.Now()) != nil {
		t.Error("the deputy may not split")
	}
	k.db.Clock.Advance(time.Hour)
	if a := k.as(t, k.nobody).Actor; len(a.Grants) != 0 {
		t.Errorf("the deputy's role did not end: %+v", a.Grants)
	}
	refused(t, k.GrantRole(t.Context(), k.as(t, k.grace), RoleInput{Person: k.nobody, Role: ledger.Manager, Group: k.vision}), ledger.Denied)
	last := RoleInput{Person: k.ada, Role: ledger.Admin, Group: k.lab}
	refused(t, k.RevokeRole(t.Context(), k.as(t, k.ada), last), ledger.Conflict)
	k.grant(t, k.hedy, ledger.Admin, k.lab)
	k.must(t, k.RevokeRole(t.Context(), k.as(t, k.hedy), last))
	refused(t, k.RevokeRole(t.Context(), k.as(t, k.ada), RoleInput{Person: k.hedy, Role: ledger.Admin, Group: k.lab}), ledger.Denied)
}

func TestAskToJoinAndInvite(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	id, err := k.AskToJoin(t.Context(), k.as(t, k.nobody), k.seg, "I label data.")
	k.must(t, err)
	_, err = k.AskToJoin(t.Context(), k.as(t, k.nobody), k.seg, "Again.")
	refused(t, err, ledger.Conflict)
	refused(t, k.DecideJoin(t.Context(), k.as(t, k.mary), id, true), ledger.Denied)
	open, err := k.OpenJoins(t.Context(), k.as(t, k.emmy).Actor)
	k.must(t, err)
	if other, _ := k.OpenJoins(t.Context(), k.as(t, k.mary).Actor); len(open) != 1 || len(other) != 0 || open[0].Note != "I label data." {
		t.Errorf("open asks %+v, of the other PI %+v", open, other)
	}
	k.must(t, k.DecideJoin(t.Context(), k.as(t, k.emmy), id, true))
	refused(t, k.DecideJoin(t.Context(), k.as(t, k.grace), id, false), ledger.Conflict)
	if a := k.as(t, k.nobody).Actor; a.May(ledger.JobSubmit, "/lab/vision/segmentation", k.Now()) != nil {
		t.Error("the new member may not submit")
	}
	k.must(t, k.RevokeRole(t.Context(), k.as(t, k.emmy), RoleInput{Person: k.nobody, Role: ledger.Researcher, Group: k.seg}))

	secret := newSecret()
	refused(t, k.CreateInvite(t.Context(), k.as(t, k.emmy), Invite{Project: k.track, Email: "a@b.test", Role: ledger.Researcher, Secret: secret}), ledger.Denied)
	refused(t, k.CreateInvite(t.Context(), k.as(t, k.emmy), Invite{Project: k.seg, Email: "nonsense", Role: ledger.Admin, Secret: secret}), ledger.Invalid)
	k.must(t, k.CreateInvite(t.Context(), k.as(t, k.emmy), Invite{Project: k.seg, Email: "a@b.test", Role: ledger.Researcher, Secret: secret}))
	if n := k.count(t, "select count(*) from invites where encode(token_hash, 'escape') like '%' || $1 || '%'", secret); n != 0 {
		t.Error("the invite's secret is in its row")
	}
	offer, err := k.InviteOffer(t.Context(), secret)
	if err != nil || offer.Path != "/lab/vision/segmentation" {
		t.Errorf("offer %+v, %v", offer, err)
	}
	_, err = k.AcceptInvite(t.Context(), k.as(t, k.nobody), secret)
	k.must(t, err)
	_, err = k.AcceptInvite(t.Context(), k.as(t, k.mary), secret)
	refused(t, err, ledger.Missing)
}

func TestTokensAreBoundHashedAndEnd(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	in := TokenInput{Project: k.seg, Name: "laptop", Days: 2, Limit: 5 * hour, Secret: "trn_" + newSecret()}
	bad := in
	bad.Name, bad.Days = "", 9999
	_, err := k.CreateToken(t.Context(), k.as(t, k.emmy), bad)
	refused(t, err, ledger.Invalid)
	_, err = k.CreateToken(t.Context(), k.as(t, k.mary), in)
	refused(t, err, ledger.Denied)
	id, err := k.CreateToken(t.Context(), k.as(t, k.emmy), in)
	k.must(t, err)
	for _, table := range []string{"api_tokens", "command_keys", "audit", "outbox"} {
		if n := k.count(t, "select count(*) from "+table+" x where x::text like '%' || $1 || '%'", in.Secret); n != 0 {
			t.Errorf("the secret is in %s", table)
		}
	}
	a, err := k.TokenActor(t.Context(), in.Secret)
	k.must(t, err)
	if a.Person != k.emmy || a.Token != id || a.May(ledger.JobSubmit, "/lab/vision/segmentation", k.Now()) != nil || a.May(ledger.JobSubmit, "/lab/vision/tracking", k.Now()) == nil {
		t.Errorf("actor of the token %+v", a)
	}
	_, err = k.TokenActor(t.Context(), in.Secret+"x")
	refused(t, err, ledger.Denied)
	k.db.Clock.Advance(48 * time.Hour)
	_, err = k.TokenActor(t.Context(), in.Secret)
	refused(t, err, ledger.Denied)
	in.Secret = "trn_" + newSecret()
	id, err = k.CreateToken(t.Context(), k.as(t, k.emmy), in)
	k.must(t, err)
	refused(t, k.RevokeToken(t.Context(), k.as(t, k.mary), id), ledger.Denied)
	k.must(t, k.RevokeToken(t.Context(), k.as(t, k.emmy), id))
	_, err = k.TokenActor(t.Context(), in.Secret)
	refused(t, err, ledger.Denied)
}

// Roles that are held above projects have tokens, too: for the program where they
// are held, and no further.
func TestTokensForProgramsCarryTheirRoles(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	lab, err := k.Root(t.Context())
	k.must(t, err)
	in := TokenInput{Project: lab.ID, Name: "night script", Days: 2, Secret: "trn_" + newSecret()}
	_, err = k.CreateToken(t.Context(), k.as(t, k.emmy), in)
	refused(t, err, ledger.Denied)
	_, err = k.CreateToken(t.Context(), k.as(t, k.ada), in)
	k.must(t, err)
	whole, err := k.TokenActor(t.Context(), in.Secret)
	k.must(t, err)
	in.Project, in.Secret = k.vision, "trn_"+newSecret()
	_, err = k.CreateToken(t.Context(), k.as(t, k.ada), in)
	k.must(t, err)
	part, err := k.TokenActor(t.Context(), in.Secret)
	k.must(t, err)
	now := k.Now()
	if whole.May(ledger.PolicyWrite, lab.Path, now) != nil || part.May(ledger.PolicyWrite, lab.Path, now) == nil {
		t.Error("the root's token does less, or the program's more, than its place allows")
	}
	if part.May(ledger.TreeWrite, "/lab/vision", now) != nil || whole.May(ledger.JobSubmit, "/lab/vision/segmentation", now) == nil {
		t.Error("a token has other verbs than its owner's roles")
	}
}

func TestGroupsAreSuspendedRenamedArchived(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.RenameGroup(t.Context(), k.as(t, k.ada), k.seg, "Segmentation II", "00077"))
	k.must(t, k.SuspendGroup(t.Context(), k.as(t, k.ada), k.seg, true))
	g, err := k.Group(t.Context(), k.seg)
	k.must(t, err)
	if g.Title != "Segmentation II" || g.CostCentre != "00077" || g.Path != "/lab/vision/segmentation" || g.SuspendedAt == 0 {
		t.Errorf("group %+v", g)
	}
	k.must(t, k.SuspendGroup(t.Context(), k.as(t, k.ada), k.seg, false))
	refused(t, k.ArchiveGroup(t.Context(), k.as(t, k.ada), k.vision), ledger.Conflict)
	refused(t, k.ArchiveGroup(t.Context(), k.as(t, k.grace), k.track), ledger.Denied)
	k.must(t, k.ArchiveGroup(t.Context(), k.as(t, k.ada), k.track))
	groups, err := k.Groups(t.Context())
	k.must(t, err)
	if len(groups) != 3 || groups[2].ID != k.seg {
		t.Errorf("living groups %+v", groups)
	}
	_, err = k.CreateGroup(t.Context(), k.as(t, k.ada), GroupInput{Parent: k.seg, Title: "Below a project"})
	refused(t, err, ledger.Invalid)
	_, err = k.CreateGroup(t.Context(), k.as(t, k.ada), GroupInput{Parent: k.lab, Title: "vision"})
	refused(t, err, ledger.Conflict)
	lines, err := k.Audit(t.Context(), AuditQuery{Verb: "group.rename", Limit: 10})
	k.must(t, err)
	if len(lines) != 1 || lines[0].Name != "Ada" || lines[0].Remote != "192.0.2.1" {
		t.Errorf("audit %+v", lines)
	}
}
