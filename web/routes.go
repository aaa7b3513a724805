package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-chi/chi/v5"

	"tranche/ledger"
	"tranche/web/api"
	"tranche/web/view"
)

// scope says where in the tree a route's verb must be allowed.
type scope int8

const (
	open      scope = iota // nobody needs to be signed in; the handler checks what it must
	signedIn               // any signed-in person; the handler or the store looks closer
	anywhere               // the verb is allowed at some path of the actor; the store checks the exact one
	atRoot                 // at the root
	atGroup                // at the group {id}
	atRequest              // at the project or program of the request {id}
)

// groupPattern matches view.GroupURL.
const groupPattern = "/groups/{id}"

// route is one line of the list: what is asked, who may ask, who answers.
type route struct {
	method  string
	pattern string
	verb    ledger.Verb
	scope   scope
	handler func(http.ResponseWriter, *http.Request) error
}

// routes is the one list of everything that is served (besides static files).
// Store methods check the verb again inside their transaction.
func (s *server) routes() []route {
	return slices.Concat(s.peopleRoutes(), s.workRoutes(), s.apiRoutes())
}

const get, post = http.MethodGet, http.MethodPost

// peopleRoutes are about who may do what and who gets how much.
func (s *server) peopleRoutes() []route {
	return []route{
		{get, "/healthz", "", open, s.healthz},
		{get, "/readyz", "", open, s.readyz},

		{get, view.SignInURL, "", open, s.signIn},
		{get, view.SignInOIDCURL, "", open, s.signInOIDC},
		{post, view.SignInDevURL, "", open, s.signInDev},
		{get, callbackURL, "", open, s.signInCallback},
		{post, view.SignOutURL, "", open, s.signOut},

		{get, view.HomeURL, ledger.SeeOpen, signedIn, s.home},
		{get, view.JoinURL, ledger.SeeOpen, signedIn, s.join},
		{post, view.JoinURL, ledger.SeeOpen, signedIn, s.askToJoin},
		{post, view.JoinURL + "/{id}", ledger.PeopleJoinDecide, anywhere, s.answerJoin},
		{get, inviteURL + "{secret}", ledger.SeeOpen, signedIn, s.showInvite}, // whoever holds the secret
		{post, inviteURL + "{secret}", ledger.SeeOpen, signedIn, s.acceptInvite},

		{get, view.TreeURL, ledger.SeeOpen, signedIn, s.tree},
		{get, groupPattern, ledger.SeeOpen, signedIn, s.group},
		{get, groupPattern + "/people", ledger.SeeOpen, signedIn, s.members},
		{post, groupPattern + "/split", ledger.SplitWrite, atGroup, s.split},
		{post, groupPattern + "/member", ledger.PeopleInvite, atGroup, s.setMemberShare},
		{get, groupPattern + "/edit", ledger.TreeWrite, atGroup, s.editGroup},
		{post, groupPattern + "/edit", ledger.TreeWrite, atGroup, s.saveGroup},
		{post, groupPattern + "/suspend", ledger.TreeWrite, atGroup, s.suspendGroup},
		{post, groupPattern + "/resume", ledger.TreeWrite, atGroup, s.resumeGroup},
		{post, groupPattern + "/archive", ledger.TreeWrite, atGroup, s.archiveGroup},

		// Requests: the store looks whose they are; anybody may propose a new project.
		{get, view.RequestsURL, ledger.SeeOpen, signedIn, s.requests},
		{post, view.RequestsURL, ledger.SeeOpen, signedIn, s.saveRequest},
		{get, view.NewRequestURL, ledger.SeeOpen, signedIn, s.newRequest},
		{get, view.RequestsURL + "/{id}", ledger.SeeOpen, signedIn, s.request},
		{post, view.RequestsURL + "/{id}", ledger.SeeOpen, signedIn, s.saveRequest},
		{post, view.RequestsURL + "/{id}/withdraw", ledger.SeeOpen, signedIn, s.withdraw},
		{get, view.RequestsURL + "/{id}/review", ledger.RequestReview, atRequest, s.review},
		{post, view.RequestsURL + "/{id}/review", ledger.RequestReview, atRequest, s.decide},

		{get, view.PeopleURL, ledger.SeeOpen, signedIn, s.people},
		{post, view.InviteURL, ledger.PeopleInvite, anywhere, s.invite},
		{post, view.GrantURL, ledger.PeopleGrant, anywhere, s.grant},
		{post, view.RevokeURL, ledger.SeeOpen, signedIn, s.revoke}, // admins, and PIs their researchers
		{get, view.TokensURL, ledger.SeeOpen, signedIn, s.tokens},
		{post, view.TokensURL, ledger.TokenWrite, anywhere, s.createToken},
		{post, view.TokensURL + "/{id}/revoke", ledger.SeeOpen, signedIn, s.revokeToken}, // one's own, and PIs their project's

		{get, view.PeriodsURL, ledger.PeriodWrite, atRoot, s.periods},
		{post, view.PeriodsURL, ledger.PeriodWrite, atRoot, s.openPeriod},
		{get, view.AdminPoolsURL, ledger.PoolWrite, atRoot, s.adminPools},
		{post, view.AdminPoolsURL, ledger.PoolWrite, atRoot, s.createPool},
		{get, view.AdminPoolsURL + "/{id}/demand", ledger.PoolWrite, atRoot, s.poolDemand},
		{post, view.AdminPoolsURL + "/{id}/demand", ledger.PoolWrite, atRoot, s.setPoolDemand},
		{get, view.PolicyURL, ledger.SeeOpen, signedIn, s.showPolicy},
		{post, view.PolicyURL, ledger.PolicyWrite, atRoot, s.changePolicy},
		{get, view.GroupsURL, ledger.TreeWrite, anywhere, s.groups},
		{post, view.GroupsURL, ledger.TreeWrite, anywhere, s.createGroup},
		{get, view.AuditURL, ledger.AuditRead, atRoot, s.audit},
	}
}

