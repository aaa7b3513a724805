// Package sim runs the dispatcher's own decision functions on a virtual clock,
// with real books in memory. It holds no decision of its own: what to start and
// stop comes from scheduler.RunCycle, what an event leads to from
// scheduler.Advance, and money moves by ledger entries alone.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tranche/ledger"
	"tranche/scheduler"
)

// Config starts a World.
type Config struct {
	Policy scheduler.Policy
	Start  ledger.Instant // > 0; virtual time 0 of a scenario
	Seed   uint64
	Quiet  bool // plans without Reasons and Standings
	Record bool // keep Events for a second world to follow
}

// World is a whole institute in memory: tree, nodes, jobs, books and a clock.
type World struct {
	cfg     Config
	now     ledger.Instant
	snap    scheduler.Snapshot
	look    *scheduler.Lookback
	book    *ledger.Book
	agenda  agenda
	dice    dice
	jobs    map[ledger.JobID]*job
	tenants map[ledger.NodeID][]scheduler.Tenant
	attempt ledger.AttemptID
	seq     int64
	slices  ledger.SliceID // booked so far
	lots    []ledger.Lot
	shared  map[shareKey]int64
	members map[memberKey]scheduler.MemberUsage
	arrays  []*party // by number, from 1
	events  []Event
	// Ended, when set, is told of every attempt that has closed.
	Ended             func(*scheduler.Run)
	queued            map[ledger.GroupID]int
	plan              *scheduler.Plan // the latest
	starts, evictions int
	refused           []*ledger.Refusal // events and entries that should not have been
}

// memberKey is one member of a project in a pool.
type memberKey struct {
	pool    ledger.PoolID
	project ledger.GroupID
	member  ledger.PersonID
}

// SetMember gives a member a share and a cap on GPUs at once (0 = none).
func (w *World) SetMember(pool ledger.PoolID, project ledger.GroupID, member ledger.PersonID, share, capGPUs int64) {
	if w.members == nil {
		w.members = map[memberKey]scheduler.MemberUsage{}
	}
	w.members[memberKey{pool, project, member}] = scheduler.MemberUsage{Pool: pool, Project: project, Member: member, Share: share, CapGPUs: capGPUs}
}

// withMembers adds shares and caps, also of members without usage.
func (w *World) withMembers(list []scheduler.MemberUsage) []scheduler.MemberUsage {
	if len(w.members) == 0 {
		return list
	}
	known := map[memberKey]bool{}
	for i := range list {
		key := memberKey{list[i].Pool, list[i].Project, list[i].Member}
		known[key] = true
		list[i].Share, list[i].CapGPUs = w.members[key].Share, w.members[key].CapGPUs
	}
	for key, m := range w.members {
		if !known[key] {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b scheduler.MemberUsage) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Member, b.Member))
	})
	return list
}

type shareKey struct {
	pool  ledger.PoolID
	group ledger.GroupID
}

// job is one job of the world and how it behaves.
type job struct {
	spec   scheduler.Job
	life   scheduler.Life
	placed []scheduler.Placed
	segs   []scheduler.Segment
	forMs  int64 // runs so long by itself; < 0 = until it is stopped
	code   int   // exit code then
	exitMs int64 // after SIGTERM it leaves so late; < 0 = anywhere within its grace
	due    int64 // number of the planned exit that counts
	// What its owner and the telemetry say about the live attempt.
	renewMs, warnedMs int64
	idle              ledger.Instant
	party             *party // its submission; nil without an order
	kept              bool   // out of the queue, by its submission's order
	followers         []*party
}

// New makes an empty world. Its one period lasts from Start for 92 days.
func New(cfg Config) *World {
	w := &World{
		cfg: cfg, now: cfg.Start, dice: dice(cfg.Seed), book: ledger.NewBook(nil),
		jobs: map[ledger.JobID]*job{}, tenants: map[ledger.NodeID][]scheduler.Tenant{}, shared: map[shareKey]int64{},
		queued: map[ledger.GroupID]int{},
	}
	w.look = scheduler.NewLookback(cfg.Policy.LookbackMs, cfg.Start)
	w.snap = scheduler.Snapshot{Policy: cfg.Policy, Quiet: cfg.Quiet, Now: cfg.Start}
	return w
}

const (
	period        = ledger.PeriodID(1)
	periodSeconds = 92 * 24 * 3600
)

// Now is the virtual instant.
func (w *World) Now() ledger.Instant { return w.now }

