package agent

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroupRoot is where the unified hierarchy is mounted when there is one.
const cgroupRoot = "/sys/fs/cgroup"

// ownCgroup gives the folder of this process's control group. It is "" unless
// the machine runs the unified hierarchy (v2): on the older ones processes are
// followed by the subreaper alone.
func ownCgroup(root string, self []byte) string {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(self), "\n") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return filepath.Join(root, path)
		}
	}
	return ""
}

// makeCgroup makes a control group for one attempt below parent, "" where that
// is not allowed: then the subreaper has to do.
func makeCgroup(parent, name string) string {
	if parent == "" {
		return ""
	}
	path := filepath.Join(parent, "tranche-"+name)
	if err := os.Mkdir(path, 0o755); err != nil && !os.IsExist(err) {
		return ""
	}
	return path
}

// killCgroup sends SIGKILL to everything in a control group, also to what was
// forked meanwhile or went into a session of its own.
func killCgroup(path string) {
	if path != "" {
		// Missing before Linux 5.14 or already removed: the other ways to kill remain.
		_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0o600)
	}
}

// cgroupBusy tells whether a control group still holds a living process.
func cgroupBusy(path string) bool {
	if path == "" {
		return false
	}
	b, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
	return err == nil && strings.Contains(string(b), "populated 1")
}

// removeCgroup removes an empty control group; the kernel may need a moment.
func removeCgroup(path string) {
	for range 20 {
		if path == "" || os.Remove(path) == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
