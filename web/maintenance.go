package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// maintainNode plans a node's maintenance, or takes it back.
func (s *server) maintainNode(w http.ResponseWriter, r *http.Request) error {
	id := ledger.NodeID(pathID(r))
	var m store.Maintenance
	var err error
	done := "Its maintenance is taken back; it takes work as before."
	if r.PostForm.Get("do") != "clear" {
		done = "Planned. Nothing will be protected beyond its begin."
		m, err = s.readMaintenance(r.PostForm.Get("from"), r.PostForm.Get("until"), r.PostForm.Get("why"))
	}
	if err == nil {
		err = s.store.PlanMaintenance(r.Context(), s.command(r), id, m)
	}
	if err != nil {
		return s.again(w, r, err, func(form view.Form) (templ.Component, error) {
			return s.nodePage(r, nodeForms{drain: newForm(), maintain: form})
		})
	}
	return s.done(w, r, view.NodeURL(id), done)
}

// readMaintenance reads a plan as people and programs write it. One that says nothing
// is refused, since to the store it would mean to take the plan back.
func (s *server) readMaintenance(from, until, why string) (store.Maintenance, error) {
	m := store.Maintenance{Why: strings.TrimSpace(why)}
	var refusals ledger.Refusals
	read := func(name, text string, at *ledger.Instant) {
		if text == "" {
			return
		}
		t, err := time.Parse(time.RFC3339, text)
		if err == nil {
			*at = ledger.At(t)
			return
		}
		var refusal *ledger.Refusal
		if *at, refusal = s.localInstant(name, strings.Replace(text, " ", "T", 1)); refusal != nil {
			refusals = append(refusals, refusal)
		}
	}
	read("from", from, &m.From)
	read("until", until, &m.Until)
	if len(refusals) > 0 {
		return m, refusals
	}
	if m == (store.Maintenance{}) {
		return m, invalid("from", "node.maintenance", "Say when the maintenance begins and why.")
	}
	return m, nil
}

// isMaintained says whether maintenance of a node is planned or under way.
func (s *server) isMaintained(n *store.NodeLine) bool {
	return n.MaintFrom != 0 && (n.MaintUntil == 0 || n.MaintUntil > s.store.Now())
}

// maintenanceText says when a node is worked on, and what that means now.
func (s *server) maintenanceText(n *store.NodeLine) string {
	if !s.isMaintained(n) {
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
