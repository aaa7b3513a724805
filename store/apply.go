package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// Apply carries a plan out in one leader transaction. Everything the plan relies
// on is looked at again under lock: jobs still pending, victims still live, room
// (scheduler.Fits), funds. An item that no longer holds drops out with a Reason;
// the rest commits.
func (w *World) Apply(ctx context.Context, p *scheduler.Plan) (scheduler.Applied, error) {
	var out scheduler.Applied
	var told map[ledger.JobID]toldReason
	err := w.leader.inLeaderTx(ctx, "apply", func(tx *Tx) error {
		c := &carrying{plan: p, daily: w.daily.next()}
		if err := c.lock(ctx, tx); err != nil {
			return err
		}
		if err := c.items(); err != nil {
			return err
		}
		if err := w.store.keep(ctx, tx, c.changed()...); err != nil {
			return err
		}
		out = c.applied
		batch := &c.extra
		queueOrders(batch, tx, c.told)
		var err error
		if told, err = w.queueReasons(batch, p, c.applied.Dropped); err != nil {
			return err
		}
		queueStandings(batch, p)
		if err := queueReservedViews(batch, p); err != nil {
			return err
		}
		batch.Queue(`update dispatcher set cycle = $1, bucket_milli_tokens = $2, bucket_at = $3, last_instant = greatest(last_instant, $4), tried = $5`,
			p.Cycle, p.Bucket.MilliTokens, p.Bucket.At, p.Now, triedIDs(p))
		tx.Notify(channelPage)
		if c.policy.MaxStarts > 0 && len(p.Starts) >= c.policy.MaxStarts {
			tx.Notify(channelCycle) // there may be more to start
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("write the cycle: %w", err)
		}
		return nil
	})
	if err != nil {
		return scheduler.Applied{}, err
	}
	w.told = told
	w.daily.done()
	return out, nil
}

// items carries the plan out on the locked lives, in its order.
func (c *carrying) items() error {
	p := c.plan
	for _, job := range c.daily.jobs {
		c.postDay(job)
	}
	for i := range p.Extend {
		c.extend(&p.Extend[i])
	}
	for i := range p.MoneyEnds {
		c.moneyEnd(&p.MoneyEnds[i])
	}
	for i := range p.Stops {
		c.stop(&p.Stops[i])
	}
	for _, ref := range p.Unprotect {
		c.unprotect(ref)
	}
	for i := range p.Renewals {
		if err := c.renewal(&p.Renewals[i]); err != nil {
			return err
		}
	}
	for i := range p.Warnings {
		if err := c.warning(&p.Warnings[i]); err != nil {
			return err
		}
	}
	for _, ref := range p.Promote {
		c.promote(ref)
	}
	for i := range p.Moves {
		c.move(&p.Moves[i])
	}
	for i := range p.Starts {
		c.start(&p.Starts[i])
	}
	for i := range p.Reserves {
		c.reserve(&p.Reserves[i])
	}
	return nil
}

// carrying is one plan being carried out under lock.
type carrying struct {
	plan    *scheduler.Plan
	policy  scheduler.Policy
	lives   map[ledger.JobID]*life
	funds   map[purse]*ledger.Funds
	nodes   map[ledger.NodeID]*standingNode
	ids     []ledger.AttemptID // for new attempts, one per start and per reserved start
	daily   dailyPost
	applied scheduler.Applied
	extra   pgx.Batch       // written after the lives
	told    []ledger.NodeID // whose commands are to be told something
}

// standingNode is a node with everything that is on it.
type standingNode struct {
	node    scheduler.Node
	tenants []scheduler.Tenant
}

// leaves notes that an attempt has been told to stop, or is gone already.
func (n *standingNode) leaves(ref scheduler.AttemptRef, gone bool) {
	for i := range n.tenants {
		if n.tenants[i].AttemptRef == ref {
			n.tenants[i].Phase = scheduler.Ending
		}
	}
	if gone {
		n.tenants = slices.DeleteFunc(n.tenants, func(t scheduler.Tenant) bool { return t.AttemptRef == ref })
	}
}

