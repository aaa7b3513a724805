package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// life is one job with its latest attempt, locked: what scheduler.Advance works
// on, beside what only the database knows. Every change to a job goes through
// advance and is written by keep.
type life struct {
	path  string // of the project
	job   scheduler.Job
	state scheduler.Life
	fence int64
	// recorded is how far the attempt's occupancy is in usage_segments; past 0 only
	// when it was lost before.
	recorded ledger.Instant
	placed   []scheduler.Placed // by rank, like state.Run.Members
	parts    []part
	lots     []ledger.Lot // that the hold names
	array    ledger.ArrayID
	limited  bool // its array lets only so many go at once
	blocked  bool // kept out of the queue

	// What advance has led to since the life was loaded.
	before    scheduler.Run
	fresh     bool // the attempt is not in the database yet
	seated    bool // it has its place since now: the holder of a reserved start
	changed   bool
	freed     bool
	entries   []ledger.Entry
	segments  []scheduler.Segment
	events    []lifeEvent
	stopByJob ledger.JobID
	stopFacts any
	startFact any
}

// part is what the store keeps of one member beside scheduler.Member.
type part struct {
	launcher string
	seenMs   int64 // last heartbeat's elapsed, business
	returns  bool  // lost, and taken back if it still runs when its node is heard again
	detail   string
	flagged  string
}

// lifeEvent is one line of a job's time line.
type lifeEvent struct {
	kind   string
	detail any
}

// jobColumns are what scheduler.Job consists of, of "jobs j".
const jobColumns = `j.id, j.project_id, j.pool_id, j.member_id, j.queue_seq, j.submitted_at, j.attempts, j.charged,
	j.nodes, j.gpus, j.gpu_milli, j.cpu_milli, j.ram_mib, j.hbm_mib, j.net_mbps, j.sto_mbps, j.ioc_milli, j.hbm_var, j.sto_var, j.ioc_var, j.milli_gpu, j.rate_ppm,
	j.min_ms, j.grace_ms, j.max_ms, j.resumable, j.stop_on_money, j.or_free, j.max_charge, j.urgency, j.interactive`

// jobFields are where jobColumns go.
func jobFields(j *scheduler.Job) []any {
	c, s := &j.Contract, &j.Shape
	return []any{
		&j.ID, &j.Project, &j.Pool, &j.Member, &j.QueueSeq, &j.Submitted, &j.Attempts, &j.Charged,
		&s.Nodes, &s.GPUs, &s.GPUMilli, &s.CPUMilli, &s.RAMMiB, &s.HBMMiB, &s.NetMbps, &s.StoMbps, &s.IOCMilli, &s.HBMVar, &s.StoVar, &s.IOCVar, &j.Rate.MilliGPU, &j.Rate.PPM,
		&c.MinMs, &c.GraceMs, &c.MaxMs, &c.Resumable, &c.StopOnMoney, &c.OrFree, &c.MaxCharge, &c.Urgency, &c.Interactive,
	}
}

// attemptColumns are what scheduler.Run consists of, of "attempts a".
const attemptColumns = `a.id, a.job_id, a.n, a.project_id, a.pool_id, a.fence, a.phase, a.funded, a.milli_gpu, a.occupied_milli,
	a.rate_ppm, a.min_ms, a.since, a.leased_at, a.started_at, a.protected_until, a.funded_ms, a.hold_until_ms, a.charged_ms,
	a.proven_ms, a.prior, a.charged, a.credited, a.credit_from_ms, a.credit_to_ms, a.stop_asked_at, a.stop_rule, a.stop_ms,
	a.checkpoint_at, a.ended_at, a.cause, a.reserved_since, a.reserved_at, a.reserved_nodes, a.reserved_domain,
	a.past_ppm, a.price_turns, a.recorded_until`

// attemptFields are where attemptColumns go; enterPhase must follow.
func attemptFields(r *scheduler.Run, fence *int64, phase *string, recorded *ledger.Instant) []any {
	r.Reserved = &scheduler.Reservation{}
	return []any{
		&r.Attempt, &r.Job, &r.N, &r.Project, &r.Pool, fence, phase, &r.Funded, &r.Rate.MilliGPU, &r.MilliGPU,
		&r.Rate.PPM, &r.MinMs, &r.Since, &r.Leased, &r.Started, &r.ProtectedUntil, &r.FundedMs, &r.HoldUntilMs, &r.ChargedMs,
		&r.ProvenMs, &r.Prior, &r.Charged, &r.Credited, &r.CreditFromMs, &r.CreditToMs, &r.Signalled, &r.Rule, &r.StopMs,
		&r.Checkpoint, &r.Ended, &r.Cause, &r.Reserved.Since, &r.Reserved.At, &r.Reserved.Nodes, &r.Reserved.Domain,
		&r.Past.PPM, &r.Past.Turns, recorded,
	}
}

