// Package ledger holds Tranche's books and the words the whole program shares:
// amounts, accounts, entries, lots, holds, charges, requests, actors and refusals.
// It is pure: no clock, no chance, no input or output. Every rule about who may
// spend what is decided here and carried out by package store.
package ledger

import (
	"errors"
	"math"
	"math/bits"
	"sort"
	"strconv"
	"strings"
)

// Amount counts ledger units: 1 unit is 1 milli-GPU-second at rate 1.000, so
// 1 GPU-hour is 3,600,000 units. Amounts are never floats.
type Amount int64

// GPUHour is one GPU-hour in units.
const GPUHour Amount = 3_600_000

// ErrOverflow says that a sum or product does not fit an Amount.
var ErrOverflow = errors.New("ledger: amount does not fit 64 bits")

// Add gives a + b, or ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	c := a + b
	if (a > 0 && b > 0 && c < 0) || (a < 0 && b < 0 && c >= 0) {
		return 0, ErrOverflow
	}
	return c, nil
}

// Sub gives a − b, or ErrOverflow.
func (a Amount) Sub(b Amount) (Amount, error) {
	c := a - b
	if (a >= 0 && b < 0 && c < 0) || (a < 0 && b > 0 && c >= 0) {
		return 0, ErrOverflow
	}
	return c, nil
}

// MulRatio gives floor(a · num / den) in 128-bit arithmetic: the one rounding
// rule of the books, always towards minus infinity. num ≥ 0, den > 0, else
// ErrOverflow, which also says that the result does not fit.
func (a Amount) MulRatio(num, den int64) (Amount, error) {
	if num < 0 || den <= 0 {
		return 0, ErrOverflow
	}
	size := uint64(a)
	if a < 0 {
		size = -size
	}
	hi, lo := bits.Mul64(size, uint64(num))
	if hi >= uint64(den) {
		return 0, ErrOverflow
	}
	quo, rem := bits.Div64(hi, lo, uint64(den))
	if a < 0 && rem > 0 {
		quo++
	}
	if quo > math.MaxInt64 {
		return 0, ErrOverflow
	}
	if a < 0 {
		return -Amount(quo), nil
	}
	return Amount(quo), nil
}

// Apportion splits total over weights (each ≥ 0, not all needed > 0) so that the
// parts add up to total exactly: every part is rounded down and what is left goes,
// one unit each, to the largest remainders, ties to the lower index. When all
// weights are 0 they count as equal. It panics on a negative weight or when the
// weights' sum does not fit 63 bits, both faults of the caller.
func Apportion(total Amount, weights []int64) []Amount {
	parts := make([]Amount, len(weights))
	if len(weights) == 0 || total == 0 {
		return parts
	}
	size, negative := uint64(total), total < 0
	if negative {
		size = -size
	}
	weight, sum := apportionWeights(weights)
	rest, remainders, order := size, make([]uint64, len(weights)), make([]int, len(weights))
	for i := range weights {
		hi, lo := bits.Mul64(size, weight(i))
		quo, rem := bits.Div64(hi, lo, sum)
		parts[i], remainders[i], order[i] = Amount(quo), rem, i
		rest -= quo
	}
	sort.SliceStable(order, func(x, y int) bool { return remainders[order[x]] > remainders[order[y]] })
	for _, i := range order[:rest] {
		parts[i]++
	}
	if negative {
		for i := range parts {
			parts[i] = -parts[i]
		}
	}
	return parts
}

// apportionWeights gives the weights to use and their sum, which is > 0.
func apportionWeights(weights []int64) (func(int) uint64, uint64) {
	var sum uint64
	for _, w := range weights {
		if w < 0 {
			panic("ledger: Apportion with a negative weight")
		}
		if sum += uint64(w); sum > math.MaxInt64 {
			panic("ledger: Apportion with weights beyond 63 bits")
		}
	}
	if sum == 0 {
		return func(int) uint64 { return 1 }, uint64(len(weights))
	}
	return func(i int) uint64 { return uint64(weights[i]) }, sum
}

// thinSpace groups thousands for people: U+202F, which does not break a line.
const thinSpace = "\u202f"

// Hours writes an amount as GPU-hours for people: at most two decimals, rounded
// half away from zero, thousands grouped by a thin space, a true minus sign. What
// is not zero never reads as zero: "<0.01".
func (a Amount) Hours() string {
	size, sign := uint64(a), ""
	if a < 0 {
		size, sign = -size, "−"
	}
	const hundredth = uint64(GPUHour) / 100
	cents := size / hundredth
	if size%hundredth*2 >= hundredth {
		cents++
	}
	if cents == 0 && a != 0 {
		if a < 0 {
			return ">−0.01"
		}
		return "<0.01"
	}
	out := sign + groupThousands(strconv.FormatUint(cents/100, 10))
	if frac := cents % 100; frac != 0 {
		out += "." + strings.TrimRight(padLeft(frac, 2), "0")
	}
	return out
}

