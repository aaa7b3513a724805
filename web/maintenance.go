package web

import (
	"net/http"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// maintainNode plans a node's maintenance, or takes it back.
func (s *server) maintainNode(w http.ResponseWriter, r *http.Request) error {
	id := ledger.NodeID(pathID(r))
	var m store.Maintenance
	var refusals ledger.Refusals
	done := "Its maintenance is taken back; it takes work as before."
	if r.PostForm.Get("do") != "clear" {
		done = "Planned. Nothing will be protected beyond its begin."
		m.Why = r.PostForm.Get("why")
		for name, at := range map[string]*ledger.Instant{"from": &m.From, "until": &m.Until} {
			text := r.PostForm.Get(name)
			if text == "" {
				continue
			}
			typed, refusal := s.localInstant(name, text)
			if refusal != nil {
				refusals = append(refusals, refusal)
			}
			*at = typed
		}
		if len(refusals) == 0 && m == (store.Maintenance{}) {
			refusals = append(refusals, invalid("from", "node.maintenance", "Say when the maintenance begins and why."))
		}
	}
	var err error
	if len(refusals) > 0 {
		err = refusals
	} else {
		err = s.store.PlanMaintenance(r.Context(), s.command(r), id, m)
	}
	if err != nil {
		return s.again(w, r, err, func(form view.Form) (templ.Component, error) {
			return s.nodePage(r, nodeForms{drain: newForm(), maintain: form})
		})
	}
	return s.done(w, r, view.NodeURL(id), done)
}

// maintenanceText says when a node is worked on, and what that means now.
func (s *server) maintenanceText(n *store.NodeLine) string {
	if n.MaintFrom == 0 || n.MaintUntil != 0 && n.MaintUntil <= s.store.Now() {
		return ""
	}
	text := "Planned maintenance from " + s.when(n.MaintFrom).Exact
	if n.MaintUntil != 0 {
		text += " to " + s.when(n.MaintUntil).Exact
	}
	text += ": " + n.MaintWhy + ". "
	if n.MaintFrom <= s.store.Now() {
		return text + "It takes nothing new, and empties as protections end."
	}
	return text + "Nothing is protected beyond its begin."
}
