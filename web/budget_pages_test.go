package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tranche/web/view"
)

// From a PI's request through a manager's partial award to the ledger, by forms
// alone: this browser knows no JavaScript.
func TestRequestIsAwardedInPartThroughThePages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.split("admin here", s.lab, s.vision, 50*hour)
	pi, manager := s.as("pi here"), s.as("manager here")
	form := pi.open(view.NewRequestURL + "?project=" + idText(s.seg))
	field := "hours_" + idText(s.h100)
	page := pi.follow(pi.submit(form, "request-form", map[string]string{field: "1,000", "purpose": "Train the model.", "outcome": "Weights.", "deadline": "2026-12-01", "verb": "submit"}))
	page.want("request-state", "waits for a manager of its program")
	requestURL := page.name[len("GET "):]
	if home := manager.open(view.HomeURL); len(home.all("review-link")) != 1 || home.one("nav-waiting") != "1" {
		t.Errorf("the manager's home: %v, %v wait", home.all("review-link"), home.all("nav-waiting"))
	}
	review := manager.open(requestURL + "/review")
	review.want("pot", "50")
	review.want("short", "950")
	short := manager.submit(review, "review-form", map[string]string{"award_" + idText(s.h100): "80", "note": "Good.", "decision": "award"})
	if short.status != http.StatusUnprocessableEntity || !strings.Contains(short.one("refused-award_"+idText(s.h100)), "Short 30 GPU-h, limited by program /lab/vision") {
		t.Errorf("a short pot: %d %q", short.status, short.all("refusals"))
	}
	if _, values := short.form("review-form"); values.Get("award_"+idText(s.h100)) != "80" || values.Get("note") != "Good." {
		t.Errorf("typed values were lost: %v", values)
	}
	s.split("admin here", s.lab, s.vision, 100*hour)
	page = manager.follow(manager.submit(short, "review-form", map[string]string{"decision": "award"}))
	page.want("request-state", "awarded in part")
	page.want("answer", "Segmentation was awarded 80 GPU-h on h100 in 2026-Q4; asked were 1 000 GPU-h on h100.")
	if steps := page.all("history"); len(steps) != 2 || !strings.Contains(steps[0], "awarded 80 GPU-h on h100") || !strings.Contains(steps[0], "Good.") {
		t.Errorf("history %q", steps)
	}
	ledgerPage := pi.open(view.GroupURL(s.seg))
	ledgerPage.want("answer", "Segmentation can use 80 GPU-h on h100.")
	if rows := ledgerPage.all("entry-row"); len(rows) != 1 || !strings.Contains(rows[0], "award:request:1") || len(ledgerPage.all("lot-row")) != 1 {
		t.Errorf("entries %q, lots %q", rows, ledgerPage.all("lot-row"))
	}
	program := manager.open(view.GroupURL(s.vision))
	program.want("pot-left", "20")
	pi.open(view.HomeURL).want("usable", "80")
}

// L18: the second click on "award" gets the first one's answer.
func TestL18DoubleClickThroughThePages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.split("admin here", s.lab, s.vision, 100*hour)
	pi, manager := s.as("pi here"), s.as("manager here")
	form := pi.open(view.NewRequestURL)
	changes := map[string]string{"hours_" + idText(s.h100): "10", "purpose": "p", "outcome": "o", "verb": "submit"}
	first, second := pi.submit(form, "request-form", changes), pi.submit(form, "request-form", changes)
	if first.status != 303 || second.status != 303 || first.header.Get("Location") != second.header.Get("Location") {
		t.Errorf("asking twice: %d %s and %d %s", first.status, first.header.Get("Location"), second.status, second.header.Get("Location"))
	}
	review := manager.open(first.header.Get("Location") + "/review")
	for range 2 {
		page := manager.follow(manager.submit(review, "review-form", map[string]string{"decision": "award"}))
		page.want("request-state", "awarded")
	}
	manager.open(view.GroupURL(s.vision)).want("pot-left", "90")
	other := manager.submit(review, "review-form", map[string]string{"decision": "award", "note": "changed"})
	if other.status != http.StatusConflict {
		t.Errorf("the same key with other content: %d", other.status)
	}
}

