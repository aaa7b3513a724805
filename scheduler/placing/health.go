package placing

// Health is what a storage's samples have led to. The zero value knows nothing and
// is not degraded.
type Health struct {
	Mean     int64 // moving mean of the samples, millionths of nominal; noise may lift it above all
	Seen     int64 // samples in it
	Streak   int64 // of them in a row that speak for a change of Degraded
	Degraded bool
}

// Step takes the next sample in millionths of nominal, ten seconds after the last. A
// noisy sample above nominal counts, up to twice, or noise alone would lower the mean.
func (h Health) Step(sample int64) Health {
	sample = min(max(sample, 0), 2*Micro)
	if h.Seen == 0 {
		h.Mean = sample
	} else {
		h.Mean += (sample - h.Mean) * 15 / 100
	}
	h.Seen++
	speaks, want := h.Mean < 750_000, int64(3)
	if h.Degraded {
		speaks, want = h.Mean > 920_000, 12
	}
	if !speaks {
		h.Streak = 0
		return h
	}
	if h.Streak++; h.Streak >= want {
		h.Degraded, h.Streak = !h.Degraded, 0
	}
	return h
}
