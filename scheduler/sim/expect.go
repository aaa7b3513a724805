package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
)

// expect checks one expectation against the last cycle's plan or the world.
func (r *Runner) expect(st *Statement) error {
	switch st.Verb {
	case "balance", "held", "spent", "usage":
		return r.expectProject(st)
	case "charge", "state", "attempts", "seq":
		return r.expectJob(st)
	}
	if r.Last == nil {
		return fmt.Errorf("no cycle ran on this line")
	}
	switch st.Verb {
	case "nothing":
		return r.expectNothing()
	case "order":
		return r.expectOrder(st)
	case "promised":
		return r.expectHolder(st)
	}
	if len(st.Args) == 0 || r.jobs[st.Args[0]] == 0 {
		return fmt.Errorf("names no job")
	}
	job := r.jobs[st.Args[0]]
	switch st.Verb {
	case "start", "nominate":
		return r.expectStart(st, job)
	case "evict":
		return r.expectEvict(st, job)
	case "wait":
		return r.expectWait(st, job)
	case "renewed", "warn", "unprotect":
		return r.expectAnswer(st, job)
	case "reserve", "move":
		return r.expectReserved(st, job)
	}
	return r.expectMoved(st, job)
}

func (r *Runner) expectNothing() error {
	p := r.Last
	if n := len(p.Starts) + len(p.Stops) + len(p.Renewals) + len(p.Warnings) + len(p.Promote) + len(p.MoneyEnds); n > 0 {
		return fmt.Errorf("but the plan has %s", r.words(p))
	}
	return nil
}

