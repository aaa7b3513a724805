package ledger

import (
	"math"
	"math/bits"
)

// Rate says what an attempt pays: charged milli-GPUs at a pool rate in ppm of a
// standard GPU-hour.
type Rate struct {
	MilliGPU int64 `json:"milli_gpu"` // ≥ 1
	PPM      int64 `json:"ppm"`       // > 0; 1,000,000 = 1.000
}

// Bounds of a rate: a million GPUs at a hundred times the standard price. Within
// them 2,900 years of one attempt fit an Amount.
const (
	maxMilliGPU = 1_000_000_000
	maxPPM      = 100_000_000
)

// Check refuses a rate that charges nothing, pays back, or exceeds any fleet.
func (r Rate) Check() *Refusal {
	if r.MilliGPU < 1 || r.MilliGPU > maxMilliGPU {
		return refuse(Invalid, "rate.milli_gpu", "", "An attempt is charged for between 0.001 and 1,000,000 GPUs.")
	}
	if r.PPM < 1 || r.PPM > maxPPM {
		return refuse(Invalid, "rate.ppm", "rate", "A pool's rate must be above 0 and at most 100.")
	}
	return nil
}

// Cum gives the units an attempt owes for its first elapsed milliseconds:
// floor(MilliGPU · PPM · ms / 10⁹) in 128-bit arithmetic. Charges are
// differences of Cum, so pieces always add up to the whole. Rates must pass
// Check; what no Amount can hold gives the largest Amount, which no lot covers.
func (r Rate) Cum(ms int64) Amount {
	if ms <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(r.MilliGPU)*uint64(r.PPM), uint64(ms))
	if hi >= 1_000_000_000 {
		return math.MaxInt64
	}
	quo, _ := bits.Div64(hi, lo, 1_000_000_000)
	return Amount(min(quo, math.MaxInt64))
}

// Shape is what an attempt occupies on each of its nodes, and what such a node
// has. CPU-only pools have NodeGPUs = 0.
type Shape struct {
	Nodes    int64 // ≥ 1
	GPUs     int64 // per node
	GPUMilli int64 // per GPU: 1..1000
	CPUMilli int64 // per node
	RAMMiB   int64 // per node

	NodeGPUs     int64
	NodeCPUMilli int64 // > 0
	NodeRAMMiB   int64 // > 0
}

// ChargedMilliGPU is what an attempt of this shape pays for, in milli-GPUs:
// nodes × the larger of its GPUs and of the GPUs that its part of the node's CPU
// or RAM stands for, rounded down. In CPU-only pools it is milli-cores.
func ChargedMilliGPU(s Shape) int64 {
	whole, own := s.NodeGPUs*1000, s.GPUs*s.GPUMilli
	if s.NodeGPUs == 0 {
		whole, own = s.NodeCPUMilli, 0
	}
	byCPU := ratio(s.Nodes*whole, s.CPUMilli, s.NodeCPUMilli)
	byRAM := ratio(s.Nodes*whole, s.RAMMiB, s.NodeRAMMiB)
	return max(s.Nodes*own, byCPU, byRAM)
}

// DefaultCPU is the part of a node's milli-cores that goes with the GPUs asked
// for; in CPU-only pools one core. With it a job pays for its GPUs alone.
func DefaultCPU(s Shape) int64 {
	if s.NodeGPUs == 0 {
		return min(1000, s.NodeCPUMilli)
	}
	return ratio(s.GPUs*s.GPUMilli, s.NodeCPUMilli, s.NodeGPUs*1000)
}

// DefaultRAM is the part of a node's MiB that goes with the GPUs asked for; in
// CPU-only pools with the cores.
func DefaultRAM(s Shape) int64 {
	if s.NodeGPUs == 0 {
		return ratio(s.CPUMilli, s.NodeRAMMiB, s.NodeCPUMilli)
	}
	return ratio(s.GPUs*s.GPUMilli, s.NodeRAMMiB, s.NodeGPUs*1000)
}

// ratio is floor(a · num / den), or the largest int64 when that does not fit.
func ratio(a, num, den int64) int64 {
	q, err := Amount(a).MulRatio(num, den)
	if err != nil {
		return math.MaxInt64
	}
	return int64(q)
}

// Weight is a group's share in micro-GPU: the rate at which the amount it was
// given lasts a whole period, in seconds. For a program that is what its pot
// received, for a project what was awarded in its unexpired lots; neither depends
// on what was given on below, nor on how long a lot lasts.
func Weight(given Amount, periodSeconds int64) int64 {
	return ratio(int64(given), 1000, periodSeconds)
}
