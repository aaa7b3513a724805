package web

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
)

const (
	mostPollWait  = time.Minute      // real time one long poll may stay open
	nodeTokenTTL  = 10 * time.Second // real time a node's token is believed without asking
	mostNodesKept = 20_000           // of them, at most
)

// nodeTokens remembers for a short while which node a token belongs to.
type nodeTokens struct {
	mu    sync.Mutex
	known map[string]knownNode
}

type knownNode struct {
	node  ledger.NodeID
	until ledger.Instant // real
}

// nodeHandler answers one call of a node.
type nodeHandler func(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error

// asNode finds the node behind the bearer token.
func (s *server) asNode(h nodeHandler) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || secret == "" {
			return &ledger.Refusal{Kind: ledger.Denied, Code: "node.token", Detail: "Send the node's token as a bearer token; enrol the node to get one."}
		}
		node, err := s.nodeOf(r.Context(), secret)
		if err != nil {
			return err
		}
		return h(w, r, node)
	}
}

func (s *server) nodeOf(ctx context.Context, secret string) (ledger.NodeID, error) {
	t, now := &s.nodeTokens, s.store.Real()
	t.mu.Lock()
	known, ok := t.known[secret]
	t.mu.Unlock()
	if ok && now < known.until {
		return known.node, nil
	}
	node, err := s.store.NodeByToken(ctx, secret)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= mostNodesKept {
		t.known = map[string]knownNode{}
	}
	t.known[secret] = knownNode{node, now.Add(nodeTokenTTL.Milliseconds())}
	return node, nil
}

// parseJSON reads a program's body; the chain has bounded its size.
func parseJSON(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	if err := d.Decode(into); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return &ledger.Refusal{Kind: ledger.Invalid, Code: "body", Detail: "The body is not the JSON that this address takes: " + err.Error() + "."}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &ledger.Refusal{Kind: ledger.Invalid, Code: "body", Detail: "The body goes on after its JSON value."}
	}
	return nil
}

// newSecret makes a token of 256 bits.
func newSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// agentEnrol introduces a node and gives it its token.
func (s *server) agentEnrol(w http.ResponseWriter, r *http.Request) error {
	var in api.EnrolRequest
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	c := in.Capacities
	enrol := store.EnrolInput{
		Token: in.Token, Secret: newSecret("tn_"), Name: in.Name, Pool: in.Pool, Topology: c.Topology, BootID: in.BootID,
		Version: in.Version, CPUMilli: c.CPUMilli, RAMMiB: c.RAMMiB, NetMbps: c.NetMbps, StoMbps: c.StoMbps, IOCMilli: c.IOCMilli,
	}
	for _, d := range c.Devices {
		enrol.Devices = append(enrol.Devices, store.DeviceInput{Index: int32(d.Index), UUID: d.UUID, Model: d.Model, HBMMiB: d.HBMMiB})
	}
	node, err := s.store.Enrol(r.Context(), enrol)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.EnrolReply{NodeID: node, NodeToken: enrol.Secret, SpeedPPM: s.speedPPM()})
}

func (s *server) speedPPM() int64 { return s.store.Speed() * 1_000_000 }

// agentPoll answers with the node's desired state, at once when it differs from
// the agent's, else when it changes or the wait is over.
func (s *server) agentPoll(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error {
	var in api.PollRequest
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	wait := min(time.Duration(max(0, in.WaitMS))*time.Millisecond, mostPollWait)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		d, err := s.store.DesiredState(r.Context(), node)
		if err != nil {
			return err
		}
		if d.Version != in.Version || ctx.Err() != nil {
			if err := s.hideFromCommands(r.Context(), &d); err != nil {
				return err
			}
			return writeJSON(w, http.StatusOK, s.desired(d))
		}
		s.store.WaitForOrders(ctx, node, d.Version)
	}
}

