package web

import (
	"cmp"
	"net/http"
	"slices"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
)

// memberOperations are the calls about a project's members.
func (s *server) memberOperations() []operation {
	return []operation{
		{
			http.MethodGet, api.PathMembers, ledger.SeeOpen, signedIn, "members", "The members of a project with their shares, caps and usage.",
			[]parameter{{"project", "string", "path"}},
			nil,
			api.Members{},
			s.apiMembers,
		},
		{http.MethodPost, api.PathMembers, ledger.PeopleInvite, anywhere, "set-member", "Give a member of a project a share and a cap; the next cycle goes by them.", nil, api.SetMember{}, api.Members{}, s.apiSetMember},
	}
}

// projectAt finds a project by its path.
func (s *server) projectAt(r *http.Request, path string) (store.Group, error) {
	groups, err := s.readGroups(r)
	if err != nil {
		return store.Group{}, err
	}
	for _, g := range groups {
		if g.Project && g.Path == path {
			return g, nil
		}
	}
	return store.Group{}, invalid("project", "project.missing", "Name a project by its path; there is no project "+path+".")
}

func (s *server) apiMembers(w http.ResponseWriter, r *http.Request) error {
	g, err := s.projectAt(r, r.URL.Query().Get("project"))
	if err != nil {
		return err
	}
	return s.answerMembers(w, r, g)
}

// answerMembers gives who holds a role in the project itself, as its page does.
func (s *server) answerMembers(w http.ResponseWriter, r *http.Request, g store.Group) error {
	known, err := s.readMembership(r, g)
	if err != nil {
		return err
	}
	policy, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return err
	}
	actor, now := actorOf(r), s.store.Now()
	leads := actor.May(ledger.PeopleInvite, g.Path, now) == nil || actor.May(ledger.PeopleGrant, g.Path, now) == nil
	out := api.Members{Project: g.Path, Lookback: policy.LookbackMs, Members: []api.Member{}}
	for _, p := range known.people {
		at := slices.IndexFunc(out.Members, func(m api.Member) bool { return m.Person == p.Person })
		if at < 0 {
			m := api.Member{Person: p.Person, Name: p.Name, Until: timeOf(p.Until), Share: max(1, known.shares[p.Person].Share), Cap: known.shares[p.Person].CapGPUs, Used: known.used[p.Person]}
			if leads || p.Person == actor.Person {
				m.Mail = p.Email
			}
			at, out.Members = len(out.Members), append(out.Members, m)
		}
		m := &out.Members[at]
		m.Roles = append(m.Roles, string(p.Role))
		if end := timeOf(p.Until); m.Until != nil && (end == nil || end.After(*m.Until)) {
			m.Until = end
		}
	}
	slices.SortFunc(out.Members, func(a, b api.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Person, b.Person))
	})
	return writeJSON(w, http.StatusOK, out)
}

func (s *server) apiSetMember(w http.ResponseWriter, r *http.Request) error {
	var in api.SetMember
	if err := readBody(r, &in); err != nil {
		return err
	}
	g, err := s.projectAt(r, in.Project)
	if err != nil {
		return err
	}
	m := store.MemberShare{Person: in.Person, Share: in.Share, CapGPUs: in.Cap}
	if err := s.store.SetMemberShare(r.Context(), s.apiCommand(r, in.Key), g.ID, m); err != nil {
		return refield(err, "cap", "cap_gpus")
	}
	return s.answerMembers(w, r, g)
}
