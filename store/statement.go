package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// LotBalance is one lot as the books have it. Running is usage of live attempts
// that is proven but not posted yet; it is a part of Held.
type LotBalance struct {
	ledger.Lot // Available: not set aside; where the lot is over, it has expired
	PoolName   string
	PeriodName string
	Kind       string           // award, split or bridge
	Request    ledger.RequestID // the request that was awarded; 0: none
	Awarded    ledger.Amount
	Held       ledger.Amount
	Running    ledger.Amount
	Spent      ledger.Amount // gross
	Credited   ledger.Amount // corrections in the project's favour, ≥ 0
	Expired    ledger.Amount // booked as expired: what came back after the lot's end
}

// PoolBalance sums up a project's lots in one pool.
type PoolBalance struct {
	Pool      ledger.PoolID
	PoolName  string
	Awarded   ledger.Amount
	Available ledger.Amount // of lots that are not over
	Held      ledger.Amount
	Running   ledger.Amount
	Spent     ledger.Amount // net of credits, with Overrun
	Expired   ledger.Amount
	Overrun   ledger.Amount // usage beyond every lot, net of credits
	Usable    ledger.Amount // could be set aside now
	LimitedBy string        // the binding group
	// Asked is the GPU-time (at rate 1.000) that attempts which ended since
	// Statement.AskedSince asked to be protected for, Ran the part of it they used.
	Asked, Ran ledger.Amount
}

// OpenAttempt is an attempt that occupies devices or holds budget now.
type OpenAttempt struct {
	Attempt        ledger.AttemptID
	Job            ledger.JobID
	N              int
	Name           string
	Pool           ledger.PoolID
	PoolName       string
	Nodes, GPUs    int64 // GPUs per node
	Phase          string
	Funded         bool
	StartedAt      ledger.Instant // 0: not claimed yet
	ProtectedUntil ledger.Instant
	Price          ledger.Price
	HoldUntilMs    int64
	Charged        ledger.Amount
	Held           ledger.Amount
	Running        ledger.Amount
}

// Statement is a project's ledger at one instant.
type Statement struct {
	Group Group
	At    ledger.Instant
	Past  bool // As of an earlier instant: Running, Open and limits are not known then
	Pools []PoolBalance
	Lots  []LotBalance
	Open  []OpenAttempt
	// AskedSince is from when on PoolBalance.Asked counts: the period's first instant.
	AskedSince ledger.Instant
}

// Statement gives a project's ledger now (at 0) or as of a past instant, with
// everything booked at or before it.
func (s *Store) Statement(ctx context.Context, project ledger.GroupID, at ledger.Instant) (Statement, error) {
	var out Statement
	err := s.readTx(ctx, "statement", func(tx *Tx) (err error) {
		out = Statement{At: tx.Now}
		if at != 0 && at < tx.Now {
			out.At, out.Past = at, true
		}
		if out.Group, err = groupByID(ctx, tx, project); err != nil {
			return err
		}
		if err = out.loadLots(ctx, tx); err != nil {
			return err
		}
		if !out.Past {
			if err = out.loadOpen(ctx, tx); err != nil {
				return err
			}
		}
		if err = out.sumUp(ctx, tx); err != nil {
			return err
		}
		return out.loadProtection(ctx, tx)
	})
	return out, err
}

// sqlNow and sqlPast give the balances of a project's accounts.
const (
	sqlNow  = `select a.id, a.kind, a.pool_id, a.lot_id, b.balance from accounts a join balances b on b.account_id = a.id where a.group_id = $1`
	sqlPast = `select a.id, a.kind, a.pool_id, a.lot_id, (
			coalesce((select sum(t.amount) from transfers t join entries e on e.id = t.entry_id where t.credit = a.id and e.at <= $2), 0)
			- coalesce((select sum(t.amount) from transfers t join entries e on e.id = t.entry_id where t.debit = a.id and e.at <= $2), 0))::bigint as balance
		from accounts a where a.group_id = $1`
)

func (st *Statement) loadLots(ctx context.Context, tx *Tx) error {
	balances, args := sqlNow, []any{st.Group.ID}
	if st.Past {
		balances, args = sqlPast, []any{st.Group.ID, st.At}
	}
	sum := func(kind ledger.AccountKind) string {
		return `coalesce(sum(b.balance) filter (where b.kind = ` + decimal(int64(kind)) + `), 0)::bigint`
	}
	rows, err := tx.Query(ctx, `with b as (`+balances+`)
		select l.id, l.project_id, l.pool_id, l.period_id, l.first, l.last, p.name, per.name, l.kind, coalesce(l.request_id, 0), l.amount,
			`+sum(ledger.Available)+`, `+sum(ledger.Held)+`, `+sum(ledger.Spent)+`, -`+sum(ledger.Credit)+`, `+sum(ledger.Expired)+`
		from lots l join pools p on p.id = l.pool_id join periods per on per.id = l.period_id
		left join b on b.lot_id = l.id
		where l.project_id = $1 and l.created_at <= $`+decimal(int64(len(args)+1))+`
		group by l.id, p.name, per.name order by p.name, l.last, l.id`, append(args, st.At)...)
	if err != nil {
		return err
	}
	var l LotBalance
	_, err = pgx.ForEachRow(rows, []any{
		&l.ID, &l.Project, &l.Pool, &l.Period, &l.First, &l.Last, &l.PoolName, &l.PeriodName, &l.Kind, &l.Request,
		&l.Awarded, &l.Available, &l.Held, &l.Spent, &l.Credited, &l.Expired,
	}, func() error {
		st.Lots = append(st.Lots, l)
		return nil
	})
	return err
}

