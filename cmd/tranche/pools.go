package main

import (
	"context"
	"fmt"

	"tranche/web/api"
)

type poolsCommand struct {
	List poolsListCommand `cmd:"" default:"1" help:"List pools with what they hold now and how useful what is free is."`
	Show poolsShowCommand `cmd:"" help:"Show how useful what a pool has free is, and how long its GPUs wait for data, over a day or a week."`
}

type poolsListCommand struct{}

// Help adds examples.
func (poolsListCommand) Help() string {
	return `Examples:
  tranche pools
  tranche pools --json | jq '.pools[] | {name, f_fit: .indices.f_fit_ppm}'`
}

// Run prints all pools.
func (*poolsListCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Pools(ctx)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		if len(got.Pools) == 0 {
			p.line("There is no pool yet.")
			return
		}
		p.line("POOL\tNODES\tDEVICES\tIN USE\tWAITING\tF_FIT\tF_GPU\tF_SHAPE\tF_RAW\tSTALL")
		for i := range got.Pools {
			l := &got.Pools[i]
			p.line("%s\t%d\t%d\t%d\t%d\t%s", l.Name, l.Nodes, l.Devices, l.Funded+l.Unfunded+l.Ending, l.Waiting, indexCells(l.Indices))
		}
	})
}

// indexCells are the indices of one row, in percent.
func indexCells(x *api.PoolIndices) string {
	if x == nil {
		return "–\t–\t–\t–\t–"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", percentOf(x.FitPPM), percentOf(x.GPUPPM), percentOf(x.ShapePPM), percentOf(x.RawPPM), percentOf(x.StallPPM))
}

// percentOf writes millionths in percent to a tenth.
func percentOf(ppm int64) string {
	n := (ppm + 500) / 1000
	return fmt.Sprintf("%d.%d %%", n/10, n%10)
}

type poolsShowCommand struct {
	Pool string `arg:"" help:"Name."`
	Span string `help:"Rows of the last day, or of the last week." enum:"day,week" default:"day"`
}

// Run prints one pool's indices, in words and over the span.
func (c *poolsShowCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.PoolIndices(ctx, c.Pool, c.Span)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		for _, w := range got.Words {
			p.line("%s", w)
		}
		if len(got.Points) == 0 {
			p.line("Nothing was worked out for %s over this %s.", got.Pool, c.Span)
			return
		}
		p.line("")
		p.line("AT\tF_FIT\tF_GPU\tF_SHAPE\tF_RAW\tSTALL\tFROM\tFREE\tOF NO USE")
		for i := range got.Points {
			x := &got.Points[i]
			p.line("%s\t%s\t%s\t%.1f\t%.1f", instant(x.At), indexCells(x), x.StallFrom, float64(x.FreeMilliGPUs)/1000, float64(x.UnfitMilliGPUs)/1000)
		}
	})
}
