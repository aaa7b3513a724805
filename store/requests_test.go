package store

import (
	"strings"
	"sync"
	"testing"

	"tranche/ledger"
)

// L12: pot 50, award 80 is refused and leaves nothing; pot +50, the same award
// leaves 20.
func TestL12ApprovalChecksThePot(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 50 * hour}))
	id := k.ask(t, k.emmy, k.seg, 100*hour)
	_, err := k.decide(t, k.as(t, k.grace), id, 80*hour)
	r := refused(t, err, ledger.Short)
	if r.Facts["short"] != "30" || !strings.Contains(r.Detail, "/lab/vision") {
		t.Errorf("refused with %v %q, want short 30 by /lab/vision", r.Facts, r.Detail)
	}
	req, err := k.Request(t.Context(), k.as(t, k.grace).Actor, id)
	k.must(t, err)
	if n := k.count(t, "select count(*) from lots"); req.State != ledger.Submitted || req.Version != 1 || n != 0 || len(req.Events) != 1 {
		t.Errorf("after the refusal: %s version %d, %d lots, %d events", req.State, req.Version, n, len(req.Events))
	}
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 100 * hour}))
	out, err := k.decide(t, k.as(t, k.grace), id, 80*hour)
	k.must(t, err)
	pot := k.pot(t, k.vision)
	if amount, _ := k.usable(t, k.seg); out.State != ledger.Awarded || len(out.Lots) != 1 || pot.Left != 20*hour || pot.ToProjects != 80*hour || amount != 80*hour {
		t.Errorf("awarded %+v, pot %+v, usable %s", out, pot, amount.Hours())
	}
	req, err = k.Request(t.Context(), k.as(t, k.emmy).Actor, id)
	k.must(t, err)
	if l := req.Lines[0]; l.Asked != 100*hour || l.Awarded != 80*hour || len(req.Events) != 2 || req.Events[1].By != "Grace" {
		t.Errorf("asked and awarded %+v, history %+v", l, req.Events)
	}
	if n := k.count(t, "select count(*) from outbox where kind = 'request.award' and person_id = $1", int64(k.emmy)); n != 1 {
		t.Errorf("%d letters to the author, want 1", n)
	}
}

// L12: two reviewers at once make one award and one conflict.
func TestL12TwoReviewersAtOnce(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 500 * hour}))
	id := k.ask(t, k.emmy, k.seg, 80*hour)
	cmds := []Command{k.as(t, k.grace), k.as(t, k.hedy)}
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i := range cmds {
		both.Go(func() { _, errs[i] = k.decide(t, cmds[i], id, 80*hour) })
	}
	both.Wait()
	lost := errs[0]
	if lost == nil {
		lost = errs[1]
	}
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("both ended alike: %v, %v", errs[0], errs[1])
	}
	refused(t, lost, ledger.Conflict)
	lots, pot := k.count(t, "select count(*) from lots"), k.pot(t, k.vision)
	letters := k.count(t, "select count(*) from outbox where kind = 'request.award'")
	if lots != 1 || pot.Left != 420*hour || letters != 1 {
		t.Errorf("%d lots, %s left, %d letters; want 1, 420, 1", lots, pot.Left.Hours(), letters)
	}
}

// L13: an award of a negative amount is refused, and so is more than was asked.
func TestL13AwardOfANegativeAmount(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 500 * hour}))
	id := k.ask(t, k.emmy, k.seg, 80*hour)
	for _, amount := range []ledger.Amount{-hour, 0, 81 * hour} {
		_, err := k.decide(t, k.as(t, k.grace), id, amount)
		refused(t, err, ledger.Invalid)
	}
	_, err := k.SaveRequest(t.Context(), k.as(t, k.emmy), RequestInput{
		Project: k.seg, Period: k.q4, Purpose: "p", Outcome: "o", Submit: true,
		Lines: []ledger.RequestLine{{Pool: k.h100, Asked: -hour}},
	})
	refused(t, err, ledger.Invalid)
}

// L18: a double click has one effect, and its second answer equals the first;
// the same key with other content is a conflict.
func TestL18DoubleClickOnApprove(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 500 * hour}))
	id := k.ask(t, k.emmy, k.seg, 80*hour)
	cmd := k.as(t, k.grace)
	outs, errs := make([]ReviewOutcome, 2), make([]error, 2)
	var both sync.WaitGroup
	for i := range outs {
		both.Go(func() { outs[i], errs[i] = k.decide(t, cmd, id, 80*hour) })
	}
	both.Wait()
	if errs[0] != nil || errs[1] != nil || outs[0].State != outs[1].State || outs[0].Lots[0] != outs[1].Lots[0] {
		t.Errorf("answers %+v, %v and %+v, %v", outs[0], errs[0], outs[1], errs[1])
	}
	if n, pot := k.count(t, "select count(*) from lots"), k.pot(t, k.vision); n != 1 || pot.Left != 420*hour {
		t.Errorf("%d lots, %s left; want 1 and 420", n, pot.Left.Hours())
	}
	_, err := k.decide(t, cmd, id, 70*hour)
	refused(t, err, ledger.Conflict)
}

func TestNobodyReviewsTheirOwnRequest(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 500 * hour}))
	k.grant(t, k.grace, ledger.PI, k.track)
	own := k.ask(t, k.grace, k.track, 10*hour)
	_, err := k.decide(t, k.as(t, k.grace), own, 10*hour)
	refused(t, err, ledger.Denied)
	theirs := k.ask(t, k.mary, k.track, 10*hour)
	_, err = k.decide(t, k.as(t, k.grace), theirs, 10*hour)
	if r := refused(t, err, ledger.Denied); !strings.Contains(r.Detail, "lead") {
		t.Errorf("refused with %q", r.Detail)
	}
	_, err = k.decide(t, k.as(t, k.mary), own, 10*hour)
	refused(t, err, ledger.Denied)
	_, err = k.decide(t, k.as(t, k.hedy), own, 10*hour)
	k.must(t, err)
}

