package scheduler

import "testing"

// A reading below the bound for half an hour is idleness from its beginning; one
// above ends it, and so does telemetry that is missing.
func TestIdleMarks(t *testing.T) {
	p := DefaultPolicy()
	at := func(minutes int64) Instant { return begun.Add(minutes * aMinute) }
	for _, c := range []struct {
		name     string
		readings []int64 // ppm, one every 10 min; −1 = none heard
		idle     int64   // since, minutes; −1 = not
		total    int64   // minutes
	}{
		{"in use", []int64{900_000, 600_000, 50_000, 51_000}, -1, 0},
		{"not long enough", []int64{0, 0, 49_999}, -1, 0},
		{"half an hour", []int64{900_000, 0, 0, 0, 0}, 10, 30},
		{"one use in between", []int64{0, 0, 400_000, 0, 0}, -1, 0},
		{"a spell that is over", []int64{0, 0, 0, 0, 0, 700_000, 0}, -1, 50},
		{"two spells", []int64{0, 0, 0, 0, 900_000, 0, 0, 0, 0}, 50, 70},
		{"silence before it counts", []int64{0, 0, -1, 0, 0}, -1, 0},
		{"silence ends it", []int64{0, 0, 0, 0, -1, 0}, -1, 40},
	} {
		var m IdleMark
		now := begun
		for i, r := range c.readings {
			now = at(int64(i) * 10)
			m = m.Step(&p, max(0, r), r >= 0, now)
		}
		want := Instant(0)
		if c.idle >= 0 {
			want = at(c.idle)
		}
		if m.IdleSince != want || m.TotalMs(now) != c.total*aMinute {
			t.Errorf("%s: idle since %d, %d min in all; want %d, %d", c.name, m.IdleSince, m.TotalMs(now)/aMinute, want, c.total)
		}
	}
}
