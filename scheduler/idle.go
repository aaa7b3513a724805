package scheduler

// IdleMark is what telemetry has shown of an attempt's use. Quiet since: its
// devices are unused; idle since: for so long that it counts, from when they were.
type IdleMark struct {
	QuietSince Instant
	IdleSince  Instant
	IdleMs     int64 // of spells that are over
}

// Step takes one reading of an attempt: the highest utilisation among its devices,
// in ppm, and whether all of them were heard of lately. Missing telemetry is not
// idleness: it ends what was counted.
func (m IdleMark) Step(p *Policy, mostPPM int64, heard bool, now Instant) IdleMark {
	if !heard || mostPPM >= p.IdleBelowPPM {
		return IdleMark{IdleMs: m.TotalMs(now)}
	}
	if m.QuietSince == 0 {
		m.QuietSince = now
	}
	if m.IdleSince == 0 && now.MillisSince(m.QuietSince) >= p.IdleAfterMs {
		m.IdleSince = m.QuietSince
	}
	return m
}

// TotalMs is how long the attempt has been idle until an instant.
func (m IdleMark) TotalMs(until Instant) int64 {
	if m.IdleSince == 0 {
		return m.IdleMs
	}
	return m.IdleMs + max(0, until.MillisSince(m.IdleSince))
}
