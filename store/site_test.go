package store

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store/testdb"
)

// site is a running institute: pool h100 with nodes of 8 GPUs, projects below
// /lab, one member who leads them all, and a leader whose cycles the test turns.
type site struct {
	*Store
	db     *testdb.DB
	world  *World
	actor  ledger.Actor
	nodes  []ledger.NodeID
	keys   int
	report scheduler.Report // of the last cycle
}

// newSite makes nodes n1…; the period is 2026-Q4 and opens with 100,000 GPU-h.
func newSite(t testing.TB, nodes int) *site {
	t.Helper()
	s, db := newStore(t)
	k := &site{Store: s, db: db}
	db.Exec(t, `insert into pools (name, node_gpus, node_cpu_milli, node_ram_mib, created_at) values ('h100', 8, 64000, 512000, '2026-10-01')`)
	db.Exec(t, `insert into persons (issuer, subject, created_at) values ('i', 's', '2026-10-01')`)
	db.Exec(t, `insert into periods (name, first, last, zone) values ('2026-Q4', '2026-10-01', '2027-01-01', 'UTC')`)
	db.Exec(t, `insert into groups (kind, slug, title, path, created_at) values ('program', 'lab', 'Lab', '/lab', '2026-10-01')`)
	for _, role := range []string{"researcher", "pi", "operator"} {
		db.Exec(t, `insert into role_grants (person_id, role, group_id, granted_at) values (1, $1, 1, '2026-10-01')`, role)
	}
	actor, err := s.Actor(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	k.actor = actor
	pot := ledger.PotAccount(1, 1, 1)
	k.mustPost(t, ledger.Entry{
		Key: "open:period:1:pool:1", Kind: "open", At: s.Now(), Period: 1,
		Transfers: []ledger.Transfer{{Debit: ledger.SupplyAccount(1, 1), Credit: pot, Amount: 100_000 * ledger.GPUHour}},
	})
	k.enrol(t, nodes)
	leader, err := s.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	k.world = s.World(leader)
	return k
}

func (k *site) mustPost(t testing.TB, entries ...ledger.Entry) {
	t.Helper()
	if err := k.inTx(t.Context(), "post", func(tx *Tx) error { _, err := post(t.Context(), tx, entries...); return err }); err != nil {
		t.Fatal(err)
	}
}

func (k *site) enrol(t testing.TB, n int) {
	t.Helper()
	_, err := k.CreateEnrolToken(t.Context(), k.command(), EnrolTokenInput{Pool: "h100", Hours: 1, Uses: max(1, n), Secret: "enrol"})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= n; i++ {
		in := EnrolInput{Token: "enrol", Secret: fmt.Sprint("node", i), Name: fmt.Sprint("n", i), BootID: "b", CPUMilli: 64000, RAMMiB: 512000}
		for d := range int32(8) {
			in.Devices = append(in.Devices, DeviceInput{Index: d, UUID: fmt.Sprint(i, d), Model: "H100", HBMMiB: 81920})
		}
		node, err := k.Enrol(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		k.nodes = append(k.nodes, node)
	}
}

// command makes a fresh command of the site's one person.
func (k *site) command() Command {
	k.keys++
	return Command{Actor: k.actor, Key: fmt.Sprint("key", k.keys)}
}

// project makes /lab/name with a lot for the whole period.
func (k *site) project(t testing.TB, name string, hours int64) ledger.GroupID {
	t.Helper()
	var id ledger.GroupID
	if err := k.pool.QueryRow(t.Context(), `insert into groups (parent_id, kind, slug, title, path, created_at)
		values (1, 'project', $1, $1, '/lab/' || $1, '2026-10-01') returning id`, name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	if hours > 0 {
		k.lot(t, id, hours, "2026-10-01", "2027-01-01")
	}
	return id
}

// lot awards hours to a project from the root's pot.
func (k *site) lot(t testing.TB, project ledger.GroupID, hours int64, first, last string) ledger.Lot {
	t.Helper()
	l := ledger.Lot{Project: project, Pool: 1, Period: 1}
	amount := ledger.Amount(hours) * ledger.GPUHour
	if err := k.pool.QueryRow(t.Context(), `insert into lots (project_id, pool_id, period_id, program_id, first, last, amount, created_at)
		values ($1, 1, 1, 1, $2::text::timestamptz, $3::text::timestamptz, $4, '2026-10-01') returning id, first, last`, project, first, last, amount).
		Scan(&l.ID, &l.First, &l.Last); err != nil {
		t.Fatal(err)
	}
	k.mustPost(t, ledger.Entry{
		Key: fmt.Sprint("award:lot:", l.ID), Kind: "award", At: k.Now(), Period: 1,
		Transfers: []ledger.Transfer{{Debit: ledger.PotAccount(1, 1, 1), Credit: l.Account(ledger.Available), Amount: amount}},
	})
	return l
}

// submit hands in a job of gpus on each of nodes, protected for minMs.
func (k *site) submit(t testing.TB, project string, nodes, gpus, minMs int64, more ...func(*Submission)) ledger.JobID {
	t.Helper()
	sub := Submission{Project: "/lab/" + project, Pool: "h100", Nodes: nodes, GPUs: gpus, MinMs: &minMs, Command: "true"}
	for _, f := range more {
		f(&sub)
	}
	id, err := k.SubmitJob(t.Context(), k.command(), sub)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// cycle turns the dispatcher once.
func (k *site) cycle(t testing.TB) scheduler.Applied {
	t.Helper()
	report, err := scheduler.RunCycle(t.Context(), k.world, k.Now())
	if err != nil {
		t.Fatal(err)
	}
	k.report = report
	return report.Applied
}

// sameView fails when what the world keeps between snapshots differs from what a new
// reader sees.
func (k *site) sameView(t testing.TB) {
	t.Helper()
	var views [2]string
	for i, e := range []*eye{&k.world.eye, {}} {
		r, err := e.read(t.Context(), k.Store, k.leaderPool, k.Now())
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r.snap)
		if err != nil {
			t.Fatal(err)
		}
		views[i] = string(text)
	}
	if views[0] != views[1] {
		at := 0
		for at < min(len(views[0]), len(views[1])) && views[0][at] == views[1][at] {
			at++
		}
		for i, name := range []string{"kept", "anew"} {
			t.Errorf("%s: …%s…", name, views[i][max(0, at-200):min(len(views[i]), at+200)])
		}
		t.FailNow()
	}
}

// pass moves the clock.
func (k *site) pass(d time.Duration) { k.db.Clock.Advance(d) }

// orders gives every node's orders.
func (k *site) orders(t testing.TB) map[ledger.NodeID][]Order {
	t.Helper()
	out := map[ledger.NodeID][]Order{}
	for _, n := range k.nodes {
		d, err := k.DesiredState(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		out[n] = d.Orders
	}
	return out
}

// claimAll does what launchers do with orders to start.
func (k *site) claimAll(t testing.TB) {
	t.Helper()
	for node, orders := range k.orders(t) {
		for _, o := range orders {
			if o.Claimed || o.Stop {
				continue
			}
			part := PartRef{node, o.Attempt, o.Fence, o.Rank}
			if _, err := k.Claim(t.Context(), part, fmt.Sprint("launcher", o.Attempt)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// parts gives the orders of one job.
func (k *site) parts(t testing.TB, job ledger.JobID) (out []PartRef) {
	t.Helper()
	for _, node := range k.nodes {
		for _, o := range k.orders(t)[node] {
			if o.Job == job {
				out = append(out, PartRef{node, o.Attempt, o.Fence, o.Rank})
			}
		}
	}
	return out
}

// end reports that every part of a job has ended with an exit code after so long.
func (k *site) end(t testing.TB, job ledger.JobID, after time.Duration, code int, stopped bool) {
	t.Helper()
	for _, p := range k.parts(t, job) {
		e := End{PartRef: p, ExitCode: code, ElapsedUS: after.Microseconds(), Stopped: stopped}
		if stopped { // SIGTERM came when it was asked for
			if err := k.pool.QueryRow(t.Context(), `select (extract(epoch from stop_asked_at - started_at) * 1e6)::bigint from attempts where id = $1`,
				p.Attempt).Scan(&e.TermUS); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := k.Ended(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// state gives a job's state with its latest attempt's phase and cause.
func (k *site) state(t testing.TB, job ledger.JobID) string {
	t.Helper()
	var state, phase, cause string
	if err := k.pool.QueryRow(t.Context(), `select j.state, coalesce(a.phase, ''), coalesce(a.cause, '') from jobs j
		left join attempts a on a.job_id = j.id and a.n = j.attempts where j.id = $1`, job).Scan(&state, &phase, &cause); err != nil {
		t.Fatal(err)
	}
	if state == "live" {
		return phase
	}
	return state + " " + cause
}

// want fails unless the job's state is this.
func (k *site) want(t testing.TB, job ledger.JobID, state string) {
	t.Helper()
	if got := k.state(t, job); got != state {
		t.Errorf("job %d is %q, want %q", job, got, state)
	}
}

// balance sums a project's accounts of one kind, in GPU-hours.
func (k *site) balance(t testing.TB, project ledger.GroupID, kind ledger.AccountKind) string {
	t.Helper()
	var sum ledger.Amount
	if err := k.pool.QueryRow(t.Context(), `select coalesce(sum(balance), 0)::bigint from balances b join accounts a on a.id = b.account_id
		where a.group_id = $1 and a.kind = $2`, project, kind).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	return sum.Exact()
}

// wantBalance fails unless the project has these GPU-hours available, held and spent.
func (k *site) wantBalance(t testing.TB, project ledger.GroupID, available, held, spent string) {
	t.Helper()
	a, h, s := k.balance(t, project, ledger.Available), k.balance(t, project, ledger.Held), k.balance(t, project, ledger.Spent)
	if a != available || h != held || s != spent {
		t.Errorf("available %s, held %s, spent %s; want %s, %s, %s", a, h, s, available, held, spent)
	}
}

const (
	minute = int64(60_000)
	anHour = 60 * minute
)
