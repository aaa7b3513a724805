package ledger

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestAmountChecksOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := Amount(rapid.Int64().Draw(t, "a")), Amount(rapid.Int64().Draw(t, "b"))
		num, den := rapid.Int64Min(0).Draw(t, "num"), rapid.Int64Min(1).Draw(t, "den")
		big1, big2 := big.NewInt(int64(a)), big.NewInt(int64(b))
		agree := func(name string, got Amount, err error, want *big.Int) {
			switch {
			case want.IsInt64() && want.Int64() != math.MinInt64 && (err != nil || int64(got) != want.Int64()):
				t.Fatalf("%s = %d, %v; want %s", name, got, err, want)
			case !want.IsInt64() && !errors.Is(err, ErrOverflow):
				t.Fatalf("%s = %d, %v; want overflow", name, got, err)
			}
		}
		sum, err := a.Add(b)
		agree("a+b", sum, err, new(big.Int).Add(big1, big2))
		difference, err := a.Sub(b)
		agree("a-b", difference, err, new(big.Int).Sub(big1, big2))
		product, err := a.MulRatio(num, den)
		exact := new(big.Int).Mul(big1, big.NewInt(num))
		floor, _ := new(big.Int).DivMod(exact, big.NewInt(den), new(big.Int)) // Euclid is floor for den > 0
		agree("a*num/den", product, err, floor)
	})
}

func TestMulRatioRefusesNonsense(t *testing.T) {
	for _, c := range [][2]int64{{-1, 1}, {1, 0}, {1, -3}} {
		if _, err := GPUHour.MulRatio(c[0], c[1]); !errors.Is(err, ErrOverflow) {
			t.Errorf("ratio %v: %v", c, err)
		}
	}
}

func TestApportionKeepsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := Amount(rapid.Int64Range(-1<<60, 1<<60).Draw(t, "total"))
		weights := rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 12).Draw(t, "weights")
		parts := Apportion(total, weights)
		var sum, weightSum big.Int
		for i := range weights {
			sum.Add(&sum, big.NewInt(int64(parts[i])))
			weightSum.Add(&weightSum, big.NewInt(weights[i]))
		}
		if sum.Int64() != int64(total) {
			t.Fatalf("parts add up to %s, not %d", &sum, total)
		}
		if weightSum.Sign() == 0 {
			return
		}
		for i, w := range weights { // within one unit of the exact part
			exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(int64(total)), big.NewInt(w)), &weightSum)
			off := exact.Sub(exact, new(big.Rat).SetInt64(int64(parts[i])))
			if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("part %d is %d, off by %s", i, parts[i], off)
			}
		}
	})
}

func TestL10RoundingApportion(t *testing.T) {
	got := Apportion(10_000, []int64{1, 1, 1}) // 100.00 in cents over thirds
	if got[0] != 3334 || got[1] != 3333 || got[2] != 3333 {
		t.Errorf("got %v", got)
	}
	if got := Apportion(5, []int64{0, 0}); got[0]+got[1] != 5 {
		t.Errorf("equal weights: %v", got)
	}
	if got := Apportion(-100, []int64{1, 2}); got[0] != -33 || got[1] != -67 {
		t.Errorf("negative total: %v", got)
	}
}

