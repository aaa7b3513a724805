package store

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/ledger"
	"tranche/scheduler"
)

// World is the dispatcher's view of the database, for one leader. It is used by
// one goroutine. Between snapshots it keeps the lookback, jobs, attempts and
// placements, so that a cycle reads only what is new of them.
type World struct {
	store  *Store
	leader *Leader
	eye    eye
	told   map[ledger.JobID]toldReason
	seed   maphash.Seed
	cut    ledger.JobID   // the first whose reason did not fit into the last cycle; 0 = all did
	since  ledger.Instant // real: silence counts from here
	daily  dailyPost
	memory scheduler.Memory // what scores of nodes were worked out before
}

// World gives the leader's world.
func (s *Store) World(l *Leader) *World {
	return &World{store: s, leader: l, told: map[ledger.JobID]toldReason{}, seed: maphash.MakeSeed(), since: s.Real()}
}

// Snapshot reads everything one cycle decides from, in one unchanging view and
// three round trips. Its instant never goes back behind an earlier cycle's.
func (w *World) Snapshot(ctx context.Context, now ledger.Instant) (*scheduler.Snapshot, error) {
	r, err := w.eye.read(ctx, w.store, w.store.leaderPool, now)
	if err != nil {
		return nil, err
	}
	w.daily.begin(r)
	r.snap.Remember(&w.memory)
	return r.snap, nil
}

// eye reads snapshots and keeps between them what need not be read again. It is
// used by one goroutine at a time.
type eye struct {
	usage   *usageView
	classes classesKept

	waiting kept[ledger.JobID, scheduler.Job]
	live    kept[ledger.AttemptID, liveRow]
	placed  kept[place, memberRow]
}

// read takes a snapshot at an instant, or at the last cycle's where that is later.
func (e *eye) read(ctx context.Context, s *Store, pool *pgxpool.Pool, now ledger.Instant) (*reading, error) {
	var done *reading
	opt := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := s.run(ctx, pool, "snapshot", opt, func(tx *Tx) error {
		r := &reading{snap: &scheduler.Snapshot{Now: now}, funds: map[purse]*ledger.Funds{}}
		if err := r.frame(ctx, tx); err != nil {
			return err
		}
		if e.usage == nil || e.usage.spanMs != r.snap.Policy.LookbackMs {
			e.usage = newUsageView(r.snap.Policy.LookbackMs, r.snap.Now)
		}
		batch := &pgx.Batch{}
		r.queue(batch)
		e.queue(batch, r.snap.Policy.HeadsPerProject)
		e.usage.queue(batch, r.snap.Now)
		e.classes.queue(batch)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := e.refresh(ctx, tx); err != nil {
			return fmt.Errorf("read what has changed: %w", err)
		}
		e.fill(r)
		if err := e.usage.complete(ctx, tx, r.snap.Now); err != nil {
			return err
		}
		r.finish(e.usage)
		done = r
		return nil
	})
	if err != nil {
		*e = eye{} // what it keeps may be half way: read it anew
		return nil, err
	}
	return done, nil
}

// reading is a snapshot under construction.
type reading struct {
	snap     *scheduler.Snapshot
	funds    map[purse]*ledger.Funds
	runs     []scheduler.Run // of snap.Live
	segments [][]scheduler.Segment
	promised map[ledger.AttemptID][]ledger.Piece
	limits   []ledger.PathLimit // of programs; by program and period
	shares   []memberShare
	xmin     int64
	last     ledger.Instant // the cycle before
	today    ledger.Instant // when the day began, in the accounting zone
}

// frame reads the cycle's number, instant, policy and bucket.
func (r *reading) frame(ctx context.Context, tx *Tx) error {
	s := r.snap
	policy, err := loadPolicy(ctx, tx)
	if err != nil {
		return err
	}
	s.Policy = policy
	err = tx.QueryRow(ctx, `select cycle + 1, bucket_milli_tokens, bucket_at, tried, last_instant, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
		date_trunc('day', greatest($1, last_instant), coalesce((select zone from periods where first <= $1 and $1 < last), 'UTC'))
		from dispatcher`, s.Now).Scan(&s.Cycle, &s.Bucket.MilliTokens, &s.Bucket.At, &s.Tried, &r.last, &r.xmin, &r.today)
	s.Now = max(s.Now, r.last)
	return err
}