// AddPool makes a pool and opens its supply.
func (w *World) AddPool(name string, ratePPM int64, supply ledger.Amount) (ledger.PoolID, error) {
	id := ledger.PoolID(len(w.snap.Pools) + 1)
	w.snap.Pools = append(w.snap.Pools, scheduler.Pool{ID: id, Name: name, RatePPM: ratePPM})
	w.snap.Rearrange()
	return id, w.post(ledger.Entry{
		Key: fmt.Sprintf("open:period:%d:pool:%d", period, id), Kind: "open", At: w.now, Period: period,
		Transfers: []ledger.Transfer{{
			Debit: ledger.SupplyAccount(id, period), Credit: ledger.PotAccount(1, id, period), Amount: supply,
		}},
	})
}

// AddGroup adds a program or project below parent (0 = a root).
func (w *World) AddGroup(parent ledger.GroupID, path string, project bool) ledger.GroupID {
	id := ledger.GroupID(len(w.snap.Groups) + 1)
	w.snap.Groups = append(w.snap.Groups, scheduler.Group{ID: id, Parent: parent, Path: path, Project: project})
	w.snap.Rearrange()
	return id
}

// SetShare fixes a group's share in a pool, micro-GPU, instead of deriving it.
func (w *World) SetShare(pool ledger.PoolID, group ledger.GroupID, microGPU int64) {
	w.shared[shareKey{pool, group}] = microGPU
	w.reshare()
}

// Suspend lets a project start nothing new, or lifts that.
func (w *World) Suspend(group ledger.GroupID, on bool) {
	w.snap.Groups[group-1].Suspended = on
	w.snap.Rearrange()
}

// reshare derives every share that is not fixed: projects from their lots,
// programs from what lies below them.
func (w *World) reshare() {
	sums := map[shareKey]int64{}
	for i := range w.lots {
		l := &w.lots[i]
		key := shareKey{l.Pool, l.Project}
		sums[key] += ledger.Weight(w.awarded(l), periodSeconds)
	}
	for i := len(w.snap.Groups) - 1; i >= 0; i-- {
		g := &w.snap.Groups[i]
		for p := range w.snap.Pools {
			key := shareKey{w.snap.Pools[p].ID, g.ID}
			if fixed, ok := w.shared[key]; ok {
				sums[key] = fixed
			}
			if g.Parent != 0 {
				sums[shareKey{key.pool, g.Parent}] += sums[key]
			}
		}
	}
	w.snap.Shares = w.snap.Shares[:0]
	for key, micro := range sums {
		w.snap.Shares = append(w.snap.Shares, scheduler.Share{Pool: key.pool, Group: key.group, MicroGPU: micro})
	}
	slices.SortFunc(w.snap.Shares, func(a, b scheduler.Share) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Group, b.Group))
	})
	w.snap.Rearrange()
}

// awarded is what a lot was worth when it was made.
func (w *World) awarded(l *ledger.Lot) ledger.Amount {
	sum := ledger.Amount(0)
	for _, kind := range []ledger.AccountKind{ledger.Available, ledger.Held, ledger.Spent, ledger.Expired, ledger.Credit} {
		sum += w.book.Balance(l.Account(kind)).Amount
	}
	return sum
}

// AddNode adds a machine to a pool.
func (w *World) AddNode(pool ledger.PoolID, name string, gpus int, cpuMilli, ramMiB int64) ledger.NodeID {
	id := ledger.NodeID(len(w.snap.Nodes) + 1)
	n := scheduler.Node{ID: id, Name: name, Pool: pool, CPUMilli: cpuMilli, RAMMiB: ramMiB}
	for i := range gpus {
		n.Devices = append(n.Devices, scheduler.Device{Index: int32(i)})
	}
	w.snap.Nodes = append(w.snap.Nodes, n)
	w.snap.Rearrange()
	return id
}

// Equip sets what a node offers beside GPUs, cores and memory: the memory of its
// devices, network, storage with what is left of it, processors that move data.
func (w *World) Equip(id ledger.NodeID, has scheduler.Node) {
	n := &w.snap.Nodes[id-1]
	n.HBMMiB, n.NetMbps, n.StoMbps, n.IOCMilli, n.StoPPM = has.HBMMiB, has.NetMbps, has.StoMbps, has.IOCMilli, has.StoPPM
	w.snap.Rearrange()
}