// lock takes jobs, attempts, balances and nodes of the plan, in that order and
// each by id, and reads what they are now.
func (c *carrying) lock(ctx context.Context, tx *Tx) error {
	jobs, nodes := c.touched()
	if len(jobs) == 0 {
		return nil
	}
	var err error
	if c.policy, err = loadPolicy(ctx, tx); err != nil {
		return err
	}
	if c.lives, err = loadLives(ctx, tx, jobs); err != nil {
		return err
	}
	var purses []purse
	wanted := map[purse]bool{}
	want := func(id ledger.JobID) {
		if l := c.lives[id]; l != nil {
			if p := (purse{l.job.Project, l.job.Pool}); !wanted[p] {
				wanted[p] = true
				purses = append(purses, p)
			}
		}
	}
	for i := range c.plan.Extend {
		want(c.plan.Extend[i].Job)
	}
	for i := range c.plan.Starts {
		if len(c.plan.Starts[i].Hold) > 0 {
			want(c.plan.Starts[i].Job)
		}
	}
	for i := range c.plan.Reserves {
		want(c.plan.Reserves[i].Job)
	}
	for i := range c.plan.Renewals {
		if len(c.plan.Renewals[i].Hold) > 0 {
			want(c.plan.Renewals[i].Job)
		}
	}
	if c.funds, err = lockFunds(ctx, tx, purses); err != nil {
		return err
	}
	return c.lockNodes(ctx, tx, nodes)
}

// touched gives the jobs and nodes that the plan speaks of, sorted.
func (c *carrying) touched() (jobs []ledger.JobID, nodes []ledger.NodeID) {
	p := c.plan
	jobs = append(jobs, c.daily.jobs...)
	for i := range p.Extend {
		jobs = append(jobs, p.Extend[i].Job)
	}
	for i := range p.MoneyEnds {
		jobs = append(jobs, p.MoneyEnds[i].Job)
	}
	for i := range p.Stops {
		jobs = append(jobs, p.Stops[i].Job)
	}
	for _, ref := range p.Promote {
		jobs = append(jobs, ref.Job)
	}
	for _, ref := range p.Unprotect {
		jobs = append(jobs, ref.Job)
	}
	for i := range p.Renewals {
		jobs = append(jobs, p.Renewals[i].Job)
	}
	for i := range p.Warnings {
		jobs = append(jobs, p.Warnings[i].Job)
	}
	for i := range p.Moves {
		jobs = append(jobs, p.Moves[i].Job)
	}
	for i := range p.Reserves {
		jobs = append(jobs, p.Reserves[i].Job)
	}
	for i := range p.Starts {
		s := &p.Starts[i]
		jobs = append(jobs, s.Job)
		for j := range s.Evict {
			jobs = append(jobs, s.Evict[j].Job)
		}
		for j := range s.Placed {
			nodes = append(nodes, s.Placed[j].Node)
		}
	}
	slices.Sort(jobs)
	slices.Sort(nodes)
	return slices.Compact(jobs), slices.Compact(nodes)
}

// lockNodes locks the nodes that something is to start on and reads what they
// hold now; new attempts get their ids.
func (c *carrying) lockNodes(ctx context.Context, tx *Tx, nodes []ledger.NodeID) error {
	c.nodes = make(map[ledger.NodeID]*standingNode, len(nodes))
	if len(nodes) == 0 && len(c.plan.Reserves) == 0 {
		return nil
	}
	r := &reading{snap: &scheduler.Snapshot{}}
	batch := &pgx.Batch{}
	batch.Queue(`select `+nodeColumns+` from `+nodeTables+` where n.id = any($1) and n.retired_at is null order by n.id for update of n`, nodes).Query(r.scanNodes)
	type tenantRow struct {
		tenant scheduler.Tenant
		phase  string
	}
	var tenants []tenantRow
	batch.Queue(`select a.job_id, a.n, a.project_id, a.phase, p.rank, p.node_id, p.devices, p.gpu_milli, p.cpu_milli, p.ram_mib, p.hbm_mib, p.net_mbps, p.sto_mbps, p.ioc_milli, p.hbm_var, p.sto_var, p.ioc_var
		from placements p join attempts a on a.id = p.attempt_id where p.node_id = any($1) and a.phase <> 'closed'
		order by a.job_id, a.n, p.rank`, nodes).Query(each(&tenants, func(t *tenantRow) []any {
		q, p := &t.tenant, &t.tenant.Placed
		return []any{&q.Job, &q.N, &q.Project, &t.phase, &p.Rank, &p.Node, &p.Devices, &p.GPUMilli, &p.CPUMilli, &p.RAMMiB, &p.HBMMiB, &p.NetMbps, &p.StoMbps, &p.IOCMilli, &p.HBMVar, &p.StoVar, &p.IOCVar}
	}))
	batch.Queue(`select nextval(pg_get_serial_sequence('attempts', 'id')) from generate_series(1, $1)`, len(c.plan.Starts)+len(c.plan.Reserves)).
		Query(each(&c.ids, func(id *ledger.AttemptID) []any { return []any{id} }))
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("lock nodes: %w", err)
	}
	for _, n := range r.snap.Nodes {
		c.nodes[n.ID] = &standingNode{node: n}
	}
	known := phases()
	for _, t := range tenants {
		t.tenant.Phase = known[t.phase]
		if n := c.nodes[t.tenant.Placed.Node]; n != nil {
			n.tenants = append(n.tenants, t.tenant)
		}
	}
	return nil
}

