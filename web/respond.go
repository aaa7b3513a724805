package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"
	"github.com/google/uuid"

	"tranche/ledger"
	"tranche/web/api"
	"tranche/web/view"
)

// show renders into a buffer first, so that a fault half way through a page
// still answers 500 and not half a page with 200.
func (s *server) show(w http.ResponseWriter, r *http.Request, page templ.Component) error {
	return s.showAs(w, r, http.StatusOK, page)
}

func (s *server) showAs(w http.ResponseWriter, r *http.Request, status int, page templ.Component) error {
	var b bytes.Buffer
	if err := page.Render(r.Context(), &b); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A visitor who left is nobody's fault.
	_, _ = w.Write(b.Bytes())
	return nil
}

// done ends a POST: the next page is a GET that says what happened.
func (s *server) done(w http.ResponseWriter, r *http.Request, to, flash string) error {
	if flash != "" {
		s.sessions.Put(r.Context(), "flash", flash)
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// again shows a refused form with its typed values (422), when err is something
// that other values would cure; any other error is returned as it is.
func (s *server) again(w http.ResponseWriter, r *http.Request, err error, page func(view.Form) (templ.Component, error)) error {
	refusals := refusalsOf(err)
	if len(refusals) == 0 {
		return err
	}
	for _, f := range refusals {
		taken := f.Kind == ledger.Conflict && f.Field != "" && f.Field != "key" // a name that is taken, days that overlap
		if f.Kind != ledger.Invalid && f.Kind != ledger.Short && !taken {
			return err
		}
	}
	component, err := page(view.Form{Key: formKey(r), Values: r.PostForm, Refusals: refusals})
	if err != nil {
		return err
	}
	return s.showAs(w, r, http.StatusUnprocessableEntity, component)
}

// newForm is an empty form with a fresh idempotency key.
func newForm() view.Form { return view.Form{Key: uuid.NewString(), Values: url.Values{}} }

// formKey is the key the form came with; a form without one gets no second chance.
func formKey(r *http.Request) string { return r.PostFormValue("key") }

// refusalsOf gives the refusals inside an error, none for a fault.
func refusalsOf(err error) ledger.Refusals {
	var many ledger.Refusals
	if errors.As(err, &many) {
		return many
	}
	var one *ledger.Refusal
	if errors.As(err, &one) && one != nil {
		return ledger.Refusals{one}
	}
	return nil
}

// fail answers an error: refusals with their sentence and status, anything else
// with 500 and a reference, its text never shown.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	ref := visitOf(r.Context()).id
	err = hideDenied(sightOf(r), err)
	refusals := refusalsOf(err)
	if len(refusals) == 0 {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			http.Error(w, "This is larger than a form may be.", http.StatusRequestEntityTooLarge)
			return
		}
		if r.Context().Err() != nil { // the caller is gone, or the server stops
			http.Error(w, "The request was given up.", http.StatusServiceUnavailable)
			return
		}
		s.log.ErrorContext(r.Context(), "request failed", "request", ref, "cause", err)
	}
	if isAPI(r) {
		writeProblem(w, problemOf(refusals, ref))
		return
	}
	page := view.RefusalPage{
		Title: "Tranche could not answer", Ref: ref,
		Detail: "Something in Tranche is wrong; it was recorded. Nothing you sent was carried out. Try again, and name the reference when you ask for help.",
		Next:   []view.Link{{Text: "Home", URL: view.HomeURL}},
	}
	status := http.StatusInternalServerError
	if len(refusals) > 0 {
		first := refusals[0]
		status = first.Kind.Status()
		page = view.RefusalPage{Title: titleOf(first.Kind), Detail: refusals.Error(), Facts: factsOf(first), Next: nextOf(r, first)}
	}
	shell := s.bareShell(r, page.Title)
	if showErr := s.showAs(w, r, status, view.ErrorPage(shell, page)); showErr != nil {
		s.log.ErrorContext(r.Context(), "error page failed", "request", ref, "cause", showErr)
		http.Error(w, page.Detail+" Reference "+ref+".", status)
	}
}

