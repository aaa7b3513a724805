package ledger

import (
	"slices"
	"testing"
	"time"
)

func TestMay(t *testing.T) {
	who := func(role Role, path string) Actor {
		return Actor{Person: 5, Grants: []Grant{{Role: role, Path: path}}}
	}
	token := who(PI, "/lab")
	token.TokenProject, token.TokenPath = 3, "/lab/a"
	deputy := who(Manager, "/lab")
	deputy.Grants[0].Until = 100
	for name, c := range map[string]struct {
		actor Actor
		verb  Verb
		path  string
		owner PersonID
		now   Instant
		want  bool
	}{
		"signed in sees":               {Actor{Person: 5}, SeeOpen, "/lab/a", 0, 0, true},
		"nobody sees nothing":          {Actor{}, SeeOpen, "/lab/a", 0, 0, false},
		"no role, no logs":             {Actor{Person: 5}, SeePrivate, "/lab/a", 0, 0, false},
		"role applies below":           {who(Manager, "/lab"), RequestReview, "/lab/vision/a", 0, 0, true},
		"root covers all":              {who(Admin, "/"), TreeWrite, "/lab", 0, 0, true},
		"not above":                    {who(Manager, "/lab/vision"), SplitWrite, "/lab", 0, 0, false},
		"not beside, same beginning":   {who(PI, "/lab/a"), RequestWrite, "/lab/ab", 0, 0, false},
		"admin does not submit":        {who(Admin, "/"), JobSubmit, "/lab/a", 0, 0, false},
		"researcher cancels own":       {who(Researcher, "/lab/a"), JobCancel, "/lab/a", 5, 0, true},
		"researcher, others' job":      {who(Researcher, "/lab/a"), JobCancel, "/lab/a", 6, 0, false},
		"researcher, nobody's job":     {who(Researcher, "/lab/a"), JobCancel, "/lab/a", 0, 0, false},
		"own, but role lost":           {Actor{Person: 5}, JobCancel, "/lab/a", 5, 0, false},
		"PI cancels any":               {who(PI, "/lab/a"), JobCancel, "/lab/a", 6, 0, true},
		"PI pauses only own":           {who(PI, "/lab/a"), JobPause, "/lab/a", 6, 0, false},
		"operator stops":               {who(Operator, "/"), JobStop, "/lab/a", 6, 0, true},
		"operator reads no logs":       {who(Operator, "/"), SeePrivate, "/lab/a", 0, 0, false},
		"auditor reads":                {who(Auditor, "/"), AuditRead, "/", 0, 0, true},
		"auditor writes nothing":       {who(Auditor, "/"), RequestReview, "/lab/a", 0, 0, false},
		"deputy until":                 {deputy, RequestReview, "/lab/a", 0, 99, true},
		"deputy no more":               {deputy, RequestReview, "/lab/a", 0, 100, false},
		"token in its project":         {token, RequestWrite, "/lab/a", 0, 0, true},
		"token elsewhere":              {token, RequestWrite, "/lab/b", 0, 0, false},
		"token sees what everyone may": {token, SeeOpen, "/lab/b", 0, 0, true},
		"unknown verb":                 {who(Admin, "/"), "fly", "/", 0, 0, false},
	} {
		r := c.actor.MayOwn(c.verb, c.path, c.owner, c.now)
		if (r == nil) != c.want || (r != nil && (r.Kind != Denied || r.Detail == "")) {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// Every verb stands in the table once and some role may do it; no role may do all.
func TestPermissionTable(t *testing.T) {
	verbs := Verbs()
	for i, v := range verbs {
		if slices.Contains(verbs[:i], v) {
			t.Errorf("%s stands twice", v)
		}
		can := slices.ContainsFunc(Roles(), func(role Role) bool {
			return (Actor{Person: 5, Grants: []Grant{{Role: role, Path: "/"}}}).MayOwn(v, "/lab", 5, 0) == nil
		})
		if !can {
			t.Errorf("nobody may %s", v)
		}
	}
	for _, role := range Roles() {
		all := !slices.ContainsFunc(verbs, func(v Verb) bool {
			return (Actor{Person: 5, Grants: []Grant{{Role: role, Path: "/"}}}).MayOwn(v, "/lab", 5, 0) != nil
		})
		if all {
			t.Errorf("%s may do everything", role)
		}
	}
}

func TestDeniedSaysWhoMay(t *testing.T) {
	r := (Actor{Person: 5}).May(RequestReview, "/lab/vision/a", 0)
	if r == nil || r.Detail != "Only manager, admin at /lab/vision/a or above may do this." || r.Kind.Status() != 403 {
		t.Errorf("%+v", r)
	}
}

func TestInstants(t *testing.T) {
	if At(time.Time{}) != 0 || !Instant(0).Time().IsZero() {
		t.Error("no time is not zero")
	}
	i := instant("2026-06-30T22:00:00Z")
	if got := i.Add(-1500).MillisSince(i); got != -1500 {
		t.Errorf("−1.5 s is %d ms", got)
	}
	if got := Instant(1).MillisSince(2); got != -1 {
		t.Errorf("−1 µs is %d ms, rounded down", got)
	}
	if got := i.Time().Format(time.RFC3339); got != "2026-06-30T22:00:00Z" {
		t.Error(got)
	}
	for kind, status := range map[Kind]int{Invalid: 422, Denied: 403, Missing: 404, Conflict: 409, Short: 409, Unavailable: 503, 0: 500} {
		if kind.Status() != status {
			t.Errorf("kind %d is %d", kind, kind.Status())
		}
	}
}
