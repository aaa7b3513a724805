// Package stalls simulates a fleet whose nodes can be starved of data and whose GPU
// memory can overflow, and measures what that costs under different placers: the
// share of GPU time that is lost to stalls, how useful what is left over is, and how
// long jobs wait. Its physics is arithmetic with fractions; where a job goes is
// decided by scheduler/placing, in whole numbers.
package stalls

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"tranche/scheduler/placing"
)

//go:embed scenarios
var files embed.FS

// Fleet is what all scenarios have in common: machines and classes of jobs.
type Fleet struct {
	Nodes       []Machine  `json:"nodes"`  // a pattern
	Repeat      int        `json:"repeat"` // that comes so often
	HBMUnit     float64    `json:"hbm_unit_gib"`
	Classes     []Class    `json:"classes"`
	Spread      float64    `json:"spread"`       // σ of the logarithm of durations
	GrowMinutes [2]float64 `json:"grow_minutes"` // time constant of memory growth, from to
}

// Machine is a kind of node.
type Machine struct {
	Count   int     `json:"count"`
	Cores   float64 `json:"cores"`
	RAM     float64 `json:"ram_gib"`
	GPUs    int     `json:"gpus"`
	HBM     float64 `json:"hbm_gib"` // of each
	Net     float64 `json:"net_gbps"`
	Storage float64 `json:"storage_gbs"`
	IO      float64 `json:"io_cores"`
}

// Class is a kind of job.
type Class struct {
	Name    string  `json:"name"`
	Cores   float64 `json:"cores"`
	RAM     float64 `json:"ram_gib"`
	Net     float64 `json:"net_gbps"`
	GPUs    int     `json:"gpus"`
	Share   float64 `json:"share"` // of each GPU
	HBM     float64 `json:"hbm"`   // declared for each GPU, in units of Fleet.HBMUnit
	Storage float64 `json:"storage_gbs"`
	IO      float64 `json:"io_cores"`
	Minutes float64 `json:"minutes"`  // mean duration when nothing stalls
	IOBound float64 `json:"io_bound"` // β: the part of its time that moves data
	Growth  float64 `json:"growth"`   // its memory grows to 1 + growth of what was declared
	Burst   float64 `json:"burst"`    // its demand for data is 1 + burst in a quarter of its minutes, 1 − burst/3 else
}

// Scenario is a mix of jobs and what happens to the fleet.
type Scenario struct {
	Name  string             `json:"name"`
	Title string             `json:"title"`
	Mix   map[string]float64 `json:"mix"` // arrivals by class, any unit
	Load  struct {
		Of    string  `json:"of"` // "gpu" or "storage"
		Level float64 `json:"level"`
	} `json:"load"`
	Peak struct {
		Times   float64 `json:"times"` // arrivals are so many times as frequent
		Minutes float64 `json:"minutes"`
		Every   float64 `json:"every"`
	} `json:"peak"`
	Bursts      bool    `json:"bursts"`
	GrowthTimes float64 `json:"growth_times"`
	Rebuild     struct {
		PerNodeHour float64    `json:"per_node_hour"`
		Left        float64    `json:"left"` // of the bandwidth
		Minutes     [2]float64 `json:"minutes"`
	} `json:"rebuild"`
	Noise float64 `json:"noise"` // of telemetry, σ

	fleet *Fleet
}

