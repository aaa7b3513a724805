package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"tranche/ledger"
)

// A random life of a small site: jobs come, are cancelled, claimed, end twice, are
// evicted; nodes fall silent, come back, drain. After every few steps the books
// must verify and no device may have two owners; in the end nothing is held.
func TestS15ChaosKeepsTheBooksAndTheDevices(t *testing.T) {
	t.Parallel()
	seeds, steps := uint64(3), 300
	if more := os.Getenv("TRANCHE_CHAOS"); more != "" { // e.g. "100 100000"
		if _, err := fmt.Sscan(more, &seeds, &steps); err != nil {
			t.Fatal(err)
		}
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			c := &chaos{site: newSite(t, 5), dice: rand.New(rand.NewPCG(seed, 15)), silent: map[ledger.NodeID]bool{}, claimed: map[PartRef]ledger.Instant{}}
			for _, p := range chaosProjects() {
				c.project(t, p, 200)
			}
			for step := range steps {
				c.step(t)
				if step%40 == 39 {
					c.check(t, step)
				}
			}
			c.finish(t)
		})
	}
}

func chaosProjects() []string { return []string{"a", "b", "c"} }

// chaos is the site with what its agents know.
type chaos struct {
	*site
	dice    *rand.Rand
	jobs    []ledger.JobID
	silent  map[ledger.NodeID]bool
	claimed map[PartRef]ledger.Instant
	ended   []End // to be sent again
}

func (c *chaos) step(t *testing.T) {
	t.Helper()
	switch c.dice.IntN(12) {
	case 0, 1:
		c.submitAny(t)
	case 2:
		if len(c.jobs) > 0 {
			c.tolerate(t, c.CancelJob(t.Context(), c.command(), c.jobs[c.dice.IntN(len(c.jobs))]))
		}
	case 3, 4:
		c.claimSome(t)
	case 5, 6:
		c.endSome(t)
	case 7:
		c.pass(time.Duration(c.dice.IntN(20*60_000)) * time.Millisecond)
		c.beat(t)
	case 8:
		n := c.nodes[c.dice.IntN(len(c.nodes))]
		c.silent[n] = c.dice.IntN(4) == 0
	case 9:
		n := c.nodes[c.dice.IntN(len(c.nodes))]
		mode := []string{"", "", "", "", DrainSoft, DrainHard}[c.dice.IntN(6)]
		c.tolerate(t, c.setDrain(t.Context(), c.command(), n, mode, "chaos"))
	case 10:
		if _, err := c.world.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	case 11:
		c.world = c.World(c.world.leader) // another server leads from here
	}
	c.cycle(t)
	c.sameView(t)
}

// tolerate lets refusals pass: chaos asks for what may not be.
func (c *chaos) tolerate(t *testing.T, err error) {
	t.Helper()
	var refusal *ledger.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatal(err)
	}
}

func (c *chaos) submitAny(t *testing.T) {
	t.Helper()
	minMs := []int64{0, 0, 5 * minute, 30 * minute, anHour}[c.dice.IntN(5)]
	nodes, gpus := int64(1), int64(1+c.dice.IntN(8))
	if c.dice.IntN(4) == 0 {
		nodes = int64(1 + c.dice.IntN(3))
	}
	resumable := c.dice.IntN(4) > 0
	c.jobs = append(c.jobs, c.submit(t, chaosProjects()[c.dice.IntN(3)], nodes, gpus, minMs, func(s *Submission) {
		s.Resumable, s.OrFree, s.StopOnMoney = &resumable, c.dice.IntN(3) == 0, c.dice.IntN(3) == 0
		s.Urgency = c.dice.IntN(6)
	}))
}

// parts gives the orders of the nodes that can be heard.
func (c *chaos) heard(t *testing.T) (out []PartRef, orders []Order) {
	t.Helper()
	all := c.orders(t)
	for _, n := range c.nodes {
		for _, o := range all[n] {
			if !c.silent[n] {
				out, orders = append(out, PartRef{n, o.Attempt, o.Fence, o.Rank}), append(orders, o)
			}
		}
	}
	return out, orders
}

func (c *chaos) claimSome(t *testing.T) {
	t.Helper()
	parts, orders := c.heard(t)
	for i, p := range parts {
		if !orders[i].Claimed && !orders[i].Stop && c.dice.IntN(3) > 0 {
			_, err := c.Claim(t.Context(), p, "launcher")
			c.tolerate(t, err)
			if err == nil {
				c.claimed[p] = c.Now()
			}
		}
	}
}

