package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

type jobsCommand struct {
	Project string `short:"p" help:"Only this project or program."`
	Pool    string `help:"Only this pool."`
	State   string `help:"Only jobs in this state, such as waiting, running or finished."`
	Mine    bool   `short:"m" help:"Only your own."`
	Limit   int    `help:"Jobs per page, at most 500." default:"50"`
	After   string `help:"Cursor of the next page, as the page before printed it."`
}

// Help adds examples.
func (jobsCommand) Help() string {
	return `Examples:
  tranche jobs --mine --state running
  tranche jobs -p /vision --json | jq -r '.jobs[].id'`
}

// Run prints one page of jobs.
func (c *jobsCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Jobs(ctx, api.JobQuery{
		Project: c.Project, Pool: c.Pool, State: c.State, Mine: c.Mine, After: c.After, Limit: c.Limit,
	})
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		if len(got.Jobs) == 0 {
			p.line("No jobs here. Hand one in with: tranche submit")
			return
		}
		p.line("JOB\tSTATE\tPROJECT\tUSER\tPOOL\tSHAPE\tPROTECTED FOR\tCHARGED\tNAME")
		for _, j := range got.Jobs {
			p.line("%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", j.ID, outcome(j), j.Project, j.User, j.Pool,
				shape(j), span(j.MinRuntimeMS), j.Charged.Hours(), j.Name)
		}
		if got.Next != "" {
			p.line("More: --after %s", got.Next)
		}
	})
}

type jobCommand struct {
	ID int64 `arg:"" help:"Job number."`
}

// Run prints one job.
func (c *jobCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	j, err := client.Job(ctx, ledger.JobID(c.ID))
	if err != nil {
		return err
	}
	return t.print(j, func(p *page) { printJob(p, j) })
}

func printJob(p *page, j api.Job) {
	p.line("job %d %s\t%s", j.ID, j.Name, outcome(j))
	p.line("project\t%s, pool %s, by %s, urgency %d", j.Project, j.Pool, j.User, j.Urgency)
	p.line("shape\t%s, %d mCPU, %d MiB per node", shape(j), j.CPUMilli, j.RAMMiB)
	p.line("contract\tprotected for %s, grace %s, at most %s, resumable %t, then %s",
		span(j.MinRuntimeMS), span(j.GraceMS), span(j.MaxRuntimeMS), j.Resumable, j.WhenMoneyEnds)
	p.line("submitted\t%s", instant(j.Submitted))
	if j.Ended != nil {
		p.line("ended\t%s", instant(*j.Ended))
	}
	p.line("GPU-hours\t%s charged, %s set aside", j.Charged.Hours(), j.Held.Hours())
	if j.Command != "" {
		p.line("command\t%s", strings.ReplaceAll(j.Command, "\n", " ⏎ "))
	}
	if j.Reason != "" {
		p.line("why\t%s", j.Reason)
	}
	for _, a := range j.Attempts {
		money := "unfunded"
		if a.Funded {
			money = "funded"
		}
		p.line("attempt %d\t%s, %s, on %s, ran %s, charged %s%s", a.Number, a.State, money,
			strings.Join(a.Nodes, " "), span(a.ElapsedMS), a.Charged.Hours(), attemptEnd(a))
	}
}

func attemptEnd(a api.Attempt) string {
	switch {
	case a.Ended == nil && a.ProtectedUntil != nil:
		return ", protected" + until(a.ProtectedUntil)
	case a.Signal != 0:
		return ", " + a.Cause + ", signal " + strconv.Itoa(a.Signal)
	case a.ExitCode != nil:
		return ", " + a.Cause + ", exit " + strconv.Itoa(*a.ExitCode)
	case a.Cause != "":
		return ", " + a.Cause
	}
	return ""
}

type logsCommand struct {
	ID      int64 `arg:"" help:"Job number."`
	Follow  bool  `short:"f" help:"Wait for more until the job is over, over all its attempts."`
	Attempt int64 `help:"Attempt id as the job shows it; default the newest."`
	Rank    int   `help:"Which node of the gang, from 0."`
}

// Help adds examples.
func (logsCommand) Help() string {
	return `Examples:
  tranche logs -f 1234
  tranche logs 1234 --rank 3 > rank3.txt

With --json each piece is one JSON object; its data is base64.`
}

const (
	logWaitMS = 25_000                 // how long the server may hold an empty answer
	logPause  = 500 * time.Millisecond // after an empty answer that came at once
)

// Run prints output from the beginning.
func (c *logsCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	q := api.LogQuery{Attempt: ledger.AttemptID(c.Attempt), Rank: c.Rank}
	if c.Follow {
		q.WaitMS = logWaitMS
	}
	for {
		got, err := client.Logs(ctx, ledger.JobID(c.ID), q)
		if err != nil {
			return err
		}
		if err := t.printPiece(got); err != nil {
			return err
		}
		q.Attempt, q.Offset = got.Attempt, got.NextOffset
		switch {
		case got.End && c.Follow && got.NextAttempt != 0:
			q.Attempt, q.Offset = got.NextAttempt, 0
		case got.End, len(got.Data) == 0 && !c.Follow:
			return nil
		case len(got.Data) == 0:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(logPause):
			}
		}
	}
}

func (t *terminal) printPiece(l api.Logs) error {
	if t.JSON {
		return writeJSON(t.Out, l)
	}
	_, err := t.Out.Write(l.Data)
	return err
}

type cancelCommand struct {
	IDs []int64 `arg:"" name:"id" help:"Job numbers."`
}

type pauseCommand struct {
	IDs []int64 `arg:"" name:"id" help:"Job numbers."`
}

type resumeCommand struct {
	IDs []int64 `arg:"" name:"id" help:"Job numbers."`
}

// Run ends the jobs.
func (c *cancelCommand) Run(ctx context.Context, t *terminal) error {
	return t.each(ctx, c.IDs, (*api.Client).Cancel)
}

// Run holds the jobs back.
func (c *pauseCommand) Run(ctx context.Context, t *terminal) error {
	return t.each(ctx, c.IDs, (*api.Client).Pause)
}

// Run lets the jobs go on.
func (c *resumeCommand) Run(ctx context.Context, t *terminal) error {
	return t.each(ctx, c.IDs, (*api.Client).Resume)
}

// each sends one command per job. A refused one does not keep the others from
// being sent; all refusals are given back.
func (t *terminal) each(ctx context.Context, ids []int64, send func(*api.Client, context.Context, ledger.JobID, string) (api.Job, error)) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	var refused []error
	for _, id := range ids {
		j, err := send(client, ctx, ledger.JobID(id), newKey())
		if err == nil {
			err = t.print(j, func(p *page) { p.line("job %d %s", j.ID, outcome(j)) })
		}
		if err != nil {
			refused = append(refused, err)
		}
	}
	return errors.Join(refused...)
}