// changed gives the lives to write, by job.
func (c *carrying) changed() []*life {
	var out []*life
	for _, l := range c.lives {
		if l.changed {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *life) int { return int(a.job.ID - b.job.ID) })
	return out
}

// live finds the attempt that an item of the plan means, nil when it is over or
// was replaced.
func (c *carrying) live(ref scheduler.AttemptRef) *life {
	l := c.lives[ref.Job]
	if l == nil || l.state.Job != scheduler.JobActive || l.state.Run.N != ref.N {
		return nil
	}
	return l
}

// drop notes that an item no longer held.
func (c *carrying) drop(job ledger.JobID, why string) {
	c.applied.Dropped = append(c.applied.Dropped, scheduler.Reason{
		Job: job, Code: scheduler.WhyDropped,
		Facts: []scheduler.Fact{{Name: "changed", Value: why}},
	})
}

// draw takes the pieces of a hold from the locked funds, or says that they no
// longer cover it.
func (c *carrying) draw(p purse, pieces []ledger.Piece) bool {
	f := c.funds[p]
	if f == nil {
		return len(pieces) == 0
	}
	for _, piece := range pieces {
		i := slices.IndexFunc(f.Lots, func(l ledger.Lot) bool { return l.ID == piece.Lot })
		if i < 0 || f.Lots[i].Available < piece.Amount {
			return false
		}
		for _, limit := range f.Limits {
			if limit.Period == f.Lots[i].Period && limit.Limit-limit.Used < piece.Amount {
				return false
			}
		}
		f.Lots[i].Available -= piece.Amount
		c.useLimits(f, f.Lots[i].Period, piece.Amount)
	}
	return true
}

// useLimits lets every project below the same ancestors see a draw.
func (c *carrying) useLimits(f *ledger.Funds, period ledger.PeriodID, amount ledger.Amount) {
	for _, other := range c.funds {
		for i := range other.Limits {
			l := &other.Limits[i]
			if other.Pool == f.Pool && l.Period == period &&
				slices.ContainsFunc(f.Limits, func(m ledger.PathLimit) bool { return m.Program == l.Program && m.Period == period }) {
				l.Used += amount
			}
		}
	}
}

// accrue takes what the heartbeats have proven, and charges the whole steps of it
// that lie past the protection.
func (c *carrying) accrue(l *life) *ledger.Refusal {
	for i := range l.parts {
		m := l.state.Run.Members[i]
		if m.Ended || l.parts[i].seenMs <= m.ElapsedMs {
			continue
		}
		ev := scheduler.Event{Kind: scheduler.EvAccrued, At: c.plan.Now, Rank: m.Rank, ElapsedMs: l.parts[i].seenMs, HoldStepMs: c.policy.HoldStepMs}
		if _, refusal := l.advance(ev, "", nil); refusal != nil {
			return refusal
		}
	}
	return nil
}

// extend prolongs a hold past the protection.
func (c *carrying) extend(x *scheduler.Extension) {
	l := c.live(x.AttemptRef)
	if l == nil || l.state.Run.HoldUntilMs != x.FromMs {
		return
	}
	p := purse{l.job.Project, l.job.Pool}
	if !c.draw(p, x.Hold) {
		c.drop(x.Job, "funds")
		return
	}
	var lots []ledger.Lot
	if f := c.funds[p]; f != nil {
		lots = f.Lots
	}
	ev := scheduler.Event{Kind: scheduler.EvExtended, At: c.plan.Now, Hold: x.Hold, FromMs: x.FromMs, ToMs: x.ToMs, Lots: lots}
	if _, refusal := l.advance(ev, "", nil); refusal != nil {
		c.drop(x.Job, "attempt")
		return
	}
	l.lots = append(l.lots, lots...)
	if refusal := c.accrue(l); refusal != nil {
		c.drop(x.Job, "accrual")
	}
	c.applied.Extended++
}