// Exact writes an amount as GPU-hours for machines: up to seven decimals, rounded
// to the nearest, which tells any two amounts apart; never an exponent, no
// grouping, an ASCII minus.
func (a Amount) Exact() string {
	size, sign := uint64(a), ""
	if a < 0 {
		size, sign = -size, "-"
	}
	// A remainder of n units is n · 25 / 9 steps of 1e-7 hours.
	whole, rest := size/uint64(GPUHour), size%uint64(GPUHour)*25
	steps := rest / 9
	if rest%9*2 >= 9 {
		steps++
	}
	out := sign + strconv.FormatUint(whole, 10)
	if steps != 0 {
		out += "." + strings.TrimRight(padLeft(steps, 7), "0")
	}
	return out
}

func padLeft(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

func groupThousands(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteString(thinSpace)
		}
		b.WriteRune(d)
	}
	return b.String()
}

// ParseGPUHours reads what a person typed as GPU-hours: "60", "1,240.5",
// "1 240.5", "0.016667". Thousands may be grouped by commas or spaces, in threes;
// the decimal mark is a point; up to six decimals are rounded down to whole units.
// Seven are what Exact writes: they give the nearest unit, so that an amount
// copied from a page or left in a form is read back as it was.
// Amounts below low (in units: 0 forbids negatives, 1 forbids zero too) are
// refused. field is the form field that a refusal belongs to.
func ParseGPUHours(field, text string, low Amount) (Amount, *Refusal) {
	s := strings.TrimSpace(text)
	negative := false
	for _, minus := range []string{"-", "−"} {
		if rest, ok := strings.CutPrefix(s, minus); ok {
			s, negative = rest, true
			break
		}
	}
	whole, frac, hasPoint := strings.Cut(s, ".")
	if whole == "" && hasPoint {
		whole = "0"
	}
	digits, ok := ungroup(whole)
	if !ok || (hasPoint && !allDigits(frac)) {
		return 0, refuse(Invalid, "amount.unreadable", field,
			"Write GPU-hours as a number such as 60 or 1,240.5: digits, commas between thousands, a point before decimals.", "text", clip(text, 40))
	}
	if len(frac) > 7 {
		return 0, refuse(Invalid, "amount.decimals", field, "Use at most six decimals for GPU-hours.", "text", clip(text, 40))
	}
	perHour := int64(1_000_000)
	if len(frac) == 7 {
		perHour *= 10
	}
	parts, err := strconv.ParseInt(digits+frac+strings.Repeat("0", max(0, 6-len(frac))), 10, 64)
	if err != nil {
		return 0, refuse(Invalid, "amount.too_large", field, "This amount is too large to count.", "text", clip(text, 40))
	}
	if negative {
		parts = -parts
	}
	a, err := Amount(parts).MulRatio(int64(GPUHour), perHour)
	if err != nil {
		return 0, refuse(Invalid, "amount.too_large", field, "This amount is too large to count.", "text", clip(text, 40))
	}
	// A seventh decimal stands for 9/25 of a unit; what was rounded down may be
	// nearer to the unit above.
	if rest := (parts%25*9%25 + 25) % 25; len(frac) == 7 && rest*2 > 25 {
		a++
	}
	if a < low {
		return 0, refuse(Invalid, "amount.too_small", field, tooSmall(low), "text", clip(text, 40))
	}
	return a, nil
}

func tooSmall(low Amount) string {
	switch low {
	case 0:
		return "GPU-hours cannot be negative here."
	case 1:
		return "GPU-hours must be more than 0 here."
	}
	return "GPU-hours must be at least " + low.Hours() + " here."
}

// ungroup removes thousands separators, which must stand every three digits and
// all be of one kind: "1,5" is refused rather than read as 15 or 1.5.
func ungroup(s string) (string, bool) {
	for _, sep := range []string{",", " ", thinSpace, "\u00a0"} {
		if !strings.Contains(s, sep) {
			continue
		}
		groups := strings.Split(s, sep)
		for i, g := range groups {
			if !allDigits(g) || (i > 0 && len(g) != 3) || len(g) > 3 {
				return "", false
			}
		}
		return strings.Join(groups, ""), true
	}
	return s, allDigits(s)
}

// allDigits says that s is one or more ASCII digits.
func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// clip bounds a text that is repeated back to a person, by characters.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// FormatMillis writes a duration in ms for people with its two largest units:
// "3 h 20 min", "2 d 4 h", "45 s", "250 ms".
func FormatMillis(ms int64) string {
	if ms < 0 {
		return "−" + FormatMillis(-max(ms, -math.MaxInt64))
	}
	if ms > 0 && ms < 1000 {
		return strconv.FormatInt(ms, 10) + " ms"
	}
	left := ms / 1000
	units := []struct {
		seconds int64
		name    string
	}{{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}}
	for i, u := range units {
		n := left / u.seconds
		if n == 0 {
			continue
		}
		out := strconv.FormatInt(n, 10) + u.name
		if i+1 < len(units) {
			if m := left % u.seconds / units[i+1].seconds; m > 0 {
				out += " " + strconv.FormatInt(m, 10) + units[i+1].name
			}
		}
		return out
	}
	return "0 s"
}
