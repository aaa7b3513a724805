package scheduler

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

// After a rule was changed on purpose: go test ./scheduler -run Recorded -renew
var renew = flag.Bool("renew", false, "write the recorded plan's hash anew")

// A cycle recorded on a running site (tranched replay last:1 --snapshot FILE)
// decides to the same bytes as then, until somebody changes a rule on purpose.
func TestARecordedCycleDecidesAsItDid(t *testing.T) {
	file, err := os.Open("testdata/recorded.json.gz")
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
	if err := s.Validate(); err != nil || len(s.Live) == 0 || len(s.Waiting) == 0 {
		t.Fatalf("%d live, %d waiting, %v: the record shows little", len(s.Live), len(s.Waiting), err)
	}
	plan := Decide(&s)
	sum := sha256.Sum256(plan.Bytes())
	got := hex.EncodeToString(sum[:])
	const hashFile = "testdata/recorded.sha256"
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
}
