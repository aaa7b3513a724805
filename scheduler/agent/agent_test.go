package agent

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/web/api"
)

// An end record carries the command's real exit status.
func TestEndRecordHasRealStatus(t *testing.T) {
	p := newPeer(t)
	runAgent(t, testConfig(t, p, openDir(t)))
	p.want(order(1, "exit 0"), order(2, "exit 7"), order(3, "kill -9 $$"), order(4, "kill -TERM $$"))
	until(t, "four end records", func() bool { return len(p.ends()) == 4 })
	got := map[int64][2]int{}
	for _, e := range p.ends() {
		if !e.Started || e.Cause != api.CauseExit || e.TermUS != 0 || e.Fence != 3 {
			t.Errorf("end record %+v", e)
		}
		got[int64(e.Attempt)] = [2]int{e.ExitCode, e.Signal}
	}
	want := map[int64][2]int{1: {0, 0}, 2: {7, 0}, 3: {-1, 9}, 4: {-1, 15}}
	for id, w := range want {
		if got[id] != w {
			t.Errorf("attempt %d: exit and signal %v, want %v", id, got[id], w)
		}
	}
}

// The command finds its surroundings in the environment, and nothing of the agent's.
func TestEnvironmentAndOutput(t *testing.T) {
	t.Setenv("AGENT_SECRET", "hunter2")
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	cfg.ScratchDir = filepath.Join(dir, "scratch")
	runAgent(t, cfg)
	o := order(1, "env | sort; pwd; echo oops >&2; echo kept > mine")
	o.Spec.Env = map[string]string{"MODEL": "tiny", "TRANCHE_JOB": "forged"}
	o.Spec.Resume = true
	o.Spec.Output = filepath.Join(dir, "out.txt")
	p.want(o)
	if e := oneEnd(t, p); e.ExitCode != 0 {
		t.Fatalf("end record %+v", e)
	}
	scratch := filepath.Join(dir, "scratch", "job-41")
	got := lines(p.log(1))
	for _, want := range []string{
		"MODEL=tiny", "TRANCHE_JOB=41", "TRANCHE_ATTEMPT=1", "TRANCHE_RESUME=1", "TRANCHE_NODES=n1", "TRANCHE_RANK=0",
		"CUDA_VISIBLE_DEVICES=2,3", "TRANCHE_SCRATCH=" + scratch, scratch, "oops",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("output lacks %q:\n%s", want, p.log(1))
		}
	}
	if strings.Contains(p.log(1), "hunter2") || strings.Contains(p.log(1), "node-secret") {
		t.Error("a secret of the agent reached the command")
	}
	if b, err := os.ReadFile(o.Spec.Output); err != nil || string(b) != p.log(1) {
		t.Errorf("output file: %v, %d bytes of %d", err, len(b), len(p.log(1)))
	}
	if b, err := os.ReadFile(filepath.Join(scratch, "mine")); err != nil || string(b) != "kept\n" {
		t.Errorf("scratch file: %q %v", b, err)
	}
}

// Elapsed is the command's own time: not less, and no more than we saw.
func TestElapsedWithinTolerance(t *testing.T) {
	p := newPeer(t)
	runAgent(t, testConfig(t, p, openDir(t)))
	from := time.Now()
	p.want(order(1, "sleep 0.4"))
	e := oneEnd(t, p)
	seen := time.Since(from).Microseconds()
	if e.ElapsedUS < 400_000 || e.ElapsedUS > seen {
		t.Errorf("elapsed %d µs of a command of 400,000 µs, seen for %d µs", e.ElapsedUS, seen)
	}
}

// A command that ignores SIGTERM is killed at the end of its grace, not before.
func TestIgnoredTermIsKilledAtGrace(t *testing.T) {
	p := newPeer(t)
	runAgent(t, testConfig(t, p, openDir(t)))
	o := order(1, "trap '' TERM; echo up; while :; do sleep 0.02; done")
	p.want(o)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	o.Action, o.GraceMS, o.StopKind = api.ActionStop, 300, "preempted"
	p.want(o)
	e := oneEnd(t, p)
	if e.Signal != 9 || e.Cause != api.CauseStopped || e.StopKind != "preempted" || e.TermUS == 0 {
		t.Errorf("end record %+v", e)
	}
	if grace := e.ElapsedUS - e.TermUS; grace < 300_000 || grace > 5_000_000 {
		t.Errorf("killed %d µs after SIGTERM, want 300,000", grace)
	}
}

