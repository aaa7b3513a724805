package stalls

import (
	"math"
	"math/rand/v2"
	"slices"
)

// job is one arrival; what chance gives it does not depend on where it goes.
type job struct {
	class   int
	arrives float64 // s
	work    float64 // s of running without a stall
	grows   float64 // s, time constant of its memory's growth
	luck    uint64  // of its bursts

	node    int // −1 while it waits
	devices []int
	started float64
	done    float64 // s of work
	peak    float64 // of its memory, in parts of what was declared
	rate    float64 // of the last step
	burst   float64 // of this minute, times its demand for data
	minute  int
	sum, sq float64 // of the bursts it had, and their squares
	minutes float64
}

// rebuild is a spell in which a node's storage has less bandwidth.
type rebuild struct{ from, to float64 }

// chances are everything random of one run: the same for all policies.
type chances struct {
	jobs     []job
	rebuilds [][]rebuild // by node
	past     []forecast  // by class: what is known when the run begins
	noise    uint64      // seed of the telemetry's
}

// history is how many ended jobs of each class a pool knows when a run begins, as one
// that was in use the day before.
const history = 50

// draw makes a run's arrivals until a time in seconds. cold leaves the history empty.
func (s *Scenario) draw(seed uint64, until float64, cold bool) *chances {
	dice := rand.New(rand.NewPCG(seed, 0x7374616c6c73))
	c := &chances{noise: dice.Uint64(), past: make([]forecast, len(s.fleet.Classes))}
	if !cold {
		s.remember(c.past, rand.New(rand.NewPCG(seed, 0x70617374)))
	}
	cum := make([]float64, len(s.fleet.Classes))
	sum := 0.0
	for i := range cum {
		sum += s.Mix[s.fleet.Classes[i].Name]
		cum[i] = sum
	}
	base := s.rate() / 60
	if p := &s.Peak; p.Times > 1 {
		base /= 1 + (p.Times-1)*p.Minutes/p.Every
	}
	for at := 0.0; ; {
		// Thinning: draw at the highest rate, keep with the rate of the moment.
		at += dice.ExpFloat64() / (base * max(1, s.Peak.Times))
		if at >= until {
			break
		}
		if p := &s.Peak; p.Times > 1 && math.Mod(at, p.Every*60) >= p.Minutes*60 && dice.Float64() >= 1/p.Times {
			continue
		}
		k, _ := slices.BinarySearch(cum, dice.Float64()*sum)
		j := job{class: k, arrives: at, node: -1, minute: -1, peak: 1, luck: dice.Uint64()}
		j.work, j.grows = s.lot(k, dice)
		c.jobs = append(c.jobs, j)
	}
	c.rebuilds = make([][]rebuild, len(s.fleet.machines()))
	for n := range c.rebuilds {
		for at := 0.0; s.Rebuild.PerNodeHour > 0; {
			at += dice.ExpFloat64() * 3600 / s.Rebuild.PerNodeHour
			if at >= until {
				break
			}
			m := s.Rebuild.Minutes
			long := 60 * (m[0] + (m[1]-m[0])*dice.Float64())
			c.rebuilds[n] = append(c.rebuilds[n], rebuild{at, at + long})
			at += long
		}
	}
	return c
}

// lot draws a job's duration and the time constant of its memory's growth, in seconds.
func (s *Scenario) lot(class int, dice *rand.Rand) (work, grows float64) {
	f := s.fleet
	work = 60 * f.Classes[class].Minutes * math.Exp(f.Spread*dice.NormFloat64()-f.Spread*f.Spread/2)
	return work, 60 * (f.GrowMinutes[0] + (f.GrowMinutes[1]-f.GrowMinutes[0])*dice.Float64())
}

// remember lets every class learn from earlier jobs.
func (s *Scenario) remember(past []forecast, dice *rand.Rand) {
	for k := range past {
		c, swing := &s.fleet.Classes[k], 0.0
		if s.Bursts {
			swing = c.Burst * c.Burst / 3 // b in a quarter of the minutes, −b/3 else
		}
		for range history {
			var j job
			j.work, j.grows = s.lot(k, dice)
			past[k].learn(j.memory(c, s.GrowthTimes, j.work), swing)
		}
	}
}

// health is what is left of a node's storage bandwidth.
func (s *Scenario) health(spells []rebuild, at float64) float64 {
	for _, r := range spells {
		if r.from <= at && at < r.to {
			return s.Rebuild.Left
		}
	}
	return 1
}

// step moves a job's burst to the minute of its age.
func (j *job) step(c *Class, bursts bool, now float64) {
	if j.burst = 1; !bursts || c.Burst == 0 {
		return
	}
	if m := int((now - j.started) / 60); m != j.minute {
		j.minute = m
	}
	x := j.luck + uint64(j.minute)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	if j.burst = 1 - c.Burst/3; (x^x>>31)%4 == 0 {
		j.burst = 1 + c.Burst
	}
}

// memory is what the job uses of what it declared, at an age in seconds.
func (j *job) memory(c *Class, times, age float64) float64 {
	return 1 + times*c.Growth*(1-math.Exp(-age/j.grows))
}
