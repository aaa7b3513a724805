package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

// showJobs lists jobs by a filter, one keyset page at a time.
func (s *server) showJobs(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	m := view.Jobs{Project: q.Get("project"), Pool: q.Get("pool"), State: q.Get("state"), Mine: q.Get("mine") != ""}
	page, err := s.readJobs(r, jobQuery(q, actorOf(r)))
	if err != nil {
		return err
	}
	if m.Projects, m.Pools, err = s.jobFilters(r); err != nil {
		return err
	}
	m.Rows, m.Pager = s.jobRows(page.Jobs, page.Policy.LookbackMs), jobPager(r.URL, page)
	m.MaySubmit = mayAnywhere(actorOf(r), ledger.JobSubmit, s.store.Now())
	shell := s.shell(r, "Jobs", "jobs", jobsAnswer(page))
	shell.Refresh = r.URL.RequestURI()
	if m.MaySubmit {
		shell.Actions = []view.Action{{Text: "Submit a job", URL: view.NewJobURL, ID: "new-job"}}
	}
	return s.show(w, r, view.JobsPage(shell, m))
}

// jobQuery reads a list's filter from an address.
func jobQuery(q url.Values, actor ledger.Actor) store.JobQuery {
	id := func(name string) ledger.JobID {
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return ledger.JobID(n)
	}
	out := store.JobQuery{Project: q.Get("project"), Pool: q.Get("pool"), State: q.Get("state"), Before: id("before"), After: id("after"), Array: ledger.ArrayID(id("array"))}
	if q.Get("mine") != "" {
		out.Member = actor.Person
	}
	return out
}

func jobsAnswer(page store.JobPage) string {
	return counted(page.Waiting, "job waits", "jobs wait") + " and " + counted(page.Running, "runs now.", "run now.")
}

// jobPager leads to the pages of smaller and larger job numbers.
func jobPager(at *url.URL, page store.JobPage) view.Pager {
	p := view.Pager{Shown: plural(int64(len(page.Jobs)), "job") + " shown"}
	if n := len(page.Jobs); n > 0 {
		if page.Newer {
			p.Newer = pageAddress(at, "after", page.Jobs[0].ID)
		}
		if page.Older {
			p.Older = pageAddress(at, "before", page.Jobs[n-1].ID)
		}
	}
	return p
}

// pageAddress is the same list from a job on.
func pageAddress(at *url.URL, name string, id ledger.JobID) string {
	q := at.Query()
	q.Del("before")
	q.Del("after")
	q.Set(name, idText(id))
	return at.Path + "?" + q.Encode()
}

// jobFilters are the choices of a list's filter.
func (s *server) jobFilters(r *http.Request) (projects, pools []view.Option, err error) {
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, nil, err
	}
	projects = []view.Option{{Value: "", Text: "all"}}
	for _, g := range groups {
		projects = append(projects, view.Option{Value: g.Path, Text: strings.Repeat("\u2003", max(0, strings.Count(g.Path, "/")-1)) + g.Title})
	}
	pools, err = s.poolOptions(r, "all")
	return projects, pools, err
}

// poolOptions lists pools by name; first is the text of the empty choice, "" for none.
func (s *server) poolOptions(r *http.Request, first string) ([]view.Option, error) {
	all, err := s.store.Pools(r.Context())
	if err != nil {
		return nil, err
	}
	var out []view.Option
	if first != "" {
		out = append(out, view.Option{Value: "", Text: first})
	}
	for _, p := range all {
		out = append(out, view.Option{Value: p.Name, Text: p.Name})
	}
	return out, nil
}

