package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// bootMicros is the boot clock in µs: it never steps and counts suspended time.
func bootMicros() int64 {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists since Linux 2.6.39; with a valid pointer it cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano() / 1000
}

// bootID names this boot of the machine, "" where the kernel does not say.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// becomeSubreaper makes orphaned descendants children of this process, so that
// "no children left" means "the whole tree is gone".
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// procStat is what the kernel says of one process.
type procStat struct {
	PID, Parent, Group int
	Start              int64 // clock ticks since boot: with the pid it names a process for good
	Zombie             bool
}

// readStat reads one process; false when there is none.
func readStat(pid int) (procStat, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, false
	}
	// The command name may hold blanks and parentheses: fields count from the last ')'.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return procStat{}, false
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return procStat{}, false
	}
	s := procStat{PID: pid, Zombie: f[0] == "Z" || f[0] == "X"}
	s.Parent, _ = strconv.Atoi(f[1])
	s.Group, _ = strconv.Atoi(f[2])
	s.Start, _ = strconv.ParseInt(f[19], 10, 64)
	return s, true
}

// listProcesses reads the whole process table.
func listProcesses() []procStat {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	out := make([]procStat, 0, len(dirs))
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			out = append(out, s)
		}
	}
	return out
}

// hasEnv tells whether a process was started with the environment entry.
func hasEnv(pid int, entry string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(b, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// setFileIdentity makes this thread open files as the user; the caller holds the
// thread and calls it again with its own ids afterwards.
func setFileIdentity(uid, gid int) {
	if uid == 0 { // going back: the user first, or the group may not be changed
		_ = syscall.Setfsuid(uid)
		_ = syscall.Setfsgid(gid)
		return
	}
	_ = syscall.Setfsgid(gid)
	_ = syscall.Setfsuid(uid)
}

// inCgroup starts the process inside the control group of the open directory.
func inCgroup(attr *syscall.SysProcAttr, fd int) {
	attr.UseCgroupFD, attr.CgroupFD = true, fd
}

// ownExecutable is the running program, also after its file was replaced.
func ownExecutable() (string, error) { return "/proc/self/exe", nil }
