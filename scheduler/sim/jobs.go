package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tranche/ledger"
	"tranche/scheduler"
)

// EventKind names what came into the world from outside the dispatcher.
type EventKind string

// Kinds of events.
const (
	Submitted EventKind = "submit"
	Claimed   EventKind = "claim"
	Finished  EventKind = "finish"
	NodeGone  EventKind = "lost"
	Cancelled EventKind = "cancel"
	Paused    EventKind = "pause"
	Resumed   EventKind = "resume"
	Health    EventKind = "health"
	Planned   EventKind = "maintain" // maintenance from From until Until
	Device    EventKind = "device"   // device Rank of Node is dead
	Leads     EventKind = "leader"   // another server decides from here
	Asked     EventKind = "renew"    // for ElapsedMs of new protection
	Idled     EventKind = "idle"     // since From
	Learnt    EventKind = "learn"    // a pool its mix
	Cycled    EventKind = "cycle"
)

// Event is one of them, with what another world needs to go through the same.
// Cycles carry the hash of their plan.
type Event struct {
	At        ledger.Instant
	Kind      EventKind
	Job       ledger.JobID
	N         int32
	Rank      int32
	Spec      *scheduler.Job // of a submission; of an array, the first job
	Array     string         // its indices and limit
	After     []string       // what it is to start after: ok:12, any:A4
	ElapsedMs int64
	TermMs    int64
	Exit      scheduler.Exit
	Node      ledger.NodeID
	Health    scheduler.Health
	From      ledger.Instant
	Until     ledger.Instant
	Hash      [32]byte
}

// Events gives what has happened so far, in order, when Config.Record is set.
func (w *World) Events() []Event { return w.events }

func (w *World) record(e Event) {
	if w.cfg.Record {
		e.At = w.now
		w.events = append(w.events, e)
	}
}

// Behaviour is how a job acts once it runs.
type Behaviour struct {
	ForMs  int64 // runs so long by itself; < 0 = until it is stopped
	Code   int   // and ends with this exit code
	ExitMs int64 // leaves so late after SIGTERM; < 0 = anywhere within its grace
}

// Submit queues a job. ID, QueueSeq, Submitted and Rate are the world's to set.
func (w *World) Submit(spec scheduler.Job, b Behaviour) ledger.JobID {
	spec = w.newJob(spec, b).spec
	w.queue(&spec)
	w.record(Event{Kind: Submitted, Job: spec.ID, Spec: &spec})
	return spec.ID
}

// newJob makes a job that is not queued yet.
func (w *World) newJob(spec scheduler.Job, b Behaviour) *job {
	w.seq++
	spec.ID, spec.QueueSeq, spec.Submitted = ledger.JobID(w.seq), w.seq, w.now
	spec.Rate = w.rate(&spec)
	j := &job{spec: spec, forMs: b.ForMs, code: b.Code, exitMs: b.ExitMs, life: scheduler.Life{Job: scheduler.JobWaiting}}
	w.jobs[spec.ID] = j
	return j
}

func (w *World) queue(j *scheduler.Job) {
	w.snap.PutWaiting(j)
	w.queued[j.Project]++
}

// rate is what a job pays: its shape against the pool's first node.
func (w *World) rate(j *scheduler.Job) ledger.Rate {
	sh := ledger.Shape{Nodes: max(1, j.Shape.Nodes), GPUs: j.Shape.GPUs, GPUMilli: 1000, CPUMilli: j.Shape.CPUMilli, RAMMiB: j.Shape.RAMMiB}
	if j.Shape.GPUMilli > 0 {
		sh.GPUMilli = j.Shape.GPUMilli
	}
	for i := range w.snap.Nodes {
		if n := &w.snap.Nodes[i]; n.Pool == j.Pool {
			sh.NodeGPUs, sh.NodeCPUMilli, sh.NodeRAMMiB = int64(len(n.Devices)), n.CPUMilli, n.RAMMiB
			break
		}
	}
	return ledger.Rate{MilliGPU: max(1, ledger.ChargedMilliGPU(sh)), PPM: w.snap.Pools[j.Pool-1].RatePPM}
}

// Advance moves the clock to an instant and lets everything happen until then.
func (w *World) Advance(to ledger.Instant) {
	for at, ok := w.agenda.next(); ok && at <= to; at, ok = w.agenda.next() {
		h := w.agenda.take()
		w.now = max(w.now, h.at)
		h.do()
	}
	w.now = max(w.now, to)
}

