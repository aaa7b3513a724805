package agent

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// basePath is what a command finds programs with; the agent's own environment
// is never passed on.
const basePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start starts the command in a session of its own. It fails without having run
// anything of the user.
func (l *launcher) start() error {
	spec, acc := l.task.Order.Spec, l.task.Account
	if err := makeScratch(l.task.Scratch, acc); err != nil {
		return err
	}
	var err error
	if l.output, err = openOutput(l.dir, l.task); err != nil {
		return err
	}
	self, _ := os.ReadFile("/proc/self/cgroup") // not there: no control group
	l.state.Cgroup = makeCgroup(ownCgroup(cgroupRoot, self), l.task.Launcher)
	attr := l.attributes(&syscall.SysProcAttr{Setsid: true})
	if l.state.Cgroup != "" {
		l.main, err = l.forkIntoCgroup(spec.Command, attr)
	}
	if l.state.Cgroup == "" || err != nil {
		removeCgroup(l.state.Cgroup)
		l.state.Cgroup = ""
		l.main, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", spec.Command}, attr)
	}
	if err != nil {
		l.output.close()
		return fmt.Errorf("in %s as %s: %w", attr.Dir, acc.Name, err)
	}
	l.state.Group = l.main
	if err := l.save(); err != nil { // the agent could not clean up after us: do not run unseen
		_ = syscall.Kill(-l.main, syscall.SIGKILL)
		return errors.Join(err, l.awaitKilled())
	}
	return nil
}

// forkIntoCgroup starts the command inside its control group.
func (l *launcher) forkIntoCgroup(command string, attr *syscall.ProcAttr) (int, error) {
	d, err := os.Open(l.state.Cgroup)
	if err != nil {
		return 0, err
	}
	sys := *attr.Sys
	inCgroup(&sys, int(d.Fd()))
	a := *attr
	a.Sys = &sys
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", command}, &a)
	return pid, errors.Join(err, d.Close())
}

func (l *launcher) awaitKilled() error {
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(l.main, &ws, 0, nil)
	return err
}

// checkpoint starts the checkpoint hook and tells whether SIGTERM should wait
// for it (until it ends, or half of the grace).
func (l *launcher) checkpoint() bool {
	hook := l.task.Order.Spec.Checkpoint
	if hook == "" || l.mainDone {
		return false
	}
	if name, ok := strings.CutPrefix(hook, "signal:"); ok {
		sig, known := checkpointSignal(name)
		return known && syscall.Kill(-l.state.Group, sig) == nil
	}
	attr := l.attributes(&syscall.SysProcAttr{Setsid: true})
	attr.Env = append(attr.Env, "TRANCHE_PID="+strconv.Itoa(l.main))
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", hook}, attr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher: checkpoint hook:", err)
		return false
	}
	l.hook = pid
	return true
}

// attributes are what command and hook share.
func (l *launcher) attributes(sys *syscall.SysProcAttr) *syscall.ProcAttr {
	acc := l.task.Account
	if acc.Switch {
		sys.Credential = &syscall.Credential{Uid: uint32(acc.UID), Gid: uint32(acc.GID), Groups: unsigned(acc.Groups)}
	}
	return &syscall.ProcAttr{
		Dir: l.workDir(), Env: l.environment(), Sys: sys,
		Files: []uintptr{l.output.null.Fd(), l.output.write.Fd(), l.output.write.Fd()},
	}
}

func unsigned(ids []int) []uint32 {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = uint32(id)
	}
	return out
}

func (l *launcher) workDir() string {
	if d := l.task.Order.Spec.WorkDir; d != "" {
		return d
	}
	return l.task.Scratch
}

