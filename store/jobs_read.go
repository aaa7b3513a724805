package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// JobQuery narrows a list of jobs; zero fields do not.
type JobQuery struct {
	Project string          // path; jobs below it count too
	Pool    string          // name
	State   string          // one of JobStates
	Member  ledger.PersonID // whose
	Array   ledger.ArrayID  // its jobs, by index; without it a list shows an array as one line
	Sight   *ledger.Sight   // only jobs of projects that it sees; nil: of all
	Before  ledger.JobID    // only smaller numbers: the page after
	After   ledger.JobID    // only larger numbers: the page before
	Limit   int             // 0: 50; at most 500
}

// Bounds of one page of jobs.
const (
	jobsPage = 50
	mostJobs = 500
)

// JobStates are the words a list of jobs can be narrowed to.
func JobStates() []string {
	return []string{"waiting", "paused", "running", "starting", "ending", "ended", "finished", "failed", "cancelled"}
}

// JobLine is one job with its newest attempt.
type JobLine struct {
	ID         ledger.JobID
	Name       string
	Preset     string
	State      string // waiting, paused, starting, running, ending, finished, failed, cancelled
	Project    ledger.GroupID
	Path       string
	Title      string
	Pool       ledger.PoolID
	PoolName   string
	Member     ledger.PersonID
	Owner      string
	Shape      scheduler.Shape
	MilliGPU   int64 // charged
	RatePPM    int64
	Contract   scheduler.Contract
	QueueSeq   int64
	Submitted  ledger.Instant
	CancelAsk  ledger.Instant
	Finished   ledger.Instant
	ExitCode   *int
	ExitSignal int
	Result     string // scheduler.Result once over
	Attempts   int
	Charged    ledger.Amount // net of credits
	Held       ledger.Amount // set aside for the live attempt and not spent
	Running    ledger.Amount // the part of Held that is used already and not charged yet
	Last       *AttemptHead  // newest attempt; nil before the first
	Reason     *scheduler.Reason
	ReasonAt   ledger.Instant
	After      string // "job 12, array A4": what it still waits for
	ArrayID    ledger.ArrayID
	ArrayIndex int32
	ArraySize  int
	Array      *ArrayLine // in lists: this line stands for the whole array
}

// AttemptHead is what lists show of a job's newest attempt.
type AttemptHead struct {
	ID             ledger.AttemptID
	Phase          string // reserved, nominated, starting, running, ending, closed
	Funded         bool
	MinMs          int64 // 0 when it started unfunded
	Since          ledger.Instant
	Started        ledger.Instant
	ProtectedUntil ledger.Instant
	Ended          ledger.Instant
	ElapsedMs      int64 // final, else as last proven
	Rule           string
	Cause          string
}

// sqlJobLine selects JobLine; joins are one row each.
const sqlJobLine = `select j.id, j.name, j.preset, j.state, j.project_id, g.path, g.title, j.pool_id, p.name, j.member_id, coalesce(n.name, ''),
	j.nodes, j.gpus, j.gpu_milli, j.cpu_milli, j.ram_mib, j.hbm_mib, j.net_mbps, j.sto_mbps, j.ioc_milli, j.hbm_var, j.sto_var, j.ioc_var, j.milli_gpu, j.rate_ppm,
	j.min_ms, j.grace_ms, j.max_ms, j.resumable, j.stop_on_money, j.or_free, j.max_charge, j.urgency, j.interactive, j.queue_seq,
	j.submitted_at, j.cancel_asked_at, j.finished_at, j.exit_code, coalesce(j.exit_signal, 0), j.result, j.attempts, j.charged,
	case when a.phase <> 'closed' then coalesce((select sum(h.amount - h.spent - h.released)::bigint from hold_pieces h where h.attempt_id = a.id), 0) else 0 end,
	coalesce(a.charged_ms, 0), coalesce(least(a.proven_ms, a.hold_until_ms), 0), coalesce(a.id, 0), coalesce(a.phase, ''), coalesce(a.funded, false), coalesce(a.min_ms, 0), a.since, a.started_at, a.protected_until, a.ended_at,
	coalesce(a.elapsed_ms, a.proven_ms, 0), coalesce(a.stop_rule, ''), coalesce(a.cause, ''), coalesce(a.past_ppm, 0), coalesce(a.price_turns, '{}'),
	r.reason, r.at, coalesce(case when j.blocked and j.state in ('pending', 'paused') then (select string_agg(case when d.on_job is null then 'array A' || d.on_array else 'job ' || d.on_job end, ', ' order by d.on_job, d.on_array)
		from job_dependencies d where (d.job_id = j.id or d.array_id = j.array_id)
			and exists (select from jobs o where (o.id = d.on_job or o.array_id = d.on_array) and o.state in ('pending', 'paused', 'live'))) end, ''),
	j.blocked, coalesce(j.array_id, 0), coalesce(j.array_index, 0), coalesce(y.size, 0), coalesce(y.at_once, 0)
	from jobs j join groups g on g.id = j.project_id join pools p on p.id = j.pool_id
	left join person_names n on n.person_id = j.member_id
	left join job_arrays y on y.id = j.array_id
	left join attempts a on a.job_id = j.id and a.n = j.attempts
	left join job_reasons r on r.job_id = j.id and (j.state = 'pending' or a.phase = 'reserved')`

