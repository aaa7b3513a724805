package stalls

import (
	"math"
	"strings"
	"testing"

	"tranche/scheduler/placing"
)

// small is a fleet of machines of one kind and one class of jobs.
func small(t *testing.T, m Machine, c Class) *Scenario {
	t.Helper()
	f := &Fleet{Nodes: []Machine{m}, Repeat: 1, HBMUnit: 80, Classes: []Class{c}, GrowMinutes: [2]float64{5, 5}}
	s := &Scenario{Name: "small", Mix: map[string]float64{c.Name: 1}, GrowthTimes: 1}
	s.Load.Of, s.Load.Level = "gpu", 0.5
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	if err := s.check(f); err != nil {
		t.Fatal(err)
	}
	return s
}

// at plays jobs that arrive together and gives the world when they run.
func at(t *testing.T, sc *Scenario, name string, jobs int) *world {
	t.Helper()
	p, err := policyNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	ch := &chances{rebuilds: make([][]rebuild, len(sc.fleet.machines())), past: make([]forecast, len(sc.fleet.Classes))}
	for range jobs {
		ch.jobs = append(ch.jobs, job{node: -1, minute: -1, peak: 1, work: 1e9, grows: 300})
	}
	w := newWorld(sc, &p, ch)
	w.now = warmUp
	w.sense()
	w.place()
	w.flow()
	w.progress()
	return w
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// Two jobs want 6 GB/s of 4: φ is 2/3. Half their time moves data, so they run at
// 1/(0.5 + 0.5/(2/3)) = 0.8. Who sees storage starts one.
func TestStallByHand(t *testing.T) {
	machine := Machine{Count: 1, Cores: 64, RAM: 512, GPUs: 8, HBM: 80, Net: 50, Storage: 4, IO: 8}
	class := Class{Name: "reader", Cores: 1, RAM: 1, GPUs: 1, Share: 1, HBM: 0.5, Storage: 3, IO: 1, Minutes: 60, IOBound: 0.5}
	for name, want := range map[string]struct {
		running int
		stall   float64
	}{"tetris_5": {2, 20}, "scalar_5": {2, 20}, "ragp_5d": {2, 20}, "ragp_io": {1, 0}, "ragp_x": {1, 0}, "fgd_7": {1, 0}, "bestfit_7": {1, 0}} {
		w := at(t, small(t, machine, class), name, 2)
		if got := 100 * w.sum.lost / w.sum.busy; len(w.nodes[0].jobs) != want.running || !near(got, want.stall) {
			t.Errorf("%s: %d jobs run and stall %.3f %%, want %d and %.3f", name, len(w.nodes[0].jobs), got, want.running, want.stall)
		}
	}
}

// Two halves of a GPU use 48 GiB each, half an hour old, and grow to 1.5 times: with
// r = (80 / need)³. What its class has shown keeps the second away.
func TestMemorySpillsByHand(t *testing.T) {
	machine := Machine{Count: 1, Cores: 64, RAM: 512, GPUs: 1, HBM: 80, Net: 50, Storage: 4, IO: 8}
	class := Class{Name: "grower", Cores: 1, RAM: 1, GPUs: 1, Share: 0.5, HBM: 0.5, Minutes: 60, Growth: 0.5}
	sc := small(t, machine, class)
	w := at(t, sc, "ragp_x", 2)
	if len(w.nodes[0].jobs) != 2 {
		t.Fatalf("%d jobs run, want both: they declared half each", len(w.nodes[0].jobs))
	}
	w.sum = totals{rawDegraded: w.sum.rawDegraded}
	w.now += 300
	w.progress()
	need := 80 * (1 + 0.5*(1-math.Exp(-1)))
	if got, want := 1-w.sum.lost/w.sum.busy, math.Pow(80/need, 3); !near(got, want) {
		t.Errorf("they run at %.6f, want %.6f", got, want)
	}
	p, err := policyNamed("ragp_x")
	if err != nil {
		t.Fatal(err)
	}
	ch := &chances{jobs: []job{{node: -1, work: 1e9, grows: 300}, {node: -1, work: 1e9, grows: 300}}, rebuilds: make([][]rebuild, 1), past: []forecast{{memory: placing.Class{Seen: placing.EnoughSeen, Mean: 1_500_000}}}}
	if w = newWorld(sc, &p, ch); !w.start(0) || w.start(1) {
		t.Error("a class that grows to 1.5 times has place for one job on a GPU")
	}
}

// The same seed gives the same; other policies get the same arrivals; another seed
// others.
func TestArrivalsAreThePoliciesOwnBusiness(t *testing.T) {
	all, err := Load()
	if err != nil || len(all) != 5 {
		t.Fatalf("%d scenarios: %v", len(all), err)
	}
	sc := &all[3]
	a, b := sc.draw(7, 3600, false), sc.draw(7, 3600, false)
	if len(a.jobs) < 100 || len(a.jobs) != len(b.jobs) || a.jobs[50].work != b.jobs[50].work || a.past[0] != b.past[0] {
		t.Error("a seed gives two different runs")
	}
	one, err := Run(sc, "ragp_io", 7, false)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Run(sc, "ragp_io", 7, false); err != nil || again != one {
		t.Errorf("%+v and %+v: %v", one, again, err)
	}
	if other, err := Run(sc, "ragp_io", 8, false); err != nil || other == one {
		t.Error("another seed gives the same")
	}
	if _, err := Run(sc, "worst_fit", 7, false); err == nil {
		t.Error("a policy that does not exist runs")
	}
}

// Over a long time arrivals ask for the load that the scenario names, waves included.
func TestLoadIsWhatTheScenarioSays(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		sc := &all[i]
		const long = 1000 * 3600.0
		have, asked, wave := 0.0, 0.0, 0
		ch := sc.draw(3, long, true)
		for _, m := range sc.fleet.machines() {
			have += map[string]float64{"gpu": float64(m.GPUs), "storage": m.Storage}[sc.Load.Of]
		}
		for k := range ch.jobs {
			c := &sc.fleet.Classes[ch.jobs[k].class]
			asked += ch.jobs[k].work * map[string]float64{"gpu": float64(c.GPUs) * c.Share, "storage": c.Storage}[sc.Load.Of]
			if sc.Peak.Every > 0 && math.Mod(ch.jobs[k].arrives, sc.Peak.Every*60) < sc.Peak.Minutes*60 {
				wave++
			}
		}
		if got := asked / long / have; math.Abs(got-sc.Load.Level) > 0.01 {
			t.Errorf("%s: load %.3f, want %.2f", sc.Name, got, sc.Load.Level)
		}
		if p := &sc.Peak; p.Times > 0 {
			want := p.Times * p.Minutes / (p.Times*p.Minutes + p.Every - p.Minutes)
			if got := float64(wave) / float64(len(ch.jobs)); math.Abs(got-want) > 0.01 {
				t.Errorf("%s: %.3f of the jobs come in waves, want %.3f", sc.Name, got, want)
			}
		}
	}
}

