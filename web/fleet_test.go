package web

import (
	"fmt"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
)

// fleet is a site whose projects own GPU-hours, with nodes of 8 GPUs and a
// leader whose cycles the test turns.
type fleet struct {
	*site
	leader *store.Leader
	world  *store.World
	nodes  []ledger.NodeID
}

const (
	segPath  = "/lab/vision/segmentation"
	armsPath = "/lab/robots/arms"
)

// newFleet enrols nodes and awards 100 GPU-h to Segmentation and 50 to Arms.
func newFleet(t testing.TB, nodes int) *fleet {
	t.Helper()
	f := &fleet{site: newSite(t)}
	f.split("admin here", f.lab, f.vision, 200*hour)
	f.split("admin here", f.lab, f.robots, 200*hour)
	f.award("pi here", "manager here", f.seg, 100*hour)
	f.award("pi elsewhere", "manager elsewhere", f.arms, 50*hour)
	_, err := f.store.CreateEnrolToken(t.Context(), f.cmd("operator here"), store.EnrolTokenInput{Pool: "h100", Hours: 1, Uses: max(1, nodes), Secret: "enrol"})
	f.must(err)
	for i := 1; i <= nodes; i++ {
		in := store.EnrolInput{Token: "enrol", Secret: fmt.Sprint("node", i), Name: fmt.Sprint("n", i), BootID: "b", CPUMilli: 64_000, RAMMiB: 512 * 1024, Version: "1"}
		for d := range int32(8) {
			in.Devices = append(in.Devices, store.DeviceInput{Index: d, UUID: fmt.Sprint("GPU-", i, d), Model: "H100", HBMMiB: 80 * 1024})
		}
		node, err := f.store.Enrol(t.Context(), in)
		f.must(err)
		f.nodes = append(f.nodes, node)
	}
	f.leader, err = f.store.Campaign(t.Context(), "test")
	f.must(err)
	f.world = f.store.World(f.leader)
	return f
}

// award lets a PI ask and a manager grant all of it.
func (f *fleet) award(pi, manager string, project ledger.GroupID, amount ledger.Amount) {
	f.t.Helper()
	id, err := f.store.SaveRequest(f.t.Context(), f.cmd(pi), store.RequestInput{
		Project: project, Period: f.q4, Purpose: "train", Outcome: "a model",
		Lines: []ledger.RequestLine{{Pool: f.h100, Asked: amount}}, Submit: true,
	})
	f.must(err)
	_, err = f.store.ReviewRequest(f.t.Context(), f.cmd(manager), store.ReviewCommand{
		Request:  id,
		Decision: ledger.Decision{Action: ledger.Award, Version: 1, Amounts: []ledger.PoolAmount{{Pool: f.h100, Amount: amount}}},
	})
	f.must(err)
}

// job submits for a project: gpus on one node, protected for an hour.
func (f *fleet) job(who, project, name string, gpus int64, more ...func(*store.Submission)) ledger.JobID {
	f.t.Helper()
	sub := store.Submission{Name: name, Project: project, Pool: "h100", GPUs: gpus, Command: "train --epochs 3"}
	for _, change := range more {
		change(&sub)
	}
	id, err := f.store.SubmitJob(f.t.Context(), f.cmd(who), sub)
	f.must(err)
	return id
}

// cycle turns the dispatcher once and lets launchers claim what it started.
func (f *fleet) cycle() {
	f.t.Helper()
	_, err := scheduler.RunCycle(f.t.Context(), f.world, f.store.Now())
	f.must(err)
	for _, p := range f.parts(0) {
		_, err := f.store.Claim(f.t.Context(), p, fmt.Sprint("launcher", p.Attempt))
		f.must(err)
	}
}

// parts are the orders to start or run of a job; 0: of every job, not claimed yet.
func (f *fleet) parts(job ledger.JobID) (out []store.PartRef) {
	f.t.Helper()
	for _, node := range f.nodes {
		d, err := f.store.DesiredState(f.t.Context(), node)
		f.must(err)
		for _, o := range d.Orders {
			if o.Job == job || (job == 0 && !o.Claimed && !o.Stop) {
				out = append(out, store.PartRef{Node: node, Attempt: o.Attempt, Fence: o.Fence, Rank: o.Rank})
			}
		}
	}
	return out
}

// end lets a job's launchers report that it ended by itself after so long.
func (f *fleet) end(job ledger.JobID, after time.Duration, code int) {
	f.t.Helper()
	for _, p := range f.parts(job) {
		_, err := f.store.Ended(f.t.Context(), store.End{PartRef: p, ExitCode: code, ElapsedUS: after.Microseconds()})
		f.must(err)
	}
}

// run takes a job from its submission to its end: it runs for half an hour.
func (f *fleet) run(who, project, name string, gpus int64) ledger.JobID {
	f.t.Helper()
	id := f.job(who, project, name, gpus)
	f.cycle()
	f.db.Clock.Advance(30 * time.Minute)
	f.end(id, 30*time.Minute, 0)
	return id
}

// seal seals every entry. Transactions of other tests' databases, which share the
// cluster's numbers, may delay that.
func (f *fleet) seal() {
	f.t.Helper()
	for open := 1; open > 0; {
		_, err := f.leader.Seal(f.t.Context())
		f.must(err)
		f.must(f.store.Pool().QueryRow(f.t.Context(), `select count(*) from entries where xid >= (select coalesce(max(to_xid), '0') from seals)`).Scan(&open))
	}
}