// queue asks for pools, tree, shares, funds, nodes, live attempts and queues.
func (r *reading) queue(batch *pgx.Batch) {
	s := r.snap
	batch.Queue(`select id, name, rate_ppm, frozen_at is not null from pools order by id`).Query(each(&s.Pools, func(p *scheduler.Pool) []any {
		return []any{&p.ID, &p.Name, &p.RatePPM, &p.Frozen}
	}))
	batch.Queue(`select id, coalesce(parent_id, 0), path, kind = 'project', suspended_at is not null or archived_at is not null
		from groups order by id`).Query(each(&s.Groups, func(g *scheduler.Group) []any {
		return []any{&g.ID, &g.Parent, &g.Path, &g.Project, &g.Suspended}
	}))
	// A program weighs what its pot was given for the period, a project what its
	// lots were awarded; neither depends on what was given on or used.
	batch.Queue(`select pool_id, group_id, sum(amount)::bigint, extract(epoch from pe.last - pe.first)::bigint from (
			select s.pool_id, p.child_id as group_id, s.period_id, p.amount from splits s join split_parts p on p.split_id = s.id
				join groups g on g.id = p.child_id and g.kind = 'program'
				where s.version = (select max(o.version) from splits o where (o.program_id, o.pool_id, o.period_id) = (s.program_id, s.pool_id, s.period_id))
			union all
			select u.pool_id, r.id, u.period_id, u.amount from period_supply u join groups r on r.parent_id is null
			union all
			select l.pool_id, l.project_id, l.period_id, l.amount from lots l where l.first <= $1 and $1 < l.last) given
		join periods pe on pe.id = given.period_id and pe.first <= $1 and $1 < pe.last
		group by pool_id, group_id, pe.first, pe.last order by pool_id, group_id`, s.Now).Query(r.scanShares)
	batch.Queue(`select project_id, person_id, share, cap_gpus from member_shares order by project_id, person_id`).Query(each(&r.shares, func(m *memberShare) []any {
		return []any{&m.project, &m.member, &m.share, &m.capGPUs}
	}))
	batch.Queue(sqlAllLots, s.Now, ledger.Available).Query(func(rows pgx.Rows) error { return scanLots(rows, r.funds) })
	batch.Queue(sqlAllLimits, s.Now).Query(each(&r.limits, func(l *ledger.PathLimit) []any {
		return []any{&l.Program, &l.Pool, &l.Period, &l.Limit, &l.Used}
	}))
	batch.Queue(sqlMixes).Query(each(&s.Mixes, mixFields))
	batch.Queue(`select ` + nodeColumns + ` from ` + nodeTables + ` where n.retired_at is null order by n.id`).Query(r.scanNodes)
	batch.Queue(`select h.attempt_id, h.lot_id, h.amount, h.spent, h.released from hold_pieces h
		where h.attempt_id = any(array(select a.id from attempts a where a.phase = 'reserved')) order by h.attempt_id, h.n`).Query(r.scanPromised)
}

// each collects rows through a function that says where the columns go.
func each[T any](out *[]T, fields func(*T) []any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var item T
			if err := rows.Scan(fields(&item)...); err != nil {
				return err
			}
			*out = append(*out, item)
		}
		return rows.Err()
	}
}

func (r *reading) scanShares(rows pgx.Rows) error {
	for rows.Next() {
		var share scheduler.Share
		var given ledger.Amount
		var seconds int64
		if err := rows.Scan(&share.Pool, &share.Group, &given, &seconds); err != nil {
			return err
		}
		share.MicroGPU = ledger.Weight(given, seconds)
		r.snap.Shares = append(r.snap.Shares, share)
	}
	return rows.Err()
}

// nodeColumns are what scheduler.Node consists of.
const nodeColumns = `n.id, n.name, n.pool_id, n.topology, n.cpu_milli, n.ram_mib, n.net_mbps, n.sto_mbps, n.ioc_milli, n.sto_ppm, coalesce(d.hbm, 0), n.health, n.drain, n.degraded_since is not null, n.maint_from, n.maint_until,
	coalesce(d.every, '{}'), coalesce(d.dead, '{}')`