// showJobForm opens the form with a preset, an older job's values or a link's.
func (s *server) showJobForm(w http.ResponseWriter, r *http.Request) error {
	form := newForm()
	form.Values = view.PresetValues(r.URL.Query().Get("preset"))
	if from, err := queryNumber(r, "from"); err == nil && from != 0 {
		d, err := s.readJob(r, ledger.JobID(from))
		if err != nil {
			return err
		}
		fillJobForm(form.Values, &d, r.URL.Query().Has("preset"))
	}
	for name, value := range r.URL.Query() {
		form.Values[name] = value
	}
	page, err := s.jobFormPage(r, form, "")
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// submitJob takes the form: every wrong field is named at once and typed values stay.
func (s *server) submitJob(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	sub, refusals := parseJobForm(r.PostForm)
	check := r.PostForm.Get("check") != ""
	var id ledger.JobID
	var job *scheduler.Job
	var err error
	if check || len(refusals) > 0 {
		job, err = s.store.CheckJob(r.Context(), actorOf(r), sub)
	} else {
		id, err = s.store.SubmitJob(r.Context(), s.command(r), sub)
	}
	if err != nil || len(refusals) > 0 {
		return s.again(w, r, joinRefusals(refusals, err), func(f view.Form) (templ.Component, error) { return s.jobFormPage(r, f, "") })
	}
	if check {
		policy, err := s.store.PolicyNow(r.Context())
		if err != nil {
			return err
		}
		page, err := s.jobFormPage(r, view.Form{Key: formKey(r), Values: r.PostForm}, quote(job, &sub, policy.PastProtectionPPM))
		if err != nil {
			return err
		}
		return s.show(w, r, page)
	}
	return s.submitted(w, r, id, &sub)
}

// quote says what a job would set aside at its start, and what it costs after its
// protection.
func quote(j *scheduler.Job, sub *store.Submission, pastPPM int64) string {
	pool, each := sub.Pool, ""
	if n := sub.Jobs(); sub.Array != "" {
		each = " Each of its " + plural(n, "job") + " does so when it starts."
	}
	if j.Contract.MinMs == 0 {
		return "Nothing is set aside: it runs free on " + pool + " and may be stopped at any time."
	}
	return "Sets aside " + j.Rate.Cum(j.Contract.MinMs).Hours() + " GPU-h on " + pool + " when it starts: " +
		milliText(j.Rate.MilliGPU) + " charged GPUs, protected for " + spanText(j.Contract.MinMs) + "." + each + pastText(pastPPM) + " Nothing was submitted."
}

// pastText tells the price after protection where it is another one.
func pastText(ppm int64) string {
	if ppm == 1_000_000 {
		return ""
	}
	return " After that a GPU-second costs " + percent(ppm) + " of the price."
}

// joinRefusals adds what the store refuses to what could not be read, field by
// field: a field that could not be read is not named twice.
func joinRefusals(unreadable ledger.Refusals, err error) error {
	more := refusalsOf(err)
	if err != nil && len(more) == 0 {
		return err
	}
	seen := map[string]bool{}
	for _, f := range unreadable {
		seen[f.Field] = true
	}
	out := unreadable
	for _, f := range more {
		shown := *f
		shown.Field = formField(f.Field)
		if shown.Field == "" || !seen[shown.Field] {
			out = append(out, &shown)
		}
	}
	return out
}

// formField is the form's name of a field that the interface names otherwise.
func formField(field string) string {
	switch field {
	case "env":
		return "environment"
	case "output_path":
		return "output"
	case "min_runtime_ms":
		return "minimum"
	case "grace_ms":
		return "grace"
	case "max_runtime_ms":
		return "maximum"
	case "cpu_milli":
		return "cpus"
	case "ram_mib":
		return "memory_gib"
	case "hbm_mib":
		return "hbm_gib"
	case "ioc_milli":
		return "io_cores"
	case "max_charge_units":
		return "max_charge"
	}
	return field
}

// jobFormPage is the form with what the person may choose from.
func (s *server) jobFormPage(r *http.Request, form view.Form, quoted string) (templ.Component, error) {
	actor, now := actorOf(r), s.store.Now()
	policy, err := s.store.PolicyNow(r.Context())
	if err != nil {
		return nil, err
	}
	m := view.JobForm{Form: form, Quote: quoted, MayUrgency: 5, Caps: view.JobCaps{Minimum: spanText(policy.CapMs), Past: pastText(policy.PastProtectionPPM), Grace: spanText(policy.GraceCapMs), Maximum: "60 days"}}
	if mayAnywhere(actor, ledger.JobUrgent, now) {
		m.MayUrgency = 9
	}
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, err
	}
	ids := []ledger.GroupID{}
	for _, g := range groups {
		if g.Project && actor.May(ledger.JobSubmit, g.Path, now) == nil {
			m.Projects = append(m.Projects, view.Option{Value: g.Path, Text: g.Title})
			ids = append(ids, g.ID)
		}
	}
	if m.Pools, err = s.poolOptions(r, ""); err != nil {
		return nil, err
	}
	usable, err := s.store.UsableBy(r.Context(), ids)
	if err != nil {
		return nil, err
	}
	best := -1
	for i := range usable {
		m.Usable = append(m.Usable, s.usableRow(&usable[i]))
		if best < 0 || usable[i].Amount > usable[best].Amount {
			best = i
		}
	}
	if best >= 0 && form.Value("project") == "" && form.Value("pool") == "" {
		form.Values["project"], form.Values["pool"] = []string{usable[best].Path}, []string{usable[best].PoolName}
	}
	return view.JobFormPage(s.shell(r, "Submit a job", "jobs", homeAnswer(actor, usable, 0)), m), nil
}