// Cycle runs one dispatcher round now, and lets what is due at once happen.
func (w *World) Cycle(ctx context.Context) (scheduler.Report, error) {
	report, err := scheduler.RunCycle(ctx, w, w.now)
	if err != nil {
		return report, err
	}
	w.plan = report.Plan
	w.starts += report.Applied.Started
	w.evictions += report.Applied.Evicted
	if w.cfg.Record {
		w.record(Event{Kind: Cycled, Hash: report.Plan.Hash()})
	}
	w.Advance(w.now)
	return report, nil
}

// step carries one event of a job through Advance: books, occupancy, snapshot.
func (w *World) step(j *job, ev scheduler.Event) *ledger.Refusal {
	ev.At = w.now
	ev.HoldStepMs = w.cfg.Policy.HoldStepMs
	ev.Lots = w.fundsOf(j.spec.Pool, j.spec.Project).Lots
	st, ref := scheduler.Advance(j.life, ev)
	if ref != nil || !st.Changed {
		return ref
	}
	for i := range st.Entries {
		if err := w.post(st.Entries[i]); err != nil {
			return w.refused[len(w.refused)-1]
		}
	}
	before := j.life
	j.life = st.Next
	w.occupy(j, st.Segments)
	w.show(j, &before, &st)
	w.onward(j, before.Job)
	if st.StopAll {
		w.planExit(j)
	}
	return nil
}

// occupy replaces what the lookback knows of the attempt.
func (w *World) occupy(j *job, segs []scheduler.Segment) {
	for i, s := range j.segs {
		if i >= len(segs) || s != segs[i] {
			w.look.Remove(j.spec.Pool, j.spec.Project, j.spec.Member, s)
		}
	}
	for i, s := range segs {
		if i >= len(j.segs) || s != j.segs[i] {
			w.look.Add(j.spec.Pool, j.spec.Project, j.spec.Member, s)
		}
	}
	j.segs = segs
}

// show keeps snapshot and tenants in step with a job's life.
func (w *World) show(j *job, before *scheduler.Life, st *scheduler.Step) {
	r := &st.Next.Run
	ref := scheduler.AttemptRef{Job: j.spec.ID, N: r.N}
	if before.Job == scheduler.JobWaiting && st.Next.Job != scheduler.JobWaiting && !j.kept {
		w.snap.DropWaiting(j.spec.ID)
		w.queued[j.spec.Project]--
	}
	j.spec.Charged = r.Prior + r.Charged - r.Credited
	if st.Freed {
		w.snap.DropLive(ref)
		j.renewMs, j.warnedMs, j.idle = 0, 0, 0
		w.seat(j, ref, r.Phase, false)
		if w.Ended != nil {
			w.Ended(r)
		}
		j.segs = nil
		j.due++
	} else if st.Next.Job == scheduler.JobActive {
		j.spec.Attempts = r.N
		w.showLive(j)
		w.seat(j, ref, r.Phase, true)
	}
	if st.Next.Job == scheduler.JobWaiting && before.Job != scheduler.JobWaiting && !j.kept {
		spec := j.spec
		w.queue(&spec)
	}
}

// showLive lets the dispatcher see an attempt as it is now.
func (w *World) showLive(j *job) {
	live := j.life.Run.Live(j.spec, j.placed)
	live.RenewMs, live.WarnedMs, live.IdleSince = j.renewMs, j.warnedMs, j.idle
	w.snap.PutLive(&live)
}

// Renew asks for so much new protection in place; the next cycle answers.
func (w *World) Renew(id ledger.JobID, ms int64) {
	w.record(Event{Kind: Asked, Job: id, ElapsedMs: ms})
	w.jobs[id].renewMs = ms
	w.showLive(w.jobs[id])
}

// Idle says since when a job's devices have been unused; 0 = they are in use.
func (w *World) Idle(id ledger.JobID, since ledger.Instant) {
	w.record(Event{Kind: Idled, Job: id, From: since})
	w.jobs[id].idle = since
	w.showLive(w.jobs[id])
}

