package store

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// EnrolTokenInput asks for the right to enrol nodes into a pool. Secret is made
// by the caller and shown once; only its hash is kept.
type EnrolTokenInput struct {
	Pool   string // name
	Hours  int64  // of real time until it expires
	Uses   int    // nodes it may bring in
	Secret string `json:"-"`
}

const hourMs = 60 * minuteMs

// CreateEnrolToken makes an enrolment token; operators may.
func (s *Store) CreateEnrolToken(ctx context.Context, cmd Command, in EnrolTokenInput) (int64, error) {
	content := struct {
		EnrolTokenInput
		Hash []byte
	}{in, hashSecret(in.Secret)}
	return runCommand(ctx, s, "node.enrol_token", cmd, content, func(tx *Tx) (int64, error) {
		if err := mayOnFleet(ctx, tx, cmd.Actor, ledger.NodeEnrol); err != nil {
			return 0, err
		}
		f := &formCheck{}
		f.want(in.Hours >= 1 && in.Hours <= 24*31, "hours", "enrol.hours", "A token to enrol nodes lives between 1 hour and 31 days.")
		f.want(in.Uses >= 1 && in.Uses <= 10_000, "uses", "enrol.uses", "A token enrols between 1 and 10,000 nodes.")
		var pool ledger.PoolID
		err := tx.QueryRow(ctx, `select id from pools where name = $1`, in.Pool).Scan(&pool)
		if err != nil && !noRow(err) {
			return 0, err
		}
		f.want(err == nil, "pool", "pool.missing", "There is no pool "+in.Pool+"; choose one of the list.")
		if len(f.refusals) > 0 {
			return 0, f.refusals
		}
		var id int64
		err = tx.QueryRow(ctx, `insert into enrol_tokens (pool_id, token_hash, created_by, created_at, expires_at, uses_left)
			values ($1, $2, $3, $4, $5, $6) returning id`, pool, hashSecret(in.Secret), cmd.Actor.Person, tx.Real, tx.Real.Add(in.Hours*hourMs), in.Uses).Scan(&id)
		if err != nil {
			return 0, err
		}
		return id, audit(ctx, tx, cmd, act{
			Verb: "node.enrol_token", Subject: subjectOf("enrol token", id),
			After: map[string]any{"pool": in.Pool, "hours": in.Hours, "uses": in.Uses},
		})
	})
}

// mayOnFleet asks for a right that no group bounds: it must be held at the root.
func mayOnFleet(ctx context.Context, tx *Tx, actor ledger.Actor, verb ledger.Verb) error {
	var root string
	if err := tx.QueryRow(ctx, `select path from groups where parent_id is null`).Scan(&root); err != nil {
		return err
	}
	if refusal := actor.May(verb, root, tx.Now); refusal != nil {
		return refusal
	}
	return nil
}

// EnrolInput is a node's introduction. Token is the enrolment token, Secret the
// node's own new token, made by the caller; only its hash is kept.
type EnrolInput struct {
	Token, Secret string
	Name          string
	Pool          string // "" for the token's
	Topology      string
	BootID        string
	Version       string
	Simulated     bool
	CPUMilli      int64
	RAMMiB        int64
	NetMbps       int64
	StoMbps       int64
	IOCMilli      int64
	Devices       []DeviceInput
}

// DeviceInput is one GPU of a node.
type DeviceInput struct {
	Index  int32
	UUID   string
	Model  string
	HBMMiB int64
}

// nodeName is what a node may be called.
const nodeName = `^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`