// Load reads the committed scenarios with these names; none gives all.
func Load(names ...string) ([]Scenario, error) {
	fleet := &Fleet{}
	if err := read("fleet", fleet); err != nil {
		return nil, err
	}
	if err := fleet.check(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = []string{"A", "B", "C", "D", "N"}
	}
	var out []Scenario
	for _, name := range names {
		var s Scenario
		if err := read(name, &s); err != nil {
			return nil, err
		}
		if err := s.check(fleet); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func read(name string, into any) error {
	text, err := files.ReadFile("scenarios/" + name + ".json")
	if err != nil {
		return fmt.Errorf("there is no scenario %q; there are A, B, C, D and N", name)
	}
	return decode(name, text, into)
}

func decode(name string, text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("scenario %s: %w", name, err)
	}
	return nil
}

func (f *Fleet) check() error {
	if len(f.Nodes) == 0 || f.Repeat < 1 || len(f.Classes) == 0 || f.HBMUnit <= 0 || f.GrowMinutes[0] <= 0 || f.GrowMinutes[1] < f.GrowMinutes[0] {
		return fmt.Errorf("the fleet needs nodes, a repeat of at least 1, classes, a unit of memory and the minutes in which memory grows")
	}
	for i := range f.Classes {
		c := &f.Classes[i]
		if c.Name == "" || c.Minutes <= 0 || c.GPUs < 0 || c.GPUs > 0 && (c.Share <= 0 || c.Share > 1) || c.IOBound < 0 || c.IOBound > 1 || c.Burst < 0 || c.Burst > 3 {
			return fmt.Errorf("class %q needs a name, minutes above 0, shares from 0 to 1 and bursts from 0 to 3", c.Name)
		}
		if c.GPUs > 1 && c.Share != 1 {
			return fmt.Errorf("class %q: only a job with one GPU takes a part of it", c.Name)
		}
	}
	return nil
}

func (s *Scenario) check(f *Fleet) error {
	if s.fleet = f; s.Load.Of != "gpu" && s.Load.Of != "storage" {
		return fmt.Errorf("scenario %s: load is of gpu or storage, not of %q", s.Name, s.Load.Of)
	}
	if s.Load.Level <= 0 || s.GrowthTimes < 0 || s.Noise < 0 {
		return fmt.Errorf("scenario %s: the load is above 0, growth and noise are not below", s.Name)
	}
	if s.Peak.Times != 0 && (s.Peak.Times < 1 || s.Peak.Minutes <= 0 || s.Peak.Every <= s.Peak.Minutes) {
		return fmt.Errorf("scenario %s: a peak is at least 1 time the usual, and shorter than what it comes every", s.Name)
	}
	if s.Rebuild.PerNodeHour > 0 && (s.Rebuild.Left <= 0 || s.Rebuild.Left > 1 || s.Rebuild.Minutes[1] < s.Rebuild.Minutes[0]) {
		return fmt.Errorf("scenario %s: a rebuild leaves a part from 0 to 1 for some minutes", s.Name)
	}
	for name, w := range s.Mix {
		if !slices.ContainsFunc(f.Classes, func(c Class) bool { return c.Name == name }) || w < 0 {
			return fmt.Errorf("scenario %s: the fleet has no class %q, or its weight is below 0", s.Name, name)
		}
	}
	if s.weight() <= 0 {
		return fmt.Errorf("scenario %s: no class arrives", s.Name)
	}
	return nil
}

func (s *Scenario) weight() (sum float64) {
	for i := range s.fleet.Classes {
		sum += s.Mix[s.fleet.Classes[i].Name]
	}
	return sum
}

// machines are the fleet's nodes, one after the other.
func (f *Fleet) machines() []Machine {
	var all []Machine
	for range f.Repeat {
		for _, m := range f.Nodes {
			for range m.Count {
				all = append(all, m)
			}
		}
	}
	return all
}

// rate is arrivals per minute of all classes together, on average over peaks, so
// that the load is the scenario's.
func (s *Scenario) rate() float64 {
	have, asked := 0.0, 0.0
	for _, m := range s.fleet.machines() {
		if s.Load.Of == "gpu" {
			have += float64(m.GPUs)
		} else {
			have += m.Storage
		}
	}
	for i := range s.fleet.Classes {
		c := &s.fleet.Classes[i]
		part := s.Mix[c.Name] / s.weight()
		if s.Load.Of == "gpu" {
			asked += part * float64(c.GPUs) * c.Share * c.Minutes
		} else {
			asked += part * c.Storage * c.Minutes
		}
	}
	return s.Load.Level * have / asked
}

// The units of placing: thousandths of cores and GPUs, MiB, Mbit/s, MB/s.
func (m *Machine) node(name string) placing.Node {
	n := placing.NewNode(name, "", placing.Vector{
		placing.CPU: milli(m.Cores), placing.RAM: mib(m.RAM), placing.SM: int64(m.GPUs) * placing.WholeGPU, placing.HBM: int64(m.GPUs) * mib(m.HBM),
		placing.Net: milli(m.Net), placing.Sto: milli(m.Storage), placing.IOC: milli(m.IO),
	}, m.GPUs)
	return n
}

func (c *Class) ask(f *Fleet) placing.Ask {
	q := int64(c.GPUs)
	return placing.Ask{
		Count: c.GPUs, Share: milli(c.Share), HBM: mib(c.HBM * f.HBMUnit),
		Demand: placing.Vector{
			placing.CPU: milli(c.Cores), placing.RAM: mib(c.RAM), placing.SM: q * milli(c.Share), placing.HBM: q * mib(c.HBM*f.HBMUnit),
			placing.Net: milli(c.Net), placing.Sto: milli(c.Storage), placing.IOC: milli(c.IO),
		},
	}
}

func milli(x float64) int64 { return int64(x*1000 + 0.5) }
func mib(gib float64) int64 { return int64(gib*1024 + 0.5) }
