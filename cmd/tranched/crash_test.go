package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/store/testdb"
)

// A running job's server, agent, or both are killed hard. The job ends once, with
// its real exit status, and is charged once for what really ran.
func TestKilledHardInTheMiddleOfAJob(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and kills real processes")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "tranche/cmd/tranched", "tranche/cmd/tranche")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, victims := range []string{"server", "agent", "server and agent"} {
		t.Run(victims, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t, bin)
			job := c.submit(t)
			began := c.stamp(t, "began") // user code runs, so it is claimed
			if strings.Contains(victims, "server") {
				c.kill(t, c.server)
			}
			if strings.Contains(victims, "agent") {
				c.kill(t, c.agent)
				// Its job goes on without it and ends before anybody looks.
				c.stamp(t, "over")
			}
			c.start(t)
			c.wantOnce(t, job, began)
		})
	}
}

// crash is a site of real processes: tranched serve and tranche agent.
type crash struct {
	bin, dir string
	url      string
	db       *testdb.DB
	store    *store.Store
	server   *exec.Cmd
	agent    *exec.Cmd
}

// newCrash seeds the example institute, without its jobs, and starts a server
// and one node of pool a100.
func newCrash(t *testing.T, bin string) *crash {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-crash")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, folder := range []string{dir, filepath.Join(dir, "out")} { // jobs run as another user when the agent is root
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c := &crash{bin: bin, dir: dir, db: testdb.New(t)}
	if c.store, err = store.Open(t.Context(), store.Config{URL: c.db.URL, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.store.Close)
	d, err := seedInstitute(t.Context(), c.store, "https://issuer.example.org")
	if err != nil {
		t.Fatal(err)
	}
	c.db.Exec(t, `update jobs set state = 'cancelled'`)
	operator, err := d.as(t.Context(), "tomas", "enrol")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.store.CreateEnrolToken(t.Context(), operator, store.EnrolTokenInput{Pool: "a100", Hours: 1, Uses: 1, Secret: "let me in"}); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.url = "http://" + free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	t.Cleanup(func() { c.kill(t, c.agent); c.kill(t, c.server) })
	return c
}

// start starts whichever of the two does not run.
func (c *crash) start(t *testing.T) {
	t.Helper()
	if c.server == nil || c.server.ProcessState != nil {
		c.server = exec.Command(filepath.Join(c.bin, "tranched"), "serve")
		c.server.Env = append(os.Environ(), "TRANCHE_DATABASE_URL="+c.db.URL, "TRANCHE_LISTEN="+strings.TrimPrefix(c.url, "http://"),
			"TRANCHE_METRICS_LISTEN=", "TRANCHE_PUBLIC_URL="+c.url, "TRANCHE_OIDC_ISSUER="+c.url, "TRANCHE_OIDC_CLIENT_ID=test")
		c.run(t, c.server)
	}
	if c.agent == nil || c.agent.ProcessState != nil {
		c.agent = exec.Command(filepath.Join(c.bin, "tranche"), "--server", c.url, "agent", "--name", "c1", "--pool", "a100", "--devices", "sim:8:A100:40960",
			"--cpu-milli", strconv.Itoa(nodeCPUMilli), "--ram-mib", strconv.Itoa(nodeRAMMiB), "--state-dir", filepath.Join(c.dir, "state"),
			"--scratch-dir", filepath.Join(c.dir, "scratch"), "--user-map", "*=nobody")
		c.agent.Env = append(os.Environ(), "TRANCHE_ENROL_TOKEN=let me in")
		c.run(t, c.agent)
	}
	c.until(t, "the server answers", func() bool {
		resp, err := http.Get(c.url + "/readyz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
}

// run starts a process whose words are shown when the test fails.
func (c *crash) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.CreateTemp(c.dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s said:\n%s", cmd.Args[0], text)
		}
	})
}

// kill ends a process with SIGKILL, and only it.
func (c *crash) kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("%s ended well", cmd.Args[0])
	}
}

// submit hands in a job of 1 GPU that lasts 4 s and exits with 7.
func (c *crash) submit(t *testing.T) ledger.JobID {
	t.Helper()
	people, err := c.store.Persons(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range people {
		if p.Name != "Kofi Mensah" {
			continue
		}
		actor, err := c.store.Actor(t.Context(), p.ID)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(c.dir, "out")
		job, err := c.store.SubmitJob(t.Context(), store.Command{Actor: actor, Key: "job"}, store.Submission{
			Preset: "debug", Project: "/helios/vision/wildlife",
			Pool: "a100", GPUs: 1, Command: fmt.Sprintf("date +%%s%%N > %[1]s/b; mv %[1]s/b %[1]s/began; sleep 4; date +%%s%%N > %[1]s/o; mv %[1]s/o %[1]s/over; exit 7", out),
		})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	t.Fatal("nobody to submit")
	return 0
}

// stamp waits until the job has written a time, and gives it.
func (c *crash) stamp(t *testing.T, name string) time.Time {
	t.Helper()
	var at int64
	c.until(t, "the job has "+name, func() bool {
		text, err := os.ReadFile(filepath.Join(c.dir, "out", name))
		if err != nil {
			return false
		}
		at, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return err == nil
	})
	return time.Unix(0, at)
}

// until polls for something that other processes do.
func (c *crash) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// wantOnce waits for the job's end and looks at what the books say.
func (c *crash) wantOnce(t *testing.T, job ledger.JobID, began time.Time) {
	t.Helper()
	var state string
	var code, attempts, charges int
	var charged ledger.Amount
	c.until(t, "the job is over", func() bool {
		err := c.store.Pool().QueryRow(t.Context(), `select state, coalesce(exit_code, -1), attempts, charged,
			(select count(*) from entries where starts_with(key, 'charge:')) from jobs where id = $1`, job).Scan(&state, &code, &attempts, &charged, &charges)
		return err == nil && state != "pending" && state != "live"
	})
	if state != "failed" || code != 7 || attempts != 1 || charges != 1 {
		t.Errorf("state %s, exit code %d, %d attempts, %d charges; want failed, 7, 1, 1", state, code, attempts, charges)
	}
	ran := c.stamp(t, "over").Sub(began)
	// Half a unit per ms: 1 GPU at the pool's rate of 0.5.
	if off := time.Duration(charged)*2*time.Millisecond - ran; off < -time.Second || off > time.Second {
		t.Errorf("charged %d units for %v, off by %v", charged, ran, off)
	}
	books, err := c.store.Verify(t.Context())
	if err != nil || !books.OK() {
		t.Errorf("books %+v, %v", books, err)
	}
}
