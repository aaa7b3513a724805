package placing

import "math/bits"

// Micro is one in fixed point.
const Micro = 1_000_000

// times gives a·b/c, rounded towards zero, without overflow in between. It wants
// a and b not negative, c positive, and a result below 2^63.
func times(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(quotient)
}

// part gives a/b in millionths, 0 when there is nothing to take part of.
func part(a, b int64) int64 {
	if b <= 0 || a <= 0 {
		return 0
	}
	return times(a, Micro, b)
}

// root gives the square root, rounded down.
func root(x int64) int64 {
	if x <= 0 {
		return 0
	}
	guess := int64(1) << ((bits.Len64(uint64(x)) + 1) / 2)
	for {
		next := (guess + x/guess) / 2
		if next >= guess {
			return guess
		}
		guess = next
	}
}

// floorDiv gives a/b rounded down, for positive b.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// times128 gives the upper half of a·b.
func times128(a, b uint64) uint64 {
	high, _ := bits.Mul64(a, b)
	return high
}
