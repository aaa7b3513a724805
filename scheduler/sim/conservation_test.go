package sim

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// The long run: go test ./scheduler/sim -run S15Conservation -s15.seeds 100 -s15.steps 100000
var (
	s15Seeds = flag.Int("s15.seeds", 3, "seeds of the S15 conservation run")
	s15Steps = flag.Int("s15.steps", 10_000, "steps of each seed")
)

// mishaps is an institute that seeded chance plays with.
type mishaps struct {
	*lab
	t       *testing.T
	jobs    []ledger.JobID
	charged ledger.Amount // by all attempts that closed, gross
	closed  []scheduler.Run
}

func newMishaps(t *testing.T, seed uint64) *mishaps {
	p := scheduler.DefaultPolicy()
	p.LookbackMs, p.PastProtectionPPM = 6*hour, []int64{1_000_000, 333_333, 1_700_001}[seed%3]
	m := &mishaps{lab: newLab(t, 4, Config{Policy: p, Start: Epoch, Seed: seed}), t: t}
	poor := m.AddGroup(1, "/lab/poor", true)
	m.SetShare(m.pool, poor, 10_000_000)
	if _, err := m.Award(poor, m.pool, 40*ledger.GPUHour, Epoch.Add(3*day)); err != nil {
		t.Fatal(err)
	}
	m.leaf["poor"] = poor
	m.Ended = m.attemptEnded
	return m
}

// attemptEnded checks one closed attempt: its occupancy has no gaps and no
// overlaps, and what it was charged
// and had set aside is what that time costs.
func (m *mishaps) attemptEnded(r *scheduler.Run) {
	segs := m.World.jobs[r.Job].segs
	for i := range segs {
		if segs[i].To <= segs[i].From || i > 0 && segs[i].From != segs[i-1].To {
			m.t.Fatalf("attempt %d of job %d: segment %d of %+v", r.N, r.Job, i, segs)
		}
	}
	if n := len(segs); n > 0 && (segs[0].From != r.Leased || segs[n-1].To != r.Ended) {
		m.t.Fatalf("attempt %d of job %d occupied %d..%d, recorded %+v", r.N, r.Job, r.Leased, r.Ended, segs)
	}
	price := ledger.Price{Rate: r.Rate, Past: r.Past}
	if r.Charged != price.Cum(r.ChargedMs) || r.Started == 0 && r.Charged != 0 {
		m.t.Fatalf("attempt %d of job %d is charged %s for %d ms", r.N, r.Job, r.Charged.Exact(), r.ChargedMs)
	}
	var held ledger.Amount
	for _, p := range r.Hold {
		held += p.Amount
	}
	if held != price.Cum(r.HoldUntilMs) {
		m.t.Fatalf("attempt %d of job %d set %s aside for %d ms at %+v", r.N, r.Job, held.Exact(), r.HoldUntilMs, price)
	}
	m.charged += r.Charged
	m.closed = append(m.closed, *r)
}

func (m *mishaps) pick(n int) int { return int(m.dice.upTo(int64(n - 1))) }

func (m *mishaps) submitOne() {
	leaves := []string{"a1", "a2", "b", "c", "poor"}
	sh := scheduler.Shape{Nodes: 1, GPUs: 1 << m.pick(4), GPUMilli: 1000, CPUMilli: 4000, RAMMiB: 16_384}
	switch m.pick(8) {
	case 0:
		sh.Nodes, sh.GPUs = 2+int64(m.pick(3)), 8
	case 1:
		sh.GPUs, sh.GPUMilli = 1, 400
	}
	k := scheduler.Contract{
		MinMs: []int64{0, 15 * 60_000, hour, 4 * hour}[m.pick(4)], GraceMs: 60_000, MaxMs: 12 * hour,
		Resumable: m.pick(4) > 0, StopOnMoney: m.pick(2) == 0, OrFree: m.pick(2) == 0, Urgency: int8(m.pick(3)),
	}
	m.jobs = append(m.jobs, m.Submit(scheduler.Job{
		Project: m.leaf[leaves[m.pick(len(leaves))]], Pool: m.pool, Member: ledger.PersonID(1 + m.pick(3)), Shape: sh, Contract: k,
	}, Behaviour{ForMs: []int64{-1, 90_000, hour, 5 * hour}[m.pick(4)], Code: m.pick(2), ExitMs: -1}))
}