// agentRepaired takes how a repair hook ended.
func (s *server) agentRepaired(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error {
	var in api.Repaired
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	if err := s.store.Repaired(r.Context(), node, store.Repair{N: in.N, None: in.None, ExitCode: in.ExitCode, Output: in.Output}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct{}{})
}

func (s *server) desired(d store.Desired) api.Desired {
	out := api.Desired{Version: d.Version, SpeedPPM: s.speedPPM(), Attempts: []api.Order{}}
	if d.Repair > 0 {
		out.Repair = &api.RepairOrder{N: d.Repair}
	}
	for k, o := range d.Orders {
		action := api.ActionStart
		if o.Claimed {
			action = api.ActionRun
		}
		if o.Stop {
			action = api.ActionStop
		}
		devices := make([]int, len(o.Placed.Devices))
		for i, d := range o.Placed.Devices {
			devices[i] = int(d)
		}
		out.Attempts = append(out.Attempts, api.Order{
			Attempt: o.Attempt, Fence: o.Fence, Rank: int(o.Rank), Action: action, GraceMS: o.GraceMs, StopKind: stopKind(o.Rule), Notices: s.notices(&d.Orders[k], d.Policy.LookbackMs),
			Spec: api.Spec{
				Job: o.Job, Project: o.Project, User: o.User, Command: o.Command, WorkDir: o.WorkDir, Env: o.Env, Output: o.OutputPath,
				Devices: devices, CPUMilli: o.Placed.CPUMilli, RAMMiB: o.Placed.RAMMiB, GPUMilli: o.Placed.GPUMilli,
				Checkpoint: o.Checkpoint, Resume: o.Resume, Nodes: o.Nodes,
			},
		})
	}
	return out
}

// checkWord is a check's outcome; a word that is none counts as degraded.
func checkWord(outcome string) scheduler.Check {
	switch c := scheduler.Check(outcome); c {
	case scheduler.CheckOK, scheduler.CheckFault:
		return c
	}
	return scheduler.CheckDegraded
}

// stopKind says in the agents' words why an attempt is to stop.
func stopKind(rule scheduler.Rule) string {
	switch rule {
	case "":
		return ""
	case scheduler.V1, scheduler.V2, scheduler.V3, scheduler.V4, scheduler.VS:
		return "preempted"
	case scheduler.V5, scheduler.V5Hard:
		return "drain"
	case scheduler.MaxRuntime:
		return "timeout"
	case scheduler.MoneyEnded:
		return "funds"
	case scheduler.Cancelled:
		return "cancelled"
	}
	return string(rule)
}

// agentHeartbeat takes a node's sign of life.
func (s *server) agentHeartbeat(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error {
	var in api.Heartbeat
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	beat := store.Beat{Node: node, BootID: in.BootID, Flow: store.NodeFlow{NetMbps: in.Flow.NetMbps, StoMBps: in.Flow.StoMBps}}
	for _, d := range in.Devices {
		beat.Devices = append(beat.Devices, store.DeviceUse{Index: int32(d.Index), UtilPct: int32(d.UtilPct), HBMUsedMiB: d.HBMUsedMiB, OK: d.OK})
	}
	for _, a := range in.Attempts {
		beat.Attempts = append(beat.Attempts, store.Seen{Attempt: a.Attempt, Fence: a.Fence, Rank: int32(a.Rank), ElapsedUS: a.ElapsedUS})
	}
	if c := in.Check; c != nil {
		beat.Check = &store.NodeCheck{N: c.N, Say: checkWord(c.Outcome), Why: c.Reason}
	}
	if run := in.Storage; run != nil {
		beat.Storage = &store.StorageRun{N: run.N, PPM: run.PPM, Failed: run.Failed}
	}
	if err := s.store.Heartbeat(r.Context(), beat); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct{}{})
}

// agentClaim gives a launcher its one-time leave to run user code.
func (s *server) agentClaim(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error {
	var in api.ClaimRequest
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	part := store.PartRef{Node: node, Attempt: in.Attempt, Fence: in.Fence, Rank: int32(in.Rank)}
	resume, err := s.store.Claim(r.Context(), part, in.Launcher)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.ClaimReply{OK: true, Resume: resume})
}

// agentEnded takes an end record; it may come any number of times.
func (s *server) agentEnded(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error {
	var in api.EndedReport
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	superseded, err := s.store.Ended(r.Context(), store.End{
		PartRef:  store.PartRef{Node: node, Attempt: in.Attempt, Fence: in.Fence, Rank: int32(in.Rank)},
		ExitCode: in.ExitCode, Signal: in.Signal, ElapsedUS: in.ElapsedUS, TermUS: in.TermUS,
		Stopped: in.Cause == api.CauseStopped || in.Cause == api.CauseWithdrawn,
		Lost:    in.Cause == api.CauseLauncherLost || in.Cause == api.CauseRebooted || in.Cause == api.CauseUnknown,
		Detail:  in.Detail,
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.EndedReply{Superseded: superseded})
}

// agentLogs takes output and says where to go on.
func (s *server) agentLogs(w http.ResponseWriter, r *http.Request, node ledger.NodeID) error {
	var in api.LogChunk
	if err := parseJSON(r, &in); err != nil {
		return err
	}
	if len(in.Data) > api.MaxLogChunk || in.Offset < 0 {
		return &ledger.Refusal{Kind: ledger.Invalid, Code: "log.chunk", Field: "data", Detail: "A piece of output has at most 128 KiB and begins at 0 or later."}
	}
	next, err := s.store.AppendLog(r.Context(), store.PartRef{Node: node, Attempt: in.Attempt, Rank: int32(in.Rank)}, in.Offset, in.Data)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.LogReply{NextOffset: next})
}
