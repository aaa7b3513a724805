package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"tranche/scheduler/sim/stalls"
)

type simPlacementCommand struct {
	Scenarios []string `name:"scenario" help:"A, B, C, D, N; without it all." placeholder:"A,B"`
	Seeds     int      `default:"5" help:"Runs per scenario and policy."`
	FirstSeed uint64   `default:"9000" help:"Seed of the first run; the others follow. 100 to 104 served for tuning."`
	Policies  []string `help:"Policies to compare; without it all."`
	Cold      bool     `help:"Begin without the history of earlier jobs: what is declared counts until enough have ended."`
	Noise     float64  `default:"-1" help:"Noise of telemetry, σ, instead of the scenarios'." placeholder:"0.3"`
	SVG       string   `name:"svg" help:"File to draw the comparison into as well." placeholder:"FILE"`
	Workers   int      `help:"Runs at once; without it as many as there are processors."`
}

// Help adds examples.
func (simPlacementCommand) Help() string {
	return `A simulated fleet of 48 nodes runs seven hours of jobs that move data and whose
memory grows; the first hour does not count. All policies get the same arrivals.
Policies on 5 see neither storage nor the processors that move data, those on 7 do,
and hold back for what jobs may come to need. Fleet and jobs are synthetic. See
docs/placement.md.

Policies: ` + strings.Join(stalls.Policies(), ", ") + `

Examples:
  tranche sim placement --seeds 8
  tranche sim placement --scenario C,D --policies ragp_x,fgd_7 --json`
}

// placementRun is one run of the comparison.
type placementRun struct {
	scenario *stalls.Scenario
	policy   string
	seed     uint64
}

// placementLine is a policy's means in a scenario, and their spread.
type placementLine struct {
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	stalls.Result
	SD stalls.Result `json:"sd"`
}

// placementAnswer is what --json prints.
type placementAnswer struct {
	Seeds   []uint64        `json:"seeds"`
	Results []placementLine `json:"results"`
}

// Run plays every scenario with every policy and seed.
func (c *simPlacementCommand) Run(ctx context.Context, t *terminal) error {
	if c.Seeds < 1 || c.Seeds > 1000 {
		return &usageError{"--seeds is 1 to 1000"}
	}
	scenarios, err := stalls.Load(c.Scenarios...)
	if err != nil {
		return &usageError{err.Error()}
	}
	for i := range scenarios {
		if c.Noise >= 0 {
			scenarios[i].Noise = c.Noise
		}
	}
	if len(c.Policies) == 0 {
		c.Policies = stalls.Policies()
	}
	for _, p := range c.Policies {
		if !slices.Contains(stalls.Policies(), p) {
			return &usageError{fmt.Sprintf("no policy is called %q; there are %s", p, strings.Join(stalls.Policies(), ", "))}
		}
	}
	var a placementAnswer
	for s := range c.Seeds {
		a.Seeds = append(a.Seeds, c.FirstSeed+uint64(s))
	}
	var runs []placementRun
	for i := range scenarios {
		for _, p := range c.Policies {
			for _, seed := range a.Seeds {
				runs = append(runs, placementRun{&scenarios[i], p, seed})
			}
		}
	}
	results, err := playAll(ctx, t.Err, runs, c.Workers, func(r placementRun) (stalls.Result, error) { return stalls.Run(r.scenario, r.policy, r.seed, c.Cold) })
	if err != nil {
		return err
	}
	for i := 0; i < len(runs); i += c.Seeds {
		line := placementLine{Scenario: runs[i].scenario.Name, Policy: runs[i].policy}
		line.Result, line.SD = stalls.Summary(results[i : i+c.Seeds])
		a.Results = append(a.Results, line)
	}
	if c.SVG != "" {
		if err := os.WriteFile(c.SVG, []byte(placementPicture(a)), 0o644); err != nil {
			return err
		}
	}
	return t.print(a, func(p *page) { printPlacement(p, a.Results) })
}

func printPlacement(p *page, lines []placementLine) {
	p.line("SCENARIO\tPOLICY\tSTALL %%\tF SHAPE\tF RAW\tF FIT\tF GPU\tPRODUCTIVE GPU-H\tWAIT MIN")
	for _, l := range lines {
		p.line("%s\t%s\t%.2f ± %.2f\t%.3f\t%.3f\t%.3f\t%.3f\t%.0f\t%.2f", l.Scenario, l.Policy, l.StallPct, l.SD.StallPct, l.FShape, l.FRaw, l.FFit, l.FGPU, l.ProductiveGPUHours, l.MeanWaitMin)
	}
	for _, l := range lines {
		if l.RawFlips > 0 {
			p.line("%s\t%s\thealth of storage changes %.2f times per node-hour, with a bare threshold %.1f", l.Scenario, l.Policy, l.Flips, l.RawFlips)
			break
		}
	}
}
