package store

import (
	"testing"
	"time"

	"tranche/ledger"
)

// Devices that are unused for half an hour mark their attempt idle from the
// beginning of it; what it is charged meanwhile is shown as charged without use,
// the owner hears of it once, and use ends it.
func TestIdleUseIsMarkedAndAddedUp(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a := k.project(t, "a", 1000)
	job := k.submit(t, "a", 1, 4, 4*anHour)
	k.cycle(t)
	k.claimAll(t)
	use := func(pct int32) {
		t.Helper()
		b := Beat{Node: k.nodes[0], BootID: "b"}
		for d := range int32(8) {
			b.Devices = append(b.Devices, DeviceUse{Index: d, UtilPct: pct, OK: true})
		}
		if err := k.recordBeats(t.Context(), []Beat{b}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.world.MarkIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	use(90)
	start := k.Now()
	for range 4 {
		k.pass(10 * time.Minute)
		use(2)
	}
	run := k.lastRun(t, job)
	if run.IdleSince != start.Add(10*60_000) || run.IdleMs(k.Now()) != 30*60_000 {
		t.Errorf("idle since %v, %d ms", run.IdleSince.Time(), run.IdleMs(k.Now()))
	}
	if snap, err := k.world.Snapshot(t.Context(), k.Now()); err != nil || snap.Live[0].IdleSince != run.IdleSince {
		t.Errorf("the dispatcher sees %+v, %v", snap.Live, err)
	}
	k.pass(10 * time.Minute)
	use(80)
	use(2)
	k.pass(10 * time.Minute)
	k.end(t, job, time.Hour, 0, false)
	run = k.lastRun(t, job)
	if run.IdleSince != 0 || run.IdleMs(k.Now()) != 40*60_000 {
		t.Errorf("afterwards: since %v, %d ms", run.IdleSince, run.IdleMs(k.Now()))
	}
	got, err := k.IdleUse(t.Context(), a, 7*24*anHour)
	if want := (IdleUse{Jobs: 1, Amount: 4 * ledger.GPUHour * 40 / 60, Of: 4 * ledger.GPUHour}); err != nil || got != want {
		t.Errorf("idle use %+v, want %+v, %v", got, want, err)
	}
	letters := 0
	if err := k.pool.QueryRow(t.Context(), `select count(*) from outbox where kind = 'job.idle'`).Scan(&letters); err != nil || letters != 1 {
		t.Errorf("%d letters, %v", letters, err)
	}
}
