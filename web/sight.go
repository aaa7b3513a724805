package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// What a reader may see of others' projects is decided here and nowhere else. The
// guard of the routes finds the reader's sight and refuses addresses of what they
// may not know of; handlers read groups, jobs, nodes and orders through the read
// functions below, which replace what is hidden before a page, an answer of the
// interface or a sentence is made of it. A test sees to it that no handler goes to
// the store past them.

type sightKey struct{}

// sightOf is what the reader may see; without a guard before it, the root alone.
func sightOf(r *http.Request) ledger.Sight {
	sight, _ := r.Context().Value(sightKey{}).(ledger.Sight)
	return sight
}

// sightFor finds what an actor may see under the policy that holds.
func (s *server) sightFor(ctx context.Context, actor ledger.Actor) (ledger.Sight, error) {
	now := s.store.Now()
	if sight := ledger.SightOf(actor, true, now); sight.All() {
		return sight, nil // whatever the policy says
	}
	policy, err := s.store.PolicyNow(ctx)
	return ledger.SightOf(actor, policy.Closed(), now), err
}

// visible refuses the address of something that the reader may not know of, in the
// words for what is not there.
func (s *server) visible(r *http.Request, rt route) error {
	sight := sightOf(r)
	below := func(pattern string) bool { return rt.pattern == pattern || strings.HasPrefix(rt.pattern, pattern+"/") }
	switch {
	case sight.All():
	case below(view.JobsURL+"/{id}") || below(api.PathJob):
		return s.store.SeesJob(r.Context(), sight, ledger.JobID(pathID(r)))
	case below(view.ArraysURL+"/{id}") || below(api.PathArray):
		return s.store.SeesArray(r.Context(), sight, ledger.ArrayID(pathID(r)))
	case below(groupPattern):
		return s.store.SeesGroup(r.Context(), sight, ledger.GroupID(pathID(r)))
	}
	return nil
}

// hideDenied keeps a refusal from naming a path that the reader may not see.
func hideDenied(sight ledger.Sight, err error) error {
	if sight.All() {
		return err
	}
	for _, f := range refusalsOf(err) {
		if path := f.Facts["path"]; f.Kind == ledger.Denied && path != "" && !sight.Sees(path) {
			return missing("group", "There is no such program or project.")
		}
	}
	return err
}

// veil hides from a reader what they may not see; a nil one hides nothing.
type veil struct {
	sight ledger.Sight
	paths store.Paths
}

// veilFor gives the veil of a reader before what speaks of some jobs and arrays.
func (s *server) veilFor(r *http.Request, named store.Named) (*veil, error) {
	if sightOf(r).All() {
		return nil, nil
	}
	paths, err := s.store.Paths(r.Context(), named)
	return &veil{sightOf(r), paths}, err
}

// What has no path was not looked for, and is hidden.
func (v *veil) seesJob(id ledger.JobID) bool { return seesAt(v.sight, v.paths.Jobs[id]) }

func (v *veil) seesArray(id ledger.ArrayID) bool { return seesAt(v.sight, v.paths.Arrays[id]) }

func seesAt(sight ledger.Sight, path string) bool { return path != "" && sight.Sees(path) }

// job keeps of a hidden job its shape, its state and its place: what it takes to
// read an order or a node. Its path becomes that of the deepest program that the
// reader may see.
func (v *veil) job(j *store.JobLine) {
	if v == nil {
		return
	}
	if v.sight.Sees(j.Path) {
		j.HideNames(v.seesJob, v.seesArray)
		return
	}
	hidden := store.JobLine{
		ID: scheduler.HiddenJob, State: j.State, Path: v.sight.Nearest(j.Path), Title: ledger.Hidden, Pool: j.Pool, PoolName: j.PoolName,
		Shape: j.Shape, Contract: scheduler.Contract{MinMs: j.Contract.MinMs, Urgency: j.Contract.Urgency}, Submitted: j.Submitted,
	}
	if j.Reason != nil {
		hidden.Reason = &scheduler.Reason{Code: j.Reason.Code, Rank: j.Reason.Rank}
	}
	if a := j.Last; a != nil {
		hidden.Last = &store.AttemptHead{Phase: a.Phase, Funded: a.Funded, MinMs: a.MinMs, Since: a.Since, Started: a.Started, ProtectedUntil: a.ProtectedUntil, ElapsedMs: a.ElapsedMs, Rule: a.Rule}
	}
	*j = hidden
}

func (v *veil) jobs(lines []store.JobLine) {
	for i := range lines {
		v.job(&lines[i])
	}
}