// Learn makes a pool's mix of all jobs submitted to it so far.
func (w *World) Learn(pool ledger.PoolID) {
	var shapes []scheduler.MixKind
	first := w.now
	for _, j := range w.jobs {
		if j.spec.Pool == pool {
			shapes = append(shapes, scheduler.MixKind{Shape: j.spec.Shape, Ranks: 1})
			first = min(first, j.spec.Submitted)
		}
	}
	w.record(Event{Kind: Learnt})
	at, known := slices.BinarySearchFunc(w.snap.Mixes, pool, func(m scheduler.Mix, id ledger.PoolID) int { return cmp.Compare(m.Pool, id) })
	m := scheduler.Learn(pool, 1, max(scheduler.LeastSpanMs, w.now.MillisSince(first)), shapes)
	w.snap.Mixes = slices.Clone(w.snap.Mixes) // earlier flat copies keep theirs
	switch {
	case len(shapes) == 0, known && slices.Equal(w.snap.Mixes[at].Kinds, m.Kinds):
	case known:
		m.Version = w.snap.Mixes[at].Version + 1
		w.snap.Mixes[at] = m
	default:
		w.snap.Mixes = slices.Insert(w.snap.Mixes, at, m)
	}
}

// Award makes a lot valid from now until an instant, paid by the root's pot.
func (w *World) Award(project ledger.GroupID, pool ledger.PoolID, amount ledger.Amount, until ledger.Instant) (ledger.LotID, error) {
	lot := ledger.Lot{ID: ledger.LotID(len(w.lots) + 1), Project: project, Pool: pool, Period: period, First: w.now, Last: until}
	w.lots = append(w.lots, lot)
	i, ok := slices.BinarySearchFunc(w.snap.Funds, lot, func(f ledger.Funds, l ledger.Lot) int {
		return cmp.Or(cmp.Compare(f.Pool, l.Pool), cmp.Compare(f.Project, l.Project))
	})
	if !ok {
		w.snap.Funds = slices.Insert(w.snap.Funds, i, ledger.Funds{Project: project, Path: w.snap.Groups[project-1].Path, Pool: pool})
	}
	w.snap.Funds[i].Lots = append(slices.Clone(w.snap.Funds[i].Lots), lot)
	err := w.post(ledger.Entry{
		Key: fmt.Sprintf("award:request:%d", lot.ID), Kind: "award", At: w.now, Period: period,
		Transfers: []ledger.Transfer{{Debit: ledger.PotAccount(1, pool, period), Credit: lot.Account(ledger.Available), Amount: amount}},
	})
	if err != nil {
		return 0, err
	}
	w.reshare()
	return lot.ID, nil
}

// post applies an entry to the books and keeps the funds in step.
func (w *World) post(e ledger.Entry) error {
	if _, ref := w.book.Apply(e); ref != nil {
		w.refused = append(w.refused, ref)
		return ref
	}
	for i := range e.Transfers {
		for _, a := range [2]ledger.Account{e.Transfers[i].Debit, e.Transfers[i].Credit} {
			if a.Kind == ledger.Available {
				w.refund(a)
			}
		}
	}
	return nil
}

func (w *World) refund(a ledger.Account) {
	f := w.fundsOf(a.Pool, a.Group)
	f.Lots = slices.Clone(f.Lots)
	for i := range f.Lots {
		if f.Lots[i].ID == a.Lot {
			f.Lots[i].Available = w.book.Balance(a).Amount
		}
	}
}

// fundsOf finds a project's funds; an empty one when it has none.
func (w *World) fundsOf(pool ledger.PoolID, project ledger.GroupID) *ledger.Funds {
	i, ok := slices.BinarySearchFunc(w.snap.Funds, pool, func(f ledger.Funds, pool ledger.PoolID) int {
		return cmp.Or(cmp.Compare(f.Pool, pool), cmp.Compare(f.Project, project))
	})
	if !ok {
		return &ledger.Funds{Project: project, Pool: pool}
	}
	return &w.snap.Funds[i]
}

// Snapshot gives the dispatcher's input at now. It is kept between cycles.
func (w *World) Snapshot(_ context.Context, now ledger.Instant) (*scheduler.Snapshot, error) {
	if now < w.now {
		return nil, fmt.Errorf("the virtual clock never goes back: %d after %d", now, w.now)
	}
	w.look.Advance(now)
	w.snap.Cycle++
	w.snap.Now = now
	w.snap.Usage = w.look.Usage(w.snap.Usage)
	w.snap.Members = w.withMembers(w.look.Members(w.snap.Members))
	return &w.snap, nil
}

// Balances gives every account of the books, sorted.
func (w *World) Balances() []ledger.Balance { return w.book.Balances() }

