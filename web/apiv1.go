package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
)

// operation is one call of the public interface: a line of the route list and
// of the interface's description.
type operation struct {
	method  string
	path    string
	verb    ledger.Verb
	scope   scope
	id      string // operationId
	summary string
	query   []parameter
	in, out any // wire structs, nil for none
	handler func(http.ResponseWriter, *http.Request) error
}

// parameter is one field of an address.
type parameter struct{ name, kind, help string }

// operations is the whole public interface.
func (s *server) operations() []operation {
	const get, post = http.MethodGet, http.MethodPost
	page := []parameter{{"after", "string", "cursor: next of the page before"}, {"limit", "integer", "most items of the answer"}}
	place := []parameter{{"project", "string", "path, with everything below it"}, {"pool", "string", "name"}}
	return slices.Concat([]operation{
		{get, api.PathOpenAPI, "", open, "describe", "This interface, as an OpenAPI document.", nil, nil, map[string]any{}, s.apiDescribe},
		{get, api.PathWhoAmI, ledger.SeeOpen, signedIn, "whoami", "Who the token belongs to and what it may do.", nil, nil, api.WhoAmI{}, s.apiWhoAmI},
		{get, api.PathBalances, ledger.SeeOpen, signedIn, "balances", "What projects have, hold and may use, by pool.", place, nil, api.Balances{}, s.apiBalances},
		{
			get, api.PathStatement, ledger.SeeOpen, signedIn, "statement", "One project's ledger in one pool, oldest first.",
			append([]parameter{{"project", "string", "path"}, {"pool", "string", "name"}, {"from", "date-time", "first instant"}, {"to", "date-time", "first instant after"}}, page...), nil,
			api.Statement{},
			s.apiStatement,
		},
		{
			get, api.PathJobs, ledger.SeeOpen, signedIn, "jobs", "Jobs, newest first, an array as one line; or one array's jobs by index.",
			append(append(place, parameter{"state", "string", strings.Join(store.JobStates(), ", ")}, parameter{"mine", "boolean", "1: only the caller's"}, parameter{"array", "integer", "number of an array: its jobs"}), page...), nil,
			api.JobList{},
			s.apiJobs,
		},
		{post, api.PathJobs, ledger.JobSubmit, anywhere, "submit", "Submit a job, or an array of jobs: the answer is its first. The same key with the same content gives the first job again.", nil, api.Submit{}, api.Job{}, s.apiSubmit},
		{get, api.PathJob, ledger.SeeOpen, signedIn, "job", "One job with its attempts.", nil, nil, api.Job{}, s.apiJob},
		{get, api.PathWhy, ledger.SeeOpen, signedIn, "why", "Why a job stands where it stands, with the numbers that decided.", nil, nil, api.Why{}, s.apiWhy},
		{
			get, api.PathJobLogs, ledger.SeePrivate, signedIn, "logs", "A piece of a job's output.",
			[]parameter{{"attempt", "integer", "id; the newest without it"}, {"rank", "integer", "node of the gang, from 0"}, {"offset", "integer", "bytes"}, {"wait_ms", "integer", "real ms to wait for more, at most 30,000"}},
			nil,
			api.Logs{},
			s.apiLogs,
		},
		{post, api.PathCancel, ledger.JobCancel, anywhere, "cancel", "End a job; what runs gets its grace.", nil, api.Command{}, api.Job{}, s.apiVerb(s.store.CancelJob)},
		{post, api.PathPause, ledger.JobPause, anywhere, "pause", "Keep a waiting job from starting.", nil, api.Command{}, api.Job{}, s.apiVerb(s.store.PauseJob)},
		{post, api.PathResume, ledger.JobPause, anywhere, "resume", "Let a paused job start again.", nil, api.Command{}, api.Job{}, s.apiVerb(s.store.ResumeJob)},
		{post, api.PathRenew, ledger.JobPause, anywhere, "renew", "Ask for new protection of what runs; the next cycle answers.", nil, api.Renew{}, api.Job{}, s.apiRenew},
		{get, api.PathArray, ledger.SeeOpen, signedIn, "array", "One array with what has become of its jobs.", nil, nil, api.Array{}, s.apiArray},
		{post, api.PathArrayCancel, ledger.JobCancel, anywhere, "cancel-array", "End all jobs of an array; what runs gets its grace.", nil, api.Command{}, api.Array{}, s.apiArrayVerb(s.store.CancelArray)},
		{post, api.PathArrayPause, ledger.JobPause, anywhere, "pause-array", "Keep all jobs of an array that wait from starting; what runs goes on.", nil, api.Command{}, api.Array{}, s.apiArrayVerb(s.store.PauseArray)},
		{post, api.PathArrayResume, ledger.JobPause, anywhere, "resume-array", "Let all paused jobs of an array start again.", nil, api.Command{}, api.Array{}, s.apiArrayVerb(s.store.ResumeArray)},
		{get, api.PathChanges, ledger.SeeOpen, signedIn, "changes", "What would start a waiting job in the next cycle, each change tried, and what went before it.", nil, nil, api.Outlook{}, s.apiChanges},
		{post, api.PathChange, ledger.JobPause, anywhere, "change", "Change a waiting job in place. It keeps its place when it asks for less in the same pool.", nil, api.ChangeJob{}, api.Job{}, s.apiChange},
		{
			get, api.PathOrder, ledger.SeeOpen, signedIn, "order", "A pool's queue in the order of the last cycle, with the standings that made it.",
			append([]parameter{{"pool", "string", "name"}}, page...), nil,
			api.PoolOrder{},
			s.apiOrder,
		},
		{get, api.PathPolicy, ledger.SeeOpen, signedIn, "policy", "Every knob of the dispatcher, and who turned which.", nil, nil, api.Policy{}, s.apiPolicy},
		{post, api.PathPolicy, ledger.PolicyWrite, atRoot, "set-policy", "Turn knobs as a new version, or say what the next cycle would do otherwise.", nil, api.SetPolicy{}, api.PolicyPreview{}, s.apiSetPolicy},
		{get, api.PathPools, ledger.SeeOpen, signedIn, "pools", "Pools with what they hold now.", nil, nil, api.PoolList{}, s.apiPools},
		{
			get, api.PathPoolIndices, ledger.SeeOpen, signedIn, "pool-indices", "How useful what a pool has free is and how long its GPUs wait for data: now, in words, and over a day or a week.",
			[]parameter{{"span", "string", "day (default) or week"}},
			nil,
			api.PoolIndexList{},
			s.apiPoolIndices,
		},
	}, s.nodeOperations(page), s.memberOperations())
}

