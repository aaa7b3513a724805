package stalls

import (
	"math"
	"slices"

	"tranche/scheduler/placing"
)

const (
	hours   = 7.0
	warmUp  = 3600.0 // s that do not count
	measure = 300.0  // s between two measurements of what is left

	// bareThreshold is what tells a degraded storage without hysteresis: half way
	// between where hysteresis enters and leaves.
	bareThreshold = 0.835
)

// Result is one run's, or the mean of several.
type Result struct {
	StallPct           float64 `json:"stall_pct"`            // GPU time lost to stalls, of the GPU time held
	FShape             float64 `json:"f_shape"`              // see placing.Indices
	FRaw               float64 `json:"f_raw"`                // …
	FFit               float64 `json:"f_fit"`                // …
	FGPU               float64 `json:"f_gpu"`                // …
	ProductiveGPUHours float64 `json:"productive_gpu_hours"` // held and not stalled
	MeanWaitMin        float64 `json:"mean_wait_min"`        // from arrival to start; who never started, to the end
	// Changes of a node's storage health an hour, as a bare threshold and as the
	// policy see it.
	RawFlips float64 `json:"raw_flips_per_node_hour"`
	Flips    float64 `json:"flips_per_node_hour"`
}

// counted says whether an instant is past the warm-up.
func (w *world) counted(at float64) bool { return at >= warmUp }

// run plays a scenario under a policy.
func run(sc *Scenario, pol *policy, ch *chances) Result {
	w := newWorld(sc, pol, ch)
	for w.now = 0; w.now < hours*3600; w.now += stepS {
		w.sense()
		w.place()
		w.flow()
		w.progress()
		w.endings()
		if w.counted(w.now) && math.Mod(w.now, measure) == 0 {
			w.look()
		}
	}
	return w.result()
}

// sense takes a sample of each node's storage.
func (w *world) sense() {
	for n := range w.nodes {
		f := &w.nodes[n]
		f.actual = w.sc.health(w.ch.rebuilds[n], w.now)
		sample := f.actual * (1 + w.sc.Noise*w.noise.NormFloat64())
		was := f.sensed.Degraded
		f.sensed = f.sensed.Step(int64(sample * placing.Micro))
		bare := sample < bareThreshold
		if w.counted(w.now) {
			w.sum.nodeHours += stepS / 3600
			if was != f.sensed.Degraded {
				w.sum.flips++
			}
			if bare != w.sum.rawDegraded[n] {
				w.sum.rawFlips++
			}
		}
		w.sum.rawDegraded[n] = bare
		if was != f.sensed.Degraded {
			clear(w.stuck)
		}
	}
}

// flow works out which part of the demand for data each node serves.
func (w *world) flow() {
	for n := range w.nodes {
		f := &w.nodes[n]
		var sto, io, net float64
		for _, id := range f.jobs {
			j := &w.ch.jobs[id]
			c := &w.sc.fleet.Classes[j.class]
			j.step(c, w.sc.Bursts, w.now)
			sto, io, net = sto+c.Storage*j.burst, io+c.IO*j.burst, net+c.Net
		}
		f.phi = min(1, served(f.machine.Storage*f.actual, sto), served(f.machine.IO, io), served(f.machine.Net, net))
	}
}

func served(has, wanted float64) float64 {
	if wanted <= has {
		return 1
	}
	return has / wanted
}

