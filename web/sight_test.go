package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// others is a fleet on which two projects meet everywhere: Arms' jobs evicted one
// of Segmentation's, hold what another waits for, threaten a third, have the
// reserved start, and are awaited by a fourth. Numbers of Arms' jobs are such that
// they occur nowhere else.
type others struct {
	*fleet
	victim, busy, behind, after ledger.JobID // Segmentation's
	array                       ledger.ArrayID
	came, big                   ledger.JobID // Arms'
	theirArray                  ledger.ArrayID
	request                     ledger.RequestID
}

const (
	theirJobs   = 7_300_000
	theirArrays = 9_100_000
)

// theirs lets Arms submit, with numbers of its own.
func (o *others) theirs(name string, gpus int64, more ...func(*store.Submission)) ledger.JobID {
	o.t.Helper()
	const restart = `alter sequence jobs_id_seq restart with %d`
	var next int
	o.must(o.store.Pool().QueryRow(o.t.Context(), `select coalesce(max(id) filter (where id < $1), 0) + 1 from jobs`, theirJobs).Scan(&next))
	var last int
	o.must(o.store.Pool().QueryRow(o.t.Context(), `select coalesce(max(id), $1) + 1 from jobs where id > $1`, theirJobs).Scan(&last))
	o.db.Exec(o.t, fmt.Sprintf(restart, last))
	id := o.job("researcher elsewhere", armsPath, name, gpus, more...)
	o.db.Exec(o.t, fmt.Sprintf(restart, next))
	return id
}

func newOthers(t *testing.T) *others {
	t.Helper()
	o := &others{fleet: newFleet(t, 2)}
	o.victim = o.job("researcher here", segPath, "mine", 8)
	o.cycle()
	o.db.Clock.Advance(50 * time.Minute)
	o.busy = o.job("researcher here", segPath, "mine too", 4)
	o.cycle()
	o.db.Clock.Advance(20 * time.Minute)
	o.cycle()
	o.came = o.theirs("wombat", 8)
	o.cycle()
	for _, p := range o.parts(o.victim) {
		_, err := o.store.Ended(t.Context(), store.End{PartRef: p, ElapsedUS: (70 * time.Minute).Microseconds(), Stopped: true, TermUS: (70 * time.Minute).Microseconds()})
		o.must(err)
	}
	o.cycle()
	o.big = o.theirs("quokka", 8, func(s *store.Submission) { s.Nodes = 2 })
	for range 3 {
		o.cycle()
		o.db.Clock.Advance(time.Second)
	}
	o.theirs("numbat", 1)
	o.behind = o.job("researcher here", segPath, "behind", 4, func(s *store.Submission) { s.Preset = "long" })
	o.db.Exec(t, fmt.Sprintf(`alter sequence job_arrays_id_seq restart with %d`, theirArrays))
	o.theirs("bilby", 1, func(s *store.Submission) { s.Array = "0-2" })
	o.theirArray = theirArrays
	o.db.Exec(t, `alter sequence job_arrays_id_seq restart with 1`)
	o.job("researcher here", segPath, "many", 1, func(s *store.Submission) { s.Array = "0-1" })
	o.array = 1
	o.db.Exec(t, `alter sequence jobs_id_seq restart with 7400000`) // it comes after those it waits for
	o.after = o.job("researcher here", segPath, "after", 1, func(s *store.Submission) {
		s.After = []string{fmt.Sprint("any:", o.came), fmt.Sprint("any:A", theirArrays)}
	})
	o.cycle()
	_, err := o.store.AskToJoin(t.Context(), o.cmd("researcher here"), o.arms, "")
	o.must(err)
	o.request, err = o.store.SaveRequest(t.Context(), o.cmd("pi here"), store.RequestInput{
		Project: o.seg, Period: o.q4, Purpose: "more", Outcome: "a model", Submit: true, Lines: []ledger.RequestLine{{Pool: o.h100, Asked: hour}},
	})
	o.must(err)
	o.threaten()
	return o
}