func (in *EnrolInput) check() ledger.Refusals {
	f := &formCheck{}
	f.want(regexp.MustCompile(nodeName).MatchString(in.Name), "name", "node.name", "A node's name has letters, digits, dots, hyphens and _.")
	f.want(in.CPUMilli > 0, "cpu_milli", "node.cpu", "A node has at least some CPU.")
	f.want(in.RAMMiB > 0, "ram_mib", "node.ram", "A node has at least some memory.")
	f.want(min(in.NetMbps, in.StoMbps, in.IOCMilli) >= 0, "capacities", "node.capacity", "A capacity is not negative.")
	f.want(len(in.Topology) <= 200, "topology", "node.topology", "A node's place has at most 200 characters.")
	f.want(len(in.Devices) <= 128, "devices", "node.devices", "A node has at most 128 devices.")
	seen := map[int32]bool{}
	for _, d := range in.Devices {
		f.want(d.Index >= 0 && d.HBMMiB >= 0 && !seen[d.Index], "devices", "node.devices", fmt.Sprintf("Device %d is given twice or has no size.", d.Index))
		seen[d.Index] = true
	}
	return f.refusals
}

// Enrol makes a node known, or gives a known one (by name) its new token and
// capacities. A token counts down only for new nodes, so that an answer that got
// lost may be asked for again.
func (s *Store) Enrol(ctx context.Context, in EnrolInput) (ledger.NodeID, error) {
	if refusals := in.check(); len(refusals) > 0 {
		return 0, refusals
	}
	var node ledger.NodeID
	err := s.inTx(ctx, "enrol", func(tx *Tx) error {
		token, pool, err := spendEnrolToken(ctx, tx, &in)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `insert into nodes (name, pool_id, token_hash, topology, cpu_milli, ram_mib, net_mbps, sto_mbps, ioc_milli,
			boot_id, agent_version, simulated, enrolled_at, enrol_token_id, heartbeat_at, health_since)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15)
			on conflict (name) do update set pool_id = excluded.pool_id, token_hash = excluded.token_hash, topology = excluded.topology,
				cpu_milli = excluded.cpu_milli, ram_mib = excluded.ram_mib, net_mbps = excluded.net_mbps, sto_mbps = excluded.sto_mbps,
				ioc_milli = excluded.ioc_milli, boot_id = excluded.boot_id, agent_version = excluded.agent_version,
				simulated = excluded.simulated, enrol_token_id = excluded.enrol_token_id, heartbeat_at = excluded.heartbeat_at,
				orders = nodes.orders + 1, retired_at = null
			returning id`,
			in.Name, pool, hashSecret(in.Secret), in.Topology, in.CPUMilli, in.RAMMiB, in.NetMbps, in.StoMbps, in.IOCMilli,
			in.BootID, in.Version, in.Simulated, tx.Now, token, tx.Real).Scan(&node)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		indices := make([]int32, len(in.Devices))
		for i, d := range in.Devices {
			indices[i] = d.Index
			batch.Queue(`insert into devices (node_id, idx, uuid, model, hbm_mib) values ($1, $2, $3, $4, $5)
				on conflict (node_id, idx) do update set uuid = excluded.uuid, model = excluded.model, hbm_mib = excluded.hbm_mib`,
				node, d.Index, d.UUID, d.Model, d.HBMMiB)
		}
		batch.Queue(`delete from devices where node_id = $1 and not idx = any($2)`, node, indices)
		tx.Notify(channelCycle)
		tx.Notify(channelOrders)
		return tx.SendBatch(ctx, batch).Close()
	})
	return node, err
}