// Two reviewers: the second one's page says who was faster.
func TestL12SecondReviewerSeesTheConflict(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.split("admin here", s.lab, s.vision, 100*hour)
	pi, manager, admin := s.as("pi here"), s.as("manager here"), s.as("admin here")
	sent := pi.submit(pi.open(view.NewRequestURL), "request-form", map[string]string{"hours_" + idText(s.h100): "10", "purpose": "p", "outcome": "o", "verb": "submit"})
	url := sent.header.Get("Location") + "/review"
	one, two := manager.open(url), admin.open(url)
	manager.follow(manager.submit(one, "review-form", map[string]string{"decision": "award"}))
	lost := admin.submit(two, "review-form", map[string]string{"decision": "award"})
	if lost.status != http.StatusConflict || !strings.Contains(lost.one("refusal"), "changed after you opened it") {
		t.Errorf("the second reviewer: %d %q", lost.status, lost.one("refusal"))
	}
}

func TestReturnedRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.split("admin here", s.lab, s.vision, 100*hour)
	pi, manager := s.as("pi here"), s.as("manager here")
	sent := pi.follow(pi.submit(pi.open(view.NewRequestURL), "request-form", map[string]string{"hours_" + idText(s.h100): "10.5", "purpose": "p", "outcome": "o", "verb": "submit"}))
	at := sent.name[len("GET "):]
	bare := manager.submit(manager.open(at+"/review"), "review-form", map[string]string{"decision": "return"})
	if bare.status != 422 || bare.one("refused-note") == "" {
		t.Errorf("sent back without words: %d %v", bare.status, bare.all("refusals"))
	}
	manager.follow(manager.submit(bare, "review-form", map[string]string{"decision": "return", "note": "For what?"}))
	form := pi.open(view.NewRequestURL + "?from=1")
	form.want("note", "Sent back to you: For what?")
	if _, values := form.form("request-form"); values.Get("hours_"+idText(s.h100)) != "10.5" || values.Get("purpose") != "p" {
		t.Errorf("the form was not filled: %v", values)
	}
	page := pi.follow(pi.submit(form, "request-form", map[string]string{"purpose": "For maps.", "verb": "submit"}))
	page.want("request-state", "waits for a manager of its program")
	page = pi.follow(pi.send(http.MethodPost, view.WithdrawURL(1), url.Values{"key": {"w"}, "version": {"3"}}))
	page.want("request-state", "withdrawn")
}

func TestProposedProjectThroughThePages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.split("admin here", s.lab, s.vision, 100*hour)
	new, manager := s.as("nobody"), s.as("manager here")
	if first := new.get(view.HomeURL); first.status != 303 || first.header.Get("Location") != view.JoinURL {
		t.Errorf("somebody without a role is led to %d %s", first.status, first.header.Get("Location"))
	}
	form := new.open(view.NewRequestURL + "?project=new")
	refusedForm := new.submit(form, "request-form", map[string]string{"hours_" + idText(s.h100): "lots", "purpose": "p", "outcome": "o", "new_name": "Depth", "new_program": idText(s.vision), "new_members": "not-a-mail", "verb": "submit"})
	if refusedForm.status != 422 || refusedForm.one("refused-hours_"+idText(s.h100)) == "" {
		t.Errorf("unreadable hours: %d %v", refusedForm.status, refusedForm.all("refusals"))
	}
	page := new.follow(new.submit(refusedForm, "request-form", map[string]string{"hours_" + idText(s.h100): "10", "new_members": "a@lab.test b@lab.test", "verb": "submit"}))
	page.want("new-project", "Depth")
	manager.follow(manager.submit(manager.open(page.name[len("GET "):]+"/review"), "review-form", map[string]string{"decision": "award"}))
	new.open(view.HomeURL).want("answer", "You can use 10 GPU-h on h100 for Depth.")
}