// environment is the whole environment of the command: the user's entries,
// then ours, which win.
func (l *launcher) environment() []string {
	o, acc := l.task.Order, l.task.Account
	env := map[string]string{
		"PATH": basePath, "HOME": acc.Home, "USER": acc.Name, "LOGNAME": acc.Name,
		"SHELL": "/bin/sh", "LANG": "C.UTF-8",
	}
	maps.Copy(env, o.Spec.Env)
	devices := make([]string, len(o.Spec.Devices))
	for i, d := range o.Spec.Devices {
		devices[i] = strconv.Itoa(d)
	}
	maps.Copy(env, map[string]string{
		"TRANCHE_JOB":          strconv.FormatInt(int64(o.Spec.Job), 10),
		"TRANCHE_ATTEMPT":      strconv.FormatInt(int64(o.Attempt), 10),
		"TRANCHE_RESUME":       "0",
		"TRANCHE_NODES":        strings.Join(o.Spec.Nodes, ","),
		"TRANCHE_RANK":         strconv.Itoa(o.Rank),
		"TRANCHE_PROJECT":      o.Spec.Project,
		"TRANCHE_SCRATCH":      l.task.Scratch,
		"TRANCHE_NOTICES":      l.task.Notices,
		"TRANCHE_LAUNCHER":     l.task.Launcher,
		"CUDA_DEVICE_ORDER":    "PCI_BUS_ID", // the order nvidia-smi counts in
		"CUDA_VISIBLE_DEVICES": strings.Join(devices, ","),
	})
	if o.Spec.Resume {
		env["TRANCHE_RESUME"] = "1"
	}
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// makeScratch makes the job's scratch folder, private to its user.
func makeScratch(path string, acc account) error {
	err := os.Mkdir(path, 0o700)
	if os.IsExist(err) {
		return nil
	}
	if err == nil && acc.Switch {
		err = os.Chown(path, acc.UID, acc.GID)
	}
	if err != nil {
		return fmt.Errorf("scratch folder: %w", err)
	}
	return nil
}

// output takes what the command prints: into the spool's log up to a cap, and
// whole into the user's output file if one is named.
type output struct {
	null, read, write *os.File
	log, copy         *os.File
	room              int64
	done              chan struct{}
}

func openOutput(dir string, t task) (*output, error) {
	o := &output{room: t.LogCap, done: make(chan struct{})}
	var err error
	if o.null, err = os.Open(os.DevNull); err != nil {
		return nil, err
	}
	if o.log, err = os.OpenFile(filepath.Join(dir, fileOutput), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	if path := t.Order.Spec.Output; path != "" {
		if !filepath.IsAbs(path) {
			base := t.Order.Spec.WorkDir
			if base == "" {
				base = t.Scratch
			}
			path = filepath.Join(base, path)
		}
		if o.copy, err = openAs(t.Account, path); err != nil {
			return nil, fmt.Errorf("output file: %w", err)
		}
	}
	if o.read, o.write, err = os.Pipe(); err != nil {
		return nil, err
	}
	go o.pump()
	return o, nil
}

// openAs opens a file for appending with the user's own rights, never root's.
func openAs(acc account, path string) (*os.File, error) {
	if acc.Switch {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		setFileIdentity(acc.UID, acc.GID)
		defer setFileIdentity(os.Getuid(), os.Getgid())
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

// pump copies until the last writer is gone. A full disk never blocks the
// command: what cannot be written is dropped.
func (o *output) pump() {
	defer close(o.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := o.read.Read(buf)
		if n > 0 {
			o.keep(buf[:n])
		}
		if errors.Is(err, io.EOF) || err != nil {
			return
		}
	}
}

func (o *output) keep(b []byte) {
	if o.copy != nil {
		_, _ = o.copy.Write(b) // the user's own disk; the log below still has it
	}
	if o.room <= 0 {
		return
	}
	n := min(int64(len(b)), o.room)
	_, _ = o.log.Write(b[:n]) // a full spool loses output, never the end record
	if o.room -= n; o.room == 0 {
		_, _ = o.log.WriteString("\n[output cut here: the log is full]\n")
	}
}

// close waits for the rest of the output, within a bound: a descriptor may have
// been handed to a process outside.
func (o *output) close() {
	_ = o.write.Close()
	select {
	case <-o.done:
	case <-time.After(drainOutput):
	}
	for _, f := range []*os.File{o.null, o.read, o.log, o.copy} {
		if f != nil {
			_ = f.Close() // nothing buffered here, every write was already answered
		}
	}
}