// enterPhase puts a read attempt into its phase; only a holder keeps its
// reservation.
func enterPhase(r *scheduler.Run, phase string) {
	if len(r.Past.Turns) == 0 {
		r.Past.Turns = nil // as the dispatcher and the simulator have it
	}
	if r.Phase = phases()[phase]; r.Phase != scheduler.Reserved {
		r.Reserved = nil
	}
}

// memberColumns are one part of an attempt, of "placements p".
const memberColumns = `p.attempt_id, p.rank, p.node_id, p.devices, p.gpu_milli, p.cpu_milli, p.ram_mib, p.hbm_mib, p.net_mbps, p.sto_mbps, p.ioc_milli, p.hbm_var, p.sto_var, p.ioc_var,
	p.launcher, p.claimed_at, p.seen_ms, p.elapsed_ms, p.term_ms, p.ended, p.exit_code, p.exit_signal, p.stopped, p.lost, p.returns`

// memberRow is where memberColumns go.
type memberRow struct {
	attempt ledger.AttemptID
	placed  scheduler.Placed
	member  scheduler.Member
	part    part
}

func (m *memberRow) fields() []any {
	p, b := &m.placed, &m.member
	return []any{
		&m.attempt, &p.Rank, &p.Node, &p.Devices, &p.GPUMilli, &p.CPUMilli, &p.RAMMiB, &p.HBMMiB, &p.NetMbps, &p.StoMbps, &p.IOCMilli, &p.HBMVar, &p.StoVar, &p.IOCVar,
		&m.part.launcher, &b.Claimed, &m.part.seenMs, &b.ElapsedMs, &b.TermMs, &b.Ended, &b.Exit.Code, &b.Exit.Signal, &b.Exit.Stopped, &b.Exit.Lost, &m.part.returns,
	}
}

// phases maps the database's words; a closed attempt has none.
func phases() map[string]scheduler.Phase {
	return map[string]scheduler.Phase{
		"reserved": scheduler.Reserved, "nominated": scheduler.Nominated, "starting": scheduler.Starting,
		"running": scheduler.Running, "ending": scheduler.Ending, "closed": 0,
	}
}

func phaseWord(p scheduler.Phase) string {
	for word, phase := range phases() {
		if phase == p {
			return word
		}
	}
	return "closed"
}

// jobState splits a life's phase and result into the database's word.
func jobState(l *scheduler.Life) string {
	switch l.Job {
	case scheduler.JobPaused:
		return "paused"
	case scheduler.JobActive:
		return "live"
	case scheduler.JobOver:
		switch l.Result {
		case scheduler.ResultOK:
			return "finished"
		case scheduler.ResultCancelled:
			return "cancelled"
		}
		return "failed"
	}
	return "pending"
}

func jobPhase(state string) scheduler.JobPhase {
	switch state {
	case "pending":
		return scheduler.JobWaiting
	case "paused":
		return scheduler.JobPaused
	case "live":
		return scheduler.JobActive
	}
	return scheduler.JobOver
}