func TestSplitFormInPercentAndHours(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, manager := s.as("admin here"), s.as("manager here")
	page := admin.open(view.GroupURL(s.lab))
	share := func(b *browser, page *answer, changes map[string]string) *answer {
		return b.submit(page, "split-form", changes)
	}
	page = admin.follow(share(admin, page, map[string]string{"mode": "percent", "share_" + idText(s.vision): "35,5", "share_" + idText(s.robots): "64.5"}))
	if rows := page.all("pot-row"); len(rows) != 1 || page.one("pot-left") != "0" {
		t.Errorf("pots %q, left %q", rows, page.one("pot-left"))
	}
	program := manager.open(view.GroupURL(s.vision))
	program.want("pot-received", "355")
	over := share(manager, program, map[string]string{"mode": "hours", "share_" + idText(s.seg): "400"})
	if over.status != 422 || !strings.Contains(over.one("refusals"), "Short 45 GPU-h") {
		t.Errorf("more than the pot: %d %q", over.status, over.all("refusals"))
	}
	wrong := share(manager, program, map[string]string{"mode": "hours", "share_" + idText(s.seg): "-1"})
	if wrong.status != 422 || wrong.one("refused-share_"+idText(s.seg)) == "" {
		t.Errorf("a negative part: %d %q", wrong.status, wrong.all("refusals"))
	}
	manager.follow(share(manager, over, map[string]string{"mode": "hours", "share_" + idText(s.seg): "100"}))
	unchanged := manager.open(view.GroupURL(s.vision))
	manager.follow(share(manager, unchanged, map[string]string{"mode": "hours"}))
	inPercent := manager.open(view.GroupURL(s.vision) + "?mode=percent")
	manager.follow(share(manager, inPercent, nil))
	s.as("pi here").open(view.GroupURL(s.seg)).want("answer", "Segmentation can use 100 GPU-h on h100.")
	stale := share(manager, program, map[string]string{"mode": "hours", "share_" + idText(s.seg): "5"})
	if stale.status != http.StatusConflict {
		t.Errorf("a split of an old version: %d", stale.status)
	}
	tree := manager.open(view.TreeURL)
	if shares := tree.all("share"); len(shares) != 5 || shares[0] != "100 %" || shares[1] != "64.5 %" || shares[3] != "35.5 %" {
		t.Errorf("shares of the tree %q", shares)
	}
}

func TestAdminOpensPeriodsMakesPoolsAndGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin := s.as("admin here")
	pools := admin.open(view.AdminPoolsURL)
	bad := admin.submit(pools, "pool-form", map[string]string{"name": "A 100", "rate_ppm": "0"})
	if bad.status != 422 || bad.one("refused-name") == "" || bad.one("refused-rate_ppm") == "" {
		t.Errorf("a wrong pool: %d %q", bad.status, bad.all("refusals"))
	}
	admin.follow(admin.submit(bad, "pool-form", map[string]string{"name": "a100", "device": "A100", "rate_ppm": "500000"}))
	demand := admin.open(view.PoolDemandURL(s.h100))
	if odd := admin.submit(demand, "demand-form", map[string]string{"sto_mbps": "1000000000000"}); odd.status != 422 || odd.one("refused-sto_mbps") == "" {
		t.Errorf("a wrong demand: %d %q", odd.status, odd.all("refusals"))
	}
	admin.follow(admin.submit(demand, "demand-form", map[string]string{"net_mbps": "5000", "io_milli": "500"})).want("demand-of-h100", "5 Gbit/s of network, 0.5 cores that move data")
	if _, values := admin.open(view.PoolDemandURL(s.h100)).form("demand-form"); values.Get("net_mbps") != "5000" || values.Get("sto_mbps") != "0" {
		t.Errorf("the saved demand: %v", values)
	}
	group := admin.follow(admin.submit(admin.open(view.GroupsURL), "group-form", map[string]string{"kind": "program", "name": "Speech", "parent": idText(s.lab)}))
	group.want("title", "Speech")
	taken := admin.submit(admin.open(view.GroupsURL), "group-form", map[string]string{"kind": "program", "name": "speech", "parent": idText(s.lab)})
	if taken.status != 422 || taken.one("refused-name") == "" {
		t.Errorf("a name that is taken: %d %q", taken.status, taken.all("refusals"))
	}
	edit := admin.open(view.EditGroupURL(s.vision))
	admin.follow(admin.submit(edit, "group-edit-form", map[string]string{"overcommit": "1.6", "name": "Vision II"})).want("title", "Vision II")
	if _, values := admin.open(view.EditGroupURL(s.vision)).form("group-edit-form"); values.Get("overcommit") != "1.60" {
		t.Errorf("overcommit %q", values.Get("overcommit"))
	}
	periods := admin.open(view.PeriodsURL)
	pool := "supply_" + idText(s.h100)
	overlap := admin.submit(periods, "period-form", map[string]string{"name": "2027-Q1", "first": "2026-12-31", "last": "2027-03-31", pool: "500"})
	if _, values := overlap.form("period-form"); overlap.status != 422 || overlap.one("refused-first") == "" || values.Get("name") != "2027-Q1" {
		t.Errorf("an overlapping period: %d %q", overlap.status, overlap.all("refusals"))
	}
	page := admin.follow(admin.submit(periods, "period-form", map[string]string{"name": "2027-Q1", "first": "2027-01-01", "last": "2027-03-31", pool: "500"}))
	if rows := page.all("period-row"); len(rows) != 2 || !strings.Contains(rows[0], "500 on h100") || !strings.Contains(rows[0], "2027-03-31") {
		t.Errorf("periods %q", rows)
	}
	audit := admin.open(view.AuditURL + "?verb=period.open")
	if rows := audit.all("audit-row"); len(rows) != 2 || !strings.Contains(rows[0], "admin here") {
		t.Errorf("audit %q", rows)
	}
}

