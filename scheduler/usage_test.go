package scheduler

import (
	"testing"

	"pgregory.net/rapid"
)

// brute adds up a segment's GPU-time inside [now − span, now].
func brute(segs []Segment, now, span Instant) GPUTime {
	var sum int64
	for _, s := range segs {
		from, to := max(s.From, now-span), s.To
		if to == 0 || to > now {
			to = now
		}
		if to > from {
			sum += s.ChargedMilliGPU * int64(to-from)
		}
	}
	return sum / 1000
}

// The lookback equals brute force whatever is added, taken back or corrected
// late, and however the clock moves on.
func TestLookbackEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const start = Instant(1_000_000_000)
		spanMs := rapid.Int64Range(0, 5000).Draw(t, "span")
		l, now := NewLookback(spanMs, start), start
		var segs []Segment
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				from := now - Instant(rapid.Int64Range(0, 9_000_000).Draw(t, "ago"))
				s := Segment{Class: ClassFunded, From: from, ChargedMilliGPU: rapid.Int64Range(1, 8000).Draw(t, "gpus")}
				if rapid.Bool().Draw(t, "closed") {
					s.To = from + Instant(rapid.Int64Range(1, 9_000_000).Draw(t, "long"))
				}
				segs = append(segs, s)
				l.Add(1, 1, 7, s)
			case 2:
				if len(segs) > 0 {
					i := rapid.IntRange(0, len(segs)-1).Draw(t, "which")
					l.Remove(1, 1, 7, segs[i])
					segs = append(segs[:i], segs[i+1:]...)
				}
			case 3:
				now += Instant(rapid.Int64Range(0, 4_000_000).Draw(t, "passes"))
				l.Advance(now)
			}
			want := brute(segs, now, Instant(spanMs*1000))
			if got := sumOf(l.Usage(nil)); got != want {
				t.Fatalf("project has %d, brute force says %d", got, want)
			}
			if m := l.Members(nil); len(m) > 0 && m[0].Funded != want {
				t.Fatalf("member has %d, brute force says %d", m[0].Funded, want)
			}
		}
	})
}

func sumOf(list []Usage) GPUTime {
	var sum GPUTime
	for i := range list {
		sum += list[i].Funded
	}
	return sum
}

// S16: a burst leaves the lookback exactly at t0+W .. t1+W.
func TestS16BurstLeavesTheLookbackExactly(t *testing.T) {
	const minute = Instant(60_000_000)
	t0 := Instant(1_000_000) * minute
	l := NewLookback(7*24*60*60_000, t0)
	l.Add(1, 1, 0, Segment{Class: ClassFunded, From: t0, To: t0 + 60*minute, ChargedMilliGPU: 8000})
	week := 7 * 24 * 60 * minute
	for _, c := range []struct {
		at   Instant
		want GPUTime
	}{
		{t0 + 60*minute, 8000 * 3_600_000},
		{t0 + week, 8000 * 3_600_000},
		{t0 + week + minute, 8000 * 3_540_000},
		{t0 + week + 30*minute, 8000 * 1_800_000},
		{t0 + week + 60*minute, 0},
	} {
		l.Advance(c.at)
		if got := sumOf(l.Usage(nil)); got != c.want {
			t.Errorf("after %d min: %d, want %d", (c.at-t0)/minute, got, c.want)
		}
	}
}

func TestLookbackTellsClassesApart(t *testing.T) {
	const at = Instant(10_000_000_000)
	l := NewLookback(1_000_000, at)
	for class, milli := range map[Class]int64{ClassFunded: 1000, ClassUnfunded: 2000, ClassEnding: 4000, ClassStarting: 8000, ClassCredited: 16000} {
		l.Add(1, 1, 0, Segment{Class: class, From: at - 1_000_000, To: at, ChargedMilliGPU: milli})
	}
	u := l.Usage(nil)
	if len(u) != 1 || u[0].Funded != 1_000_000 || u[0].Unfunded != 2_000_000 {
		t.Errorf("got %+v", u)
	}
}
