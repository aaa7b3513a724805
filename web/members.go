package web

import (
	"net/http"
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
