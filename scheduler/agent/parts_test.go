package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/web/api"
)

// An agent that runs as root refuses jobs without a mapped, unprivileged user.
func TestRootNeedsAMappedUser(t *testing.T) {
	for _, c := range []struct {
		users   map[string]string
		uid     int
		refusal string
	}{
		{nil, 0, "no local user"},
		{map[string]string{"bob": "nobody"}, 0, "no local user"},
		{map[string]string{"*": "root"}, 0, "to root"},
		{map[string]string{"ada": "no-such-user-here"}, 0, "no-such-user-here"},
		{map[string]string{"ada": "nobody"}, 0, ""},
		{map[string]string{"*": "nobody"}, 0, ""},
		{nil, 1000, ""},
	} {
		a, err := accountFor(c.users, "ada", c.uid)
		switch {
		case c.refusal == "" && err != nil, c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)):
			t.Errorf("users %v, uid %d: %v, want %q", c.users, c.uid, err, c.refusal)
		case err == nil && (a.UID == 0 || a.Switch != (c.uid == 0)):
			t.Errorf("users %v, uid %d: account %+v", c.users, c.uid, a)
		}
	}
}

// On a root agent the refusal reaches the server as an end record; nothing runs.
func TestRootWithoutMappingReports(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only an agent that runs as root refuses")
	}
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	cfg.Users = nil
	runAgent(t, cfg)
	p.want(order(1, "exit 0"))
	if e := oneEnd(t, p); e.Started || e.Cause != api.CauseNoUser || len(p.claims) != 0 {
		t.Errorf("end record %+v, %d claims", e, len(p.claims))
	}
}

// On a root agent commands run as the mapped user and output files are opened
// with that user's rights.
func TestRootRunsAsMappedUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root changes users")
	}
	p, dir := newPeer(t), openDir(t)
	runAgent(t, testConfig(t, p, dir))
	forbidden := filepath.Join(dir, "roots")
	if err := os.Mkdir(forbidden, 0o700); err != nil {
		t.Fatal(err)
	}
	bad := order(2, "exit 0")
	bad.Spec.Output = filepath.Join(forbidden, "out")
	p.want(order(1, "id -un"), bad)
	until(t, "both ends", func() bool { return len(p.ends()) == 2 })
	if got := p.log(1); got != "nobody\n" {
		t.Errorf("ran as %q", got)
	}
	for _, e := range p.ends() {
		if e.Attempt == 2 && (e.Started || e.Cause != api.CauseStartFailed) {
			t.Errorf("wrote where the user may not: %+v", e)
		}
	}
}

// Output beyond the cap is cut and said; the command never blocks on it.
func TestOutputIsCapped(t *testing.T) {
	p := newPeer(t)
	cfg := testConfig(t, p, openDir(t))
	cfg.LogCap = 1000
	runAgent(t, cfg)
	p.want(order(1, "head -c 300000 /dev/zero | tr '\\0' x; exit 6"))
	if e := oneEnd(t, p); e.ExitCode != 6 {
		t.Errorf("end record %+v", e)
	}
	if got := p.log(1); !strings.HasPrefix(got, strings.Repeat("x", 1000)+"\n[output cut") || len(got) > 1100 {
		t.Errorf("%d bytes of output kept", len(got))
	}
}

