package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"tranche/web/api"
)

// ExitRefused is a launcher's exit code when the server refused its claim.
const ExitRefused = 88

// lockFD is where a launcher inherits the held lock of its spool folder.
const lockFD = 3

const (
	claimTimeout  = 10 * time.Second      // one claim call
	claimPatience = time.Hour             // all of them: then the attempt is given back unstarted
	firstPause    = 50 * time.Millisecond // between claim calls; doubles up to lastPause
	lastPause     = 2 * time.Second       //
	killAgain     = 50 * time.Millisecond // between rounds of SIGKILL
	shutdownGrace = 10 * time.Second      // when the machine goes down under us
	endTries      = 60                    // writing the end record, one a second
	drainOutput   = 2 * time.Second       // waiting for output after the last process
	elapsedEvery  = time.Second           // how often the elapsed is persisted
)

// LaunchIfAsked turns this process into a launcher when it was started as
// "<program> agent launch <folder>", and does not return then. Call it first in
// main, before anything is set up.
func LaunchIfAsked() {
	if len(os.Args) == 4 && os.Args[1] == "agent" && os.Args[2] == "launch" {
		os.Exit(Launch(os.Args[3]))
	}
}

// Launch is a launcher's life: claim, run, watch, stop, record. It gives the
// process's exit code: 0 after an end record was written, ExitRefused when the
// claim was refused (a record says so too), 1 when the spool cannot be used.
func Launch(dir string) int {
	syscall.CloseOnExec(lockFD)
	l, err := newLauncher(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		return 1
	}
	end := l.run()
	if err := l.record(end); err != nil {
		fmt.Fprintln(os.Stderr, "launcher: end record:", err)
		return 1
	}
	if end.Cause == api.CauseRefused {
		return ExitRefused
	}
	return 0
}

// launcher holds one attempt's part from its claim to its end record. All of it
// happens in one goroutine; only the copying of output runs beside.
type launcher struct {
	dir    string
	task   task
	state  state
	http   *http.Client
	child  chan os.Signal // SIGCHLD, coalesced
	orders chan os.Signal // SIGUSR1 and the machine's SIGTERM

	main, hook int                // process ids, 0 = not running
	status     syscall.WaitStatus // of main, once mainDone
	mainDone   bool
	ordered    *stop // the stop order that is being carried out
	cause      string
	killing    bool // leftovers of a command that ended are being killed
	termSent   bool
	output     *output
	term, kill *time.Timer
	elapsed    *os.File
}

