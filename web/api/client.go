package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
)

// maxAnswer bounds every answer the client reads, bytes.
const maxAnswer = 16 << 20

// Client speaks to one server. The zero HTTP client is http.DefaultClient.
// Every call may be repeated: commands carry their key in the body, so a retry
// after a lost answer gets the first result.
type Client struct {
	Server string // base URL, e.g. "https://tranche.example.org"
	Token  string
	HTTP   *http.Client
	// Tries is how often one call is sent before its error is given back, when
	// the server cannot be reached or answers 5xx; 0 counts as 1.
	Tries int
	// RetryPause is the real time before the second try; it doubles for each
	// following one, up to 5 s.
	RetryPause time.Duration
}

// Unreachable wraps what stopped a call from getting an answer below 500.
type Unreachable struct{ Err error }

func (u *Unreachable) Error() string { return "the server cannot be reached: " + u.Err.Error() }

// Unwrap gives the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Call sends one request, retrying as Tries says, and decodes the answer into
// out unless that is nil. It fails with *Problem (the server's refusal),
// *Unreachable, or the context's error.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	pause := c.RetryPause
	for try := 1; ; try++ {
		err := c.once(ctx, method, path, body, out)
		var gone *Unreachable
		if err == nil || !errors.As(err, &gone) || try >= c.Tries || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		pause = min(2*pause, 5*time.Second)
	}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.Server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	hc := c.HTTP
	if hc == nil {
		hc = http.DefaultClient
	}
	resp, err := hc.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Unreachable{err}
	}
	defer func() { _ = resp.Body.Close() }() // nothing is written, so nothing can be lost
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &Unreachable{err}
	}
	return decode(resp, data, out)
}

func decode(resp *http.Response, data []byte, out any) error {
	switch {
	case resp.StatusCode >= 500:
		return &Unreachable{problem(resp, data)}
	case resp.StatusCode >= 300:
		return problem(resp, data)
	case out == nil || len(data) == 0:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the server's answer is not what this version expects: %w", err)
	}
	return nil
}

// problem reads an error answer, also one that some proxy wrote as plain text.
func problem(resp *http.Response, data []byte) *Problem {
	p := &Problem{}
	if err := json.Unmarshal(data, p); err != nil || (p.Title == "" && p.Detail == "") {
		p = &Problem{Title: "the server answered " + resp.Status}
	}
	p.Status = resp.StatusCode
	return p
}

// WhoAmI asks who the token belongs to.
func (c *Client) WhoAmI(ctx context.Context) (WhoAmI, error) {
	var out WhoAmI
	return out, c.Call(ctx, http.MethodGet, PathWhoAmI, nil, &out)
}

// Balances gives the positions of the projects the caller may see; project and
// pool narrow it when not empty.
func (c *Client) Balances(ctx context.Context, project, pool string) (Balances, error) {
	var out Balances
	return out, c.Call(ctx, http.MethodGet, withQuery(PathBalances, "project", project, "pool", pool), nil, &out)
}

// Submit hands in a job. The same Key with the same content gives the same job.
func (c *Client) Submit(ctx context.Context, s Submit) (Job, error) {
	var out Job
	return out, c.Call(ctx, http.MethodPost, PathJobs, s, &out)
}

// JobQuery narrows a job list; empty fields do not.
type JobQuery struct {
	Project, Pool, State string
	Mine                 bool
	Array                ledger.ArrayID // its jobs, by index
	After                string         // cursor: Next of the page before
	Limit                int            // at most 500; 0 = the server's default
}

// Jobs gives one page of jobs, newest first.
func (c *Client) Jobs(ctx context.Context, q JobQuery) (JobList, error) {
	limit, mine := "", ""
	if q.Limit > 0 {
		limit = strconv.Itoa(q.Limit)
	}
	if q.Mine {
		mine = "1"
	}
	array := ""
	if q.Array != 0 {
		array = strconv.FormatInt(int64(q.Array), 10)
	}
	var out JobList
	path := withQuery(PathJobs, "array", array, "project", q.Project, "pool", q.Pool, "state", q.State, "mine", mine, "after", q.After, "limit", limit)
	return out, c.Call(ctx, http.MethodGet, path, nil, &out)
}

// Job gives one job with its attempts.
func (c *Client) Job(ctx context.Context, id ledger.JobID) (Job, error) {
	var out Job
	return out, c.Call(ctx, http.MethodGet, jobPath(PathJob, id), nil, &out)
}

// Why gives the explanation of where a job stands.
func (c *Client) Why(ctx context.Context, id ledger.JobID) (Why, error) {
	var out Why
	return out, c.Call(ctx, http.MethodGet, jobPath(PathWhy, id), nil, &out)
}

// Outlook gives what would start a waiting job, and what went before it.
func (c *Client) Outlook(ctx context.Context, id ledger.JobID) (Outlook, error) {
	var out Outlook
	return out, c.Call(ctx, http.MethodGet, jobPath(PathChanges, id), nil, &out)
}

