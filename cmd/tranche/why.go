package main

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

type whyCommand struct {
	ID      target `arg:"" help:"Job number, or an array's: A4."`
	Changes bool   `help:"Also say what would start it now, and what went before it." default:"true" negatable:""`
}

// Help adds examples.
func (whyCommand) Help() string {
	return `Examples:
  tranche why 1234
  tranche why A4
  tranche why 1234 --no-changes

What would start it is tried on what the dispatcher sees, which may take a
second on a large fleet.`
}

// Run prints the explanation.
func (c *whyCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	if c.ID.array != 0 {
		return t.explainArray(ctx, client, c.ID.array)
	}
	var got explained
	if got.Why, err = client.Why(ctx, c.ID.job); err != nil {
		return err
	}
	if c.Changes {
		o, err := client.Outlook(ctx, c.ID.job)
		if err != nil {
			return err
		}
		got.Outlook = &o
	}
	return t.print(got, func(p *page) {
		p.line("%s", got.Sentence)
		for _, l := range got.Lines {
			p.line("  %s\t%s\t%s", l.Label, l.Value, l.Detail)
		}
		if !got.At.IsZero() {
			p.line("As the cycle of %s saw it.", instant(got.At))
		}
		if got.Outlook != nil && got.Outlook.At != nil { // else it does not wait
			printOutlook(p, *got.Outlook)
		}
	})
}

// explained is where a job stands and what would start it.
type explained struct {
	api.Why
	Outlook *api.Outlook `json:"outlook,omitempty"`
}

func printOutlook(p *page, o api.Outlook) {
	if o.AsItIs != "" {
		p.line("%s", o.AsItIs)
	}
	if o.None != "" {
		p.line("%s", o.None)
	}
	if len(o.Changes) > 0 {
		p.line("What would start it now:")
	}
	for _, c := range o.Changes {
		p.line("  %s\t%s\t%s", c.Text, c.Effect, changeLine(o.Job, c.Change))
	}
	if len(o.Ahead) > 0 {
		p.line("What went before it:")
	}
	for _, a := range o.Ahead {
		p.line("  %s", a)
	}
}

// changeLine is the command that makes a change.
func changeLine(job ledger.JobID, c *api.ChangeJob) string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	flag := func(name string, n int64) {
		if n != 0 {
			b.WriteString(" --" + name + " " + strconv.FormatInt(n, 10))
		}
	}
	b.WriteString("tranche change " + strconv.FormatInt(int64(job), 10))
	if c.Pool != "" {
		b.WriteString(" --pool " + c.Pool)
	}
	flag("nodes", c.Nodes)
	flag("gpus", c.GPUs)
	flag("cpu-milli", c.CPUMilli)
	flag("ram-mib", c.RAMMiB)
	if c.MinRuntimeMS != nil {
		b.WriteString(" --min " + span(*c.MinRuntimeMS))
	}
	return b.String()
}

type changeCommand struct {
	ID       int64          `arg:"" help:"Job number."`
	Min      *time.Duration `help:"Protected for, such as 30m or 2h; 0 = free."`
	GPUs     int64          `name:"gpus" short:"g" help:"GPUs per node; cores and memory follow."`
	Nodes    int64          `short:"n" help:"Nodes."`
	CPUMilli int64          `name:"cpu-milli" help:"Thousandths of cores per node."`
	RAMMiB   int64          `name:"ram-mib" help:"MiB of memory per node."`
	Pool     string         `help:"Move it to this pool, at the end of its queue."`
}

// Help adds examples.
func (changeCommand) Help() string {
	return `Examples:
  tranche change 1234 --min 30m
  tranche change 1234 --gpus 4 --min 0s
  tranche change 1234 --pool l40s

A job that asks for less in the same pool keeps its place in the queue; else it
goes to the end.`
}

// Run changes the job.
func (c *changeCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	in := api.ChangeJob{Key: newKey(), Pool: c.Pool, Nodes: c.Nodes, GPUs: c.GPUs, CPUMilli: c.CPUMilli, RAMMiB: c.RAMMiB}
	if c.Min != nil {
		ms := c.Min.Milliseconds()
		in.MinRuntimeMS = &ms
	}
	if in == (api.ChangeJob{Key: in.Key}) {
		return &usageError{"Say what to change: --min, --gpus, --nodes, --cpu-milli, --ram-mib or --pool."}
	}
	j, err := client.ChangeJob(ctx, ledger.JobID(c.ID), in)
	if err != nil {
		return err
	}
	return t.print(j, func(p *page) {
		p.line("job %d %s: %s on %s, protected for %s", j.ID, outcome(j), shape(j), j.Pool, span(j.MinRuntimeMS))
	})
}

type orderCommand struct {
	Pool  string `arg:"" help:"Pool."`
	Limit int    `help:"Jobs per page, at most 500." default:"100"`
	After string `help:"Cursor of the next page, as the page before printed it."`
}

// Run prints one page of a pool's order.
func (c *orderCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Order(ctx, c.Pool, c.After, c.Limit)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) { printOrder(p, got) })
}

// jobNumber writes a job's number; one that may not be seen has none.
func jobNumber(id ledger.JobID) string {
	if id == 0 {
		return "–"
	}
	return strconv.FormatInt(int64(id), 10)
}

func printOrder(p *page, o api.PoolOrder) {
	if o.Reserved != "" {
		p.line("Reserved start: %s", o.Reserved)
	}
	p.line("GROUP\tSTANDING\tUSAGE\tCOMMITMENT\tSHARE\tWAITING\t")
	for _, g := range o.Groups {
		next := ""
		if g.Next {
			next = "next"
		}
		p.line("%s%s\t%s\t%s\t%s\t%s\t%d\t%s", strings.Repeat("  ", g.Depth), g.Group, g.Standing, g.Usage, g.Commitment, g.Share, g.Waiting, next)
	}
	p.line("")
	p.line("PLACE\tJOB\tPROJECT\tUSER\tSHAPE\tPROTECTED FOR\tSTANDING\tWHY")
	for _, j := range o.Jobs {
		p.line("%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s", j.Rank, jobNumber(j.Job), j.Project, cmp.Or(j.User, "–"), j.Shape, span(j.MinRuntimeMS), j.Standing, j.Reason)
	}
	if o.Next != "" {
		p.line("More: --after %s", o.Next)
	}
}