// loadLives locks jobs with their latest attempts, in the order of their ids,
// and gives them by id; what does not exist is missing. One round trip. Arrays
// with a limit are locked before their jobs, since an end lets another job in.
func loadLives(ctx context.Context, tx *Tx, ids []ledger.JobID) (map[ledger.JobID]*life, error) {
	out := make(map[ledger.JobID]*life, len(ids))
	byAttempt := make(map[ledger.AttemptID]*life, len(ids))
	const latest = `a.job_id = any($1) and a.n = (select j.attempts from jobs j where j.id = a.job_id)`
	batch := &pgx.Batch{}
	batch.Queue(`select id from job_arrays where at_once > 0 and id in (select array_id from jobs where id = any($1)) order by id for no key update`, ids)
	batch.Queue(`select `+jobColumns+`, j.state, j.result, j.cancel_asked_at is not null, g.path, j.blocked, coalesce(j.array_id, 0), coalesce(y.at_once, 0) > 0
		from jobs j join groups g on g.id = j.project_id left join job_arrays y on y.id = j.array_id where j.id = any($1) order by j.id for update of j`, ids).
		Query(func(rows pgx.Rows) error { return scanJobs(rows, out) })
	batch.Queue(`select `+attemptColumns+` from attempts a where `+latest+` order by a.id for update of a`, ids).
		Query(func(rows pgx.Rows) error { return scanAttempts(rows, out, byAttempt) })
	batch.Queue(`select `+memberColumns+` from placements p join attempts a on a.id = p.attempt_id
		where `+latest+` order by p.attempt_id, p.rank for update of p`, ids).
		Query(func(rows pgx.Rows) error { return scanMembers(rows, byAttempt) })
	batch.Queue(`select h.attempt_id, h.lot_id, h.amount, h.spent, h.released, l.project_id, l.pool_id, l.period_id, l.first, l.last
		from hold_pieces h join attempts a on a.id = h.attempt_id join lots l on l.id = h.lot_id
		where `+latest+` order by h.attempt_id, h.n`, ids).
		Query(func(rows pgx.Rows) error { return scanPieces(rows, byAttempt) })
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("load jobs: %w", err)
	}
	for _, l := range out {
		l.settleProven()
		l.before = l.state.Run
		l.before.Hold = slices.Clone(l.state.Run.Hold)
		l.before.Members = slices.Clone(l.state.Run.Members)
	}
	return out, nil
}

// settleProven leaves out what only heartbeats have said so far: the column shows
// it to people, but a launcher's end record decides.
func (l *life) settleProven() {
	r := &l.state.Run
	if r.Phase == 0 {
		return
	}
	r.ProvenMs = r.ChargedMs
	for i := range r.Members {
		r.ProvenMs = max(r.ProvenMs, r.Members[i].ElapsedMs)
	}
}

func scanJobs(rows pgx.Rows, out map[ledger.JobID]*life) error {
	for rows.Next() {
		l := &life{}
		var state string
		if err := rows.Scan(append(jobFields(&l.job), &state, &l.state.Result, &l.state.Cancel, &l.path, &l.blocked, &l.array, &l.limited)...); err != nil {
			return err
		}
		l.state.Job = jobPhase(state)
		l.state.Run = scheduler.Run{Job: l.job.ID, Contract: l.job.Contract}
		out[l.job.ID] = l
	}
	return rows.Err()
}

func scanAttempts(rows pgx.Rows, lives map[ledger.JobID]*life, byAttempt map[ledger.AttemptID]*life) error {
	for rows.Next() {
		var run scheduler.Run
		var fence int64
		var phase string
		var recorded ledger.Instant
		if err := rows.Scan(attemptFields(&run, &fence, &phase, &recorded)...); err != nil {
			return err
		}
		l := lives[run.Job]
		run.Contract = l.job.Contract
		enterPhase(&run, phase)
		l.state.Run, l.fence, l.recorded = run, fence, recorded
		byAttempt[run.Attempt] = l
	}
	return rows.Err()
}

func scanMembers(rows pgx.Rows, byAttempt map[ledger.AttemptID]*life) error {
	for rows.Next() {
		var m memberRow
		if err := rows.Scan(m.fields()...); err != nil {
			return err
		}
		m.member.Rank = m.placed.Rank
		l := byAttempt[m.attempt]
		l.placed = append(l.placed, m.placed)
		l.parts = append(l.parts, m.part)
		l.state.Run.Members = append(l.state.Run.Members, m.member)
	}
	return rows.Err()
}

func scanPieces(rows pgx.Rows, byAttempt map[ledger.AttemptID]*life) error {
	for rows.Next() {
		var id ledger.AttemptID
		var p ledger.Piece
		var lot ledger.Lot
		if err := rows.Scan(&id, &p.Lot, &p.Amount, &p.Spent, &p.Released, &lot.Project, &lot.Pool, &lot.Period, &lot.First, &lot.Last); err != nil {
			return err
		}
		lot.ID = p.Lot
		l := byAttempt[id]
		l.state.Run.Hold = append(l.state.Run.Hold, p)
		l.lots = append(l.lots, lot)
	}
	return rows.Err()
}

// loadLife is loadLives for one job.
func loadLife(ctx context.Context, tx *Tx, id ledger.JobID) (*life, error) {
	lives, err := loadLives(ctx, tx, []ledger.JobID{id})
	if err != nil {
		return nil, err
	}
	if l := lives[id]; l != nil {
		return l, nil
	}
	return nil, missingJob(id)
}

