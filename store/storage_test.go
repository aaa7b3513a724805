package store

import (
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// storageSays sends one run of a node's storage hook with two heartbeats, as agents
// do, over one of two servers.
func (k *site) storageSays(t *testing.T, s *Store, node ledger.NodeID, r *StorageRun) {
	t.Helper()
	for range 2 {
		if err := s.Heartbeat(t.Context(), Beat{Node: node, BootID: "b", Storage: r}); err != nil {
			t.Fatal(err)
		}
	}
}

// seenNode is the node as the dispatcher sees it.
func (k *site) seenNode(t *testing.T, id ledger.NodeID) scheduler.Node {
	t.Helper()
	s, err := k.world.Snapshot(t.Context(), k.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes {
		if n.ID == id {
			return n
		}
	}
	t.Fatalf("no node %d", id)
	return scheduler.Node{}
}

// A storage that stays slow is counted with what is left of it until it has been good
// for a while; the state is in the database, so it does not matter which server takes
// a run, and a run that failed or comes twice changes nothing.
func TestSlowStorageDegradesANode(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	node, other, run := k.nodes[0], openStore(t, k.db), int64(0)
	servers := []*Store{k.Store, other}
	say := func(times int, ppm int64, failed string) {
		for range times {
			k.pass(10 * time.Second)
			run++
			k.storageSays(t, servers[run%2], node, &StorageRun{N: run, PPM: ppm, Failed: failed})
		}
	}
	say(5, 1_000_000, "")
	say(4, 350_000, "") // the mean falls to 689,303: the second below the bound
	if n := k.seenNode(t, node); n.StoPPM != 0 {
		t.Errorf("degraded too soon: %d", n.StoPPM)
	}
	say(10, 0, "no such file system")
	if n := k.seenNode(t, node); n.StoPPM != 0 {
		t.Errorf("failed runs degraded it: %d", n.StoPPM)
	}
	say(1, 350_000, "")
	if n := k.seenNode(t, node); n.StoPPM < 600_000 || n.StoPPM > 690_000 {
		t.Errorf("after three below the bound %d ppm are left, want the mean", n.StoPPM)
	}
	if n := k.seenNode(t, k.nodes[1]); n.StoPPM != 0 {
		t.Errorf("the other node has %d", n.StoPPM)
	}
	say(20, 1_000_000, "") // nine until the mean is above the bound, eleven of twelve there
	if n := k.seenNode(t, node); n.StoPPM < 950_000 {
		t.Errorf("good again too soon: %d", n.StoPPM)
	}
	say(1, 1_000_000, "")
	if n := k.seenNode(t, node); n.StoPPM != 0 {
		t.Errorf("not good again: %d", n.StoPPM)
	}
	var audits string
	if err := k.pool.QueryRow(t.Context(), `select string_agg((before->>'degraded') || '>' || (after->>'degraded'), ' ' order by id) from audit
		where verb = 'node.storage' and subject = $1`, subjectOf("node", int64(node))).Scan(&audits); err != nil || audits != "false>true true>false" {
		t.Errorf("audit %q, %v", audits, err)
	}
}

// An agent without a hook ends what an earlier hook had led to; one that has not run
// its hook yet does not.
func TestStorageIsForgottenWithItsHook(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	node := k.nodes[0]
	for run := range int64(5) {
		k.storageSays(t, k.Store, node, &StorageRun{N: run + 1})
	}
	if n := k.seenNode(t, node); n.StoPPM != 1 {
		t.Errorf("of a storage that gives nothing %d ppm are left; 0 would stand for all", n.StoPPM)
	}
	k.storageSays(t, k.Store, node, &StorageRun{})
	if n := k.seenNode(t, node); n.StoPPM != 1 {
		t.Error("an agent that has just started forgot it")
	}
	k.storageSays(t, k.Store, node, nil)
	if n := k.seenNode(t, node); n.StoPPM != 0 {
		t.Error("an agent without a hook keeps it")
	}
}

// What moves through a node is kept with its telemetry, and only where it is told.
func TestFlowIsKept(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	net, sto := int64(900), int64(70)
	for _, b := range []Beat{
		{Node: k.nodes[0], Flow: NodeFlow{NetMbps: &net, StoMBps: &sto}, Storage: &StorageRun{N: 1, PPM: 800_000}, Devices: []DeviceUse{{Index: 3, HBMUsedMiB: 7, OK: true}}},
		{Node: k.nodes[1], Flow: NodeFlow{NetMbps: &net}},
	} {
		if err := k.Heartbeat(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	var said string
	if err := k.pool.QueryRow(t.Context(), `select string_agg(concat_ws(' ', devices::text, hbm_used_mib::text, coalesce(net_mbps, -1), coalesce(sto_mbps, -1), coalesce(sto_said_ppm, -1)), '; ' order by node_id)
		from node_telemetry`).Scan(&said); err != nil || said != "{3} {7} 900 70 800000; {} {} 900 -1 -1" {
		t.Errorf("%q, %v", said, err)
	}
}
