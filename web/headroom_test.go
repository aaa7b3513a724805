package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/scheduler"
	"tranche/scheduler/placing"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// heartbeat is what a node's agent sends, over the agents' own address.
func (f *fleet) heartbeat(i int, beat api.Heartbeat) {
	f.t.Helper()
	node := f.program(fmt.Sprint("node", i+1))
	f.must(node.Call(f.t.Context(), http.MethodPost, api.PathHeartbeat, beat, nil))
}

// What a node's agent reads is on its page and in the interface: what moves, how its
// storage does, and each device's headroom.
func TestANodeSaysWhatItKeeps(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	for range 2 { // one for each node
		f.job("researcher here", segPath, "here", 8)
	}
	f.cycle()
	for run := range int64(6) {
		f.db.Clock.Advance(10 * time.Second)
		f.heartbeat(0, api.Heartbeat{
			BootID: "b", Flow: api.NodeFlow{NetMbps: new(int64(1234)), StoMBps: new(int64(77))}, Storage: &api.StorageCheck{N: run + 1, PPM: 400_000},
			Devices: []api.DeviceUse{{Index: 0, UtilPct: 90, HBMUsedMiB: 30 * 1024, OK: true}},
		})
	}
	f.heartbeat(0, api.Heartbeat{BootID: "b", Storage: &api.StorageCheck{N: 9, Failed: "no route to the filer"}, Devices: []api.DeviceUse{{Index: 0, HBMUsedMiB: 30 * 1024, OK: true}}})
	node := f.as("researcher here").open(view.NodeURL(f.nodes[0]))
	storage := node.one("storage-health")
	for _, want := range []string{"degraded since", "counts with 40 %", "failed", "no route to the filer", "says nothing of the storage"} {
		if !strings.Contains(storage, want) {
			t.Errorf("%q is not in %q", want, storage)
		}
	}
	rows := node.all("headroom-row")
	if len(rows) != 8 || !strings.Contains(rows[0], "30") || !strings.Contains(rows[0], "as declared, the whole device") {
		t.Errorf("rows %q", rows)
	}
	if events := node.one("events"); !strings.Contains(events, "found the storage degraded") {
		t.Errorf("events %q", events)
	}
	n, err := f.client("operator here", f.lab).Node(t.Context(), "n1")
	f.must(err)
	if n.Storage == nil || n.Storage.CountsPPM != 400_000 || n.Storage.Failed == "" || n.Storage.Degraded == nil || len(n.Memory) != 8 {
		t.Errorf("storage %+v, memory of %d devices", n.Storage, len(n.Memory))
	}
	if m := n.Memory[0]; m.UsedMiB != 30*1024 || m.HeadroomMiB != m.ReservedMiB-m.UsedMiB || m.ForecastMiB == nil || *m.ForecastMiB != m.UsedMiB {
		t.Errorf("memory %+v", m)
	}
	other := f.as("researcher here").open(view.NodeURL(f.nodes[1]))
	if other.all("storage-health") != nil {
		t.Error("a node without a hook speaks of its storage")
	}
}

// What jobs of a kind used is said on the job's page, with what follows from it.
func TestWhatAKindOfJobUsedInWords(t *testing.T) {
	part, whole := &store.JobDetail{}, &store.JobDetail{}
	part.Shape = scheduler.Shape{GPUs: 1, GPUMilli: 500}
	whole.Shape = scheduler.Shape{GPUs: 2, GPUMilli: 1000}
	for _, c := range []struct {
		job  *store.JobDetail
		seen int64
		want string
	}{
		{part, 0, ""},
		{part, 1, "the peak of 1 job of its kind was 62 % of the memory declared; once 5 have ended, so much is set aside instead of what is declared"},
		{part, 7, "the peak of 7 jobs of its kind was 62 % of the memory declared, give or take 10 %; so much is set aside for it"},
		{whole, 7, "the peak of 7 jobs of its kind was 62 % of the memory declared, give or take 10 %; whole GPUs are set aside with all their memory"},
		{&store.JobDetail{}, 7, ""},
	} {
		got := ""
		for _, f := range memoryFacts(c.job, placing.Class{Seen: c.seen, Mean: 620_000, Var: 10_000}) {
			got += f.Value
		}
		if got != c.want {
			t.Errorf("%d seen: %q, want %q", c.seen, got, c.want)
		}
	}
}