// threaten has the dispatcher say to the running job whom it may have to go for.
func (o *others) threaten() {
	o.t.Helper()
	rival := &scheduler.Rival{Job: o.came, Project: o.arms, Rule: scheduler.V3, Mine: scheduler.Standing{Group: o.vision, MicroGPU: 1}, Theirs: scheduler.Standing{Group: o.robots, MicroGPU: 1}}
	warning, err := json.Marshal(&scheduler.Warning{LeftMs: 120_000, Rival: rival})
	o.must(err)
	answer, err := json.Marshal(&scheduler.Renewal{Rival: rival, Refused: &scheduler.Reason{
		Code: scheduler.WhyReserved, Facts: []scheduler.Fact{{Name: scheduler.FactHolder, Value: idText(o.big)}, {Name: scheduler.FactKept, Value: "1793491200000000"}},
	}})
	o.must(err)
	o.db.Exec(o.t, `update attempts set warning = $2, renew_answer = $3, renew_answered_at = since where job_id = $1`, int64(o.busy), warning, answer)
}

// close makes the policy closed, as an admin does.
func (o *others) close() {
	o.t.Helper()
	policy, err := o.store.PolicyNow(o.t.Context())
	o.must(err)
	policy.Visibility = "closed"
	_, err = o.store.SavePolicy(o.t.Context(), o.cmd("admin here"), policy.Version, policy, "tenants do not know of each other")
	o.must(err)
}

// names are what tells Arms and its people, jobs and program from everybody else's.
func (o *others) names() []string {
	return []string{
		"Robots", "Arms", "/lab/robots", "researcher elsewhere", "pi elsewhere", "wombat", "quokka", "numbat", "bilby",
		idText(o.came), idText(o.big), idText(o.theirArray), view.GroupURL(o.arms) + `"`, view.GroupURL(o.robots) + `"`,
	}
}

// addresses are every page and every answer for programs that one may ask for,
// about what belongs to Segmentation or to nobody.
func (o *others) addresses(t *testing.T) []string {
	t.Helper()
	jobs := []ledger.JobID{o.victim, o.busy, o.behind, o.after}
	var out []string
	for _, rt := range o.server.routes() {
		if rt.method != get || rt.scope == open {
			continue
		}
		switch path := strings.TrimPrefix(rt.pattern, "/api/v1"); {
		case rt.pattern == api.PathStatement:
			out = append(out, rt.pattern+"?pool=h100&project="+segPath)
		case rt.pattern == api.PathMembers:
			out = append(out, rt.pattern+"?project="+segPath)
		case rt.pattern == api.PathNode:
			out = append(out, strings.ReplaceAll(rt.pattern, "{node}", "n1"), strings.ReplaceAll(rt.pattern, "{node}", "n2"))
		case rt.pattern == api.PathPoolIndices:
			out = append(out, strings.Replace(rt.pattern, "{pool}", "h100", 1))
		case rt.pattern == api.PathOrder:
			out = append(out, rt.pattern+"?pool=h100")
		case !strings.Contains(path, "{"):
			out = append(out, rt.pattern)
		case strings.HasPrefix(path, "/jobs/{id}"):
			for _, id := range jobs {
				out = append(out, jobPath(rt.pattern, id))
			}
		case strings.HasPrefix(path, "/arrays/{id}"):
			out = append(out, arrayPath(rt.pattern, o.array))
		case strings.HasPrefix(path, "/groups/{id}"):
			for _, id := range []ledger.GroupID{o.lab, o.vision, o.seg} {
				out = append(out, jobPath(rt.pattern, ledger.JobID(id)))
			}
		case strings.HasPrefix(path, "/pools/{id}"), strings.HasPrefix(path, "/admin/pools/{id}"):
			out = append(out, jobPath(rt.pattern, ledger.JobID(o.h100)))
		case strings.HasPrefix(path, "/nodes/{id}"):
			out = append(out, jobPath(rt.pattern, ledger.JobID(o.nodes[0])), jobPath(rt.pattern, ledger.JobID(o.nodes[1])))
		case strings.HasPrefix(path, "/requests/{id}"):
			out = append(out, jobPath(rt.pattern, ledger.JobID(o.request)))
		case strings.HasPrefix(path, "/invites/"):
			out = append(out, inviteURL+"unknown")
		default:
			t.Errorf("%s: tell this test of whose things it speaks", rt.pattern)
		}
	}
	return append(out, api.PathOrder+"?pool=h100&limit=1", view.JobsURL+"?state=ended", view.JobsURL+"?state=waiting", view.NewJobURL+"?from="+idText(o.busy), view.JoinURL+"?project="+idText(o.arms))
}

