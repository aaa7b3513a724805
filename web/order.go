package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// showOrder is a pool's whole queue with the numbers that sorted it.
func (s *server) showOrder(w http.ResponseWriter, r *http.Request) error {
	id := ledger.PoolID(pathID(r))
	after := r.URL.Query().Get("after")
	o, err := s.readOrder(r, id, after, 0)
	if err != nil {
		return err
	}
	b := store.Board{PoolLine: o.PoolLine, Standings: o.Standings, Queue: o.Rows, Policy: o.Policy}
	m := view.Order{Pool: id, Name: o.Name, Promise: s.promise(o.Reserved, 0), Tree: orderTree(o.Standings, o.Policy.LookbackMs), Queue: s.queueRows(&b)}
	m.Pager = view.Pager{Back: "First page", Forth: "Next page", Shown: fmt.Sprintf("%d of %d", len(o.Rows), o.Waiting)}
	if after != "" {
		m.Pager.Newer = view.PoolOrderURL(id)
	}
	if o.Next != "" {
		m.Pager.Older = view.PoolOrderURL(id) + "?after=" + url.QueryEscape(o.Next)
	}
	shell := s.shell(r, "Order of "+o.Name, "pools", s.orderAnswer(&o, m.Tree))
	shell.Crumbs = []view.Link{{Text: "Pools", URL: view.PoolsURL}, {Text: o.Name, URL: view.PoolURL(id)}}
	if after == "" {
		shell.Refresh, shell.Every = r.URL.RequestURI(), "5s"
	}
	return s.show(w, r, view.OrderPage(shell, m))
}

// orderAnswer names the branch that goes first, level by level.
func (s *server) orderAnswer(o *store.PoolOrder, tree []view.OrderGroup) string {
	text := counted(o.Waiting, "job waits", "jobs wait") + " for " + o.Name
	var path []string
	depth := 0
	for i := range tree {
		if g := &tree[i]; g.Next && g.Depth == depth {
			path = append(path, g.Group+" ("+g.Text+")")
			depth++
		}
	}
	if len(path) > 0 {
		text += "; first goes " + strings.Join(path, ", then ")
	}
	if o.StandingAt != 0 {
		text += ", as the cycle of " + s.clock(o.StandingAt) + " left it"
	}
	return text + "."
}

// orderTree puts siblings below their parents, in the order they are served.
func orderTree(lines []store.StandingLine, lookbackMs int64) []view.OrderGroup {
	known := map[ledger.GroupID]bool{}
	for i := range lines {
		known[lines[i].Group] = true
	}
	below := map[ledger.GroupID][]store.StandingLine{}
	shares := map[ledger.GroupID]int64{}
	for _, l := range lines {
		parent := l.Parent
		if !known[parent] {
			parent = 0 // the root stands above all and has no sibling to compare with
		}
		below[parent] = append(below[parent], l)
		shares[parent] += l.MicroGPU
	}
	var out []view.OrderGroup
	var walk func(parent ledger.GroupID, depth int)
	walk = func(parent ledger.GroupID, depth int) {
		siblings := below[parent]
		slices.SortFunc(siblings, store.CompareStandings)
		next := slices.IndexFunc(siblings, func(l store.StandingLine) bool { return l.Funded > 0 })
		for i := range siblings {
			l := &siblings[i]
			out = append(out, view.OrderGroup{
				Ratio: ratioOf(&l.Standing, l.Title, lookbackMs), URL: view.GroupURL(l.Group), Depth: depth, Next: i == next,
				Used: gpuTime(l.Usage), Committed: gpuTime(l.Commitment),
				Share: percent(ratio(ledger.Amount(l.MicroGPU), ledger.Amount(shares[parent]))), Waiting: l.Waiting,
			})
			walk(l.Group, depth+1)
		}
	}
	walk(0, 0)
	return out
}

// ratioOf draws a standing against its share.
func ratioOf(l *scheduler.Standing, title string, lookbackMs int64) view.Ratio {
	used := scheduler.Standing{Usage: l.Usage, MicroGPU: l.MicroGPU}
	committed := scheduler.Standing{Commitment: l.Commitment, MicroGPU: l.MicroGPU}
	r := view.Ratio{Group: title, Text: l.Times(lookbackMs)}
	r.Usage, r.Shared = used.TenThousandths(lookbackMs)
	r.Commitment, _ = committed.TenThousandths(lookbackMs)
	return r
}