func TestPeopleAreInvitedGrantedAskedRevoked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	pi, admin, new := s.as("pi here"), s.as("admin here"), s.as("nobody")
	join := new.open(view.JoinURL)
	new.follow(new.submit(join, "join-form", map[string]string{"project": idText(s.seg), "message": "I label data."}))
	people := pi.open(view.PeopleURL)
	if asks := people.all("ask-row"); len(asks) != 1 || !strings.Contains(asks[0], "I label data.") {
		t.Errorf("asks %q", asks)
	}
	pi.follow(pi.send(http.MethodPost, view.JoinAnswerURL(1), url.Values{"key": {"a"}, "decision": {"approve"}}))
	new.open(view.NewJobURL)
	if rows := pi.open(view.MembersURL(s.seg)).all("person-row"); !strings.Contains(strings.Join(rows, " "), "nobody nobody@lab.test") {
		t.Errorf("members %q", rows)
	}
	invited := pi.follow(pi.submit(people, "invite-form", map[string]string{"email": "x@y.test", "role": "researcher"}))
	link := invited.one("flash")[strings.Index(invited.one("flash"), inviteURL):]
	guest := s.as("researcher elsewhere")
	offer := guest.open(link)
	offer.want("answer", "You are invited to Segmentation as researcher.")
	guest.follow(guest.send(http.MethodPost, link, url.Values{"key": {"b"}}))
	if again := s.as("auditor elsewhere").get(link); again.status != http.StatusNotFound {
		t.Errorf("a used invite answers %d", again.status)
	}
	grant := admin.submit(admin.open(view.PeopleURL), "grant-form", map[string]string{"person": idText(s.persons["nobody"]), "role": "manager", "group": idText(s.vision), "until": "2026-10-31"})
	admin.follow(grant)
	s.as("nobody").open(view.GroupURL(s.vision)).form("split-form")
	revoke := url.Values{"key": {"c"}, "person": {idText(s.persons["nobody"])}, "role": {"manager"}, "group": {idText(s.vision)}}
	admin.follow(admin.send(http.MethodPost, view.RevokeURL, revoke))
	if page := s.as("nobody").open(view.GroupURL(s.vision)); len(page.all("split-form")) != 0 {
		t.Error("the split form is still offered after the role was taken away")
	}
}

func TestTokenIsShownOnceAndTheSameOnADoubleClick(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	pi := s.as("pi here")
	form := pi.open(view.TokensURL)
	changes := map[string]string{"name": "laptop", "limit": "5"}
	first, second := pi.submit(form, "token-form", changes), pi.submit(form, "token-form", changes)
	secret := strings.Fields(first.one("token-secret"))
	if len(secret) == 0 || first.one("token-secret") != second.one("token-secret") || len(second.all("token-row")) != 1 {
		t.Fatalf("shown %q and %q, %d tokens", first.one("token-secret"), second.one("token-secret"), len(second.all("token-row")))
	}
	if later := pi.open(view.TokensURL); later.one("token-secret") != "" {
		t.Error("the secret is shown again")
	}
	actor, err := s.store.TokenActor(t.Context(), secret[len(secret)-1])
	s.must(err)
	if actor.Person != s.persons["pi here"] || actor.TokenProject != s.seg {
		t.Errorf("the token's actor %+v", actor)
	}
	pi.follow(pi.send(http.MethodPost, view.TokenRevokeURL(1), url.Values{"key": {"r"}}))
	if _, err := s.store.TokenActor(t.Context(), secret[len(secret)-1]); err == nil {
		t.Error("a revoked token works")
	}
}