// A stop gives the whole tree its grace: the shell dies at once, its child saves.
func TestStopWaitsForTheTree(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	runAgent(t, testConfig(t, p, dir))
	saved := filepath.Join(dir, "saved")
	o := order(1, "(trap 'sleep 0.2; echo done > "+saved+"; exit 0' TERM; echo up; while :; do sleep 0.02; done) & wait")
	p.want(o)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	o.Action, o.StopKind = api.ActionStop, "cancelled"
	p.want(o)
	e := oneEnd(t, p)
	if _, err := os.Stat(saved); err != nil {
		t.Errorf("the child was not given its grace: %v", err)
	}
	if e.Signal != 15 || e.ElapsedUS-e.TermUS > 9_000_000 {
		t.Errorf("end record %+v", e)
	}
}

// What a command leaves behind is killed, also when it hides in a session of its own.
func TestGrandchildrenAreKilled(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	runAgent(t, testConfig(t, p, dir))
	file := filepath.Join(dir, "pid")
	p.want(order(1, "setsid sh -c 'trap \"\" TERM; echo $$ > "+file+"; sleep 600' & while [ ! -s "+file+" ]; do sleep 0.02; done; exit 5"))
	if e := oneEnd(t, p); e.ExitCode != 5 || e.ElapsedUS > 10_000_000 {
		t.Errorf("end record %+v", e)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("grandchild %d is still there: %v", pid, err)
	}
}

// The checkpoint hook runs first; SIGTERM follows when it is done.
func TestCheckpointHookComesFirst(t *testing.T) {
	for hook, want := range map[string]string{"echo hook $TRANCHE_PID": "hook", "signal:USR1": "usr1"} {
		t.Run(want, func(t *testing.T) {
			p := newPeer(t)
			runAgent(t, testConfig(t, p, openDir(t)))
			o := order(1, "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo up; while :; do sleep 600 & wait; done")
			o.Spec.Checkpoint = hook
			p.want(o)
			until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
			o.Action, o.GraceMS = api.ActionStop, 2000
			p.want(o)
			e := oneEnd(t, p)
			got := lines(p.log(1))
			if len(got) != 3 || !strings.HasPrefix(got[1], want) || got[2] != "term" || e.ExitCode != 3 {
				t.Errorf("output %q, end record %+v", got, e)
			}
		})
	}
}

// An evicted attempt that saves when its grace begins goes on from there: the next
// one is told to resume and finds the same scratch folder.
func TestEvictedJobGoesOnFromItsCheckpoint(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	cfg.ScratchDir = filepath.Join(dir, "scratch")
	runAgent(t, cfg)
	const train = `[ "$TRANCHE_RESUME" = 1 ] && { echo "from $(cat saved)"; exit 0; }
		trap 'echo 17 > saved' USR1; trap 'exit 3' TERM; echo up; while :; do sleep 600 & wait; done`
	first := order(1, train)
	first.Spec.Checkpoint = "signal:USR1"
	p.want(first)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	first.Action, first.StopKind, first.GraceMS = api.ActionStop, "preempted", 5000
	p.want(first)
	if e := oneEnd(t, p); e.ExitCode != 3 || e.TermUS == 0 {
		t.Fatalf("the evicted attempt: %+v", e)
	}
	second := order(2, train)
	second.Fence, second.Spec.Job, second.Spec.Resume = first.Fence+1, first.Spec.Job, true
	p.want(second)
	until(t, "a second end record", func() bool { return len(p.ends()) > 1 })
	if e := p.ends()[1]; e.ExitCode != 0 || p.log(2) != "from 17\n" {
		t.Errorf("the next attempt: %+v, output %q", e, p.log(2))
	}
}

