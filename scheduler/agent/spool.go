package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"tranche/ledger"
	"tranche/web/api"
)

// The spool is how agent and launcher speak to each other, so that either may
// die and come back. One folder per attempt part, StateDir/attempts/<key>/:
//
//	lock        held by the living launcher (flock; goes with the process)
//	task.json   what to run, written by the agent before it starts the launcher
//	state.json  how far the launcher is, written by the launcher
//	elapsed     last persisted elapsed, µs, written by the launcher each second
//	stop.json   the agent's stop order; SIGUSR1 tells the launcher to look
//	output.log  what the command printed
//	end.json    the end record: written once, fsynced, sent until acknowledged
const (
	fileLock    = "lock"
	fileTask    = "task.json"
	fileState   = "state.json"
	fileElapsed = "elapsed"
	fileStop    = "stop.json"
	fileOutput  = "output.log"
	fileEnd     = "end.json"
)

// key names one attempt's part on a node.
type key struct {
	Attempt ledger.AttemptID
	Fence   int64
	Rank    int
}

func (k key) String() string { return fmt.Sprintf("%d-%d-%d", k.Attempt, k.Fence, k.Rank) }

// parseKey reads a spool folder's name back.
func parseKey(name string) (key, bool) {
	part := strings.Split(name, "-")
	if len(part) != 3 {
		return key{}, false
	}
	a, err1 := strconv.ParseInt(part[0], 10, 64)
	f, err2 := strconv.ParseInt(part[1], 10, 64)
	r, err3 := strconv.Atoi(part[2])
	k := key{ledger.AttemptID(a), f, r}
	return k, err1 == nil && err2 == nil && err3 == nil && k.String() == name
}

// task is the launcher's whole input. It holds no secret of the server: the
// node token stays in the identity file.
type task struct {
	Order    api.Order `json:"order"`
	Server   string    `json:"server"`
	Identity string    `json:"identity"` // path of the identity file
	Launcher string    `json:"launcher"` // random name of this launcher
	Account  account   `json:"account"`
	Scratch  string    `json:"scratch"`
	Notices  string    `json:"notices"` // path of the notice file, which the command may read
	LogCap   int64     `json:"log_cap"` // bytes
}

// state is what a launcher says of itself.
type state struct {
	Phase   string `json:"phase"` // a State… of package api
	PID     int    `json:"pid"`
	Start   int64  `json:"start"` // start time of PID, kernel ticks
	BootID  string `json:"boot_id"`
	ClaimUS int64  `json:"claim_us"` // boot clock at the accepted claim, 0 before
	Group   int    `json:"group"`    // process group of the command, 0 before it starts
	TermUS  int64  `json:"term_us"`  // elapsed at the server's stop, 0 before
	Cgroup  string `json:"cgroup,omitempty"`
}

// stop is a stop order on its way to the launcher.
type stop struct {
	Kind    string `json:"kind"`
	GraceMS int64  `json:"grace_ms"` // real
}

// identity is who this node is to the server.
type identity struct {
	Server   string        `json:"server"`
	Name     string        `json:"name"`
	Node     ledger.NodeID `json:"node"`
	Token    string        `json:"token"`
	SpeedPPM int64         `json:"speed_ppm"`
	Offer    string        `json:"offer"` // the capacities that were enrolled, as JSON
}

// readJSON reads a spool file; a missing one gives fs.ErrNotExist.
func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a spool file in one step, readable by its owner alone. The
// file survives the death of the process, not of the machine.
func writeJSON(path string, v any) error { return replaceFile(path, v, false) }

// writeDurable is writeJSON that also survives the death of the machine.
func writeDurable(path string, v any) error { return replaceFile(path, v, true) }

func replaceFile(path string, v any, durable bool) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && durable {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil || !durable {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// takeLock takes a lock file without waiting; nil when somebody holds it.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// launcherLives tells whether the launcher of a spool folder still holds its lock.
func launcherLives(dir string) (bool, error) {
	f, err := takeLock(filepath.Join(dir, fileLock))
	if err != nil {
		return false, err
	}
	if f == nil {
		return true, nil
	}
	return false, f.Close()
}

// persistedElapsed is the last elapsed a launcher wrote, 0 when it wrote none.
func persistedElapsed(dir string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, fileElapsed))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
