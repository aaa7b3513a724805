package web

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// arrayVerb is a command on all jobs of an array.
type arrayVerb func(ctx context.Context, cmd store.Command, id ledger.ArrayID) error

// showArray is one array's page: what has become of its jobs, and each of them.
func (s *server) showArray(w http.ResponseWriter, r *http.Request) error {
	id := ledger.ArrayID(pathID(r))
	d, err := s.readArray(r, id)
	if err != nil {
		return err
	}
	q := jobQuery(r.URL.Query(), actorOf(r))
	page, err := s.readJobs(r, store.JobQuery{Array: id, State: q.State, Before: q.Before, After: q.After})
	if err != nil {
		return err
	}
	m := view.Array{
		ID: id, Counts: arrayCounts(&d.ArrayLine), State: q.State, Rows: s.jobRows(page.Jobs, page.Policy.LookbackMs), Pager: arrayPager(r, page),
		Facts: s.arrayFacts(&d), Workload: workloadFacts(d.Private), MayCancel: d.May.Cancel, MayPause: d.May.Pause, MayResume: d.May.Resume, Key: uuid.NewString(),
	}
	shell := s.shell(r, arrayName(&d.ArrayLine), "jobs", arrayAnswer(&d.ArrayLine))
	shell.Crumbs = []view.Link{{Text: d.First.Title, URL: view.GroupURL(d.First.Project)}, {Text: "Jobs", URL: view.JobsURL + "?project=" + d.First.Path}}
	if !d.Over() {
		shell.Refresh = r.URL.RequestURI()
	}
	return s.show(w, r, view.ArrayPage(shell, m))
}

func arrayName(a *store.ArrayLine) string {
	if a.Name != "" {
		return a.Name
	}
	return "array A" + strconv.FormatInt(int64(a.ID), 10)
}

func arrayCounts(a *store.ArrayLine) view.ArrayCounts {
	return view.ArrayCounts{
		Size: a.Size, Running: a.Running, Waiting: a.Waiting, Paused: a.Paused, Finished: a.Finished, Failed: a.Failed, Cancelled: a.Cancelled,
	}
}

// arrayAnswer is the sentence at the top: how far it is, and what it cost.
func arrayAnswer(a *store.ArrayLine) string {
	over := a.Finished + a.Failed + a.Cancelled
	text := strconv.Itoa(over) + " of " + plural(int64(a.Size), "job") + " over"
	if a.Running > 0 {
		text += ", " + strconv.Itoa(a.Running) + " on the way"
	}
	return text + "; " + hours(a.Charged).Text + " GPU-h charged."
}

// arrayFacts is what all jobs of an array have in common.
func (s *server) arrayFacts(d *store.ArrayDetail) []view.Fact {
	atOnce := "as many as may"
	if d.AtOnce > 0 {
		atOnce = strconv.Itoa(d.AtOnce)
	}
	facts := []view.Fact{
		{Name: "Array", Value: "A" + strconv.FormatInt(int64(d.ID), 10), ID: "array-id"},
		{Name: "Indices", Value: d.Indices, ID: "array-indices"},
		{Name: "At once", Value: atOnce, ID: "array-at-once"},
		{Name: "Owner", Value: d.First.Owner},
		{Name: "Project", Value: d.First.Path},
		{Name: "Shape", Value: shapeOf(&d.First) + " each on " + d.First.PoolName},
		{Name: "Submitted", Value: s.when(d.Submitted).Text, Exact: s.when(d.Submitted).Exact},
		{Name: "Protected for", Value: minimumText(d.First.Contract.MinMs), Term: "protected for"},
		{Name: "Urgency", Value: strconv.Itoa(int(d.First.Contract.Urgency)), Term: "urgency"},
	}
	if d.After != "" {
		facts = append(facts, view.Fact{Name: "Starts after", Value: d.After, ID: "array-after"})
	}
	return facts
}

// arrayPager leads to the pages of smaller and larger indices.
func arrayPager(r *http.Request, page store.JobPage) view.Pager {
	p := view.Pager{Shown: plural(int64(len(page.Jobs)), "job") + " shown", Back: "Lower indices", Forth: "Higher indices"}
	n := len(page.Jobs)
	if n == 0 {
		return p
	}
	if page.Older {
		p.Newer = pageAddress(r.URL, "before", page.Jobs[0].ID)
	}
	if page.Newer {
		p.Older = pageAddress(r.URL, "after", page.Jobs[n-1].ID)
	}
	return p
}

// arrayForm takes a verb on all jobs of an array.
func (s *server) arrayForm(do arrayVerb, said string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		id := ledger.ArrayID(pathID(r))
		if err := do(r.Context(), s.command(r), id); err != nil {
			return err
		}
		return s.done(w, r, view.ArrayURL(id), said)
	}
}

// submitted leads to what a submission has become: a job, or an array.
func (s *server) submitted(w http.ResponseWriter, r *http.Request, id ledger.JobID, sub *store.Submission) error {
	if sub.Array == "" {
		return s.done(w, r, view.JobURL(id), "Job "+idText(id)+" waits for its start.")
	}
	d, err := s.readJob(r, id)
	if err != nil {
		return err
	}
	return s.done(w, r, view.ArrayURL(d.ArrayID), plural(int64(d.ArraySize), "job")+" submitted; they start in the order of their indices.")
}

func (s *server) apiArray(w http.ResponseWriter, r *http.Request) error {
	d, err := s.readArray(r, ledger.ArrayID(pathID(r)))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wireArray(&d.ArrayLine, &d.First))
}

// apiArrayVerb is a command on all jobs of an array.
func (s *server) apiArrayVerb(do arrayVerb) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in api.Command
		if err := readBody(r, &in); err != nil {
			return err
		}
		if err := do(r.Context(), s.apiCommand(r, in.Key), ledger.ArrayID(pathID(r))); err != nil {
			return err
		}
		return s.apiArray(w, r)
	}
}