// words lists what a plan does, for messages.
func (r *Runner) words(p *scheduler.Plan) string {
	var out []string
	for i := range p.Starts {
		s := &p.Starts[i]
		what := "start "
		if s.Nominate {
			what = "nominate "
		}
		out = append(out, what+r.names[s.Job])
		for k := range s.Evict {
			out = append(out, "evict "+r.names[s.Evict[k].Job]+" "+string(s.Evict[k].Rule))
		}
	}
	for _, ref := range p.Promote {
		out = append(out, "promote "+r.names[ref.Job])
	}
	for i := range p.Reserves {
		out = append(out, "reserve "+r.names[p.Reserves[i].Job]+" at="+scheduler.Span(p.Reserves[i].Reservation.At.MillisSince(Epoch))+
			" nodes="+r.nodeNames(p.Reserves[i].Reservation.Nodes))
	}
	for i := range p.Moves {
		out = append(out, "move "+r.names[p.Moves[i].Job]+" at="+scheduler.Span(p.Moves[i].Reservation.At.MillisSince(Epoch))+
			" nodes="+r.nodeNames(p.Moves[i].Reservation.Nodes)+" lost="+r.nodeNames(p.Moves[i].Lost))
	}
	for i := range p.Stops {
		out = append(out, "stop "+r.names[p.Stops[i].Job]+" "+string(p.Stops[i].Rule))
	}
	for i := range p.MoneyEnds {
		out = append(out, "money "+r.names[p.MoneyEnds[i].Job])
	}
	for i := range p.Extend {
		out = append(out, "extend "+r.names[p.Extend[i].Job])
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// expectAnswer checks what an attempt was told: renewed J until= hold= or refused=
// by=, warn J left= by=, unprotect J.
func (r *Runner) expectAnswer(st *Statement, job ledger.JobID) error {
	o, p := st.options(), r.Last
	until, refused, hold := o.duration("until", -1), o.text("refused", ""), o.text("hold", "")
	left, by := o.duration("left", -1), o.text("by", "")
	if err := o.done(); err != nil {
		return err
	}
	said := ""
	var rival *scheduler.Rival
	switch st.Verb {
	case "unprotect":
		if slices.ContainsFunc(p.Unprotect, func(x scheduler.AttemptRef) bool { return x.Job == job }) {
			return nil
		}
	case "warn":
		for i := range p.Warnings {
			if w := &p.Warnings[i]; w.Job == job && (left < 0 || left == w.LeftMs) {
				said, rival = "warned", w.Rival
			}
		}
	case "renewed":
		for i := range p.Renewals {
			x := &p.Renewals[i]
			if x.Job != job {
				continue
			}
			said, rival = "renewed", x.Rival
			if code := codeOf(x.Refused); code != refused {
				return fmt.Errorf("%s: refused %q%s", st.Args[0], code, r.words(p))
			}
			if ms := x.Until.MillisSince(Epoch); until >= 0 && ms != until {
				return fmt.Errorf("%s is protected until %s", st.Args[0], scheduler.Span(ms))
			}
			if hold != "" {
				if err := sameHours("hold", ledger.Outstanding(x.Hold), hold); err != nil {
					return err
				}
			}
		}
	}
	who := ""
	if rival != nil {
		who = r.names[rival.Job]
	}
	if said == "" || who != by {
		return fmt.Errorf("%s: %s, the rival is %q; the plan has %s", st.Args[0], said, who, r.words(p))
	}
	return nil
}

func codeOf(r *scheduler.Reason) string {
	if r == nil {
		return ""
	}
	return r.Code
}

// expectReserved checks a new reserved start or a holder's other nodes: at= (T*) and
// since= (where its bound runs from), both since Epoch, nodes= and lost= with commas.
func (r *Runner) expectReserved(st *Statement, job ledger.JobID) error {
	o := st.options()
	at, since, nodes, lost := o.duration("at", -1), o.duration("since", -1), o.text("nodes", ""), o.text("lost", "")
	var res *scheduler.Reservation
	var gone []ledger.NodeID
	for i := range r.Last.Reserves {
		if x := &r.Last.Reserves[i]; st.Verb == "reserve" && x.Job == job {
			res = &x.Reservation
		}
	}
	for i := range r.Last.Moves {
		if x := &r.Last.Moves[i]; st.Verb == "move" && x.Job == job {
			res, gone = &x.Reservation, x.Lost
		}
	}
	if res == nil {
		return fmt.Errorf("%s: the plan has %s%s", st.Args[0], r.words(r.Last), r.reasonOf(job))
	}
	if got := res.At.MillisSince(Epoch); at >= 0 && got != at {
		return fmt.Errorf("its T* is %s after the start, not %s", scheduler.Span(got), scheduler.Span(at))
	}
	if got := res.Since.MillisSince(Epoch); since >= 0 && got != since {
		return fmt.Errorf("its bound runs from %s after the start, not %s", scheduler.Span(got), scheduler.Span(since))
	}
	if got := r.nodeNames(res.Nodes); nodes != "" && got != nodes {
		return fmt.Errorf("%s is on %s, not %s", st.Args[0], got, nodes)
	}
	if got := r.nodeNames(gone); got != lost {
		return fmt.Errorf("it lost %q, not %q", got, lost)
	}
	return o.done()
}

func (r *Runner) nodeNames(ids []ledger.NodeID) string {
	var out []string
	for _, id := range ids {
		out = append(out, r.World.snap.Nodes[id-1].Name)
	}
	return strings.Join(out, ",")
}

// expectHolder checks who has the pool's reserved start: a job, or none; and
// latest=, when it starts at the latest.
func (r *Runner) expectHolder(st *Statement) error {
	o := st.options()
	latest, noBound, queue := o.duration("latest", -1), o.text("no_bound", ""), o.text("queue", "-")
	var view scheduler.ReserveView
	if len(r.Last.Reserved) > 0 {
		view = r.Last.Reserved[0]
	}
	got := "none"
	if view.Holder != nil {
		got = r.names[view.Holder.Job]
	}
	if len(st.Args) != 1 || got != st.Args[0] {
		return fmt.Errorf("%s has the reserved start", got)
	}
	if ms := view.Latest.MillisSince(Epoch); latest >= 0 && ms != latest {
		return fmt.Errorf("it starts by %s, not %s", scheduler.Span(ms), scheduler.Span(latest))
	}
	if noBound != view.NoBound {
		return fmt.Errorf("no_bound is %q", view.NoBound)
	}
	var waiting []string
	for _, id := range view.Queue {
		waiting = append(waiting, r.names[id])
	}
	if text := strings.Join(waiting, ","); queue != "-" && text != queue {
		return fmt.Errorf("the queue for it is %q", text)
	}
	return o.done()
}

func (r *Runner) expectOrder(st *Statement) error {
	var got []string
	for i := range r.Last.Starts {
		got = append(got, r.names[r.Last.Starts[i].Job])
	}
	if !slices.Equal(got, st.Args) {
		return fmt.Errorf("started %v, not %v", got, st.Args)
	}
	return nil
}

func (r *Runner) expectStart(st *Statement, job ledger.JobID) error {
	i := slices.IndexFunc(r.Last.Starts, func(s scheduler.Start) bool { return s.Job == job })
	if i < 0 || r.Last.Starts[i].Nominate != (st.Verb == "nominate") {
		return fmt.Errorf("%s: the plan has %s%s", st.Args[0], r.words(r.Last), r.reasonOf(job))
	}
	s, o := &r.Last.Starts[i], st.options()
	var nodes []string
	for k := range s.Placed {
		nodes = append(nodes, r.World.snap.Nodes[s.Placed[k].Node-1].Name)
	}
	if want := st.Args[1:]; len(want) > 0 && !slices.Equal(nodes, want) {
		return fmt.Errorf("%s is on %v, not %v", st.Args[0], nodes, want)
	}
	if want := o.text("hold", ""); want != "" {
		if err := sameHours("hold", ledger.Outstanding(s.Hold), want); err != nil {
			return err
		}
	}
	if o.has("funded") && o.flag("funded", true) != s.Funded {
		return fmt.Errorf("%s is funded: %t", st.Args[0], s.Funded)
	}
	return o.done()
}

func (r *Runner) reasonOf(job ledger.JobID) string {
	i := slices.IndexFunc(r.Last.Reasons, func(x scheduler.Reason) bool { return x.Job == job })
	if i < 0 {
		return ""
	}
	why := &r.Last.Reasons[i]
	return " (" + why.Code + ": " + scheduler.Sentence(why, r.policy.LookbackMs, r.World.Names()) + ")"
}

func sameHours(what string, got ledger.Amount, want string) error {
	a, err := hours(want)
	if err != nil {
		return err
	}
	if got != a {
		return fmt.Errorf("%s is %s GPU-h, not %s", what, got.Exact(), a.Exact())
	}
	return nil
}

func (r *Runner) expectEvict(st *Statement, job ledger.JobID) error {
	o := st.options()
	rule, by := o.text("rule", ""), o.text("by", "")
	for i := range r.Last.Starts {
		s := &r.Last.Starts[i]
		for k := range s.Evict {
			if s.Evict[k].Job != job {
				continue
			}
			if rule != "" && rule != string(s.Evict[k].Rule) {
				return fmt.Errorf("%s is evicted under %s", st.Args[0], s.Evict[k].Rule)
			}
			if by != "" && r.jobs[by] != s.Job {
				return fmt.Errorf("%s is evicted by %s", st.Args[0], r.names[s.Job])
			}
			return o.done()
		}
	}
	return fmt.Errorf("%s is not: the plan has %s", st.Args[0], r.words(r.Last))
}

// expectWait checks a Reason's code and facts. "capacity" stands for every code
// of a job that lacks room.
func (r *Runner) expectWait(st *Statement, job ledger.JobID) error {
	why := r.World.keptOut(job)
	if why == nil {
		i := slices.IndexFunc(r.Last.Reasons, func(x scheduler.Reason) bool { return x.Job == job })
		if i < 0 {
			return fmt.Errorf("%s has no reason: the plan has %s", st.Args[0], r.words(r.Last))
		}
		why = &r.Last.Reasons[i]
	}
	if len(st.Args) > 1 {
		code := st.Args[1]
		room := []string{scheduler.WhyProtected, scheduler.WhyStanding, scheduler.WhyFull, scheduler.WhyEvictRate, scheduler.WhyHolder, scheduler.WhyReserved}
		if code != why.Code && (code != "capacity" || !slices.Contains(room, why.Code)) {
			return fmt.Errorf("%s waits for %s", st.Args[0], why.Code)
		}
	}
	for key, want := range st.Opts {
		got := why.Fact(key)
		if key == "short" && why.Code != scheduler.WhyFunds {
			got = why.Fact(scheduler.FactLacks)
		}
		if got != want {
			return fmt.Errorf("%s: %s is %q, not %q", st.Args[0], key, got, want)
		}
	}
	return nil
}

func (r *Runner) expectMoved(st *Statement, job ledger.JobID) error {
	o := st.options()
	rule, found := o.text("rule", ""), false
	p := r.Last
	switch st.Verb {
	case "promote":
		found = slices.ContainsFunc(p.Promote, func(x scheduler.AttemptRef) bool { return x.Job == job })
	case "stop":
		found = slices.ContainsFunc(p.Stops, func(x scheduler.Stop) bool { return x.Job == job && (rule == "" || rule == string(x.Rule)) })
	case "extend":
		to, hold := o.duration("to", -1), o.text("hold", "")
		i := slices.IndexFunc(p.Extend, func(x scheduler.Extension) bool { return x.Job == job && (to < 0 || to == x.ToMs) })
		if found = i >= 0; found && hold != "" {
			if err := sameHours("hold", ledger.Outstanding(p.Extend[i].Hold), hold); err != nil {
				return err
			}
		}
	case "money":
		at := o.duration("at", -1)
		stop := o.flag("stop", false)
		found = slices.ContainsFunc(p.MoneyEnds, func(x scheduler.MoneyEnd) bool {
			return x.Job == job && (at < 0 || at == x.AtMs) && x.Stop == stop
		})
	}
	if !found {
		return fmt.Errorf("%s: the plan has %s", st.Args[0], r.words(p))
	}
	return o.done()
}

func (r *Runner) expectProject(st *Statement) error {
	o := st.options()
	if len(st.Args) == 0 || r.groups[st.Args[0]] == 0 {
		return fmt.Errorf("names no project")
	}
	pool, err := r.pool(o.text("pool", ""))
	if err != nil {
		return err
	}
	g := r.groups[st.Args[0]]
	if st.Verb == "usage" {
		funded, unfunded := r.World.Usage(pool, g)
		for key, got := range map[string]int64{"funded": funded, "unfunded": unfunded} {
			if o.has(key) && o.duration(key, 0)*1000 != got {
				return fmt.Errorf("%s of %s is %d milli-GPU-s", key, st.Args[0], got/1000)
			}
		}
		return o.done()
	}
	kind := map[string]ledger.AccountKind{"balance": ledger.Available, "held": ledger.Held, "spent": ledger.Spent}[st.Verb]
	if len(st.Args) != 2 {
		return fmt.Errorf("needs a project and an amount")
	}
	return sameHours(st.Verb+" of "+st.Args[0], r.World.Sum(kind, pool, g), st.Args[1])
}

func (r *Runner) expectJob(st *Statement) error {
	name, want := r.current, ""
	switch len(st.Args) {
	case 2:
		name, want = st.Args[0], st.Args[1]
	case 1:
		want = st.Args[0]
	}
	if r.jobs[name] == 0 || want == "" {
		return fmt.Errorf("needs a job and a value")
	}
	j := r.World.jobs[r.jobs[name]]
	got := ""
	switch st.Verb {
	case "charge":
		return sameHours("charge of "+name, j.spec.Charged, want)
	case "attempts":
		got = strconv.Itoa(int(j.spec.Attempts))
	case "seq":
		got = strconv.FormatInt(j.spec.QueueSeq, 10)
	case "state":
		got = StateName(&j.life)
	}
	if got != want {
		return fmt.Errorf("%s of %s is %s, not %s", st.Verb, name, got, want)
	}
	return nil
}

// StateName words where a job stands.
func StateName(l *scheduler.Life) string {
	switch l.Job {
	case scheduler.JobWaiting:
		return "waiting"
	case scheduler.JobPaused:
		return "paused"
	case scheduler.JobOver:
		return string(l.Result)
	}
	return map[scheduler.Phase]string{
		scheduler.Nominated: "nominated", scheduler.Starting: "starting",
		scheduler.Running: "running", scheduler.Ending: "ending", scheduler.Reserved: "reserved",
	}[l.Run.Phase]
}
