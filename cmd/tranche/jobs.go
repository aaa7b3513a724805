package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

type jobsCommand struct {
	Project string `short:"p" help:"Only this project or program."`
	Pool    string `help:"Only this pool."`
	Array   target `help:"The jobs of this array, by index." placeholder:"A4"`
	State   string `help:"Only jobs in this state, such as waiting, running or finished."`
	Mine    bool   `short:"m" help:"Only your own."`
	Limit   int    `help:"Jobs per page, at most 500." default:"50"`
	After   string `help:"Cursor of the next page, as the page before printed it."`
}

// Help adds examples.
func (jobsCommand) Help() string {
	return `Examples:
  tranche jobs --mine --state running
  tranche jobs --array A4 --state failed
  tranche jobs -p /vision --json | jq -r '.jobs[].id'`
}

// Run prints one page of jobs.
func (c *jobsCommand) Run(ctx context.Context, t *terminal) error {
	if c.Array.job != 0 {
		return &usageError{"an array's number begins with A: --array A4"}
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Jobs(ctx, api.JobQuery{
		Project: c.Project, Pool: c.Pool, State: c.State, Mine: c.Mine, Array: c.Array.array, After: c.After, Limit: c.Limit,
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
			number, state, charged, name := strconv.FormatInt(int64(j.ID), 10), outcome(j), j.Charged, j.Name
			switch a := j.Array; {
			case a != nil:
				number, state, charged = fmt.Sprintf("A%d [%s]", a.ID, a.Indices), counts(a), a.Charged
			case j.InArray != nil:
				name = strings.TrimSpace(fmt.Sprintf("%s [%d]", name, j.InArray.Index))
			}
			p.line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", number, state, j.Project, j.User, j.Pool,
				shape(j), span(j.MinRuntimeMS), charged.Hours(), name)
		}
		if got.Next != "" {
			p.line("More: --after %s", got.Next)
		}
	})
}

type jobCommand struct {
	ID target `arg:"" help:"Job number, or an array's: A4."`
}

// Run prints one job, or one array.
func (c *jobCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	if c.ID.array != 0 {
		a, err := client.Array(ctx, c.ID.array)
		if err != nil {
			return err
		}
		return t.print(a, func(p *page) { printArray(p, &a) })
	}
	j, err := client.Job(ctx, c.ID.job)
	if err != nil {
		return err
	}
	return t.print(j, func(p *page) { printJob(p, j) })
}

func printJob(p *page, j api.Job) {
	p.line("job %d %s\t%s", j.ID, j.Name, outcome(j))
	if a := j.InArray; a != nil {
		p.line("array\tA%d, index %d of %d jobs", a.Array, a.Index, a.Size)
	}
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
	IDs []target `arg:"" name:"id" help:"Job numbers; A4 is all of array A4."`
}

type pauseCommand struct {
	IDs []target `arg:"" name:"id" help:"Job numbers; A4 is all of array A4."`
}

type resumeCommand struct {
	IDs []target `arg:"" name:"id" help:"Job numbers; A4 is all of array A4."`
}

// Run ends the jobs.
func (c *cancelCommand) Run(ctx context.Context, t *terminal) error {
	return t.each(ctx, c.IDs, verb{(*api.Client).Cancel, (*api.Client).CancelArray})
}

// Run holds the jobs back.
func (c *pauseCommand) Run(ctx context.Context, t *terminal) error {
	return t.each(ctx, c.IDs, verb{(*api.Client).Pause, (*api.Client).PauseArray})
}

// Run lets the jobs go on.
func (c *resumeCommand) Run(ctx context.Context, t *terminal) error {
	return t.each(ctx, c.IDs, verb{(*api.Client).Resume, (*api.Client).ResumeArray})
}

// each sends one command per job or array. A refused one does not keep the others
// from being sent; all refusals are given back.
func (t *terminal) each(ctx context.Context, targets []target, v verb) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	var refused []error
	for _, to := range targets {
		got, line, err := v.send(ctx, client, to)
		if err == nil {
			err = t.print(got, func(p *page) { p.line("%s", line) })
		}
		if err != nil {
			refused = append(refused, err)
		}
	}
	return errors.Join(refused...)
}
