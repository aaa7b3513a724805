package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store/storetest"
)

// Ten cycles, of which the sixth was left out of the record.
func TestReplaySaysWhatIsMissing(t *testing.T) {
	db := storetest.New(t)
	d := &seeding{s: db.Store, issuer: "test", pools: map[string]ledger.PoolID{}}
	if err := d.found(t.Context(), "lab", "Lab", seedPerson{Subject: "a", Name: "Ada", Role: "admin", At: "/lab"}); err != nil {
		t.Fatal(err)
	}
	leader, err := db.Store.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	world, rec := db.Store.World(leader), leader.Recorder(1<<20)
	var first int64
	for n := range int64(10) {
		report, err := scheduler.RunCycle(t.Context(), world, db.Store.Now())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = report.Plan.Cycle
		}
		if n == 5 {
			continue
		}
		if _, err := rec.Record(t.Context(), report, time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		span         string
		code         int
		cycles, lost int64
		lostFirst    int64
	}{
		{fmt.Sprint(first + 3), 0, 1, 0, 0},
		{fmt.Sprintf("%d..%d", first, first+4), 0, 5, 0, 0},
		{fmt.Sprintf("%d..%d", first, first+9), 1, 9, 1, first + 5},
		{fmt.Sprintf("%d..%d", first+6, first+12), 1, 4, 3, first + 10},
		{fmt.Sprint(first + 40), 1, 0, 1, first + 40},
		{"last:9", 0, 9, 1, first + 5},
		{"last:100", 0, 9, 1, first + 5},
	} {
		code, out, errOut := tranched("replay", "--database-url="+db.URL, "--json", c.span)
		var v replayVerdict
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%s: %v: %s%s", c.span, err, out, errOut)
		}
		if code != c.code || v.Cycles != c.cycles || v.Identical != c.cycles || v.Missing != c.lost || v.FirstMissing != c.lostFirst {
			t.Errorf("%s: exit code %d, %s", c.span, code, out)
		}
	}
}