func TestParseGPUHours(t *testing.T) {
	for text, want := range map[string]Amount{
		"60": 60 * GPUHour, "1,240.5": 4_465_800_000, "1 240.5": 4_465_800_000, "1\u202f240.5": 4_465_800_000,
		"0.016667": 60_001, "0": 0, " 7 ": 7 * GPUHour, ".5": GPUHour / 2, "12,345,678": 12_345_678 * GPUHour,
		"1.000000": GPUHour, "0.000001": 3, "0.0000001": 0, "0.0000003": 1, "333.3333333": 1_200_000_000, "0.0166669": 60_001,
	} {
		if got, r := ParseGPUHours("f", text, 0); r != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, r, want)
		}
	}
	for text, code := range map[string]string{
		"": "amount.unreadable", "1,5": "amount.unreadable", "1.5.2": "amount.unreadable", "5.": "amount.unreadable",
		"12 h": "amount.unreadable", "1e3": "amount.unreadable", "0x10": "amount.unreadable", "--1": "amount.unreadable",
		"1,2345": "amount.unreadable", "1,234 567": "amount.unreadable", "٣": "amount.unreadable", "+5": "amount.unreadable",
		"0.00000001": "amount.decimals", "9999999999999": "amount.too_large", "2600000000000": "amount.too_large",
		"-1": "amount.too_small", "−1": "amount.too_small",
	} {
		if got, r := ParseGPUHours("f", text, 0); r == nil || r.Code != code || r.Field != "f" {
			t.Errorf("%q: got %d, %v; want %s", text, got, r, code)
		}
	}
	if _, r := ParseGPUHours("f", "0", 1); r == nil || r.Code != "amount.too_small" {
		t.Errorf("0 where more than 0 is asked: %v", r)
	}
	if got, r := ParseGPUHours("f", "-2.5", math.MinInt64); r != nil || got != -9_000_000 {
		t.Errorf("-2.5: %d, %v", got, r)
	}
}

func FuzzParseGPUHours(f *testing.F) {
	for _, s := range []string{"60", "1,240.5", "0.016667", "-3", "1 000", "9e9", "1,,000", ".", "−0.5", "999999999999.999999", "-0.0166669", "12.3456789"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, r := ParseGPUHours("f", text, math.MinInt64)
		if r != nil {
			return
		}
		// What was understood, shown exactly, is read back as it was; above 800
		// thousand million GPU-hours seven decimals do not fit.
		if a > -3e18 && a < 3e18 {
			if back, r := ParseGPUHours("f", a.Exact(), math.MinInt64); r != nil || back != a {
				t.Fatalf("%q is %d, shown %s, read back %d, %v", text, a, a.Exact(), back, r)
			}
		}
	})
}

func TestHours(t *testing.T) {
	for a, want := range map[Amount]string{
		0: "0", 1: "<0.01", -1: ">−0.01", GPUHour: "1", 3_660_000: "1.02", GPUHour / 2: "0.5", -60 * GPUHour: "−60",
		4_465_800_000: "1\u202f240.5", 1_234_567 * GPUHour: "1\u202f234\u202f567", 18_000: "0.01", 17_999: "<0.01",
	} {
		if got := a.Hours(); got != want {
			t.Errorf("%d: got %q, want %q", a, got, want)
		}
	}
}

func TestExactTellsAmountsApart(t *testing.T) {
	for a, want := range map[Amount]string{
		0: "0", 1: "0.0000003", 3_660_000: "1.0166667", -GPUHour / 4: "-0.25", math.MaxInt64: "2562047788015.2155019",
	} {
		if got := a.Exact(); got != want {
			t.Errorf("%d: got %s, want %s", a, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := Amount(rapid.Int64().Draw(t, "a"))
		r, ok := new(big.Rat).SetString(a.Exact())
		if !ok {
			t.Fatalf("%q is no decimal", a.Exact())
		}
		r.Sub(r.Mul(r, big.NewRat(int64(GPUHour), 1)), big.NewRat(int64(a), 1))
		if r.Abs(r).Cmp(big.NewRat(1, 2)) >= 0 {
			t.Fatalf("%d is shown %s, half a unit off or more", a, a.Exact())
		}
	})
}

func TestFormatMillis(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0 s", 250: "250 ms", 45_000: "45 s", 60_000: "1 min", 61_500: "1 min 1 s", 12_000_000: "3 h 20 min",
		3_600_000: "1 h", 86_400_000 * 2: "2 d", 86_400_000*2 + 4*3_600_000 + 59_000: "2 d 4 h", -90_000: "−1 min 30 s",
		math.MinInt64: "−106751991167 d 7 h",
	} {
		if got := FormatMillis(ms); got != want {
			t.Errorf("%d: got %q, want %q", ms, got, want)
		}
	}
}
