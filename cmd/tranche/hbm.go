package main

import (
	"context"

	"tranche/scheduler/sim/stalls"
)

type simHBMCommand struct {
	Trace string `required:"" type:"existingdir" help:"Folder of the trace, with pod_gpu_memory_used_bytes_anon.csv or .csv.gz."`
}

// Help adds an example.
func (simHBMCommand) Help() string {
	return `Containers of the trace told once a minute what they held of their GPU's memory.
At every instant a forecast says what they will hold at most in the next five
samples. Counted is how often they held more, and how much too much it kept back. The
shipped one is what nodes hold back for jobs that run. See docs/placement.md.

Example:
  tranche sim hbm --trace alibaba-genai-2026 --json`
}

// Run reads the trace and prints how the forecasts did.
func (c *simHBMCommand) Run(_ context.Context, t *terminal) error {
	all, err := readList(c.Trace, "pod_gpu_memory_used_bytes_anon", stalls.ReadMemory)
	if err != nil {
		return err
	}
	r, err := stalls.ForecastMemory(all)
	if err != nil {
		return err
	}
	return t.print(r, func(p *page) {
		p.line("FORECAST\tVIOLATIONS %%\tTOO MUCH GIB\t")
		for _, f := range r.Forecasts {
			p.line("%s\t%.2f\t%.2f\t%s", f.Forecast, f.Violations, f.OverReserve, map[bool]string{true: "shipped"}[f.Shipped])
		}
		p.line("\n%d containers, %d instants; they needed %.2f GiB on average.", r.Containers, r.Instants, r.Need)
	})
}