// seat puts an attempt's parts on their nodes under a phase, or clears them.
func (w *World) seat(j *job, ref scheduler.AttemptRef, phase scheduler.Phase, on bool) {
	for i := range j.placed {
		p := &j.placed[i]
		list := w.tenants[p.Node]
		k := slices.IndexFunc(list, func(t scheduler.Tenant) bool { return t.AttemptRef == ref && t.Placed.Rank == p.Rank })
		switch {
		case !on && k >= 0:
			list = slices.Delete(list, k, k+1)
		case on && k >= 0:
			list[k].Phase = phase
		case on:
			list = append(list, scheduler.Tenant{AttemptRef: ref, Project: j.spec.Project, Phase: phase, Placed: *p})
		}
		w.tenants[p.Node] = list
	}
}

// planClaims lets every member claim at once.
func (w *World) planClaims(j *job) {
	n := j.life.Run.N
	w.agenda.add(w.now, func() {
		if j.life.Run.N == n && j.life.Job == scheduler.JobActive && w.claim(j) && j.forMs >= 0 {
			w.planEnd(j, j.forMs, false)
		}
	})
}

// claim starts every member's record. Refused for want of funds, the launcher
// reports that it never started.
func (w *World) claim(j *job) bool {
	n := j.life.Run.N
	for _, m := range slices.Clone(j.life.Run.Members) {
		w.record(Event{Kind: Claimed, Job: j.spec.ID, N: n, Rank: m.Rank})
		ref := w.step(j, scheduler.Event{Kind: scheduler.EvClaimed, Rank: m.Rank, Funds: w.fundsOf(j.spec.Pool, j.spec.Project)})
		if ref == nil {
			continue
		}
		never := scheduler.Exit{Code: -1}
		w.record(Event{Kind: Finished, Job: j.spec.ID, N: n, Rank: m.Rank, Exit: never})
		w.note(w.step(j, scheduler.Event{Kind: scheduler.EvFinished, Rank: m.Rank, Exit: never}))
		return false
	}
	return true
}

// note keeps a refusal that should not be.
func (w *World) note(ref *ledger.Refusal) {
	if ref != nil {
		w.refused = append(w.refused, ref)
	}
}

// planEnd lets the attempt leave after ms; a later plan replaces this one.
func (w *World) planEnd(j *job, afterMs int64, stopped bool) {
	j.due++
	due := j.due
	w.agenda.add(w.now.Add(afterMs), func() {
		if j.due == due {
			w.end(j, scheduler.Exit{Code: exitCode(j, stopped), Stopped: stopped})
		}
	})
}

func exitCode(j *job, stopped bool) int {
	if stopped {
		return -1
	}
	return j.code
}

// planExit: told to stop. It leaves anywhere within its grace, or when its own
// end comes first.
func (w *World) planExit(j *job) {
	live := j.life.Run.Live(j.spec, j.placed)
	grace := scheduler.GraceMs(&w.cfg.Policy, &live)
	after := j.exitMs
	if after < 0 || after > grace {
		after = w.dice.upTo(grace)
	}
	if left := j.life.Run.Started.Add(j.forMs).MillisSince(w.now); j.forMs >= 0 && left <= after {
		return
	}
	w.planEnd(j, after, true)
}

// end reports every member's end now.
func (w *World) end(j *job, exit scheduler.Exit) {
	r := &j.life.Run
	n, signalled := r.N, r.Signalled
	for i := range r.Members {
		m := j.life.Run.Members[i]
		if m.Ended {
			continue
		}
		ev := scheduler.Event{
			Kind: scheduler.EvFinished, Rank: m.Rank, Exit: exit, ElapsedMs: w.now.MillisSince(m.Claimed),
			Funds: w.fundsOf(j.spec.Pool, j.spec.Project),
		}
		if exit.Stopped {
			ev.TermMs = signalled.MillisSince(m.Claimed)
		}
		w.record(Event{Kind: Finished, Job: j.spec.ID, N: n, Rank: m.Rank, ElapsedMs: ev.ElapsedMs, TermMs: ev.TermMs, Exit: exit})
		w.note(w.step(j, ev))
	}
}

// Finish ends a job's running attempt now with an exit code. A job that is not
// running stays as it is.
func (w *World) Finish(id ledger.JobID, code int) error {
	j := w.jobs[id]
	if j == nil {
		return fmt.Errorf("no job %d", id)
	}
	if j.life.Job == scheduler.JobActive && j.life.Run.Started != 0 {
		w.end(j, scheduler.Exit{Code: code})
	}
	return nil
}

// Cancel, Pause and Resume are the owner's commands.
func (w *World) Cancel(id ledger.JobID) *ledger.Refusal {
	w.record(Event{Kind: Cancelled, Job: id})
	return w.step(w.jobs[id], scheduler.Event{Kind: scheduler.EvCancelled})
}

