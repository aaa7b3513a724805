package store

import (
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// check lets a node say what its health check found, and the leader look.
func (k *site) check(t *testing.T, node ledger.NodeID, run int64, say scheduler.Check, why string) NodeLine {
	t.Helper()
	k.beatAllBut(t, node)
	for range 2 { // the same run comes with every heartbeat
		if err := k.Heartbeat(t.Context(), Beat{Node: node, BootID: "b", Check: &NodeCheck{N: run, Say: say, Why: why}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.world.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := k.Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return d.NodeLine
}

// S13: a node whose checks go on being bad takes nothing new, is drained after the
// dwell, empties as protections end, and comes back when they are good again.
func TestS13ChecksDrainANode(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	k.cycle(t)
	node, run := k.nodes[0], int64(0)
	say := func(times int, c scheduler.Check, why string) (n NodeLine) {
		for range times {
			k.pass(30 * time.Second)
			run++
			n = k.check(t, node, run, c, why)
		}
		return n
	}
	job := k.submit(t, "a", 2, 8, anHour) // on both nodes
	k.cycle(t)
	k.claimAll(t)
	if n := say(2, scheduler.CheckDegraded, "Xid 63"); n.Degraded != 0 {
		t.Errorf("degraded after two bad checks: %+v", n)
	}
	if n := say(1, scheduler.CheckDegraded, "Xid 63"); n.Degraded == 0 || n.Drain != "" || n.CheckBadWhy != "Xid 63" {
		t.Errorf("after three: %+v", n)
	}
	n := say(10, scheduler.CheckDegraded, "Xid 63")
	if n.Drain != DrainSoft || n.DrainWhy != "Xid 63" || n.DrainBy != "" {
		t.Errorf("after the dwell: %+v", n)
	}
	k.cycle(t)
	k.want(t, job, "running") // protected
	k.pass(time.Hour)
	k.cycle(t)
	k.want(t, job, "ending")
	if run := k.lastRun(t, job); run.Rule != string(scheduler.V5) {
		t.Errorf("stopped under %s", run.Rule)
	}
	if n := say(4, scheduler.CheckOK, ""); n.Drain == "" {
		t.Error("four good checks gave it back")
	}
	if n := say(7, scheduler.CheckOK, ""); n.Drain != "" || n.Degraded != 0 {
		t.Errorf("good again: %+v", n)
	}
	audits := ""
	if err := k.pool.QueryRow(t.Context(), `select string_agg((after->>'degraded') || ':' || (after->>'drain'), ' ' order by id) from audit
		where verb = 'node.check' and person_id = 0`).Scan(&audits); err != nil || audits != "true: true:soft false:" {
		t.Errorf("audit %q, %v", audits, err)
	}
}

// What an operator drains stays drained whatever the checks say; what the checks
// drained and an operator took back gets its dwell anew.
func TestChecksLeaveOperatorsDrainsAlone(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	node, run := k.nodes[0], int64(0)
	say := func(times int, c scheduler.Check) (n NodeLine) {
		for range times {
			k.pass(time.Minute)
			run++
			n = k.check(t, node, run, c, strings.Repeat("é", 400))
		}
		return n
	}
	if err := k.DrainNode(t.Context(), k.command(), node, DrainSoft, "mine"); err != nil {
		t.Fatal(err)
	}
	if n := say(20, scheduler.CheckFault); n.Drain != DrainSoft || n.DrainWhy != "mine" || n.Degraded == 0 {
		t.Errorf("a fault changed an operator's drain: %+v", n)
	}
	if n := say(20, scheduler.CheckOK); n.Drain != DrainSoft || n.Degraded != 0 {
		t.Errorf("good checks ended an operator's drain: %+v", n)
	}
	if err := k.UndrainNode(t.Context(), k.command(), node); err != nil {
		t.Fatal(err)
	}
	if n := say(10, scheduler.CheckFault); n.Drain != DrainHard || len(n.DrainWhy) != 500 {
		t.Errorf("a fault: %+v", n)
	}
	if err := k.UndrainNode(t.Context(), k.command(), node); err != nil {
		t.Fatal(err)
	}
	if n := say(4, scheduler.CheckFault); n.Drain != "" || n.Degraded == 0 {
		t.Errorf("taken back: %+v", n)
	}
	if n := say(2, scheduler.CheckFault); n.Drain != DrainHard {
		t.Errorf("after the dwell anew: %+v", n)
	}
}

// An agent that starts anew keeps what its node's checks have led to, until it says
// that there is no check any more.
func TestChecksOutliveTheAgent(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	node := k.nodes[0]
	for run := range int64(4) {
		k.pass(time.Minute)
		k.check(t, node, run+1, scheduler.CheckDegraded, "slow disk")
	}
	k.pass(time.Minute)
	if n := k.check(t, node, 0, scheduler.CheckDegraded, ""); n.Degraded == 0 || n.CheckWhy != "slow disk" {
		t.Errorf("started anew: %+v", n)
	}
	if err := k.Heartbeat(t.Context(), Beat{Node: node, BootID: "b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.world.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Node(t.Context(), node); err != nil || n.Degraded != 0 || n.CheckLast != scheduler.CheckNone {
		t.Errorf("without a check: %+v, %v", n, err)
	}
}
