package ledger

import (
	"math"
	"math/bits"
	"slices"
)

// Tariff says what an attempt owes for its first elapsed milliseconds. It never
// falls, and charges are its differences, so pieces always add up to the whole.
type Tariff interface {
	Cum(ms int64) Amount
}

// Past prices an attempt's seconds without protection. The zero value prices
// them like all others.
type Past struct {
	// PPM of the full price; 0 = the full price. At most maxPastPPM.
	PPM int64 `json:"ppm,omitempty"`
	// Turns are the elapsed milliseconds, ascending, at which the price changes:
	// full before the first, PPM after it, full again after the second.
	Turns []int64 `json:"turns,omitempty"`
}

// MaxPastPPM bounds the price without protection: ten times the full one.
const MaxPastPPM = 10_000_000

// IsZero says that all seconds cost the same.
func (p Past) IsZero() bool { return p.PPM == 0 }

// PastFrom is the price of an attempt that is protected for its first ms, with
// ppm of the full price after that. 1,000,000 is the full price.
func PastFrom(ms, ppm int64) Past {
	if ppm <= 0 || ppm == 1_000_000 {
		return Past{}
	}
	return Past{PPM: ppm, Turns: []int64{ms}}
}

// Renew gives [fromMs, toMs) the full price. fromMs must be at or after every
// turn: what was set aside before keeps its price.
func (p Past) Renew(fromMs, toMs int64) Past {
	if p.PPM == 0 || toMs <= fromMs {
		return p
	}
	turns := slices.Clone(p.Turns)
	if n := len(turns); n > 0 && turns[n-1] == fromMs {
		turns[n-1] = toMs
	} else {
		turns = append(turns, fromMs, toMs)
	}
	return Past{PPM: p.PPM, Turns: turns}
}

// Unprotected is how much of the first elapsed milliseconds has the price
// without protection; 0 where there is but one price.
func (p Past) Unprotected(ms int64) int64 {
	var sum int64
	for i := 0; i < len(p.Turns) && p.PPM != 0; i += 2 {
		end := ms
		if i+1 < len(p.Turns) {
			end = min(ms, p.Turns[i+1])
		}
		sum += max(0, end-p.Turns[i])
	}
	return sum
}

// Price is a rate with the price of the seconds without protection.
type Price struct {
	Rate Rate
	Past Past
}

// Cum is floor(MilliGPU · PPM · (full ms + unprotected ms · Past.PPM / 10⁶) / 10⁹)
// in 128-bit arithmetic: one cumulative function over the whole attempt, so that
// no turn of the price loses or makes a unit. What no Amount can hold gives the
// largest Amount, like Rate.Cum.
func (p Price) Cum(ms int64) Amount {
	past := p.Past.Unprotected(ms)
	if past == 0 {
		return p.Rate.Cum(ms)
	}
	// In ppm-milliseconds; both products fit 128 bits, their sum as well.
	hi, lo := bits.Mul64(uint64(ms-past), 1_000_000)
	hi2, lo2 := bits.Mul64(uint64(past), uint64(p.Past.PPM))
	lo, carry := bits.Add64(lo, lo2, 0)
	if hi, _ = bits.Add64(hi, hi2, carry); hi != 0 {
		return math.MaxInt64
	}
	const perUnit = 1_000_000_000_000_000
	hi, lo = bits.Mul64(uint64(p.Rate.MilliGPU)*uint64(p.Rate.PPM), lo)
	if hi >= perUnit {
		return math.MaxInt64
	}
	quo, _ := bits.Div64(hi, lo, perUnit)
	return Amount(min(quo, math.MaxInt64))
}