// moneyEnd lets an attempt go on unfunded, or stops it.
func (c *carrying) moneyEnd(m *scheduler.MoneyEnd) {
	l := c.live(m.AttemptRef)
	if l == nil {
		return
	}
	if m.Stop {
		c.signal(l, scheduler.MoneyEnded, "stopping", m.Short, 0)
		return
	}
	refusal := c.accrue(l)
	if refusal == nil {
		_, refusal = l.advance(scheduler.Event{Kind: scheduler.EvMoneyEnded, At: c.plan.Now, FromMs: m.AtMs}, "money-ended", m.Short)
	}
	if refusal != nil {
		c.drop(m.Job, "attempt")
	}
}

// stop tells an attempt to stop without a preemptor.
func (c *carrying) stop(s *scheduler.Stop) {
	if l := c.live(s.AttemptRef); l != nil {
		c.signal(l, s.Rule, "stopping", s, 0)
	}
}

// signal tells an attempt to stop and remembers the numbers that decided.
func (c *carrying) signal(l *life, rule scheduler.Rule, event string, facts any, by ledger.JobID) bool {
	changed, refusal := l.advance(scheduler.Event{Kind: scheduler.EvSignalled, At: c.plan.Now, Rule: rule}, event, facts)
	if refusal != nil || !changed {
		return false
	}
	l.stopFacts, l.stopByJob = facts, by
	l.noteClose() // what nothing had claimed is over at once
	for _, n := range c.nodes {
		n.leaves(scheduler.AttemptRef{Job: l.job.ID, N: l.state.Run.N}, l.freed)
	}
	c.applied.Stopped++
	return true
}

// promote leases a nominated attempt whose devices everybody else has left.
func (c *carrying) promote(ref scheduler.AttemptRef) {
	l := c.live(ref)
	if l == nil || l.state.Run.Phase != scheduler.Nominated {
		return
	}
	if _, refusal := l.advance(scheduler.Event{Kind: scheduler.EvLeased, At: c.plan.Now}, "leased", nil); refusal != nil {
		c.drop(ref.Job, "attempt")
		return
	}
	c.applied.Promoted++
}

// start nominates or leases a job together with its evictions: all or none.
func (c *carrying) start(s *scheduler.Start) {
	id := c.ids[0]
	c.ids = c.ids[1:]
	l := c.lives[s.Job]
	if !s.Reserved && !l.mayStart(s.N) {
		c.drop(s.Job, "job")
		return
	}
	if s.Reserved {
		if l = c.live(s.AttemptRef); l == nil || l.state.Run.Phase != scheduler.Reserved {
			c.drop(s.Job, "job")
			return
		}
		id = l.state.Run.Attempt
	}
	victims := make([]*life, len(s.Evict))
	for i := range s.Evict {
		victims[i] = c.live(s.Evict[i].AttemptRef)
		if victims[i] == nil || victims[i].state.Run.Phase == scheduler.Ending {
			c.drop(s.Job, "victim")
			return
		}
	}
	if !c.fits(s) {
		c.drop(s.Job, "room")
		return
	}
	p := purse{l.job.Project, l.job.Pool}
	if !c.draw(p, s.Hold) {
		c.drop(s.Job, "funds")
		return
	}
	for i := range s.Evict {
		e := &s.Evict[i]
		if c.signal(victims[i], e.Rule, "evicted", evictFacts{*e, s.Project}, s.Job) {
			c.applied.Stopped--
			c.applied.Evicted++
		}
	}
	c.begin(l, s, id)
}

// evictFacts is what a page says about an eviction.
type evictFacts struct {
	scheduler.Evict
	ByProject ledger.GroupID `json:"by_project"`
}

// startFacts is what a page says about a start.
type startFacts struct {
	Rank  int                  `json:"rank"`
	Path  []scheduler.Standing `json:"path"`
	Evict []scheduler.Evict    `json:"evict,omitempty"`

	Judged *scheduler.Judged `json:"judged,omitempty"` // only on the attempt: its time line is long enough
}

