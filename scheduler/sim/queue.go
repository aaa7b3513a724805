package sim

import "tranche/ledger"

// happening is a future event of the virtual world, by instant, then by the
// order in which it was planned.
type happening struct {
	at  ledger.Instant
	seq int64
	do  func()
}

// agenda is a binary heap of happenings.
type agenda struct {
	list []happening
	seq  int64
}

func (a *agenda) less(i, j int) bool {
	x, y := &a.list[i], &a.list[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (a *agenda) add(at ledger.Instant, do func()) {
	a.seq++
	a.list = append(a.list, happening{at, a.seq, do})
	for i := len(a.list) - 1; i > 0 && a.less(i, (i-1)/2); i = (i - 1) / 2 {
		a.list[i], a.list[(i-1)/2] = a.list[(i-1)/2], a.list[i]
	}
}

// next is the instant of the earliest happening; ok is false when there is none.
func (a *agenda) next() (ledger.Instant, bool) {
	if len(a.list) == 0 {
		return 0, false
	}
	return a.list[0].at, true
}

func (a *agenda) take() happening {
	top, last := a.list[0], len(a.list)-1
	a.list[0] = a.list[last]
	a.list[last] = happening{}
	a.list = a.list[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if a.less(c, least) {
				least = c
			}
		}
		if least == i {
			return top
		}
		a.list[i], a.list[least] = a.list[least], a.list[i]
		i = least
	}
}

// dice is a seeded source of chance (splitmix64).
type dice uint64

func (d *dice) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// upTo gives a number in [0, n]; 0 when n is below 1.
func (d *dice) upTo(n int64) int64 {
	if n < 1 {
		return 0
	}
	return int64(d.next() % uint64(n+1))
}
