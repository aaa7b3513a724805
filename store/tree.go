package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// GroupUse is what a project's lots of one pool and period hold together.
type GroupUse struct {
	Given     ledger.Amount // awarded and split
	Available ledger.Amount
	Held      ledger.Amount
	Spent     ledger.Amount // net of credits
	Expired   ledger.Amount
}

func (u *GroupUse) add(o GroupUse) {
	u.Given += o.Given
	u.Available += o.Available
	u.Held += o.Held
	u.Spent += o.Spent
	u.Expired += o.Expired
}

// TreeRow is one group of the tree in one pool.
type TreeRow struct {
	Group
	Leads      []string // names of PIs or managers
	Received   ledger.Amount
	Use        GroupUse // of a program: everything below it
	SharePPM   int64    // of its siblings; 0 without a share
	Weight     int64    // micro-GPU
	Standing   scheduler.Standing
	StandingAt ledger.Instant // 0: the dispatcher has not looked yet
	Running    int64          // milli-GPUs
	Waiting    int64          // jobs
}

// Tree lists living groups in preorder with their budget, use and standing in
// one pool and period.
func (s *Store) Tree(ctx context.Context, pool ledger.PoolID, period ledger.PeriodID) ([]TreeRow, error) {
	var out []TreeRow
	err := s.readTx(ctx, "tree", func(tx *Tx) error {
		var err error
		if out, err = treeRows(ctx, tx, pool, period); err != nil {
			return err
		}
		weights, err := projectWeights(ctx, tx)
		if err != nil {
			return err
		}
		programs, err := programWeights(ctx, tx)
		if err != nil {
			return err
		}
		sumUp(out, pool, weights, programs)
		return nil
	})
	return out, err
}

func treeRows(ctx context.Context, tx *Tx, pool ledger.PoolID, period ledger.PeriodID) ([]TreeRow, error) {
	rows, err := tx.Query(ctx, `select `+groupColumns+`,
			coalesce((select array_agg(distinct n.name) from role_grants r join person_names n on n.person_id = r.person_id
				where r.group_id = g.id and r.revoked_at is null and (r.until is null or r.until > $3)
					and r.role = case when g.kind = 'project' then 'pi' else 'manager' end), '{}'),
			coalesce(c.received, 0), coalesce(l.given, 0), coalesce(u.available, 0), coalesce(u.held, 0), coalesce(u.spent, 0), coalesce(u.expired, 0),
			coalesce(t.usage, 0), coalesce(t.commitment, 0), coalesce(t.micro_gpu, 0), t.at,
			coalesce((select sum(a.milli_gpu) from attempts a where a.project_id = g.id and a.pool_id = $1 and a.phase in ('starting', 'running', 'ending')), 0)::bigint,
			(select count(*) from jobs j where j.project_id = g.id and j.pool_id = $1 and j.state = 'pending' and not j.blocked)
		from groups g
		left join (`+sqlReceived+`) c on c.group_id = g.id and c.pool_id = $1 and c.period_id = $2
		left join (select project_id, sum(amount)::bigint as given from lots where pool_id = $1 and period_id = $2 group by 1) l on l.project_id = g.id
		left join (select a.group_id,
				sum(b.balance) filter (where a.kind = $4)::bigint as available, sum(b.balance) filter (where a.kind = $5)::bigint as held,
				sum(b.balance) filter (where a.kind in ($6, $7))::bigint as spent, sum(b.balance) filter (where a.kind = $8)::bigint as expired
			from accounts a join balances b on b.account_id = a.id where a.pool_id = $1 and a.period_id = $2 and a.lot_id <> 0 group by 1) u on u.group_id = g.id
		left join standings t on t.pool_id = $1 and t.group_id = g.id
		where g.archived_at is null order by string_to_array(g.path, '/')`, int64(pool), int64(period), tx.Now,
		int16(ledger.Available), int16(ledger.Held), int16(ledger.Spent), int16(ledger.Credit), int16(ledger.Expired))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (TreeRow, error) {
		var r TreeRow
		err := row.Scan(append(r.fields(), &r.Leads, &r.Received, &r.Use.Given, &r.Use.Available, &r.Use.Held, &r.Use.Spent, &r.Use.Expired,
			&r.Standing.Usage, &r.Standing.Commitment, &r.Standing.MicroGPU, &r.StandingAt, &r.Running, &r.Waiting)...)
		if err != nil {
			return r, fmt.Errorf("tree: %w", err)
		}
		return r, nil
	})
}