// promise words a pool's reserved start; job is who asks, 0 for a pool's page.
func (s *server) promise(p *store.Promise, job ledger.JobID) *view.Promise {
	if p == nil {
		return nil
	}
	m := &view.Promise{}
	for _, id := range p.Queue {
		j := p.Jobs[id]
		m.Queue = append(m.Queue, view.Link{Text: jobName(&j) + " of " + j.Title, URL: view.JobURL(id)})
	}
	why := scheduler.NoBoundSentence(p.NoBound)
	if p.Holder == nil {
		m.Lead = "Nobody has it now. " + why
		if why == "" {
			m.Lead += scheduler.NoBoundSentence(scheduler.NoBoundFirst)
		}
		return m
	}
	holder := p.Jobs[p.Holder.Job]
	m.Lead = holderName(&holder) + " has it: nodes are kept for it, and the last protection there is over at " + s.clockOrDay(p.At) + "."
	if job == p.Holder.Job {
		m.Lead = "This job has it: nodes are kept for it, and the last protection there is over at " + s.clockOrDay(p.At) + "."
	}
	if p.From != 0 {
		m.Facts = append(m.Facts, view.Fact{Name: "Nodes kept since", Value: s.clockOrDay(p.From), Exact: s.when(p.From).Exact})
	}
	m.Facts = append(m.Facts, view.Fact{Name: "Protections there end", Value: s.clockOrDay(p.At), Exact: s.when(p.At).Exact, ID: "promise-at"})
	if p.Latest != 0 {
		m.Facts = append(m.Facts, view.Fact{Name: "Starts by", Value: s.clockOrDay(p.Latest) + " at the latest", Exact: s.when(p.Latest).Exact, ID: "promise-latest"})
	} else {
		m.Facts = append(m.Facts, view.Fact{Name: "Starts by", Value: "no bound yet. " + why, ID: "promise-latest"})
	}
	return m
}

// holderName names a job of which nothing was said yet.
func holderName(j *store.JobLine) string {
	if j.ID == scheduler.HiddenJob {
		return "A job of " + j.Title
	}
	return "Job " + idText(j.ID) + " (" + jobName(j) + ") of " + j.Title
}

// apiOrder is a pool's order for programs.
func (s *server) apiOrder(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("pool")
	if name == "" {
		return invalid("pool", "pool.missing", "Name the pool.")
	}
	id, err := s.store.PoolByName(r.Context(), name)
	if err != nil {
		return err
	}
	limit, err := queryNumber(r, "limit")
	if err != nil {
		return err
	}
	o, err := s.readOrder(r, id, r.URL.Query().Get("after"), int(min(limit, 1000)))
	if err != nil {
		return err
	}
	tree := orderTree(o.Standings, o.Policy.LookbackMs)
	out := api.PoolOrder{Pool: o.Name, Waiting: o.Waiting, Groups: make([]api.OrderGroup, len(tree)), Jobs: make([]api.OrderJob, len(o.Rows)), Next: o.Next, At: timeOf(o.StandingAt)}
	for i := range tree {
		g := &tree[i]
		out.Groups[i] = api.OrderGroup{Group: g.Group, Depth: g.Depth, Standing: g.Text, Usage: g.Used.Text, Commitment: g.Committed.Text, Share: g.Share, Waiting: g.Waiting, Next: g.Next}
	}
	b := store.Board{Standings: o.Standings, Queue: o.Rows, Policy: o.Policy}
	rows := s.queueRows(&b)
	for i := range o.Rows {
		j, row := &o.Rows[i], &rows[i]
		out.Jobs[i] = api.OrderJob{Rank: row.Rank, Job: max(0, j.ID), Name: j.Name, Project: pathText(j), User: j.Owner, Shape: row.Shape, MinRuntimeMS: j.Contract.MinMs, Standing: row.Standing, Reason: row.Reason}
	}
	if p := s.promise(o.Reserved, 0); p != nil {
		out.Reserved = promiseText(p)
	}
	return writeJSON(w, http.StatusOK, out)
}

// promiseText is a promise in sentences.
func promiseText(p *view.Promise) string {
	text := p.Lead
	for _, f := range p.Facts {
		if f.ID == "promise-latest" {
			text += " Starts by: " + f.Value
			if !strings.HasSuffix(text, ".") {
				text += "."
			}
		}
	}
	if n := len(p.Queue); n > 0 {
		names := make([]string, n)
		for i, l := range p.Queue {
			names[i] = l.Text
		}
		text += " " + strconv.Itoa(n) + " in its queue: " + strings.Join(names, ", ") + "."
	}
	return text
}