// endSome ends what was told to stop and some of the rest, and repeats old reports.
func (c *chaos) endSome(t *testing.T) {
	t.Helper()
	parts, orders := c.heard(t)
	for i, p := range parts {
		at, claimed := c.claimed[p]
		if !orders[i].Stop && (!claimed || c.dice.IntN(5) > 0) {
			continue
		}
		e := End{PartRef: p, ExitCode: c.dice.IntN(2), Stopped: orders[i].Stop, Lost: !orders[i].Stop && c.dice.IntN(5) == 0}
		if claimed {
			e.ElapsedUS = int64(c.Now() - at)
		}
		if e.Stopped {
			e.TermUS = e.ElapsedUS - min(e.ElapsedUS, c.dice.Int64N(10_000_000))
		}
		c.report(t, e)
	}
	if len(c.ended) > 0 {
		c.report(t, c.ended[c.dice.IntN(len(c.ended))])
	}
}

func (c *chaos) report(t *testing.T, e End) {
	t.Helper()
	if _, err := c.Ended(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	c.ended = append(c.ended, e)
}

// beat lets the nodes that can be heard say how far their parts have come.
func (c *chaos) beat(t *testing.T) {
	t.Helper()
	beats := map[ledger.NodeID]*Beat{}
	for _, n := range c.nodes {
		beats[n] = &Beat{Node: n, BootID: "b"}
	}
	parts, _ := c.heard(t)
	for _, p := range parts {
		if at, ok := c.claimed[p]; ok {
			beats[p.Node].Attempts = append(beats[p.Node].Attempts, Seen{Attempt: p.Attempt, Fence: p.Fence, Rank: p.Rank, ElapsedUS: int64(c.Now() - at)})
		}
	}
	for _, n := range c.nodes {
		if !c.silent[n] {
			if err := c.Heartbeat(t.Context(), *beats[n]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check verifies the books and that every device has one owner: nominated ones
// wait for those who leave, parts of a GPU add up to at most one.
func (c *chaos) check(t *testing.T, step int) {
	t.Helper()
	report, err := c.Verify(t.Context())
	if err != nil || !report.OK() {
		t.Fatalf("step %d: verify %+v, %v", step, report, err)
	}
	var twice string
	if err := c.pool.QueryRow(t.Context(), `select coalesce(string_agg(line, '; '), '') from (
			select format('node %s device %s: %s', p.node_id, dev, string_agg(a.job_id || ' ' || a.phase, ', ')) as line
			from placements p join attempts a on a.id = p.attempt_id cross join unnest(p.devices) dev
			where a.phase not in ('closed') group by p.node_id, dev
			having sum(p.gpu_milli) filter (where a.phase in ('starting', 'running', 'ending')) > 1000
				or sum(p.gpu_milli) filter (where a.phase in ('nominated', 'starting', 'running')) > 1000) x`).Scan(&twice); err != nil || twice != "" {
		t.Fatalf("step %d: two owners: %s %v", step, twice, err)
	}
	var overlap int
	if err := c.pool.QueryRow(t.Context(), `select count(*) from usage_segments s join usage_segments o on o.attempt_id = s.attempt_id and o.id <> s.id
		and o.first < s.last and s.first < o.last`).Scan(&overlap); err != nil || overlap != 0 {
		t.Fatalf("step %d: %d overlapping segments, %v", step, overlap, err)
	}
}

// finish cancels everything and lets it end: nothing may stay held.
func (c *chaos) finish(t *testing.T) {
	t.Helper()
	c.silent = map[ledger.NodeID]bool{}
	for _, job := range c.jobs {
		c.tolerate(t, c.CancelJob(t.Context(), c.command(), job))
	}
	for range 3 {
		c.beat(t)
		c.endSome(t)
		c.cycle(t)
	}
	c.check(t, -1)
	var live int
	var held ledger.Amount
	if err := c.pool.QueryRow(t.Context(), `select (select count(*) from attempts where phase <> 'closed'), coalesce(sum(b.balance), 0)::bigint
		from balances b join accounts a on a.id = b.account_id where a.kind = $1`, ledger.Held).Scan(&live, &held); err != nil || live != 0 || held != 0 {
		t.Errorf("%d live, %s held; want nothing (%v)", live, held.Exact(), err)
	}
	var ran, lost, evicted int
	if err := c.pool.QueryRow(t.Context(), `select count(started_at), count(*) filter (where cause = 'lost'), count(stop_by_job) from attempts`).Scan(&ran, &lost, &evicted); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d jobs, %d attempts ran, %d lost, %d evicted", len(c.jobs), ran, lost, evicted)
}