// loadOpen reads live attempts with what they hold, and finds what of it is
// used already: charges are posted later than usage is proven.
func (st *Statement) loadOpen(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `select a.id, a.job_id, a.n, j.name, a.pool_id, p.name, j.nodes, j.gpus, a.phase, a.funded, a.started_at, a.protected_until,
			a.milli_gpu, a.rate_ppm, a.past_ppm, a.price_turns, a.hold_until_ms, a.charged, a.charged_ms, least(a.proven_ms, a.hold_until_ms),
			coalesce(h.lots, '{}'), coalesce(h.rests, '{}')
		from attempts a join jobs j on j.id = a.job_id join pools p on p.id = a.pool_id
		left join lateral (select array_agg(lot_id order by n) as lots, array_agg(amount - spent - released order by n) as rests
			from hold_pieces where attempt_id = a.id) h on true
		where a.project_id = $1 and a.phase <> 'closed' order by a.id`, st.Group.ID)
	if err != nil {
		return err
	}
	var o OpenAttempt
	var chargedMs, provenMs int64
	var lots []ledger.LotID
	var rests []ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{
		&o.Attempt, &o.Job, &o.N, &o.Name, &o.Pool, &o.PoolName, &o.Nodes, &o.GPUs, &o.Phase, &o.Funded, &o.StartedAt, &o.ProtectedUntil,
		&o.Price.Rate.MilliGPU, &o.Price.Rate.PPM, &o.Price.Past.PPM, &o.Price.Past.Turns, &o.HoldUntilMs, &o.Charged, &chargedMs, &provenMs, &lots, &rests,
	}, func() error {
		due := max(0, o.Price.Cum(provenMs)-o.Price.Cum(chargedMs))
		o.Held, o.Running = 0, 0
		for i, rest := range rests {
			part := min(due, rest)
			due -= part
			o.Held += rest
			o.Running += part
			if n := slices.IndexFunc(st.Lots, func(l LotBalance) bool { return l.ID == lots[i] }); n >= 0 {
				st.Lots[n].Running += part
			}
		}
		st.Open = append(st.Open, o)
		return nil
	})
	return err
}

// sumUp adds the lots up per pool, finds the overrun and what is usable.
func (st *Statement) sumUp(ctx context.Context, tx *Tx) error {
	funds := map[ledger.PoolID]*ledger.Funds{}
	for _, l := range st.Lots {
		p := st.pool(l.Pool, l.PoolName)
		f := funds[l.Pool]
		if f == nil {
			f = &ledger.Funds{Project: st.Group.ID, Path: st.Group.Path, Pool: l.Pool}
			funds[l.Pool] = f
		}
		f.Lots = append(f.Lots, l.Lot)
		p.Awarded += l.Awarded
		p.Held += l.Held
		p.Running += l.Running
		p.Spent += l.Spent - l.Credited
		p.Expired += l.Expired
		if l.Last > st.At {
			p.Available += l.Available
		} else {
			p.Expired += l.Available
		}
	}
	if err := st.loadOverrun(ctx, tx); err != nil {
		return err
	}
	if !st.Past {
		if err := st.loadLimits(ctx, tx, funds); err != nil {
			return err
		}
	}
	for i := range st.Pools {
		if f := funds[st.Pools[i].Pool]; f != nil {
			st.Pools[i].Usable, st.Pools[i].LimitedBy = f.Usable(st.At)
		}
	}
	return nil
}

// pool finds or begins the sum of a pool.
func (st *Statement) pool(id ledger.PoolID, name string) *PoolBalance {
	i := slices.IndexFunc(st.Pools, func(p PoolBalance) bool { return p.Pool == id })
	if i < 0 {
		i = len(st.Pools)
		st.Pools = append(st.Pools, PoolBalance{Pool: id, PoolName: name})
	}
	return &st.Pools[i]
}

func (st *Statement) loadOverrun(ctx context.Context, tx *Tx) error {
	balances, args := sqlNow, []any{st.Group.ID}
	if st.Past {
		balances, args = sqlPast, []any{st.Group.ID, st.At}
	}
	rows, err := tx.Query(ctx, `with b as (`+balances+`) select b.pool_id, p.name, -b.balance from b join pools p on p.id = b.pool_id
		where b.kind = `+decimal(int64(ledger.Overrun))+` and b.balance <> 0 order by p.name`, args...)
	if err != nil {
		return err
	}
	var pool ledger.PoolID
	var name string
	var overrun ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&pool, &name, &overrun}, func() error {
		p := st.pool(pool, name)
		p.Overrun = overrun
		p.Spent += overrun
		return nil
	})
	return err
}

// loadLimits adds the counters of the project's overcommitted ancestors.
func (st *Statement) loadLimits(ctx context.Context, tx *Tx, funds map[ledger.PoolID]*ledger.Funds) error {
	rows, err := tx.Query(ctx, `select l.program_id, g.path, l.pool_id, l.period_id, l.received, l.used
		from path_limits l join groups g on g.id = l.program_id
		where starts_with($1, rtrim(g.path, '/') || '/') order by l.program_id, l.pool_id, l.period_id`, st.Group.Path)
	if err != nil {
		return err
	}
	var l ledger.PathLimit
	_, err = pgx.ForEachRow(rows, []any{&l.Program, &l.Path, &l.Pool, &l.Period, &l.Limit, &l.Used}, func() error {
		if f := funds[l.Pool]; f != nil {
			f.Limits = append(f.Limits, l)
		}
		return nil
	})
	return err
}