// strike lets one thing happen: a submission, a command, a crash, a late or
// doubled report.
func (m *mishaps) strike() {
	var ref *ledger.Refusal
	switch what := m.pick(21); {
	case what < 6 && m.backlog() < 40 || len(m.jobs) == 0:
		m.submitOne()
	case what < 12:
		m.Advance(m.now.Add([]int64{1, 999, 60_000, 20 * 60_000, hour}[m.pick(5)]))
	case what == 12:
		ref = m.Cancel(m.jobs[m.pick(len(m.jobs))])
	case what == 13:
		// Told to go and come back while it may be stopping: settles once.
		id := m.jobs[m.pick(len(m.jobs))]
		if m.World.jobs[id].life.Job == scheduler.JobWaiting {
			if ref = m.Pause(id); ref == nil {
				ref = m.Resume(id)
			}
		}
	case what == 14:
		node := ledger.NodeID(1 + m.pick(4))
		if m.pick(2) == 0 {
			m.FailNode(node)
		} else {
			m.SetHealth(node, []scheduler.Health{scheduler.Draining, scheduler.Faulted, scheduler.Suspect}[m.pick(3)])
		}
	case what < 17:
		m.SetHealth(ledger.NodeID(1+m.pick(4)), scheduler.Healthy)
	case what == 17:
		if err := m.Finish(m.jobs[m.pick(len(m.jobs))], 0); err != nil {
			m.t.Fatal(err)
		}
	case what == 18:
		m.askAnew(m.jobs[m.pick(len(m.jobs))], []int64{5 * 60_000, hour, 4 * hour}[m.pick(3)])
	default:
		m.repeat()
	}
	if ref != nil {
		m.t.Fatal(ref)
	}
}

func (m *mishaps) backlog() int {
	n := 0
	for _, id := range m.leaf {
		n += m.Waiting(id)
	}
	return n
}

// repeat sends reports of a closed attempt once more, as an agent does that
// never saw the answer, and later ones than the server closed it with.
func (m *mishaps) repeat() {
	if len(m.closed) == 0 {
		return
	}
	was := m.closed[m.pick(len(m.closed))]
	j := m.World.jobs[was.Job]
	if j.life.Run.N != was.N || j.life.Job == scheduler.JobActive {
		return // the database knows attempts by number; a closed one is not asked
	}
	for _, ev := range []scheduler.Event{
		{Kind: scheduler.EvFinished, ElapsedMs: was.ProvenMs + 5000},
		{Kind: scheduler.EvAccrued, ElapsedMs: was.ProvenMs + 5000},
		{Kind: scheduler.EvLost, ElapsedMs: was.ProvenMs},
		{Kind: scheduler.EvSignalled, Rule: scheduler.V1},
	} {
		ev.At, ev.Funds = m.now, m.fundsOf(was.Pool, was.Project)
		if st, ref := scheduler.Advance(j.life, ev); ref != nil || st.Changed || len(st.Entries) > 0 {
			m.t.Fatalf("event %d again on closed attempt %d of job %d: %+v %v", ev.Kind, was.N, was.Job, st, ref)
		}
	}
	claim := scheduler.Event{Kind: scheduler.EvClaimed, At: m.now, Funds: m.fundsOf(was.Pool, was.Project)}
	if st, ref := scheduler.Advance(j.life, claim); ref == nil || len(st.Entries) > 0 {
		m.t.Fatalf("closed attempt %d of job %d may be claimed again", was.N, was.Job)
	}
}

// conserves compares two independent accounts of this instant: who holds which
// devices, and the open usage records by class. With idle and down they make up
// the capacity.
func (m *mishaps) conserves() {
	recorded := map[scheduler.Class]int64{}
	for _, j := range m.World.jobs {
		if n := len(j.segs); n > 0 && j.segs[n-1].To == 0 {
			recorded[j.segs[n-1].Class] += j.segs[n-1].MilliGPU
		}
	}
	var capacity, down, held int64
	for i := range m.snap.Nodes {
		n := &m.snap.Nodes[i]
		capacity += 1000 * int64(len(n.Devices))
		on := int64(0)
		for _, tn := range m.tenants[n.ID] {
			if tn.Phase != scheduler.Nominated && tn.Phase != scheduler.Reserved {
				on += int64(len(tn.Placed.Devices)) * tn.Placed.GPUMilli
			}
		}
		if n.Health == scheduler.Lost {
			down += 1000*int64(len(n.Devices)) - on
		}
		held += on
	}
	sum := int64(0)
	for _, milli := range recorded {
		sum += milli
	}
	if idle := capacity - down - held; sum != held || idle < 0 {
		m.t.Fatalf("of %d milli-GPUs %d are down and %d held, but the records say %v", capacity, down, held, recorded)
	}
}

