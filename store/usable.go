package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// loadFunds reads the funds of projects, sorted by project and pool. pool 0 means
// every pool; projects nil means every project. What has no lot has no funds and
// is left out.
func loadFunds(ctx context.Context, tx *Tx, projects []ledger.GroupID, pool ledger.PoolID) ([]ledger.Funds, error) {
	rows, err := tx.Query(ctx, `select l.id, l.project_id, l.pool_id, l.period_id, l.first, l.last, coalesce(b.balance, 0), g.path
		from lots l join groups g on g.id = l.project_id
		left join accounts a on (a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id) = ($4::smallint, l.pool_id, l.period_id, l.project_id, l.id)
		left join balances b on b.account_id = a.id
		where l.last > $1 and ($2::bigint[] is null or l.project_id = any($2)) and ($3 = 0 or l.pool_id = $3)
		order by l.project_id, l.pool_id, l.last, l.id`, tx.Now, projects, int64(pool), int16(ledger.Available))
	if err != nil {
		return nil, err
	}
	var out []ledger.Funds
	var lot ledger.Lot
	var path string
	_, err = pgx.ForEachRow(rows, []any{&lot.ID, &lot.Project, &lot.Pool, &lot.Period, &lot.First, &lot.Last, &lot.Available, &path}, func() error {
		if n := len(out); n == 0 || out[n-1].Project != lot.Project || out[n-1].Pool != lot.Pool {
			out = append(out, ledger.Funds{Project: lot.Project, Path: path, Pool: lot.Pool})
		}
		f := &out[len(out)-1]
		f.Lots = append(f.Lots, lot)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, addLimits(ctx, tx, out)
}

// addLimits gives every funds the counters of the overcommitted programs above it.
func addLimits(ctx context.Context, tx *Tx, funds []ledger.Funds) error {
	if len(funds) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `select l.program_id, g.path, l.pool_id, l.period_id, l.received, l.used
		from path_limits l join groups g on g.id = l.program_id join periods p on p.id = l.period_id
		where g.overcommit_ppm > 1000000 and p.last > $1 order by l.program_id, l.pool_id, l.period_id`, tx.Now)
	if err != nil {
		return err
	}
	limits, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.PathLimit, error) {
		var l ledger.PathLimit
		err := row.Scan(&l.Program, &l.Path, &l.Pool, &l.Period, &l.Limit, &l.Used)
		return l, err
	})
	if err != nil {
		return err
	}
	for i := range funds {
		for _, l := range limits {
			if l.Pool == funds[i].Pool && ledger.Covers(l.Path, funds[i].Path) {
				funds[i].Limits = append(funds[i].Limits, l)
			}
		}
	}
	return nil
}

// Usable is what a project may use in a pool now, and what limits it.
type Usable struct {
	Project   ledger.GroupID
	Title     string
	Path      string
	Pool      ledger.PoolID
	PoolName  string
	Amount    ledger.Amount
	LimitedBy string         // path of the binding group
	Until     ledger.Instant // end of the lot that ends first; 0: no lot now
	// Deliverable is what the project's share gives until that end, at most
	// Amount: an estimate.
	Deliverable ledger.Amount
	// What the lots valid now hold: set aside, used (net of credits), left.
	Held, Spent, Left ledger.Amount
}

// UsableBy lists what the given projects may use now, by path and pool. Projects
// without a lot are left out; nil lists every project.
func (s *Store) UsableBy(ctx context.Context, projects []ledger.GroupID) ([]Usable, error) {
	var out []Usable
	err := s.readTx(ctx, "usable", func(tx *Tx) error {
		out = nil
		funds, err := loadFunds(ctx, tx, projects, 0)
		if err != nil {
			return err
		}
		weights, err := projectWeights(ctx, tx)
		if err != nil {
			return err
		}
		for i := range funds {
			out = append(out, usableOf(tx.Now, &funds[i], weights[groupPool{funds[i].Project, funds[i].Pool}]))
		}
		if err := lotUse(ctx, tx, out); err != nil {
			return err
		}
		return nameUsable(ctx, tx, out)
	})
	return out, err
}