// Freeze lets nothing be placed in a pool, as a storm does, or lifts that.
func (w *World) Freeze(pool ledger.PoolID, on bool) {
	w.snap.Pools[pool-1].Frozen = on
	w.snap.Rearrange()
}

func (w *World) firstNode(pool ledger.PoolID) *scheduler.Node {
	for i := range w.snap.Nodes {
		if w.snap.Nodes[i].Pool == pool {
			return &w.snap.Nodes[i]
		}
	}
	return nil
}

// Names words groups and instants for sentences.
func (w *World) Names() scheduler.Names {
	return scheduler.Names{
		Group: func(g ledger.GroupID) string {
			if i := int(g) - 1; i >= 0 && i < len(w.snap.Groups) {
				return w.snap.Groups[i].Path
			}
			return "another project"
		},
		Instant: func(i ledger.Instant) string { return i.Time().Format("2006-01-02 15:04") + " UTC" },
	}
}

// Usage is a project's GPU-time inside the lookback now, milli-GPU-ms.
func (w *World) Usage(pool ledger.PoolID, project ledger.GroupID) (funded, unfunded scheduler.GPUTime) {
	w.look.Advance(w.now)
	for _, u := range w.look.Usage(nil) {
		if u.Pool == pool && u.Project == project {
			return u.Funded, u.Unfunded
		}
	}
	return 0, 0
}

// Sum adds up a project's accounts of a kind in a pool, overrun included.
func (w *World) Sum(kind ledger.AccountKind, pool ledger.PoolID, project ledger.GroupID) ledger.Amount {
	sum := w.book.Balance(ledger.OverrunAccount(kind, project, pool)).Amount
	for i := range w.lots {
		if l := &w.lots[i]; l.Pool == pool && l.Project == project {
			sum += w.book.Balance(l.Account(kind)).Amount
		}
	}
	return sum
}

// Check says what must never be: books that do not add up, a device given
// twice, an event or entry refused.
func (w *World) Check() error {
	if len(w.refused) > 0 {
		return fmt.Errorf("refused: %w", w.refused[0])
	}
	sum := ledger.Amount(0)
	for _, b := range w.book.Balances() {
		sum += b.Amount
	}
	if sum != 0 {
		return fmt.Errorf("the books' sum is %d, not 0", sum)
	}
	for node, list := range w.tenants {
		if err := w.overPlaced(node, list); err != nil {
			return err
		}
	}
	return nil
}

// overPlaced adds up a node's tenants without the nominated, who do not run.
func (w *World) overPlaced(node ledger.NodeID, list []scheduler.Tenant) error {
	n := &w.snap.Nodes[node-1]
	used, owner, memory := map[int32]int64{}, map[int32]ledger.GroupID{}, map[int32]int64{}
	var sum scheduler.Placed
	for i := range list {
		t := &list[i]
		if t.Phase == scheduler.Nominated {
			continue
		}
		p := &t.Placed
		sum.CPUMilli, sum.RAMMiB, sum.NetMbps = sum.CPUMilli+p.CPUMilli, sum.RAMMiB+p.RAMMiB, sum.NetMbps+p.NetMbps
		sum.StoMbps, sum.IOCMilli, sum.StoVar, sum.IOCVar = sum.StoMbps+p.StoMbps, sum.IOCMilli+p.IOCMilli, sum.StoVar+p.StoVar, sum.IOCVar+p.IOCVar
		for _, d := range p.Devices {
			used[d] += p.GPUMilli
			memory[d] += p.HBMMiB
			if o := owner[d]; used[d] > 1000 || o != 0 && o != t.Project || memory[d] > n.HBMMiB {
				return fmt.Errorf("device %d of node %s is given twice", d, n.Name)
			}
			owner[d] = t.Project
		}
	}
	sto := n.StoMbps
	if n.StoPPM > 0 {
		sto = sto * n.StoPPM / 1_000_000
	}
	over := func(mean, variance, of int64) bool { // mean + √variance > of
		return mean > 0 && (mean > of || (of-mean)*(of-mean) < variance)
	}
	if sum.CPUMilli > n.CPUMilli || sum.RAMMiB > n.RAMMiB || sum.NetMbps > n.NetMbps || over(sum.StoMbps, sum.StoVar, sto) || over(sum.IOCMilli, sum.IOCVar, n.IOCMilli) {
		return fmt.Errorf("node %s is over-placed: %+v of %+v", n.Name, sum, n)
	}
	return nil
}

// Waiting counts a project's waiting jobs.
func (w *World) Waiting(project ledger.GroupID) int { return w.queued[project] }
