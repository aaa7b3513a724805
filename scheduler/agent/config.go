// Package agent runs jobs on a node. Run is the agent: it enrols, follows the
// server's desired state, sends heartbeats, output and end records. Each attempt
// runs under a small launcher process of its own (Launch) that claims at the
// server, holds the command's processes, and outlives the agent; the two meet in
// the spool (see spool.go). One process may run several agents, each with a
// state folder of its own.
package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"tranche/web/api"
)

// Config is one agent's. Server, Name and StateDir are needed, EnrolToken for
// the first start; all else has a default. All durations are real time.
type Config struct {
	Server     string // base URL
	Name       string // node name
	Pool       string // pool to join, "" = as the server says
	EnrolToken string
	StateDir   string // spool and identity; on a local disk
	// ScratchDir holds one folder per job, the same on every attempt. Put it on
	// a file system that all nodes of the pool share, so that a job finds its
	// checkpoint wherever it goes on. Default: StateDir/scratch.
	ScratchDir string
	Devices    DeviceSource      // default NoDevices
	Users      map[string]string // sign-in name → local user, "*" = everybody else; used by root only
	RepairHook string            // shell command that is run once when the node is drained and empty; "" = none
	HealthHook string            // shell command that says how the node is: it exits with 0 good, 1 degraded, 2 fault; "" = none
	// StorageHook is a shell command that prints what percentage of its nominal
	// bandwidth the node's storage gives now; "" = none.
	StorageHook  string
	Flow         FlowSource     // what moves through the node; default: this machine's counters
	Launcher     []string       // argv of the launcher, its folder is added; default: this program, "agent launch"
	Offer        api.Capacities // Devices are ignored; CPU and RAM of 0 are read from the machine
	HTTP         *http.Client
	PollWait     time.Duration // default 30 s
	Heartbeat    time.Duration // default 5 s
	CheckEvery   time.Duration // from the end of one health check to the next; default 1 min
	StorageEvery time.Duration // likewise of the storage hook; default 10 s
	LogEvery     time.Duration // default 1 s
	LogCap       int64         // bytes of output kept per attempt; default 64 MiB
	// KeepEnds is an existing folder that acknowledged end records are moved to,
	// as <attempt>-<fence>-<rank>.json; "" removes them with their spool.
	KeepEnds string
	Version  string
	Log      *slog.Logger
}

// withDefaults checks a Config and fills it; the error names every problem.
func (c Config) withDefaults() (Config, error) {
	var problems []error
	for _, f := range []struct{ name, value string }{{"server", c.Server}, {"name", c.Name}, {"state folder", c.StateDir}} {
		if f.value == "" {
			problems = append(problems, fmt.Errorf("the agent needs a %s", f.name))
		}
	}
	if len(problems) > 0 {
		return c, errors.Join(problems...)
	}
	var err error
	if c.StateDir, err = filepath.Abs(c.StateDir); err != nil {
		return c, err
	}
	if c.ScratchDir == "" {
		c.ScratchDir = filepath.Join(c.StateDir, "scratch")
	}
	if c.ScratchDir, err = filepath.Abs(c.ScratchDir); err != nil {
		return c, err
	}
	if c.Devices == nil {
		c.Devices = NoDevices{}
	}
	if len(c.Launcher) == 0 {
		self, err := ownExecutable()
		if err != nil {
			return c, err
		}
		c.Launcher = []string{self, "agent", "launch"}
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.PollWait, c.Heartbeat = orDefault(c.PollWait, 30*time.Second), orDefault(c.Heartbeat, 5*time.Second)
	if c.Flow == nil {
		c.Flow = &Machine{}
	}
	c.CheckEvery, c.StorageEvery = orDefault(c.CheckEvery, time.Minute), orDefault(c.StorageEvery, 10*time.Second)
	c.LogEvery, c.LogCap = orDefault(c.LogEvery, time.Second), orDefault(c.LogCap, 64<<20)
	if c.Offer.CPUMilli == 0 {
		c.Offer.CPUMilli = int64(runtime.NumCPU()) * 1000
	}
	if c.Offer.RAMMiB == 0 {
		c.Offer.RAMMiB = machineRAM()
	}
	return c, nil
}

func orDefault[T time.Duration | int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// machineRAM is the machine's memory in MiB, 1024 where it cannot be read.
func machineRAM() int64 {
	const fallback = 1024
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fallback
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return kib / 1024
			}
		}
	}
	return fallback
}

// makeFolders makes the state folder's parts. Scratch and notices must be
// reachable by the users of the jobs; the spool is the agent's alone.
func (c Config) makeFolders() error {
	if err := os.MkdirAll(filepath.Join(c.StateDir, "attempts"), 0o700); err != nil {
		return err
	}
	for _, open := range []string{c.ScratchDir, filepath.Join(c.StateDir, "notices")} {
		if err := os.MkdirAll(open, 0o711); err != nil {
			return err
		}
	}
	if os.Getuid() != 0 {
		return nil
	}
	return os.Chmod(c.StateDir, 0o711)
}
