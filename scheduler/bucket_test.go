package scheduler

import "testing"

// One eviction a minute is one a minute, however often a cycle looks: tokens that come
// in parts of thousandths are not lost, and none come twice.
func TestTheBucketFillsAlikeHoweverOftenItIsLookedAt(t *testing.T) {
	for _, rate := range []int64{1, 7, 59, 600} {
		for _, every := range []int64{1, 50, 1000, 7001, 60_000} {
			p := DefaultPolicy()
			p.EvictPerMinute, p.EvictBurst = rate, 100_000
			s := &Snapshot{Policy: p, Bucket: Bucket{MilliTokens: -1000, At: begun}}
			now := begun
			for ; now < begun.Add(10*aMinute); now = now.Add(every) {
				s.Bucket = (&cycle{s: s, p: &p, now: now}).refill()
			}
			s.Bucket = (&cycle{s: s, p: &p, now: now}).refill()
			want, got := rate*now.MillisSince(begun)/60, s.Bucket.MilliTokens+1000
			if got > want || got < want-want/1000-1 {
				t.Errorf("%d a minute, looked at every %d ms: %d thousandths in %d min, want %d", rate, every, got, now.MillisSince(begun)/aMinute, want)
			}
		}
	}
}

// The bucket begins full, never holds more than the burst, and counts an hour at most.
func TestTheBucketHoldsNoMoreThanTheBurst(t *testing.T) {
	p := DefaultPolicy()
	p.EvictPerMinute, p.EvictBurst = 2, 5
	for _, c := range []struct {
		name string
		was  Bucket
		want int64
	}{
		{"at first", Bucket{}, 5000},
		{"half a minute later", Bucket{1500, begun.Add(-aMinute / 2)}, 2500},
		{"an hour later", Bucket{1500, begun.Add(-anHour)}, 5000},
		{"in debt", Bucket{-9000, begun.Add(-aMinute)}, -7000},
		{"the clock stood still", Bucket{1500, begun}, 1500},
	} {
		s := &Snapshot{Policy: p, Bucket: c.was}
		if got := (&cycle{s: s, p: &p, now: begun}).refill(); got.MilliTokens != c.want || got.At != begun {
			t.Errorf("%s: %+v, want %d at %d", c.name, got, c.want, begun)
		}
	}
}
