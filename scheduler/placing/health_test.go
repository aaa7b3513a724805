package placing

import (
	"math/rand/v2"
	"testing"
)

// A storage is degraded after three means below three quarters, and good again after
// twelve above 92 %.
func TestHealthFollowsTheMean(t *testing.T) {
	step := func(h Health, sample int64, times int) Health {
		for range times {
			h = h.Step(sample)
		}
		return h
	}
	h := step(Health{}, Micro, 5)
	if h = step(h, 350_000, 4); h.Degraded { // 749,182 is the first below
		t.Errorf("too soon: %+v", h)
	}
	if h = step(h, 350_000, 1); !h.Degraded {
		t.Errorf("not degraded: %+v", h)
	}
	if h = step(h, Micro, 20); !h.Degraded {
		t.Errorf("good too soon: %+v", h)
	}
	if h = step(h, Micro, 3); h.Degraded {
		t.Errorf("not good again: %+v", h)
	}
	if h := step(Health{}, 5*Micro, 1); h.Mean != 2*Micro {
		t.Errorf("five times nominal counts as %d", h.Mean)
	}
}

// Noise of a third to and fro turns a healthy storage degraded hardly ever.
func TestHealthForgivesNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	h, turns := Health{}, 0
	for range 200 * 360 { // 200 hours of samples ten seconds apart
		was := h.Degraded
		h = h.Step(Micro + int64(r.NormFloat64()*300_000))
		if h.Degraded != was {
			turns++
		}
	}
	if turns > 40 {
		t.Errorf("%d turns in 200 hours, want at most 40", turns)
	}
}
