package scheduler

import (
	"cmp"
	"slices"

	"tranche/ledger"
)

// Lookback is the exact usage of every project and pool inside the last SpanMs,
// kept incrementally: each series holds its occupancy as a list of rate changes
// with a head pointer at now and a tail pointer at now − span, so that moving on
// costs only the changes the two pointers pass. Late facts may be added anywhere
// and taken back; the pointers' sums are corrected at once.
type Lookback struct {
	span   Instant
	now    Instant
	series map[seriesKey]*series
	keys   []seriesKey // sorted
	lists  []*series   // by keys
}

// seriesKey is one project's (member = 0) or one member's usage in a pool.
type seriesKey struct {
	pool    ledger.PoolID
	project ledger.GroupID
	member  ledger.PersonID
	class   int8 // 0 funded, 1 unfunded
}

func (a seriesKey) compare(b seriesKey) int {
	return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.project, b.project),
		cmp.Compare(a.member, b.member), cmp.Compare(a.class, b.class))
}

// series is a step function of milli-GPUs over time.
type series struct {
	changes    []change // by instant
	head, tail pointer
}

type change struct {
	at    Instant
	delta int64 // milli-GPU
}

// pointer has integrated the series up to its instant. area counts
// milli-GPU-microseconds; only differences of areas are used, so it may wrap.
type pointer struct {
	at   Instant
	next int // first change not passed
	rate int64
	area int64
}

func (c *pointer) advance(changes []change, to Instant) {
	for c.next < len(changes) && changes[c.next].at <= to {
		ch := changes[c.next]
		c.area += c.rate * int64(ch.at-c.at)
		c.at = ch.at
		c.rate += ch.delta
		c.next++
	}
	c.area += c.rate * int64(to-c.at)
	c.at = to
}

// NewLookback starts empty at an instant. spanMs ≤ 0 counts nothing.
func NewLookback(spanMs int64, now Instant) *Lookback {
	return &Lookback{span: Instant(max(0, spanMs) * 1000), now: now, series: map[seriesKey]*series{}}
}

// Now is the instant the sums are for.
func (l *Lookback) Now() Instant { return l.now }

// Advance moves the window to now. Time never goes back: an earlier instant
// changes nothing. Cost: the rate changes that enter or leave the window.
func (l *Lookback) Advance(now Instant) {
	if now <= l.now {
		return
	}
	l.now = now
	for _, s := range l.lists {
		s.advance(now, l.span)
	}
}

func (s *series) advance(now, span Instant) {
	s.head.advance(s.changes, now)
	s.tail.advance(s.changes, now-span)
	if s.tail.next > 64 && s.tail.next > len(s.changes)/2 {
		s.changes = slices.Delete(s.changes, 0, s.tail.next)
		s.head.next -= s.tail.next
		s.tail.next = 0
	}
}

// Add counts a segment of a project's (and its member's) occupancy. Only funded
// and unfunded segments count. To = 0 means it lasts on.
// Cost: O(log n) to find its place; near the end when it is recent.
func (l *Lookback) Add(pool ledger.PoolID, project ledger.GroupID, member ledger.PersonID, seg Segment) {
	l.put(pool, project, member, seg, 1)
}

// Remove takes back a segment that was added, exactly as it was.
func (l *Lookback) Remove(pool ledger.PoolID, project ledger.GroupID, member ledger.PersonID, seg Segment) {
	l.put(pool, project, member, seg, -1)
}

func (l *Lookback) put(pool ledger.PoolID, project ledger.GroupID, member ledger.PersonID, seg Segment, sign int64) {
	if seg.Class != ClassFunded && seg.Class != ClassUnfunded {
		return
	}
	key := seriesKey{pool: pool, project: project}
	if seg.Class == ClassUnfunded {
		key.class = 1
	}
	l.seriesOf(key).put(seg, sign)
	if member != 0 && key.class == 0 {
		key.member = member
		l.seriesOf(key).put(seg, sign)
	}
}

func (l *Lookback) seriesOf(key seriesKey) *series {
	s, ok := l.series[key]
	if !ok {
		s = &series{head: pointer{at: l.now}, tail: pointer{at: l.now - l.span}}
		l.series[key] = s
		i, _ := slices.BinarySearchFunc(l.keys, key, seriesKey.compare)
		l.keys = slices.Insert(l.keys, i, key)
		l.lists = slices.Insert(l.lists, i, s)
	}
	return s
}

func (s *series) put(seg Segment, sign int64) {
	s.insert(change{seg.From, sign * seg.ChargedMilliGPU})
	if seg.To != 0 {
		s.insert(change{seg.To, -sign * seg.ChargedMilliGPU})
	}
}

// insert keeps changes sorted by instant and both pointers exact. A change that
// cancels the last one at its instant removes it instead of adding a second.
func (s *series) insert(ch change) {
	i := len(s.changes)
	for steps := 0; i > 0 && s.changes[i-1].at > ch.at; steps++ {
		if steps == 16 {
			i, _ = slices.BinarySearchFunc(s.changes, ch, func(a, b change) int {
				if a.at <= b.at {
					return -1
				}
				return 1
			})
			break
		}
		i--
	}
	s.head.shift(ch)
	s.tail.shift(ch)
	if i > 0 && s.changes[i-1].at == ch.at {
		s.changes[i-1].delta += ch.delta
		if s.changes[i-1].delta == 0 {
			s.remove(i - 1)
		}
		return
	}
	s.changes = slices.Insert(s.changes, i, ch)
	if ch.at <= s.head.at {
		s.head.next++
	}
	if ch.at <= s.tail.at {
		s.tail.next++
	}
}

func (s *series) remove(i int) {
	at := s.changes[i].at
	s.changes = slices.Delete(s.changes, i, i+1)
	if at <= s.head.at {
		s.head.next--
	}
	if at <= s.tail.at {
		s.tail.next--
	}
}

// shift corrects a pointer's sums for a change in its past.
func (c *pointer) shift(ch change) {
	if ch.at <= c.at {
		c.rate += ch.delta
		c.area += ch.delta * int64(c.at-ch.at)
	}
}

// Usage gives the sums at Now of every project that has any, sorted by pool and project, in the
// room of into (nil is fine).
// Cost: O(series).
func (l *Lookback) Usage(into []Usage) []Usage {
	out := slices.Grow(into[:0], len(l.keys))
	for i, k := range l.keys {
		sum := l.lists[i].sum()
		if k.member != 0 || sum == 0 {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Pool != k.pool || out[n-1].Project != k.project {
			out = append(out, Usage{Pool: k.pool, Project: k.project})
		}
		if last := &out[len(out)-1]; k.class == 0 {
			last.Funded = sum
		} else {
			last.Unfunded = sum
		}
	}
	if len(out) == 0 {
		return nil // as one that was never used, and as an empty list is recorded
	}
	return out
}

// Members gives the funded sum at Now of every member that has any, sorted by pool, project and
// member, in the room of into. Shares are the caller's to fill.
func (l *Lookback) Members(into []MemberUsage) []MemberUsage {
	out := slices.Grow(into[:0], len(l.keys))
	for i, k := range l.keys {
		if sum := l.lists[i].sum(); k.member != 0 && sum != 0 {
			out = append(out, MemberUsage{Pool: k.pool, Project: k.project, Member: k.member, Funded: sum})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// sum is the GPU-time between the two pointers, in whole milliseconds.
func (s *series) sum() GPUTime { return (s.head.area - s.tail.area) / 1000 }