// begin makes the attempt of a start that holds.
func (c *carrying) begin(l *life, s *scheduler.Start, id ledger.AttemptID) {
	run := scheduler.NewRun(&l.job, s, id, c.plan.Now)
	kind, event := scheduler.EvLeased, "leased"
	if s.Nominate {
		kind, event = scheduler.EvNominated, "nominated"
	}
	var lots []ledger.Lot
	if f := c.funds[purse{l.job.Project, l.job.Pool}]; f != nil {
		lots = f.Lots
	}
	facts := startFacts{Rank: s.Rank, Path: s.Path, Evict: s.Evict}
	if _, refusal := l.advance(scheduler.Event{Kind: kind, At: c.plan.Now, Run: run, Lots: lots}, event, facts); refusal != nil {
		c.drop(s.Job, "job")
		return
	}
	facts.Judged = s.Judged
	l.startFact = facts
	if s.Reserved {
		l.seated = true
	} else {
		l.fresh, l.before = true, scheduler.Run{}
	}
	l.placed, l.parts = s.Placed, make([]part, len(s.Placed))
	phase := l.state.Run.Phase
	for _, placed := range s.Placed {
		n := c.nodes[placed.Node]
		n.tenants = append(n.tenants, scheduler.Tenant{AttemptRef: s.AttemptRef, Project: s.Project, Phase: phase, Placed: placed})
	}
	if phase == scheduler.Nominated {
		c.applied.Nominated++
	} else {
		c.applied.Started++
	}
}

// mayStart says whether a job waits for its Nth attempt.
func (l *life) mayStart(n int32) bool {
	return l != nil && l.state.Job == scheduler.JobWaiting && !l.blocked && l.job.Attempts+1 == n
}

// reserve makes a waiting job the holder of its pool's reserved start.
func (c *carrying) reserve(r *scheduler.Reserve) {
	id := c.ids[0]
	c.ids = c.ids[1:]
	l := c.lives[r.Job]
	if !l.mayStart(r.N) {
		c.drop(r.Job, "job")
		return
	}
	p := purse{l.job.Project, l.job.Pool}
	if !c.draw(p, r.Hold) {
		c.drop(r.Job, "funds")
		return
	}
	var lots []ledger.Lot
	if f := c.funds[p]; f != nil {
		lots = f.Lots
	}
	run := scheduler.NewReserve(&l.job, r, id, c.plan.Now)
	ev := scheduler.Event{Kind: scheduler.EvReserved, At: c.plan.Now, Run: run, Lots: lots}
	if _, refusal := l.advance(ev, "reserved", reservedFacts{r.Reservation, r.Rank}); refusal != nil {
		c.drop(r.Job, "job")
		return
	}
	l.fresh, l.before, l.startFact = true, scheduler.Run{}, startFacts{Rank: r.Rank, Path: r.Path}
	l.placed, l.parts = nil, nil
}

// reservedFacts is what a page says about a reserved start.
type reservedFacts struct {
	scheduler.Reservation
	Rank int `json:"rank"`
}

// move gives a holder other nodes or another instant. Only lost nodes make a
// line of its time line: they restart the bound.
func (c *carrying) move(m *scheduler.ReserveMove) {
	l := c.live(m.AttemptRef)
	if l == nil || l.state.Run.Phase != scheduler.Reserved {
		return
	}
	kind := ""
	if len(m.Lost) > 0 {
		kind = "reserved-moved"
	}
	res := m.Reservation
	if _, refusal := l.advance(scheduler.Event{Kind: scheduler.EvMoved, At: c.plan.Now, Reservation: &res}, kind, m); refusal != nil {
		c.drop(m.Job, "attempt")
	}
}

// fits asks every node of a start again, with its victims told to leave.
func (c *carrying) fits(s *scheduler.Start) bool {
	for _, placed := range s.Placed {
		n := c.nodes[placed.Node]
		if n == nil {
			return false
		}
		tenants := slices.Clone(n.tenants)
		for i := range tenants {
			if slices.ContainsFunc(s.Evict, func(e scheduler.Evict) bool { return e.AttemptRef == tenants[i].AttemptRef }) {
				tenants[i].Phase = scheduler.Ending
			}
		}
		if scheduler.Fits(&n.node, tenants, s.Project, placed, s.Nominate) != scheduler.FitsOK {
			return false
		}
	}
	return true
}
