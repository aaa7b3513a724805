package store

import (
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler/placing"
)

// memory lets a node tell twelve seconds later what its devices hold, in MiB by index.
func (k *site) memory(t *testing.T, node ledger.NodeID, used ...int64) {
	t.Helper()
	k.pass(12 * time.Second)
	b := Beat{Node: node, BootID: "b"}
	for i, u := range used {
		b.Devices = append(b.Devices, DeviceUse{Index: int32(i), UtilPct: 90, HBMUsedMiB: u, OK: true})
	}
	if err := k.Heartbeat(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// learn lets the leader learn and gives how many attempts it looked at.
func (k *site) learn(t *testing.T) int {
	t.Helper()
	n, err := k.world.leader.LearnPeaks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (k *site) wantClass(t *testing.T, key ClassKey, want placing.Class) {
	t.Helper()
	if got, err := k.Class(t.Context(), key); err != nil || got != want {
		t.Errorf("class %+v is %+v, %v; want %+v", key, got, err, want)
	}
}

// An ended attempt teaches its class the peak of its own devices while it ran, once,
// whatever happens between its end and the lesson.
func TestAClassLearnsPeaksOnce(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	project, node := k.project(t, "a", 1000), k.nodes[0]
	k.memory(t, node, 80_000, 80_000, 80_000) // before it ran
	job := k.submit(t, "a", 1, 2, anHour)
	k.cycle(t)
	k.claimAll(t)
	k.memory(t, node, 20_480, 10, 70_000) // the third device is not its own
	k.memory(t, node, 20_480, 40_960, 70_000)
	if k.learn(t) != 0 {
		t.Error("a class learns from an attempt that runs")
	}
	k.memory(t, node, 20_480, 30_000, 70_000)
	k.end(t, job, 36*time.Second, 0, false)
	k.memory(t, node, 80_000, 80_000, 80_000) // after it ended
	key, half := ClassKey{1, project, 2, 1000}, placing.Class{Seen: 1, Mean: 500_000}
	if n := k.learn(t); n != 1 {
		t.Errorf("looked at %d attempts", n)
	}
	k.wantClass(t, key, half)
	if _, err := k.pool.Exec(t.Context(), `update leader set holder = ''`); err != nil { // another server takes over
		t.Fatal(err)
	}
	next, err := openStore(t, k.db).Campaign(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := next.LearnPeaks(t.Context()); err != nil || n != 0 {
		t.Errorf("the next leader looked at %d attempts again, %v", n, err)
	}
	k.wantClass(t, key, half)
	if _, err := k.world.leader.LearnPeaks(t.Context()); err == nil {
		t.Error("a leader of the past learns")
	}
}

// Devices whose memory was hardly read teach nothing, and neither do attempts that
// never ran.
func TestAClassNeedsReadings(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	project, node := k.project(t, "a", 1000), k.nodes[0]
	short, never := k.submit(t, "a", 1, 1, anHour), k.submit(t, "a", 1, 1, anHour)
	k.cycle(t)
	part := k.parts(t, short)[0]
	if _, err := k.Claim(t.Context(), part, "l"); err != nil {
		t.Fatal(err)
	}
	k.memory(t, node, 70_000, 1)
	k.memory(t, node, 70_000, 1)
	k.end(t, short, 24*time.Second, 0, false)
	if err := k.CancelJob(t.Context(), k.command(), never); err != nil {
		t.Fatal(err)
	}
	k.end(t, never, 0, 0, true)
	if n := k.learn(t); n != 2 {
		t.Errorf("looked at %d attempts, want both", n)
	}
	k.wantClass(t, ClassKey{1, project, 1, 1000}, placing.Class{})
	if n := k.learn(t); n != 0 {
		t.Errorf("looked at %d again", n)
	}
}

// An attempt lost with its node teaches what was seen of it, but not before it is
// sure that it does not come back.
func TestALostAttemptTeachesOnce(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	project := k.project(t, "a", 1000)
	job := k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	part := k.parts(t, job)[0]
	for i := range int64(3) {
		k.pass(12 * time.Second)
		seen := Seen{Attempt: part.Attempt, Fence: part.Fence, ElapsedUS: (i + 1) * 12_000_000}
		if err := k.Heartbeat(t.Context(), Beat{Node: part.Node, BootID: "b", Attempts: []Seen{seen}, Devices: []DeviceUse{{Index: 7, HBMUsedMiB: 40_960, OK: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		k.pass(time.Minute)
		k.beatAllBut(t, part.Node)
		if _, err := k.world.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	k.want(t, job, "pending lost")
	if n := k.learn(t); n != 0 {
		t.Errorf("looked at %d attempts that may come back", n)
	}
	k.cycle(t) // it starts again on the other node: the old attempt is over for good
	if n := k.learn(t); n != 1 {
		t.Errorf("looked at %d attempts", n)
	}
	k.wantClass(t, ClassKey{1, project, 8, 1000}, placing.Class{Seen: 1, Mean: 500_000})
}

// What several jobs hold on one device counts for each in proportion to what it
// declared.
func TestSharersAnswerForTheirPart(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	project, node := k.project(t, "a", 1000), k.nodes[0]
	half := k.submit(t, "a", 1, 1, anHour, func(s *Submission) { s.GPUMilli = 500 })
	quarter := k.submit(t, "a", 1, 1, anHour, func(s *Submission) { s.GPUMilli = 250 })
	k.cycle(t)
	k.claimAll(t)
	for range 3 {
		k.memory(t, node, 30_720, 30_720) // of 40,960 + 20,480 declared on one device: half
	}
	k.end(t, half, 36*time.Second, 0, false)
	for range 3 {
		k.memory(t, node, 5_120, 5_120) // a quarter of what is left
	}
	k.end(t, quarter, 72*time.Second, 0, false)
	if n := k.learn(t); n != 2 {
		t.Fatalf("looked at %d attempts", n)
	}
	k.wantClass(t, ClassKey{1, project, 1, 500}, placing.Class{Seen: 1, Mean: 500_000})
	k.wantClass(t, ClassKey{1, project, 1, 250}, placing.Class{Seen: 1, Mean: 500_000})
}

// Once enough of its kind have ended, a waiting job counts with what they used, and
// never with more than a device has; until then with what it declares.
func TestAKnownClassCountsInsteadOfTheDeclared(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	project := k.project(t, "a", 1000)
	part := k.submit(t, "a", 1, 1, anHour, func(s *Submission) { s.GPUMilli = 500 })
	whole := k.submit(t, "a", 1, 1, anHour)
	shape := func(job ledger.JobID) [2]int64 {
		s, err := k.world.Snapshot(t.Context(), k.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range s.Waiting {
			if j.ID == job {
				return [2]int64{j.Shape.HBMMiB, j.Shape.HBMVar}
			}
		}
		t.Fatal("it does not wait")
		return [2]int64{}
	}
	know := func(seen, mean, variance int64) {
		k.db.Exec(t, `insert into job_classes (pool_id, project_id, gpus, gpu_milli, seen, mean_ppm, var_ppm, at) values (1, $1, 1, 500, $2, $3, $4, '2026-10-01'),
			(1, $1, 1, 1000, $2, $3, $4, '2026-10-01') on conflict (pool_id, project_id, gpus, gpu_milli) do update set seen = excluded.seen, mean_ppm = excluded.mean_ppm, var_ppm = excluded.var_ppm`,
			project, seen, mean, variance)
	}
	for _, c := range []struct {
		seen, mean, variance int64
		want                 [2]int64
	}{
		{placing.EnoughSeen - 1, 500_000, 10_000, [2]int64{0, 0}},
		{placing.EnoughSeen, 500_000, 10_000, [2]int64{20_480, 4_096 * 4_096}}, // of 40,960 half, and a tenth to and fro
		{placing.EnoughSeen + 1, 2_000_000, 10_000, [2]int64{81_920, 0}},
	} {
		know(c.seen, c.mean, c.variance)
		if got := shape(part); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if got := shape(whole); got != [2]int64{} {
			t.Errorf("a whole device's job that names no memory asks for %v", got)
		}
		k.sameView(t)
	}
}

// What a node reads and writes while an attempt has it to itself tells its class how
// far the attempt's demand swings; while others are there it tells nothing.
func TestAClassLearnsHowFarStorageSwings(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	project, node := k.project(t, "a", 1000), k.nodes[0]
	reads := func(times int, mbps ...int64) {
		for i := range times {
			k.pass(12 * time.Second)
			if err := k.Heartbeat(t.Context(), Beat{Node: node, BootID: "b", Flow: NodeFlow{StoMBps: &mbps[i%len(mbps)]}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	job := k.submit(t, "a", 1, 4, anHour)
	k.cycle(t)
	k.claimAll(t)
	reads(12, 50, 150) // a mean of 100, half of it to and fro
	other := k.submit(t, "a", 1, 2, anHour)
	k.cycle(t)
	k.claimAll(t)
	reads(12, 900, 100) // of both together
	k.end(t, job, 288*time.Second, 0, false)
	k.end(t, other, 144*time.Second, 0, false)
	if n := k.learn(t); n != 2 {
		t.Fatalf("looked at %d attempts", n)
	}
	var said string
	if err := k.pool.QueryRow(t.Context(), `select string_agg(concat_ws(' ', gpus, seen, sto_seen, sto_var_ppm), '; ') from job_classes where project_id = $1`, project).Scan(&said); err != nil || said != "4 0 1 250000" {
		t.Errorf("classes %q, %v", said, err)
	}
}

// Once it is known how far a kind's storage demand swings, a waiting job counts with
// that, but never so that it would not fit alone.
func TestAKnownSwingCounts(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	project := k.project(t, "a", 1000)
	k.db.Exec(t, `update nodes set sto_mbps = 16000`)
	job := k.submit(t, "a", 1, 4, anHour, func(s *Submission) { s.Flow.StoMbps = new(int64(1000)) })
	wide := k.submit(t, "a", 1, 4, anHour, func(s *Submission) { s.Flow.StoMbps = new(int64(15_500)) })
	k.db.Exec(t, `insert into job_classes (pool_id, project_id, gpus, gpu_milli, seen, mean_ppm, var_ppm, sto_seen, sto_var_ppm, at) values (1, $1, 4, 1000, 0, 0, 0, $2, 40000, '2026-10-01')`,
		project, placing.EnoughSeen)
	s, err := k.world.Snapshot(t.Context(), k.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range s.Waiting {
		want := map[ledger.JobID]int64{job: 200 * 200, wide: 500 * 500}[j.ID]
		if j.Shape.StoVar != want || j.Shape.HBMMiB != 0 {
			t.Errorf("job %d: variance %d, memory %d; want %d and what it declares", j.ID, j.Shape.StoVar, j.Shape.HBMMiB, want)
		}
	}
	k.sameView(t)
	k.cycle(t)
	k.want(t, job, "starting")
}