// sumUp adds every group's use to its ancestors and gives each its share of its
// siblings. rows are in preorder, so children follow their parents.
func sumUp(rows []TreeRow, pool ledger.PoolID, projects, programs map[groupPool]int64) {
	at := make(map[ledger.GroupID]int, len(rows))
	siblings := map[ledger.GroupID]int64{}
	for i := range rows {
		r := &rows[i]
		at[r.ID] = i
		r.Weight = projects[groupPool{r.ID, pool}]
		if !r.Project {
			r.Weight = programs[groupPool{r.ID, pool}]
		}
		siblings[r.Parent] += r.Weight
	}
	for i := len(rows) - 1; i >= 0; i-- {
		r := &rows[i]
		if sum := siblings[r.Parent]; sum > 0 {
			r.SharePPM = r.Weight * 1_000_000 / sum
		}
		if p, ok := at[r.Parent]; ok && r.Parent != 0 {
			rows[p].Use.add(r.Use)
			rows[p].Running += r.Running
			rows[p].Waiting += r.Waiting
		}
	}
}

// sqlOccupied is what project $1 occupied in [$2, $3), funded or not, in units:
// milli-GPUs × seconds. What runs is recorded up to recorded_until; the rest lies
// between that and $3.
const sqlOccupied = `select member_id, pool_id, trunc(milli_gpu * extract(epoch from least(last, $3) - greatest(first, $2))) as units
		from usage_segments where project_id = $1 and class in ('funded', 'unfunded') and last > $2 and first < $3
	union all
	select j.member_id, a.pool_id, trunc(a.milli_gpu * extract(epoch from $3 - greatest(coalesce(a.recorded_until, a.started_at), $2)))
		from attempts a join jobs j on j.id = a.job_id
		where a.project_id = $1 and a.phase = 'running' and a.started_at is not null and coalesce(a.recorded_until, a.started_at) < $3`

// MemberUse is what each member of a project occupied within the lookback,
// funded and not, as if charged at rate 1.000.
func (s *Store) MemberUse(ctx context.Context, project ledger.GroupID) (map[ledger.PersonID]ledger.Amount, error) {
	policy, err := s.PolicyNow(ctx)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	rows, err := s.pool.Query(ctx, `select member_id, sum(units)::bigint from (`+sqlOccupied+`) o group by member_id`,
		int64(project), now.Add(-policy.LookbackMs), now)
	if err != nil {
		return nil, fmt.Errorf("store: member use: %w", err)
	}
	out := map[ledger.PersonID]ledger.Amount{}
	var person ledger.PersonID
	var used ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&person, &used}, func() error {
		out[person] = used
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: member use: %w", err)
	}
	return out, nil
}

// PoolUse is what a project occupied in one pool within the lookback, funded and
// not, as if charged at rate 1.000.
func (s *Store) PoolUse(ctx context.Context, project ledger.GroupID, pool ledger.PoolID) (ledger.Amount, error) {
	policy, err := s.PolicyNow(ctx)
	if err != nil {
		return 0, err
	}
	now := s.Now()
	var used ledger.Amount
	err = s.pool.QueryRow(ctx, `select coalesce(sum(units), 0)::bigint from (`+sqlOccupied+`) o where pool_id = $4`,
		int64(project), now.Add(-policy.LookbackMs), now, int64(pool)).Scan(&used)
	if err != nil {
		return 0, fmt.Errorf("store: pool use: %w", err)
	}
	return used, nil
}