// usableRow is what one project may use on one pool, beside the form.
func (s *server) usableRow(u *store.Usable) view.UsableRow {
	return view.UsableRow{
		ProjectID: u.Project, Project: u.Title, PoolID: u.Pool, Pool: u.PoolName, Usable: hours(u.Amount),
		LimitedBy: limitText(u.LimitedBy, u.Path), Until: s.until(u.Until), Deliverable: hours(u.Deliverable),
		Bar: view.BudgetBar{
			Label: u.Title + " on " + u.PoolName, Total: u.Spent + u.Held + u.Left, Spent: u.Spent, Held: u.Held,
			Limited: max(0, u.Left-u.Amount), LimitedBy: u.LimitedBy, DuePPM: -1, ProjectedPPM: -1,
		},
	}
}

// cancelJob, pauseJob and resumeJob take a verb on a job.
func (s *server) cancelJob(w http.ResponseWriter, r *http.Request) error {
	id := ledger.JobID(pathID(r))
	if err := s.store.CancelJob(r.Context(), s.command(r), id); err != nil {
		return err
	}
	return s.done(w, r, view.JobURL(id), "Cancelled. What ran gets its grace; what was set aside and not used goes back.")
}

func (s *server) pauseJob(w http.ResponseWriter, r *http.Request) error {
	id := ledger.JobID(pathID(r))
	if err := s.store.PauseJob(r.Context(), s.command(r), id); err != nil {
		return err
	}
	return s.done(w, r, view.JobURL(id), "Paused. It keeps its place and starts again when you resume it.")
}

// stopJob is an operator's stop of what runs, with a reason its owner reads.
func (s *server) stopJob(w http.ResponseWriter, r *http.Request) error {
	id := ledger.JobID(pathID(r))
	if err := s.store.StopJob(r.Context(), s.command(r), id, r.PostFormValue("reason")); err != nil {
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) {
			return s.jobPage(r, jobForms{stop: f, renew: newForm()})
		})
	}
	return s.done(w, r, view.JobURL(id), "Told to stop. It has its grace; what was charged since its last checkpoint is credited.")
}

func (s *server) resumeJob(w http.ResponseWriter, r *http.Request) error {
	id := ledger.JobID(pathID(r))
	if err := s.store.ResumeJob(r.Context(), s.command(r), id); err != nil {
		return err
	}
	return s.done(w, r, view.JobURL(id), "Resumed at its old place in the queue.")
}
