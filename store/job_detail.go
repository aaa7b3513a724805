package store

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// Bounds of one job's page.
const (
	mostAttempts = 50  // newest ones
	mostCharges  = 500 // newest ones
)

// JobDetail is one job with all that its page and its explanation need.
type JobDetail struct {
	JobLine
	Private   *JobCommand               // nil for readers without the role
	Runs      []AttemptLine             // oldest first, at most the newest 50
	Charges   []JobCharge               // oldest first, at most the newest 500
	Names     map[ledger.GroupID]string // titles of every group that the explanation names
	NodeNames map[ledger.NodeID]string  // of those the last start was judged among
	Standings []StandingLine            // of its pool, as the last cycle left them; only while it waits
	Queued    int                       // jobs waiting for the pool, with the holder of its reserved start
	Reserved  *Promise                  // the pool's reserved start; only while it waits
	Policy    scheduler.Policy
	May       JobRights
	Before    ledger.JobID // its neighbours by index in its array; 0 = none
	Next      ledger.JobID
}

// JobRights say what the reader may do to the job as it is now.
type JobRights struct{ Renew, Cancel, Pause, Resume, Change, Stop, Logs bool }

// JobCommand is the private part of a job.
type JobCommand struct {
	Command, WorkDir, OutputPath, Checkpoint string
	Env                                      map[string]string
}

// AttemptLine is one run of a job. Elapsed times are business ms since Started.
type AttemptLine struct {
	ID             ledger.AttemptID
	N              int
	Phase          string
	Funded         bool
	MinMs          int64
	FundedMs       int64 // where the money ended; 0 while it has not
	Since          ledger.Instant
	Leased         ledger.Instant
	Started        ledger.Instant
	ProtectedUntil ledger.Instant
	StopAsked      ledger.Instant
	Rule           string // of its stop
	StopByJob      ledger.JobID
	stopFacts      []byte // JSON: evictFacts, or an operator's words
	startFacts     []byte // JSON: startFacts
	Checkpoint     ledger.Instant
	Ended          ledger.Instant
	ElapsedMs      int64
	HoldUntilMs    int64
	ExitCode       *int
	ExitSignal     int
	Cause          string
	Charged        ledger.Amount // gross
	Credited       ledger.Amount
	NodeIDs        []ledger.NodeID // by rank
	NodeNames      []string
	Detail         string // an agent's sentence about the end
	RenewMs        int64  // new protection asked for and not answered yet
	renewAnswer    []byte // JSON: scheduler.Renewal
	Answered       ledger.Instant
	warning        []byte // JSON: scheduler.Warning
	IdleSince      ledger.Instant
	idleMs         int64 // in spells that are over
}

// Evict gives the numbers that decided an eviction, nil when it was none.
func (a *AttemptLine) Evict() *scheduler.Evict {
	var e scheduler.Evict
	if a.StopByJob == 0 || len(a.stopFacts) == 0 || json.Unmarshal(a.stopFacts, &e) != nil {
		return nil
	}
	return &e
}

// speaksOf are the groups that an attempt's eviction, warning and answer speak of.
func (a *AttemptLine) speaksOf() []ledger.GroupID {
	var ids []ledger.GroupID
	if e := a.Evict(); e != nil {
		ids = append(ids, e.Standing.Group, e.Against.Group)
	}
	rival := func(r *scheduler.Rival) {
		if r != nil {
			ids = append(ids, r.Mine.Group, r.Theirs.Group)
		}
	}
	if w := a.Warning(); w != nil {
		rival(w.Rival)
	}
	if answer := a.Answer(); answer != nil {
		rival(answer.Rival)
	}
	return ids
}

// IdleMs is how long the attempt's devices were unused, until an instant or its end.
func (a *AttemptLine) IdleMs(now ledger.Instant) int64 {
	if a.Ended != 0 {
		now = a.Ended
	}
	m := scheduler.IdleMark{IdleSince: a.IdleSince, IdleMs: a.idleMs}
	return m.TotalMs(now)
}

// StopWords is what an operator said when stopping the attempt; "" for other stops.
func (a *AttemptLine) StopWords() string {
	var said struct{ Why string }
	if a.Rule != string(scheduler.Operator) || len(a.stopFacts) == 0 || json.Unmarshal(a.stopFacts, &said) != nil {
		return ""
	}
	return said.Why
}

// Start gives what decided the attempt's start.
func (a *AttemptLine) Start() *scheduler.Start {
	s := &scheduler.Start{Funded: a.MinMs > 0, MinMs: a.MinMs}
	if len(a.startFacts) == 0 || json.Unmarshal(a.startFacts, s) != nil {
		return nil
	}
	return s
}

