package web

import (
	"strings"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
)

// A check names the price after protection only where it is another one.
func TestQuoteTellsThePriceAfterProtection(t *testing.T) {
	j := &scheduler.Job{Rate: ledger.Rate{MilliGPU: 8000, PPM: 1_000_000}, Contract: scheduler.Contract{MinMs: 3_600_000}}
	for ppm, want := range map[int64]string{
		1_000_000: "Sets aside 8 GPU-h on h100 when it starts: 8 charged GPUs, protected for 1 h. Nothing was submitted.",
		500_000:   "Sets aside 8 GPU-h on h100 when it starts: 8 charged GPUs, protected for 1 h. After that a GPU-second costs 50 % of the price. Nothing was submitted.",
	} {
		if got := quote(j, &store.Submission{Pool: "h100"}, ppm); got != want {
			t.Errorf("%d ppm: %s", ppm, got)
		}
	}
}

// What was asked for and what was needed, with advice where it is far apart.
func TestProtectionIsComparedWithItsUse(t *testing.T) {
	p := store.PoolBalance{PoolName: "h100", Asked: 100 * ledger.GPUHour, Ran: 34 * ledger.GPUHour}
	want := "On h100, attempts that ended since 1 October ran 34 % of the time they asked protection for: 34 of 100 GPU-h." +
		" A shorter minimum runtime sets less aside and finds a start sooner."
	if got := protectionText(p, "1 October"); got != want {
		t.Error(got)
	}
	// Small amounts are no less exact.
	small := store.PoolBalance{PoolName: "h100", Asked: 900, Ran: 891}
	if got := protectionText(small, "1 October"); !strings.Contains(got, "ran 99 % of") {
		t.Error(got)
	}
	if p.Ran = p.Asked; protectionText(p, "1 October") != "On h100, attempts that ended since 1 October ran 100 % of the time they asked protection for: 100 of 100 GPU-h." {
		t.Error(protectionText(p, "1 October"))
	}
}
