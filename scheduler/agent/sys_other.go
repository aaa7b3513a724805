//go:build unix && !linux

package agent

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// bootMicros is the system's monotonic clock in µs: it never steps and is the
// same in every process.
func bootMicros() int64 {
	var ts unix.Timespec
	// With a valid clock and pointer it cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano() / 1000
}

func bootID() string { return "" }

func becomeSubreaper() error { return nil }

type procStat struct {
	PID, Parent, Group int
	Start              int64
	Zombie             bool
}

func readStat(pid int) (procStat, bool) {
	if syscall.Kill(pid, 0) != nil {
		return procStat{}, false
	}
	return procStat{PID: pid}, true
}

func listProcesses() []procStat { return nil }

func hasEnv(int, string) bool { return false }

func setFileIdentity(int, int) {}

func inCgroup(*syscall.SysProcAttr, int) {}

func ownExecutable() (string, error) { return os.Executable() }