// ask gets an address as a person, or as a program with the person's roles.
func (o *others) ask(who, path string) (int, string) {
	o.t.Helper()
	r := httptest.NewRequest(get, path, nil)
	if isProgram(r.URL.Path) {
		r.Header.Set("Authorization", "Bearer trn_"+who)
	} else {
		r.AddCookie(o.session(o.persons[who]))
	}
	w := httptest.NewRecorder()
	o.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// token gives a person a token with all their roles.
func (o *others) token(who string) {
	o.t.Helper()
	hash := sha256.Sum256([]byte("trn_" + who))
	o.db.Exec(o.t, `insert into api_tokens (person_id, name, token_hash, created_at, expires_at) values ($1, 'm', $2, '2026-10-01', '2027-10-01')`, int64(o.persons[who]), hash[:])
}

// told are the names that any address gives to a person.
func (o *others) told(t *testing.T, who string, found func(path, name, body string)) {
	t.Helper()
	answered := 0
	for _, path := range o.addresses(t) {
		status, body := o.ask(who, path)
		if status >= 500 {
			t.Errorf("%s as %q: %d", path, who, status)
		}
		if status == 200 {
			answered++
		}
		for _, name := range o.names() {
			if path == view.JoinURL+"?project="+idText(o.arms) && name == idText(o.arms) {
				continue
			}
			if strings.Contains(body, name) {
				found(path, name, body)
			}
		}
	}
	if answered < 20 || answered < 30 && who != "nobody" {
		t.Errorf("only %d addresses answered %q", answered, who)
	}
}

// excerpt is what stands around a name.
func excerpt(body, name string) string {
	at := strings.Index(body, name)
	return body[max(0, at-120):min(len(body), at+len(name)+60)]
}

// Under the open policy everybody reads of everybody; under the closed one a
// researcher reads nothing, on any page and in any answer, that names another
// project, its people or its jobs. Who holds a role at the root still does.
func TestAClosedPolicyHidesOtherProjectsEverywhere(t *testing.T) {
	t.Parallel()
	o := newOthers(t)
	for _, who := range []string{"researcher here", "manager here", "auditor here", "nobody"} {
		o.token(who)
	}
	seen := map[string][]string{}
	o.told(t, "researcher here", func(path, name, _ string) { seen[name] = append(seen[name], path) })
	for _, name := range o.names() {
		if len(seen[name]) == 0 {
			t.Errorf("under the open policy nothing names %q: this test could not fail for it", name)
		}
	}
	for _, path := range []string{
		view.JobURL(o.victim), view.JobURL(o.behind), view.JobURL(o.busy), view.JobURL(o.after), jobPath(api.PathWhy, o.busy), view.NodeURL(o.nodes[0]), view.PoolURL(o.h100),
		strings.ReplaceAll(api.PathNode, "{node}", "n1"), view.PoolOrderURL(o.h100), view.TreeURL, view.JobsURL, view.PeopleURL, view.JoinURL, api.PathJobs, api.PathNodes, view.JobChangesURL(o.victim),
	} {
		if !slices.ContainsFunc(o.names(), func(name string) bool { return slices.Contains(seen[name], path) }) {
			t.Errorf("under the open policy %s names nobody else: this test could not fail for it", path)
		}
	}
	o.close()
	for _, who := range []string{"researcher here", "nobody"} {
		o.told(t, who, func(path, name, body string) { t.Errorf("%s tells %q of %q: %s", path, who, name, excerpt(body, name)) })
	}
	o.told(t, "manager here", func(path, name, body string) {
		t.Errorf("%s tells a manager of a sibling of %q: %s", path, name, excerpt(body, name))
	})
	for path, want := range map[string]string{
		view.PoolOrderURL(o.h100): "another project", view.PoolURL(o.h100): "another project", view.NodeURL(o.nodes[0]): "another project",
		view.JobURL(o.victim): "a job of another project", view.JobURL(o.behind): "a job of another project", view.JobURL(o.after): "an array of another project",
		jobPath(api.PathWhy, o.victim): "another project", api.PathOrder + "?pool=h100": "another project", api.PathOrder + "?pool=h100&limit=1": `"next":"@1"`, view.JoinURL: "another project",
	} {
		if _, body := o.ask("researcher here", path); !strings.Contains(body, want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
	all := 0
	o.told(t, "auditor here", func(string, string, string) { all++ })
	if all == 0 {
		t.Error("who reads all at the root reads nothing any more")
	}
}

// What the reader may not know of is refused exactly like what is not there.
func TestAClosedPolicyRefusesOthersLikeNothing(t *testing.T) {
	t.Parallel()
	o := newOthers(t)
	o.token("researcher here")
	o.close()
	pair := func(pattern string, theirs, nothing any) {
		t.Helper()
		gotStatus, got := o.ask("researcher here", strings.ReplaceAll(pattern, "{id}", fmt.Sprint(theirs)))
		wantStatus, want := o.ask("researcher here", strings.ReplaceAll(pattern, "{id}", fmt.Sprint(nothing)))
		same := strings.ReplaceAll(plain(got), fmt.Sprint(theirs), fmt.Sprint(nothing))
		if gotStatus != wantStatus || gotStatus < 400 || same != plain(want) {
			t.Errorf("%s: %d %.200s for another's, %d %.200s for nothing", pattern, gotStatus, same, wantStatus, plain(want))
		}
	}
	for _, pattern := range []string{view.JobsURL + "/{id}", view.JobsURL + "/{id}/log", view.JobsURL + "/{id}/changes", api.PathJob, api.PathWhy, api.PathJobLogs, api.PathChanges, view.NewJobURL + "?from={id}"} {
		pair(pattern, o.came, 7_999_999)
	}
	pair(view.ArraysURL+"/{id}", theirArrays, 9_999_999)
	pair(api.PathArray, theirArrays, 9_999_999)
	for _, pattern := range []string{groupPattern, groupPattern + "/people", groupPattern + "/edit"} {
		pair(pattern, o.arms, 999)
		pair(pattern, o.robots, 999)
	}
	for _, pattern := range []string{view.JobsURL + "?project={id}", api.PathJobs + "?project={id}", api.PathBalances + "?project={id}", api.PathStatement + "?pool=h100&project={id}", api.PathMembers + "?project={id}"} {
		pair(pattern, armsPath, "/lab/robots/none")
	}
	ctx, c := t.Context(), o.program("trn_researcher here")
	for n, pairs := range [][2]api.Submit{
		{{Project: armsPath}, {Project: "/lab/robots/none"}},
		{{Project: segPath, After: []string{fmt.Sprint("any:", o.came)}}, {Project: segPath, After: []string{"any:7999999"}}},
		{{Project: segPath, After: []string{fmt.Sprint("ok:A", theirArrays)}}, {Project: segPath, After: []string{"ok:A9999999"}}},
	} {
		var said [2]string
		for i, in := range pairs {
			in.Key, in.Pool, in.GPUs, in.Command = fmt.Sprint("k", n, i), "h100", 1, "true"
			_, err := c.Submit(ctx, in)
			said[i] = strings.NewReplacer(idText(o.came), "7999999", fmt.Sprint(theirArrays), "9999999", armsPath, "/lab/robots/none").Replace(fmt.Sprint(err))
		}
		if said[0] != said[1] || !strings.Contains(said[0], "There is no ") {
			t.Errorf("submission %d: %q for another's, %q for nothing", n, said[0], said[1])
		}
	}
}

// plain leaves out of an answer what differs between any two.
func plain(body string) string {
	var p map[string]any
	if json.Unmarshal([]byte(body), &p) == nil {
		delete(p, "instance")
		b, err := json.Marshal(p)
		if err == nil {
			return string(b)
		}
	}
	if _, rest, ok := strings.Cut(body, `data-testid="refusal"`); ok {
		body, _, _ = strings.Cut(rest, "<")
	}
	return body
}

// Commands that any signed-in person may send do not say that a group is there.
func TestAClosedPolicyTakesNoCommandAboutOthers(t *testing.T) {
	t.Parallel()
	o := newOthers(t)
	o.close()
	ctx, gone := t.Context(), "There is no such program or project."
	_, err := o.store.AskToJoin(ctx, o.cmd("researcher here"), o.arms, "")
	if err == nil || err.Error() != gone {
		t.Errorf("asked to join: %v", err)
	}
	in := store.RequestInput{Program: o.robots, New: &store.NewProject{Title: "Spy"}, Period: o.q4, Purpose: "p", Outcome: "o"}
	if _, err = o.store.SaveRequest(ctx, o.cmd("researcher here"), in); err == nil || err.Error() != gone {
		t.Errorf("proposed a project: %v", err)
	}
	b := o.as("researcher here")
	for _, path := range []string{view.RevokeURL, view.MembersURL(o.arms)[:len(view.MembersURL(o.arms))-len("/people")] + "/member"} {
		form := keyed("group", idText(o.arms), "person", "1", "role", "researcher", "share", "2", "cap", "")
		if a := b.send(http.MethodPost, path, form); a.status != 404 && a.status != 403 || strings.Contains(a.body, "/lab/robots") || strings.Contains(a.body, "Arms") {
			t.Errorf("%s: %d %s", a.name, a.status, a.one("refusal"))
		}
	}
	// The open policy takes them.
	policy, err := o.store.PolicyNow(ctx)
	o.must(err)
	policy.Visibility = "open"
	_, err = o.store.SavePolicy(ctx, o.cmd("admin here"), policy.Version, policy, "friends again")
	o.must(err)
	_, err = o.store.SaveRequest(ctx, o.cmd("researcher here"), in)
	o.must(err)
}

// A running command is told what its page says, and no more.
func TestAClosedPolicyHidesOthersFromCommands(t *testing.T) {
	t.Parallel()
	o := newOthers(t)
	notices := func() string {
		var said []string
		for i := range o.nodes {
			r := httptest.NewRequest(post, api.PathPoll, bytes.NewReader([]byte("{}")))
			r.Header.Set("Authorization", fmt.Sprint("Bearer node", i+1))
			w := httptest.NewRecorder()
			o.handler.ServeHTTP(w, r)
			var d api.Desired
			o.must(json.Unmarshal(w.Body.Bytes(), &d))
			for _, order := range d.Attempts {
				if order.Spec.Job == o.busy {
					said = append(said, order.Notices...)
				}
			}
		}
		return strings.Join(said, "\n")
	}
	if said := notices(); !strings.Contains(said, "Robots") || !strings.Contains(said, idText(o.came)) {
		t.Errorf("the open policy says %q", said)
	}
	o.close()
	said := notices()
	for _, name := range o.names() {
		if strings.Contains(said, name) {
			t.Errorf("the closed policy says %q: %q", name, said)
		}
	}
	if !strings.Contains(said, "A job of another project") {
		t.Errorf("the closed policy says %q", said)
	}
}
