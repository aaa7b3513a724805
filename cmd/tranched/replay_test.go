package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/store/storetest"
)

// traceFile writes a small trace: an hour of two tenants on two nodes, with a
// gang of twelve GPUs and more work than fits.
func traceFile(t *testing.T, extra string) string {
	t.Helper()
	text := "timestamp,duration,num_gpus,gpu_time,cluster\n" +
		"2017-10-26 00:00:10,900.0,8,7200.0,aaa\n" +
		"2017-10-26 00:00:20,1200.0,12,14400.0,bbb\n" +
		"2017-10-26 00:10:00,400.0,4,1600.0,aaa\n\n"
	for _, at := range []string{"00:00:30", "00:01:00", "00:01:30", "00:05:00", "00:12:00", "00:20:00"} {
		text += "2017-10-26 " + at + ",7200.0,4,28800.0,aaa\n2017-10-26 " + at + ",500.0,2,1000.0,bbb\n"
	}
	name := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(name, []byte(text+extra), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A trace through the live system: real processes, and the ledger charges what
// the launchers measured, to the unit.
func TestReplayChargesWhatTheLaunchersMeasured(t *testing.T) {
	code, out, errOut := tranched("demo", "--trace="+traceFile(t, ""), "--from=2017-10-26", "--hours=1", "--speed=720", "--nodes=2", "--exit", "--json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var r struct {
		Submitted int     `json:"jobs_submitted"`
		Finished  int     `json:"jobs_finished"`
		CutOff    int     `json:"jobs_cut_off"`
		Waiting   int     `json:"jobs_waiting"`
		Failed    int     `json:"jobs_failed"`
		Attempts  int     `json:"attempts"`
		Funded    float64 `json:"funded_gpu_hours"`
		Occupancy float64 `json:"occupancy_pct"`
		Charged   int64   `json:"charged_units"`
		Measured  int64   `json:"attempts_units"`
		Sum       int64   `json:"books_sum"`
		Verify    string  `json:"verify"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Submitted != 15 || r.Finished+r.CutOff+r.Waiting != 15 || r.Failed != 0 || r.Finished == 0 || r.CutOff == 0 {
		t.Errorf("jobs: %+v\n%s", r, errOut)
	}
	if r.Charged != r.Measured || r.Charged == 0 {
		t.Errorf("charged %d units, the launchers measured %d\n%s", r.Charged, r.Measured, errOut)
	}
	if r.Sum != 0 || r.Verify != "ok" || r.Funded <= 0 || r.Occupancy <= 0 || r.Occupancy > 100 {
		t.Errorf("%+v", r)
	}
}

func TestReplayRefusesAMalformedLine(t *testing.T) {
	name := traceFile(t, "2017-10-26 00:30:00,soon,4,1600.0,aaa\n")
	began := time.Now()
	code, _, errOut := tranched("demo", "--trace="+name, "--from=2017-10-26", "--hours=1", "--exit")
	if code != 1 || !strings.Contains(errOut, "line 18 ") || !strings.Contains(errOut, "soon") {
		t.Errorf("exit code %d, want 1 and line 18 named: %s", code, errOut)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("refused after %s only", took)
	}
	if code, _, errOut := tranched("demo", "--trace="+name, "--from=tomorrow", "--exit"); code != 1 || !strings.Contains(errOut, "YYYY-MM-DD") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// Doctor says what to do about each thing that is wrong.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	db := storetest.New(t)
	code, out, errOut := tranched("doctor", "--database-url="+db.URL, "--public-url=http://localhost:1", "--oidc-issuer=http://127.0.0.1:9/none", "--oidc-client-id=x")
	if code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, errOut)
	}
	for _, line := range []string{
		"ok     the database takes the server's role", "failed the tree has a root: there is none: run tranched setup",
		"failed a server dispatches", "failed the sign-in provider answers",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in:\n%s", line, out)
		}
	}
}