// JobCharge is one movement of the books that a job caused.
type JobCharge struct {
	Key    string
	Kind   string // hold, charge, release, credit
	At     ledger.Instant
	Lot    ledger.LotID // 0: beyond every lot
	From   ledger.AccountKind
	To     ledger.AccountKind
	Amount ledger.Amount
}

// Job reads one job for a person: open parts for everybody, private ones by role.
func (s *Store) Job(ctx context.Context, actor ledger.Actor, id ledger.JobID) (JobDetail, error) {
	var d JobDetail
	err := s.readTx(ctx, "job", func(tx *Tx) error {
		d = JobDetail{}
		rows, err := tx.Query(ctx, sqlJobLine+` where j.id = $1`, id)
		if err != nil {
			return err
		}
		d.JobLine, err = pgx.CollectExactlyOneRow(rows, scanJobLine)
		if noRow(err) {
			return missingJob(id)
		}
		if err != nil {
			return err
		}
		d.May = d.rights(actor, tx.Now)
		if d.Policy, err = loadPolicy(ctx, tx); err != nil {
			return err
		}
		return d.fill(ctx, tx)
	})
	return d, err
}

func (d *JobDetail) rights(actor ledger.Actor, now ledger.Instant) JobRights {
	mayCancel := actor.MayOwn(ledger.JobCancel, d.Path, d.Member, now) == nil
	mayPause := actor.MayOwn(ledger.JobPause, d.Path, d.Member, now) == nil
	over := d.Finished != 0
	return JobRights{
		Renew:  mayPause && d.State == "running" && d.Last != nil && d.Last.Funded,
		Cancel: mayCancel && !over && d.CancelAsk == 0,
		Pause:  mayPause && d.State == "waiting",
		Resume: mayPause && d.State == "paused",
		Change: mayPause && (d.State == "paused" || d.State == "waiting" && (d.Last == nil || d.Last.Phase != "reserved")),
		Stop:   (d.State == "starting" || d.State == "running") && actor.May(ledger.JobStop, d.Path, now) == nil,
		Logs:   seesPrivate(actor, d.Member, d.Path, now),
	}
}

// fill reads everything beside the job's own line.
func (d *JobDetail) fill(ctx context.Context, tx *Tx) error {
	if d.May.Logs {
		var err error
		if d.Private, err = commandOf(ctx, tx, d.ID); err != nil {
			return err
		}
	}
	if d.ArrayID != 0 {
		if d.Private != nil {
			d.Private.OutputPath = indexed(d.Private.OutputPath, d.ArrayID, d.ArrayIndex)
		}
		if err := tx.QueryRow(ctx, `select coalesce((select id from jobs where array_id = $1 and array_index < $2 order by array_index desc limit 1), 0),
				coalesce((select id from jobs where array_id = $1 and array_index > $2 order by array_index limit 1), 0)`, d.ArrayID, d.ArrayIndex).
			Scan(&d.Before, &d.Next); err != nil {
			return err
		}
	}
	if err := d.fillAttempts(ctx, tx); err != nil {
		return err
	}
	if err := d.fillCharges(ctx, tx); err != nil {
		return err
	}
	if err := d.fillNames(ctx, tx); err != nil {
		return err
	}
	if d.State != "waiting" {
		return nil
	}
	if err := tx.QueryRow(ctx, `select (select count(*) from jobs where pool_id = $1 and state = 'pending' and not blocked)
			+ (select count(*) from attempts where pool_id = $1 and phase = 'reserved')`, d.Pool).Scan(&d.Queued); err != nil {
		return err
	}
	var err error
	if d.Reserved, err = promiseIn(ctx, tx, d.Pool); err != nil {
		return err
	}
	d.Standings, err = standingsOf(ctx, tx, d.Pool)
	return err
}

// fillNames reads the titles of the job's ancestors and of the groups that its
// reason, starts and evictions speak of.
func (d *JobDetail) fillNames(ctx context.Context, tx *Tx) error {
	var ids []ledger.GroupID
	path := func(standings []scheduler.Standing) {
		for _, s := range standings {
			ids = append(ids, s.Group)
		}
	}
	if d.Reason != nil {
		path(d.Reason.Path)
	}
	for i := range d.Runs {
		if start := d.Runs[i].Start(); start != nil {
			path(start.Path)
		}
		ids = append(ids, d.Runs[i].speaksOf()...)
	}
	rows, err := tx.Query(ctx, `select id, title from groups where id = any($1) or $2 = path or starts_with($2, path || '/')`, ids, d.Path)
	if err != nil {
		return err
	}
	d.Names = map[ledger.GroupID]string{}
	var id ledger.GroupID
	var title string
	_, err = pgx.ForEachRow(rows, []any{&id, &title}, func() error {
		d.Names[id] = title
		return nil
	})
	if err != nil {
		return err
	}
	return d.nameJudged(ctx, tx)
}

