package scheduler

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// After a rule was changed on purpose: go test ./scheduler -run Recorded -renew
var renew = flag.Bool("renew", false, "write the recorded plans' hashes anew")

// Cycles recorded on running sites (tranched replay CYCLE --snapshot FILE) decide to
// the same bytes as then, until somebody changes a rule on purpose: one with a
// reserved start on a demo, and two of a public trace's busiest day, in which many
// start at once and in which a gang takes the place of 23 attempts.
func TestRecordedCyclesDecideAsTheyDid(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.json.gz")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d recorded cycles, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		t.Run(name, func(t *testing.T) {
			s := readRecorded(t, file)
			plan := Decide(s)
			evictions, reserved := 0, false
			for i := range plan.Starts {
				evictions += len(plan.Starts[i].Evict)
			}
			for i := range plan.Reserved {
				reserved = reserved || plan.Reserved[i].Holder != nil
			}
			switch starts := len(plan.Starts); {
			case name == "busy" && starts < 10, name == "gang" && evictions < 20, name == "reserved" && !reserved:
				t.Errorf("it shows little: %d starts, %d evictions, a reserved start %v", starts, evictions, reserved)
			}
			sum := sha256.Sum256(plan.Bytes())
			got, hashFile := hex.EncodeToString(sum[:]), filepath.Join("testdata/recorded", name+".sha256")
			if *renew {
				if err := os.WriteFile(hashFile, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(hashFile)
			if err != nil {
				t.Fatal(err)
			}
			if got != strings.TrimSpace(string(want)) {
				t.Errorf("the plan's hash is %s, recorded was %s: if a rule changed on purpose, run with -renew\n%s", got, want, plan.Bytes())
			}
		})
	}
}

func readRecorded(t *testing.T, name string) *Snapshot {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := json.NewDecoder(text).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return &s
}
