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
	DrainBy     string          // "" when its own health checks did
	Degraded    ledger.Instant  // real time; 0 = not: its health checks say that something is wrong
	CheckLast   scheduler.Check // of its last health check
	CheckWhy    string
	CheckBadWhy string         // of the last bad one
	MaintFrom   ledger.Instant // planned maintenance; 0 = none
	MaintUntil  ledger.Instant // 0 = open
	MaintWhy    string
	RepairAsked ledger.Instant // the repair hook of this drain or maintenance
	RepairDone  ledger.Instant
	Repaired    string // how it ended
	FrozenWhy   string // of its pool
	NetMbps     int64  // offered; 0 = none
	StoMbps     int64  // MB/s
	Flow        NodeFlow
	Storage     StorageLine
	Devices     []DeviceLine
	Holders     []Holder // by attempt
}

// StorageLine is what a node's storage hook says, and what that has led to.
type StorageLine struct {
	Hook     bool
	At       ledger.Instant // real time, of the last run; 0 = it has not run yet
	Said     *int64         // by the last run that worked, millionths of nominal; nil = none has
	Failed   string         // why the last run said nothing
	MeanPPM  int64
	Degraded ledger.Instant // real time; 0 = not
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

// NodeQuery narrows a list of nodes; zero fields do not.
type NodeQuery struct {
	Pool  string // name
	Node  ledger.NodeID
	After ledger.NodeID // go on after this one
	Limit int           // 0: 100; at most 1,000
}

// Bounds of one page of nodes.
const (
	nodesPage  = 100
	mostListed = 1000
)

// NodePage is one keyset page of nodes that are not retired, by pool and name.
type NodePage struct {
	Nodes     []NodeLine
	More      bool
	All       int // under the same filter, whatever the page
	Unhealthy int // of them
}

// Nodes lists nodes with their devices and who holds them.
func (s *Store) Nodes(ctx context.Context, q NodeQuery) (NodePage, error) {
	var page NodePage
	if q.Limit <= 0 {
		q.Limit = nodesPage
	}
	q.Limit = min(q.Limit, mostListed)
	err := s.readTx(ctx, "nodes", func(tx *Tx) (err error) {
		page, err = fleet(ctx, tx, q)
		return err
	})
	return page, err
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
	Headroom map[int32]Headroom // of the devices that somebody holds, by index
	Events   []NodeEvent
}

// NodeID finds a node by its name, or by its number where no node is called so.
func (s *Store) NodeID(ctx context.Context, nameOrNumber string) (ledger.NodeID, error) {
	var id ledger.NodeID
	err := s.pool.QueryRow(ctx, `select id from nodes where retired_at is null and (name = $1 or id::text = $1)
		order by name = $1 desc limit 1`, nameOrNumber).Scan(&id)
	if noRow(err) {
		return 0, refuse(ledger.Missing, "node.missing", "", "There is no node "+nameOrNumber+".", "node", nameOrNumber)
	}
	if err != nil {
		return 0, fmt.Errorf("store: node by name: %w", err)
	}
	return id, nil
}

// Node reads one node.
func (s *Store) Node(ctx context.Context, id ledger.NodeID) (NodeDetail, error) {
	var d NodeDetail
	err := s.readTx(ctx, "node", func(tx *Tx) error {
		page, err := fleet(ctx, tx, NodeQuery{Node: id, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Nodes) == 0 || id == 0 {
			return refuse(ledger.Missing, "node.missing", "", "There is no such node.")
		}
		d = NodeDetail{NodeLine: page.Nodes[0], Headroom: map[int32]Headroom{}}
		kept, err := headrooms(ctx, tx, []ledger.NodeID{id})
		if err != nil {
			return err
		}
		for k, h := range kept {
			d.Headroom[k.idx] = *h
		}
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

// fleet reads one page of nodes, their devices and their holders.
func fleet(ctx context.Context, tx *Tx, q NodeQuery) (NodePage, error) {
	const where = ` where n.retired_at is null and ($1 = '' or n.pool_id = (select id from pools where name = $1)) and ($2 = 0 or n.id = $2)`
	var page NodePage
	err := tx.QueryRow(ctx, `select count(*), count(*) filter (where n.health <> 'healthy' or n.drain <> '' or n.degraded_since is not null) from nodes n`+where, q.Pool, q.Node).
		Scan(&page.All, &page.Unhealthy)
	if err != nil {
		return page, err
	}
	rows, err := tx.Query(ctx, `select n.id, n.name, n.pool_id, p.name, n.topology, n.cpu_milli, n.ram_mib, n.boot_id, n.agent_version, n.simulated,
			n.enrolled_at, n.heartbeat_at, n.health, n.health_since, n.health_why, n.drain, n.drain_since, n.drain_why, coalesce(b.name, ''),
			n.degraded_since, n.check_last, n.check_why, n.check_bad_why, n.maint_from, n.maint_until, n.maint_reason, n.repair_asked_at, n.repair_done_at, n.repair_result, p.frozen_why,
			n.net_mbps, n.sto_mbps, n.net_now_mbps, n.sto_now_mbps, n.sto_run >= 0, n.sto_run_at, n.sto_said_ppm, n.sto_failed, n.sto_mean_ppm, n.sto_degraded_at
		from nodes n join pools p on p.id = n.pool_id left join person_names b on b.person_id = n.drain_by`+where+`
			and ($3 = 0 or (p.name, length(n.name), n.name) > (select pa.name, length(na.name), na.name from nodes na join pools pa on pa.id = na.pool_id where na.id = $3))
		order by p.name, length(n.name), n.name limit $4`, q.Pool, q.Node, q.After, q.Limit+1)
	if err != nil {
		return page, err
	}
	page.Nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n NodeLine, err error) {
		return n, row.Scan(&n.ID, &n.Name, &n.Pool, &n.PoolName, &n.Topology, &n.CPUMilli, &n.RAMMiB, &n.BootID, &n.Version, &n.Simulated,
			&n.Enrolled, &n.Heartbeat, &n.Health, &n.HealthSince, &n.HealthWhy, &n.Drain, &n.DrainSince, &n.DrainWhy, &n.DrainBy,
			&n.Degraded, &n.CheckLast, &n.CheckWhy, &n.CheckBadWhy,
			&n.MaintFrom, &n.MaintUntil, &n.MaintWhy, &n.RepairAsked, &n.RepairDone, &n.Repaired, &n.FrozenWhy,
			&n.NetMbps, &n.StoMbps, &n.Flow.NetMbps, &n.Flow.StoMBps, &n.Storage.Hook, &n.Storage.At, &n.Storage.Said, &n.Storage.Failed, &n.Storage.MeanPPM, &n.Storage.Degraded)
	})
	if err != nil {
		return page, err
	}
	page.More = len(page.Nodes) > q.Limit
	page.Nodes = page.Nodes[:min(len(page.Nodes), q.Limit)]
	return page, fillNodes(ctx, tx, page.Nodes)
}

// fillNodes gives nodes their devices and the attempts that are on them: three
// statements, however many nodes.
func fillNodes(ctx context.Context, tx *Tx, nodes []NodeLine) error {
	ids := make([]ledger.NodeID, len(nodes))
	at := make(map[ledger.NodeID]*NodeLine, len(nodes))
	for i := range nodes {
		ids[i], at[nodes[i].ID] = nodes[i].ID, &nodes[i]
	}
	rows, err := tx.Query(ctx, `select node_id, idx, uuid, model, hbm_mib, dead, util_pct, hbm_used_mib, seen_at
		from devices where node_id = any($1) order by node_id, idx`, ids)
	if err != nil {
		return err
	}
	var node ledger.NodeID
	var d DeviceLine
	_, err = pgx.ForEachRow(rows, []any{&node, &d.Index, &d.UUID, &d.Model, &d.HBMMiB, &d.Dead, &d.UtilPct, &d.HBMUsedMiB, &d.Seen}, func() error {
		at[node].Devices = append(at[node].Devices, d)
		return nil
	})
	if err != nil {
		return err
	}
	return addHolders(ctx, tx, ids, at)
}

// addHolders gives every node the attempts that are on it. A nominated attempt
// owns devices that others still hold; it is not on them yet.
func addHolders(ctx context.Context, tx *Tx, ids []ledger.NodeID, at map[ledger.NodeID]*NodeLine) error {
	rows, err := tx.Query(ctx, `select p.node_id, p.devices, p.gpu_milli, a.job_id from placements p join attempts a on a.id = p.attempt_id
		where not p.ended and p.node_id = any($1) and a.phase in ('starting', 'running', 'ending') order by a.id`, ids)
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
	jobs := make([]ledger.JobID, 0, len(parts))
	for _, p := range parts {
		jobs = append(jobs, p.job)
	}
	slices.Sort(jobs)
	lines, err := jobLines(ctx, tx, ` where j.id = any($1)`, slices.Compact(jobs))
	if err != nil {
		return err
	}
	byID := make(map[ledger.JobID]*JobLine, len(lines))
	for i := range lines {
		byID[lines[i].ID] = &lines[i]
	}
	for _, p := range parts {
		if job := byID[p.job]; job != nil {
			p.h.Job = *job
			at[p.node].Holders = append(at[p.node].Holders, p.h)
		}
	}
	return nil
}

// MaintenanceOf reads what an audit line of planned maintenance says; ok is false
// for other lines. From 0 took it back.
func (e *NodeEvent) MaintenanceOf() (m Maintenance, ok bool) {
	if e.Verb != "node.maintain" || json.Unmarshal(e.After, &m) != nil {
		return Maintenance{}, false
	}
	return m, true
}

// RepairOf reads what an audit line of a repair hook says; ok is false for others.
func (e *NodeEvent) RepairOf() (result string, ok bool) {
	var r struct{ Result string }
	if e.Verb != "node.repaired" || json.Unmarshal(e.After, &r) != nil {
		return "", false
	}
	return r.Result, true
}

// CheckOutcome is what a node's health checks had made of it at one point.
type CheckOutcome struct {
	Degraded bool   `json:"degraded"`
	Drain    string `json:"drain"`
	Why      string `json:"why"`
}

// CheckOf reads what an audit line of health checks says; ok is false for others.
func (e *NodeEvent) CheckOf() (before, after CheckOutcome, ok bool) {
	if e.Verb != "node.check" || json.Unmarshal(e.Before, &before) != nil || json.Unmarshal(e.After, &after) != nil {
		return CheckOutcome{}, CheckOutcome{}, false
	}
	return before, after, true
}

// StorageOf reads what an audit line of a storage hook says; ok is false for others.
func (e *NodeEvent) StorageOf() (after StorageOutcome, ok bool) {
	if e.Verb != "node.storage" || json.Unmarshal(e.After, &after) != nil {
		return StorageOutcome{}, false
	}
	return after, true
}

// DrainOf reads what an audit line of a drain says; ok is false for other lines.
func (e *NodeEvent) DrainOf() (mode, why string, ok bool) {
	var d struct{ Mode, Why string }
	if e.Verb != "node.drain" || json.Unmarshal(e.After, &d) != nil {
		return "", "", false
	}
	return d.Mode, d.Why, true
}