func missingJob(id ledger.JobID) *ledger.Refusal {
	return &ledger.Refusal{Kind: ledger.Missing, Code: "job.missing", Detail: fmt.Sprintf("There is no job %d.", id)}
}

// advance takes one event through the life cycle. kind and detail make a line of
// the job's time line; an empty kind makes none. A refusal changes nothing.
func (l *life) advance(ev scheduler.Event, kind string, detail any) (bool, *ledger.Refusal) {
	ev.Lots = append(ev.Lots, l.lots...)
	step, refusal := scheduler.Advance(l.state, ev)
	if refusal != nil || !step.Changed {
		return false, refusal
	}
	l.state, l.changed = step.Next, true
	l.freed = l.freed || step.Freed
	l.entries = append(l.entries, step.Entries...)
	l.segments = step.Segments
	if ev.Funds != nil {
		l.lots = append(l.lots, ev.Funds.Lots...)
	}
	if kind != "" {
		l.events = append(l.events, lifeEvent{kind, detail})
	}
	return true, nil
}

// member gives the index of a rank, or −1.
func (l *life) member(rank int32) int {
	return slices.IndexFunc(l.placed, func(p scheduler.Placed) bool { return p.Rank == rank })
}

// reordered says whether the nodes' desired state differs from before.
func (l *life) reordered() bool {
	was, is := l.before.Phase, l.state.Run.Phase
	if l.fresh {
		return is == scheduler.Starting
	}
	return was != is && (was != scheduler.Starting || is != scheduler.Running)
}

// keep posts and writes everything that advance led to, wakes the agents whose
// orders changed, and wakes the dispatcher when something may start now.
func (s *Store) keep(ctx context.Context, tx *Tx, lives ...*life) error {
	var entries []ledger.Entry
	var nodes []ledger.NodeID
	var over []ledger.JobID
	var arrays []ledger.ArrayID // where another job may go now
	batch := &pgx.Batch{}
	for _, l := range lives {
		if !l.changed {
			continue
		}
		entries = append(entries, l.entries...)
		if l.reordered() {
			for _, p := range l.placed {
				nodes = append(nodes, p.Node)
			}
		}
		if err := l.queue(batch, tx.Now); err != nil {
			return err
		}
		if l.freed {
			tx.Notify(channelCycle)
		}
		if l.state.Job == scheduler.JobOver {
			over = append(over, l.job.ID)
		}
		if l.limited && l.state.Job != scheduler.JobActive {
			arrays = append(arrays, l.array)
		}
		tx.Notify(channelPage)
	}
	if len(entries) > 0 {
		if _, err := post(ctx, tx, entries...); err != nil {
			return err
		}
	}
	queueOrders(batch, tx, nodes)
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write jobs: %w", err)
	}
	if err := letIn(ctx, tx, arrays); err != nil {
		return err
	}
	return s.afterEnd(ctx, tx, over)
}

// queueOrders makes the agents of nodes fetch their desired state anew.
func queueOrders(batch *pgx.Batch, tx *Tx, nodes []ledger.NodeID) {
	if len(nodes) == 0 {
		return
	}
	slices.Sort(nodes)
	batch.Queue(`with mine as (select id from nodes where id = any($1) order by id for update)
		update nodes set orders = orders + 1 from mine where nodes.id = mine.id`, slices.Compact(nodes))
	tx.Notify(channelOrders)
}

// exit is how the attempt ended as a whole: the first member's failure, else 0.
func exit(r *scheduler.Run) (code, signal int) {
	for i := range r.Members {
		if e := r.Members[i].Exit; e.Code != 0 || e.Signal != 0 {
			return e.Code, e.Signal
		}
	}
	return 0, 0
}

