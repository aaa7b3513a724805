package web

import (
	"context"
	"net/http"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/api"
)

// jobVerb is a command on one job.
type jobVerb func(ctx context.Context, cmd store.Command, id ledger.JobID) error

// wireJob is a job in a list: its private parts are never in it.
func (s *server) wireJob(j *store.JobLine, lookbackMs int64) api.Job {
	out := api.Job{
		ID: j.ID, Name: j.Name, Project: j.Path, Pool: j.PoolName, User: j.Owner, State: j.State, Result: j.Result, Signal: j.ExitSignal,
		Nodes: j.Shape.Nodes, GPUs: j.Shape.GPUs, CPUMilli: j.Shape.CPUMilli, RAMMiB: j.Shape.RAMMiB,
		HBMMiB: j.Shape.HBMMiB, NetMbps: j.Shape.NetMbps, StoMbps: j.Shape.StoMbps, IOCMilli: j.Shape.IOCMilli,
		MinRuntimeMS: j.Contract.MinMs, GraceMS: j.Contract.GraceMs, MaxRuntimeMS: j.Contract.MaxMs, Resumable: j.Contract.Resumable,
		WhenMoneyEnds: api.MoneyGoOn, Urgency: int(j.Contract.Urgency), OrFree: j.Contract.OrFree, Interactive: j.Contract.Interactive,
		Submitted: j.Submitted.Time(), Ended: timeOf(j.Finished), Charged: j.Charged, Held: j.Held,
	}
	if j.Shape.GPUMilli != 1000 {
		out.GPUMilli = j.Shape.GPUMilli
	}
	if j.Contract.StopOnMoney {
		out.WhenMoneyEnds = api.MoneyStop
	}
	if j.Contract.MaxCharge > 0 {
		out.MaxCharge = &j.Contract.MaxCharge
	}
	if j.Finished != 0 {
		out.ExitCode = j.ExitCode
	}
	if j.State == "waiting" || j.State == "paused" {
		out.Reason = s.whyShort(j, lookbackMs)
	}
	if j.ArrayID != 0 {
		out.InArray = &api.InArray{Array: j.ArrayID, Index: j.ArrayIndex, Size: j.ArraySize}
	}
	if j.Array != nil {
		whole := wireArray(j.Array, j)
		out.Array = &whole
	}
	return out
}

// wireArray is an array; first is a job of it.
func wireArray(a *store.ArrayLine, first *store.JobLine) api.Array {
	return api.Array{
		ID: a.ID, Name: a.Name, Project: first.Path, Pool: first.PoolName, User: first.Owner, Indices: a.Indices, AtOnce: a.AtOnce, Size: a.Size, FirstJob: a.FirstJob,
		After: a.After, Submitted: a.Submitted.Time(), Waiting: a.Waiting, Paused: a.Paused, Running: a.Running, Finished: a.Finished, Failed: a.Failed,
		Cancelled: a.Cancelled, Charged: a.Charged,
	}
}

// wireJobDetail is one job with its attempts and, for readers with the role, what it runs.
func (s *server) wireJobDetail(d *store.JobDetail) api.Job {
	out := s.wireJob(&d.JobLine, d.Policy.LookbackMs)
	if d.State == "waiting" {
		out.Reason = s.why(d).Sentence
	}
	out.Renewal, out.Unused = s.wireRenewal(d), s.idleUnits(d)
	if p := d.Private; p != nil {
		out.Command, out.WorkDir, out.Env, out.OutputPath, out.Checkpoint = p.Command, p.WorkDir, p.Env, p.OutputPath, p.Checkpoint
	}
	for i := range d.Runs {
		a := &d.Runs[i]
		wire := api.Attempt{
			ID: a.ID, Number: a.N, State: a.Phase, Funded: a.Funded && a.MinMs > 0, Nodes: a.NodeNames, Started: timeOf(a.Started),
			ProtectedUntil: timeOf(a.ProtectedUntil), Ended: timeOf(a.Ended), ElapsedMS: a.ElapsedMs, Charged: a.Charged - a.Credited, Cause: a.Cause, Detail: a.Detail,
		}
		if a.Ended != 0 {
			wire.State, wire.ExitCode, wire.Signal = "ended", a.ExitCode, a.ExitSignal
		}
		out.Attempts = append(out.Attempts, wire)
	}
	return out
}