func TestReturnedRequestIsRevisedAndAwarded(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 500 * hour}))
	id := k.ask(t, k.emmy, k.seg, 900*hour)
	back := func(reason string) error {
		_, err := k.ReviewRequest(t.Context(), k.as(t, k.grace), ReviewCommand{Request: id, Decision: ledger.Decision{Action: ledger.Return, Version: 1, Reason: reason}})
		return err
	}
	refused(t, back(" "), ledger.Invalid)
	k.must(t, back("Say what for."))
	revise := RequestInput{
		ID: id, Version: 2, Project: k.seg, Period: k.q4, Purpose: "finetune", Outcome: "weights", Submit: true,
		Lines: []ledger.RequestLine{{Pool: k.h100, Asked: 200 * hour}},
	}
	_, err := k.SaveRequest(t.Context(), k.as(t, k.mary), revise)
	refused(t, err, ledger.Denied)
	_, err = k.SaveRequest(t.Context(), k.as(t, k.emmy), revise)
	k.must(t, err)
	_, err = k.decide(t, k.as(t, k.grace), id, 200*hour)
	refused(t, err, ledger.Conflict) // it read version 1
	_, err = k.ReviewRequest(t.Context(), k.as(t, k.grace), ReviewCommand{Request: id, Last: instant("2026-11-01"), Decision: ledger.Decision{
		Action: ledger.Award, Version: 3,
		Amounts: []ledger.PoolAmount{{Pool: k.h100, Amount: 150 * hour}},
	}})
	k.must(t, err)
	st, err := k.Statement(t.Context(), k.seg, 0)
	k.must(t, err)
	if l := st.Lots[0]; l.Available != 150*hour || l.Last != instant("2026-11-01") || l.First != k.Now() || l.Request != id {
		t.Errorf("lot %+v", l)
	}
	refused(t, k.WithdrawRequest(t.Context(), k.as(t, k.emmy), id, 4), ledger.Conflict)
	req, err := k.Request(t.Context(), k.as(t, k.emmy).Actor, id)
	k.must(t, err)
	var steps []string
	for _, e := range req.Events {
		steps = append(steps, string(e.Action))
	}
	if got := strings.Join(steps, " "); got != "submit return submit award" || req.Events[0].Lines[0].Asked != 900*hour {
		t.Errorf("history %q, first lines %+v", got, req.Events[0].Lines)
	}
}

func TestAwardCreatesTheProposedProject(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 100 * hour}))
	in := RequestInput{
		Program: k.vision, New: &NewProject{Title: "Depth & Motion", CostCentre: "00123", Members: []string{"new@lab.test"}},
		Period: k.q4, Purpose: "p", Outcome: "o", Submit: true, Lines: []ledger.RequestLine{{Pool: k.h100, Asked: 60 * hour}},
	}
	id, err := k.SaveRequest(t.Context(), k.as(t, k.nobody), in)
	k.must(t, err)
	_, err = k.decide(t, k.as(t, k.grace), id, 61*hour)
	refused(t, err, ledger.Invalid)
	if n := k.count(t, "select count(*) from groups where path = '/lab/vision/depth-motion'"); n != 0 {
		t.Error("a refused award made the project")
	}
	out, err := k.decide(t, k.as(t, k.grace), id, 60*hour)
	k.must(t, err)
	g, err := k.Group(t.Context(), out.Project)
	k.must(t, err)
	actor := k.as(t, k.nobody).Actor
	if g.Path != "/lab/vision/depth-motion" || g.CostCentre != "00123" || !actor.Leads(g.Path, k.Now()) {
		t.Errorf("project %+v, author's roles %+v", g, actor.Grants)
	}
	if amount, _ := k.usable(t, out.Project); amount != 60*hour {
		t.Errorf("usable %s, want 60", amount.Hours())
	}
	if n := k.count(t, "select count(*) from invites i join outbox o on o.body->>'email' = i.email where i.project_id = $1 and o.kind = 'invite'", int64(out.Project)); n != 1 {
		t.Errorf("%d invites with a letter, want 1", n)
	}
}

func TestRequestsAreReadByRole(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	id := k.ask(t, k.emmy, k.seg, 10*hour)
	for _, c := range []struct {
		who  ledger.PersonID
		sees bool
	}{{k.emmy, true}, {k.grace, true}, {k.ada, true}, {k.mary, false}, {k.nobody, false}} {
		actor := k.as(t, c.who).Actor
		_, err := k.Request(t.Context(), actor, id)
		list, listErr := k.Requests(t.Context(), actor, RequestQuery{Limit: 10})
		k.must(t, listErr)
		if (err == nil) != c.sees || (len(list) == 1) != c.sees {
			t.Errorf("%s: page %v, %d in the list; sees it: %t", actor.Name, err, len(list), c.sees)
		}
	}
	waiting, err := k.WaitingReviews(t.Context(), k.as(t, k.grace).Actor)
	if mine, _ := k.WaitingReviews(t.Context(), k.as(t, k.emmy).Actor); err != nil || waiting != 1 || mine != 0 {
		t.Errorf("%d wait for the manager, %d for the author, %v", waiting, mine, err)
	}
}
