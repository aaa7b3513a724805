package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

func TestL1OfTwoHoldsOf80OnABalanceOf100OneIsShort60(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	a := k.project(t, "a", 100)
	first, second := k.submit(t, "a", 2, 5, 8*anHour), k.submit(t, "a", 2, 5, 8*anHour)
	k.cycle(t)
	k.want(t, first, "starting")
	k.want(t, second, "pending ")
	k.wantBalance(t, a, "20", "80", "0")
	var short string
	if err := k.pool.QueryRow(t.Context(), `select jsonb_path_query_first(reason, '$.facts[*] ? (@.name == "short").value') #>> '{}'
		from job_reasons where job_id = $1`, second).Scan(&short); err != nil || short != "60" {
		t.Errorf("short %q, want 60 (%v)", short, err)
	}
}

// Two leaders' plans were made from the same snapshot: the second to be carried
// out finds the job started and the funds gone, and drops both items.
func TestL1APlanMadeFromAnOldSnapshotDropsWhatNoLongerHolds(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 2, 5, 8*anHour)
	snap, err := k.world.Snapshot(t.Context(), k.Now())
	if err != nil {
		t.Fatal(err)
	}
	plan := scheduler.Decide(snap)
	if len(plan.Starts) != 1 {
		t.Fatalf("%d starts, want 1", len(plan.Starts))
	}
	again := plan
	again.Starts = append([]scheduler.Start(nil), plan.Starts...)
	other := k.submit(t, "a", 2, 5, 8*anHour)
	again.Starts[0].Job = other
	var wait sync.WaitGroup
	var applied [2]scheduler.Applied
	for i, p := range []*scheduler.Plan{&plan, &again} {
		wait.Go(func() {
			w := k.World(k.world.leader)
			var err error
			if applied[i], err = w.Apply(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if applied[0].Started+applied[1].Started != 1 || len(applied[0].Dropped)+len(applied[1].Dropped) != 1 {
		t.Errorf("applied %+v", applied)
	}
	k.wantBalance(t, a, "20", "80", "0")
	if k.state(t, job) == k.state(t, other) {
		t.Errorf("both jobs are %s", k.state(t, job))
	}
}

func TestS4ProtectionEndsAtTheMillisecond(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	a, b := k.project(t, "a1", 10_000), k.project(t, "b", 10_000)
	long := k.submit(t, "a1", 4, 8, 4*anHour)
	k.cycle(t)
	k.claimAll(t)
	k.pass(time.Hour)
	short := k.submit(t, "b", 1, 8, anHour)
	k.pass(3*time.Hour - time.Millisecond)
	k.cycle(t)
	k.want(t, long, "running")
	k.pass(time.Millisecond)
	k.cycle(t)
	k.want(t, long, "ending")
	k.want(t, short, "nominated")
	k.pass(time.Second)
	k.cycle(t)
	k.want(t, short, "nominated") // nobody has confirmed the exit
	k.end(t, long, 4*time.Hour+time.Second, 143, true)
	k.want(t, long, "pending preempted")
	k.cycle(t)
	k.want(t, short, "starting")
	k.claimAll(t)
	if spent := k.balance(t, a, ledger.Spent); spent != "128" {
		t.Errorf("a1 spent %s, want 4 h × 32 GPUs up to the signal", spent)
	}
	k.wantBalance(t, b, "9992", "8", "0")
	var seq, attempts int
	if err := k.pool.QueryRow(t.Context(), `select queue_seq, attempts from jobs where id = $1`, long).Scan(&seq, &attempts); err != nil || seq != 1 || attempts != 1 {
		t.Errorf("queue_seq %d, attempts %d, %v", seq, attempts, err)
	}
}

func TestS5AnUnfundedJobLeavesAtOnceAndCostsNothing(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	a, c := k.project(t, "a", 100), k.project(t, "c", 100)
	free := k.submit(t, "a", 4, 8, 0)
	k.cycle(t)
	k.claimAll(t)
	k.pass(30 * time.Second)
	paid := k.submit(t, "c", 1, 8, anHour)
	k.cycle(t)
	k.want(t, free, "ending")
	k.end(t, free, 30*time.Second, 143, true)
	k.cycle(t)
	k.want(t, paid, "starting")
	k.wantBalance(t, a, "100", "0", "0")
	k.wantBalance(t, c, "92", "8", "0")
	var seconds int64
	if err := k.pool.QueryRow(t.Context(), `select sum(occupied_milli * extract(epoch from last - first) / 1000)::bigint from usage_segments
		where class = 'unfunded'`).Scan(&seconds); err != nil || seconds != 960 {
		t.Errorf("unfunded GPU-seconds %d, want 960 (%v)", seconds, err)
	}
	k.submit(t, "a", 1, 8, 0)
	if applied := k.cycle(t); applied.Evicted != 0 {
		t.Error("an unfunded job evicted somebody")
	}
}

func TestPastProtectionIsHeldAndChargedInSteps(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 10)
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	beat := func(after time.Duration) {
		t.Helper()
		seen := Seen{Attempt: part.Attempt, Fence: part.Fence, ElapsedUS: after.Microseconds()}
		if err := k.Heartbeat(t.Context(), Beat{Node: part.Node, BootID: "b", Attempts: []Seen{seen}}); err != nil {
			t.Fatal(err)
		}
	}
	k.wantBalance(t, a, "2", "8", "0")
	k.pass(time.Hour)
	beat(time.Hour)
	k.cycle(t)
	k.wantBalance(t, a, "0", "2", "8") // a step of 15 min is held, the protected hour is charged
	k.pass(15 * time.Minute)
	beat(75 * time.Minute)
	k.cycle(t) // no funds for a further step: on without them
	k.want(t, job, "running")
	k.pass(45 * time.Minute)
	k.end(t, job, 2*time.Hour, 0, false)
	k.wantBalance(t, a, "0", "0", "10")
	k.want(t, job, "finished finished")
	var classes string
	if err := k.pool.QueryRow(t.Context(), `select string_agg(class || ' ' || extract(epoch from last - first)::int, ', ' order by first)
		from usage_segments`).Scan(&classes); err != nil || classes != "funded 4500, unfunded 2700" {
		t.Errorf("segments %q (%v)", classes, err)
	}
}

func TestS10OfTwoGangsOneRunsAndTheOtherHoldsNothing(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	k.project(t, "a", 1000)
	k.project(t, "b", 1000)
	first, second := k.submit(t, "a", 3, 8, anHour), k.submit(t, "b", 3, 8, anHour)
	k.cycle(t)
	running, waiting := first, second
	if k.state(t, first) != "starting" {
		running, waiting = second, first
	}
	k.want(t, running, "starting")
	k.want(t, waiting, "pending ")
	if parts := k.parts(t, waiting); len(parts) != 0 {
		t.Errorf("the waiting gang holds %d nodes", len(parts))
	}
}

func TestAGangMemberThatFailsStopsTheRest(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	a := k.project(t, "a", 1000)
	job := k.submit(t, "a", 2, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	k.pass(10 * time.Minute)
	parts := k.parts(t, job)
	if _, err := k.Ended(t.Context(), End{PartRef: parts[0], ExitCode: 3, ElapsedUS: (10 * time.Minute).Microseconds()}); err != nil {
		t.Fatal(err)
	}
	k.want(t, job, "ending")
	left := k.orders(t)[parts[1].Node]
	if len(left) != 1 || !left[0].Stop || left[0].Rule != scheduler.GangFailed {
		t.Errorf("the other member's orders: %+v", left)
	}
	k.pass(time.Second)
	k.end(t, job, 10*time.Minute+time.Second, 143, true)
	k.want(t, job, "failed finished")
	var code int
	if err := k.pool.QueryRow(t.Context(), `select exit_code from jobs where id = $1`, job).Scan(&code); err != nil || code != 3 {
		t.Errorf("exit code %d, want 3 (%v)", code, err)
	}
	if got := k.balance(t, a, ledger.Held); got != "0" {
		t.Errorf("still held: %s", got)
	}
}

func TestS17AStormLosesNothing(t *testing.T) {
	t.Parallel()
	k := newSite(t, 8)
	k.project(t, "a", 1000)
	job := k.submit(t, "a", 4, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	k.pass(6 * time.Minute) // every node is silent
	if _, err := k.world.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.want(t, job, "running")
	waiting := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.want(t, waiting, "pending ")
	k.beatAllBut(t, 0)
	if _, err := k.world.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.want(t, waiting, "starting")
	k.want(t, job, "running")
}

func TestTwoTransactionsOnOneJobWaitForEachOther(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	k.pass(30 * time.Minute)
	locked, release := make(chan struct{}), make(chan struct{})
	undo := errors.New("undo")
	var wait sync.WaitGroup
	wait.Go(func() {
		err := k.inTx(t.Context(), "first", func(tx *Tx) error {
			if _, err := loadLife(t.Context(), tx, job); err != nil {
				return err
			}
			close(locked)
			<-release
			return undo
		})
		if !errors.Is(err, undo) {
			t.Error(err)
		}
	})
	<-locked
	done := make(chan error, 1)
	go func() {
		_, err := k.Ended(t.Context(), End{PartRef: part, ElapsedUS: (30 * time.Minute).Microseconds()})
		done <- err
	}()
	waitForLock(t, k)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	k.wantBalance(t, a, "96", "0", "4")
}

// waitForLock returns once some connection of the database waits for a lock.
func waitForLock(t testing.TB, k *site) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for waiting := 0; waiting == 0; {
		if err := k.pool.QueryRow(t.Context(), `select count(*) from pg_locks l join pg_database d on d.datname = current_database()
			join pg_stat_activity a on a.pid = l.pid and a.datname = d.datname where not l.granted`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the lock")
		}
	}
}

func TestAFormerLeadersPlanIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 8, anHour)
	k.db.Exec(t, `update leader set epoch = epoch + 1`)
	if _, err := scheduler.RunCycle(t.Context(), k.world, k.Now()); !errors.Is(err, ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	k.want(t, job, "pending ")
}

func TestOutputKeepsHeadAndTail(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	job := k.submit(t, "a", 1, 1, anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	chunk := make([]byte, 64<<10)
	var next int64
	for i := range 48 { // 3 MiB
		copy(chunk, fmt.Sprintf("piece %02d", i))
		for range 2 { // each sent twice
			var err error
			if next, err = k.AppendLog(t.Context(), part, int64(i)*int64(len(chunk)), chunk); err != nil {
				t.Fatal(err)
			}
		}
	}
	if next != 3<<20 {
		t.Errorf("next %d", next)
	}
	var got int64
	for at := int64(0); ; {
		p, err := k.Logs(t.Context(), k.actor, LogQuery{Job: job, Offset: at, Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		got += int64(len(p.Data))
		if p.Next == at {
			if p.Size != next || p.Cut != next-got || got > logKept+int64(len(chunk)) {
				t.Errorf("size %d, cut %d, read %d", p.Size, p.Cut, got)
			}
			break
		}
		at = p.Next
	}
	stranger := ledger.Actor{Person: 99}
	if _, err := k.Logs(t.Context(), stranger, LogQuery{Job: job}); err == nil {
		t.Error("a stranger read the output")
	}
}

func TestL8AHoldIsBoundedByTheProgramAbove(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_600_000)
	k.must(t, k.award("a", k.lotA, 80*hour), k.award("b", k.lotB, 80*hour))
	k.must(t, k.hold("a:1", k.lotA, 70*hour))
	err := k.inTx(t.Context(), "draw", func(tx *Tx) error {
		wanted := []purse{{k.a, 1}, {k.b, 1}}
		funds, err := lockFunds(t.Context(), tx, wanted)
		if err != nil {
			return err
		}
		c := &carrying{funds: funds}
		if c.draw(wanted[1], []ledger.Piece{{Lot: k.lotB.ID, Amount: 40 * hour}}) {
			t.Error("40 of the program's 30 were drawn")
		}
		if !c.draw(wanted[1], []ledger.Piece{{Lot: k.lotB.ID, Amount: 20 * hour}}) {
			t.Error("20 of the program's 30 were refused")
		}
		if c.draw(wanted[0], []ledger.Piece{{Lot: k.lotA.ID, Amount: 10*hour + 1}}) {
			t.Error("a second draw below the same program did not see the first")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReasonsLeaveWithTheirJobs(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	first, second := k.submit(t, "a", 1, 8, anHour), k.submit(t, "a", 1, 8, anHour)
	count := func() (n int) {
		if err := k.pool.QueryRow(t.Context(), `select count(*) from job_reasons`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	k.cycle(t)
	if n := count(); n != 1 {
		t.Errorf("%d reasons while one job waits", n)
	}
	for _, job := range []ledger.JobID{first, second} {
		if err := k.CancelJob(t.Context(), k.command(), job); err != nil {
			t.Fatal(err)
		}
	}
	k.cycle(t)
	if n := count(); n != 0 {
		t.Errorf("%d reasons while nobody waits", n)
	}
}

// Beats that arrive while others are written share the next transaction; every
// sender hears of its own.
func TestManyNodesBeatAtOnce(t *testing.T) {
	t.Parallel()
	k := newSite(t, 16)
	var wait sync.WaitGroup
	for _, n := range k.nodes {
		for range 4 {
			wait.Go(func() {
				if err := k.Heartbeat(t.Context(), Beat{Node: n, BootID: "b", Devices: []DeviceUse{{Index: 0, UtilPct: 50, HBMUsedMiB: 7, OK: true}, {Index: 1}}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wait.Wait()
	var nodes, busy, dead int
	if err := k.pool.QueryRow(t.Context(), `select (select count(*) from node_telemetry), count(*) filter (where util_pct = 50), count(*) filter (where dead)
		from devices`).Scan(&nodes, &busy, &dead); err != nil || nodes != 16 || busy != 16 || dead != 16 {
		t.Errorf("%d telemetry rows, %d busy and %d dead devices; want 16 each (%v)", nodes, busy, dead, err)
	}
}

// More reasons change in every cycle than one cycle writes: all of them are
// written within a few.
func TestTheBoundOnReasonsLeavesNobodyOut(t *testing.T) {
	t.Parallel()
	k := newSite(t, 0)
	known := map[ledger.JobID]bool{}
	for cycle := int64(1); cycle <= 3; cycle++ {
		plan := &scheduler.Plan{Cycle: cycle, Now: k.Now()}
		for id := ledger.JobID(1); id <= 3*mostReasons; id++ {
			plan.Reasons = append(plan.Reasons, scheduler.Reason{Job: id, Code: scheduler.WhyFull, Rank: int(cycle)})
		}
		told, err := k.world.queueReasons(&pgx.Batch{}, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		for id := range told {
			known[id] = true
		}
		k.world.told = told
	}
	if len(known) != 3*mostReasons {
		t.Errorf("%d of %d reasons written", len(known), 3*mostReasons)
	}
}

func TestADayIsClosedWhileAnAttemptIsProtected(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 100)
	k.db.Exec(t, `update periods set zone = 'Europe/Berlin'`)
	k.pass(12 * time.Hour) // 20:00 UTC: the accounting day ends at 22:00
	job := k.submit(t, "a", 1, 8, 8*anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	turn := func(after time.Duration) {
		t.Helper()
		seen := Seen{Attempt: part.Attempt, Fence: part.Fence, ElapsedUS: after.Microseconds()}
		if err := k.Heartbeat(t.Context(), Beat{Node: part.Node, BootID: "b", Attempts: []Seen{seen}}); err != nil {
			t.Fatal(err)
		}
		k.cycle(t)
	}
	k.pass(2*time.Hour - time.Second)
	turn(2*time.Hour - time.Second)
	k.wantBalance(t, a, "36", "64", "0")
	k.pass(time.Minute)
	turn(2*time.Hour + 59*time.Second)
	k.wantBalance(t, a, "36", "48", "16") // up to 22:00, not beyond
	k.pass(time.Hour)
	turn(3*time.Hour + 59*time.Second)
	k.wantBalance(t, a, "36", "48", "16")
	k.pass(time.Hour)
	k.end(t, job, 4*time.Hour, 0, false)
	k.wantBalance(t, a, "68", "0", "32")
}

// A kill that nobody confirms makes the node suspect, and whoever was to start
// there is planned anew; once confirmed, the node is healthy again.
func TestAnUnconfirmedKillMakesItsNodeSuspect(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 100)
	k.project(t, "b", 100)
	free := k.submit(t, "a", 1, 8, 0)
	k.cycle(t)
	k.claimAll(t)
	paid := k.submit(t, "b", 1, 8, anHour)
	k.cycle(t)
	k.want(t, paid, "nominated")
	health := func() (word string) {
		k.beatAllBut(t, 0)
		if _, err := k.world.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.cycle(t)
		if err := k.pool.QueryRow(t.Context(), `select health from nodes`).Scan(&word); err != nil {
			t.Fatal(err)
		}
		return word
	}
	k.pass(15 * time.Second)
	if got := health(); got != "healthy" {
		t.Errorf("at the end of the grace: %s", got)
	}
	k.pass(61 * time.Second)
	if got := health(); got != "suspect" {
		t.Errorf("a minute later: %s", got)
	}
	k.want(t, paid, "pending refused")
	k.end(t, free, 20*time.Second, 137, true)
	if got := health(); got != "healthy" {
		t.Errorf("once confirmed: %s", got)
	}
	k.want(t, paid, "starting")
}
