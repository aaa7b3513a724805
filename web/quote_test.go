package web

import (
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// A check names the price after protection only where it is another one.
func TestQuoteTellsThePriceAfterProtection(t *testing.T) {
	j := &scheduler.Job{Rate: ledger.Rate{MilliGPU: 8000, PPM: 1_000_000}, Contract: scheduler.Contract{MinMs: 3_600_000}}
	for ppm, want := range map[int64]string{
		1_000_000: "Sets aside 8 GPU-h on h100 when it starts: 8 charged GPUs, protected for 1 h. Nothing was submitted.",
		500_000:   "Sets aside 8 GPU-h on h100 when it starts: 8 charged GPUs, protected for 1 h. After that a GPU-second costs 50 % of the price. Nothing was submitted.",
	} {
		if got := quote(j, "h100", ppm); got != want {
			t.Errorf("%d ppm: %s", ppm, got)
		}
	}
}