// nodeTables are what they are columns of.
const nodeTables = `nodes n left join lateral (select array_agg(idx order by idx) as every, array_agg(idx order by idx) filter (where dead) as dead,
	min(hbm_mib) filter (where not dead) as hbm
	from devices where node_id = n.id) d on true`

func (r *reading) scanNodes(rows pgx.Rows) error {
	for rows.Next() {
		var n scheduler.Node
		var health, drain string
		var degraded bool
		var all, dead []int32
		if err := rows.Scan(&n.ID, &n.Name, &n.Pool, &n.Topology, &n.CPUMilli, &n.RAMMiB, &n.NetMbps, &n.StoMbps, &n.IOCMilli, &n.StoPPM, &n.HBMMiB, &health, &drain, &degraded, &n.MaintFrom, &n.MaintUntil, &all, &dead); err != nil {
			return err
		}
		n.Health = healthOf(health, drain, degraded)
		for _, index := range all {
			n.Devices = append(n.Devices, scheduler.Device{Index: index, Dead: slices.Contains(dead, index)})
		}
		r.snap.Nodes = append(r.snap.Nodes, n)
	}
	return rows.Err()
}

// healthOf joins what the server sees of a node with what an operator asked for.
func healthOf(health, drain string, degraded bool) scheduler.Health {
	switch {
	case health == "lost":
		return scheduler.Lost
	case drain == DrainHard:
		return scheduler.Faulted
	case drain == DrainSoft:
		return scheduler.Draining
	case health == "suspect", degraded:
		return scheduler.Suspect
	}
	return scheduler.Healthy
}

// scanPromised reads what the holders of reserved starts have set aside.
func (r *reading) scanPromised(rows pgx.Rows) error {
	r.promised = map[ledger.AttemptID][]ledger.Piece{}
	for rows.Next() {
		var attempt ledger.AttemptID
		var p ledger.Piece
		if err := rows.Scan(&attempt, &p.Lot, &p.Amount, &p.Spent, &p.Released); err != nil {
			return err
		}
		r.promised[attempt] = append(r.promised[attempt], p)
	}
	return rows.Err()
}

// finish puts funds and usage in their order.
func (r *reading) finish(usage *usageView) {
	s := r.snap
	r.addLimits()
	for _, f := range r.funds {
		s.Funds = append(s.Funds, *f)
	}
	slices.SortFunc(s.Funds, func(a, b ledger.Funds) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project))
	})
	usage.update(r)
	s.Usage = usage.lookback.Usage(nil)
	s.Members = withShares(usage.lookback.Members(nil), r.shares, s.Waiting)
}

// Lots and limits of every project, in one view.
const (
	sqlAllLots = `select l.id, l.project_id, l.pool_id, l.period_id, l.first, l.last, coalesce(b.balance, 0), g.path
		from lots l join groups g on g.id = l.project_id
		left join accounts a on a.kind = $2 and a.pool_id = l.pool_id and a.period_id = l.period_id and a.group_id = l.project_id and a.lot_id = l.id
		left join balances b on b.account_id = a.id
		where l.last > $1 order by l.pool_id, l.project_id, l.last, l.id`
	sqlAllLimits = `select p.program_id, p.pool_id, p.period_id, p.received, p.used
		from path_limits p join periods on periods.id = p.period_id and periods.last > $1
		order by p.program_id, p.pool_id, p.period_id`
)

// addLimits gives every project's funds the limits of the programs above it, by
// program and period, as far as it has lots of that period.
func (r *reading) addLimits() {
	if len(r.limits) == 0 {
		return
	}
	groups := make(map[ledger.GroupID]*scheduler.Group, len(r.snap.Groups))
	for i := range r.snap.Groups {
		groups[r.snap.Groups[i].ID] = &r.snap.Groups[i]
	}
	type key struct {
		program ledger.GroupID
		pool    ledger.PoolID
	}
	limits := make(map[key][]ledger.PathLimit, len(r.limits))
	for _, l := range r.limits {
		l.Path = groups[l.Program].Path
		limits[key{l.Program, l.Pool}] = append(limits[key{l.Program, l.Pool}], l)
	}
	for purse, f := range r.funds {
		for g := groups[purse.project]; g != nil; g = groups[g.Parent] {
			for _, l := range limits[key{g.ID, purse.pool}] {
				if slices.ContainsFunc(f.Lots, func(lot ledger.Lot) bool { return lot.Period == l.Period }) {
					f.Limits = append(f.Limits, l)
				}
			}
		}
		slices.SortFunc(f.Limits, func(a, b ledger.PathLimit) int {
			return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(a.Period, b.Period))
		})
	}
}