// ChangeJob alters a waiting job.
func (c *Client) ChangeJob(ctx context.Context, id ledger.JobID, in ChangeJob) (Job, error) {
	var out Job
	return out, c.Call(ctx, http.MethodPost, jobPath(PathChange, id), in, &out)
}

// Policy gives every knob of the dispatcher.
func (c *Client) Policy(ctx context.Context) (Policy, error) {
	var out Policy
	return out, c.Call(ctx, http.MethodGet, PathPolicy, nil, &out)
}

// SetPolicy turns knobs, or previews it.
func (c *Client) SetPolicy(ctx context.Context, in SetPolicy) (PolicyPreview, error) {
	var out PolicyPreview
	return out, c.Call(ctx, http.MethodPost, PathPolicy, in, &out)
}

// Renew asks for new protection of what runs.
func (c *Client) Renew(ctx context.Context, id ledger.JobID, in Renew) (Job, error) {
	var out Job
	return out, c.Call(ctx, http.MethodPost, jobPath(PathRenew, id), in, &out)
}

// Order gives one page of a pool's order; after is the cursor of the page before.
func (c *Client) Order(ctx context.Context, pool, after string, limit int) (PoolOrder, error) {
	var out PoolOrder
	most := ""
	if limit > 0 {
		most = strconv.Itoa(limit)
	}
	return out, c.Call(ctx, http.MethodGet, withQuery(PathOrder, "pool", pool, "after", after, "limit", most), nil, &out)
}

// LogQuery says which output to read. Attempt 0 is the newest one. WaitMS (real
// time) lets the server hold the answer until there is something new.
type LogQuery struct {
	Attempt ledger.AttemptID
	Rank    int
	Offset  int64
	WaitMS  int64
}

// Logs reads a piece of a job's output.
func (c *Client) Logs(ctx context.Context, id ledger.JobID, q LogQuery) (Logs, error) {
	attempt, wait := "", ""
	if q.Attempt != 0 {
		attempt = strconv.FormatInt(int64(q.Attempt), 10)
	}
	if q.WaitMS > 0 {
		wait = strconv.FormatInt(q.WaitMS, 10)
	}
	var out Logs
	path := withQuery(jobPath(PathJobLogs, id), "attempt", attempt, "rank", strconv.Itoa(q.Rank),
		"offset", strconv.FormatInt(q.Offset, 10), "wait_ms", wait)
	return out, c.Call(ctx, http.MethodGet, path, nil, &out)
}

// Cancel ends a job; what runs gets its grace. Cancelling twice is one effect.
func (c *Client) Cancel(ctx context.Context, id ledger.JobID, key string) (Job, error) {
	return c.command(ctx, PathCancel, id, key)
}

// Pause keeps a waiting job from starting.
func (c *Client) Pause(ctx context.Context, id ledger.JobID, key string) (Job, error) {
	return c.command(ctx, PathPause, id, key)
}

// Resume lets a paused job start again.
func (c *Client) Resume(ctx context.Context, id ledger.JobID, key string) (Job, error) {
	return c.command(ctx, PathResume, id, key)
}

func (c *Client) command(ctx context.Context, pattern string, id ledger.JobID, key string) (Job, error) {
	var out Job
	return out, c.Call(ctx, http.MethodPost, jobPath(pattern, id), Command{Key: key}, &out)
}

// Array gives one array with the counts of its jobs.
func (c *Client) Array(ctx context.Context, id ledger.ArrayID) (Array, error) {
	var out Array
	return out, c.Call(ctx, http.MethodGet, arrayPath(PathArray, id), nil, &out)
}

// CancelArray ends all jobs of an array.
func (c *Client) CancelArray(ctx context.Context, id ledger.ArrayID, key string) (Array, error) {
	return c.commandArray(ctx, PathArrayCancel, id, key)
}

// PauseArray keeps all jobs of an array that wait from starting.
func (c *Client) PauseArray(ctx context.Context, id ledger.ArrayID, key string) (Array, error) {
	return c.commandArray(ctx, PathArrayPause, id, key)
}

// ResumeArray lets all paused jobs of an array start again.
func (c *Client) ResumeArray(ctx context.Context, id ledger.ArrayID, key string) (Array, error) {
	return c.commandArray(ctx, PathArrayResume, id, key)
}

func (c *Client) commandArray(ctx context.Context, pattern string, id ledger.ArrayID, key string) (Array, error) {
	var out Array
	return out, c.Call(ctx, http.MethodPost, arrayPath(pattern, id), Command{Key: key}, &out)
}

func arrayPath(pattern string, id ledger.ArrayID) string { return jobPath(pattern, ledger.JobID(id)) }

func jobPath(pattern string, id ledger.JobID) string {
	return strings.Replace(pattern, "{id}", strconv.FormatInt(int64(id), 10), 1)
}

// withQuery appends the non-empty pairs.
func withQuery(path string, pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}
