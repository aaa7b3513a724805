package stalls

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"tranche/scheduler/placing"
)

const (
	stepS   = 10.0 // s between two looks: telemetry comes so often
	bufferK = 1.0  // standard deviations held back
)

// forecast is what ended jobs of a class have shown, by the dispatcher's own rules.
type forecast struct {
	memory placing.Class // peak of memory, in parts of what was declared
	flow   placing.Class // variance of the demand for data around its mean
}

func (f *forecast) learn(peak, swing float64) {
	f.memory, f.flow = f.memory.Learn(int64(peak*placing.Micro)), f.flow.Learn(int64(swing*placing.Micro))
}

// known gives mean and variance of the peak and the variance of the demand for data;
// what was declared as long as too few jobs have ended.
func (f *forecast) known() (peak, vary, swing float64) {
	if !f.memory.Known() {
		return 1, 0, 0
	}
	return part(f.memory.Mean), part(f.memory.Var), part(f.flow.Mean)
}

// fleetNode is a node in the run.
type fleetNode struct {
	machine Machine
	base    placing.Node // empty, as it was built
	jobs    []int
	actual  float64 // health of its storage
	sensed  placing.Health
	phi     float64 // part of the demand for data that it serves
}

// world is one run of one policy.
type world struct {
	sc     *Scenario
	pol    *policy
	ch     *chances
	nodes  []fleetNode
	asks   []placing.Ask // by class, as declared
	mix    placing.Mix   // kinds in the order of kindOf
	past   []forecast    // by class
	placer placing.Placer
	noise  *rand.Rand
	now    float64
	next   int   // first job that has not arrived
	queue  []int // waiting, in order of arrival
	waits  int   // of them, tried and found no place
	stuck  []bool
	sum    totals
}

// totals are what a run is judged by, after its warm-up.
type totals struct {
	busy, lost  float64 // GPU·s held, and of them stalled
	waited      float64 // s
	arrived     int
	shape, raw  float64
	fit, gpu    float64
	samples     float64
	flips       int // of sensed health
	rawFlips    int // of a threshold on the bare samples
	rawDegraded []bool
	nodeHours   float64
}

func newWorld(sc *Scenario, pol *policy, ch *chances) *world {
	w := &world{sc: sc, pol: pol, ch: &chances{rebuilds: ch.rebuilds}}
	w.ch.jobs = append(w.ch.jobs, ch.jobs...)
	for i, m := range sc.fleet.machines() {
		w.nodes = append(w.nodes, fleetNode{machine: m, base: m.node(fmt.Sprintf("n%02d", i+1)), actual: 1, phi: 1})
	}
	var kinds []placing.Kind
	for i := range sc.fleet.Classes {
		c := &sc.fleet.Classes[i]
		a := c.ask(sc.fleet)
		w.asks = append(w.asks, a)
		if part := sc.Mix[c.Name]; part > 0 {
			if pol.blind {
				a.Demand[placing.Sto], a.Demand[placing.IOC] = 0, 0
			}
			kinds = append(kinds, placing.Kind{Ask: a, Weight: milli(part)})
		}
	}
	w.mix, _ = placing.MixOf(kinds)
	w.past = slices.Clone(ch.past)
	w.stuck = make([]bool, len(sc.fleet.Classes))
	w.noise = rand.New(rand.NewPCG(ch.noise, 1))
	w.sum.rawDegraded = make([]bool, len(w.nodes))
	w.placer = pol.make(w)
	return w
}

// view is a node as the policy sees it for a job of a class (−1: of none): what is
// left after what is held back for the class and those who run. Blind policies see
// neither storage nor what may come.
func (w *world) view(n, class int) placing.Node {
	f := &w.nodes[n]
	v := f.base
	v.Devices = append([]placing.Device(nil), f.base.Devices...)
	var mem, vary [16]float64
	var sto, io, stoVar, ioVar float64
	if class >= 0 {
		_, own, swing := w.knows(class)
		c := &w.sc.fleet.Classes[class]
		h := c.HBM * w.sc.fleet.HBMUnit * 1024
		for d := range v.Devices {
			vary[d] = h * h * own
		}
		stoVar, ioVar = c.Storage*c.Storage*swing, c.IO*c.IO*swing
	}
	for _, id := range f.jobs {
		j := &w.ch.jobs[id]
		c, a := &w.sc.fleet.Classes[j.class], &w.asks[j.class]
		peak, own, swing := w.knows(j.class)
		for _, d := range []int{placing.CPU, placing.RAM, placing.SM, placing.Net} {
			v.Free[d] -= a.Demand[d]
		}
		sto, io = sto+c.Storage, io+c.IO
		stoVar, ioVar = stoVar+c.Storage*c.Storage*swing, ioVar+c.IO*c.IO*swing
		h := c.HBM * w.sc.fleet.HBMUnit * 1024
		for _, d := range j.devices {
			v.Devices[d].SM -= a.Share
			mem[d] += h * peak
			vary[d] += h * h * own
		}
	}
	v.Free[placing.HBM] = 0
	for d := range v.Devices {
		v.Devices[d].HBM = max(0, f.base.Devices[d].HBM-int64(math.Ceil(mem[d]+bufferK*math.Sqrt(vary[d]))))
		v.Free[placing.HBM] += v.Devices[d].HBM
	}
	if w.pol.blind {
		v.Cap[placing.Sto], v.Cap[placing.IOC], v.Free[placing.Sto], v.Free[placing.IOC] = 0, 0, 0, 0
		return v
	}
	left := 1.0
	if f.sensed.Degraded {
		left = math.Min(1, float64(f.sensed.Mean)/placing.Micro)
	}
	v.Free[placing.Sto] = room(f.machine.Storage*left, sto, stoVar)
	v.Free[placing.IOC] = room(f.machine.IO, io, ioVar)
	return v
}

func room(has, used, variance float64) int64 {
	return max(0, int64((has-used-bufferK*math.Sqrt(variance))*1000))
}

func (w *world) knows(class int) (peak, vary, swing float64) {
	if w.pol.blind {
		return 1, 0, 0
	}
	return w.past[class].known()
}

// wants is what a job of a class asks of a view: its memory is what its class shows.
func (w *world) wants(class int) placing.Ask {
	a := w.asks[class]
	if w.pol.blind {
		a.Demand[placing.Sto], a.Demand[placing.IOC] = 0, 0
		return a
	}
	peak, vary, _ := w.knows(class)
	c := &w.sc.fleet.Classes[class]
	most := 0.0
	for i := range w.sc.fleet.Nodes {
		most = math.Max(most, w.sc.fleet.Nodes[i].HBM)
	}
	h := c.HBM * w.sc.fleet.HBMUnit
	if c.Share == 1 { // no more than the largest device has, or it could never start
		h = math.Min(h*peak, most-bufferK*h*math.Sqrt(vary))
	} else {
		h *= peak
	}
	a.HBM = mib(h)
	a.Demand[placing.HBM] = int64(a.Count) * a.HBM
	return a
}

// reserved is the part of the GPUs that is taken.
func (w *world) reserved() float64 {
	var taken, all float64
	for n := range w.nodes {
		all += float64(w.nodes[n].machine.GPUs)
		for _, id := range w.nodes[n].jobs {
			c := &w.sc.fleet.Classes[w.ch.jobs[id].class]
			taken += float64(c.GPUs) * c.Share
		}
	}
	return taken / all
}

// place tries who waits, in order of arrival; once one of a class finds no place,
// the others of it are not tried before something leaves.
func (w *world) place() {
	for w.next < len(w.ch.jobs) && w.ch.jobs[w.next].arrives <= w.now {
		w.queue = append(w.queue, w.next)
		w.next++
	}
	if p, ok := w.placer.(*priced); ok {
		p.tick()
	}
	kept := w.queue[:0]
	for _, id := range w.queue {
		j := &w.ch.jobs[id]
		if w.stuck[j.class] || !w.start(id) {
			w.stuck[j.class] = true
			kept = append(kept, id)
		}
	}
	w.queue, w.waits = kept, len(kept)
}

// start puts a job on the best node that fits; false when none does.
func (w *world) start(id int) bool {
	j := &w.ch.jobs[id]
	ask := w.wants(j.class)
	best, at := placing.Score{}, -1
	for n := range w.nodes {
		v := w.view(n, j.class)
		if !v.Fits(&ask) {
			continue
		}
		s := w.placer.Score(&v, &ask)
		if at < 0 || s.Total > best.Total || s.Total == best.Total && s.Tie < best.Tie {
			best, at = s, n
		}
	}
	if at < 0 {
		return false
	}
	j.node, j.devices, j.started = at, best.Devices, w.now
	w.nodes[at].jobs = append(w.nodes[at].jobs, id)
	if w.counted(j.arrives) {
		w.sum.waited += w.now - j.arrives
	}
	return true
}
