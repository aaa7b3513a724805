package web

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// whyShort is a job's explanation in lists: its reason while it waits, else what
// happened last.
func (s *server) whyShort(j *store.JobLine, lookbackMs int64) string {
	if j.ID == scheduler.HiddenJob {
		return ""
	}
	switch j.State {
	case "waiting":
		return s.reasonSentence(j, lookbackMs, nil)
	case "paused":
		return scheduler.Sentence(&scheduler.Reason{Code: scheduler.WhyPaused}, 0, scheduler.Names{})
	case "finished", "failed":
		return exitText(j.ExitCode, j.ExitSignal)
	}
	return ""
}

// reasonSentence words the reason of the last cycle. names may be nil where only
// the job's own project is spoken of.
func (s *server) reasonSentence(j *store.JobLine, lookbackMs int64, names map[ledger.GroupID]string) string {
	reason := j.Reason
	if reason == nil {
		reason = &scheduler.Reason{Code: scheduler.WhyNoCycle}
	}
	return scheduler.Sentence(reason, lookbackMs, s.names(j, names))
}

// names puts titles and the accounting zone's times into sentences.
func (s *server) names(j *store.JobLine, titles map[ledger.GroupID]string) scheduler.Names {
	return scheduler.Names{
		Group: func(id ledger.GroupID) string {
			if id == j.Project {
				return j.Title
			}
			if title := titles[id]; title != "" {
				return title
			}
			return "another group"
		},
		Instant: func(at scheduler.Instant) string { return s.clockOrDay(at) },
	}
}

// why explains where a job stands: page, interface and command line show this
// one text with its numbers.
func (s *server) why(d *store.JobDetail) *view.Why {
	names := s.names(&d.JobLine, d.Names)
	w := &view.Why{Code: d.State}
	var last *store.AttemptLine
	if n := len(d.Runs); n > 0 {
		last = &d.Runs[n-1]
	}
	switch {
	case d.State == "waiting":
		s.whyWaiting(d, w)
		if last != nil && last.StopWords() != "" {
			w.Sentence += " Before: " + s.whyStopped(d, last, names)
		}
		if last != nil && last.Cause == string(scheduler.CausePreempted) {
			w.Evicted = s.whyStopped(d, last, names)
			w.Eviction, w.Duel = s.evictionFacts(d, last, names), duel(d, last, names)
		}
	case d.State == "paused":
		w.Code = scheduler.WhyPaused
		w.Sentence = scheduler.Sentence(&scheduler.Reason{Code: w.Code}, 0, names)
	case last == nil:
		w.Sentence = sentenceOf(overText(&d.JobLine))
	case d.State == "starting" || d.State == "running":
		w.Sentence = s.whyHere(d, last, names)
	default:
		w.Code = cmp.Or(d.Result, d.State)
		w.Sentence = s.whyStopped(d, last, names)
		w.Eviction, w.Duel = s.evictionFacts(d, last, names), duel(d, last, names)
	}
	if last != nil && last.Rule == "" && (d.State == "starting" || d.State == "running") {
		w.Place = placeOf(d, last)
	}
	return w
}

