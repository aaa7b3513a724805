package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tranche/scheduler"
	"tranche/store"
	"tranche/store/embedpg"
)

// replayCommand decides recorded cycles again and compares.
type replayCommand struct {
	DatabaseURL      string `env:"TRANCHE_DATABASE_URL,DATABASE_URL" help:"Address of the database; without it that of a running demo."`
	DatabasePassword string `env:"TRANCHE_DATABASE_PASSWORD" help:"Password of the server's role, if the address names none."`
	Data             string `help:"Data folder of the demo (default: as demo's)." placeholder:"DIR"`
	Cycles           string `arg:"" optional:"" help:"A cycle's number, a span FROM..TO, or last:100." default:"last:100"`
	List             bool   `help:"Say which cycles are kept, and stop."`
	Snapshot         string `help:"Write the snapshot of the (last) cycle to this file as JSON." placeholder:"FILE"`
	JSON             bool   `name:"json" help:"Print one JSON object."`
}

// replayVerdict is what a replay found.
type replayVerdict struct {
	From       int64  `json:"from"`
	To         int64  `json:"to"`
	Cycles     int64  `json:"cycles"`
	Identical  int64  `json:"identical"`
	Starts     int64  `json:"starts"`
	Evictions  int64  `json:"evictions"`
	Difference string `json:"first_difference,omitempty"`

	Missing      int64 `json:"missing"` // cycles of the span of which no record is kept
	FirstMissing int64 `json:"first_missing,omitempty"`
	last         int64 // cycle that was looked at last
}

func (c *replayCommand) Run(ctx context.Context, t terminal) error {
	address, err := c.address()
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: address, Password: c.DatabasePassword, Clock: clock, Log: t.Log, MaxConns: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	if c.List {
		return c.list(ctx, t, s)
	}
	from, to, err := c.span(ctx, s)
	if err != nil {
		return err
	}
	v := replayVerdict{From: from, To: to, last: from - 1}
	var last *scheduler.Snapshot
	err = s.EachCycle(ctx, from, to, func(r store.CycleRecord, snap *scheduler.Snapshot) error {
		v.compare(r, snap)
		last = snap
		if !c.JSON && (v.Cycles%25 == 0 || r.Cycle == to) {
			fmt.Fprintf(t.Err, "\r%d of %d cycles, %d identical", v.Cycles, to-from+1, v.Identical)
		}
		return ctx.Err()
	})
	if !c.JSON {
		fmt.Fprintln(t.Err)
	}
	if err == nil && c.Snapshot != "" {
		err = writeSnapshot(c.Snapshot, last)
	}
	if err != nil {
		return err
	}
	v.skip(to + 1)
	err = v.print(t.Out, c.JSON)
	if err == nil && (v.Identical < v.Cycles || v.Cycles == 0 || v.Missing > 0 && !strings.HasPrefix(c.Cycles, "last:")) {
		return errFailed // last:N asks only for what is kept, however far back that goes
	}
	return err
}

// skip notes that no record was met between the last cycle and this one.
func (v *replayVerdict) skip(cycle int64) {
	if cycle > v.last+1 {
		v.Missing += cycle - v.last - 1
		if v.FirstMissing == 0 {
			v.FirstMissing = v.last + 1
		}
	}
	v.last = cycle
}

// compare decides a cycle again.
func (v *replayVerdict) compare(r store.CycleRecord, snap *scheduler.Snapshot) {
	v.skip(r.Cycle)
	plan := scheduler.Decide(snap)
	v.Cycles++
	v.Starts += int64(len(plan.Starts))
	v.Evictions += int64(r.Evictions)
	if sha256.Sum256(plan.Bytes()) == r.Plan {
		v.Identical++
		return
	}
	if v.Difference == "" {
		v.Difference = fmt.Sprintf("cycle %d: decided again it has %d starts and %d stops in %d steps, recorded were %d, %d and %d",
			r.Cycle, len(plan.Starts), len(plan.Stops), plan.Steps, r.Starts, r.Stops, r.Steps)
	}
}

func (v *replayVerdict) print(out io.Writer, asJSON bool) error {
	var err error
	if asJSON {
		err = json.NewEncoder(out).Encode(v)
	} else {
		_, err = fmt.Fprintf(out, "Cycles %d to %d: %d of %d plans identical, with %d starts and %d evictions.\n",
			v.From, v.To, v.Identical, v.Cycles, v.Starts, v.Evictions)
		if v.Difference != "" {
			_, err = fmt.Fprintln(out, v.Difference)
		}
		if v.Missing > 0 {
			_, err = fmt.Fprintf(out, "No record is kept of %d of the span's %d cycles, first of cycle %d.\n", v.Missing, v.To-v.From+1, v.FirstMissing)
		}
	}
	return err
}

// span reads which cycles are meant.
func (c *replayCommand) span(ctx context.Context, s *store.Store) (from, to int64, err error) {
	if n, ok := strings.CutPrefix(c.Cycles, "last:"); ok {
		count, err := strconv.ParseInt(n, 10, 64)
		if err != nil || count < 1 {
			return 0, 0, fmt.Errorf("%q is not last:N with N above 0", c.Cycles)
		}
		from, to, err = s.LastCycles(ctx, count)
		if err == nil && to == 0 {
			err = errors.New("no cycle is recorded yet: the server records while it dispatches")
		}
		return from, to, err
	}
	first, last, isSpan := strings.Cut(c.Cycles, "..")
	if !isSpan {
		last = first
	}
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if err1 != nil || err2 != nil || from < 1 || to < from {
		return 0, 0, fmt.Errorf("%q is not a cycle's number, a span FROM..TO, or last:N", c.Cycles)
	}
	return from, to, nil
}

func (c *replayCommand) list(ctx context.Context, t terminal, s *store.Store) error {
	k, err := s.KeptCycles(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(t.Out).Encode(k)
	}
	if k.Cycles == 0 {
		_, err = fmt.Fprintln(t.Out, "No cycle is recorded yet.")
		return err
	}
	_, err = fmt.Fprintf(t.Out, "%d cycles are kept, %d to %d, in %.1f MiB.\n", k.Cycles, k.First, k.Last, float64(k.Bytes)/(1<<20))
	if err == nil && k.Dropped > 0 {
		_, err = fmt.Fprintf(t.Out, "Those up to cycle %d were dropped on %s for want of room.\n", k.Dropped, k.DroppedAt.Time().Format("2006-01-02 15:04 UTC"))
	}
	return err
}

func writeSnapshot(file string, s *scheduler.Snapshot) error {
	if s == nil {
		return errors.New("none of these cycles is kept")
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(s); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o600)
}

// address is the database's, or that of a demo that runs on this machine.
func (c *replayCommand) address() (string, error) {
	if c.DatabaseURL != "" {
		return c.DatabaseURL, nil
	}
	dir := c.Data
	if dir == "" {
		var err error
		if dir, err = embedpg.DefaultDir(); err != nil {
			return "", err
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return "", fmt.Errorf("TRANCHE_DATABASE_URL is missing and no demo runs on %s: say whose cycles to replay", dir)
	}
	return strings.TrimSpace(string(text)), nil
}