func scanJobLine(row pgx.CollectableRow) (JobLine, error) {
	var l JobLine
	var a AttemptHead
	var reason []byte
	var chargedMs, usedMs int64
	var price ledger.Price
	var blocked bool
	var atOnce int
	c, s := &l.Contract, &l.Shape
	err := row.Scan(&l.ID, &l.Name, &l.Preset, &l.State, &l.Project, &l.Path, &l.Title, &l.Pool, &l.PoolName, &l.Member, &l.Owner,
		&s.Nodes, &s.GPUs, &s.GPUMilli, &s.CPUMilli, &s.RAMMiB, &s.HBMMiB, &s.NetMbps, &s.StoMbps, &s.IOCMilli, &s.HBMVar, &s.StoVar, &s.IOCVar, &l.MilliGPU, &l.RatePPM,
		&c.MinMs, &c.GraceMs, &c.MaxMs, &c.Resumable, &c.StopOnMoney, &c.OrFree, &c.MaxCharge, &c.Urgency, &c.Interactive, &l.QueueSeq,
		&l.Submitted, &l.CancelAsk, &l.Finished, &l.ExitCode, &l.ExitSignal, &l.Result, &l.Attempts, &l.Charged, &l.Held, &chargedMs, &usedMs,
		&a.ID, &a.Phase, &a.Funded, &a.MinMs, &a.Since, &a.Started, &a.ProtectedUntil, &a.Ended, &a.ElapsedMs, &a.Rule, &a.Cause, &price.Past.PPM, &price.Past.Turns,
		&reason, &l.ReasonAt, &l.After, &blocked, &l.ArrayID, &l.ArrayIndex, &l.ArraySize, &atOnce)
	if err != nil {
		return l, err
	}
	if reason != nil {
		l.Reason = &scheduler.Reason{}
		if err := json.Unmarshal(reason, l.Reason); err != nil {
			return l, fmt.Errorf("reason of job %d: %w", l.ID, err)
		}
	}
	switch {
	case l.After != "":
		l.Reason = &scheduler.Reason{Job: l.ID, Code: scheduler.WhyDependency, Facts: []scheduler.Fact{{Name: scheduler.FactAfter, Value: l.After}}}
	case blocked && atOnce > 0:
		l.Reason = &scheduler.Reason{Job: l.ID, Code: scheduler.WhyArrayLimit, Facts: []scheduler.Fact{{Name: scheduler.FactAtOnce, Value: strconv.Itoa(atOnce)}}}
	}
	if a.ID != 0 {
		l.Last = &a
	}
	price.Rate = ledger.Rate{MilliGPU: l.MilliGPU, PPM: l.RatePPM}
	l.Running = min(l.Held, max(0, price.Cum(usedMs)-price.Cum(chargedMs)))
	l.State = shownState(l.State, a.Phase)
	return l, nil
}