// apiRoutes are the operations as lines of the route list.
func (s *server) apiRoutes() []route {
	var out []route
	for _, o := range s.operations() {
		out = append(out, route{o.method, o.path, o.verb, o.scope, o.handler})
	}
	return out
}

// readBody reads a JSON body into a wire struct; what it cannot be is refused by
// field.
func readBody(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.Decode(&struct{}{}) != io.EOF {
		return invalid("", "body.trailing", "The body has more than one JSON value.")
	}
	var wrong *json.UnmarshalTypeError
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return invalid("", "body.too_large", "The body is larger than 1 MiB.")
	case errors.As(err, &wrong):
		return invalid(wrong.Field, "body.type", "Field "+wrong.Field+" cannot be a "+wrong.Value+".")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		return invalid(name, "body.unknown_field", "There is no field "+name+".")
	}
	return invalid("", "body.unreadable", "The body is not JSON.")
}

// apiCommand is the head of a program's command. Its key is the body's, or the
// header Idempotency-Key's.
func (s *server) apiCommand(r *http.Request, key string) store.Command {
	if key == "" {
		key = r.Header.Get("Idempotency-Key")
	}
	return store.Command{Actor: actorOf(r), Key: key, Remote: remoteOf(r)}
}

// timeOf is an instant on the wire; nil when there is none.
func timeOf(at ledger.Instant) *time.Time {
	if at == 0 {
		return nil
	}
	t := at.Time()
	return &t
}

func (s *server) apiSubmit(w http.ResponseWriter, r *http.Request) error {
	var in api.Submit
	if err := readBody(r, &in); err != nil {
		return err
	}
	sub := store.Submission{
		Preset: in.Preset, Name: in.Name, Project: in.Project, Pool: in.Pool, Nodes: in.Nodes, GPUs: in.GPUs, GPUMilli: in.GPUMilli,
		CPUMilli: in.CPUMilli, RAMMiB: in.RAMMiB, Flow: store.SubmittedFlow{HBMMiB: in.HBMMiB, NetMbps: in.NetMbps, StoMbps: in.StoMbps, IOCMilli: in.IOCMilli}, Command: in.Command, WorkDir: in.WorkDir, Env: in.Env, OutputPath: in.OutputPath, Checkpoint: in.Checkpoint,
		MinMs: in.MinRuntimeMS, GraceMs: in.GraceMS, MaxMs: in.MaxRuntimeMS, Resumable: in.Resumable, OrFree: in.OrFree, Urgency: in.Urgency, Interactive: in.Interactive, After: in.After, Singleton: in.Singleton, Array: in.Array,
	}
	switch in.WhenMoneyEnds {
	case "", api.MoneyGoOn:
	case api.MoneyStop:
		sub.StopOnMoney = true
	default:
		return invalid("when_money_ends", "job.when_money_ends", "When money ends, a job goes on (go_on) or stops (stop).")
	}
	if in.MaxCharge != nil {
		if sub.MaxCharge = *in.MaxCharge; sub.MaxCharge <= 0 {
			return invalid("max_charge_units", "job.max_charge", "A limit on the charge is above 0.")
		}
	}
	id, err := s.store.SubmitJob(r.Context(), s.apiCommand(r, in.Key), sub)
	if err != nil {
		return err
	}
	return s.answerJob(w, r, id, http.StatusCreated)
}