// queue writes the life's rows.
func (l *life) queue(batch *pgx.Batch, now ledger.Instant) error {
	r := &l.state.Run
	var code, signal *int
	var finished ledger.Instant
	if l.state.Job == scheduler.JobOver {
		finished = now
		if r.Started != 0 {
			c, sig := exit(r)
			code, signal = &c, &sig
		}
	}
	charged := l.job.Charged
	if r.Attempt != 0 {
		charged = r.Prior + r.Charged - r.Credited
	}
	if finished != 0 {
		queueTokenSettled(batch, l.job.ID, charged)
	}
	batch.Queue(`update jobs set state = $2, result = $3, attempts = $4, charged = $5, finished_at = $6, exit_code = $7, exit_signal = $8,
		cancel_asked_at = case when $9 then coalesce(cancel_asked_at, $10) end, blocked = blocked or $11 where id = $1`,
		l.job.ID, jobState(&l.state), l.state.Result, max(r.N, l.job.Attempts), charged, finished, code, signal, l.state.Cancel, now, l.limited && l.state.Job == scheduler.JobPaused)
	if r.Attempt != 0 {
		if err := l.queueAttempt(batch); err != nil {
			return err
		}
	}
	for _, e := range l.events {
		detail, err := json.Marshal(e.detail)
		if err != nil {
			return fmt.Errorf("event %s of job %d: %w", e.kind, l.job.ID, err)
		}
		batch.Queue(`insert into job_events (job_id, attempt_n, at, kind, detail) values ($1, $2, $3, $4, $5)`, l.job.ID, r.N, now, e.kind, detail)
	}
	return nil
}

// queueAttempt writes the attempt, its members, what it holds, and, once it is
// closed, its whole occupancy.
func (l *life) queueAttempt(batch *pgx.Batch) error {
	r := &l.state.Run
	facts, err := json.Marshal(l.startFact)
	if err != nil {
		return fmt.Errorf("start facts of job %d: %w", l.job.ID, err)
	}
	switch {
	case l.fresh:
		batch.Queue(`insert into attempts (id, job_id, n, project_id, pool_id, phase, funded, milli_gpu, occupied_milli, rate_ppm,
			min_ms, since, prior, start_facts, past_ppm) overriding system value values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			r.Attempt, r.Job, r.N, r.Project, r.Pool, phaseWord(r.Phase), r.Funded, r.Rate.MilliGPU, r.MilliGPU, r.Rate.PPM,
			r.MinMs, r.Since, r.Prior, facts, r.Past.PPM)
		l.queuePlaces(batch)
	case l.seated:
		batch.Queue(`update attempts set occupied_milli = $2, since = $3, start_facts = $4 where id = $1`, r.Attempt, r.MilliGPU, r.Since, facts)
		l.queuePlaces(batch)
	}
	var stopFacts []byte
	if l.stopFacts != nil {
		if stopFacts, err = json.Marshal(l.stopFacts); err != nil {
			return fmt.Errorf("stop facts of job %d: %w", l.job.ID, err)
		}
	}
	var elapsed, code, signal *int64
	if r.Phase == 0 && r.Started != 0 {
		c, sig := exit(r)
		c64, s64 := int64(c), int64(sig)
		elapsed, code, signal = &r.ProvenMs, &c64, &s64
	}
	promised := promiseOf(r)
	batch.Queue(`update attempts set phase = $2, funded = $3, leased_at = $4, started_at = $5, protected_until = $6, funded_ms = $7,
		hold_until_ms = $8, charged_ms = $9, proven_ms = case when $2 = 'closed' then $10 else greatest(proven_ms, $10) end, charged = $11, credited = $12, credit_from_ms = $13, credit_to_ms = $14,
		stop_asked_at = $15, stop_rule = $16, stop_ms = $17, checkpoint_at = $18, ended_at = $19, cause = $20, elapsed_ms = $21,
		exit_code = $22, exit_signal = $23, recorded_until = case when $2 = 'closed' then $19 else recorded_until end, stop_by_job = coalesce($24, stop_by_job), stop_facts = coalesce($25, stop_facts),
		reserved_since = coalesce($26, reserved_since), reserved_at = coalesce($27, reserved_at), reserved_nodes = coalesce($28, reserved_nodes), reserved_domain = coalesce($29, reserved_domain), price_turns = $30 where id = $1`,
		r.Attempt, phaseWord(r.Phase), r.Funded, r.Leased, r.Started, r.ProtectedUntil, r.FundedMs,
		r.HoldUntilMs, r.ChargedMs, r.ProvenMs, r.Charged, r.Credited, r.CreditFromMs, r.CreditToMs,
		r.Signalled, r.Rule, r.StopMs, r.Checkpoint, r.Ended, r.Cause, elapsed, code, signal, nullID(l.stopByJob), stopFacts,
		promised.since, promised.at, promised.nodes, promised.domain, turnsOf(r))
	l.queueMembers(batch)
	l.queueHold(batch)
	if l.freed {
		for _, g := range after(l.segments, l.recorded) {
			if g.To > g.From {
				batch.Queue(`insert into usage_segments (attempt_id, project_id, pool_id, member_id, class, milli_gpu, occupied_milli, first, last)
					values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, r.Attempt, r.Project, r.Pool, l.job.Member, g.Class, g.ChargedMilliGPU, g.MilliGPU, g.From, g.To)
			}
		}
	}
	return nil
}

