package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
)

const phillyText = `timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.25,4,11805.0,6214e9

2017-10-09 06:13:03,7.0,1,7.0,6c71a0
`

func TestReadPhillySortsAndSkipsBlankLines(t *testing.T) {
	jobs, skipped, err := ReadPhilly(strings.NewReader(phillyText), false)
	if err != nil || skipped != 0 {
		t.Fatalf("err %v, skipped %d", err, skipped)
	}
	at := func(h, m, s int) ledger.Instant {
		return ledger.At(time.Date(2017, 10, 9, h, m, s, 0, time.UTC))
	}
	want := []PhillyJob{
		{3, at(6, 13, 3), 2_951_250, 4, "6214e9"},
		{5, at(6, 13, 3), 7_000, 1, "6c71a0"},
		{2, at(7, 1, 55), 66_000, 1, "11cb48"},
	}
	if len(jobs) != len(want) {
		t.Fatalf("%d jobs, want %d", len(jobs), len(want))
	}
	for i := range want {
		if jobs[i] != want[i] {
			t.Errorf("job %d is %+v, want %+v", i, jobs[i], want[i])
		}
	}
}

func TestReadPhillyNamesTheMalformedLine(t *testing.T) {
	for _, bad := range []string{
		"2017-10-09 06:13:36,2759.0,1,2759.0",
		"2017-10-09,2759.0,1,2759.0,6214e9",
		"2017-10-09 06:13:36,-1,1,2759.0,6214e9",
		"2017-10-09 06:13:36,1e3,1,2759.0,6214e9",
		"2017-10-09 06:13:36,12.x,1,2759.0,6214e9",
		"2017-10-09 06:13:36,0.0,1,0.0,6214e9",
		"2017-10-09 06:13:36,2759.0,0,2759.0,6214e9",
		"2017-10-09 06:13:36,2759.0,1,2759.0,",
	} {
		_, _, err := ReadPhilly(strings.NewReader(phillyText+bad+"\n"), false)
		var malformed *MalformedLine
		if !errors.As(err, &malformed) || malformed.Line != 6 || malformed.Why == "" {
			t.Errorf("%q: error %v does not name line 6", bad, err)
		}
		jobs, skipped, err := ReadPhilly(strings.NewReader(phillyText+bad+"\n"), true)
		if err != nil || skipped != 1 || len(jobs) != 3 {
			t.Errorf("%q, lenient: %d jobs, %d skipped, error %v", bad, len(jobs), skipped, err)
		}
	}
}

func TestReadPhillyNeedsItsHeader(t *testing.T) {
	for _, text := range []string{"", "\n\n", "timestamp,duration,num_gpus\n2017-10-09 06:13:36,1.0,1\n"} {
		if _, _, err := ReadPhilly(strings.NewReader(text), true); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// The reader meets files from outside: whatever the bytes, it answers, and what
// it accepts is well-formed.
func FuzzReadPhilly(f *testing.F) {
	f.Add(phillyText, false)
	f.Add(phillyText+"x,y,z,0,c\n", true)
	f.Fuzz(func(t *testing.T, text string, lenient bool) {
		jobs, _, err := ReadPhilly(strings.NewReader(text), lenient)
		if err != nil && len(jobs) > 0 {
			t.Fatalf("both %d jobs and the error %v", len(jobs), err)
		}
		for _, j := range jobs {
			if j.DurationMs <= 0 || j.GPUs < 1 || j.Cluster == "" {
				t.Fatalf("accepted %+v", j)
			}
		}
	})
}