// shownState is a job's state in the words of pages: a live job is what its attempt is.
func shownState(state, phase string) string {
	switch state {
	case "pending":
		return "waiting"
	case "live":
		switch phase {
		case "reserved":
			return "waiting" // it has its promise, but nothing runs
		case "nominated":
			return "starting"
		}
		return phase
	}
	return state
}

// JobPage is one keyset page of jobs, newest first.
type JobPage struct {
	Jobs    []JobLine
	Newer   bool // there are jobs with larger numbers
	Older   bool // there are jobs with smaller numbers
	Waiting int  // under the same filter, whatever the state and page
	Running int
	Policy  scheduler.Policy
}

// Jobs lists jobs, newest first, an array as one line; or an array's jobs by
// index. Everybody signed in may: shapes, names and
// reasons are open; commands and logs are not in it.
func (s *Store) Jobs(ctx context.Context, q JobQuery) (JobPage, error) {
	var page JobPage
	if q.Limit <= 0 {
		q.Limit = jobsPage
	}
	q.Limit = min(q.Limit, mostJobs)
	err := s.readTx(ctx, "jobs", func(tx *Tx) error {
		f, err := q.filter(ctx, tx)
		if err != nil {
			return err
		}
		if page, err = q.page(ctx, tx, f); err != nil {
			return err
		}
		if page.Policy, err = loadPolicy(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select count(*) filter (where j.state in ('pending', 'paused')), count(*) filter (where j.state = 'live')
			from jobs j where j.state in ('pending', 'paused', 'live')`+f.and(), f.args...).Scan(&page.Waiting, &page.Running)
	})
	return page, err
}

// conditions collects where-clauses with their arguments.
type conditions struct {
	clauses []string
	args    []any
}

// add takes a clause that names its one argument as "?".
func (c *conditions) add(clause string, arg any) {
	c.args = append(c.args, arg)
	c.clauses = append(c.clauses, strings.ReplaceAll(clause, "?", fmt.Sprintf("$%d", len(c.args))))
}

// and gives the clauses to follow another condition.
func (c *conditions) and() string {
	if len(c.clauses) == 0 {
		return ""
	}
	return " and " + strings.Join(c.clauses, " and ")
}

// filter turns project, pool and member into conditions; what does not exist is refused.
func (q *JobQuery) filter(ctx context.Context, tx *Tx) (*conditions, error) {
	f := &conditions{}
	if q.Sight != nil && !q.Sight.All() {
		if q.Project != "" && !q.Sight.Sees(q.Project) {
			return nil, missingPath(q.Project)
		}
		ids, err := groupsSeen(ctx, tx, *q.Sight)
		if err != nil {
			return nil, err
		}
		f.add("j.project_id = any(?)", ids)
	}
	if q.Project != "" {
		ids, err := projectsBelow(ctx, tx, q.Project)
		if err != nil {
			return nil, err
		}
		f.add("j.project_id = any(?)", ids)
	}
	if q.Pool != "" {
		id, err := poolByName(ctx, tx, q.Pool)
		if err != nil {
			return nil, err
		}
		f.add("j.pool_id = ?", id)
	}
	if q.Member != 0 {
		f.add("j.member_id = ?", q.Member)
	}
	if q.Array != 0 {
		f.add("j.array_id = ?", q.Array)
	}
	return f, nil
}

// projectsBelow gives the projects at a path and below it; an unknown path is refused.
func projectsBelow(ctx context.Context, tx *Tx, path string) ([]ledger.GroupID, error) {
	rows, err := tx.Query(ctx, `select case when kind = 'project' then id else 0 end from groups
		where path = $1 or starts_with(path, $1 || '/') order by id`, path)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[ledger.GroupID])
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, missingPath(path)
	}
	return slices.DeleteFunc(ids, func(id ledger.GroupID) bool { return id == 0 }), nil
}

func missingPath(path string) *ledger.Refusal {
	return refuse(ledger.Missing, "group.missing", "project", "There is no program or project "+clipRunes(path, 100)+".")
}

// poolByName finds a pool, or refuses the field "pool".
func poolByName(ctx context.Context, tx *Tx, name string) (ledger.PoolID, error) {
	var id ledger.PoolID
	err := tx.QueryRow(ctx, `select id from pools where name = $1`, name).Scan(&id)
	if noRow(err) {
		return 0, refuse(ledger.Missing, "pool.missing", "pool", "There is no pool "+clipRunes(name, 63)+".")
	}
	return id, err
}

// stateClause gives the condition of a state's word, of a job j and its newest
// attempt a; "" for every state.
func stateClause(word string) (string, *ledger.Refusal) {
	switch word {
	case "":
		return "", nil
	case "waiting":
		return "(j.state = 'pending' or j.state = 'live' and a.phase = 'reserved')", nil
	case "paused", "finished", "failed", "cancelled":
		return "j.state = '" + word + "'", nil
	case "ended":
		return "j.state in ('finished', 'failed', 'cancelled')", nil
	case "running":
		return "j.state = 'live' and a.phase <> 'reserved'", nil
	case "starting":
		return "j.state = 'live' and a.phase in ('nominated', 'starting')", nil
	case "ending":
		return "j.state = 'live' and a.phase = 'ending'", nil
	}
	return "", refuse(ledger.Invalid, "job.state", "state", "A state is one of "+strings.Join(JobStates(), ", ")+".")
}

// page reads one page and one row more on the far side, to know whether it goes on.
func (q *JobQuery) page(ctx context.Context, tx *Tx, f *conditions) (JobPage, error) {
	state, refusal := stateClause(q.State)
	if refusal != nil {
		return JobPage{}, refusal
	}
	keyed := conditions{clauses: f.clauses[:len(f.clauses):len(f.clauses)], args: f.args[:len(f.args):len(f.args)]}
	byIndex := q.Array != 0
	switch {
	case q.After != 0:
		keyed.add("j.id > ?", q.After)
	case q.Before != 0:
		keyed.add("j.id < ?", q.Before)
	}
	upward := q.After != 0 || byIndex && q.Before == 0
	order := fmt.Sprintf(" order by j.id desc limit %d", q.Limit+1)
	if upward {
		order = fmt.Sprintf(" order by j.id limit %d", q.Limit+1)
	}
	rows, err := tx.Query(ctx, sqlJobLine+" where "+q.chosen(state, keyed.and(), order)+order, keyed.args...)
	if err != nil {
		return JobPage{}, err
	}
	jobs, err := pgx.CollectRows(rows, scanJobLine)
	if err != nil {
		return JobPage{}, err
	}
	more := len(jobs) > q.Limit
	jobs = jobs[:min(len(jobs), q.Limit)]
	page := JobPage{Jobs: jobs, Older: more, Newer: q.Before != 0}
	if upward {
		page.Newer, page.Older = more, q.After != 0
	}
	if upward != byIndex {
		slices.Reverse(jobs)
	}
	if byIndex {
		return page, nil
	}
	return page, page.fillArrays(ctx, tx)
}

// chosen gives the condition of the jobs of a page. A list has one line for an
// array, its first job's: shown when some job of the array is in the state.
func (q *JobQuery) chosen(state, and, order string) string {
	switch {
	case q.Array != 0 && state == "":
		return "true" + and
	case q.Array != 0:
		return state + and
	case state == "":
		return "j.listed" + and
	}
	const newest = ` left join attempts a on a.job_id = j.id and a.n = j.attempts`
	return `j.id in ((select j.id from jobs j` + newest + ` where j.array_id is null and ` + state + and + order + `)
		union all (select j.id from job_arrays y join jobs j on j.id = y.first_job where y.id in (
			select j.array_id from jobs j` + newest + ` where j.array_id is not null and ` + state + `)` + and + order + `))`
}

// CheckJob names what is wrong with a submission without submitting it, and gives
// the job it would become.
func (s *Store) CheckJob(ctx context.Context, actor ledger.Actor, sub Submission) (*scheduler.Job, error) {
	var job *scheduler.Job
	err := s.readTx(ctx, "check job", func(tx *Tx) error {
		target, err := loadTarget(ctx, tx, actor, sub)
		if err != nil {
			return err
		}
		var refusals ledger.Refusals
		if job, refusals = sub.check(target, actor, tx.Now); len(refusals) > 0 {
			return refusals
		}
		return nil
	})
	return job, err
}
