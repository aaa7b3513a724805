package web

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// expectation is what one route answers. Whoever is not named in who gets other.
type expectation struct {
	path   string // a concrete address; "" is the pattern itself
	form   url.Values
	body   any    // of programs
	status []int  // for whoever may
	who    string // names, or "everybody": signed in, with or without a role
	other  int    // 0: 403
	sees   string // who gets 403 all the same, because what other hides is not hidden from them
}

// let is what an allowed POST gives that is not complete or not due: the route
// and the store's rules let it through to the checks of its content.
func let(more ...int) []int { return append([]int{200, 303, 409, 422}, more...) }

// scene is an institute with one of everything that routes are about.
type scene struct {
	*site
	request ledger.RequestID
	job     ledger.JobID
	array   ledger.ArrayID
	node    ledger.NodeID
	join    int64
	token   int64
	invite  string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{site: newSite(t), invite: "an-invite-secret"}
	ctx := t.Context()
	s.split("admin here", s.lab, s.vision, 100*hour)
	var err error
	s.request, err = s.store.SaveRequest(ctx, s.cmd("pi here"), store.RequestInput{
		Project: s.seg, Period: s.q4, Purpose: "train", Outcome: "a model", Submit: true,
		Lines: []ledger.RequestLine{{Pool: s.h100, Asked: 10 * hour}},
	})
	s.must(err)
	s.job, err = s.store.SubmitJob(ctx, s.cmd("researcher here"), store.Submission{Name: "j", Project: "/lab/vision/segmentation", Pool: "h100", Nodes: 1, GPUs: 1, Command: "true", Preset: "free"})
	s.must(err)
	_, err = s.store.SubmitJob(ctx, s.cmd("researcher here"), store.Submission{Project: "/lab/vision/segmentation", Pool: "h100", Nodes: 1, GPUs: 1, Command: "true", Preset: "free", Array: "0-1"})
	s.must(err)
	s.array = 1
	_, err = s.store.CreateEnrolToken(ctx, s.cmd("operator here"), store.EnrolTokenInput{Pool: "h100", Hours: 1, Uses: 1, Secret: "enrol"})
	s.must(err)
	s.node, err = s.store.Enrol(ctx, store.EnrolInput{Token: "enrol", Secret: "node", Name: "n1", BootID: "b", CPUMilli: 64_000, RAMMiB: 512 * 1024, Devices: []store.DeviceInput{{Index: 0, UUID: "u", Model: "H100", HBMMiB: 80 * 1024}}})
	s.must(err)
	s.join, err = s.store.AskToJoin(ctx, s.cmd("nobody"), s.seg, "")
	s.must(err)
	s.token, err = s.store.CreateToken(ctx, s.cmd("researcher here"), store.TokenInput{Project: s.seg, Name: "t", Days: 1, Secret: "trn_x"})
	s.must(err)
	s.must(s.store.CreateInvite(ctx, s.cmd("pi here"), store.Invite{Project: s.seg, Email: "a@b.test", Role: ledger.Researcher, Secret: s.invite}))
	return s
}

// keyMark stands for a key that no other request uses.
const keyMark = "KEY"

const (
	everybody = "everybody"
	anyPI     = "pi here, pi elsewhere"
	anyAdmin  = "admin here, admin elsewhere"
	members   = "researcher here, pi here"
	anyHere   = "researcher here, pi here, manager here, admin here, finance here, operator here, auditor here"
	readers   = "researcher here, pi here, manager here, admin here, auditor here"
	exporters = "pi here, pi elsewhere, manager here, manager elsewhere, admin here, admin elsewhere, finance here, finance elsewhere, auditor here, auditor elsewhere"
)

// expectations has one row per route of the list; the key is method and pattern.
func (s *scene) expectations() map[string]expectation {
	rows := map[string]expectation{}
	for _, part := range []map[string]expectation{s.peopleRows(), s.workRows(), s.apiRows()} {
		maps.Copy(rows, part)
	}
	// Served to nobody in particular: what they check is tested where it lives.
	for _, pattern := range []string{
		"GET /healthz", "GET /readyz", "GET /sign-in", "GET /sign-in/oidc", "POST /sign-in/dev", "GET " + callbackURL, "POST /sign-out",
		"POST " + api.PathEnrol, "POST " + api.PathPoll, "POST " + api.PathHeartbeat, "POST " + api.PathClaim, "POST " + api.PathEnded, "POST " + api.PathLogs, "POST " + api.PathRepaired,
		"GET " + api.PathOpenAPI,
	} {
		rows[pattern] = expectation{}
	}
	return rows
}

