package store

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/scheduler/sim"
)

// Every scenario below is played in the simulator; everything that came into its
// world from outside is then done, at the same instants, to the database through
// the store. Both must decide alike in every cycle and end with the same books.
func TestTheSimulatorAndTheDatabaseDecideAlike(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/equivalence/*.scn")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sc, err := sim.Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			var plans []*scheduler.Plan
			r := sim.NewRunner(sim.Options{Record: true})
			r.Told = func(report scheduler.Report) { plans = append(plans, report.Plan) }
			if err := r.Run(t.Context(), sc); err != nil {
				t.Fatal(err)
			}
			twin := newTwin(t, r.World)
			for _, e := range r.World.Events() {
				twin.follow(t, e, plans)
			}
			if twin.cycles != len(plans) || len(plans) == 0 {
				t.Errorf("%d cycles of %d", twin.cycles, len(plans))
			}
			twin.compareBooks(t, r.World)
		})
	}
}

// twin is the database that goes through what a simulated world went through.
type twin struct {
	site
	cycles int
}

// newTwin makes the simulated world's pools, tree, nodes and lots anew; they get
// the same numbers, for they are made in the same order.
func newTwin(t testing.TB, w *sim.World) *twin {
	t.Helper()
	s, db := newStore(t)
	k := &twin{site: site{Store: s, db: db}}
	db.Clock.Advance(sim.Epoch.Time().Sub(db.Clock.Now()))
	snap, err := w.Snapshot(t.Context(), w.Now())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := json.Marshal(snap.Policy)
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `insert into policies (version, policy, made_at) values (1, $1, '2026-10-01')`, string(policy))
	db.Exec(t, `insert into persons (issuer, subject, created_at) select 'i', n::text, '2026-10-01' from generate_series(1, 9) n`)
	db.Exec(t, `insert into periods (name, first, last, zone) values ('2026-Q4', '2026-10-01', '2027-01-01', 'UTC')`)
	for _, p := range snap.Pools {
		db.Exec(t, `insert into pools (name, rate_ppm, node_gpus, node_cpu_milli, node_ram_mib, created_at) values ($1, $2, 8, 64000, 524288, '2026-10-01')`, p.Name, p.RatePPM)
	}
	for _, g := range snap.Groups {
		kind := "program"
		if g.Project {
			kind = "project"
		}
		db.Exec(t, `insert into groups (parent_id, kind, slug, title, path, created_at) values (nullif($1::bigint, 0), $2, 'x', $3, $3, '2026-10-01')`, int64(g.Parent), kind, g.Path)
	}
	for _, n := range snap.Nodes {
		k.addNode(t, n)
	}
	k.copyBooks(t, w, snap)
	leader, err := s.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	k.world = s.World(leader)
	return k
}

func (k *twin) addNode(t testing.TB, n scheduler.Node) {
	t.Helper()
	k.db.Exec(t, `insert into nodes (name, pool_id, token_hash, cpu_milli, ram_mib, net_mbps, sto_mbps, ioc_milli, enrolled_at, heartbeat_at, health_since)
		values ($1, $2, $3, $4, $5, $6, $7, $8, '2026-10-01', '2026-10-01', '2026-10-01')`, n.Name, int64(n.Pool), []byte(n.Name), n.CPUMilli, n.RAMMiB, n.NetMbps, n.StoMbps, n.IOCMilli)
	k.db.Exec(t, `insert into devices (node_id, idx, uuid, model, hbm_mib) select $1, n, '', '', $3 from generate_series(0, $2 - 1) n`, int64(n.ID), len(n.Devices), n.HBMMiB)
	k.nodes = append(k.nodes, n.ID)
}

// copyBooks opens the supply, makes the lots and gives every program what lies
// below it, which is what the simulator derives its share from.
func (k *twin) copyBooks(t testing.TB, w *sim.World, snap *scheduler.Snapshot) {
	t.Helper()
	supply, awarded := map[ledger.PoolID]ledger.Amount{}, map[ledger.LotID]ledger.Amount{}
	for _, b := range w.Balances() {
		if b.Account.Kind == ledger.Supply {
			supply[b.Account.Pool] = -b.Amount
		} else if b.Account.Lot != 0 {
			awarded[b.Account.Lot] += b.Amount
		}
	}
	for _, p := range snap.Pools {
		k.mustPost(t, ledger.Entry{
			Key: fmt.Sprintf("open:period:1:pool:%d", p.ID), Kind: "open", At: k.Now(), Period: 1,
			Transfers: []ledger.Transfer{{Debit: ledger.SupplyAccount(p.ID, 1), Credit: ledger.PotAccount(1, p.ID, 1), Amount: supply[p.ID]}},
		})
	}
	given := map[ledger.GroupID]ledger.Amount{}
	for _, f := range snap.Funds {
		for _, l := range f.Lots {
			amount := awarded[l.ID]
			k.db.Exec(t, `insert into lots (id, project_id, pool_id, period_id, program_id, first, last, amount, created_at) overriding system value
				values ($1, $2, $3, 1, 1, $4, $5, $6, '2026-10-01')`, int64(l.ID), int64(l.Project), int64(l.Pool), l.First.Time(), l.Last.Time(), int64(amount))
			k.mustPost(t, ledger.Entry{
				Key: fmt.Sprintf("award:request:%d", l.ID), Kind: "award", At: k.Now(), Period: 1,
				Transfers: []ledger.Transfer{{Debit: ledger.PotAccount(1, l.Pool, 1), Credit: l.Account(ledger.Available), Amount: amount}},
			})
			for g := l.Project; g != 0; g = snap.Groups[g-1].Parent {
				given[g] += amount
			}
		}
	}
	k.split(t, snap.Groups, given)
}

// split writes one version per program: what it gave its children in pool 1.
func (k *twin) split(t testing.TB, groups []scheduler.Group, given map[ledger.GroupID]ledger.Amount) {
	t.Helper()
	k.db.Exec(t, `insert into period_supply (period_id, pool_id, devices, availability_ppm, amount) values (1, 1, 1, 1000000, $1)`, int64(given[1]))
	for _, program := range groups {
		if program.Project {
			continue
		}
		k.db.Exec(t, `insert into splits (program_id, pool_id, period_id, version, made_by, made_at) values ($1, 1, 1, 1, 1, '2026-10-01')`, int64(program.ID))
		for _, g := range groups {
			if g.Parent == program.ID {
				k.db.Exec(t, `insert into split_parts (split_id, child_id, amount) values ((select max(id) from splits), $1, $2)`, int64(g.ID), int64(given[g.ID]))
			}
		}
	}
}

// follow does to the database what happened in the simulated world.
func (k *twin) follow(t testing.TB, e sim.Event, plans []*scheduler.Plan) {
	t.Helper()
	k.pass(e.At.Time().Sub(k.db.Clock.Now()))
	var err error
	switch e.Kind {
	case sim.Submitted:
		err = k.queueJob(t, *e.Spec, e)
	case sim.Claimed:
		_, err = k.Claim(t.Context(), k.part(t, e), "launcher")
	case sim.Finished:
		_, err = k.Ended(t.Context(), End{
			PartRef: k.part(t, e), ExitCode: e.Exit.Code, Signal: e.Exit.Signal, Stopped: e.Exit.Stopped,
			ElapsedUS: e.ElapsedMs * 1000, TermUS: e.TermMs * 1000,
		})
	case sim.NodeGone:
		err = k.lose(t, e)
	case sim.Cancelled, sim.Paused, sim.Resumed:
		kind := map[sim.EventKind]scheduler.EventKind{sim.Cancelled: scheduler.EvCancelled, sim.Paused: scheduler.EvPaused, sim.Resumed: scheduler.EvResumed}[e.Kind]
		err = k.change(t, e.Job, func(_ *Tx, l *life) error {
			if _, refusal := l.advance(scheduler.Event{Kind: kind, At: e.At}, "", nil); refusal != nil {
				return refusal
			}
			return nil
		})
	case sim.Health:
		words := map[scheduler.Health][2]string{
			scheduler.Healthy: {"healthy", ""}, scheduler.Draining: {"healthy", DrainSoft},
			scheduler.Faulted: {"healthy", DrainHard}, scheduler.Lost: {"lost", ""},
		}[e.Health]
		k.db.Exec(t, `update nodes set health = $2, drain = $3 where id = $1`, int64(e.Node), words[0], words[1])
	case sim.Asked:
		k.db.Exec(t, `update attempts set renew_ms = $2 where job_id = $1 and phase <> 'closed'`, int64(e.Job), e.ElapsedMs)
	case sim.Idled:
		k.db.Exec(t, `update attempts set idle_since = $2 where job_id = $1 and phase <> 'closed'`, int64(e.Job), instantOrNull(e.From))
	case sim.Planned:
		k.db.Exec(t, `update nodes set maint_from = $2, maint_until = $3 where id = $1`, int64(e.Node), instantOrNull(e.From), instantOrNull(e.Until))
	case sim.Device:
		k.db.Exec(t, `update devices set dead = true where node_id = $1 and idx = $2`, int64(e.Node), e.Rank)
	case sim.Leads:
		k.db.Exec(t, `update leader set holder = ''`) // the one before is gone
		leader, campaignErr := k.Campaign(t.Context(), "successor")
		if err = campaignErr; err == nil {
			k.world = k.World(leader)
		}
	case sim.Learnt:
		_, err = k.LearnMixes(t.Context())
	case sim.Cycled:
		k.turn(t, e, plans)
	}
	if err != nil {
		t.Fatalf("%s at %v: %v", e.Kind, e.At.Time(), err)
	}
}

func instantOrNull(at ledger.Instant) any {
	if at == 0 {
		return nil
	}
	return at.Time()
}

// turn runs one cycle, after heartbeats as fresh as the simulator's, and
// compares the plans.
func (k *twin) turn(t testing.TB, e sim.Event, plans []*scheduler.Plan) {
	t.Helper()
	beats := map[ledger.NodeID]*Beat{}
	rows, err := k.pool.Query(t.Context(), `select p.node_id, p.attempt_id, a.fence, p.rank, p.claimed_at from placements p join attempts a on a.id = p.attempt_id
		where a.phase <> 'closed' and p.claimed_at is not null and not p.ended`)
	if err != nil {
		t.Fatal(err)
	}
	var node ledger.NodeID
	var seen Seen
	var claimed ledger.Instant
	if _, err := pgx.ForEachRow(rows, []any{&node, &seen.Attempt, &seen.Fence, &seen.Rank, &claimed}, func() error {
		if beats[node] == nil {
			beats[node] = &Beat{Node: node}
		}
		seen.ElapsedUS = int64(e.At - claimed)
		beats[node].Attempts = append(beats[node].Attempts, seen)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var all []Beat
	for _, b := range beats {
		all = append(all, *b)
	}
	if err := k.recordBeats(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.sameView(t)
	want := plans[k.cycles]
	k.cycles++
	if k.report.Plan.Hash() != e.Hash {
		t.Fatalf("cycle %d at %v: %s", k.cycles, e.At.Time(), firstDifference(t, k.report.Plan, want))
	}
	if n := len(k.report.Applied.Dropped); n > 0 {
		t.Fatalf("cycle %d dropped %+v", k.cycles, k.report.Applied.Dropped)
	}
}

// queueJob submits exactly the simulated job.
func (k *twin) queueJob(t testing.TB, job scheduler.Job, e sim.Event) error {
	t.Helper()
	id, sub := job.ID, Submission{Command: "true", Array: e.Array, After: e.After}
	array, refusal := scheduler.ParseArray(e.Array)
	if refusal != nil {
		return refusal
	}
	return k.inTx(t.Context(), "submit", func(tx *Tx) error {
		deps, waits, err := awaited(t.Context(), tx, &job, &sub, ledger.SightAt("", false))
		if err != nil {
			return err
		}
		in := &entering{job: &job, sub: &sub, array: array, waits: waits}
		if err := insertJobs(t.Context(), tx, in); err != nil {
			return err
		}
		if err := noteDependencies(t.Context(), tx, in, deps); err != nil {
			return err
		}
		if job.ID != id {
			return fmt.Errorf("job %d got the number %d", id, job.ID)
		}
		return nil
	})
}

// part finds what the simulator's event speaks of.
func (k *twin) part(t testing.TB, e sim.Event) PartRef {
	t.Helper()
	p := PartRef{Rank: e.Rank}
	if err := k.pool.QueryRow(t.Context(), `select p.node_id, a.id, a.fence from placements p join attempts a on a.id = p.attempt_id
		where a.job_id = $1 and a.n = $2 and p.rank = $3`, e.Job, e.N, e.Rank).Scan(&p.Node, &p.Attempt, &p.Fence); err != nil {
		t.Fatalf("%s of attempt %d of job %d: %v", e.Kind, e.N, e.Job, err)
	}
	return p
}

// lose ends a part at its last heartbeat, which came just now.
func (k *twin) lose(t testing.TB, e sim.Event) error {
	t.Helper()
	p := k.part(t, e)
	if err := k.recordBeats(t.Context(), []Beat{{Node: p.Node, Attempts: []Seen{{p.Attempt, p.Fence, p.Rank, e.ElapsedMs * 1000}}}}); err != nil {
		return err
	}
	return k.change(t, e.Job, func(tx *Tx, l *life) error {
		funds, err := lockFundsOf(t.Context(), tx, purse{l.job.Project, l.job.Pool}, l.path)
		if err != nil {
			return err
		}
		return l.loseOn([]ledger.NodeID{e.Node}, funds, e.At, scheduler.DefaultPolicy().HoldStepMs)
	})
}

func (k *twin) change(t testing.TB, job ledger.JobID, fn func(*Tx, *life) error) error {
	t.Helper()
	return k.inTx(t.Context(), "change", func(tx *Tx) error {
		l, err := loadLife(t.Context(), tx, job)
		if err != nil {
			return err
		}
		if err := fn(tx, l); err != nil {
			return err
		}
		return k.keep(t.Context(), tx, l)
	})
}

// compareBooks wants every balance alike.
func (k *twin) compareBooks(t testing.TB, w *sim.World) {
	t.Helper()
	want := map[ledger.Account]ledger.Amount{}
	for _, b := range w.Balances() {
		if b.Amount != 0 {
			want[b.Account] = b.Amount
		}
	}
	rows, err := k.pool.Query(t.Context(), `select a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id, b.balance
		from balances b join accounts a on a.id = b.account_id where b.balance <> 0`)
	if err != nil {
		t.Fatal(err)
	}
	var a ledger.Account
	var amount ledger.Amount
	if _, err := pgx.ForEachRow(rows, []any{&a.Kind, &a.Pool, &a.Period, &a.Group, &a.Lot, &amount}, func() error {
		if want[a] != amount {
			t.Errorf("%v: database %d, simulator %d", a, amount, want[a])
		}
		delete(want, a)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for a, amount := range want {
		t.Errorf("%v: database 0, simulator %d", a, amount)
	}
}

// firstDifference shows where two plans part.
func firstDifference(t testing.TB, database, simulator *scheduler.Plan) string {
	t.Helper()
	var texts [2][]string
	for i, p := range []*scheduler.Plan{database, simulator} {
		text, err := json.MarshalIndent(p, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = strings.Split(string(text), "\n")
	}
	for i := range min(len(texts[0]), len(texts[1])) {
		if texts[0][i] != texts[1][i] {
			from := max(0, i-25)
			return fmt.Sprintf("after\n%s\nthe database has\n%s\nthe simulator\n%s", strings.Join(texts[0][from:i], "\n"),
				strings.Join(texts[0][i:min(i+6, len(texts[0]))], "\n"), strings.Join(texts[1][i:min(i+6, len(texts[1]))], "\n"))
		}
	}
	return "one goes on after the other"
}