// Pause lets a waiting job step aside.
func (w *World) Pause(id ledger.JobID) *ledger.Refusal {
	w.record(Event{Kind: Paused, Job: id})
	return w.step(w.jobs[id], scheduler.Event{Kind: scheduler.EvPaused})
}

// Resume queues a paused job again.
func (w *World) Resume(id ledger.JobID) *ledger.Refusal {
	w.record(Event{Kind: Resumed, Job: id})
	return w.step(w.jobs[id], scheduler.Event{Kind: scheduler.EvResumed})
}

// Life gives a job's state, for reports and tests.
func (w *World) Life(id ledger.JobID) scheduler.Life { return w.jobs[id].life }

// SetHealth marks a node.
func (w *World) SetHealth(node ledger.NodeID, h scheduler.Health) {
	w.record(Event{Kind: Health, Node: node, Health: h})
	w.snap.Nodes[node-1].Health = h
	w.snap.Rearrange()
}

// SetTopology gives a node its place, like "rack1/switch2".
func (w *World) SetTopology(node ledger.NodeID, path string) {
	w.snap.Nodes[node-1].Topology = path
	w.snap.Rearrange()
}

// Maintain plans a node's maintenance; from 0 takes it back, until 0 leaves its
// end open.
func (w *World) Maintain(node ledger.NodeID, from, until ledger.Instant) {
	w.record(Event{Kind: Planned, Node: node, From: from, Until: until})
	n := &w.snap.Nodes[node-1]
	n.MaintFrom, n.MaintUntil = from, until
	w.snap.Rearrange()
}

// Book gives a project the right of way on so many whole devices of a pool for
// [from, to). It is not paid for here: it shows who has to make way and when.
func (w *World) Book(project ledger.GroupID, pool ledger.PoolID, gpus int64, from, to ledger.Instant) ledger.SliceID {
	w.slices++
	w.snap.Slices = append(w.snap.Slices, scheduler.Slice{ID: w.slices, Project: project, Pool: pool, GPUs: gpus, From: from, To: to})
	slices.SortFunc(w.snap.Slices, func(a, b scheduler.Slice) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.From, b.From), cmp.Compare(a.ID, b.ID))
	})
	return w.slices
}

// name keeps a slice's devices as planned.
func (w *World) name(p *scheduler.SlicePlan) error {
	i := slices.IndexFunc(w.snap.Slices, func(s scheduler.Slice) bool { return s.ID == p.Slice })
	if i < 0 {
		return fmt.Errorf("no slice %d", p.Slice)
	}
	w.snap.Slices = slices.Clone(w.snap.Slices) // recorded snapshots keep theirs
	w.snap.Slices[i].Devices = p.Devices
	return nil
}

// KillDevice marks one device of a node as dead.
func (w *World) KillDevice(node ledger.NodeID, index int32) {
	w.record(Event{Kind: Device, Node: node, Rank: index})
	w.snap.Nodes[node-1].Devices[index].Dead = true
	w.snap.Rearrange()
}

// Takeover lets another server decide from here: all it knows is what was stored.
func (w *World) Takeover() error {
	w.record(Event{Kind: Leads})
	text, err := json.Marshal(w.snap.Flat())
	if err != nil {
		return err
	}
	fresh := scheduler.Snapshot{}
	if err := json.Unmarshal(text, &fresh); err != nil {
		return err
	}
	w.snap = fresh
	return nil
}

// FailNode loses a node now: its attempts end at this instant, which was their
// last heartbeat.
func (w *World) FailNode(node ledger.NodeID) {
	w.SetHealth(node, scheduler.Lost)
	for _, t := range slices.Clone(w.tenants[node]) {
		j := w.jobs[t.Job]
		ev := scheduler.Event{Kind: scheduler.EvLost, Rank: t.Placed.Rank, Funds: w.fundsOf(j.spec.Pool, j.spec.Project)}
		for i := range j.life.Run.Members {
			if m := &j.life.Run.Members[i]; m.Rank == ev.Rank && m.Claimed != 0 {
				ev.ElapsedMs = w.now.MillisSince(m.Claimed)
			}
		}
		w.record(Event{Kind: NodeGone, Job: t.Job, N: t.N, Rank: ev.Rank, ElapsedMs: ev.ElapsedMs, Node: node})
		w.note(w.step(j, ev))
	}
}
