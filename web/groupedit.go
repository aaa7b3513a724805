package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// editGroup shows the form that changes a group.
func (s *server) editGroup(w http.ResponseWriter, r *http.Request) error {
	g, err := s.store.Group(r.Context(), ledger.GroupID(pathID(r)))
	if err != nil {
		return err
	}
	page, err := s.groupEditPage(r, g, newForm())
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

func (s *server) groupEditPage(r *http.Request, g store.Group, form view.Form) (templ.Component, error) {
	shell := s.shell(r, "Change "+g.Title, "tree", "")
	var err error
	if shell.Crumbs, err = s.crumbs(r, g.Path); err != nil {
		return nil, err
	}
	shell.Crumbs = append(shell.Crumbs, view.Link{Text: g.Title, URL: view.GroupURL(g.ID)})
	return view.GroupEditPage(shell, view.GroupEdit{
		ID: g.ID, Program: !g.Project, Form: form, Name: g.Title, CostCentre: g.CostCentre,
		Overcommit: factorText(g.OvercommitPPM),
	}), nil
}

// factorText writes a factor in ppm with at least two decimals: "1.60".
func factorText(ppm int64) string {
	text := strings.TrimRight(fmt.Sprintf("%d.%06d", ppm/1_000_000, ppm%1_000_000), "0")
	for len(text)-strings.IndexByte(text, '.') < 3 {
		text += "0"
	}
	return text
}

// parseFactor reads "1.6" or "1,60" as ppm, exactly.
func parseFactor(field, text string) (int64, *ledger.Refusal) {
	t := strings.ReplaceAll(strings.TrimSpace(text), ",", ".")
	whole, rest, _ := strings.Cut(t, ".")
	if len(rest) <= 6 && whole != "" {
		if n, err := strconv.ParseUint(whole+rest+"000000"[len(rest):], 10, 40); err == nil {
			return int64(n), nil
		}
	}
	return 0, invalid(field, "factor.unreadable", "Write a factor with at most six decimals, such as 1.60.")
}

// saveGroup changes a group. Name and factor are two commands: each has its own key.
func (s *server) saveGroup(w http.ResponseWriter, r *http.Request) error {
	g, err := s.store.Group(r.Context(), ledger.GroupID(pathID(r)))
	if err != nil {
		return err
	}
	if err := s.changeGroup(r, g); err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.groupEditPage(r, g, f) })
	}
	return s.done(w, r, view.GroupURL(g.ID), "Saved.")
}

func (s *server) changeGroup(r *http.Request, g store.Group) error {
	factor := g.OvercommitPPM
	if !g.Project {
		var refusal *ledger.Refusal
		if factor, refusal = parseFactor("overcommit", r.PostFormValue("overcommit")); refusal != nil {
			return refusal
		}
	}
	cmd := s.command(r)
	if cmd.Key != "" {
		cmd.Key += ":factor"
	}
	if factor != g.OvercommitPPM {
		if err := s.store.SetOvercommit(r.Context(), cmd, g.ID, factor); err != nil {
			return err
		}
	}
	return s.store.RenameGroup(r.Context(), s.command(r), g.ID, r.PostFormValue("name"), r.PostFormValue("cost_centre"))
}

// suspendGroup keeps waiting jobs of a group from starting.
func (s *server) suspendGroup(w http.ResponseWriter, r *http.Request) error {
	id := ledger.GroupID(pathID(r))
	if err := s.store.SuspendGroup(r.Context(), s.command(r), id, true); err != nil {
		return err
	}
	return s.done(w, r, view.GroupURL(id), "Suspended: nothing new starts.")
}

// resumeGroup lets them start again.
func (s *server) resumeGroup(w http.ResponseWriter, r *http.Request) error {
	id := ledger.GroupID(pathID(r))
	if err := s.store.SuspendGroup(r.Context(), s.command(r), id, false); err != nil {
		return err
	}
	return s.done(w, r, view.GroupURL(id), "Resumed: waiting jobs may start.")
}

// archiveGroup ends a group that is empty and quiet.
func (s *server) archiveGroup(w http.ResponseWriter, r *http.Request) error {
	if err := s.store.ArchiveGroup(r.Context(), s.command(r), ledger.GroupID(pathID(r))); err != nil {
		return err
	}
	return s.done(w, r, view.TreeURL, "Archived. Its books stay.")
}