func (s *server) apiWhoAmI(w http.ResponseWriter, r *http.Request) error {
	actor, now := actorOf(r), s.store.Now()
	person, err := s.store.PersonByID(r.Context(), actor.Person)
	if err != nil {
		return err
	}
	groups, err := s.readGroups(r)
	if err != nil {
		return err
	}
	out := api.WhoAmI{Person: actor.Person, Name: actor.Name, Mail: person.Email, Roles: []api.RoleAt{}, Projects: []string{}, Zone: s.zone.String(), TokenProject: actor.TokenPath}
	tokens, err := s.readTokens(r)
	if err != nil {
		return err
	}
	for i := range tokens {
		if t := &tokens[i]; t.ID == actor.Token {
			out.TokenExpires = timeOf(t.ExpiresAt)
			if t.Limit > 0 {
				out.TokenLimit, out.TokenUsed = &t.Limit, &t.Used
			}
		}
	}
	for _, g := range actor.Grants {
		out.Roles = append(out.Roles, api.RoleAt{Role: string(g.Role), Path: g.Path, Until: timeOf(g.Until)})
	}
	for _, g := range groups {
		if g.Project && actor.May(ledger.JobSubmit, g.Path, now) == nil {
			out.Projects = append(out.Projects, g.Path)
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

// mostBalances bounds the projects of one answer.
const mostBalances = 100

// apiBalances gives the positions of a project and what is below it, or of every
// project where the caller holds a role. The numbers are the statement page's.
func (s *server) apiBalances(w http.ResponseWriter, r *http.Request) error {
	groups, err := s.readGroups(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	out := api.Balances{Balances: []api.Balance{}, At: s.store.Now().Time()}
	asked, seen := q.Get("project"), 0
	for _, g := range groups {
		if !g.Project || !wantsBalance(actorOf(r), g.Path, asked) {
			continue
		}
		if seen++; seen > mostBalances {
			return invalid("project", "balances.too_many", "These are more than 100 projects; name one, or a program, with ?project=.")
		}
		st, err := s.store.Statement(r.Context(), g.ID, 0)
		if err != nil {
			return err
		}
		out.Balances = append(out.Balances, wireBalances(&st, q.Get("pool"))...)
	}
	if asked != "" && seen == 0 {
		return missing("project", "There is no project at "+asked+" or below.")
	}
	return writeJSON(w, http.StatusOK, out)
}

// wantsBalance says whether a project belongs into the answer: what was asked
// for, else what the actor's roles and token cover.
func wantsBalance(actor ledger.Actor, path, asked string) bool {
	if asked != "" {
		return ledger.Covers(asked, path)
	}
	if actor.TokenProject != 0 && !ledger.Covers(actor.TokenPath, path) {
		return false
	}
	for _, g := range actor.Grants {
		if ledger.Covers(g.Path, path) {
			return true
		}
	}
	return false
}

func wireBalances(st *store.Statement, pool string) []api.Balance {
	var out []api.Balance
	for _, p := range st.Pools {
		if pool != "" && pool != p.PoolName {
			continue
		}
		b := api.Balance{Project: st.Group.Path, Pool: p.PoolName, Awarded: p.Awarded, Spent: p.Spent, Running: p.Running, Held: p.Held, Usable: p.Usable, LimitedBy: p.LimitedBy, ProtectionAsked: p.Asked, ProtectionUsed: p.Ran}
		for _, l := range st.Lots {
			if l.Pool == p.Pool && l.ValidAt(st.At) && (b.Expires == nil || l.Last.Time().Before(*b.Expires)) {
				b.Expires = timeOf(l.Last)
			}
		}
		out = append(out, b)
	}
	return out
}

// apiStatement gives one page of a project's movements in one pool, with its lots.
func (s *server) apiStatement(w http.ResponseWriter, r *http.Request) error {
	project, pool, err := s.statementPlace(r)
	if err != nil {
		return err
	}
	q := store.MovementQuery{Project: project.ID, Pool: pool.ID}
	if q.After, q.Limit, err = pageOf(r); err != nil {
		return err
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.From, err = queryInstant(r, "from"); err != nil {
		return err
	}
	if q.To, err = queryInstant(r, "to"); err != nil {
		return err
	}
	st, err := s.store.Statement(r.Context(), project.ID, 0)
	if err != nil {
		return err
	}
	page, err := s.store.Movements(r.Context(), q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wireStatement(&st, pool, q, page))
}

func wireStatement(st *store.Statement, pool store.Pool, q store.MovementQuery, page store.MovementPage) api.Statement {
	out := api.Statement{Project: st.Group.Path, Pool: pool.Name, From: q.From.Time(), To: q.To.Time(), Lots: []api.Lot{}, Lines: []api.StatementLine{}}
	if q.From == 0 {
		out.From = st.Group.CreatedAt.Time()
	}
	if q.To == 0 {
		out.To = st.At.Time()
	}
	for _, l := range st.Lots {
		if l.Pool != pool.ID {
			continue
		}
		lot := api.Lot{ID: l.ID, Start: l.First.Time(), End: l.Last.Time(), Awarded: l.Awarded, Available: l.Available, Held: l.Held, Spent: l.Spent - l.Credited, Expired: l.Expired}
		if l.Last <= st.At {
			lot.Available, lot.Expired = 0, l.Expired+l.Available
		}
		out.Lots = append(out.Lots, lot)
	}
	for _, m := range page.Movements {
		out.Lines = append(out.Lines, api.StatementLine{At: m.At.Time(), Kind: m.Kind, Amount: m.Change, Job: m.Job, Text: movementText(m), Key: m.Key})
	}
	if page.Next != 0 {
		out.Next = idText(ledger.JobID(page.Next))
	}
	return out
}

// movementText says what a movement did beside changing what is available.
func movementText(m store.Movement) string {
	parts := ""
	for _, p := range []struct {
		amount ledger.Amount
		what   string
	}{{m.Held, "set aside"}, {m.Spent, "spent"}, {m.Expired, "expired"}, {-m.Credit, "credited"}, {-m.Overrun, "overrun"}} {
		if p.amount != 0 {
			if parts != "" {
				parts += ", "
			}
			parts += p.what + " " + signed(p.amount).Text
		}
	}
	if parts == "" {
		return m.Kind
	}
	return m.Kind + ": " + parts + " GPU-h"
}

// statementPlace finds the project and the pool that a statement is asked for.
func (s *server) statementPlace(r *http.Request) (store.Group, store.Pool, error) {
	path, name := r.URL.Query().Get("project"), r.URL.Query().Get("pool")
	groups, err := s.readGroups(r)
	if err != nil {
		return store.Group{}, store.Pool{}, err
	}
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return store.Group{}, store.Pool{}, err
	}
	for _, g := range groups {
		if !g.Project || g.Path != path {
			continue
		}
		for _, p := range pools {
			if p.Name == name {
				return g, p, nil
			}
		}
		return store.Group{}, store.Pool{}, invalid("pool", "pool.missing", "Name a pool with ?pool=; there is no pool "+name+".")
	}
	return store.Group{}, store.Pool{}, invalid("project", "project.missing", "Name a project with ?project=; there is no project "+path+".")
}

// queryInstant reads an instant of an address; 0 when it is not there.
func queryInstant(r *http.Request, name string) (ledger.Instant, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, invalid(name, "time.unreadable", "Parameter "+name+" is an instant such as 2026-11-30T14:20:00Z.")
	}
	return ledger.At(t), nil
}

func (s *server) apiPools(w http.ResponseWriter, r *http.Request) error {
	pools, err := s.store.Occupancy(r.Context())
	if err != nil {
		return err
	}
	out := api.PoolList{Pools: make([]api.Pool, len(pools))}
	for i := range pools {
		p := &pools[i]
		out.Pools[i] = api.Pool{
			ID: p.ID, Name: p.Name, Model: p.Model, RatePPM: p.RatePPM, Nodes: p.Nodes, Devices: p.Devices, Funded: p.Funded,
			Unfunded: p.Unfunded, Ending: p.Ending, Idle: p.Idle(), Down: p.Down, Waiting: p.Waiting, Frozen: p.FrozenWhy,
		}
		if p.Gauge != nil {
			now := wireIndices(p.Gauge)
			out.Pools[i].Indices = &now
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