// nameJudged reads the names of the nodes that the last start was judged among.
func (d *JobDetail) nameJudged(ctx context.Context, tx *Tx) error {
	if len(d.Runs) == 0 {
		return nil
	}
	start := d.Runs[len(d.Runs)-1].Start()
	if start == nil || start.Judged == nil {
		return nil
	}
	var ids []ledger.NodeID
	for _, n := range start.Judged.Nodes {
		ids = append(ids, n.Node)
	}
	rows, err := tx.Query(ctx, `select id, name from nodes where id = any($1)`, ids)
	if err != nil {
		return err
	}
	d.NodeNames = map[ledger.NodeID]string{}
	var id ledger.NodeID
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		d.NodeNames[id] = name
		return nil
	})
	return err
}

func (d *JobDetail) fillAttempts(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `select a.id, a.n, a.phase, a.funded, a.min_ms, a.funded_ms, a.since, a.leased_at, a.started_at, a.protected_until,
			a.stop_asked_at, a.stop_rule, coalesce(a.stop_by_job, 0), a.stop_facts, a.start_facts, a.checkpoint_at, a.ended_at,
			coalesce(a.elapsed_ms, a.proven_ms), a.hold_until_ms, a.exit_code, coalesce(a.exit_signal, 0), a.cause, a.charged, a.credited,
			array(select p.node_id from placements p where p.attempt_id = a.id order by p.rank),
			array(select n.name from placements p join nodes n on n.id = p.node_id where p.attempt_id = a.id order by p.rank),
			coalesce((select p.detail from placements p where p.attempt_id = a.id and p.detail <> '' order by p.rank limit 1), ''),
			a.renew_ms, a.renew_answer, a.renew_answered_at, a.warning, a.idle_since, a.idle_ms
		from (select * from attempts where job_id = $1 order by n desc limit $2) a order by a.n`, d.ID, mostAttempts)
	if err != nil {
		return err
	}
	d.Runs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a AttemptLine, err error) {
		return a, row.Scan(&a.ID, &a.N, &a.Phase, &a.Funded, &a.MinMs, &a.FundedMs, &a.Since, &a.Leased, &a.Started, &a.ProtectedUntil,
			&a.StopAsked, &a.Rule, &a.StopByJob, &a.stopFacts, &a.startFacts, &a.Checkpoint, &a.Ended,
			&a.ElapsedMs, &a.HoldUntilMs, &a.ExitCode, &a.ExitSignal, &a.Cause, &a.Charged, &a.Credited, &a.NodeIDs, &a.NodeNames, &a.Detail,
			&a.RenewMs, &a.renewAnswer, &a.Answered, &a.warning, &a.IdleSince, &a.idleMs)
	})
	return err
}

// fillCharges finds the job's entries by their keys, which begin with kind and attempt.
func (d *JobDetail) fillCharges(ctx context.Context, tx *Tx) error {
	ids := make([]ledger.AttemptID, len(d.Runs))
	for i := range d.Runs {
		ids[i] = d.Runs[i].ID
	}
	rows, err := tx.Query(ctx, `select c.key, c.kind, c.at, c.lot, c.debit_kind, c.credit_kind, c.amount from (
			select e.id, e.key, e.kind, e.at, t.n, greatest(da.lot_id, ca.lot_id) as lot, da.kind as debit_kind, ca.kind as credit_kind, t.amount
			from unnest($1::bigint[]) attempt (id), unnest(array['hold', 'charge', 'release', 'credit']) kind (word)
			join lateral (select * from entries e where e.key >= kind.word || ':attempt:' || attempt.id || ':'
				and e.key < kind.word || ':attempt:' || attempt.id || ';') e on true
			join transfers t on t.entry_id = e.id join accounts da on da.id = t.debit join accounts ca on ca.id = t.credit
			order by e.id desc, t.n desc limit $2) c
		order by c.id, c.n`, ids, mostCharges)
	if err != nil {
		return err
	}
	d.Charges, err = pgx.CollectRows(rows, pgx.RowToStructByPos[JobCharge])
	return err
}
