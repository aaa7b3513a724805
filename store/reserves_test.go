package store

import (
	"testing"
	"time"

	"tranche/ledger"
)

// Where more is expected of a device than is set aside for the parts on it, each part
// gets its portion of that, and the dispatcher counts with it; whole devices, and
// devices with enough, are left alone, and nothing is taken back.
func TestReservesGrowWithWhatIsExpected(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	node := k.nodes[0]
	big := k.submit(t, "a", 1, 1, anHour, func(s *Submission) { s.GPUMilli = 300 })
	small := k.submit(t, "a", 1, 1, anHour, func(s *Submission) { s.GPUMilli = 100 })
	whole := k.submit(t, "a", 1, 1, anHour)
	k.cycle(t)
	k.claimAll(t)
	held := func(job ledger.JobID) int64 {
		t.Helper()
		s, err := k.world.Snapshot(t.Context(), k.Now())
		if err != nil {
			t.Fatal(err)
		}
		k.sameView(t)
		for _, l := range s.Live {
			if l.Job.ID == job {
				return l.Placed[0].HBMMiB
			}
		}
		t.Fatalf("job %d does not run", job)
		return 0
	}
	raise := func(want int64) {
		t.Helper()
		if n, err := k.world.leader.RaiseReserves(t.Context()); err != nil || n != want {
			t.Errorf("raised %d, %v; want %d", n, err, want)
		}
	}
	use := func(shared int64) {
		for range 3 {
			k.pass(48 * time.Second)
			k.memory(t, node, shared, shared, shared, shared, shared, shared, shared, shared)
		}
	}
	use(30_000) // of 24,576 + 8,192 set aside on their device
	raise(0)
	use(40_000)
	raise(2)
	a, b := held(big), held(small)
	if sum := a + b; sum < 40_000 || sum > 81_920 || a < 3*b-4 || a > 3*b+4 {
		t.Errorf("set aside %d and %d, want three to one of at least 40,000", a, b)
	}
	if got := held(whole); got != 0 {
		t.Errorf("%d set aside for a whole device's job", got)
	}
	use(20_000) // such a fall is a surprise too, but no reason to set aside more
	raise(0)
	if held(big) != a || held(small) != b {
		t.Error("something was taken back")
	}
}
