package stalls

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"tranche/scheduler/placing"
)

// MemorySample is what a container held of its GPU's memory at an instant.
type MemorySample struct {
	Container string
	At        float64 // s
	MiB       int64
}

// ReadMemory reads samples with the columns timestamp_anon (s), value (bytes) and
// container_ip, in any order of rows.
func ReadMemory(in io.Reader) ([]MemorySample, error) {
	rows := csv.NewReader(in)
	head, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("no header line: %w", err)
	}
	at, value, who := slices.Index(head, "timestamp_anon"), slices.Index(head, "value"), slices.Index(head, "container_ip")
	if min(at, value, who) < 0 {
		return nil, fmt.Errorf("the header needs timestamp_anon, value and container_ip, not %q", head)
	}
	var all []MemorySample
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		s := MemorySample{Container: row[who]}
		bytes := 0.0
		if s.At, err = strconv.ParseFloat(row[at], 64); err == nil {
			bytes, err = strconv.ParseFloat(row[value], 64)
		}
		if line, _ := rows.FieldPos(0); err != nil || bytes < 0 || math.IsNaN(bytes) || bytes > 1<<50 {
			return nil, fmt.Errorf("line %d: instant and bytes are numbers, bytes not below 0", line)
		}
		s.MiB = int64(bytes / (1 << 20))
		all = append(all, s)
	}
}

const (
	horizon   = 5   // samples ahead, of about a minute each
	longSpell = 200 // samples that a container's series needs at least
	mostGap   = 180 // s; what is further apart is not one series
)

// series cuts the samples into containers' unbroken spells, and drops containers with
// too few samples in all.
func series(all []MemorySample) (spells [][]int64, containers int) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b MemorySample) int {
		if a.Container != b.Container {
			return map[bool]int{true: -1, false: 1}[a.Container < b.Container]
		}
		return int(math.Copysign(1, a.At-b.At))
	})
	for i := 0; i < len(sorted); {
		end := i
		for end < len(sorted) && sorted[end].Container == sorted[i].Container {
			end++
		}
		if end-i >= longSpell {
			containers++
			spells = append(spells, unbroken(sorted[i:end])...)
		}
		i = end
	}
	return spells, containers
}

func unbroken(samples []MemorySample) (spells [][]int64) {
	for i := range samples {
		if i == 0 || samples[i].At-samples[i-1].At > mostGap {
			spells = append(spells, nil)
		}
		last := len(spells) - 1
		spells[last] = append(spells[last], samples[i].MiB)
	}
	return spells
}

// MemoryForecast is how a forecast of the next five minutes did.
type MemoryForecast struct {
	Forecast    string  `json:"forecast"`
	Shipped     bool    `json:"shipped,omitempty"`
	Violations  float64 `json:"violations_pct"`   // instants at which one of the next five samples was above the forecast
	OverReserve float64 `json:"over_reserve_gib"` // mean of what the forecast was above the largest of them, 0 where it was below
}

// MemoryReport is how all forecasts did on the same samples.
type MemoryReport struct {
	Containers int              `json:"containers"`
	Instants   int              `json:"instants"`
	Need       float64          `json:"mean_need_gib"` // mean of the largest of the next five samples
	Forecasts  []MemoryForecast `json:"forecasts"`
}

// predictor takes a sample and says what is expected at most.
type predictor func(now int64) int64

// predictors are made anew for every series.
func predictors() []struct {
	name    string
	shipped bool
	make    func() predictor
} {
	running := func(deviations int64) func() predictor {
		return func() predictor {
			var r placing.Running
			return func(now int64) int64 {
				r = r.Step(now)
				return r.Ahead(now, deviations)
			}
		}
	}
	return []struct {
		name    string
		shipped bool
		make    func() predictor
	}{
		{"last value", false, func() predictor { return func(now int64) int64 { return now } }},
		{"moving mean (0.05) + 1 σ", false, running(1)},
		{"moving mean (0.05) + 2 σ", true, running(2)},
		{"moving mean (0.05) + 3 σ", false, running(3)},
		{"moving mean (0.3) + 2 σ", false, fast},
		{"peak that decays by 0.001", false, decaying},
	}
}

// fast forgets six times as quickly.
func fast() predictor {
	mean, vary, begun := 0.0, 0.0, false
	return func(now int64) int64 {
		x := float64(now)
		if !begun {
			mean, begun = x, true
		}
		off := x - mean
		mean += 0.3 * off
		vary = 0.7 * (vary + 0.3*off*off)
		return max(now, int64(mean+2*math.Sqrt(vary)))
	}
}

func decaying() predictor {
	peak := 0.0
	return func(now int64) int64 {
		peak = max(float64(now), 0.999*peak)
		return int64(peak)
	}
}

// ForecastMemory lets every forecast look at every series, sample by sample.
func ForecastMemory(all []MemorySample) (MemoryReport, error) {
	spells, containers := series(all)
	r := MemoryReport{Containers: containers}
	need := 0.0
	for _, s := range spells {
		for i := 0; i+horizon < len(s); i++ {
			r.Instants++
			need += float64(slices.Max(s[i+1:i+1+horizon])) / 1024
		}
	}
	if r.Instants == 0 {
		return r, fmt.Errorf("no container has %d samples: nothing to forecast", longSpell)
	}
	r.Need = need / float64(r.Instants)
	for _, p := range predictors() {
		broken, over := 0, 0.0
		for _, s := range spells {
			next := p.make()
			for i := 0; i+horizon < len(s); i++ {
				f, most := next(s[i]), slices.Max(s[i+1:i+1+horizon])
				if most > f {
					broken++
				}
				over += float64(max(0, f-most)) / 1024
			}
		}
		n := float64(r.Instants)
		r.Forecasts = append(r.Forecasts, MemoryForecast{p.name, p.shipped, 100 * float64(broken) / n, over / n})
	}
	return r, nil
}
