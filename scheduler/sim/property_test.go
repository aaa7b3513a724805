package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tranche/ledger"
	"tranche/scheduler"
)

// chaos is a small random institute that things happen to.
type chaos struct {
	*World
	t        *rapid.T
	pools    []ledger.PoolID
	projects []ledger.GroupID
	jobs     []ledger.JobID
}

func newChaos(t *rapid.T) *chaos {
	p := scheduler.DefaultPolicy()
	p.LookbackMs = rapid.SampledFrom([]int64{10 * 60_000, 6 * hour, 7 * day}).Draw(t, "lookback")
	p.EvictPerMinute = rapid.SampledFrom([]int64{0, 1, 600}).Draw(t, "evict")
	p.EvictBurst = max(1, p.EvictPerMinute)
	p.Placer = rapid.SampledFrom([]string{scheduler.PlacerRagpX, scheduler.PlacerRagpX, scheduler.PlacerRagpIO, scheduler.PlacerBestFit}).Draw(t, "placer")
	p.PastProtectionPPM = rapid.SampledFrom([]int64{1_000_000, 10_000, 777_777, 10_000_000}).Draw(t, "past ppm")
	c := &chaos{World: New(Config{Policy: p, Start: Epoch, Seed: rapid.Uint64().Draw(t, "seed")}), t: t}
	pool, err := c.AddPool("h100", 1_500_000, 1_000_000*ledger.GPUHour)
	if err != nil {
		t.Fatal(err)
	}
	c.pools = append(c.pools, pool)
	root := c.AddGroup(0, "/lab", false)
	for i := range rapid.IntRange(1, 3).Draw(t, "programs") {
		prog := c.AddGroup(root, fmt.Sprintf("/lab/p%d", i), false)
		for k := range rapid.IntRange(1, 3).Draw(t, "projects") {
			g := c.AddGroup(prog, fmt.Sprintf("/lab/p%d/q%d", i, k), true)
			c.projects = append(c.projects, g)
			c.SetShare(pool, g, rapid.Int64Range(0, 4).Draw(t, "share")*10_000_000)
			if a := rapid.Int64Range(0, 200).Draw(t, "award"); a > 0 {
				if _, err := c.Award(g, pool, ledger.Amount(a)*ledger.GPUHour, Epoch.Add(rapid.Int64Range(1, 40).Draw(t, "until")*hour)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		id := c.AddNode(pool, fmt.Sprintf("n%d", i+1), rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "gpus"), 64_000, 524_288)
		if rapid.Bool().Draw(t, "offers flows") {
			c.Equip(id, scheduler.Node{HBMMiB: 80_000, NetMbps: 50_000, StoMbps: 16_000, IOCMilli: 12_000, StoPPM: rapid.SampledFrom([]int64{0, 400_000}).Draw(t, "storage")})
		}
	}
	return c
}

// flow is what a job asks for beside GPUs, cores and memory.
func (c *chaos) flow() (f scheduler.Flow) {
	t := c.t
	if rapid.IntRange(0, 2).Draw(t, "flows") == 0 {
		f.HBMMiB = rapid.SampledFrom([]int64{0, 8000, 40_000, 80_000}).Draw(t, "hbm")
		f.NetMbps = rapid.SampledFrom([]int64{0, 20_000}).Draw(t, "net")
		f.StoMbps, f.IOCMilli = rapid.SampledFrom([]int64{0, 500, 6000}).Draw(t, "sto"), rapid.SampledFrom([]int64{0, 3000}).Draw(t, "ioc")
		f.HBMVar, f.StoVar, f.IOCVar = f.HBMMiB*f.HBMMiB/25, f.StoMbps*f.StoMbps/16, f.IOCMilli*f.IOCMilli/16
	}
	return f
}

func (c *chaos) submit() {
	t := c.t
	sh := scheduler.Shape{Nodes: rapid.SampledFrom([]int64{1, 1, 1, 2, 3}).Draw(t, "on"), GPUs: rapid.Int64Range(1, 8).Draw(t, "each"), GPUMilli: 1000}
	if sh.Nodes == 1 && rapid.IntRange(0, 3).Draw(t, "part") == 0 {
		sh.GPUs, sh.GPUMilli = 1, rapid.SampledFrom([]int64{250, 400, 500}).Draw(t, "milli")
	}
	sh.CPUMilli = rapid.Int64Range(1, 8).Draw(t, "cores") * 1000 * sh.GPUs
	sh.RAMMiB = 16_384 * sh.GPUs
	sh.Flow = c.flow()
	k := scheduler.Contract{
		MinMs: rapid.SampledFrom([]int64{0, 5 * 60_000, 15 * 60_000, hour, 4 * hour}).Draw(t, "min"), GraceMs: 60_000,
		MaxMs: rapid.SampledFrom([]int64{2 * hour, 7 * day}).Draw(t, "max"), Urgency: int8(rapid.IntRange(0, 3).Draw(t, "urgency")),
		Resumable: rapid.Bool().Draw(t, "resumable"), StopOnMoney: rapid.Bool().Draw(t, "stop"), OrFree: rapid.Bool().Draw(t, "or free"),
		MaxCharge: ledger.Amount(rapid.SampledFrom([]int64{0, 0, 10}).Draw(t, "most")) * ledger.GPUHour,
	}
	c.jobs = append(c.jobs, c.Submit(scheduler.Job{
		Project: rapid.SampledFrom(c.projects).Draw(t, "project"), Pool: c.pools[0], Member: ledger.PersonID(rapid.IntRange(1, 3).Draw(t, "member")), Shape: sh, Contract: k,
	}, Behaviour{ForMs: rapid.SampledFrom([]int64{-1, 60_000, hour, 5 * hour}).Draw(t, "for"), Code: rapid.IntRange(0, 1).Draw(t, "code"), ExitMs: -1}))
}

// happen lets one random thing happen.
func (c *chaos) happen() {
	switch what := rapid.IntRange(0, 14).Draw(c.t, "event"); {
	case what == 14:
		c.Learn(c.pools[0])
	case what == 13:
		c.bookSome()
	case what < 5 || len(c.jobs) == 0:
		c.submit()
	case what < 9:
		c.Advance(c.now.Add(rapid.SampledFrom([]int64{1, 1000, 60_000, 20 * 60_000, 2 * hour}).Draw(c.t, "passes")))
	case what == 9:
		if r := c.Cancel(rapid.SampledFrom(c.jobs).Draw(c.t, "cancel")); r != nil {
			c.t.Fatal(r)
		}
	case what == 10:
		node := ledger.NodeID(rapid.IntRange(1, len(c.snap.Nodes)).Draw(c.t, "node"))
		if h := rapid.SampledFrom([]scheduler.Health{scheduler.Lost, scheduler.Draining, scheduler.Faulted, scheduler.Suspect, scheduler.Healthy}).Draw(c.t, "health"); h == scheduler.Lost {
			c.FailNode(node)
		} else {
			c.SetHealth(node, h)
		}
	case what == 12:
		c.askAnew(rapid.SampledFrom(c.jobs).Draw(c.t, "renew"), rapid.SampledFrom([]int64{5 * 60_000, hour, 8 * hour}).Draw(c.t, "renew for"))
	case what == 11:
		if err := c.Finish(rapid.SampledFrom(c.jobs).Draw(c.t, "finish"), 0); err != nil {
			c.t.Fatal(err)
		}
	}
}

// bookSome books a slice that begins within a day, on a quarter of an hour.
func (c *chaos) bookSome() {
	const quarter = 15 * 60_000
	from := c.now/ledger.Instant(quarter*1000)*ledger.Instant(quarter*1000) + ledger.Instant(quarter*1000)
	from = from.Add(rapid.Int64Range(0, 96).Draw(c.t, "starts in") * quarter)
	c.Book(rapid.SampledFrom(c.projects).Draw(c.t, "books"), c.pools[0], rapid.Int64Range(1, 8).Draw(c.t, "books gpus"),
		from, from.Add(rapid.Int64Range(1, 40).Draw(c.t, "lasts")*quarter))
}

// booked checks that no device is named for two slices at one time, that nothing is
// promised protection into one, and that only who is unprotected makes way.
func (c *chaos) booked(p *scheduler.Plan) {
	type span struct{ from, to ledger.Instant }
	named := map[scheduler.Named][]span{}
	for i := range c.snap.Slices {
		s := &c.snap.Slices[i]
		if s.To <= c.now {
			continue
		}
		for _, d := range s.Devices {
			for _, o := range named[d] {
				if s.From < o.to && o.from < s.To {
					c.t.Fatalf("device %v is named for two slices at one time", d)
				}
			}
			named[d] = append(named[d], span{s.From, s.To})
		}
	}
	for i := range p.Starts {
		for _, at := range p.Starts[i].Placed {
			for _, d := range at.Devices {
				for _, o := range named[scheduler.Named{Node: at.Node, Index: d}] {
					if until := c.now.Add(p.Starts[i].MinMs); p.Starts[i].MinMs > 0 && until > o.from.Add(-c.snap.Policy.GraceCapMs) {
						c.t.Fatalf("job %d is promised %v on a device booked from %v", p.Starts[i].Job, until.Time(), o.from.Time())
					}
				}
			}
		}
	}
	for i := range p.Stops {
		r := &c.jobs0(p.Stops[i].Job).Run
		if p.Stops[i].Rule == scheduler.VS && r.Funded && (r.Started == 0 || c.now < r.ProtectedUntil) {
			c.t.Fatalf("job %d makes way although it is protected", p.Stops[i].Job)
		}
	}
}

// askAnew asks for new protection of a job that runs on a budget.
func (w *World) askAnew(id ledger.JobID, ms int64) {
	if r := &w.jobs[id].life.Run; r.Phase == scheduler.Running && r.Funded {
		w.Renew(id, ms)
	}
}

// protects checks that a plan evicts nobody who is protected.
func (c *chaos) protects(p *scheduler.Plan) {
	for i := range p.Starts {
		for _, e := range p.Starts[i].Evict {
			r := &c.jobs0(e.Job).Run
			if r.Funded && (r.Started == 0 || c.now < r.ProtectedUntil) {
				c.t.Fatalf("job %d is evicted under %s, %s before its protection ends", e.Job, e.Rule, scheduler.Span(r.ProtectedUntil.MillisSince(c.now)))
			}
			if !p.Starts[i].Funded {
				c.t.Fatalf("unfunded job %d evicts job %d", p.Starts[i].Job, e.Job)
			}
		}
	}
}

func (c *chaos) jobs0(id ledger.JobID) *scheduler.Life { return &c.World.jobs[id].life }

// Whatever happens: every plan applies to the snapshot it was made from, nobody
// protected is evicted, no device is given twice, the books add up, and an
// unchanged order of the same input gives the same plan.
func TestS15Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t)
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			c.happen()
			s, err := c.Snapshot(context.Background(), c.now)
			if err != nil {
				t.Fatal(err)
			}
			plan := samePlan(c.t, &c.dice, s)
			c.protects(plan)
			if _, err := c.Cycle(context.Background()); err != nil {
				t.Fatal(err)
			}
			c.booked(plan)
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// samePlan decides on the kept snapshot, on a flat copy and on a shuffled one;
// all must agree, and leaving the reasons out must not change what is done.
func samePlan(t failer, d *dice, s *scheduler.Snapshot) *scheduler.Plan {
	kept := scheduler.Decide(s)
	flat := s.Flat()
	if p := scheduler.Decide(flat); !sameBytes(&kept, &p) {
		t.Fatal("the kept snapshot and its flat copy give different plans")
	}
	mixed := s.Flat()
	shuffle(d, len(mixed.Live), func(i, k int) { mixed.Live[i], mixed.Live[k] = mixed.Live[k], mixed.Live[i] })
	shuffle(d, len(mixed.Waiting), func(i, k int) { mixed.Waiting[i], mixed.Waiting[k] = mixed.Waiting[k], mixed.Waiting[i] })
	if p := scheduler.Decide(mixed); !sameBytes(&kept, &p) {
		t.Fatal("another order of the same input gives another plan")
	}
	quiet := s.Flat()
	quiet.Quiet = true
	if p := scheduler.Decide(quiet); !sameBytes(deeds(&kept), deeds(&p)) {
		t.Fatalf("without reasons the plan does something else:\n%s\n%s", text(deeds(&kept)), text(deeds(&p)))
	}
	return &kept
}

// failer is what a test and a drawn test have in common.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// deeds is a plan without what only explains it.
func deeds(p *scheduler.Plan) *scheduler.Plan {
	d := *p
	d.Reasons, d.Standings, d.Reserved, d.Steps = nil, nil, nil, 0
	d.Starts = append([]scheduler.Start(nil), p.Starts...)
	for i := range d.Starts {
		d.Starts[i].Path, d.Starts[i].Rank, d.Starts[i].Judged = nil, 0, nil
	}
	d.Reserves = append([]scheduler.Reserve(nil), p.Reserves...)
	for i := range d.Reserves {
		d.Reserves[i].Path, d.Reserves[i].Rank = nil, 0
	}
	return &d
}

func shuffle(d *dice, n int, swap func(i, k int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, int(d.upTo(int64(i))))
	}
}

func sameBytes(a, b *scheduler.Plan) bool { return bytes.Equal(text(a), text(b)) }

func text(p *scheduler.Plan) []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return b
}
