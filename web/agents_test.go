package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
)

// node is an enrolled node that speaks to a real server.
type node struct {
	*site
	client *api.Client
	id     ledger.NodeID
	world  *store.World
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{site: newSite(t)}
	srv := httptest.NewServer(n.handler)
	t.Cleanup(srv.Close)
	n.client = &api.Client{Server: srv.URL}
	_, err := n.store.CreateEnrolToken(t.Context(), n.cmd("operator here"), store.EnrolTokenInput{Pool: "h100", Hours: 1, Uses: 1, Secret: "join"})
	n.must(err)
	in := api.EnrolRequest{
		Token: "join", Name: "n1", BootID: "b", Version: "test",
		Capacities: api.Capacities{CPUMilli: 64_000, RAMMiB: 512 * 1024},
	}
	for i := range 8 {
		in.Capacities.Devices = append(in.Capacities.Devices, api.Device{Index: i, UUID: "u", Model: "H100", HBMMiB: 81_920})
	}
	var first, again api.EnrolReply
	n.must(n.call(api.PathEnrol, in, &first))
	n.must(n.call(api.PathEnrol, in, &again)) // the answer got lost
	if first.NodeID != again.NodeID || first.NodeToken == again.NodeToken || again.SpeedPPM != 1_000_000 {
		t.Fatalf("enrolled twice: %+v, %+v", first, again)
	}
	n.id, n.client.Token = again.NodeID, again.NodeToken
	leader, err := n.store.Campaign(t.Context(), "test")
	n.must(err)
	n.world = n.store.World(leader)
	return n
}

func (n *node) call(path string, in, out any) error {
	return n.client.Call(n.t.Context(), http.MethodPost, path, in, out)
}

// free submits an unfunded job of 1 GPU.
func (n *node) free(t *testing.T) ledger.JobID {
	t.Helper()
	job, err := n.store.SubmitJob(t.Context(), n.cmd("researcher here"),
		store.Submission{Preset: "free", Project: "/lab/vision/segmentation", Pool: "h100", GPUs: 1, Command: "true", Env: map[string]string{"A": "b"}})
	n.must(err)
	return job
}

func (n *node) cycle(t *testing.T) {
	t.Helper()
	_, err := scheduler.RunCycle(t.Context(), n.world, n.store.Now())
	n.must(err)
}

func TestANodeRunsAJobOverHTTP(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var idle, busy api.Desired
	n.must(n.call(api.PathPoll, api.PollRequest{}, &idle))
	if idle.Version == 0 || len(idle.Attempts) != 0 {
		t.Fatalf("before any job: %+v", idle)
	}
	woken := make(chan error, 1)
	go func() { // the long poll is open before there is anything to do
		woken <- n.client.Call(context.WithoutCancel(t.Context()), http.MethodPost, api.PathPoll, api.PollRequest{Version: idle.Version, WaitMS: 30_000}, &busy)
	}()
	job := n.free(t)
	n.cycle(t)
	n.must(<-woken)
	if len(busy.Attempts) != 1 || busy.Attempts[0].Action != api.ActionStart || busy.Attempts[0].Spec.Job != job ||
		busy.Attempts[0].Spec.Env["A"] != "b" || busy.Attempts[0].GraceMS != 15_000 || busy.Version == idle.Version {
		t.Fatalf("orders %+v", busy)
	}
	o := busy.Attempts[0]
	var claim api.ClaimReply
	n.must(n.call(api.PathClaim, api.ClaimRequest{Attempt: o.Attempt, Fence: o.Fence, Launcher: "l"}, &claim))
	n.db.Clock.Advance(time.Minute)
	n.must(n.call(api.PathHeartbeat, api.Heartbeat{
		BootID: "b", Devices: []api.DeviceUse{{Index: 0, UtilPct: 90, OK: true}},
		Attempts: []api.AttemptSeen{{Attempt: o.Attempt, Fence: o.Fence, State: api.StateRunning, ElapsedUS: 60_000_000}},
	}, nil))
	var log api.LogReply
	n.must(n.call(api.PathLogs, api.LogChunk{Attempt: o.Attempt, Data: []byte("hello\n")}, &log))
	var end, late api.EndedReply
	report := api.EndedReport{Attempt: o.Attempt, Fence: o.Fence, Launcher: "l", Started: true, ElapsedUS: 60_000_000, Cause: api.CauseExit}
	n.must(n.call(api.PathEnded, report, &end))
	n.must(n.call(api.PathEnded, report, &late))
	if !claim.OK || claim.Resume || log.NextOffset != 6 || end.Superseded || !late.Superseded {
		t.Errorf("claim %+v, log %+v, end %+v, late %+v", claim, log, end, late)
	}
	d, err := n.store.Job(t.Context(), n.cmd("researcher here").Actor, job)
	n.must(err)
	if d.Result != string(scheduler.ResultOK) || d.Charged != 0 {
		t.Errorf("job %+v", d.JobLine)
	}
}

func TestANodeIsRefusedWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	status := func(path string, in any) int {
		var p *api.Problem
		if err := n.call(path, in, nil); err == nil {
			return http.StatusOK
		} else if !errors.As(err, &p) {
			t.Fatal(err)
		}
		return p.Status
	}
	for name, got := range map[string][2]int{
		"an enrol token that does not exist": {status(api.PathEnrol, api.EnrolRequest{Token: "guess", Name: "n2"}), http.StatusUnprocessableEntity},
		"a body that is no JSON object":      {status(api.PathClaim, []int{1}), http.StatusUnprocessableEntity},
		"a claim of nothing":                 {status(api.PathClaim, api.ClaimRequest{Attempt: 99}), http.StatusConflict},
		"output of nothing":                  {status(api.PathLogs, api.LogChunk{Attempt: 99, Data: []byte("x")}), http.StatusNotFound},
		"output beyond the bound":            {status(api.PathLogs, api.LogChunk{Data: make([]byte, api.MaxLogChunk+1)}), http.StatusUnprocessableEntity},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
	n.client.Token = "guess"
	for _, path := range []string{api.PathPoll, api.PathHeartbeat, api.PathClaim, api.PathEnded, api.PathLogs} {
		if got := status(path, struct{}{}); got != http.StatusForbidden {
			t.Errorf("%s with a guessed token: %d, want 403", path, got)
		}
	}
}