// At 30 % noise the sensed health of a storage hardly ever changes without cause; a
// bare threshold changes all the time.
func TestHysteresisKeepsStill(t *testing.T) {
	all, err := Load("D")
	if err != nil {
		t.Fatal(err)
	}
	all[0].Noise = 0.3
	r, err := Run(&all[0], "scalar_5", 100, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Flips > 0.2 || r.Flips == 0 || r.RawFlips < 100 {
		t.Errorf("%.2f flips per node-hour, %.1f of a bare threshold", r.Flips, r.RawFlips)
	}
}

func TestAWrongScenarioSaysWhatIsWrong(t *testing.T) {
	fleet := &Fleet{}
	if err := read("fleet", fleet); err != nil {
		t.Fatal(err)
	}
	good := `{"name": "X", "mix": {"llm1": 1}, "load": {"of": "gpu", "level": 0.5}, "growth_times": 1}`
	for text, says := range map[string]string{
		good: "",
		strings.Replace(good, `"gpu"`, `"tape"`, 1):                                           "tape",
		strings.Replace(good, `"llm1"`, `"llm9"`, 1):                                          "llm9",
		strings.Replace(good, `0.5`, `0`, 1):                                                  "load",
		strings.Replace(good, `"llm1": 1`, `"llm1": 0`, 1):                                    "no class arrives",
		strings.Replace(good, `"growth_times"`, `"growht_times"`, 1):                          "growht_times",
		strings.Replace(good, `}, "growth`, `}, "peak": {"times": 2}, "growth`, 1):            "peak",
		strings.Replace(good, `}, "growth`, `}, "rebuild": {"per_node_hour": 1}, "growth`, 1): "rebuild",
	} {
		var s Scenario
		err := decode("X", []byte(text), &s)
		if err == nil {
			err = s.check(fleet)
		}
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if _, err := Load("Z"); err == nil || !strings.Contains(err.Error(), "A, B, C, D and N") {
		t.Errorf("an unknown scenario: %v", err)
	}
	bad := *fleet
	bad.Classes = []Class{{Name: "half of two", Minutes: 1, GPUs: 2, Share: 0.5}}
	if bad.check() == nil {
		t.Error("two GPUs by halves pass")
	}
}

// In contended storage who sees it loses next to nothing, who does not a lot, and the
// policy that is made for it wins on both counts: a short form of the comparison.
func TestSeeingStorageEndsStalls(t *testing.T) {
	all, err := Load("C")
	if err != nil {
		t.Fatal(err)
	}
	stall := map[string]float64{}
	for _, name := range []string{"tetris_5", "ragp_io", "ragp_x"} {
		r, err := Run(&all[0], name, 100, false)
		if err != nil {
			t.Fatal(err)
		}
		stall[name] = r.StallPct
	}
	if stall["tetris_5"] < 8 || stall["ragp_x"] > 0.3 || stall["ragp_io"] > 0.6 {
		t.Errorf("stalls in percent: %v", stall)
	}
	if placing.Churning().Relative == placing.Saturating().Relative {
		t.Error("both settings count scarce places alike")
	}
}