// A reboot under an attempt gives what was proven before it.
func TestRebootSettlesPersistedElapsed(t *testing.T) {
	dir := t.TempDir()
	s := state{Phase: api.StateRunning, PID: 1, BootID: "another boot", ClaimUS: 5, Group: 1, TermUS: 0}
	if err := writeJSON(filepath.Join(dir, fileState), s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileElapsed), []byte("00000000000004000123"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := settleLost(context.Background(), dir, task{Order: order(1, "x")})
	if err != nil || e.Cause != api.CauseRebooted || e.ElapsedUS != 4_000_123 || !e.Started {
		t.Errorf("%+v %v", e, err)
	}
	var again api.EndedReport
	if err := readJSON(filepath.Join(dir, fileEnd), &again); err != nil || again != e {
		t.Errorf("recorded %+v %v", again, err)
	}
}

// The real collector reads the driver tool's table and tolerates what a board
// does not tell.
func TestNvidiaSMI(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "smi")
	script := `#!/bin/sh
case "$1" in
*name*) printf '0, GPU-aa, NVIDIA H100 80GB HBM3, 81559\n1, GPU-bb, NVIDIA H100 80GB HBM3, 81559\n';;
*) printf '0, 97, 70000\n1, [N/A], [Unknown Error]\n';;
esac`
	if err := os.WriteFile(tool, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	n := NvidiaSMI{Command: tool}
	found, err := n.Discover(context.Background())
	if err != nil || len(found) != 2 || found[1] != (api.Device{Index: 1, UUID: "GPU-bb", Model: "NVIDIA H100 80GB HBM3", HBMMiB: 81559}) {
		t.Errorf("devices %+v %v", found, err)
	}
	use, err := n.Read(context.Background(), nil)
	want := []api.DeviceUse{{Index: 0, UtilPct: 97, HBMUsedMiB: 70000, OK: true}, {Index: 1, UtilPct: -1}}
	if err != nil || len(use) != 2 || use[0] != want[0] || use[1] != want[1] {
		t.Errorf("use %+v %v", use, err)
	}
	if _, err := (NvidiaSMI{Command: "no-such-tool-here"}).Discover(context.Background()); err == nil {
		t.Error("a missing driver was not noticed")
	}
}

// Simulated devices are busy exactly where an attempt is.
func TestSimulatedUse(t *testing.T) {
	s := Simulated{Node: "n", Count: 3, Model: "H100", HBMMiB: 80000}
	use, err := s.Read(context.Background(), map[int][]Tenant{1: {{9, 1000}}, 2: {{8, 300}, {7, 200}}})
	if err != nil || len(use) != 3 {
		t.Fatalf("%v %v", use, err)
	}
	for i, u := range use {
		if i == 2 {
			if u.UtilPct > 50 || u.UtilPct < 20 || u.HBMUsedMiB > 40000 || u.HBMUsedMiB < 15000 {
				t.Errorf("half of a device in use: %+v", u)
			}
			continue
		}
		busy := i == 1
		if !u.OK || (u.UtilPct > 50) != busy || (u.HBMUsedMiB > 30000) != busy || u.UtilPct > 100 || u.HBMUsedMiB > 80000 {
			t.Errorf("device %d: %+v", i, u)
		}
	}
}

// Only the unified hierarchy is used, and only where a folder can be made.
func TestControlGroups(t *testing.T) {
	root := t.TempDir()
	self := []byte("1:cpu:/old\n0::/here\n")
	if got := ownCgroup(root, self); got != "" {
		t.Errorf("older hierarchy gave %q", got)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	parent := ownCgroup(root, self)
	if parent != filepath.Join(root, "here") || makeCgroup(parent, "x") != "" {
		t.Errorf("own group %q", parent)
	}
	if err := os.Mkdir(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	made := makeCgroup(parent, "x")
	if made != filepath.Join(parent, "tranche-x") || cgroupBusy(made) {
		t.Errorf("made %q", made)
	}
	if err := os.WriteFile(filepath.Join(made, "cgroup.events"), []byte("populated 1\nfrozen 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !cgroupBusy(made) {
		t.Error("a populated group counts as empty")
	}
}

func TestSpoolKeys(t *testing.T) {
	k := key{881, 12, 3}
	if got, ok := parseKey(k.String()); !ok || got != k {
		t.Errorf("%v became %v", k, got)
	}
	for _, bad := range []string{"", "1-2", "1-2-x", "01-2-3", "1-2-3-4"} {
		if _, ok := parseKey(bad); ok {
			t.Errorf("%q taken for a key", bad)
		}
	}
}