// The agent dies and comes back: the attempt goes on, is found again, can be
// stopped, and ends once.
func TestAgentRestartAdopts(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	stopAgent := runAgent(t, cfg)
	o := order(1, "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 600 & wait; done")
	p.want(o)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	stopAgent()
	s, ok := launcherState(cfg, o)
	if !ok || s.Phase != api.StateRunning || syscall.Kill(s.PID, 0) != nil || syscall.Kill(-s.Group, 0) != nil {
		t.Fatalf("the attempt did not outlive the agent: %+v", s)
	}
	o.Action = api.ActionRun
	p.want(o)
	runAgent(t, cfg)
	until(t, "a heartbeat of the new agent", func() bool {
		last := p.lastSeen()
		return len(last) == 1 && last[0].State == api.StateRunning && last[0].ElapsedUS > 0
	})
	o.Action = api.ActionStop
	p.want(o)
	if e := oneEnd(t, p); e.ExitCode != 9 || e.Cause != api.CauseStopped {
		t.Errorf("end record %+v", e)
	}
	until(t, "the spool is empty", func() bool { return spoolIsEmpty(cfg) })
	if len(p.ends()) != 1 || len(p.claims) != 1 || p.enrols != 1 || p.log(1) != "up\nbye\n" {
		t.Errorf("%d ends, %d claims, %d enrols, output %q", len(p.ends()), len(p.claims), p.enrols, p.log(1))
	}
}

// kill -9 of the agent, once while the command runs and once more while nobody
// listens and the command ends: one claim, one end, the real status, the
// command's own time.
func TestAgentKilledHardTwice(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	state, gate := filepath.Join(dir, "state"), filepath.Join(dir, "gate")
	agentRun := func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "test-agent", p.URL, state)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	kill := func(cmd *exec.Cmd) { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	first := agentRun()
	o := order(1, "echo up; while [ ! -e "+gate+" ]; do sleep 0.02; done; exit 3")
	p.want(o)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	kill(first)
	o.Action = api.ActionRun
	p.want(o)
	second := agentRun()
	before := len(p.seenBeats())
	until(t, "the second agent's heartbeats", func() bool { return len(p.seenBeats()) > before+1 })
	kill(second)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := key{o.Attempt, o.Fence, o.Rank}
	until(t, "the end record", func() bool {
		_, err := os.Stat(filepath.Join(state, "attempts", k.String(), fileEnd))
		return err == nil
	})
	agentRun()
	e := oneEnd(t, p)
	if e.ExitCode != 3 || e.Cause != api.CauseExit || len(p.claims) != 1 || e.ElapsedUS < 40_000 {
		t.Errorf("end record %+v after %d claims", e, len(p.claims))
	}
	until(t, "the spool is empty", func() bool { return spoolIsEmpty(Config{StateDir: state}) })
	if len(p.ends()) != 1 {
		t.Errorf("%d end records", len(p.ends()))
	}
}

func spoolIsEmpty(cfg Config) bool {
	entries, err := os.ReadDir(filepath.Join(cfg.StateDir, "attempts"))
	return err == nil && len(entries) == 0
}

// A launcher killed with -9 leaves no record: its processes are killed and the
// agent says so, with the elapsed up to then.
func TestLostLauncherIsSettled(t *testing.T) {
	p := newPeer(t)
	cfg := testConfig(t, p, openDir(t))
	runAgent(t, cfg)
	o := order(1, "echo up; sleep 600 & wait")
	p.want(o)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	s, _ := launcherState(cfg, o)
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := oneEnd(t, p)
	if e.Cause != api.CauseLauncherLost || !e.Started || e.ElapsedUS <= 0 || e.ExitCode != -1 {
		t.Errorf("end record %+v", e)
	}
	for _, q := range listProcesses() {
		if q.Group == s.Group && !q.Zombie {
			t.Errorf("process %d of the attempt still runs", q.PID)
		}
	}
}

// The server is away when the claim is due and when the end is: nothing starts
// before it answers, and nothing is lost.
func TestServerDownAtClaimAndAtEnd(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	runAgent(t, testConfig(t, p, dir))
	p.setDown(api.PathClaim, true)
	mark, gate := filepath.Join(dir, "ran"), filepath.Join(dir, "gate")
	p.want(order(1, "echo x > "+mark+"; while [ ! -e "+gate+" ]; do sleep 0.02; done; exit 4"))
	until(t, "a claiming launcher in a heartbeat", func() bool {
		last := p.lastSeen()
		return len(last) == 1 && last[0].State == api.StateClaiming
	})
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran before its claim")
	}
	p.setDown(api.PathClaim, false)
	until(t, "the command runs", func() bool { _, err := os.Stat(mark); return err == nil })
	p.setDown(api.PathEnded, true)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "an ended attempt in a heartbeat", func() bool {
		last := p.lastSeen()
		return len(last) == 1 && last[0].State == api.StateEnded
	})
	p.setDown(api.PathEnded, false)
	if e := oneEnd(t, p); e.ExitCode != 4 {
		t.Errorf("end record %+v", e)
	}
}

