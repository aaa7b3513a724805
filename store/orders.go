package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// Order is what the dispatcher wants of one attempt's part on one node.
type Order struct {
	Attempt    ledger.AttemptID
	Fence      int64
	Rank       int32
	Claimed    bool
	Stop       bool
	Rule       scheduler.Rule // why it is to stop
	GraceMs    int64          // real, SIGTERM to SIGKILL
	Job        ledger.JobID
	Array      ledger.ArrayID // 0 = none
	ArrayIndex int32
	ArraySize  int
	ArrayMin   int32
	ArrayMax   int32
	Project    string // path
	User       string
	Command    string
	WorkDir    string
	Env        map[string]string
	OutputPath string
	Checkpoint string
	Placed     scheduler.Placed
	Resume     bool                      // an earlier attempt has run
	Nodes      []string                  // names, by rank
	Run        AttemptLine               // what its command is to be told of is filled in: warning, answer, stop
	Title      string                    // of the project
	Names      map[ledger.GroupID]string // titles of the groups that this speaks of
}

// Desired is the whole of what a node is to run. Version is never 0.
type Desired struct {
	Version int64
	Orders  []Order
	Repair  int64 // number of the repair order that is not reported yet; 0 = none
	Policy  scheduler.Policy
}

// DesiredState gives what a node is to run now.
func (s *Store) DesiredState(ctx context.Context, node ledger.NodeID) (Desired, error) {
	var d Desired
	err := s.readTx(ctx, "desired state", func(tx *Tx) error {
		var err error
		if d.Policy, err = loadPolicy(ctx, tx); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `select orders + 1, case when repair_asked_at is not null and repair_done_at is null then repair_n else 0 end
			from nodes where id = $1`, node).Scan(&d.Version, &d.Repair); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `select a.id, a.fence, p.rank, p.claimed_at is not null, a.phase = 'ending', a.stop_rule,
				case when a.funded then j.grace_ms else least(j.grace_ms, $2) end, j.id, g.path,
				coalesce(nullif(pn.username, ''), pn.name, 'person ' || j.member_id), c.command, c.workdir, c.env, c.output_path, c.checkpoint,
				p.devices, p.gpu_milli, p.cpu_milli, p.ram_mib, coalesce(y.id, 0), coalesce(j.array_index, 0), coalesce(y.size, 0), coalesce(y.lowest, 0), coalesce(y.highest, 0),
				exists (select from attempts e where e.job_id = j.id and e.n < a.n and e.started_at is not null),
				(select array_agg(nn.name order by pp.rank) from placements pp join nodes nn on nn.id = pp.node_id where pp.attempt_id = a.id),
				g.title, a.warning, a.renew_answer, a.protected_until, coalesce(a.stop_by_job, 0), a.stop_facts
			from (select * from placements where node_id = $1 and not ended
				union all select * from placements where node_id = $1 and returns) p -- may still run there after a silence
			join attempts a on a.id = p.attempt_id join jobs j on j.id = a.job_id join groups g on g.id = j.project_id
			left join job_arrays y on y.id = j.array_id join job_commands c on c.job_id = coalesce(y.first_job, j.id) left join person_names pn on pn.person_id = j.member_id
			where a.phase in ('starting', 'running', 'ending') or (p.returns and j.state = 'pending' and j.attempts = a.n)
			order by a.id, p.rank`, node, d.Policy.UnfundedGraceMs)
		if err != nil {
			return err
		}
		d.Orders, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Order, err error) {
			p := &o.Placed
			p.Node = node
			err = row.Scan(&o.Attempt, &o.Fence, &o.Rank, &o.Claimed, &o.Stop, &o.Rule, &o.GraceMs, &o.Job, &o.Project, &o.User,
				&o.Command, &o.WorkDir, &o.Env, &o.OutputPath, &o.Checkpoint, &p.Devices, &p.GPUMilli, &p.CPUMilli, &p.RAMMiB, &o.Array, &o.ArrayIndex, &o.ArraySize, &o.ArrayMin, &o.ArrayMax, &o.Resume, &o.Nodes,
				&o.Title, &o.Run.warning, &o.Run.renewAnswer, &o.Run.ProtectedUntil, &o.Run.StopByJob, &o.Run.stopFacts)
			p.Rank, o.Run.Rule = o.Rank, string(o.Rule)
			o.tellIndex()
			return o, err
		})
		if err != nil {
			return err
		}
		return d.fillNames(ctx, tx)
	})
	return d, err
}

