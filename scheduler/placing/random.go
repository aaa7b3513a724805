package placing

// Random takes any node that fits. Its numbers come from a seed, so a run can
// be repeated.
type Random struct {
	dice  Dice
	epoch uint32
}

// NewRandom starts the row of numbers of the seed.
func NewRandom(seed uint64) *Random { return &Random{dice: NewDice(seed)} }

// Score draws a number.
func (r *Random) Score(n *Node, a *Ask) Score {
	devices := n.tight(a)
	if a.Count == 1 {
		var fit []int
		for i, d := range n.Devices {
			if a.holds(d) {
				fit = append(fit, i)
			}
		}
		devices = []int{fit[r.dice.Below(len(fit))]}
	}
	return single("chance", int64(r.dice.next()>>1), devices)
}

// Epoch moves on with every look, so that no draw is used twice.
func (r *Random) Epoch() uint32 {
	r.epoch++
	return r.epoch
}

// Renew draws again.
func (r *Random) Renew(s *Score) {
	s.Total = int64(r.dice.next() >> 1)
	s.Terms[0].Value = s.Total
}

// Dice is SplitMix64: a small generator whose numbers are the same everywhere.
type Dice struct{ state uint64 }

// NewDice starts from a seed.
func NewDice(seed uint64) Dice { return Dice{seed} }

func (d *Dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below gives a number from 0 to n-1, each as likely (to within 2^-64·n).
func (d *Dice) Below(n int) int { return int(times128(d.next(), uint64(n))) }