// A refused claim runs nothing; the launcher itself exits with 88.
func TestRefusedClaimRunsNothing(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	p.closed = true
	cfg := testConfig(t, p, dir)
	runAgent(t, cfg)
	mark := filepath.Join(dir, "ran")
	o := order(1, "echo x > "+mark)
	p.want(o)
	if e := oneEnd(t, p); e.Started || e.Cause != api.CauseRefused || e.ElapsedUS != 0 {
		t.Errorf("end record %+v", e)
	}
	spool := filepath.Join(dir, "by-hand")
	if err := os.Mkdir(spool, 0o700); err != nil {
		t.Fatal(err)
	}
	by := task{Order: o, Server: p.URL, Identity: filepath.Join(cfg.StateDir, "identity.json"), Scratch: dir}
	if err := writeJSON(filepath.Join(spool, fileTask), by); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "agent", "launch", spool)
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != ExitRefused {
		t.Errorf("launcher exit %v, want 88", cmd.ProcessState)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran without a claim")
	}
}

// What the server no longer lists is stopped; what it lists and we never had is
// reported as unknown.
func TestUnlistedStopsAndUnknownIsReported(t *testing.T) {
	p := newPeer(t)
	runAgent(t, testConfig(t, p, openDir(t)))
	p.want(order(1, "echo up; sleep 600 & wait"))
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	stranger := order(2, "exit 0")
	stranger.Action = api.ActionRun
	p.want(stranger)
	until(t, "both ends", func() bool { return len(p.ends()) == 2 })
	for _, e := range p.ends() {
		if e.Attempt == 1 && (e.Cause != api.CauseStopped || e.StopKind != "unlisted" || e.Signal != 15) {
			t.Errorf("unlisted attempt: %+v", e)
		}
		if e.Attempt == 2 && (e.Cause != api.CauseUnknown || e.Started) {
			t.Errorf("unknown attempt: %+v", e)
		}
	}
}

// A stop that arrives before the claim is answered runs nothing.
func TestStopBeforeClaimRunsNothing(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	runAgent(t, testConfig(t, p, dir))
	p.setDown(api.PathClaim, true)
	o := order(1, "echo x > "+filepath.Join(dir, "ran"))
	p.want(o)
	until(t, "a claiming launcher", func() bool { return len(p.lastSeen()) == 1 })
	o.Action, o.StopKind = api.ActionStop, "cancelled"
	p.want(o)
	if e := oneEnd(t, p); e.Started || e.Cause != api.CauseWithdrawn || e.StopKind != "cancelled" {
		t.Errorf("end record %+v", e)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the command ran")
	}
}

// A command that cannot be started at all says why.
func TestStartFailureIsExplained(t *testing.T) {
	p := newPeer(t)
	runAgent(t, testConfig(t, p, openDir(t)))
	o := order(1, "exit 0")
	o.Spec.WorkDir = "/nowhere/at/all"
	p.want(o)
	if e := oneEnd(t, p); e.Started || e.Cause != api.CauseStartFailed || !strings.Contains(e.Detail, "/nowhere/at/all") {
		t.Errorf("end record %+v", e)
	}
}

// Wrong configuration and a wrong enrol token end Run with a sentence.
func TestRunRefusals(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	if err := Run(context.Background(), Config{}); err == nil || len(lines(err.Error())) != 3 {
		t.Errorf("empty configuration: %v", err)
	}
	cfg := testConfig(t, p, dir)
	cfg.EnrolToken = "wrong"
	if err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "enrol token is not valid") {
		t.Errorf("wrong token: %v", err)
	}
	cfg.EnrolToken = "join"
	runAgent(t, cfg)
	until(t, "enrolled", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.enrols == 1 })
	if err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("second agent on the same folder: %v", err)
	}
}