func (l *life) queuePlaces(batch *pgx.Batch) {
	for _, p := range l.placed {
		batch.Queue(`insert into placements (attempt_id, rank, node_id, devices, gpu_milli, cpu_milli, ram_mib, hbm_mib, net_mbps, sto_mbps, ioc_milli, hbm_var, sto_var, ioc_var)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`, l.state.Run.Attempt, p.Rank, p.Node, p.Devices, p.GPUMilli, p.CPUMilli, p.RAMMiB,
			p.HBMMiB, p.NetMbps, p.StoMbps, p.IOCMilli, p.HBMVar, p.StoVar, p.IOCVar)
	}
}

// promise is a reservation's columns; once the holder has started they stay as
// they were.
type promise struct {
	since, at ledger.Instant
	nodes     []ledger.NodeID
	domain    *string
}

func promiseOf(r *scheduler.Run) promise {
	if r.Reserved == nil {
		return promise{}
	}
	return promise{r.Reserved.Since, r.Reserved.At, r.Reserved.Nodes, &r.Reserved.Domain}
}

// turnsOf are the price's turns as the column keeps them.
func turnsOf(r *scheduler.Run) []int64 {
	if r.Past.Turns == nil {
		return []int64{}
	}
	return r.Past.Turns
}

// queueMembers writes the members that changed.
func (l *life) queueMembers(batch *pgx.Batch) {
	r := &l.state.Run
	for i, m := range r.Members {
		over := m.Ended || r.Phase == 0 // a closed attempt owns no device
		if !l.fresh && i < len(l.before.Members) && m == l.before.Members[i] && (r.Phase != 0 || l.before.Phase == 0) {
			continue
		}
		var ended ledger.Instant
		if over {
			ended = r.Ended
			if m.Claimed != 0 {
				ended = m.Claimed.Add(m.ElapsedMs)
			}
		}
		batch.Queue(`update placements set launcher = $3, claimed_at = $4, elapsed_ms = $5, term_ms = $6, ended = $7, ended_at = $8,
			exit_code = $9, exit_signal = $10, stopped = $11, lost = $12, detail = $13, flagged = $14, returns = $15 where attempt_id = $1 and rank = $2`,
			r.Attempt, m.Rank, l.parts[i].launcher, m.Claimed, m.ElapsedMs, m.TermMs, over, ended,
			m.Exit.Code, m.Exit.Signal, m.Exit.Stopped, m.Exit.Lost, l.parts[i].detail, l.parts[i].flagged, l.parts[i].returns)
	}
}

// queueHold writes the pieces of the hold where they changed.
func (l *life) queueHold(batch *pgx.Batch) {
	r := &l.state.Run
	if !l.fresh && slices.Equal(r.Hold, l.before.Hold) {
		return
	}
	n := len(r.Hold)
	lots, amounts := make([]ledger.LotID, n), make([]ledger.Amount, n)
	spent, released := make([]ledger.Amount, n), make([]ledger.Amount, n)
	for i, p := range r.Hold {
		lots[i], amounts[i], spent[i], released[i] = p.Lot, p.Amount, p.Spent, p.Released
	}
	if n > 0 {
		batch.Queue(`insert into hold_pieces (attempt_id, n, lot_id, amount, spent, released)
			select $1, o - 1, l, a, s, r from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) with ordinality as u(l, a, s, r, o)
			on conflict (attempt_id, n) do update set lot_id = excluded.lot_id, amount = excluded.amount, spent = excluded.spent, released = excluded.released`,
			r.Attempt, lots, amounts, spent, released)
	}
	if len(l.before.Hold) > n {
		batch.Queue(`delete from hold_pieces where attempt_id = $1 and n >= $2`, r.Attempt, n)
	}
}

func nullID[T ~int64](id T) *int64 {
	if id == 0 {
		return nil
	}
	n := int64(id)
	return &n
}

// after gives what of segments lies past an instant.
func after(segments []scheduler.Segment, recorded ledger.Instant) []scheduler.Segment {
	if recorded == 0 {
		return segments
	}
	var out []scheduler.Segment
	for _, g := range segments {
		if g.To != 0 && g.To <= recorded {
			continue
		}
		g.From = max(g.From, recorded)
		out = append(out, g)
	}
	return out
}
