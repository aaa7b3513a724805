package store

import (
	"testing"
	"time"
)

// A device's headroom is what is set aside for its jobs beyond what is in use; what is
// to come follows from the readings since its last job came, and is never less than
// what is in use.
func TestHeadroomOfADevice(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	node := k.nodes[0]
	for range 10 {
		k.memory(t, node, 80_000) // somebody else's, long ago
	}
	part := func(s *Submission) { s.GPUMilli = 500 }
	k.submit(t, "a", 1, 1, anHour, part)
	k.cycle(t)
	k.claimAll(t)
	held := func() Headroom {
		t.Helper()
		d, err := k.Node(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Headroom) != 1 {
			t.Fatalf("headroom of %d devices: %+v", len(d.Headroom), d.Headroom)
		}
		return d.Headroom[0]
	}
	if h := held(); h != (Headroom{Jobs: 1, Used: 80_000, Declared: 40_960, Reserved: 40_960}) {
		t.Errorf("before any reading %+v", h)
	}
	for range 20 {
		k.pass(48 * time.Second)
		k.memory(t, node, 10_240)
	}
	if h := held(); h.Forecast != 10_240 || h.Minutes != 20 {
		t.Errorf("steady for twenty minutes: %+v", h)
	}
	k.pass(48 * time.Second)
	k.memory(t, node, 30_720)
	if h := held(); h.Forecast != 30_720 {
		t.Errorf("just after it grew: %+v", h)
	}
	k.pass(48 * time.Second)
	k.memory(t, node, 10_240)
	if h := held(); h.Forecast <= 15_000 || h.Forecast >= 30_720 {
		t.Errorf("after a peak: %+v", h)
	}
	k.submit(t, "a", 1, 1, anHour, part)
	k.cycle(t)
	k.claimAll(t)
	if h := held(); h != (Headroom{Jobs: 2, Used: 10_240, Declared: 81_920, Reserved: 81_920}) {
		t.Errorf("a second job came: %+v", h)
	}
}
