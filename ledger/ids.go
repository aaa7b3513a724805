package ledger

import "time"

// Identities are the database's bigint keys. Zero means "none".
type (
	GroupID   int64 // a program or a project
	PoolID    int64
	PeriodID  int64
	LotID     int64
	PersonID  int64
	JobID     int64
	ArrayID   int64 // jobs of one submission that differ by their index
	AttemptID int64
	NodeID    int64
	RequestID int64
	SliceID   int64 // a booked time slice
)

// Instant is a point on the server's timeline: microseconds since
// 1970-01-01T00:00:00Z. Intervals are half-open: [from, to). Zero means "none".
type Instant int64

// At converts a time to an Instant, truncated to the microsecond.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMicro())
}

// Time converts back, in UTC. The zero Instant gives the zero Time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(i)).UTC()
}

// Add moves an instant by whole milliseconds.
func (i Instant) Add(ms int64) Instant { return i + Instant(ms*1000) }

// MillisSince gives whole milliseconds from j to i, rounded towards minus infinity.
func (i Instant) MillisSince(j Instant) int64 {
	d := int64(i - j)
	ms := d / 1000
	if d%1000 < 0 {
		ms--
	}
	return ms
}
