package web

import (
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// showChanges is what would start a waiting job: a part of its page, and a page
// of its own where there is no JavaScript.
func (s *server) showChanges(w http.ResponseWriter, r *http.Request) error {
	d, o, err := s.outlookOf(r)
	if err != nil {
		return err
	}
	m := s.outlook(&d, &o)
	shell := s.shell(r, "What would start job "+idText(d.ID), "jobs", s.jobAnswer(&d))
	shell.Crumbs = []view.Link{{Text: d.Title, URL: view.GroupURL(d.Project)}, {Text: jobName(&d.JobLine), URL: view.JobURL(d.ID)}}
	return s.show(w, r, view.OutlookPage(shell, m))
}

func (s *server) outlookOf(r *http.Request) (store.JobDetail, store.JobOutlook, error) {
	d, err := s.readJob(r, ledger.JobID(pathID(r)))
	if err != nil {
		return d, store.JobOutlook{}, err
	}
	o, err := s.readOutlook(r, d.ID)
	return d, o, err
}

// outlook words an outlook for the page; buttons are for whoever may change the job.
func (s *server) outlook(d *store.JobDetail, o *store.JobOutlook) view.Outlook {
	m := view.Outlook{Job: d.ID, Loaded: true, Ahead: aheadSentences(d, o.Ahead), AsItIs: asItIs(o), None: noOffer(d, o)}
	if o.At != 0 {
		m.AsOf = s.clock(o.At)
	}
	for i := range o.Changes {
		c := &o.Changes[i]
		offer := view.Offer{Kind: string(c.Kind), Text: c.Text(o.PoolName), Effect: scheduler.StartEffect(&c.Start, o.NodeName)}
		switch {
		case c.Kind == scheduler.ChangeFunds:
			offer.Text += " for " + d.Title + " on " + d.PoolName
			if c.LimitedBy != "" && c.LimitedBy != d.Path {
				offer.Text += ", and for " + c.LimitedBy + ", which limits it"
			}
			offer.Button, offer.URL = "Ask for GPU-hours", view.NewRequestURL
		case d.May.Change:
			offer.Button, offer.Fields = offerButton(c, o.PoolName), changeFields(c, o.PoolName)
		}
		m.Offers = append(m.Offers, offer)
	}
	return m
}

// asItIs says that no change is needed.
func asItIs(o *store.JobOutlook) string {
	if o.AsItIs == nil {
		return ""
	}
	return "Nothing has to change: it " + scheduler.StartEffect(o.AsItIs, o.NodeName) + "."
}

// noOffer says why nothing is offered; "" when something is.
func noOffer(d *store.JobDetail, o *store.JobOutlook) string {
	switch {
	case o.AsItIs != nil || len(o.Changes) > 0:
		return ""
	case d.State == "paused":
		return "It is paused; nothing starts it before you resume it."
	case d.Reason != nil && d.Reason.Outside():
		return "It is outside the queue; no change of its size would start it."
	case d.State != "waiting":
		return "It does not wait."
	case !d.May.Change && d.Last != nil && d.Last.Phase == "reserved":
		return "It has its promise already: the pool's reserved start."
	}
	return "No small change alone would start it in the next cycle: neither shorter protection, nor fewer GPUs, nor another pool, nor running free."
}

// offerButton names a change by its effect.
func offerButton(c *scheduler.Change, pool func(ledger.PoolID) string) string {
	switch c.Kind {
	case scheduler.ChangeMinimum:
		return "Protect for " + ledger.FormatMillis(c.To.Contract.MinMs)
	case scheduler.ChangeGPUs:
		return "Take " + plural(c.To.Shape.GPUs, "GPU")
	case scheduler.ChangeNodes:
		return "Take " + plural(c.To.Shape.Nodes, "node")
	case scheduler.ChangePool:
		return "Move to " + pool(c.To.Pool)
	case scheduler.ChangeCores:
		return "Ask for less per node"
	}
	return "Run it free"
}

// changeFields are the hidden fields of a change's form.
func changeFields(c *scheduler.Change, pool func(ledger.PoolID) string) []view.Option {
	fields := []view.Option{{Value: "key", Text: uuid.NewString()}}
	add := func(name string, n int64) {
		fields = append(fields, view.Option{Value: name, Text: strconv.FormatInt(n, 10)})
	}
	switch c.Kind {
	case scheduler.ChangeMinimum, scheduler.ChangeFree:
		add("min_runtime_ms", c.To.Contract.MinMs)
	case scheduler.ChangeGPUs:
		add("gpus", c.To.Shape.GPUs)
	case scheduler.ChangeNodes:
		add("nodes", c.To.Shape.Nodes)
	case scheduler.ChangeCores:
		add("cpu_milli", c.To.Shape.CPUMilli)
		add("ram_mib", c.To.Shape.RAMMiB)
	case scheduler.ChangePool:
		fields = append(fields, view.Option{Value: "pool", Text: pool(c.To.Pool)})
	}
	return fields
}

// aheadSentences say which jobs went before a job although they were queued later.
func aheadSentences(d *store.JobDetail, list []store.Ahead) []string {
	var out []string
	for i := range list {
		a := &list[i]
		funded := a.Started - a.Free
		switch {
		case funded == 0:
		case d.Contract.MinMs == 0:
			out = append(out, counted(funded, "funded job", "funded jobs")+" of "+a.Title+", queued later, started first: unfunded jobs only fill what those leave.")
		case a.Own:
			out = append(out, counted(funded, "job", "jobs")+" of its own project, queued later, started first: more urgent, or of a member who had used less.")
		case a.Standing != nil:
			out = append(out, counted(funded, "job", "jobs")+" of "+a.Title+", queued later, started first: "+a.Title+" had had "+a.Standing.Times(d.Policy.LookbackMs)+" × its share, and lower goes first; or they fitted where this one did not.")
		default:
			out = append(out, counted(funded, "job", "jobs")+" of "+a.Title+", queued later, started first.")
		}
		if a.Free > 0 {
			out = append(out, counted(a.Free, "job", "jobs")+" of "+a.Title+" started unfunded, in room that no funded job could use then.")
		}
		if a.Waiting > 0 {
			verb := " rank before it now."
			if a.Waiting == 1 {
				verb = " ranks before it now."
			}
			out = append(out, counted(a.Waiting, "job", "jobs")+" of "+a.Title+", queued later,"+verb)
		}
	}
	return out
}

// changeJob alters a waiting job in place.
func (s *server) changeJob(w http.ResponseWriter, r *http.Request) error {
	id := ledger.JobID(pathID(r))
	ch := store.JobChange{Pool: r.PostFormValue("pool")}
	for _, f := range []struct {
		name string
		into *int64
	}{{"nodes", &ch.Nodes}, {"gpus", &ch.GPUs}, {"cpu_milli", &ch.CPUMilli}, {"ram_mib", &ch.RAMMiB}} {
		n, err := formNumber(r, f.name)
		if err != nil {
			return err
		}
		*f.into = n
	}
	if r.PostFormValue("min_runtime_ms") != "" {
		n, err := formNumber(r, "min_runtime_ms")
		if err != nil {
			return err
		}
		ch.MinMs = &n
	}
	if err := s.store.ChangeJob(r.Context(), s.command(r), id, ch); err != nil {
		return err
	}
	return s.done(w, r, view.JobURL(id), "Changed. The next cycle decides on it as it is now.")
}

// formNumber reads a whole number of a form; 0 when it is not there.
func formNumber(r *http.Request, name string) (int64, error) {
	text := r.PostFormValue(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid(name, "number.unreadable", "Field "+name+" is a whole number.")
	}
	return n, nil
}

// apiChanges is the outlook for programs.
func (s *server) apiChanges(w http.ResponseWriter, r *http.Request) error {
	d, o, err := s.outlookOf(r)
	if err != nil {
		return err
	}
	m := s.outlook(&d, &o)
	out := api.Outlook{Job: d.ID, AsItIs: m.AsItIs, None: m.None, Changes: []api.Offer{}, Ahead: m.Ahead, At: timeOf(o.At)}
	for i := range m.Offers {
		c := &o.Changes[i]
		offer := api.Offer{Kind: string(c.Kind), Text: m.Offers[i].Text, Effect: m.Offers[i].Effect, Short: c.Short}
		if c.Kind != scheduler.ChangeFunds {
			offer.Change = wireChange(c, o.PoolName)
		}
		out.Changes = append(out.Changes, offer)
	}
	return writeJSON(w, http.StatusOK, out)
}

func wireChange(c *scheduler.Change, pool func(ledger.PoolID) string) *api.ChangeJob {
	out := &api.ChangeJob{}
	switch c.Kind {
	case scheduler.ChangeMinimum, scheduler.ChangeFree:
		out.MinRuntimeMS = &c.To.Contract.MinMs
	case scheduler.ChangeGPUs:
		out.GPUs = c.To.Shape.GPUs
	case scheduler.ChangeNodes:
		out.Nodes = c.To.Shape.Nodes
	case scheduler.ChangeCores:
		out.CPUMilli, out.RAMMiB = c.To.Shape.CPUMilli, c.To.Shape.RAMMiB
	case scheduler.ChangePool:
		out.Pool = pool(c.To.Pool)
	}
	return out
}

// apiChange alters a waiting job.
func (s *server) apiChange(w http.ResponseWriter, r *http.Request) error {
	var in api.ChangeJob
	if err := readBody(r, &in); err != nil {
		return err
	}
	id := ledger.JobID(pathID(r))
	ch := store.JobChange{Pool: in.Pool, Nodes: in.Nodes, GPUs: in.GPUs, CPUMilli: in.CPUMilli, RAMMiB: in.RAMMiB, MinMs: in.MinRuntimeMS}
	if err := s.store.ChangeJob(r.Context(), s.apiCommand(r, in.Key), id, ch); err != nil {
		return err
	}
	return s.answerJob(w, r, id, http.StatusOK)
}