func newLauncher(dir string) (*launcher, error) {
	l := &launcher{
		dir: dir, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		child: make(chan os.Signal, 1), orders: make(chan os.Signal, 4),
	}
	if err := readJSON(filepath.Join(dir, fileTask), &l.task); err != nil {
		return nil, err
	}
	signal.Notify(l.child, syscall.SIGCHLD)
	signal.Notify(l.orders, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := becomeSubreaper(); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	l.state = state{Phase: api.StateClaiming, PID: os.Getpid(), BootID: bootID()}
	if s, ok := readStat(l.state.PID); ok {
		l.state.Start = s.Start
	}
	var err error
	if l.elapsed, err = os.OpenFile(filepath.Join(dir, fileElapsed), os.O_WRONLY|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	return l, l.save()
}

func (l *launcher) save() error { return writeJSON(filepath.Join(l.dir, fileState), l.state) }

// sinceClaim is real boot-clock µs since the accepted claim, 0 before it.
func (l *launcher) sinceClaim() int64 {
	if l.state.ClaimUS == 0 {
		return 0
	}
	return bootMicros() - l.state.ClaimUS
}

// run leads the attempt to its end and gives the end record.
func (l *launcher) run() api.EndedReport {
	resume, end := l.claim()
	if end != nil {
		return *end
	}
	l.state.Phase = api.StateRunning
	l.task.Order.Spec.Resume = l.task.Order.Spec.Resume || resume
	err := l.save()
	if err == nil {
		err = l.start()
	}
	if err != nil {
		return l.unstarted(api.CauseStartFailed, "the command could not be started: "+err.Error())
	}
	l.watch()
	return l.finish()
}

// claim asks the server for leave to start until it answers. It gives an end
// record when user code must not run.
func (l *launcher) claim() (resume bool, end *api.EndedReport) {
	give := func(cause, detail string) (bool, *api.EndedReport) {
		r := l.unstarted(cause, detail)
		return false, &r
	}
	deadline := time.Now().Add(claimPatience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if l.readStop() != nil {
			return give(api.CauseWithdrawn, "stopped before the command was started")
		}
		reply, err := l.askClaim()
		if err == nil && reply.OK {
			l.state.ClaimUS = bootMicros()
			if l.readStop() != nil {
				return give(api.CauseWithdrawn, "stopped before the command was started")
			}
			return reply.Resume, nil
		}
		if err == nil {
			return give(api.CauseRefused, "the server refused the claim")
		}
		if refusal := refused(err); refusal != nil {
			return give(api.CauseRefused, "the server refused the claim: "+refusal.Error())
		}
		if time.Now().After(deadline) {
			return give(api.CauseWithdrawn, "the server did not answer the claim within an hour")
		}
		select {
		case sig := <-l.orders:
			if sig != syscall.SIGUSR1 {
				return give(api.CauseWithdrawn, "the node shut down before the command was started")
			}
		case <-time.After(pause):
		}
	}
}

// askClaim sends one claim. The token is read anew each time: the agent may
// have enrolled again meanwhile.
func (l *launcher) askClaim() (api.ClaimReply, error) {
	var id identity
	if err := readJSON(l.task.Identity, &id); err != nil {
		return api.ClaimReply{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	o := l.task.Order
	c := &api.Client{Server: l.task.Server, Token: id.Token, HTTP: l.http}
	var reply api.ClaimReply
	err := c.Call(ctx, http.MethodPost, api.PathClaim, api.ClaimRequest{
		Attempt: o.Attempt, Fence: o.Fence, Rank: o.Rank, Launcher: l.task.Launcher,
		PID: l.state.PID, BootUS: bootMicros(),
	}, &reply)
	return reply, err
}

// refused tells a final refusal from what may be different at the next try: a
// token that is being replaced, too many calls, a server that is not there.
func refused(err error) *api.Problem {
	var p *api.Problem
	var gone *api.Unreachable
	if errors.As(err, &gone) || !errors.As(err, &p) {
		return nil
	}
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return nil
	}
	return p
}

// readStop gives the agent's stop order, nil when there is none.
func (l *launcher) readStop() *stop {
	var s stop
	if readJSON(filepath.Join(l.dir, fileStop), &s) != nil {
		return nil // written by rename: there is none, or a whole one
	}
	return &s
}

// watch carries the attempt until its last process is gone.
func (l *launcher) watch() {
	tick := time.NewTicker(elapsedEvery)
	defer tick.Stop()
	l.term, l.kill = stoppedTimer(), stoppedTimer()
	for !l.reap() {
		select {
		case <-l.child:
		case sig := <-l.orders:
			l.obey(sig)
		case <-tick.C:
			l.persistElapsed()
			l.obey(syscall.SIGUSR1) // in case the signal itself was lost
		case <-l.term.C:
			l.sendTerm()
		case <-l.kill.C:
			l.killAll()
			l.kill.Reset(killAgain)
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// reap collects what ended and tells whether everything is gone.
func (l *launcher) reap() (gone bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD) && l.mainDone && !groupAlive(l.state.Group) && !cgroupBusy(l.state.Cgroup):
			return true
		case err != nil || pid == 0:
			l.killLeftovers()
			return false
		case pid == l.main:
			l.status, l.mainDone, l.cause = ws, true, api.CauseExit
			if l.ordered != nil {
				l.cause = api.CauseStopped
			}
		case pid == l.hook:
			l.hook = 0
			l.term.Reset(0)
		}
	}
}

// killLeftovers starts killing what a command left behind that ended by itself.
// After a stop order the others have the rest of the grace.
func (l *launcher) killLeftovers() {
	if l.mainDone && l.ordered == nil && !l.killing {
		l.killing = true
		l.kill.Reset(0)
	}
}

func groupAlive(group int) bool { return syscall.Kill(-group, 0) == nil }

// obey starts or tightens the stop of a running attempt.
func (l *launcher) obey(sig os.Signal) {
	s := l.readStop()
	if s == nil && sig != syscall.SIGUSR1 {
		s = &stop{Kind: "node_shutdown", GraceMS: shutdownGrace.Milliseconds()}
	}
	if s == nil || l.mainDone && l.ordered == nil {
		return
	}
	grace := time.Duration(s.GraceMS) * time.Millisecond
	if l.ordered != nil {
		if s.GraceMS < l.ordered.GraceMS { // a second, harder order never gives more time
			l.ordered.GraceMS = s.GraceMS
			l.kill.Reset(grace)
		}
		return
	}
	l.ordered = s
	l.state.Phase, l.state.TermUS = api.StateEnding, max(1, l.sinceClaim())
	if err := l.save(); err != nil {
		fmt.Fprintln(os.Stderr, "launcher: state:", err) // the stop goes on all the same
	}
	l.kill.Reset(grace)
	if l.checkpoint() {
		l.term.Reset(grace / 2)
		return
	}
	l.sendTerm()
}

func (l *launcher) persistElapsed() {
	// Fixed width: each write covers the one before, so the file is always whole.
	if _, err := l.elapsed.WriteAt(fmt.Appendf(nil, "%020d", l.sinceClaim()), 0); err != nil {
		fmt.Fprintln(os.Stderr, "launcher: elapsed:", err)
	}
}

// finish makes the end record of an attempt whose processes are gone.
func (l *launcher) finish() api.EndedReport {
	end := l.blank()
	end.Started, end.Cause = true, l.cause
	end.ElapsedUS, end.TermUS = l.sinceClaim(), l.state.TermUS
	end.ExitCode = l.status.ExitStatus()
	if l.status.Signaled() {
		end.Signal = int(l.status.Signal())
	}
	if l.ordered != nil {
		end.StopKind = l.ordered.Kind
	}
	l.output.close()
	removeCgroup(l.state.Cgroup)
	if len(l.task.Order.Spec.Nodes) <= 1 {
		_ = os.Remove(l.task.Scratch) // only succeeds on an empty folder nobody will miss
	}
	return end
}

// unstarted makes the end record of an attempt whose command never ran.
func (l *launcher) unstarted(cause, detail string) api.EndedReport {
	end := l.blank()
	end.Cause, end.Detail, end.ExitCode, end.ElapsedUS = cause, detail, -1, l.sinceClaim()
	if s := l.readStop(); s != nil {
		end.StopKind, end.TermUS = s.Kind, end.ElapsedUS
	}
	return end
}

func (l *launcher) blank() api.EndedReport {
	o := l.task.Order
	return api.EndedReport{Attempt: o.Attempt, Fence: o.Fence, Rank: o.Rank, Launcher: l.task.Launcher}
}

// record writes the end record; a full disk is waited for, within a bound.
func (l *launcher) record(end api.EndedReport) error {
	var err error
	for range endTries {
		if err = writeDurable(filepath.Join(l.dir, fileEnd), end); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

// killAll sends SIGKILL to every descendant.
func (l *launcher) killAll() {
	killCgroup(l.state.Cgroup)
	l.signalAll(syscall.SIGKILL)
}

// sendTerm sends SIGTERM, once, to every descendant but a checkpoint hook.
func (l *launcher) sendTerm() {
	if !l.termSent {
		l.termSent = true
		l.signalAll(syscall.SIGTERM)
	}
}

// signalAll signals the command's process group and the descendants outside it.
func (l *launcher) signalAll(sig syscall.Signal) {
	_ = syscall.Kill(-l.state.Group, sig) // gone already is what we want
	for _, p := range descendants(listProcesses(), os.Getpid()) {
		if p.Group == l.state.Group || sig == syscall.SIGTERM && l.hook != 0 && p.Group == l.hook {
			continue
		}
		_ = syscall.Kill(p.PID, sig)
	}
}

// descendants gives all processes below root, in no particular order.
func descendants(all []procStat, root int) []procStat {
	below := map[int][]procStat{}
	for _, p := range all {
		below[p.Parent] = append(below[p.Parent], p)
	}
	var out []procStat
	next := []int{root}
	for len(next) > 0 {
		kids := below[next[0]]
		next = next[1:]
		for _, p := range kids {
			out = append(out, p)
			next = append(next, p.PID)
		}
	}
	return out
}

// checkpointSignal gives the signal by the name a "signal:" checkpoint uses.
func checkpointSignal(name string) (syscall.Signal, bool) {
	switch name {
	case "USR1", "SIGUSR1":
		return syscall.SIGUSR1, true
	case "USR2", "SIGUSR2":
		return syscall.SIGUSR2, true
	case "INT", "SIGINT":
		return syscall.SIGINT, true
	case "HUP", "SIGHUP":
		return syscall.SIGHUP, true
	}
	n, err := strconv.Atoi(name)
	return syscall.Signal(n), err == nil && n > 0 && n < 65
}