// progress lets every job run for a step at its rate.
func (w *world) progress() {
	for n := range w.nodes {
		f := &w.nodes[n]
		var need [16]float64 // GiB by device
		for _, id := range f.jobs {
			j := &w.ch.jobs[id]
			c := &w.sc.fleet.Classes[j.class]
			m := j.memory(c, w.sc.GrowthTimes, w.now-j.started)
			j.peak = max(j.peak, m)
			for _, d := range j.devices {
				need[d] += c.HBM * w.sc.fleet.HBMUnit * m
			}
		}
		for _, id := range f.jobs {
			j := &w.ch.jobs[id]
			c := &w.sc.fleet.Classes[j.class]
			j.rate = 1 / (1 - c.IOBound + c.IOBound/f.phi)
			worst := 1.0
			for _, d := range j.devices {
				worst = min(worst, served(f.machine.HBM, need[d]))
			}
			j.rate *= worst * worst * worst
			j.done += stepS * j.rate
			j.minutes, j.sum, j.sq = j.minutes+1, j.sum+j.burst, j.sq+j.burst*j.burst
			if w.counted(w.now) {
				held := stepS * float64(c.GPUs) * c.Share
				w.sum.busy += held
				w.sum.lost += held * (1 - j.rate)
			}
		}
	}
}

// endings lets who has done its work leave, and its class learn from it.
func (w *world) endings() {
	for n := range w.nodes {
		f := &w.nodes[n]
		f.jobs = slices.DeleteFunc(f.jobs, func(id int) bool {
			j := &w.ch.jobs[id]
			if j.done < j.work {
				return false
			}
			mean := j.sum / j.minutes
			w.past[j.class].learn(j.peak, max(0, j.sq/j.minutes-mean*mean))
			clear(w.stuck)
			return true
		})
	}
}

// look measures how useful what is left is, by what jobs have declared.
func (w *world) look() {
	nodes := make([]placing.Node, len(w.nodes))
	for n := range w.nodes {
		f := &w.nodes[n]
		v := f.base
		v.Devices = append([]placing.Device(nil), f.base.Devices...)
		for _, id := range f.jobs {
			j := &w.ch.jobs[id]
			v.Take(&w.asks[j.class], j.devices)
		}
		v.Cap[placing.Sto] = int64(float64(v.Cap[placing.Sto]) * f.actual)
		v.Free[placing.Sto] -= f.base.Cap[placing.Sto] - v.Cap[placing.Sto]
		for d := range placing.Dims {
			v.Free[d] = max(0, v.Free[d])
		}
		for d := range v.Devices {
			v.Devices[d].HBM = max(0, v.Devices[d].HBM)
		}
		nodes[n] = v
	}
	x := placing.Measure(nodes, w.judged())
	w.sum.samples++
	w.sum.shape, w.sum.raw = w.sum.shape+part(x.Shape), w.sum.raw+part(x.Raw)
	w.sum.fit, w.sum.gpu = w.sum.fit+part(x.Fit), w.sum.gpu+part(x.GPU)
}

func part(millionths int64) float64 { return float64(millionths) / placing.Micro }

// judged is the mix in all dimensions, whatever the policy sees.
func (w *world) judged() placing.Mix {
	var kinds []placing.Kind
	for i := range w.sc.fleet.Classes {
		if p := w.sc.Mix[w.sc.fleet.Classes[i].Name]; p > 0 {
			kinds = append(kinds, placing.Kind{Ask: w.asks[i], Weight: milli(p)})
		}
	}
	m, _ := placing.MixOf(kinds)
	return m
}

func (w *world) result() Result {
	t := &w.sum
	for i := range w.ch.jobs[:w.next] {
		j := &w.ch.jobs[i]
		if !w.counted(j.arrives) {
			continue
		}
		t.arrived++
		if j.node < 0 {
			t.waited += w.now - j.arrives
		}
	}
	return Result{
		StallPct: 100 * t.lost / max(1, t.busy), FShape: t.shape / t.samples, FRaw: t.raw / t.samples, FFit: t.fit / t.samples, FGPU: t.gpu / t.samples,
		ProductiveGPUHours: (t.busy - t.lost) / 3600, MeanWaitMin: t.waited / 60 / max(1, float64(t.arrived)),
		RawFlips: float64(t.rawFlips) / t.nodeHours, Flips: float64(t.flips) / t.nodeHours,
	}
}