// workRoutes are about what runs: agents, jobs, pools, nodes, charges.
func (s *server) workRoutes() []route {
	return []route{
		{post, api.PathEnrol, "", open, s.agentEnrol}, // by an enrolment token; the others by the node's own
		{post, api.PathPoll, "", open, s.asNode(s.agentPoll)},
		{post, api.PathHeartbeat, "", open, s.asNode(s.agentHeartbeat)},
		{post, api.PathClaim, "", open, s.asNode(s.agentClaim)},
		{post, api.PathEnded, "", open, s.asNode(s.agentEnded)},
		{post, api.PathLogs, "", open, s.asNode(s.agentLogs)},
		{post, api.PathRepaired, "", open, s.asNode(s.agentRepaired)},

		// Jobs: what is open is shown to everybody; the store looks at each job's project.
		{get, view.JobsURL, ledger.SeeOpen, signedIn, s.showJobs},
		{post, view.JobsURL, ledger.JobSubmit, anywhere, s.submitJob},
		{get, view.NewJobURL, ledger.SeeOpen, signedIn, s.showJobForm},
		{get, view.JobsURL + "/{id}", ledger.SeeOpen, signedIn, s.showJob},
		{get, view.JobsURL + "/{id}/log", ledger.SeePrivate, signedIn, s.showJobLog},
		{post, view.JobsURL + "/{id}/cancel", ledger.JobCancel, anywhere, s.cancelJob},
		{post, view.JobsURL + "/{id}/pause", ledger.JobPause, anywhere, s.pauseJob},
		{post, view.JobsURL + "/{id}/resume", ledger.JobPause, anywhere, s.resumeJob},
		{post, view.JobsURL + "/{id}/renew", ledger.JobPause, anywhere, s.renewJob},
		{get, view.JobsURL + "/{id}/changes", ledger.SeeOpen, signedIn, s.showChanges},
		{post, view.JobsURL + "/{id}/change", ledger.JobPause, anywhere, s.changeJob},
		{post, view.JobsURL + "/{id}/stop", ledger.JobStop, anywhere, s.stopJob},

		{get, view.ArraysURL + "/{id}", ledger.SeeOpen, signedIn, s.showArray},
		{post, view.ArraysURL + "/{id}/cancel", ledger.JobCancel, anywhere, s.arrayForm(s.store.CancelArray, "Cancelled. What ran gets its grace; what was set aside and not used goes back.")},
		{post, view.ArraysURL + "/{id}/pause", ledger.JobPause, anywhere, s.arrayForm(s.store.PauseArray, "Paused. What waits keeps its place; what runs goes on.")},
		{post, view.ArraysURL + "/{id}/resume", ledger.JobPause, anywhere, s.arrayForm(s.store.ResumeArray, "Resumed at its old place in the queue.")},

		{get, view.PoolsURL, ledger.SeeOpen, signedIn, s.showPools},
		{get, view.PoolsURL + "/{id}", ledger.SeeOpen, signedIn, s.showPool},
		{get, view.PoolsURL + "/{id}/order", ledger.SeeOpen, signedIn, s.showOrder},
		{get, view.NodesURL, ledger.SeeOpen, signedIn, s.showNodes},
		{post, view.EnrolURL, ledger.NodeEnrol, atRoot, s.enrolToken},
		{get, view.NodesURL + "/{id}", ledger.SeeOpen, signedIn, s.showNode},
		{post, view.NodesURL + "/{id}/drain", ledger.NodeWrite, atRoot, s.drainNode},
		{post, view.NodesURL + "/{id}/undrain", ledger.NodeWrite, atRoot, s.undrainNode},
		{post, view.NodesURL + "/{id}/maintain", ledger.NodeWrite, atRoot, s.maintainNode},

		{get, view.ExportURL, ledger.ExportCharges, anywhere, s.showExport},
		{get, view.ChargesCSVURL, ledger.ExportCharges, anywhere, s.chargesCSV},
		{get, view.VerifyURL, ledger.LedgerVerify, atRoot, s.showVerify},
		{post, view.VerifyURL, ledger.LedgerVerify, atRoot, s.runVerify},
	}
}

