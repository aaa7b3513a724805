package web

import (
	"net/http"
	"slices"
	"strconv"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// memberTexts write a member's share and cap; one that was never set has 1 and none.
func memberTexts(m store.MemberShare) (share, capGPUs string) {
	share = strconv.FormatInt(max(1, m.Share), 10)
	if m.CapGPUs > 0 {
		capGPUs = strconv.FormatInt(m.CapGPUs, 10)
	}
	return share, capGPUs
}

// mostMembers bounds the roles that one answer about a project reads.
const mostMembers = 1000

// membership is who holds a role in a project itself, with what the members have
// used and what they are given.
type membership struct {
	people []store.PersonGrant
	used   map[ledger.PersonID]ledger.Amount
	shares map[ledger.PersonID]store.MemberShare
}

func (s *server) readMembership(r *http.Request, g store.Group) (m membership, err error) {
	if m.people, err = s.readPeople(r, store.PeopleQuery{Group: g.ID, Limit: mostMembers}); err != nil {
		return m, err
	}
	m.people = slices.DeleteFunc(m.people, func(p store.PersonGrant) bool { return p.Group != g.ID })
	if m.used, err = s.store.MemberUse(r.Context(), g.ID); err != nil {
		return m, err
	}
	m.shares, err = s.store.MemberShares(r.Context(), g.ID)
	return m, err
}

// setMemberShare gives a member of a project a share and a cap.
func (s *server) setMemberShare(w http.ResponseWriter, r *http.Request) error {
	id := ledger.GroupID(pathID(r))
	f := &formReader{values: r.PostForm}
	m := store.MemberShare{Person: ledger.PersonID(f.number("person")), Share: f.number("share"), CapGPUs: f.number("cap")}
	if len(f.refusals) > 0 {
		return f.refusals
	}
	if err := s.store.SetMemberShare(r.Context(), s.command(r), id, m); err != nil {
		return err
	}
	return s.done(w, r, view.GroupURL(id), "Set. The next cycle goes by it.")
}