// sentenceOf makes a sentence of a few words.
func sentenceOf(words string) string {
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

// whyHere says why a job was started and what it may count on.
func (s *server) whyHere(d *store.JobDetail, last *store.AttemptLine, names scheduler.Names) string {
	var parts []string
	switch last.Phase {
	case "nominated":
		parts = append(parts, scheduler.Sentence(&scheduler.Reason{Code: scheduler.WhyNominated}, 0, names))
	case "starting":
		parts = append(parts, scheduler.Sentence(&scheduler.Reason{Code: scheduler.WhyStarting}, 0, names))
	}
	if start := last.Start(); start != nil {
		parts = append(parts, scheduler.StartSentence(start, d.Policy.LookbackMs, names))
	}
	switch {
	case last.Phase != "running":
	case !last.Funded && last.FundedMs > 0:
		parts = append(parts, "Its budget ended after "+ledger.FormatMillis(last.FundedMs)+"; it goes on unfunded: any funded job may stop it.")
	case last.Funded && last.ProtectedUntil > s.store.Now():
		parts = append(parts, "No other job may stop it before "+s.clockOrDay(last.ProtectedUntil)+".")
	case last.Funded:
		parts = append(parts, "Its protection is over: a job of a group that had less of its share may stop it (rule V3).")
	}
	return strings.Join(parts, " ")
}

// whyStopped says why an attempt ends or ended.
func (s *server) whyStopped(d *store.JobDetail, last *store.AttemptLine, names scheduler.Names) string {
	if e := last.Evict(); e != nil {
		return scheduler.EvictionSentence(e, scheduler.JobName(last.StopByJob), d.Policy.LookbackMs, names)
	}
	if last.Rule != "" {
		text := scheduler.StopSentence(scheduler.Rule(last.Rule))
		if said := last.StopWords(); said != "" {
			text += " Reason given: " + said
		}
		return text
	}
	if d.State == "ending" {
		return "It is finishing."
	}
	return sentenceOf(overText(&d.JobLine))
}

// evictionFacts are the numbers of an eviction: rule, both standings, who it was
// for, what was lost, where the job stands now.
func (s *server) evictionFacts(d *store.JobDetail, a *store.AttemptLine, names scheduler.Names) []view.Fact {
	e := a.Evict()
	rule := scheduler.Rule(a.Rule)
	if e == nil && rule != scheduler.V5 && rule != scheduler.V5Hard {
		return nil
	}
	facts := []view.Fact{{Name: "Rule", Value: a.Rule, ID: "eviction-rule"}}
	lost := max(0, a.StopAsked.MillisSince(max(a.Started, a.Checkpoint)))
	if e != nil {
		facts = append(facts, view.Fact{Name: "For", Value: scheduler.JobName(a.StopByJob), ID: "eviction-by"})
		lost = e.LostMs
	}
	facts = append(facts, view.Fact{Name: "When", Value: s.clockOrDay(a.StopAsked), Exact: s.when(a.StopAsked).Exact})
	if a.Funded && a.ProtectedUntil != 0 {
		facts = append(facts, view.Fact{Name: "Was protected until", Value: s.clockOrDay(a.ProtectedUntil), Exact: s.when(a.ProtectedUntil).Exact, ID: "eviction-protected"})
	}
	if e != nil && e.Rule == scheduler.V3 {
		look := d.Policy.LookbackMs
		left, came := scheduler.TimesApart(&e.Standing, &e.Against, look)
		facts = append(facts,
			view.Fact{Name: names.Group(e.Standing.Group), Value: left + " × its share, without the evicted", Term: "standing", ID: "eviction-standing"},
			view.Fact{Name: names.Group(e.Against.Group), Value: came + " × its share, with the new job and the margin", Term: "standing", ID: "eviction-against"})
	}
	facts = append(facts, view.Fact{Name: "Progress lost", Value: ledger.FormatMillis(lost), ID: "eviction-lost"})
	if a.Credited > 0 {
		facts = append(facts, view.Fact{Name: "Credited", Value: hours(a.Credited).Text + " GPU-h", ID: "eviction-credited"})
	}
	return append(facts, view.Fact{Name: "Now", Value: standsNow(d), ID: "eviction-now"})
}

// standsNow says where an evicted job stands.
func standsNow(d *store.JobDetail) string {
	switch {
	case d.State == "waiting" && d.Reason != nil && d.Reason.Rank > 0:
		return "place " + strconv.Itoa(d.Reason.Rank) + " of " + strconv.Itoa(d.Queued)
	case d.State == "waiting":
		return "waits again at its old place"
	case d.State == "ending":
		return "has its grace, then waits again at its old place"
	}
	return d.State
}

// duel draws the two standings that decided an eviction (V3); other rules compare none.
func duel(d *store.JobDetail, a *store.AttemptLine, names scheduler.Names) []view.Ratio {
	e := a.Evict()
	if e == nil || e.Rule != scheduler.V3 {
		return nil
	}
	look := d.Policy.LookbackMs
	theirs, mine := ratioOf(&e.Against, names.Group(e.Against.Group), look), ratioOf(&e.Standing, names.Group(e.Standing.Group), look)
	mine.Text, theirs.Text = scheduler.TimesApart(&e.Standing, &e.Against, look)
	theirs.Detail, mine.Detail = "whose job came: with that job and the margin", "whose attempt left: without the evicted"
	return []view.Ratio{theirs, mine}
}

// whyWaiting fills in the last cycle's reason with the standings of the job's path.
func (s *server) whyWaiting(d *store.JobDetail, w *view.Why) {
	w.Code, w.Sentence = scheduler.WhyNoCycle, s.reasonSentence(&d.JobLine, d.Policy.LookbackMs, d.Names)
	w.Of = d.Queued
	if r := d.Reason; r != nil {
		w.Code, w.Rank = r.Code, r.Rank
		w.Nodes = rejectedNodes(r)
		w.Funds = fundsFacts(r)
	}
	w.Changes = nextSteps(d)
	if d.Reason != nil && d.Reason.Outside() {
		return // neither standing nor room is what it waits for
	}
	w.Promise = s.promise(d.Reserved, d.ID)
	if d.Last == nil || d.Last.Phase != "reserved" {
		w.Outlook = &view.Outlook{Job: d.ID}
	}
	if secondPass(&d.JobLine) {
		return // usage without funds orders it, which no table keeps
	}
	for i := range d.Standings {
		l := &d.Standings[i]
		if ledger.Covers(l.Path, d.Path) {
			w.Levels = append(w.Levels, s.level(d, l))
		}
	}
}

// nextSteps offers the owner what the rules allow.
func nextSteps(d *store.JobDetail) []view.WhyChange {
	if !d.May.Cancel || d.Reason == nil {
		return nil
	}
	switch d.Reason.Code {
	case scheduler.WhyFunds:
		return []view.WhyChange{{Text: "Ask for GPU-hours", Effect: "a manager answers the request", URL: view.NewRequestURL}}
	case scheduler.WhyNever:
		return []view.WhyChange{{Text: "Submit it in another shape", Effect: "this one can never start", URL: view.NewJobURL + "?from=" + idText(d.ID)}}
	}
	return nil
}

// level compares a group of the job's path with the sibling that goes first.
func (s *server) level(d *store.JobDetail, own *store.StandingLine) view.WhyLevel {
	look := d.Policy.LookbackMs
	var first *store.StandingLine
	var all int64
	for i := range d.Standings {
		l := &d.Standings[i]
		if l.Parent != own.Parent {
			continue
		}
		all += l.MicroGPU
		if l.Funded > 0 && (first == nil || store.CompareStandings(*l, *first) < 0) {
			first = l
		}
	}
	out := view.WhyLevel{
		Parent: d.Names[own.Parent], Group: own.Title, Usage: gpuTime(own.Usage), Commitment: gpuTime(own.Commitment),
		Share: percent(ratio(ledger.Amount(own.MicroGPU), ledger.Amount(all))), Standing: own.Times(look),
	}
	if first != nil && first.Group != own.Group {
		out.Winner, out.WinnerStanding = first.Title, first.Times(look)
	}
	return out
}

// gpuTime shows milli-GPU-milliseconds as GPU-hours.
func gpuTime(t scheduler.GPUTime) view.Num { return hours(ledger.Amount(t / 1000)) }

// rejectedNodes counts the nodes that had no room, by what they lack.
func rejectedNodes(r *scheduler.Reason) []view.WhyNodes {
	words := []struct{ dim, word string }{
		{scheduler.FitsDevices, "free GPUs"},
		{scheduler.FitsSharing, "a free part of a GPU"},
		{scheduler.FitsCPU, "CPU"},
		{scheduler.FitsRAM, "memory"},
		{scheduler.FitsHBM, "GPU memory"},
		{scheduler.FitsNet, "network bandwidth"},
		{scheduler.FitsStorage, "storage bandwidth"},
		{scheduler.FitsIOC, "processors that move data"},
		{scheduler.FitsHealth, "health"},
		{scheduler.FitsLimit, "time: kept, or in maintenance, before its protection would end"},
	}
	var out []view.WhyNodes
	for _, d := range words {
		if n, err := strconv.Atoi(r.Fact(scheduler.FactRejected + d.dim)); err == nil && n > 0 {
			out = append(out, view.WhyNodes{Dimension: d.word, Nodes: n, Text: r.Fact(scheduler.FactNodes)})
		}
	}
	return out
}

// fundsFacts are the GPU-hours that a reason speaks of.
func fundsFacts(r *scheduler.Reason) []view.Fact {
	words := []struct{ fact, name string }{
		{scheduler.FactNeeded, "Needed"}, {scheduler.FactAvailable, "Available"}, {scheduler.FactShort, "Short"},
	}
	var out []view.Fact
	for _, f := range words {
		if v := r.Fact(f.fact); v != "" {
			shown := v
			if a, refusal := ledger.ParseGPUHours("", v, 0); refusal == nil {
				shown = a.Hours()
			}
			out = append(out, view.Fact{Name: f.name, Value: shown + " GPU-h", Exact: v + " GPU-h", ID: "funds-" + f.fact})
		}
	}
	if v := r.Fact(scheduler.FactLimitedBy); v != "" {
		out = append(out, view.Fact{Name: "Limited by", Value: v, ID: "funds-limited_by"})
	}
	return out
}

// decidedAt is the instant of the cycle that put a job where it stands; 0 when
// none did, as for a job that ended by itself.
func decidedAt(d *store.JobDetail) ledger.Instant {
	var last store.AttemptLine
	if n := len(d.Runs); n > 0 {
		last = d.Runs[n-1]
	}
	switch d.State {
	case "waiting":
		return d.ReasonAt
	case "starting", "running":
		return last.Since
	}
	return last.StopAsked
}

// wireWhy is the page's explanation as programs read it.
func (s *server) wireWhy(d *store.JobDetail) api.Why {
	w := s.why(d)
	out := api.Why{Job: d.ID, Code: w.Code, Sentence: w.Sentence, Lines: []api.WhyLine{}, At: decidedAt(d).Time()}
	line := func(label, value, detail string) {
		out.Lines = append(out.Lines, api.WhyLine{Label: label, Value: value, Detail: detail})
	}
	if w.Rank > 0 {
		line("Place", strconv.Itoa(w.Rank)+" of "+strconv.Itoa(w.Of), "in the order of pool "+d.PoolName)
	}
	for _, l := range w.Levels {
		detail := "usage " + l.Usage.Text + " GPU-h, commitment " + l.Commitment.Text + " GPU-h, share " + l.Share
		if l.Winner != "" {
			detail += "; first goes " + l.Winner + " with " + l.WinnerStanding
		} else {
			detail += "; this one goes first"
		}
		line("Standing of "+l.Group+" in "+l.Parent, l.Standing, detail)
	}
	for _, n := range w.Nodes {
		line("Nodes without "+n.Dimension, strconv.Itoa(n.Nodes), "")
	}
	if w.Evicted != "" {
		line("Before", w.Evicted, "")
	}
	for _, f := range slices.Concat(w.Funds, w.Eviction) {
		line(f.Name, f.Value, "")
	}
	if p := w.Place; p != nil {
		line("Its nodes", p.Sentence, "")
		for _, n := range p.Rows {
			line("Placed on "+n.Node, n.Total, strings.Join(n.Words(p.Terms), ", "))
		}
	}
	if w.Promise != nil {
		line("Reserved start of the pool", promiseText(w.Promise), "")
	}
	if d.State == "waiting" && d.Reason != nil {
		out.Facts = map[string]string{}
		for _, f := range d.Reason.Facts {
			if out.Facts[f.Name] = f.Value; f.Name == scheduler.FactHolder && f.Value == idText(scheduler.HiddenJob) {
				out.Facts[f.Name] = ledger.Hidden
			}
		}
	}
	if r := s.wireRenewal(d); r != nil {
		if r.Warning != "" {
			line("Protection", r.Warning, "")
		}
		if r.Answer != "" {
			line("New protection", r.Answer, "")
		}
	}
	return out
}
