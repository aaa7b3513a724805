package web

import (
	"net/http"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// renewJob asks for new protection of what runs; the next cycle answers.
func (s *server) renewJob(w http.ResponseWriter, r *http.Request) error {
	id := ledger.JobID(pathID(r))
	f := &formReader{values: r.PostForm}
	ms := f.span("for")
	var err error
	if len(f.refusals) > 0 {
		err = f.refusals
	} else {
		err = s.store.RenewJob(r.Context(), s.command(r), id, orZero(ms))
	}
	if err != nil {
		return s.again(w, r, err, func(form view.Form) (templ.Component, error) {
			return s.jobPage(r, jobForms{stop: newForm(), renew: form})
		})
	}
	return s.done(w, r, view.JobURL(id), "Asked for new protection. The dispatcher answers within seconds.")
}

func orZero(ms *int64) int64 {
	if ms == nil {
		return 0
	}
	return *ms
}

// renewal is what the page says about new protection: the form while it may be
// asked for, the newest answer, and the newest warning.
func (s *server) renewal(d *store.JobDetail, form view.Form) *view.Renewal {
	m := &view.Renewal{}
	if d.May.Renew {
		m.Form, m.Default = &form, spanText(d.Contract.MinMs)
	}
	if n := len(d.Runs); n > 0 {
		m.Pending, m.Answer, m.Warning = s.renewalWords(d, &d.Runs[n-1])
	}
	if m.Form == nil && m.Answer == "" && m.Warning == "" {
		return nil
	}
	return m
}

// renewalWords are the newest attempt's answer and warning in sentences, for page,
// interface and command line alike.
func (s *server) renewalWords(d *store.JobDetail, a *store.AttemptLine) (pending bool, answer, warning string) {
	if a.Phase != "running" {
		return false, "", ""
	}
	names := s.names(&d.JobLine, d.Names)
	if w := a.Warning(); w != nil && a.ProtectedUntil > s.store.Now() {
		warning = scheduler.WarningSentence(w, d.Policy.LookbackMs, names)
	}
	if r := a.Answer(); r != nil && a.RenewMs == 0 {
		answer = scheduler.RenewalSentence(r, d.Policy.LookbackMs, names)
	}
	return a.RenewMs > 0, answer, warning
}

// wireRenewal is the same for programs; nil when nothing was asked or said.
func (s *server) wireRenewal(d *store.JobDetail) *api.Renewal {
	n := len(d.Runs)
	if n == 0 {
		return nil
	}
	a := &d.Runs[n-1]
	out := &api.Renewal{}
	out.Pending, out.Answer, out.Warning = s.renewalWords(d, a)
	if r := a.Answer(); r != nil && out.Answer != "" {
		out.Granted = r.Refused == nil
	}
	if *out == (api.Renewal{}) {
		return nil
	}
	return out
}

// apiRenew asks for new protection.
func (s *server) apiRenew(w http.ResponseWriter, r *http.Request) error {
	var in api.Renew
	if err := readBody(r, &in); err != nil {
		return err
	}
	id := ledger.JobID(pathID(r))
	if err := s.store.RenewJob(r.Context(), s.apiCommand(r, in.Key), id, in.ForMS); err != nil {
		return err
	}
	return s.answerJob(w, r, id, http.StatusOK)
}