func only200() []int { return []int{200} }

// keyed is a form with a key of its own and further fields: name, value pairs.
func keyed(pairs ...string) url.Values {
	form := url.Values{"key": {keyMark}}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// peopleRows are about people, the tree, budgets and their administration.
func (s *scene) peopleRows() map[string]expectation {
	const group = "/groups/{id}"
	ok, key, request := only200(), keyed(), view.RequestURL(s.request)
	g := func(id ledger.GroupID, rest string) string { return view.GroupURL(id) + rest }
	return map[string]expectation{
		"GET /":                         {status: []int{200, 303}, who: everybody},
		"GET /join":                     {status: ok, who: everybody},
		"POST /join":                    {form: key, status: let(404), who: everybody},
		"POST /join/{id}":               {path: view.JoinAnswerURL(s.join), form: keyed("decision", "decline"), status: let(), who: "pi here, manager here"},
		"GET /invites/{secret}":         {path: inviteURL + s.invite, status: ok, who: everybody},
		"POST /invites/{secret}":        {path: inviteURL + "wrong", form: key, status: []int{404}, who: everybody},
		"GET /policy":                   {status: ok, who: everybody},
		"POST /policy":                  {form: keyed("margin_ppm", "7 %", "do", "preview"), status: let(), who: "admin here"},
		"GET /tree":                     {status: ok, who: everybody},
		"GET " + group:                  {path: g(s.seg, ""), status: ok, who: everybody},
		"GET " + group + "/people":      {path: g(s.seg, "/people"), status: ok, who: everybody},
		"POST " + group + "/split":      {path: g(s.vision, "/split"), form: keyed("pool", idText(s.h100), "period", idText(s.q4)), status: let(), who: "manager here, admin here"},
		"POST " + group + "/member":     {path: g(s.seg, "/member"), form: keyed("person", "1", "share", "2", "cap", ""), status: let(404), who: "pi here"},
		"GET " + group + "/edit":        {path: g(s.vision, "/edit"), status: ok, who: "admin here"},
		"POST " + group + "/edit":       {path: g(s.vision, "/edit"), form: key, status: []int{422}, who: "admin here"},
		"POST " + group + "/suspend":    {path: g(s.vision, "/suspend"), form: key, status: []int{303}, who: "admin here"},
		"POST " + group + "/resume":     {path: g(s.vision, "/resume"), form: key, status: let(), who: "admin here"},
		"POST " + group + "/archive":    {path: g(s.vision, "/archive"), form: key, status: []int{409}, who: "admin here"},
		"GET /requests":                 {status: ok, who: everybody},
		"POST /requests":                {form: keyed("project", idText(s.seg), "period", idText(s.q4)), status: []int{422}, who: "pi here"},
		"GET /requests/new":             {status: ok, who: everybody},
		"GET /requests/{id}":            {path: request, status: ok, who: readers, other: 404},
		"POST /requests/{id}":           {path: request, form: keyed("project", idText(s.seg), "period", idText(s.q4)), status: []int{409}, who: "pi here"},
		"POST /requests/{id}/withdraw":  {path: request + "/withdraw", form: key, status: []int{409}, who: "pi here"},
		"GET /requests/{id}/review":     {path: request + "/review", status: ok, who: "manager here, admin here", other: 404, sees: readers},
		"POST /requests/{id}/review":    {path: request + "/review", form: key, status: let(), who: "manager here, admin here", other: 404, sees: readers},
		"GET /people":                   {status: ok, who: everybody},
		"POST /people/invite":           {form: keyed("group", idText(s.seg)), status: []int{422}, who: "pi here"},
		"POST /people/grant":            {form: keyed("group", idText(s.robots)), status: []int{422}, who: anyAdmin},
		"POST /people/revoke":           {form: keyed("group", idText(s.seg), "role", "researcher", "person", "999"), status: []int{404}, who: "admin here, pi here"},
		"GET /tokens":                   {status: ok, who: everybody},
		"POST /tokens":                  {form: keyed("project", idText(s.seg)), status: []int{422}, who: anyHere},
		"POST /tokens/{id}/revoke":      {path: view.TokenRevokeURL(s.token), form: key, status: let(), who: "researcher here, pi here"},
		"GET /admin/periods":            {status: ok, who: "admin here"},
		"POST /admin/periods":           {form: key, status: []int{422}, who: "admin here"},
		"GET /admin/pools":              {status: ok, who: "admin here"},
		"POST /admin/pools":             {form: key, status: []int{422}, who: "admin here"},
		"GET /admin/pools/{id}/demand":  {path: view.PoolDemandURL(s.h100), status: ok, who: "admin here"},
		"POST /admin/pools/{id}/demand": {path: view.PoolDemandURL(s.h100), form: keyed("net_mbps", "-1"), status: []int{422}, who: "admin here"},
		"GET /admin/groups":             {status: ok, who: anyAdmin},
		"POST /admin/groups":            {form: keyed("parent", idText(s.robots)), status: []int{422}, who: anyAdmin},
		"GET /audit":                    {status: ok, who: "admin here, auditor here"},
	}
}

// workRows are about jobs, pools, nodes, charges.
func (s *scene) workRows() map[string]expectation {
	ok, key, job, array, node := only200(), keyed(), view.JobURL(s.job), view.ArrayURL(s.array), view.NodeURL(s.node)
	return map[string]expectation{
		"GET /jobs":                 {status: ok, who: everybody},
		"POST /jobs":                {form: keyed("project", "/lab/vision/segmentation"), status: []int{422}, who: members},
		"GET /jobs/new":             {status: ok, who: everybody},
		"GET /jobs/{id}":            {path: job, status: ok, who: everybody},
		"GET /jobs/{id}/log":        {path: job + "/log", status: let(404), who: readers},
		"POST /jobs/{id}/pause":     {path: job + "/pause", form: key, status: let(), who: "researcher here"},
		"POST /jobs/{id}/resume":    {path: job + "/resume", form: key, status: let(), who: "researcher here"},
		"GET /jobs/{id}/changes":    {path: job + "/changes", status: ok, who: everybody},
		"POST /jobs/{id}/renew":     {path: job + "/renew", form: keyed(), status: let(), who: "researcher here"},
		"POST /jobs/{id}/change":    {path: job + "/change", form: keyed("gpus", "1"), status: let(), who: "researcher here"},
		"POST /jobs/{id}/stop":      {path: job + "/stop", form: url.Values{"key": {keyMark}, "reason": {"it smells"}}, status: []int{409}, who: "operator here"},
		"GET /arrays/{id}":          {path: array, status: ok, who: everybody},
		"POST /arrays/{id}/pause":   {path: array + "/pause", form: key, status: let(), who: "researcher here"},
		"POST /arrays/{id}/resume":  {path: array + "/resume", form: key, status: let(), who: "researcher here"},
		"POST /arrays/{id}/cancel":  {path: array + "/cancel", form: key, status: let(), who: members},
		"POST /jobs/{id}/cancel":    {path: job + "/cancel", form: key, status: let(), who: members},
		"GET /pools":                {status: ok, who: everybody},
		"GET /pools/{id}/order":     {path: view.PoolOrderURL(s.h100), status: ok, who: everybody},
		"GET /pools/{id}":           {path: view.PoolURL(s.h100), status: ok, who: everybody},
		"GET /nodes":                {status: ok, who: everybody},
		"POST /nodes/enrol":         {form: key, status: []int{422}, who: "operator here"},
		"GET /nodes/{id}":           {path: node, status: ok, who: everybody},
		"POST /nodes/{id}/drain":    {path: node + "/drain", form: key, status: let(), who: "operator here"},
		"POST /nodes/{id}/maintain": {path: node + "/maintain", form: key, status: let(), who: "operator here"},
		"POST /nodes/{id}/undrain":  {path: node + "/undrain", form: key, status: let(), who: "operator here"},
		"GET /export":               {status: ok, who: exporters},
		"GET /export/charges.csv":   {status: ok, who: exporters},
		"GET /verify":               {status: ok, who: "admin here, finance here, auditor here"},
		"POST /verify":              {form: key, status: ok, who: "admin here, finance here, auditor here"},
	}
}

// apiRows are about programs with a token.
func (s *scene) apiRows() map[string]expectation {
	ok := only200()
	return map[string]expectation{
		"GET " + api.PathWhoAmI:       {status: ok, who: everybody},
		"GET " + api.PathBalances:     {status: ok, who: everybody},
		"GET " + api.PathStatement:    {path: api.PathStatement + "?project=/lab/vision/segmentation&pool=h100", status: ok, who: everybody},
		"GET " + api.PathJobs:         {status: ok, who: everybody},
		"POST " + api.PathJobs:        {body: api.Submit{Key: keyMark, Project: "/lab/vision/segmentation"}, status: []int{422}, who: members},
		"GET " + api.PathJob:          {path: jobPath(api.PathJob, s.job), status: ok, who: everybody},
		"GET " + api.PathWhy:          {path: jobPath(api.PathWhy, s.job), status: ok, who: everybody},
		"GET " + api.PathJobLogs:      {path: jobPath(api.PathJobLogs, s.job), status: let(404), who: readers},
		"POST " + api.PathCancel:      {path: jobPath(api.PathCancel, s.job), body: api.Command{Key: keyMark}, status: let(), who: members},
		"POST " + api.PathPause:       {path: jobPath(api.PathPause, s.job), body: api.Command{Key: keyMark}, status: let(), who: "researcher here"},
		"POST " + api.PathResume:      {path: jobPath(api.PathResume, s.job), body: api.Command{Key: keyMark}, status: let(), who: "researcher here"},
		"GET " + api.PathArray:        {path: arrayPath(api.PathArray, s.array), status: ok, who: everybody},
		"POST " + api.PathArrayCancel: {path: arrayPath(api.PathArrayCancel, s.array), body: api.Command{Key: keyMark}, status: let(), who: members},
		"POST " + api.PathArrayPause:  {path: arrayPath(api.PathArrayPause, s.array), body: api.Command{Key: keyMark}, status: let(), who: "researcher here"},
		"POST " + api.PathArrayResume: {path: arrayPath(api.PathArrayResume, s.array), body: api.Command{Key: keyMark}, status: let(), who: "researcher here"},
		"GET " + api.PathPolicy:       {status: ok, who: everybody},
		"POST " + api.PathPolicy:      {body: api.SetPolicy{Key: keyMark, Preview: true}, status: let(), who: "admin here"},
		"GET " + api.PathChanges:      {path: jobPath(api.PathChanges, s.job), status: ok, who: everybody},
		"POST " + api.PathRenew:       {path: jobPath(api.PathRenew, s.job), body: api.Renew{Key: keyMark}, status: let(), who: "researcher here"},
		"POST " + api.PathChange:      {path: jobPath(api.PathChange, s.job), body: api.ChangeJob{Key: keyMark, GPUs: 1}, status: let(), who: "researcher here"},
		"GET " + api.PathOrder:        {path: api.PathOrder + "?pool=h100", status: ok, who: everybody},
		"GET " + api.PathPools:        {status: ok, who: everybody},
		"GET " + api.PathPoolIndices:  {path: strings.Replace(api.PathPoolIndices, "{pool}", "h100", 1), status: ok, who: everybody},
		"GET " + api.PathNodes:        {status: ok, who: everybody},
		"GET " + api.PathNode:         {path: nodePath(api.PathNode), status: ok, who: everybody},
		"POST " + api.PathDrain:       {path: nodePath(api.PathDrain), body: api.Drain{Key: keyMark}, status: []int{422}, who: "operator here"},
		"POST " + api.PathUndrain:     {path: nodePath(api.PathUndrain), body: api.Command{Key: keyMark}, status: ok, who: "operator here"},
		"POST " + api.PathMaintain:    {path: nodePath(api.PathMaintain), body: api.Maintain{Key: keyMark}, status: []int{422}, who: "operator here"},
		"POST " + api.PathEnrolTokens: {body: api.NewEnrolToken{Key: keyMark, Pool: "h100"}, status: ok, who: "operator here"},
		"GET " + api.PathMembers:      {path: api.PathMembers + "?project=/lab/vision/segmentation", status: ok, who: everybody},
		"POST " + api.PathMembers:     {body: api.SetMember{Key: keyMark, Project: "/lab/vision/segmentation", Person: 1, Share: 2}, status: let(404), who: "pi here"},
	}
}

func jobPath(pattern string, id ledger.JobID) string {
	return strings.ReplaceAll(pattern, "{id}", idText(id))
}

func nodePath(pattern string) string { return strings.ReplaceAll(pattern, "{node}", "n1") }

func arrayPath(pattern string, id ledger.ArrayID) string { return jobPath(pattern, ledger.JobID(id)) }

// Every route of the list has a row, every row a route.
func TestEveryRouteHasItsExpectation(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rows := s.expectations()
	for _, rt := range s.server.routes() {
		name := rt.method + " " + rt.pattern
		row, found := rows[name]
		delete(rows, name)
		if !found {
			t.Errorf("%s has no row in the table of expectations", name)
		} else if (rt.scope == open) != (row.who == "") {
			t.Errorf("%s: its scope and its row disagree on whether anybody may ask", name)
		}
	}
	for name := range rows {
		t.Errorf("%s is expected but not served", name)
	}
}

// TestRoutesByRole asks every route as nobody, as every role here and elsewhere.
func TestRoutesByRole(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rows := s.expectations()
	cookies, tokens := map[string]*http.Cookie{}, map[string]string{}
	names := []string{""}
	for name, id := range s.persons {
		names = append(names, name)
		cookies[name], tokens[name] = s.session(id), "trn_"+name
		hash := sha256.Sum256([]byte(tokens[name]))
		s.db.Exec(t, `insert into api_tokens (person_id, name, token_hash, created_at, expires_at) values ($1, 'm', $2, '2026-10-01', '2027-10-01')`, int64(id), hash[:])
	}
	slices.Sort(names)
	for _, rt := range s.server.routes() {
		if rt.scope == open {
			continue
		}
		row := rows[rt.method+" "+rt.pattern]
		for _, name := range names {
			s.keys++
			r := row.request(t, rt, fmt.Sprint("m", s.keys))
			if name != "" && isProgram(rt.pattern) {
				r.Header.Set("Authorization", "Bearer "+tokens[name])
			} else if name != "" {
				r.AddCookie(cookies[name])
			}
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			if want := row.want(rt, name); !slices.Contains(want, w.Code) {
				t.Errorf("%s %s as %q: %d, want %v: %.300s", rt.method, rt.pattern, name, w.Code, want, firstSentence(w.Body.String()))
			}
			if location := w.Result().Header.Get("Location"); name == "" && w.Code == 303 && !strings.HasPrefix(location, view.SignInURL) {
				t.Errorf("%s %s: nobody is sent to %s", rt.method, rt.pattern, location)
			}
		}
	}
}

// request builds the request of a row.
func (e expectation) request(t *testing.T, rt route, key string) *http.Request {
	t.Helper()
	path, body, kind := e.path, "", "application/x-www-form-urlencoded"
	if path == "" {
		path = rt.pattern
	}
	if e.form != nil {
		body = e.form.Encode()
	}
	if e.body != nil {
		b, err := json.Marshal(e.body)
		if err != nil {
			t.Fatal(err)
		}
		body, kind = string(b), "application/json"
	}
	r := httptest.NewRequest(rt.method, path, strings.NewReader(strings.ReplaceAll(body, keyMark, key)))
	if rt.method == http.MethodPost {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

// want gives the statuses a person may see.
func (e expectation) want(rt route, name string) []int {
	switch {
	case name == "" && isProgram(rt.pattern):
		return []int{401}
	case name == "":
		return []int{303}
	case e.who == everybody || slices.Contains(strings.Split(e.who, ", "), name):
		return e.status
	case e.other != 0 && !slices.Contains(strings.Split(e.sees, ", "), name):
		return []int{e.other}
	}
	return []int{403}
}

// firstSentence is the refusal of a page or problem, for messages of tests.
func firstSentence(body string) string {
	if _, rest, ok := strings.Cut(body, `data-testid="refusal"`); ok {
		return rest
	}
	return fmt.Sprintf("%.200s", body)
}