// guard finds the actor, asks whether they may, runs the handler and answers its error.
func (s *server) guard(rt route) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rt.scope != open {
			actor, err := s.resolve(r)
			if errors.Is(err, errAnonymous) {
				s.askToSignIn(w, r)
				return
			}
			if refusals := refusalsOf(err); isAPI(r) && len(refusals) > 0 && refusals[0].Kind == ledger.Denied {
				unauthorized(w, r, refusals) // a token nobody holds, or one that is over
				return
			}
			if err != nil {
				s.fail(w, r, err)
				return
			}
			visitOf(r.Context()).person = int64(actor.Person)
			sight, err := s.sightFor(r.Context(), actor)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			r = r.WithContext(context.WithValue(context.WithValue(r.Context(), actorKey{}, actor), sightKey{}, sight))
			if err := s.visible(r, rt); err != nil {
				s.fail(w, r, err)
				return
			}
			if err := s.allowed(r, rt, actor); err != nil {
				s.fail(w, r, err)
				return
			}
		}
		if err := parseBody(r, rt); err != nil {
			s.fail(w, r, err)
			return
		}
		if err := rt.handler(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
	if !usesSession(rt.pattern) {
		return h
	}
	return s.sessions.LoadAndSave(h)
}

// parseBody reads a page's form, so that one that is too large or broken is
// refused whole: fields read one by one would be missing without a word.
func parseBody(r *http.Request, rt route) error {
	if rt.method != http.MethodPost || isProgram(rt.pattern) {
		return nil
	}
	err := r.ParseForm()
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return err
	}
	return invalid("", "form.unreadable", "This form arrived broken. Open the page again and send it once more.")
}

// usesSession tells pages from what programs and probes ask for.
func usesSession(pattern string) bool {
	switch pattern {
	case "/healthz", "/readyz":
		return false
	}
	return !isProgram(pattern)
}

// unauthorized tells a program that its token is missing or no longer one.
func unauthorized(w http.ResponseWriter, r *http.Request, refusals ledger.Refusals) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	p := problemOf(refusals, visitOf(r.Context()).id)
	p.Status = http.StatusUnauthorized
	writeProblem(w, p)
}

// askToSignIn sends people to the sign-in page and tells programs what they lack.
func (s *server) askToSignIn(w http.ResponseWriter, r *http.Request) {
	if isAPI(r) {
		unauthorized(w, r, ledger.Refusals{{
			Kind: ledger.Denied, Code: "token.needed",
			Detail: "Send an API token as a bearer token; make one under Tokens.",
		}})
		return
	}
	to := view.SignInURL
	if r.Method == http.MethodGet && r.URL.Path != view.HomeURL {
		to += "?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// allowed asks the one table of verbs at the place the route is about.
func (s *server) allowed(r *http.Request, rt route, actor ledger.Actor) error {
	now := s.store.Now()
	var path string
	switch rt.scope {
	case open, signedIn:
		return nil
	case anywhere:
		if mayAnywhere(actor, rt.verb, now) {
			return nil
		}
		return &ledger.Refusal{
			Kind: ledger.Denied, Code: "actor.denied",
			Detail: "None of your roles allows this. Ask who leads your project, or an admin.",
		}
	case atRoot:
		root, err := s.store.Root(r.Context())
		if err != nil {
			return err
		}
		path = root.Path
	case atGroup:
		group, err := s.store.Group(r.Context(), ledger.GroupID(pathID(r)))
		if err != nil {
			return err
		}
		path = group.Path
	case atRequest:
		request, err := s.store.Request(r.Context(), actor, ledger.RequestID(pathID(r)))
		if err != nil {
			return err
		}
		path = request.Path
	}
	if refusal := actor.May(rt.verb, path, now); refusal != nil {
		return refusal
	}
	return nil
}

// mayAnywhere says whether some grant of the actor allows the verb where it is held.
func mayAnywhere(actor ledger.Actor, verb ledger.Verb, now ledger.Instant) bool {
	for _, g := range actor.Grants {
		path := g.Path
		if actor.TokenProject != 0 && ledger.Covers(path, actor.TokenPath) {
			path = actor.TokenPath // a role above the token's project counts inside it
		}
		if actor.MayOwn(verb, path, actor.Person, now) == nil {
			return true
		}
	}
	return false
}

// pathID is the number in the route's {id}; 0, which nothing has, when it is none.
func pathID(r *http.Request) int64 {
	id, err := strconv.ParseInt(chi.URLParam(r, "id"), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// healthz says that the process answers.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz says that the database answers too.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := s.store.Pool().Ping(r.Context()); err != nil {
		s.log.WarnContext(r.Context(), "not ready", "cause", err)
		return writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "the database does not answer"})
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