// fillNames reads the titles of the groups that commands are told of.
func (d *Desired) fillNames(ctx context.Context, tx *Tx) error {
	var ids []ledger.GroupID
	for i := range d.Orders {
		ids = append(ids, d.Orders[i].Run.speaksOf()...)
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := titlesOf(ctx, tx, ids)
	for i := range d.Orders {
		d.Orders[i].Names = names
	}
	return err
}

// titlesOf reads groups' titles.
func titlesOf(ctx context.Context, tx *Tx, ids []ledger.GroupID) (map[ledger.GroupID]string, error) {
	rows, err := tx.Query(ctx, `select id, title from groups where id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	names := map[ledger.GroupID]string{}
	var id ledger.GroupID
	var title string
	_, err = pgx.ForEachRow(rows, []any{&id, &title}, func() error {
		names[id] = title
		return nil
	})
	return names, err
}

// tellIndex puts an array's job's index into its environment and output path.
func (o *Order) tellIndex() {
	if o.Array == 0 {
		return
	}
	index, array := strconv.Itoa(int(o.ArrayIndex)), fmt.Sprint(o.Array)
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	o.Env["TRANCHE_ARRAY_ID"], o.Env["TRANCHE_ARRAY_INDEX"], o.Env["TRANCHE_ARRAY_COUNT"] = array, index, strconv.Itoa(o.ArraySize)
	o.Env["TRANCHE_ARRAY_MIN"], o.Env["TRANCHE_ARRAY_MAX"] = strconv.Itoa(int(o.ArrayMin)), strconv.Itoa(int(o.ArrayMax))
	o.OutputPath = indexed(o.OutputPath, o.Array, o.ArrayIndex)
}

// indexed puts index and array into an output path.
func indexed(path string, array ledger.ArrayID, index int32) string {
	return strings.NewReplacer("%a", strconv.Itoa(int(index)), "%A", fmt.Sprint(array)).Replace(path)
}

// watch tells long polls when their node's desired state has a new version. It
// follows the notifications of all servers from the first poll until Close.
type watch struct {
	start   sync.Once
	mu      sync.Mutex
	version map[ledger.NodeID]int64
	changed chan struct{} // closed and replaced at every change
}

// WaitForOrders returns when the node's desired state may have another version
// than the one given, or when ctx ends.
func (s *Store) WaitForOrders(ctx context.Context, node ledger.NodeID, version int64) {
	w := &s.orders
	w.start.Do(func() {
		w.changed = make(chan struct{})
		go s.followOrders()
	})
	for {
		w.mu.Lock()
		now, changed := w.version[node], w.changed
		w.mu.Unlock()
		if now > version {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// followOrders looks at every notification, until the store is closed.
func (s *Store) followOrders() {
	for range s.Listen(s.open, channelOrders) {
		if err := s.lookAtOrders(s.open); err != nil && s.open.Err() == nil {
			s.log.Warn("could not look for new orders", "cause", err)
		}
	}
}

// lookAtOrders reads every node's version and wakes the polls when one moved.
func (s *Store) lookAtOrders(ctx context.Context) error {
	w := &s.orders
	rows, err := s.pool.Query(ctx, `select id, orders + 1 from nodes where retired_at is null`)
	if err != nil {
		return fmt.Errorf("store: watch orders: %w", err)
	}
	now := map[ledger.NodeID]int64{}
	var node ledger.NodeID
	var version int64
	if _, err := pgx.ForEachRow(rows, []any{&node, &version}, func() error {
		now[node] = version
		return nil
	}); err != nil {
		return fmt.Errorf("store: watch orders: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := false
	for node, version := range now {
		moved = moved || w.version[node] != version
	}
	if moved {
		w.version = now
		close(w.changed)
		w.changed = make(chan struct{})
	}
	return nil
}
