package view

import (
	"strings"
	"testing"
)

// Points that hang together are one line, a gap parts them, one alone is a dot, and
// the words say what the line does.
func TestLineChart(t *testing.T) {
	from := at("2026-11-30 00:00")
	c := LineChart{Label: "24 h", Name: "F_fit", From: from, To: from.Add(24 * 3_600_000), GapMs: 600_000}
	if c.line() != "" || c.text() != "F_fit over 24 h: nothing measured yet" || c.extent() != "nothing yet" {
		t.Errorf("empty: %q, %q", c.line(), c.text())
	}
	c.Points = []ChartPoint{{from, 40_000}, {from.Add(600_000), 100_000}, {from.Add(12 * 3_600_000), 0}}
	if got := c.line(); got != "M0 624L69 60M5000 1000h1" {
		t.Errorf("line %q", got)
	}
	if got := c.area(); strings.Count(got, "M") != 1 || !strings.HasSuffix(got, "V1000z") {
		t.Errorf("area %q", got)
	}
	if got := c.text(); got != "F_fit over 24 h: from 0.0 % to 10.0 %, last 0.0 %" {
		t.Errorf("text %q", got)
	}
	if got := c.extent(); got != "0 to 10 %" {
		t.Errorf("extent %q", got)
	}
}
