package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// PoolLine is one pool with its occupancy, in devices.
type PoolLine struct {
	ID        ledger.PoolID
	Name      string
	Model     string // of its devices; "" for a CPU-only pool
	RatePPM   int64
	NodeGPUs  int64
	FrozenAt  ledger.Instant
	FrozenWhy string
	Nodes     int
	Devices   int
	Funded    int
	Unfunded  int
	Ending    int
	Down      int       // dead, or on a lost node
	Waiting   int       // jobs
	Running   int       // attempts
	Gauge     *GaugeRow // the last; nil = none, or too old to say how it is now
}

// Idle is how many devices nobody holds.
func (p *PoolLine) Idle() int { return p.Devices - p.Funded - p.Unfunded - p.Ending - p.Down }

// Occupancy lists all pools by name with what they hold now.
func (s *Store) Occupancy(ctx context.Context) ([]PoolLine, error) {
	var out []PoolLine
	err := s.readTx(ctx, "occupancy", func(tx *Tx) error {
		var err error
		if out, err = poolLines(ctx, tx, 0); err != nil {
			return err
		}
		last, err := lastGauges(ctx, tx, 0)
		for i := range out {
			if row, ok := last[out[i].ID]; ok {
				out[i].Gauge = &row
			}
		}
		return err
	})
	return out, err
}

// poolLines reads one pool, or all with id 0. A device that several jobs share
// counts once, as the best of them.
func poolLines(ctx context.Context, tx *Tx, id ledger.PoolID) ([]PoolLine, error) {
	rows, err := tx.Query(ctx, `with held as (
			select p.node_id, d.idx, min(case when a.phase = 'ending' then 3 when a.funded then 1 else 2 end) as class
			from attempts a join placements p on p.attempt_id = a.id and not p.ended, unnest(p.devices) d (idx)
			where a.phase in ('starting', 'running', 'ending') and ($1 = 0 or a.pool_id = $1) group by p.node_id, d.idx),
		fleet as (
			select n.pool_id, n.id as node_id, d.idx, h.class, d.dead or n.health = 'lost' as down
			from nodes n left join devices d on d.node_id = n.id left join held h on h.node_id = n.id and h.idx = d.idx
			where n.retired_at is null),
		counted as (
			select pool_id, count(distinct node_id)::int as nodes, count(idx)::int as devices,
				count(*) filter (where class = 1)::int as funded, count(*) filter (where class = 2)::int as unfunded,
				count(*) filter (where class = 3)::int as ending, count(idx) filter (where class is null and down)::int as down
			from fleet group by pool_id)
		select p.id, p.name, p.gpu_model, p.rate_ppm, p.node_gpus, p.frozen_at, p.frozen_why,
			coalesce(c.nodes, 0), coalesce(c.devices, 0), coalesce(c.funded, 0), coalesce(c.unfunded, 0), coalesce(c.ending, 0), coalesce(c.down, 0),
			(select count(*)::int from jobs j where j.pool_id = p.id and j.state = 'pending' and not j.blocked),
			(select count(*)::int from attempts a where a.pool_id = p.id and a.phase not in ('reserved', 'closed'))
		from pools p left join counted c on c.pool_id = p.id where $1 = 0 or p.id = $1 order by p.name`, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p PoolLine, err error) {
		return p, row.Scan(&p.ID, &p.Name, &p.Model, &p.RatePPM, &p.NodeGPUs, &p.FrozenAt, &p.FrozenWhy, &p.Nodes, &p.Devices,
			&p.Funded, &p.Unfunded, &p.Ending, &p.Down, &p.Waiting, &p.Running)
	})
}

// StandingLine is one group's standing in a pool with what names and orders it.
type StandingLine struct {
	scheduler.Standing
	Parent  ledger.GroupID
	Path    string
	Title   string
	Project bool
	Waiting int   // jobs waiting for the pool in it or below
	Funded  int   // of them, those that the standings order; the others come after all of these
	Head    int64 // least queue_seq among the funded ones; 0: none
}

// standingsOf reads the standings that the last cycle sorted by, by path. Counts
// of waiting jobs are as they are now.
func standingsOf(ctx context.Context, tx *Tx, pool ledger.PoolID) ([]StandingLine, error) {
	rows, err := tx.Query(ctx, `select g.id, coalesce(g.parent_id, 0), g.path, g.title, g.kind = 'project',
			coalesce(s.usage, 0), coalesce(s.commitment, 0), coalesce(s.micro_gpu, 0), coalesce(w.n, 0), coalesce(w.funded, 0), coalesce(w.head, 0)
		from groups g left join standings s on s.group_id = g.id and s.pool_id = $1
		left join (select project_id, count(*)::int as n, count(*) filter (where min_ms > 0)::int as funded, min(queue_seq) filter (where min_ms > 0) as head from jobs where pool_id = $1 and state = 'pending' and not blocked group by project_id) w
			on w.project_id = g.id
		where g.parent_id is not null and (s.group_id is not null or w.n > 0 or g.kind = 'program') order by g.path`, pool)
	if err != nil {
		return nil, err
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l StandingLine, err error) {
		l.Pool = pool
		return l, row.Scan(&l.Group, &l.Parent, &l.Path, &l.Title, &l.Project, &l.Usage, &l.Commitment, &l.MicroGPU, &l.Waiting, &l.Funded, &l.Head)
	})
	if err != nil {
		return nil, err
	}
	addUp(out)
	return slices.DeleteFunc(out, func(l StandingLine) bool {
		return l.Waiting == 0 && l.MicroGPU == 0 && l.Usage == 0 && l.Commitment == 0
	}), nil
}