// answerJob gives one job as it is now.
func (s *server) answerJob(w http.ResponseWriter, r *http.Request, id ledger.JobID, status int) error {
	d, err := s.readJob(r, id)
	if err != nil {
		return err
	}
	return writeJSON(w, status, s.wireJobDetail(&d))
}

func (s *server) apiJob(w http.ResponseWriter, r *http.Request) error {
	return s.answerJob(w, r, ledger.JobID(pathID(r)), http.StatusOK)
}

func (s *server) apiWhy(w http.ResponseWriter, r *http.Request) error {
	d, err := s.readJob(r, ledger.JobID(pathID(r)))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.wireWhy(&d))
}

// apiVerb is a command on one job: cancel, pause, resume.
func (s *server) apiVerb(do jobVerb) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in api.Command
		if err := readBody(r, &in); err != nil {
			return err
		}
		id := ledger.JobID(pathID(r))
		if err := do(r.Context(), s.apiCommand(r, in.Key), id); err != nil {
			return err
		}
		return s.answerJob(w, r, id, http.StatusOK)
	}
}

func (s *server) apiJobs(w http.ResponseWriter, r *http.Request) error {
	q := jobQuery(r.URL.Query(), actorOf(r))
	after, limit, err := pageOf(r)
	if err != nil {
		return err
	}
	q.After, q.Before, q.Limit = 0, ledger.JobID(after), limit
	if q.Array != 0 { // by index: the next page has the larger numbers
		q.After, q.Before = q.Before, 0
	}
	page, err := s.readJobs(r, q)
	if err != nil {
		return err
	}
	out := api.JobList{Jobs: make([]api.Job, len(page.Jobs))}
	for i := range page.Jobs {
		out.Jobs[i] = s.wireJob(&page.Jobs[i], page.Policy.LookbackMs)
	}
	if n := len(page.Jobs); n > 0 && (page.Older && q.Array == 0 || page.Newer && q.Array != 0) {
		out.Next = idText(page.Jobs[n-1].ID)
	}
	return writeJSON(w, http.StatusOK, out)
}

// pageOf reads cursor and limit of a list; 0 stands for none.
func pageOf(r *http.Request) (after int64, limit int, err error) {
	if after, err = queryNumber(r, "after"); err != nil {
		return 0, 0, err
	}
	n, err := queryNumber(r, "limit")
	return after, int(min(n, 1000)), err
}

// queryNumber reads a number of an address; 0 when it is not there.
func queryNumber(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid(name, "number.unreadable", "Parameter "+name+" is a whole number.")
	}
	return n, nil
}

// Bounds of waiting for output, real time.
const (
	mostLogWait = 30 * time.Second
	logLook     = 500 * time.Millisecond
)

// apiLogs gives a piece of output. With wait_ms it waits until there is
// something new, the attempt is over, or the time is.
func (s *server) apiLogs(w http.ResponseWriter, r *http.Request) error {
	var numbers [4]int64
	for i, name := range []string{"attempt", "rank", "offset", "wait_ms"} {
		n, err := queryNumber(r, name)
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	q := store.LogQuery{Job: ledger.JobID(pathID(r)), Attempt: ledger.AttemptID(numbers[0]), Rank: int32(min(numbers[1], 1<<30)), Offset: numbers[2], Limit: api.MaxLogChunk}
	over := time.NewTimer(min(time.Duration(min(numbers[3], mostLogWait.Milliseconds()))*time.Millisecond, mostLogWait))
	defer over.Stop()
	look := time.NewTicker(logLook)
	defer look.Stop()
	for {
		p, err := s.store.Logs(r.Context(), actorOf(r), q)
		if err != nil {
			return err
		}
		out := api.Logs{Attempt: p.Attempt, Rank: int(p.Rank), Offset: p.Offset, NextOffset: p.Next, Data: p.Data, End: p.End, NextAttempt: p.NextAttempt}
		if len(p.Data) > 0 || p.End || numbers[3] == 0 {
			return writeJSON(w, http.StatusOK, out)
		}
		select {
		case <-r.Context().Done():
			return nil // nobody waits for the answer any more
		case <-over.C:
			return writeJSON(w, http.StatusOK, out)
		case <-look.C:
		}
	}
}
