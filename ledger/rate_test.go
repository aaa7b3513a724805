package ledger

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const hourMs = 3_600_000

// gpus is a rate of whole GPUs at the standard price.
func gpus(n int64) Rate { return Rate{MilliGPU: n * 1000, PPM: 1_000_000} }

func rates() *rapid.Generator[Rate] {
	return rapid.Custom(func(t *rapid.T) Rate {
		return Rate{MilliGPU: rapid.Int64Range(1, maxMilliGPU).Draw(t, "milli"), PPM: rapid.Int64Range(1, maxPPM).Draw(t, "ppm")}
	})
}

func TestCumIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, ms := rates().Draw(t, "rate"), rapid.Int64Min(0).Draw(t, "ms")
		want := new(big.Int).Mul(big.NewInt(rate.MilliGPU), big.NewInt(rate.PPM))
		want.Div(want.Mul(want, big.NewInt(ms)), big.NewInt(1_000_000_000))
		if !want.IsInt64() {
			want = big.NewInt(math.MaxInt64)
		}
		if got := rate.Cum(ms); int64(got) != want.Int64() {
			t.Fatalf("got %d, want %s", got, want)
		}
	})
}

// However an attempt is cut into pieces, they add up to the whole.
func TestPiecesEqualWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := Rate{MilliGPU: rapid.Int64Range(1, 100_000).Draw(t, "milli"), PPM: rapid.Int64Range(1, 3_000_000).Draw(t, "ppm")}
		cuts := rapid.SliceOfN(rapid.Int64Range(0, 10*hourMs), 2, 30).Draw(t, "cuts")
		slices.Sort(cuts)
		var sum Amount
		for i := 0; i+1 < len(cuts); i++ {
			sum += rate.Cum(cuts[i+1]) - rate.Cum(cuts[i])
		}
		if whole := rate.Cum(cuts[len(cuts)-1]) - rate.Cum(cuts[0]); sum != whole {
			t.Fatalf("pieces %d, whole %d", sum, whole)
		}
	})
}

func TestL10RoundingTime(t *testing.T) {
	var sum Amount
	for range 60 {
		sum += gpus(1).Cum(61_000)
	}
	if sum != 3_660_000 || sum.Exact() != "1.0166667" || sum.Hours() != "1.02" {
		t.Errorf("60 jobs of 61 s: %d, %s, %s", sum, sum.Exact(), sum.Hours())
	}
}

func TestL13RateAboveZero(t *testing.T) {
	for _, r := range []Rate{{1000, 0}, {1000, -1}, {0, 1_000_000}, {-5, 1_000_000}, {maxMilliGPU + 1, 1}, {1, maxPPM + 1}} {
		if r.Check() == nil {
			t.Errorf("%+v accepted", r)
		}
	}
	if r := (Rate{1, 1}).Check(); r != nil {
		t.Error(r)
	}
}

func TestL20AllCoresPayAllGPUs(t *testing.T) {
	node := Shape{Nodes: 1, GPUs: 1, GPUMilli: 1000, NodeGPUs: 8, NodeCPUMilli: 96_000, NodeRAMMiB: 1 << 20}
	whole, usual := node, node
	whole.CPUMilli, whole.RAMMiB = 96_000, 1024
	usual.CPUMilli, usual.RAMMiB = DefaultCPU(usual), DefaultRAM(usual)
	charge := func(s Shape) Amount { return Rate{MilliGPU: ChargedMilliGPU(s), PPM: 1_000_000}.Cum(hourMs) }
	if got := charge(whole); got != 8*GPUHour {
		t.Errorf("all cores: %s GPU-h", got.Hours())
	}
	if got := charge(usual); got != GPUHour {
		t.Errorf("default cores: %s GPU-h", got.Hours())
	}
}

func TestChargedMilliGPU(t *testing.T) {
	for name, c := range map[string]struct {
		shape Shape
		want  int64
	}{
		"gang":              {Shape{4, 8, 1000, 96_000, 1000, 8, 96_000, 2000}, 32_000},
		"part of a GPU":     {Shape{1, 1, 250, 1, 1, 8, 96_000, 2000}, 250},
		"RAM decides":       {Shape{2, 1, 1000, 0, 1001, 8, 96_000, 2000}, 8008},
		"rounded down once": {Shape{3, 0, 1000, 1, 0, 1, 3_000, 2000}, 1},
		"CPU only":          {Shape{2, 0, 0, 4_500, 1, 0, 64_000, 256_000}, 9_000},
		"CPU only, by RAM":  {Shape{1, 0, 0, 1_000, 128_000, 0, 64_000, 256_000}, 32_000},
	} {
		if got := ChargedMilliGPU(c.shape); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// The default parts never make a job pay for more than its GPUs.
func TestDefaultsPayForGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{
			Nodes: rapid.Int64Range(1, 100).Draw(t, "nodes"), NodeGPUs: rapid.Int64Range(1, 16).Draw(t, "nodeGPUs"), GPUMilli: 1000,
			NodeCPUMilli: rapid.Int64Range(1, 1<<20).Draw(t, "cpu"), NodeRAMMiB: rapid.Int64Range(1, 1<<24).Draw(t, "ram"),
		}
		if s.GPUs = rapid.Int64Range(1, s.NodeGPUs).Draw(t, "gpus"); s.GPUs == 1 {
			s.GPUMilli = rapid.Int64Range(1, 1000).Draw(t, "milli")
		}
		s.CPUMilli, s.RAMMiB = DefaultCPU(s), DefaultRAM(s)
		if got, want := ChargedMilliGPU(s), s.Nodes*s.GPUs*s.GPUMilli; got != want {
			t.Fatalf("charged %d milli-GPU, want %d", got, want)
		}
	})
}
