package main

import (
	"fmt"
	"slices"
)

// placementPicture draws what policies lose to stalls, leave unusable and get done, a
// group of bars per scenario.
func placementPicture(a placementAnswer) string {
	shades := []shade{
		{"scalar_5", "scalar balance", "#ffffff", ""},
		{"tetris_5", "Tetris", "#e3e8e9", ""},
		{"ragp_5d", "RAGP-5D", "#c2cccf", ""},
		{"ragp_io", "RAGP-I/O", "#93a3a8", ""},
		{"fgd_7", "FGD in 7 dimensions", "#5f7278", ""},
		{"ragp_x", "RAGP-X", "#0f5c63", ""},
	}
	shades = slices.DeleteFunc(shades, func(s shade) bool {
		return !slices.ContainsFunc(a.Results, func(l placementLine) bool { return l.Policy == s.name })
	})
	var scenarios []string
	for _, l := range a.Results {
		if !slices.Contains(scenarios, l.Scenario) {
			scenarios = append(scenarios, l.Scenario)
		}
	}
	about := fmt.Sprintf("Means of %d simulated runs of seven hours on 48 nodes; fleet and jobs are synthetic.", len(a.Seeds))
	d := newDrawing(960, 760, "Stalls, fit and work of placement policies", about)
	d.text(60, 30, "start", `font-size="16" font-weight="600"`, "What a placement policy costs, in five scenarios")
	d.text(60, 50, "start", `fill="#5a686c"`, about+" The first three policies see no storage.")
	d.legend(60, 76, shades)
	for i, m := range []struct {
		title, format, each string
		high, step          float64
		value               func(placementLine) float64
	}{
		{"GPU time lost to stalls, % (less is better)", "%.0f", "%.1f", 20, 5, func(l placementLine) float64 { return l.StallPct }},
		{"F_fit: capacity that usual jobs cannot have because it lies apart (less is better)", "%.2f", "%.2f", 0.25, 0.05, func(l placementLine) float64 { return l.FFit }},
		{"Productive GPU-hours in six hours (more is better)", "%.0f", "%.0f", 1800, 300, func(l placementLine) float64 { return l.ProductiveGPUHours }},
	} {
		p := plot{60, 122 + 214*float64(i), 880, 150, 0, m.high}
		d.axis(p, m.title, m.format, m.step)
		d.bars(p, scenarios, shades, m.each, func(scenario, policy string) float64 {
			for _, l := range a.Results {
				if l.Scenario == scenario && l.Policy == policy {
					return m.value(l)
				}
			}
			return 0
		})
	}
	return d.end()
}