func titleOf(k ledger.Kind) string {
	switch k {
	case ledger.Invalid:
		return "This cannot be taken as it is"
	case ledger.Denied:
		return "This is not yours to do"
	case ledger.Missing:
		return "Not here"
	case ledger.Conflict:
		return "Somebody was faster"
	case ledger.Short:
		return "Not enough GPU-hours"
	}
	return "Not now"
}

// nextOf offers the next step: back to the page the person came from, and home.
func nextOf(r *http.Request, f *ledger.Refusal) []view.Link {
	links := []view.Link{{Text: "Home", URL: view.HomeURL}}
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host && from.Path != r.URL.Path {
		links = append([]view.Link{{Text: "Back to the page before", URL: from.RequestURI()}}, links...)
	}
	if f.Kind == ledger.Denied {
		links = append(links, view.Link{Text: "Ask to join a project", URL: view.JoinURL})
	}
	return links
}

func factsOf(f *ledger.Refusal) []view.Fact {
	names := []struct{ fact, name string }{
		{"needed", "Needed, GPU-h"}, {"available", "Available, GPU-h"}, {"short", "Short, GPU-h"}, {"limited_by", "Limited by"},
	}
	var out []view.Fact
	for _, n := range names {
		if v := f.Facts[n.fact]; v != "" {
			out = append(out, view.Fact{Name: n.name, Value: v, ID: "fact-" + n.fact})
		}
	}
	return out
}

// isAPI tells programs from people: programs get problem+json.
func isAPI(r *http.Request) bool { return isProgram(r.URL.Path) }

// isProgram says that a path or pattern is for programs.
func isProgram(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/agent/")
}

// problemOf is the RFC 9457 answer for refusals, or for a fault when there are none.
func problemOf(refusals ledger.Refusals, ref string) api.Problem {
	if len(refusals) == 0 {
		return api.Problem{
			Type: "about:blank", Title: "Tranche could not answer", Status: http.StatusInternalServerError,
			Detail: "Something in Tranche is wrong; it was recorded.", Instance: ref, Code: "fault",
		}
	}
	first := refusals[0]
	p := api.Problem{
		Type: "about:blank", Title: titleOf(first.Kind), Status: first.Kind.Status(),
		Detail: refusals.Error(), Instance: ref, Code: first.Code, Facts: first.Facts,
	}
	for _, f := range refusals {
		if f.Field != "" {
			p.Fields = append(p.Fields, api.FieldProblem{Field: f.Field, Code: f.Code, Detail: f.Detail})
		}
	}
	return p
}

func writeProblem(w http.ResponseWriter, p api.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	// A program that hung up is nobody's fault.
	_ = json.NewEncoder(w).Encode(p)
}

// writeJSON answers a program.
func writeJSON(w http.ResponseWriter, status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A program that hung up is nobody's fault.
	_, _ = w.Write(append(b, '\n'))
	return nil
}

// missing refuses what does not exist, or what this person may not know to exist.
func missing(what, detail string) *ledger.Refusal {
	return &ledger.Refusal{Kind: ledger.Missing, Code: what + ".missing", Detail: detail}
}

// invalid refuses one field.
func invalid(field, code, detail string) *ledger.Refusal {
	return &ledger.Refusal{Kind: ledger.Invalid, Code: code, Field: field, Detail: detail}
}

// refield renames the fields of refusals from the rules' names to the form's:
// every pair is a prefix and what stands for it in the form.
func refield(err error, pairs ...string) error {
	refusals := refusalsOf(err)
	if len(refusals) == 0 {
		return err
	}
	out := make(ledger.Refusals, len(refusals))
	for i, f := range refusals {
		renamed := *f
		for p := 0; p+1 < len(pairs); p += 2 {
			if rest, ok := strings.CutPrefix(f.Field, pairs[p]); ok {
				renamed.Field = pairs[p+1] + rest
			}
		}
		out[i] = &renamed
	}
	return out
}
