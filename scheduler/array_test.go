package scheduler

import (
	"fmt"
	"slices"
	"testing"
)

func TestParseArray(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "none",
		"0-3":                "[0 1 2 3] 0",
		" 1, 3, 5-9:2 % 2":   "[1 3 5 7 9] 2",
		"7":                  "[7] 0",
		"4-4":                "[4] 0",
		"5,1-3,2":            "[1 2 3 5] 0",
		"0-9:4%1":            "[0 4 8] 1",
		"0-9%0":              "job.array",
		"0-9%":               "job.array",
		"0-9%x":              "job.array",
		"9-0":                "job.array",
		"-1":                 "job.array",
		"1-":                 "job.array",
		"3:2":                "job.array",
		"1-5:0":              "job.array",
		"+1":                 "job.array",
		"1,,2":               "job.array",
		"1000000":            "job.array",
		"0-10000":            "job.array",
		"0-9999,20000":       "job.array",
		"99999999999999999":  "job.array",
		"0-999999:100000000": "job.array",
	} {
		a, refusal := ParseArray(text)
		got := "none"
		switch {
		case refusal != nil:
			got = refusal.Code
		case a != nil:
			got = fmt.Sprint(a.Indices, " ", a.AtOnce)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if a, refusal := ParseArray("0-9999"); refusal != nil || a.Size() != MostArrayJobs {
		t.Errorf("the largest array: %v", refusal)
	}
}

func FuzzParseArray(f *testing.F) {
	for _, text := range []string{"", "0-1999", "1,3,5-9:2%4", "0-9999%10000", "9-0", "%", "1-2-3", "0-999999:101"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, refusal := ParseArray(text)
		if a == nil || refusal != nil {
			return
		}
		if n := len(a.Indices); n == 0 || n > MostArrayJobs || a.Indices[0] < 0 || a.Indices[n-1] > mostArrayIndex || a.AtOnce < 0 || a.AtOnce > MostArrayJobs {
			t.Fatalf("%q: %d indices, %d at once", text, n, a.AtOnce)
		}
		for i, n := range a.Indices[1:] {
			if n <= a.Indices[i] {
				t.Fatalf("%q: %d after %d", text, n, a.Indices[i])
			}
		}
		again, refusal := ParseArray(a.Text)
		if refusal != nil || !slices.Equal(again.Indices, a.Indices) {
			t.Fatalf("%q is kept as %q, which reads otherwise: %v", text, a.Text, refusal)
		}
	})
}
