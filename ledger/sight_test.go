package ledger

import "testing"

func TestSightUnderClosedPolicy(t *testing.T) {
	const now = Instant(1000)
	grant := func(path string, until Instant) Grant { return Grant{Role: Researcher, Path: path, Until: until} }
	mine := Actor{Person: 1, Grants: []Grant{grant("/lab/vision/seg", 0), grant("/lab/robots", now)}}
	token := Actor{Person: 1, Grants: []Grant{grant("/lab/vision", 0), grant("/lab/robots", 0)}, TokenProject: 7, TokenPath: "/lab/vision/seg"}
	all := []string{"/lab", "/lab/vision", "/lab/vision/seg", "/lab/vision/segments", "/lab/robots", "/lab/robots/arms", ""}
	for _, c := range []struct {
		name  string
		sight Sight
		sees  string // one letter per path: y or n
		all   bool
	}{
		{"open", SightOf(Actor{Person: 1}, false, now), "yyyyyyy", true},
		{"no role", SightOf(Actor{Person: 1}, true, now), "ynnnnnn", false},
		{"zero", Sight{}, "ynnnnnn", false},
		{"a project, and a role that is over", SightOf(mine, true, now), "yyynnnn", false},
		{"the same before it is over", SightOf(mine, true, now-1), "yyynyyn", false},
		{"a token", SightOf(token, true, now), "yyynnnn", false},
		{"a manager", SightOf(Actor{Grants: []Grant{grant("/lab/vision", 0)}}, true, now), "yyyynnn", false},
		{"at the root", SightOf(Actor{Grants: []Grant{grant("/lab", 0)}}, true, now), "yyyyyyy", true},
		{"a job's command", SightAt("/lab/robots/arms", true), "ynnnyyn", false},
	} {
		got := ""
		for _, path := range all {
			if c.sight.Sees(path) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != c.sees || c.sight.All() != c.all {
			t.Errorf("%s: %s, all %v; want %s, %v", c.name, got, c.sight.All(), c.sees, c.all)
		}
	}
	s := SightOf(mine, true, now)
	for path, want := range map[string]string{"/lab/vision/seg": "/lab/vision/seg", "/lab/vision/other": "/lab/vision", "/lab/robots/arms": "/lab"} {
		if got := s.Nearest(path); got != want {
			t.Errorf("nearest to %s: %s, want %s", path, got, want)
		}
	}
}
