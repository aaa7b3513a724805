package ledger

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawPrice is an attempt's price after a few renewals, none or some of them
// right where the price before ended, with its turns counted one by one.
func drawPrice(t *rapid.T) Price {
	p := Price{
		Rate: Rate{MilliGPU: rapid.Int64Range(1, 100_000).Draw(t, "milli"), PPM: rapid.Int64Range(1, 3_000_000).Draw(t, "ppm")},
		Past: PastFrom(rapid.Int64Range(1, hourMs).Draw(t, "protected"), rapid.Int64Range(1, MaxPastPPM).Draw(t, "past ppm")),
	}
	at := int64(0)
	if n := len(p.Past.Turns); n > 0 {
		at = p.Past.Turns[n-1]
	}
	for range rapid.IntRange(0, 4).Draw(t, "renewals") {
		from := at + rapid.Int64Range(0, hourMs).Draw(t, "gap")
		at = from + rapid.Int64Range(0, hourMs).Draw(t, "span")
		p.Past = p.Past.Renew(from, at)
	}
	return p
}

// The price is the sum over every millisecond at its own price, rounded once.
func TestPriceIsExactOverItsTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, ms := drawPrice(t), rapid.Int64Range(-5, 12*hourMs).Draw(t, "ms")
		whole, at, full := new(big.Int), int64(0), true
		for _, turn := range append(slices.Clone(p.Past.Turns), 1<<62) {
			if span := min(turn, ms) - at; span > 0 {
				ppm := int64(1_000_000)
				if !full {
					ppm = p.Past.PPM
				}
				whole.Add(whole, new(big.Int).Mul(big.NewInt(span), big.NewInt(ppm)))
				at += span
			}
			full = !full
		}
		whole.Mul(whole, big.NewInt(p.Rate.MilliGPU)).Mul(whole, big.NewInt(p.Rate.PPM)).Div(whole, big.NewInt(1_000_000_000_000_000))
		if got := p.Cum(ms); int64(got) != whole.Int64() {
			t.Fatalf("%+v: %d ms cost %d, want %s", p, ms, got, whole)
		}
	})
}

// However an attempt is cut, and whatever is renewed in between, pieces add up to
// the whole and none is negative.
func TestPricePiecesEqualWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPrice(t)
		cuts := rapid.SliceOfN(rapid.Int64Range(0, 10*hourMs), 2, 30).Draw(t, "cuts")
		slices.Sort(cuts)
		var sum Amount
		for i := 0; i+1 < len(cuts); i++ {
			piece := p.Cum(cuts[i+1]) - p.Cum(cuts[i])
			if piece < 0 {
				t.Fatalf("[%d, %d) costs %d", cuts[i], cuts[i+1], piece)
			}
			sum += piece
		}
		if whole := p.Cum(cuts[len(cuts)-1]) - p.Cum(cuts[0]); sum != whole {
			t.Fatalf("pieces %d, whole %d", sum, whole)
		}
	})
}

// What was priced before a renewal keeps its price to the unit.
func TestRenewalKeepsThePriceBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPrice(t)
		from := int64(0)
		if n := len(p.Past.Turns); n > 0 {
			from = p.Past.Turns[n-1]
		}
		from += rapid.Int64Range(0, hourMs).Draw(t, "from")
		before := slices.Clone(p.Past.Turns)
		next := Price{p.Rate, p.Past.Renew(from, from+rapid.Int64Range(1, hourMs).Draw(t, "span"))}
		ms := rapid.Int64Range(0, from).Draw(t, "ms")
		if p.Cum(ms) != next.Cum(ms) || !slices.Equal(before, p.Past.Turns) {
			t.Fatalf("%d ms: %d before, %d after", ms, p.Cum(ms), next.Cum(ms))
		}
	})
}

// The default price is the rate's, to the unit and for any length.
func TestOnePriceIsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, ms := rates().Draw(t, "rate"), rapid.Int64().Draw(t, "ms")
		p := Price{rate, PastFrom(hourMs, rapid.SampledFrom([]int64{0, 1_000_000}).Draw(t, "ppm")).Renew(2*hourMs, 3*hourMs)}
		if !p.Past.IsZero() || p.Cum(ms) != rate.Cum(ms) {
			t.Fatalf("%d, want %d", p.Cum(ms), rate.Cum(ms))
		}
	})
}