// named are the jobs and arrays that some lines speak of.
func named(lists ...[]store.JobLine) store.Named {
	var n store.Named
	for _, lines := range lists {
		for i := range lines {
			lines[i].Names(&n)
		}
	}
	return n
}

// standings keeps the numbers that the order goes by. A hidden group has a number
// that says only below whom it stands in this one answer.
func (v *veil) standings(lines []store.StandingLine) {
	if v == nil {
		return
	}
	numbers := map[ledger.GroupID]ledger.GroupID{}
	for i := range lines {
		if !v.sight.Sees(lines[i].Path) {
			numbers[lines[i].Group] = ledger.GroupID(-1 - i)
		}
	}
	for i := range lines {
		l := &lines[i]
		if n, hidden := numbers[l.Parent]; hidden {
			l.Parent = n
		}
		if n, hidden := numbers[l.Group]; hidden {
			l.Group, l.Path, l.Title = n, ledger.Hidden, ledger.Hidden
		}
	}
}

// promise hides who else has, or waits for, a pool's reserved start.
func (v *veil) promise(p *store.Promise) {
	if v == nil || p == nil {
		return
	}
	jobs := map[ledger.JobID]store.JobLine{}
	see := func(id ledger.JobID) ledger.JobID {
		j := p.Jobs[id]
		v.job(&j)
		jobs[j.ID] = j
		return j.ID
	}
	p.Queue = slices.Clone(p.Queue)
	for i := range p.Queue {
		p.Queue[i] = see(p.Queue[i])
	}
	if p.Holder != nil {
		p.Holder = &scheduler.AttemptRef{Job: see(p.Holder.Job)}
	}
	p.Jobs = jobs
}

// titles replaces the names of hidden groups.
func (v *veil) titles(names map[ledger.GroupID]string) map[ledger.GroupID]string {
	out := make(map[ledger.GroupID]string, len(names))
	for id, title := range names {
		if out[id] = title; !seesAt(v.sight, v.paths.Groups[id]) {
			out[id] = ledger.Hidden
		}
	}
	return out
}

// nodes hides who holds devices.
func (v *veil) nodes(nodes []store.NodeLine) {
	for i := range nodes {
		for k := range nodes[i].Holders {
			v.job(&nodes[i].Holders[k].Job)
		}
	}
}

// readJob gives one job as the reader may see it.
func (s *server) readJob(r *http.Request, id ledger.JobID) (store.JobDetail, error) {
	if err := s.store.SeesJob(r.Context(), sightOf(r), id); err != nil {
		return store.JobDetail{}, err
	}
	d, err := s.store.Job(r.Context(), actorOf(r), id)
	if err != nil {
		return d, err
	}
	spoken := named([]store.JobLine{d.JobLine})
	for i := range d.Runs {
		spoken.Jobs = append(spoken.Jobs, d.Runs[i].JobsNamed()...)
	}
	v, err := s.veilFor(r, spoken)
	if err != nil || v == nil {
		return d, err
	}
	v.job(&d.JobLine)
	for i := range d.Runs {
		d.Runs[i].HideJobs(v.seesJob)
	}
	d.Names = v.titles(d.Names)
	v.standings(d.Standings)
	v.promise(d.Reserved)
	return d, nil
}

// readJobs lists jobs that the reader may see.
func (s *server) readJobs(r *http.Request, q store.JobQuery) (store.JobPage, error) {
	sight := sightOf(r)
	q.Sight = &sight
	page, err := s.store.Jobs(r.Context(), q)
	if err != nil {
		return page, err
	}
	v, err := s.veilFor(r, named(page.Jobs))
	v.jobs(page.Jobs)
	return page, err
}

// readArray gives one array that the reader may see.
func (s *server) readArray(r *http.Request, id ledger.ArrayID) (store.ArrayDetail, error) {
	if err := s.store.SeesArray(r.Context(), sightOf(r), id); err != nil {
		return store.ArrayDetail{}, err
	}
	return s.store.Array(r.Context(), actorOf(r), id)
}

// readOutlook gives what would start a job, and what went before it.
func (s *server) readOutlook(r *http.Request, id ledger.JobID) (store.JobOutlook, error) {
	if err := s.store.SeesJob(r.Context(), sightOf(r), id); err != nil {
		return store.JobOutlook{}, err
	}
	o, err := s.store.JobOutlook(r.Context(), id)
	if err != nil {
		return o, err
	}
	v, err := s.veilFor(r, store.Named{})
	if err != nil || v == nil {
		return o, err
	}
	o.Ahead = slices.Clone(o.Ahead) // others are given the same outlook
	for i := range o.Ahead {
		if a := &o.Ahead[i]; !seesAt(v.sight, v.paths.Groups[a.Group]) {
			a.Group, a.Title = 0, ledger.Hidden
		}
	}
	return o, nil
}

