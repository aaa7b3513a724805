package main

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"tranche/scheduler/sim"
)

func TestTraceShapeTakesFewestEqualNodes(t *testing.T) {
	for _, c := range []struct{ gpus, nodes, each int64 }{{1, 1, 1}, {8, 1, 8}, {9, 3, 3}, {12, 2, 6}, {13, 13, 1}, {16, 2, 8}, {32, 4, 8}, {128, 16, 8}} {
		if nodes, each := traceShape(c.gpus); nodes != c.nodes || each != c.each {
			t.Errorf("%d GPUs: %d × %d, want %d × %d", c.gpus, nodes, each, c.nodes, c.each)
		}
	}
}

func TestTraceMinimum(t *testing.T) {
	zero := 0
	for line := range 1000 {
		for _, c := range []struct{ duration, want int64 }{
			{9*minute + 59_000, 5 * minute}, {10 * minute, 5 * minute}, {30 * minute, 15 * minute}, {5 * 60 * minute, 60 * minute},
		} {
			switch got := traceMinimum(sim.PhillyJob{Line: line, DurationMs: c.duration, GPUs: 1, Cluster: "a"}); got {
			case 0:
				zero++
			case c.want:
			default:
				t.Fatalf("duration %d ms, line %d: minimum %d, want %d", c.duration, line, got, c.want)
			}
		}
	}
	if zero < 700 || zero > 900 {
		t.Errorf("%d of 4000 jobs are unfunded, want about every fifth", zero)
	}
}

func TestTraceCommandLastsTheJobsTime(t *testing.T) {
	j := traceJob{PhillyJob: sim.PhillyJob{DurationMs: 66_000}}
	if got := j.command(720); got != "exec sleep 0.091666" {
		t.Error(got)
	}
	if got := j.command(1); got != "exec sleep 66.000000" {
		t.Error(got)
	}
}

func TestReadTraceTakesTheWindowOnly(t *testing.T) {
	const text = "timestamp,duration,num_gpus,gpu_time,cluster\n" +
		"2017-10-27 00:00:00,60.0,1,60.0,late\n" +
		"2017-10-26 23:59:59,60.0,16,960.0,b\n\n" +
		"2017-10-26 00:00:00,60.0,1,60.0,a\n" +
		"2017-10-25 23:59:59,60.0,1,60.0,early\n"
	name := filepath.Join(t.TempDir(), "jobs.csv.gz")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(file)
	if _, err := packed.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	flags := traceFlags{Trace: name, From: "2017-10-26", Hours: 24, Nodes: 2}
	w, err := flags.window()
	if err != nil {
		t.Fatal(err)
	}
	jobs, skipped, err := flags.readTrace(w)
	if err != nil || skipped != 0 {
		t.Fatal(jobs, skipped, err)
	}
	if len(jobs) != 2 || jobs[0].Cluster != "a" || jobs[1].Cluster != "b" || jobs[1].Nodes != 2 || jobs[1].GPUs != 8 {
		t.Errorf("%+v", jobs)
	}
	if got := traceClusters(jobs); len(got) != 2 || got[0] != "a" {
		t.Error(got)
	}
	flags.From = "2018-01-01"
	if w, err = flags.window(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := flags.readTrace(w); err == nil {
		t.Error("an empty window was accepted")
	}
}
