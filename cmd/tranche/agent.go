package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"tranche/scheduler/agent"
	"tranche/web/api"
)

type agentCommand struct {
	Name           string            `help:"Node name; default this machine's host name."`
	Pool           string            `help:"Pool to join; default as the server says."`
	EnrolTokenFile string            `help:"File with the enrol token, for the first start; or set TRANCHE_ENROL_TOKEN." type:"existingfile" placeholder:"FILE"`
	StateDir       string            `help:"Folder for identity and running attempts, on a local disk; default /var/lib/tranche-agent for root, else your state folder." placeholder:"DIR"`
	ScratchDir     string            `help:"Folder of the jobs' scratch folders; best on a file system all nodes of the pool share." placeholder:"DIR"`
	Devices        string            `help:"auto, none, nvidia, or sim:COUNT:MODEL:HBM_MIB for devices that do not exist." default:"auto"`
	UserMap        map[string]string `help:"Local user for a sign-in name; * stands for everybody else. Needed when the agent runs as root." placeholder:"NAME=LOCAL"`
	Topology       string            `help:"Where the node stands, outermost first." placeholder:"ROOM/RACK/SWITCH"`
	CPUMilli       int64             `help:"Thousandths of cores to offer; default all."`
	RAMMiB         int64             `name:"ram-mib" help:"MiB of memory to offer; default all."`
	NetMbps        int64             `help:"Network bandwidth to offer, Mbit/s."`
	StoMbps        int64             `help:"Storage bandwidth to offer, MB/s."`
	IOCMilli       int64             `name:"ioc-milli" help:"I/O capacity to offer, thousandths."`
	RepairHook     string            `help:"Shell command to run, as the agent's user, once each time the node is drained and empty." placeholder:"COMMAND"`
	HealthHook     string            `help:"Shell command that tells every minute how the node is: exit 0 good, 1 degraded, 2 fault; the first line it prints is the reason." placeholder:"COMMAND"`
	StorageHook    string            `help:"Shell command that prints every 10 seconds what percentage of its nominal bandwidth the node's storage gives." placeholder:"COMMAND"`
	LogLevel       slog.Level        `help:"Least level that is logged: debug, info, warn or error." default:"info"`
}

// Help adds examples.
func (agentCommand) Help() string {
	return `Enrols this machine and runs what the server places on it. Jobs outlive the agent:
after a restart it finds them again. Under systemd set KillMode=process.

Examples:
  tranche agent --server https://tranche.example.org --enrol-token-file /etc/tranche/enrol --user-map '*=nobody'
  tranche agent --server http://localhost:8080 --name sim1 --devices sim:8:H100:81559 --state-dir /tmp/sim1`
}

// Run is the agent until it is interrupted.
func (c *agentCommand) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.config(ctx, t)
	if err != nil {
		return err
	}
	return agent.Run(ctx, cfg)
}

func (c *agentCommand) config(ctx context.Context, t *terminal) (agent.Config, error) {
	cfg := agent.Config{
		Server: strings.TrimRight(t.Server, "/"), Name: c.Name, Pool: c.Pool, StateDir: c.StateDir,
		ScratchDir: c.ScratchDir, Users: c.UserMap, RepairHook: c.RepairHook, HealthHook: c.HealthHook, StorageHook: c.StorageHook, Version: version(),
		Offer: api.Capacities{
			CPUMilli: c.CPUMilli, RAMMiB: c.RAMMiB, NetMbps: c.NetMbps, StoMbps: c.StoMbps,
			IOCMilli: c.IOCMilli, Topology: c.Topology,
		},
		Log: slog.New(slog.NewTextHandler(t.Err, &slog.HandlerOptions{Level: c.LogLevel})),
	}
	if cfg.Server == "" {
		return cfg, &usageError{"name the server: tranche agent --server https://…"}
	}
	var err error
	if cfg.Name == "" {
		if cfg.Name, err = os.Hostname(); err != nil {
			return cfg, fmt.Errorf("name this node with --name: %w", err)
		}
	}
	if cfg.EnrolToken, err = c.enrolToken(); err != nil {
		return cfg, err
	}
	if cfg.StateDir == "" {
		if cfg.StateDir, err = defaultStateDir(os.Getuid()); err != nil {
			return cfg, err
		}
	}
	if cfg.Devices, err = deviceSource(ctx, c.Devices, cfg.Name); err != nil {
		return cfg, err
	}
	if _, simulated := cfg.Devices.(agent.Simulated); simulated {
		cfg.Flow = agent.SimulatedFlow{}
	}
	return cfg, nil
}

// enrolToken comes from a file or the environment, never from the command line,
// which everybody on the machine can read.
func (c *agentCommand) enrolToken() (string, error) {
	if c.EnrolTokenFile == "" {
		return os.Getenv("TRANCHE_ENROL_TOKEN"), nil
	}
	b, err := os.ReadFile(c.EnrolTokenFile)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

func defaultStateDir(uid int) (string, error) {
	if uid == 0 {
		return "/var/lib/tranche-agent", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "tranche-agent"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("name a folder with --state-dir: %w", err)
	}
	return filepath.Join(home, ".local", "state", "tranche-agent"), nil
}

// deviceSource reads --devices. "auto" takes the NVIDIA driver where its tool is
// installed, and then insists on it: a node whose GPUs vanished is no CPU node.
func deviceSource(ctx context.Context, text, node string) (agent.DeviceSource, error) {
	switch {
	case text == "none":
		return agent.NoDevices{}, nil
	case text == "nvidia":
		return agent.NvidiaSMI{}, nil
	case text == "auto":
		if _, err := exec.LookPath("nvidia-smi"); errors.Is(err, exec.ErrNotFound) {
			return agent.NoDevices{}, nil
		}
		_, err := agent.NvidiaSMI{}.Discover(ctx)
		return agent.NvidiaSMI{}, err
	}
	part := strings.Split(text, ":")
	if len(part) == 4 && part[0] == "sim" {
		count, err1 := strconv.Atoi(part[1])
		hbm, err2 := strconv.ParseInt(part[3], 10, 64)
		if err1 == nil && err2 == nil && count > 0 && count <= 64 && hbm > 0 && part[2] != "" {
			return agent.Simulated{Node: node, Count: count, Model: part[2], HBMMiB: hbm}, nil
		}
	}
	return nil, &usageError{"--devices is auto, none, nvidia or sim:COUNT:MODEL:HBM_MIB, such as sim:8:H100:81559"}
}

// version is the program's own, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
