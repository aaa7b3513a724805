package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/web/api"
)

// target is what a command is about: a job, "1234", or an array, "A4".
type target struct {
	job   ledger.JobID
	array ledger.ArrayID // 0 = the job
}

// UnmarshalText reads "1234" or "A4".
func (g *target) UnmarshalText(text []byte) error {
	digits, isArray := strings.CutPrefix(strings.ToUpper(string(text)), "A")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no job's number and no array's: write 1234 or A4", text)
	}
	*g = target{job: ledger.JobID(n)}
	if isArray {
		*g = target{array: ledger.ArrayID(n)}
	}
	return nil
}

// counts says what has become of an array's jobs: "12 finished, 3 running".
func counts(a *api.Array) string {
	var parts []string
	for _, c := range []struct {
		n    int
		word string
	}{
		{a.Finished, "finished"},
		{a.Failed, "failed"},
		{a.Cancelled, "cancelled"},
		{a.Running, "running"},
		{a.Waiting, "waiting"},
		{a.Paused, "paused"},
	} {
		if c.n > 0 {
			parts = append(parts, strconv.Itoa(c.n)+" "+c.word)
		}
	}
	return strings.Join(parts, ", ")
}

func printArray(p *page, a *api.Array) {
	p.line("array A%d %s\t%s", a.ID, a.Name, counts(a))
	p.line("project\t%s, pool %s, by %s", a.Project, a.Pool, a.User)
	atOnce := "as many at once as may"
	if a.AtOnce > 0 {
		atOnce = fmt.Sprintf("%d at once", a.AtOnce)
	}
	p.line("indices\t%s, %d jobs, %s", a.Indices, a.Size, atOnce)
	p.line("submitted\t%s", instant(a.Submitted))
	p.line("GPU-hours\t%s charged", a.Charged.Hours())
	if a.After != "" {
		p.line("starts after\t%s", a.After)
	}
	p.line("its jobs\ttranche jobs --array A%d", a.ID)
}

// explainArray prints an array and why its next job waits.
func (t *terminal) explainArray(ctx context.Context, client *api.Client, id ledger.ArrayID) error {
	a, err := client.Array(ctx, id)
	if err != nil {
		return err
	}
	next, err := client.Jobs(ctx, api.JobQuery{Array: id, State: "waiting", Limit: 1})
	if err != nil {
		return err
	}
	out := struct {
		api.Array
		Next *api.Job `json:"next,omitempty"`
	}{Array: a}
	if len(next.Jobs) > 0 {
		out.Next = &next.Jobs[0]
	}
	return t.print(out, func(p *page) {
		p.line("array A%d: %s of %d jobs.", a.ID, counts(&a), a.Size)
		if out.Next != nil {
			p.line("Next is job %d, index %d: %s", out.Next.ID, out.Next.InArray.Index, out.Next.Reason)
		}
	})
}

// verb is a command on one job and the same on all jobs of an array.
type verb struct {
	job   func(*api.Client, context.Context, ledger.JobID, string) (api.Job, error)
	array func(*api.Client, context.Context, ledger.ArrayID, string) (api.Array, error)
}

// send gives what the command has led to, and its line.
func (v verb) send(ctx context.Context, client *api.Client, to target) (got any, line string, err error) {
	if to.array != 0 {
		a, err := v.array(client, ctx, to.array, newKey())
		return a, fmt.Sprintf("array A%d: %s", a.ID, counts(&a)), err
	}
	j, err := v.job(client, ctx, to.job, newKey())
	return j, fmt.Sprintf("job %d %s", j.ID, outcome(j)), err
}