// spendEnrolToken checks the token and counts it down for a node that is new.
func spendEnrolToken(ctx context.Context, tx *Tx, in *EnrolInput) (int64, ledger.PoolID, error) {
	var token int64
	var pool ledger.PoolID
	var poolName string
	var uses int
	err := tx.QueryRow(ctx, `select t.id, t.pool_id, p.name, t.uses_left from enrol_tokens t join pools p on p.id = t.pool_id
		where t.token_hash = $1 and t.expires_at > $2 for update of t`, hashSecret(in.Token), tx.Real).Scan(&token, &pool, &poolName, &uses)
	if noRow(err) {
		return 0, 0, refuse(ledger.Denied, "enrol.token", "token", "This enrolment token is not valid: it expired or never existed. Ask an operator for a new one.")
	}
	if err != nil {
		return 0, 0, err
	}
	if in.Pool != "" && in.Pool != poolName {
		return 0, 0, refuse(ledger.Invalid, "enrol.pool", "pool", "This token enrols nodes into pool "+poolName+", not "+in.Pool+".")
	}
	var known ledger.NodeID
	var usedBefore bool
	err = tx.QueryRow(ctx, `select id, coalesce(enrol_token_id, 0) = $2 from nodes where name = $1 for update`, in.Name, token).Scan(&known, &usedBefore)
	if err != nil && !noRow(err) {
		return 0, 0, err
	}
	if usedBefore {
		return token, pool, nil
	}
	if uses == 0 {
		return 0, 0, refuse(ledger.Denied, "enrol.spent", "token", "This enrolment token has enrolled all the nodes it may. Ask an operator for a new one.")
	}
	_, err = tx.Exec(ctx, `update enrol_tokens set uses_left = uses_left - 1 where id = $1`, token)
	return token, pool, err
}

// NodeByToken finds the node that a token belongs to.
func (s *Store) NodeByToken(ctx context.Context, secret string) (ledger.NodeID, error) {
	var node ledger.NodeID
	err := s.pool.QueryRow(ctx, `select id from nodes where token_hash = $1 and retired_at is null`, hashSecret(secret)).Scan(&node)
	if noRow(err) {
		return 0, refuse(ledger.Denied, "node.token", "", "This node token is not valid; enrol the node again.")
	}
	if err != nil {
		return 0, fmt.Errorf("store: node by token: %w", err)
	}
	return node, nil
}

// Drains that an operator may ask for.
const (
	DrainSoft = "soft" // empties as protections end
	DrainHard = "hard" // everything leaves at once and is credited
)

// DrainNode keeps new work off a node and lets what runs leave.
func (s *Store) DrainNode(ctx context.Context, cmd Command, node ledger.NodeID, mode, why string) error {
	if mode != DrainSoft && mode != DrainHard {
		return refuse(ledger.Invalid, "node.drain", "mode", "Drain a node softly (as protections end) or hard (at once, credited).")
	}
	if strings.TrimSpace(why) == "" || len(why) > 500 {
		return refuse(ledger.Invalid, "node.drain_why", "reason", "Say in up to 500 characters why; users of the node will read it.")
	}
	return s.setDrain(ctx, cmd, node, mode, why)
}

// UndrainNode lets a node take work again.
func (s *Store) UndrainNode(ctx context.Context, cmd Command, node ledger.NodeID) error {
	return s.setDrain(ctx, cmd, node, "", "")
}

func (s *Store) setDrain(ctx context.Context, cmd Command, node ledger.NodeID, mode, why string) error {
	type drain struct {
		Mode string `json:"mode"`
		Why  string `json:"why"`
	}
	_, err := runCommand(ctx, s, "node.drain", cmd, [3]any{node, mode, why}, func(tx *Tx) (bool, error) {
		if err := mayOnFleet(ctx, tx, cmd.Actor, ledger.NodeWrite); err != nil {
			return false, err
		}
		var before drain
		err := tx.QueryRow(ctx, `select drain, drain_why from nodes where id = $1 and retired_at is null for update`, node).Scan(&before.Mode, &before.Why)
		if noRow(err) {
			return false, refuse(ledger.Missing, "node.missing", "", "There is no such node.")
		}
		if err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, `update nodes set drain = $2, drain_why = $3, drain_by = $4, drain_since = $5, drained_by_check = '',
			degraded_since = case when degraded_since is not null then $6::timestamptz end where id = $1`, // who takes it back gives its checks a dwell anew
			node, mode, why, cmd.Actor.Person, tx.Now, tx.Real); err != nil {
			return false, err
		}
		tx.Notify(channelCycle)
		tx.Notify(channelPage)
		return true, audit(ctx, tx, cmd, act{Verb: "node.drain", Subject: subjectOf("node", int64(node)), Before: before, After: drain{mode, why}})
	})
	return err
}