// lotUse fills in how far the lots valid now are used.
func lotUse(ctx context.Context, tx *Tx, list []Usable) error {
	projects := make([]int64, len(list))
	for i := range list {
		projects[i] = int64(list[i].Project)
	}
	rows, err := tx.Query(ctx, `select l.project_id, l.pool_id,
			coalesce(sum(b.balance) filter (where a.kind = $3), 0)::bigint,
			coalesce(sum(b.balance) filter (where a.kind = any($4)), 0)::bigint,
			coalesce(sum(b.balance) filter (where a.kind = $5), 0)::bigint
		from lots l join accounts a on a.lot_id = l.id join balances b on b.account_id = a.id
		where l.first <= $1 and l.last > $1 and l.project_id = any($2) group by l.project_id, l.pool_id`,
		tx.Now, projects, int16(ledger.Held), []int16{int16(ledger.Spent), int16(ledger.Credit)}, int16(ledger.Available))
	if err != nil {
		return err
	}
	var at groupPool
	var held, spent, left ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&at.group, &at.pool, &held, &spent, &left}, func() error {
		for i := range list {
			if list[i].Project == at.group && list[i].Pool == at.pool {
				list[i].Held, list[i].Spent, list[i].Left = held, spent, left
			}
		}
		return nil
	})
	return err
}

func usableOf(now ledger.Instant, f *ledger.Funds, microGPU int64) Usable {
	u := Usable{Project: f.Project, Path: f.Path, Pool: f.Pool}
	u.Amount, u.LimitedBy = f.Usable(now)
	for _, lot := range f.Lots {
		if lot.ValidAt(now) && (u.Until == 0 || lot.Last < u.Until) {
			u.Until = lot.Last
		}
	}
	if u.Until != 0 {
		// micro-GPU × seconds ÷ 1,000 is milli-GPU-seconds: units.
		if most, err := ledger.Amount(microGPU).MulRatio(u.Until.MillisSince(now)/1000, 1000); err == nil {
			u.Deliverable = min(u.Amount, most)
		}
	}
	return u
}

// nameUsable fills in the names of projects and pools.
func nameUsable(ctx context.Context, tx *Tx, list []Usable) error {
	rows, err := tx.Query(ctx, `select 'g', id, title from groups where kind = 'project' union all select 'p', id, name from pools`)
	if err != nil {
		return err
	}
	titles, pools := map[ledger.GroupID]string{}, map[ledger.PoolID]string{}
	var kind, name string
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &id, &name}, func() error {
		if kind == "g" {
			titles[ledger.GroupID(id)] = name
		} else {
			pools[ledger.PoolID(id)] = name
		}
		return nil
	})
	for i := range list {
		list[i].Title, list[i].PoolName = titles[list[i].Project], pools[list[i].Pool]
	}
	return err
}

// groupPool names a group in a pool.
type groupPool struct {
	group ledger.GroupID
	pool  ledger.PoolID
}

// projectWeights gives each project's share in micro-GPU: what its lots that are
// not over were awarded, spread over their period. Without a lot it is 0.
func projectWeights(ctx context.Context, tx *Tx) (map[groupPool]int64, error) {
	rows, err := tx.Query(ctx, `select l.project_id, l.pool_id, sum(l.amount)::bigint, p.first, p.last
		from lots l join periods p on p.id = l.period_id
		where p.first <= $1 and p.last > $1 and l.last > $1 group by l.project_id, l.pool_id, p.id`, tx.Now)
	if err != nil {
		return nil, err
	}
	return collectWeights(rows)
}

// programWeights gives each program's share in micro-GPU: what its pot received
// for the present period, awarded on or not, whatever its overcommit factor.
func programWeights(ctx context.Context, tx *Tx) (map[groupPool]int64, error) {
	rows, err := tx.Query(ctx, `select r.group_id, r.pool_id, r.received, p.first, p.last from (`+sqlReceived+`) r
		join periods p on p.id = r.period_id where p.first <= $1 and p.last > $1`, tx.Now)
	if err != nil {
		return nil, err
	}
	return collectWeights(rows)
}

func collectWeights(rows pgx.Rows) (map[groupPool]int64, error) {
	out := map[groupPool]int64{}
	var key groupPool
	var given ledger.Amount
	var p ledger.Period
	_, err := pgx.ForEachRow(rows, []any{&key.group, &key.pool, &given, &p.First, &p.Last}, func() error {
		out[key] += ledger.Weight(given, p.Seconds())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	return out, nil
}

// sqlReceived is what every program's pot received per pool and period: the
// root from the supply, the others by the newest split of their parent.
const sqlReceived = `select g.id as group_id, y.pool_id, y.period_id, y.amount as received
		from period_supply y, groups g where g.parent_id is null
	union all
	select sp.child_id, s.pool_id, s.period_id, sp.amount
		from splits s join split_parts sp on sp.split_id = s.id join groups g on g.id = sp.child_id and g.kind = 'program'
		where s.version = (select max(n.version) from splits n
			where (n.program_id, n.pool_id, n.period_id) = (s.program_id, s.pool_id, s.period_id))`
