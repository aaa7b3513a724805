package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/scheduler/sim"
)

// Every simulated node has this much; jobs of a trace ask for their GPUs'
// proportional part.
const (
	nodeDevices = 8
	minute      = int64(60_000) // ms
)

// traceFlags choose a part of a public trace and how to replay it.
type traceFlags struct {
	Trace   string `help:"Replay a public trace (philly_jobs.csv or .csv.gz) through the live system instead of the example institute." placeholder:"FILE" type:"existingfile"`
	From    string `help:"First day of the replay, YYYY-MM-DD on the trace's own clock." placeholder:"DATE"`
	Hours   int64  `help:"Length of the replay in business hours." default:"24"`
	Nodes   int    `help:"Simulated nodes of 8 devices." default:"16"`
	Lenient bool   `help:"Leave malformed lines of the trace out instead of refusing it."`
	Exit    bool   `help:"End after the replay and remove its data folder."`
	JSON    bool   `name:"json" help:"Print the replay's numbers as one JSON object."`
}

// window is [From, To) in business instants.
type window struct{ From, To ledger.Instant }

func (f *traceFlags) window() (window, error) {
	day, err := time.Parse(time.DateOnly, f.From)
	switch {
	case err != nil:
		return window{}, fmt.Errorf("--from %q is not a date: give the first day as YYYY-MM-DD", f.From)
	case f.Hours < 1 || f.Hours > 24*31:
		return window{}, fmt.Errorf("--hours %d is not between 1 and 744", f.Hours)
	case f.Nodes < 1 || f.Nodes > 512:
		return window{}, fmt.Errorf("--nodes %d is not between 1 and 512", f.Nodes)
	}
	from := ledger.At(day)
	return window{from, from.Add(f.Hours * 60 * minute)}, nil
}

// traceJob is one job of the replay.
type traceJob struct {
	sim.PhillyJob
	Nodes, GPUs int64 // GPUs on each node
	MinMs       int64 // minimum runtime; 0 = unfunded
}

// readTrace gives the window's jobs in order of submission.
func (f *traceFlags) readTrace(w window) (jobs []traceJob, skipped int, err error) {
	file, err := os.Open(f.Trace)
	if err != nil {
		return nil, 0, fmt.Errorf("open the trace: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var in io.Reader = file
	if strings.HasSuffix(f.Trace, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, 0, fmt.Errorf("unpack %s: %w", f.Trace, err)
		}
	}
	all, skipped, err := sim.ReadPhilly(in, f.Lenient)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", f.Trace, err)
	}
	for _, p := range all {
		if p.Submitted >= w.From && p.Submitted < w.To {
			job := traceJob{PhillyJob: p, MinMs: traceMinimum(p)}
			job.Nodes, job.GPUs = traceShape(p.GPUs)
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return nil, skipped, fmt.Errorf("%s has no job between %s and %s", f.Trace,
			w.From.Time().Format(time.DateTime), w.To.Time().Format(time.DateTime))
	}
	return jobs, skipped, nil
}

// traceMinimum is the contract a trace's job gets, since traces have none: half
// its run up to an hour from ten minutes on, else the least there is; every
// fifth job, by hash of its row, asks for none and runs unfunded.
func traceMinimum(p sim.PhillyJob) int64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d,%d,%d,%s,%d", p.Submitted, p.DurationMs, p.GPUs, p.Cluster, p.Line)
	if h.Sum32()%5 == 0 {
		return 0
	}
	if p.DurationMs >= 10*minute {
		return min(p.DurationMs/2, 60*minute)
	}
	return 5 * minute
}

// traceShape spreads GPUs over the fewest nodes with equal parts: 12 GPUs are
// two nodes of 6, a prime number above 8 is that many nodes of 1.
func traceShape(gpus int64) (nodes, perNode int64) {
	for nodes = (gpus + nodeDevices - 1) / nodeDevices; gpus%nodes != 0; {
		nodes++
	}
	return nodes, gpus / nodes
}

// traceClusters lists the tenants that submit in the window.
func traceClusters(jobs []traceJob) []string {
	var names []string
	for _, j := range jobs {
		if !slices.Contains(names, j.Cluster) {
			names = append(names, j.Cluster)
		}
	}
	slices.Sort(names)
	return names
}

// command is the process of one attempt: it lasts as long as the trace's job did,
// in real time at the given speed, and leaves at the first SIGTERM. The trace
// knows of no checkpoints, so each attempt begins anew.
func (j traceJob) command(speed int64) string {
	us := j.DurationMs * 1000 / speed
	return fmt.Sprintf("exec sleep %d.%06d", us/1_000_000, us%1_000_000)
}
