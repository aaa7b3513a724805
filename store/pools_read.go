package store

import (
	"cmp"
	"context"
	"encoding/json"
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
	Down      int // dead, or on a lost node
	Waiting   int // jobs
	Running   int // attempts
}

// Idle is how many devices nobody holds.
func (p *PoolLine) Idle() int { return p.Devices - p.Funded - p.Unfunded - p.Ending - p.Down }

// Occupancy lists all pools by name with what they hold now.
func (s *Store) Occupancy(ctx context.Context) ([]PoolLine, error) {
	var out []PoolLine
	err := s.readTx(ctx, "occupancy", func(tx *Tx) error {
		var err error
		out, err = poolLines(ctx, tx, 0)
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
			(select count(*)::int from jobs j where j.pool_id = p.id and j.state = 'pending'),
			(select count(*)::int from attempts a where a.pool_id = p.id and a.phase <> 'closed')
		from pools p left join counted c on c.pool_id = p.id where $1 = 0 or p.id = $1 order by p.name`, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[PoolLine])
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
		left join (select project_id, count(*)::int as n, count(*) filter (where min_ms > 0)::int as funded, min(queue_seq) filter (where min_ms > 0) as head from jobs where pool_id = $1 and state = 'pending' group by project_id) w
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
	Queue      []JobLine      // in the order of the last cycle
	Live       []JobLine
	Fleet      []NodeLine
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
		if b.Queue, err = jobLines(ctx, tx, ` where j.pool_id = $1 and j.state = 'pending'
			order by nullif((r.reason ->> 'rank')::int, 0) nulls last, j.queue_seq, j.id limit $2`, id, mostQueued); err != nil {
			return err
		}
		if b.Live, err = jobLines(ctx, tx, ` where j.pool_id = $1 and j.state = 'live' order by j.id desc limit $2`, id, mostLive); err != nil {
			return err
		}
		b.Fleet, err = fleet(ctx, tx, fleetQuery{pool: id})
		return err
	})
	return b, err
}

func jobLines(ctx context.Context, tx *Tx, rest string, args ...any) ([]JobLine, error) {
	rows, err := tx.Query(ctx, sqlJobLine+rest, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanJobLine)
}

// NodeLine is one node with its devices and who holds them.
type NodeLine struct {
	ID          ledger.NodeID
	Name        string
	Pool        ledger.PoolID
	PoolName    string
	Topology    string
	CPUMilli    int64
	RAMMiB      int64
	BootID      string
	Version     string // of the agent
	Simulated   bool
	Enrolled    ledger.Instant
	Heartbeat   ledger.Instant // real time
	Health      string         // healthy, suspect, lost
	HealthSince ledger.Instant // real time
	HealthWhy   string
	Drain       string // "", soft, hard
	DrainSince  ledger.Instant
	DrainWhy    string
	DrainBy     string
	FrozenWhy   string // of its pool
	Devices     []DeviceLine
	Holders     []Holder // by attempt
}

// DeviceLine is one GPU of a node.
type DeviceLine struct {
	Index      int32
	UUID       string
	Model      string
	HBMMiB     int64
	Dead       bool
	UtilPct    int64
	HBMUsedMiB int64
	Seen       ledger.Instant // real time; 0: never
}

// Holder is an attempt's part on a node.
type Holder struct {
	Devices []int32
	Milli   int64 // per device
	Job     JobLine
}

// fleetQuery narrows a list of nodes; zero fields do not.
type fleetQuery struct {
	pool ledger.PoolID
	node ledger.NodeID
}

// Nodes lists every node that is not retired, by pool and name.
func (s *Store) Nodes(ctx context.Context) ([]NodeLine, error) {
	var out []NodeLine
	err := s.readTx(ctx, "nodes", func(tx *Tx) error {
		var err error
		out, err = fleet(ctx, tx, fleetQuery{})
		return err
	})
	return out, err
}

// NodeEvent is something people did to a node.
type NodeEvent struct {
	At     ledger.Instant
	By     string
	Verb   string
	Before []byte
	After  []byte
}

// NodeDetail is one node with what people did to it, newest first.
type NodeDetail struct {
	NodeLine
	Events []NodeEvent
}

// Node reads one node.
func (s *Store) Node(ctx context.Context, id ledger.NodeID) (NodeDetail, error) {
	var d NodeDetail
	err := s.readTx(ctx, "node", func(tx *Tx) error {
		nodes, err := fleet(ctx, tx, fleetQuery{node: id})
		if err != nil {
			return err
		}
		if len(nodes) == 0 || id == 0 {
			return refuse(ledger.Missing, "node.missing", "", "There is no such node.")
		}
		d = NodeDetail{NodeLine: nodes[0]}
		rows, err := tx.Query(ctx, `select a.at, coalesce(n.name, ''), a.verb, a.before, a.after from audit a
			left join person_names n on n.person_id = a.person_id where a.subject = $1 order by a.id desc limit 50`, subjectOf("node", id))
		if err != nil {
			return err
		}
		d.Events, err = pgx.CollectRows(rows, pgx.RowToStructByPos[NodeEvent])
		return err
	})
	return d, err
}

// fleet reads nodes, their devices and their holders: three statements, whatever the size.
func fleet(ctx context.Context, tx *Tx, q fleetQuery) ([]NodeLine, error) {
	const where = ` where n.retired_at is null and ($1 = 0 or n.pool_id = $1) and ($2 = 0 or n.id = $2)`
	rows, err := tx.Query(ctx, `select n.id, n.name, n.pool_id, p.name, n.topology, n.cpu_milli, n.ram_mib, n.boot_id, n.agent_version, n.simulated,
			n.enrolled_at, n.heartbeat_at, n.health, n.health_since, n.health_why, n.drain, n.drain_since, n.drain_why, coalesce(b.name, ''), p.frozen_why
		from nodes n join pools p on p.id = n.pool_id left join person_names b on b.person_id = n.drain_by`+where+` order by p.name, length(n.name), n.name`, q.pool, q.node)
	if err != nil {
		return nil, err
	}
	nodes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n NodeLine, err error) {
		return n, row.Scan(&n.ID, &n.Name, &n.Pool, &n.PoolName, &n.Topology, &n.CPUMilli, &n.RAMMiB, &n.BootID, &n.Version, &n.Simulated,
			&n.Enrolled, &n.Heartbeat, &n.Health, &n.HealthSince, &n.HealthWhy, &n.Drain, &n.DrainSince, &n.DrainWhy, &n.DrainBy, &n.FrozenWhy)
	})
	if err != nil {
		return nil, err
	}
	at := make(map[ledger.NodeID]*NodeLine, len(nodes))
	for i := range nodes {
		at[nodes[i].ID] = &nodes[i]
	}
	rows, err = tx.Query(ctx, `select d.node_id, d.idx, d.uuid, d.model, d.hbm_mib, d.dead, d.util_pct, d.hbm_used_mib, d.seen_at
		from devices d join nodes n on n.id = d.node_id`+where+` order by d.node_id, d.idx`, q.pool, q.node)
	if err != nil {
		return nil, err
	}
	var node ledger.NodeID
	var d DeviceLine
	_, err = pgx.ForEachRow(rows, []any{&node, &d.Index, &d.UUID, &d.Model, &d.HBMMiB, &d.Dead, &d.UtilPct, &d.HBMUsedMiB, &d.Seen}, func() error {
		at[node].Devices = append(at[node].Devices, d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return nodes, addHolders(ctx, tx, q, at)
}

// addHolders gives every node the attempts that are on it. A nominated attempt
// owns devices that others still hold; it is not on them yet.
func addHolders(ctx context.Context, tx *Tx, q fleetQuery, at map[ledger.NodeID]*NodeLine) error {
	rows, err := tx.Query(ctx, `select h.node_id, h.devices, h.gpu_milli, h.job_id from (
			select p.node_id, p.devices, p.gpu_milli, a.job_id, a.id from attempts a join placements p on p.attempt_id = a.id and not p.ended
			where a.phase in ('starting', 'running', 'ending')) h
		join nodes n on n.id = h.node_id where n.retired_at is null and ($1 = 0 or n.pool_id = $1) and ($2 = 0 or n.id = $2)
		order by h.id`, q.pool, q.node)
	if err != nil {
		return err
	}
	type part struct {
		node ledger.NodeID
		job  ledger.JobID
		h    Holder
	}
	parts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p part, err error) {
		return p, row.Scan(&p.node, &p.h.Devices, &p.h.Milli, &p.job)
	})
	if err != nil || len(parts) == 0 {
		return err
	}
	ids := make([]ledger.JobID, 0, len(parts))
	for _, p := range parts {
		ids = append(ids, p.job)
	}
	slices.Sort(ids)
	jobs, err := jobLines(ctx, tx, ` where j.id = any($1)`, slices.Compact(ids))
	if err != nil {
		return err
	}
	byID := make(map[ledger.JobID]JobLine, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j
	}
	for _, p := range parts {
		if n := at[p.node]; n != nil {
			p.h.Job = byID[p.job]
			n.Holders = append(n.Holders, p.h)
		}
	}
	return nil
}

// DrainOf reads what an audit line of a drain says; ok is false for other lines.
func (e *NodeEvent) DrainOf() (mode, why string, ok bool) {
	var d struct{ Mode, Why string }
	if e.Verb != "node.drain" || json.Unmarshal(e.After, &d) != nil {
		return "", "", false
	}
	return d.Mode, d.Why, true
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