// S15: whatever happens, at each instant funded + unfunded + ending + starting +
// idle + down = capacity; attempts' segments are disjoint and within their time;
// each is charged once, for its funded time.
func TestS15Conservation(t *testing.T) {
	for seed := range *s15Seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			m := newMishaps(t, uint64(1000+seed))
			for range *s15Steps {
				m.strike()
				m.conserves()
				if m.pick(4) > 0 {
					if _, err := m.Cycle(context.Background()); err != nil {
						t.Fatal(err)
					}
					m.conserves()
				}
			}
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			m.spentEqualsCharges()
			if len(m.closed) < *s15Steps/20 || m.evictions < *s15Steps/200 {
				t.Errorf("only %d attempts closed and %d evictions: the run shows little", len(m.closed), m.evictions)
			}
		})
	}
}

// spentEqualsCharges compares the books with the attempts: what was spent gross
// is what all attempts were charged.
func (m *mishaps) spentEqualsCharges() {
	due := m.charged
	for _, j := range m.World.jobs {
		if j.life.Job == scheduler.JobActive {
			due += j.life.Run.Charged
		}
	}
	spent := ledger.Amount(0)
	for _, id := range m.leaf {
		spent += m.Sum(ledger.Spent, m.pool, id)
	}
	if spent != due {
		m.t.Errorf("spent %s, charged to attempts %s", spent.Exact(), due.Exact())
	}
}

// A program with a single child between a group and its parent changes nothing:
// standings are compared only below the lowest common ancestor.
func TestASingleChildProgramChangesNothing(t *testing.T) {
	m := newMishaps(t, 7)
	for step := range 400 {
		m.strike()
		s, err := m.Snapshot(context.Background(), m.now)
		if err != nil {
			t.Fatal(err)
		}
		plain := scheduler.Decide(s.Flat())
		at := scheduler.Group(s.Groups[m.pick(len(s.Groups))])
		deeper := between(s.Flat(), at)
		other := scheduler.Decide(deeper)
		if a, b := fates(&plain), fates(&other); !slices.Equal(a, b) {
			t.Fatalf("step %d, a program put above %s:\n%v\n%v", step, at.Path, a, b)
		}
		if _, err := m.Cycle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if m.evictions == 0 {
		t.Error("nobody was evicted: the test shows little")
	}
}

// between puts a new program right above a group.
func between(s *scheduler.Snapshot, g scheduler.Group) *scheduler.Snapshot {
	id := ledger.GroupID(len(s.Groups) + 1)
	s.Groups = append(slices.Clone(s.Groups), scheduler.Group{ID: id, Parent: g.Parent, Path: g.Path + "-above"})
	s.Groups[g.ID-1].Parent = id
	s.Shares = slices.Clone(s.Shares)
	for i := range s.Shares {
		if s.Shares[i].Group == g.ID {
			s.Shares = append(s.Shares, scheduler.Share{Pool: s.Shares[i].Pool, Group: id, MicroGPU: s.Shares[i].MicroGPU})
			break
		}
	}
	return s
}

// fates is what becomes of every job, without what explains it.
func fates(p *scheduler.Plan) []string {
	var out []string
	for i := range p.Starts {
		s := &p.Starts[i]
		out = append(out, fmt.Sprint("start ", s.AttemptRef, s.Funded, s.Nominate, s.Placed))
		for _, e := range s.Evict {
			out = append(out, fmt.Sprint("evict ", e.AttemptRef, e.Rule))
		}
	}
	for i := range p.Reserves {
		out = append(out, fmt.Sprint("reserve ", p.Reserves[i].AttemptRef, p.Reserves[i].Reservation))
	}
	for i := range p.Reasons {
		out = append(out, fmt.Sprint("wait ", p.Reasons[i].Job, p.Reasons[i].Code))
	}
	return out
}
