package view

import "testing"

func TestSentenceFindsNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"You can use 1\u202f240 GPU-h on h100.": "You can use [1\u202f240] GPU-h on h100.",
		"45 % belong to Vision":                 "[45 %] belong to Vision",
		"until 13:20: 0.48, then 2027-Q1":       "until [13:20]: [0.48], then 2027-Q1",
		"7":                                     "[7]",
		"":                                      "",
		"rule V3 since 3 min.":                  "rule V3 since [3] min.",
	} {
		got := ""
		for _, p := range sentence(in) {
			if p.Number {
				got += "[" + p.Text + "]"
			} else {
				got += p.Text
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestNumbersAlign(t *testing.T) {
	for in, want := range map[string]string{"12": ".00", "1\u202f240": ".00", "0.5": "0", "0.51": "", "–": "", "": "", "−3": ".00"} {
		if got := (Num{Text: in}).pad(); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[int]string{0: "0", 999: "999", 1204: "1\u202f204", -1204: "-1\u202f204", 1234567: "1\u202f234\u202f567"} {
		if got := group(in); got != want {
			t.Errorf("%d: %q, want %q", in, got, want)
		}
	}
	if got := (Num{Exact: "12.5 GPU-h"}).bare(); got != "12.5" {
		t.Errorf("a copy holds %q", got)
	}
}

func TestPresets(t *testing.T) {
	for key, want := range map[string]string{"debug": "15 min", "long": "8 h", "free": "0", "": "1 h", "none such": "1 h"} {
		v := PresetValues(key)
		if v["minimum"][0] != want || v["resumable"][0] != "on" || v["nodes"][0] != "1" {
			t.Errorf("%q: %v", key, v)
		}
	}
}