// usageView keeps the lookback between snapshots. Closed attempts come from
// usage_segments, each once; live ones from what the snapshot says of them.
type usageView struct {
	spanMs   int64
	lookback *scheduler.Lookback
	mark     int64           // every transaction below it has been read
	seen     map[int64]int64 // segment id → its transaction, at or above mark
	fresh    []closedSegment
	live     map[ledger.AttemptID]liveUsage
}

type closedSegment struct {
	id, xid int64
	pool    ledger.PoolID
	project ledger.GroupID
	member  ledger.PersonID
	segment scheduler.Segment
}

type liveUsage struct {
	pool     ledger.PoolID
	project  ledger.GroupID
	member   ledger.PersonID
	segments []scheduler.Segment
}

func newUsageView(spanMs int64, now ledger.Instant) *usageView {
	return &usageView{spanMs: spanMs, lookback: scheduler.NewLookback(spanMs, now), seen: map[int64]int64{}, live: map[ledger.AttemptID]liveUsage{}}
}

// mostFresh is how many new segments one cycle expects: with so few in their
// transactions' order the database reads the index and not the past.
const mostFresh = 2000

const sqlFresh = `select id, xid::text::bigint, pool_id, project_id, member_id, class, milli_gpu, occupied_milli, first, last from usage_segments
	where class in ('funded', 'unfunded') and last > $1 and xid >= $2::text::xid8 order by xid`

func (c *closedSegment) fields() []any {
	g := &c.segment
	return []any{&c.id, &c.xid, &c.pool, &c.project, &c.member, &g.Class, &g.ChargedMilliGPU, &g.MilliGPU, &g.From, &g.To}
}

// queue asks for the occupancy of attempts that closed since the last snapshot.
func (u *usageView) queue(batch *pgx.Batch, now ledger.Instant) {
	u.fresh = u.fresh[:0]
	batch.Queue(sqlFresh+` limit $3`, now.Add(-u.spanMs), fmt.Sprint(u.mark), mostFresh).Query(each(&u.fresh, (*closedSegment).fields))
}

// complete reads everything when there was more, as in a leader's first snapshot.
func (u *usageView) complete(ctx context.Context, tx *Tx, now ledger.Instant) error {
	if len(u.fresh) < mostFresh {
		return nil
	}
	rows, err := tx.Query(ctx, sqlFresh, now.Add(-u.spanMs), fmt.Sprint(u.mark))
	if err != nil {
		return err
	}
	defer rows.Close()
	u.fresh = u.fresh[:0]
	return each(&u.fresh, (*closedSegment).fields)(rows)
}

// update brings the lookback to the snapshot's instant.
func (u *usageView) update(r *reading) {
	u.lookback.Advance(r.snap.Now)
	for i := range u.fresh {
		c := &u.fresh[i]
		if _, known := u.seen[c.id]; !known {
			u.lookback.Add(c.pool, c.project, c.member, c.segment)
			u.seen[c.id] = c.xid
		}
	}
	u.mark = r.xmin
	for id, xid := range u.seen {
		if xid < u.mark {
			delete(u.seen, id)
		}
	}
	now := make(map[ledger.AttemptID]liveUsage, len(r.runs))
	for i := range r.runs {
		run := &r.runs[i]
		now[run.Attempt] = liveUsage{run.Pool, run.Project, r.snap.Live[i].Job.Member, r.segments[i]}
	}
	for id, was := range u.live {
		if is, ok := now[id]; !ok || !slices.Equal(is.segments, was.segments) {
			was.each(u.lookback.Remove)
			delete(u.live, id)
		}
	}
	for id, is := range now {
		if _, ok := u.live[id]; !ok {
			is.each(u.lookback.Add)
			u.live[id] = is
		}
	}
}

func (l *liveUsage) each(do func(ledger.PoolID, ledger.GroupID, ledger.PersonID, scheduler.Segment)) {
	for _, g := range l.segments {
		do(l.pool, l.project, l.member, g)
	}
}
