package placing

// Class is what ended jobs of one kind have shown: their peak of GPU memory as part
// of what they had declared.
type Class struct {
	Seen int64 // jobs
	Mean int64 // moving mean of peak ÷ declared, millionths
	Var  int64 // moving variance of it, millionths
}

// EnoughSeen is how many ended jobs say what the next of their kind will use. With
// fewer, what is declared counts.
const EnoughSeen = 5

// Learn takes the peak of one more job, as part of what it declared, in millionths.
// It counts a tenth; the first ten jobs count alike, so that the first weighs no more
// than the others and the variance is theirs.
func (c Class) Learn(ratio int64) Class {
	c.Seen++
	n := min(c.Seen, 10)
	off := ratio - c.Mean
	c.Mean += off / n
	c.Var = (c.Var + off/1000*(off/1000)/n) * (n - 1) / n
	return c
}

// Known says whether enough jobs have ended.
func (c Class) Known() bool { return c.Seen >= EnoughSeen }

// Deviation is the standard deviation of the part, in millionths.
func (c Class) Deviation() int64 { return root(c.Var * Micro) }

// Deviation is the standard deviation to a variance, rounded up.
func Deviation(variance int64) int64 {
	d := root(variance)
	if d*d < variance {
		d++
	}
	return d
}

// Spread is what ended jobs of one kind have shown of how far their demand swings: its
// variance over the square of its mean.
type Spread struct {
	Seen int64 // jobs
	Var  int64 // moving mean of it, millionths
}

// Learn takes one more job's variance over the square of its mean, in millionths. It
// counts like a peak in Class.Learn.
func (s Spread) Learn(variance int64) Spread {
	s.Seen++
	s.Var += (variance - s.Var) / min(s.Seen, 10)
	return s
}

// Known says whether enough jobs have ended.
func (s Spread) Known() bool { return s.Seen >= EnoughSeen }

// Deviation is the standard deviation as part of the mean, in millionths.
func (s Spread) Deviation() int64 { return root(s.Var * Micro) }

// Running follows the memory that somebody uses, from minute to minute.
type Running struct {
	Seen int64
	mean int64 // thousandths
	vary int64 // variance
}

// Step takes the next minute's most, in any unit.
func (r Running) Step(used int64) Running {
	if r.Seen++; r.Seen == 1 {
		r.mean = used * 1000
		return r
	}
	off := used*1000 - r.mean
	r.mean += off / 20
	r.vary = (r.vary + off/1000*(off/1000)/20) * 19 / 20
	return r
}

// Next is what is expected at most in the next five minutes: the moving mean and two
// standard deviations, never less than now.
func (r Running) Next(now int64) int64 { return r.Ahead(now, 2) }

// Ahead is Next with so many standard deviations.
func (r Running) Ahead(now, deviations int64) int64 {
	return max(now, r.mean/1000+deviations*root(r.vary))
}
