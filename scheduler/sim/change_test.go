package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tranche/ledger"
	"tranche/scheduler"
)

// tryout decides on the whole of a snapshot with one job in another form.
func tryout(s *scheduler.Snapshot, c *scheduler.Change) *scheduler.Start {
	try := s.Flat()
	try.Waiting = slices.DeleteFunc(try.Waiting, func(j scheduler.Job) bool { return j.ID == c.To.ID })
	try.Waiting = append(try.Waiting, c.To)
	if c.Kind == scheduler.ChangeFunds {
		try.Funds = moreFunds(s, c)
	}
	plan := scheduler.Decide(try)
	for i := range plan.Starts {
		if plan.Starts[i].Job == c.To.ID {
			return &plan.Starts[i]
		}
	}
	return nil
}

// moreFunds awards the project of a change what it lacks.
func moreFunds(s *scheduler.Snapshot, c *scheduler.Change) []ledger.Funds {
	funds := slices.Clone(s.Funds)
	at := slices.IndexFunc(funds, func(f ledger.Funds) bool { return f.Pool == c.To.Pool && f.Project == c.To.Project })
	lot := ledger.Lot{Project: c.To.Project, Pool: c.To.Pool, First: s.Now, Last: s.Now.Add(30 * day), Available: c.Short}
	if at >= 0 {
		funds[at].Lots = append(slices.Clone(funds[at].Lots), lot)
		return funds
	}
	funds = append(funds, ledger.Funds{Project: c.To.Project, Pool: c.To.Pool, Lots: []ledger.Lot{lot}})
	slices.SortFunc(funds, func(a, b ledger.Funds) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project))
	})
	return funds
}

// larger is the form between a change and the job as it is that lies next to
// the change; false when there is none.
func larger(c *scheduler.Change, sizes []scheduler.NodeSize) (scheduler.Job, bool) {
	size := sizes[slices.IndexFunc(sizes, func(n scheduler.NodeSize) bool { return n.Pool == c.From.Pool })]
	job := c.From
	switch c.Kind {
	case scheduler.ChangeMinimum:
		job.Contract.MinMs = c.To.Contract.MinMs/(15*60_000)*(15*60_000) + 15*60_000
		return job, job.Contract.MinMs < c.From.Contract.MinMs
	case scheduler.ChangeGPUs:
		return size.Reshape(job, 1, c.To.Shape.GPUs+1), c.To.Shape.GPUs+1 < c.From.Shape.GPUs
	case scheduler.ChangeNodes:
		return size.Reshape(job, c.To.Shape.Nodes+1, job.Shape.GPUs), c.To.Shape.Nodes+1 < c.From.Shape.Nodes
	}
	return job, false
}

// What is offered as a change starts the job in the very next cycle, although
// only its own pool was looked at; the next larger step does not; and a job that
// starts anyway is offered nothing.
func TestChangesStartTheJob(t *testing.T) {
	kinds := map[scheduler.ChangeKind]int{}
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t)
		second, err := c.AddPool("l40s", 500_000, 1_000_000*ledger.GPUHour)
		if err != nil {
			t.Fatal(err)
		}
		c.AddNode(second, "m1", 4, 32_000, 262_144)
		for _, g := range c.projects {
			if rapid.Bool().Draw(t, "both pools") {
				if _, err := c.Award(g, second, 20*ledger.GPUHour, Epoch.Add(40*hour)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sizes := []scheduler.NodeSize{{Pool: c.pools[0], GPUs: int64(len(c.snap.Nodes[0].Devices)), CPUMilli: 64_000, RAMMiB: 524_288}, {Pool: second, GPUs: 4, CPUMilli: 32_000, RAMMiB: 262_144}}
		for range rapid.IntRange(3, 25).Draw(t, "steps") {
			c.happen()
			if rapid.IntRange(0, 3).Draw(t, "greedy") == 0 {
				c.Submit(scheduler.Job{
					Project: rapid.SampledFrom(c.projects).Draw(t, "whose"), Pool: c.pools[0], Member: 1,
					Shape:    scheduler.Shape{Nodes: 1, GPUs: 1, GPUMilli: 1000, CPUMilli: 60_000, RAMMiB: 32_768},
					Contract: scheduler.Contract{MinMs: 15 * 60_000, GraceMs: 60_000, MaxMs: 7 * day},
				}, Behaviour{ForMs: hour, ExitMs: -1})
			}
			s, err := c.Snapshot(context.Background(), c.now)
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range s.Flat().Waiting {
				checkOutlook(t, s, job, sizes, kinds)
			}
			if _, err := c.Cycle(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, kind := range []scheduler.ChangeKind{
		scheduler.ChangeFunds, scheduler.ChangeCores, scheduler.ChangeMinimum, scheduler.ChangeGPUs, scheduler.ChangeNodes,
		scheduler.ChangePool, scheduler.ChangeFree,
	} {
		if kinds[kind] == 0 {
			t.Errorf("no change of kind %q was offered in the whole run: %v", kind, kinds)
		}
	}
}

func checkOutlook(t *rapid.T, s *scheduler.Snapshot, job scheduler.Job, sizes []scheduler.NodeSize, kinds map[scheduler.ChangeKind]int) {
	out := scheduler.Changes(s, job, sizes)
	asItIs := tryout(s, &scheduler.Change{To: job})
	if (asItIs != nil) != (out.AsItIs != nil) {
		t.Fatalf("job %d starts as it is: %t; said to: %t", job.ID, asItIs != nil, out.AsItIs != nil)
	}
	if asItIs != nil && len(out.Changes) > 0 || len(out.Changes) > 3 {
		t.Fatalf("job %d is offered %d changes", job.ID, len(out.Changes))
	}
	for i := range out.Changes {
		c := &out.Changes[i]
		kinds[c.Kind]++
		start := tryout(s, c)
		if start == nil {
			t.Fatalf("job %d does not start with %q", job.ID, c.Text(func(p ledger.PoolID) string { return fmt.Sprint(p) }))
		}
		if start.Funded != c.Start.Funded || len(start.Evict) != len(c.Start.Evict) || start.Nominate != c.Start.Nominate {
			t.Fatalf("job %d: the change %q was said to do something else", job.ID, c.Kind)
		}
		if next, ok := larger(c, sizes); ok && tryout(s, &scheduler.Change{To: next}) != nil {
			t.Fatalf("job %d: %q gives up more than it needs", job.ID, c.Kind)
		}
	}
}
