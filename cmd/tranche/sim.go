package main

import (
	"context"
	"fmt"
	"os"

	"tranche/scheduler"
	"tranche/scheduler/sim"
)

type simCommand struct {
	Run simRunCommand `cmd:"" help:"Play a scenario with the dispatcher's own rules on a virtual clock."`

	Packing simPackingCommand `cmd:"" help:"Compare how much GPU placement policies get out of a public trace."`

	Placement simPlacementCommand `cmd:"" help:"Compare what placement policies lose to stalls, leave unusable and let wait."`
	HBM       simHBMCommand       `cmd:"" name:"hbm" help:"Measure forecasts of GPU memory on a public trace."`
}

type simRunCommand struct {
	File string `arg:"" help:"Scenario text." type:"existingfile"`
}

// Help adds an example.
func (simRunCommand) Help() string {
	return `A scenario names nodes, projects and jobs, and what is expected when:

  node n1..n4 pool=h100 gpus=8
  project /lab/a share=2 award=100h      project /lab/b share=1 award=50h
  0h   submit j1 /lab/a gpus=8 for=2h min=1h    submit j2 /lab/b gpus=32 for=1h min=30m
  0h   cycle     -> start j1 n1 hold=8h    wait j2 capacity short=8
  2h   cycle     -> start j2    balance /lab/a 84h

It ends with exit code 1 at the first line that does not hold.

Examples:
  tranche sim run cold_start.scn
  tranche sim run cold_start.scn --json | jq .projects`
}

// simAnswer is what --json prints.
type simAnswer struct {
	sim.Summary
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Run plays the file and prints what came of it.
func (c *simRunCommand) Run(ctx context.Context, t *terminal) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	sc, err := sim.Parse(string(text))
	if err != nil {
		return &usageError{fmt.Sprintf("%s: %v", c.File, err)}
	}
	var told []string
	r := sim.NewRunner(sim.Options{})
	r.Told = func(report scheduler.Report) {
		for _, line := range r.Tell(report.Plan) {
			told = append(told, scheduler.Span(report.Plan.Now.MillisSince(sim.Epoch))+"\t"+line)
		}
	}
	failed := r.Run(ctx, sc)
	if r.World == nil {
		return &usageError{fmt.Sprintf("%s: %v", c.File, failed)}
	}
	answer := simAnswer{Summary: r.Summary(), OK: failed == nil}
	if failed != nil {
		answer.Error = failed.Error()
	}
	if err := t.print(answer, func(p *page) { printSim(p, told, &answer) }); err != nil {
		return err
	}
	return failed
}

func printSim(p *page, told []string, a *simAnswer) {
	for _, line := range told {
		p.line("%s", line)
	}
	p.line("\nJOB\tSTATE\tATTEMPTS\tCHARGED\tWHY")
	for i := range a.Jobs {
		j := &a.Jobs[i]
		p.line("%s\t%s\t%d\t%s\t%s", j.Name, j.State, j.Attempts, j.Charged.Hours(), j.Why)
	}
	p.line("\nPROJECT\tPOOL\tAVAILABLE\tSET ASIDE\tSPENT")
	for i := range a.Projects {
		l := &a.Projects[i]
		p.line("%s\t%s\t%s\t%s\t%s", l.Project, l.Pool, l.Available.Hours(), l.Held.Hours(), l.Spent.Hours())
	}
	p.line("\n%d cycles, %d starts, %d evictions in %s; the books' sum is %d.", a.Cycles, a.Starts, a.Evictions, a.Until, a.BooksSum)
}