// readOrder gives a page of a pool's order.
func (s *server) readOrder(r *http.Request, pool ledger.PoolID, after string, limit int) (store.PoolOrder, error) {
	o, err := s.store.PoolOrder(r.Context(), pool, after, limit)
	if err != nil {
		return o, err
	}
	v, err := s.veilFor(r, named(o.Rows))
	if err != nil || v == nil {
		return o, err
	}
	if o.Next != "" {
		o.Next = o.Skip
	}
	v.standings(o.Standings)
	v.jobs(o.Rows)
	v.promise(o.Reserved)
	return o, nil
}

// readBoard gives one pool's page.
func (s *server) readBoard(r *http.Request, pool ledger.PoolID) (store.Board, error) {
	b, err := s.store.PoolBoard(r.Context(), pool)
	if err != nil {
		return b, err
	}
	v, err := s.veilFor(r, named(b.Queue, b.Live))
	if err != nil || v == nil {
		return b, err
	}
	v.standings(b.Standings)
	v.jobs(b.Queue)
	v.jobs(b.Live)
	v.promise(b.Reserved)
	v.nodes(b.Fleet.Nodes)
	return b, nil
}

// readNodes lists nodes with who holds them.
func (s *server) readNodes(r *http.Request, q store.NodeQuery) (store.NodePage, error) {
	page, err := s.store.Nodes(r.Context(), q)
	if err != nil {
		return page, err
	}
	v, err := s.veilFor(r, store.Named{})
	v.nodes(page.Nodes)
	return page, err
}

// readNode gives one node.
func (s *server) readNode(r *http.Request, id ledger.NodeID) (store.NodeDetail, error) {
	d, err := s.store.Node(r.Context(), id)
	if err != nil {
		return d, err
	}
	v, err := s.veilFor(r, store.Named{})
	for i := range d.Holders {
		v.job(&d.Holders[i].Job)
	}
	return d, err
}

// readGroups lists the living groups that the reader may see, in preorder.
func (s *server) readGroups(r *http.Request) ([]store.Group, error) {
	groups, err := s.store.Groups(r.Context())
	sight := sightOf(r)
	return slices.DeleteFunc(groups, func(g store.Group) bool { return !sight.Sees(g.Path) }), err
}

// readTree lists them with their budget and use.
func (s *server) readTree(r *http.Request, pool ledger.PoolID, period ledger.PeriodID) ([]store.TreeRow, error) {
	rows, err := s.store.Tree(r.Context(), pool, period)
	sight := sightOf(r)
	return slices.DeleteFunc(rows, func(row store.TreeRow) bool { return !sight.Sees(row.Path) }), err
}

// readPeople lists roles that are held at groups which the reader may see.
func (s *server) readPeople(r *http.Request, q store.PeopleQuery) ([]store.PersonGrant, error) {
	sight := sightOf(r)
	q.Sight = &sight
	return s.store.People(r.Context(), q)
}

// readJoins lists the reader's own asks to join, also of projects that they may
// not see any more.
func (s *server) readJoins(r *http.Request) ([]store.JoinRow, error) {
	rows, err := s.store.JoinsOf(r.Context(), actorOf(r).Person)
	for i := range rows {
		if j := &rows[i]; !sightOf(r).Sees(j.Path) {
			j.Path, j.Title = ledger.Hidden, ledger.Hidden
		}
	}
	return rows, err
}

// readTokens lists the reader's own tokens in the same way.
func (s *server) readTokens(r *http.Request) ([]store.Token, error) {
	rows, err := s.store.Tokens(r.Context(), actorOf(r).Person)
	for i := range rows {
		if t := &rows[i]; t.Project != "" && !sightOf(r).Sees(t.Project) {
			t.Project, t.Title = ledger.Hidden, ledger.Hidden
		}
	}
	return rows, err
}

// hideFromCommands keeps from running commands what their project may not see:
// whoever they are told of.
func (s *server) hideFromCommands(ctx context.Context, d *store.Desired) error {
	if !d.Policy.Closed() {
		return nil
	}
	var spoken store.Named
	for i := range d.Orders {
		spoken.Jobs = append(spoken.Jobs, d.Orders[i].Run.JobsNamed()...)
	}
	paths, err := s.store.Paths(ctx, spoken)
	for i := range d.Orders {
		o := &d.Orders[i]
		v := &veil{ledger.SightAt(o.Project, true), paths}
		o.Run.HideJobs(v.seesJob)
		o.Names = v.titles(o.Names)
	}
	return err
}