// addUp gives programs what waits below them.
func addUp(lines []StandingLine) {
	at := make(map[ledger.GroupID]int, len(lines))
	for i := range lines {
		at[lines[i].Group] = i
	}
	for i := range lines {
		l := &lines[i]
		if !l.Project || l.Waiting == 0 {
			continue
		}
		for up, ok := at[l.Parent]; ok; up, ok = at[lines[up].Parent] {
			p := &lines[up]
			p.Waiting += l.Waiting
			p.Funded += l.Funded
			if l.Head != 0 && (p.Head == 0 || l.Head < p.Head) {
				p.Head = l.Head
			}
		}
	}
}

// CompareStandings orders siblings as the dispatcher serves them: least
// standing, larger share, oldest funded head, id. Who has none waiting is after
// those who do only where all else is equal.
func CompareStandings(a, b StandingLine) int {
	head := func(l StandingLine) int64 {
		if l.Head == 0 {
			return 1<<63 - 1
		}
		return l.Head
	}
	return cmp.Or(a.Compare(b.Standing), cmp.Compare(b.MicroGPU, a.MicroGPU), cmp.Compare(head(a), head(b)), cmp.Compare(a.Group, b.Group))
}

// Board is one pool: who is next, the queue in order, what runs.
type Board struct {
	PoolLine
	Standings  []StandingLine
	StandingAt ledger.Instant // of the cycle that left them; 0: none yet
	Reserved   *Promise       // the pool's reserved start
	Queue      []JobLine      // in the order of the last cycle
	Live       []JobLine
	LiveNodes  [][]string // names, by place in Live
	Fleet      NodePage   // its first nodes
	Gauges     PoolGauges
	Policy     scheduler.Policy
}

// Bounds of a pool's page.
const (
	mostQueued = 100
	mostLive   = 200
)

// PoolBoard reads one pool's page.
func (s *Store) PoolBoard(ctx context.Context, id ledger.PoolID) (Board, error) {
	var b Board
	err := s.readTx(ctx, "pool board", func(tx *Tx) error {
		lines, err := poolLines(ctx, tx, id)
		if err != nil {
			return err
		}
		if len(lines) == 0 || id == 0 {
			return refuse(ledger.Missing, "pool.missing", "", "There is no such pool.")
		}
		b = Board{PoolLine: lines[0]}
		if b.Policy, err = loadPolicy(ctx, tx); err != nil {
			return err
		}
		if b.Standings, err = standingsOf(ctx, tx, id); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `select max(at) from standings where pool_id = $1`, id).Scan(&b.StandingAt); err != nil {
			return err
		}
		if b.Reserved, err = promiseIn(ctx, tx, id); err != nil {
			return err
		}
		// The order is found on narrow rows first: the queue may be long.
		if b.Queue, err = jobLines(ctx, tx, ` join (select q.id, row_number() over (order by w.rank nulls last, q.queue_seq, q.id) as place
				from jobs q left join job_reasons w on w.job_id = q.id where q.pool_id = $1
					and (q.state = 'pending' and not q.blocked or q.id in (select job_id from attempts where pool_id = $1 and phase = 'reserved')) order by place limit $2) f on f.id = j.id
			order by f.place`, id, mostQueued); err != nil {
			return err
		}
		if b.Live, err = jobLines(ctx, tx, ` where j.pool_id = $1 and j.state = 'live' and a.phase <> 'reserved' order by j.id desc limit $2`, id, mostLive); err != nil {
			return err
		}
		if err := b.nameNodes(ctx, tx); err != nil {
			return err
		}
		if b.Gauges, err = poolGauges(ctx, tx, id); err != nil {
			return err
		}
		b.Fleet, err = fleet(ctx, tx, NodeQuery{Pool: b.Name, Limit: nodesPage})
		return err
	})
	return b, err
}

// nameNodes finds where the live jobs run.
func (b *Board) nameNodes(ctx context.Context, tx *Tx) error {
	ids, place := make([]ledger.AttemptID, 0, len(b.Live)), map[ledger.JobID]int{}
	for i := range b.Live {
		if last := b.Live[i].Last; last != nil {
			ids = append(ids, last.ID)
		}
		place[b.Live[i].ID] = i
	}
	rows, err := tx.Query(ctx, `select a.job_id, n.name from placements p join attempts a on a.id = p.attempt_id join nodes n on n.id = p.node_id
		where p.attempt_id = any($1) order by p.attempt_id, p.rank`, ids)
	if err != nil {
		return err
	}
	b.LiveNodes = make([][]string, len(b.Live))
	var job ledger.JobID
	var name string
	_, err = pgx.ForEachRow(rows, []any{&job, &name}, func() error {
		at := place[job]
		b.LiveNodes[at] = append(b.LiveNodes[at], name)
		return nil
	})
	return err
}

func jobLines(ctx context.Context, tx *Tx, rest string, args ...any) ([]JobLine, error) {
	rows, err := tx.Query(ctx, sqlJobLine+rest, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanJobLine)
}

// PolicyNow gives the newest policy.
func (s *Store) PolicyNow(ctx context.Context) (scheduler.Policy, error) {
	var p scheduler.Policy
	err := s.readTx(ctx, "policy", func(tx *Tx) error {
		var err error
		if p, err = loadPolicy(ctx, tx); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
		return nil
	})
	return p, err
}
