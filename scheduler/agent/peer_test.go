package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

func TestMain(m *testing.M) {
	LaunchIfAsked() // the test program is its own launcher
	if len(os.Args) == 4 && os.Args[1] == "test-agent" {
		os.Exit(agentProcess(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// agentProcess is an agent in a process of its own, which a test may kill.
func agentProcess(server, dir string) int {
	err := Run(context.Background(), Config{
		Server: server, Name: "n1", EnrolToken: "join", StateDir: dir, Users: map[string]string{"*": "nobody"},
		PollWait: 5 * time.Second, Heartbeat: 50 * time.Millisecond, LogEvery: 20 * time.Millisecond,
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// peer speaks the server's side of the agent protocol for one node.
type peer struct {
	*httptest.Server
	mu      sync.Mutex
	orders  []api.Order
	version int64
	changed chan struct{}
	down    map[string]bool // path → answers nothing
	closed  bool            // refuse claims
	enrols  int
	claims  []api.ClaimRequest
	beats   []api.Heartbeat
	ended   []api.EndedReport
	logs    map[ledger.AttemptID][]byte
}

func newPeer(t *testing.T) *peer {
	p := &peer{changed: make(chan struct{}), down: map[string]bool{}, logs: map[ledger.AttemptID][]byte{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(func() { p.CloseClientConnections(); p.Close() })
	return p
}

func (p *peer) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	down := p.down[r.URL.Path]
	p.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path != api.PathEnrol && r.Header.Get("Authorization") != "Bearer node-secret" {
		refuse(w, http.StatusUnauthorized, "unknown token")
		return
	}
	switch r.URL.Path {
	case api.PathEnrol:
		p.enrol(w, r)
	case api.PathPoll:
		p.poll(w, r)
	case api.PathHeartbeat:
		handle(w, r, func(h api.Heartbeat) any { p.beats = append(p.beats, h); return struct{}{} }, &p.mu)
	case api.PathClaim:
		p.claim(w, r)
	case api.PathEnded:
		handle(w, r, func(e api.EndedReport) any { p.ended = append(p.ended, e); return api.EndedReply{} }, &p.mu)
	case api.PathLogs:
		handle(w, r, func(c api.LogChunk) any {
			if c.Offset == int64(len(p.logs[c.Attempt])) {
				p.logs[c.Attempt] = append(p.logs[c.Attempt], c.Data...)
			}
			return api.LogReply{NextOffset: int64(len(p.logs[c.Attempt]))}
		}, &p.mu)
	}
}

func refuse(w http.ResponseWriter, status int, detail string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Title: "refused", Status: status, Detail: detail})
}

func handle[T any](w http.ResponseWriter, r *http.Request, f func(T) any, mu *sync.Mutex) {
	var in T
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	mu.Lock()
	defer mu.Unlock()
	_ = json.NewEncoder(w).Encode(f(in))
}

func (p *peer) enrol(w http.ResponseWriter, r *http.Request) {
	var in api.EnrolRequest
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.Token != "join" {
		refuse(w, http.StatusForbidden, "this enrol token is not valid")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enrols++
	_ = json.NewEncoder(w).Encode(api.EnrolReply{NodeID: 7, NodeToken: "node-secret", SpeedPPM: 1_000_000})
}

func (p *peer) claim(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		refuse(w, http.StatusConflict, "attempt is closed")
		return
	}
	handle(w, r, func(c api.ClaimRequest) any { p.claims = append(p.claims, c); return api.ClaimReply{OK: true} }, &p.mu)
}

func (p *peer) poll(w http.ResponseWriter, r *http.Request) {
	var in api.PollRequest
	_ = json.NewDecoder(r.Body).Decode(&in)
	limit := time.After(time.Duration(in.WaitMS) * time.Millisecond)
	for {
		p.mu.Lock()
		want := api.Desired{Version: p.version, SpeedPPM: 1_000_000, Attempts: slices.Clone(p.orders)}
		changed := p.changed
		p.mu.Unlock()
		if want.Version != in.Version {
			_ = json.NewEncoder(w).Encode(want)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-limit:
			_ = json.NewEncoder(w).Encode(want)
			return
		}
	}
}

// want replaces the desired state.
func (p *peer) want(orders ...api.Order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orders = orders
	p.version++
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *peer) setDown(path string, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down[path] = down
}

func (p *peer) ends() []api.EndedReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ended)
}

func (p *peer) seenBeats() []api.Heartbeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.beats)
}

// lastSeen is what the last heartbeat said of attempts.
func (p *peer) lastSeen() []api.AttemptSeen {
	beats := p.seenBeats()
	if len(beats) == 0 {
		return nil
	}
	return beats[len(beats)-1].Attempts
}

func (p *peer) log(a ledger.AttemptID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.logs[a])
}

// until waits for a condition, with a deadline that only a fault can reach.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// openDir is a temporary folder that other users may enter, as jobs of a root
// agent must.
func openDir(t *testing.T) string {
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testConfig(t *testing.T, p *peer, dir string) Config {
	return Config{
		Server: p.URL, Name: "n1", EnrolToken: "join", StateDir: filepath.Join(dir, "state"),
		Devices: Simulated{Node: "n1", Count: 8, Model: "H100", HBMMiB: 81559}, Users: map[string]string{"*": "nobody"},
		PollWait: 5 * time.Second, Heartbeat: 50 * time.Millisecond, LogEvery: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// runAgent runs an agent until the test ends or the given function is called;
// either waits for Run to return.
func runAgent(t *testing.T, cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func order(id ledger.AttemptID, command string) api.Order {
	return api.Order{
		Attempt: id, Fence: 3, Action: api.ActionStart, GraceMS: 10_000,
		Spec: api.Spec{Job: 40 + ledger.JobID(id), Project: "/lab/a", User: "ada", Command: command, Devices: []int{2, 3}, Nodes: []string{"n1"}},
	}
}

// oneEnd runs an order to its end and gives the record.
func oneEnd(t *testing.T, p *peer) api.EndedReport {
	t.Helper()
	until(t, "an end record", func() bool { return len(p.ends()) > 0 })
	return p.ends()[0]
}

// launcherState reads what the launcher of an attempt says of itself.
func launcherState(cfg Config, o api.Order) (s state, ok bool) {
	k := key{o.Attempt, o.Fence, o.Rank}
	err := readJSON(filepath.Join(cfg.StateDir, "attempts", k.String(), fileState), &s)
	return s, err == nil
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }
