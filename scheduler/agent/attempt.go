package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"tranche/web/api"
)

const (
	adoptedPoll  = 200 * time.Millisecond // how often a launcher that is not our child is looked at
	flushLimit   = 2 * time.Second        // for output before the end report
	leftoverLogs = time.Minute            // for the rest of the output after it
)

// attempt is the agent's side of one attempt's part.
type attempt struct {
	key     key
	dir     string
	task    task
	adopted bool          // the launcher is not this process's child
	exited  chan struct{} // closed when our child launcher has ended; nil without one

	mu      sync.Mutex
	ended   *api.EndedReport // once known
	ordered *stop            // the stop order already written

	sent int64 // bytes of output the server has; used by conclude alone
}

// begin takes up an order for an attempt that is not on this node yet. Whatever
// keeps it from starting becomes its end record.
func (n *node) begin(ctx context.Context, k key, o api.Order) {
	a := &attempt{key: k, dir: filepath.Join(n.cfg.StateDir, "attempts", k.String())}
	acc, refusal := accountFor(n.cfg.Users, o.Spec.User, os.Getuid())
	a.task = task{
		Order: o, Server: n.cfg.Server, Identity: n.identityPath(), Launcher: rand.Text(), Account: acc,
		Scratch: filepath.Join(n.cfg.ScratchDir, fmt.Sprintf("job-%d", o.Spec.Job)), LogCap: n.cfg.LogCap,
		Notices: n.noticePath(k),
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		n.cfg.Log.Error("spool", "node", n.cfg.Name, "attempt", k.Attempt, "error", err)
		return // nothing started: the order is still there at the next poll
	}
	err := errors.Join(writeJSON(filepath.Join(a.dir, fileTask), a.task), n.makeNotices(k))
	switch {
	case err != nil:
	case o.Action != api.ActionStart:
		err = a.giveUp(api.CauseUnknown, "this node has no trace of the attempt")
	case refusal != nil:
		err = a.giveUp(api.CauseNoUser, refusal.Error())
	default:
		if startErr := n.startLauncher(a); startErr != nil {
			err = a.giveUp(api.CauseStartFailed, "the launcher could not be started: "+startErr.Error())
		}
	}
	if err != nil {
		n.cfg.Log.Error("spool", "node", n.cfg.Name, "attempt", k.Attempt, "error", err)
		return
	}
	n.watch(ctx, a)
}

// giveUp writes the end record of an attempt that has no launcher.
func (a *attempt) giveUp(cause, detail string) error {
	return writeDurable(filepath.Join(a.dir, fileEnd), api.EndedReport{
		Attempt: a.key.Attempt, Fence: a.key.Fence, Rank: a.key.Rank, Launcher: a.task.Launcher,
		ExitCode: -1, Cause: cause, Detail: detail, StopKind: a.task.Order.StopKind,
	})
}

// startLauncher starts the launcher in a session of its own. It inherits the
// held lock, so that there is no moment at which it lives unseen.
func (n *node) startLauncher(a *attempt) error {
	lock, err := takeLock(filepath.Join(a.dir, fileLock))
	if err != nil {
		return err
	}
	if lock == nil {
		return errors.New("its spool folder is in use")
	}
	defer func() { _ = lock.Close() }() // our copy; the launcher's keeps the lock
	complaints, err := os.OpenFile(filepath.Join(a.dir, "launcher.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = complaints.Close() }() // our copy
	cmd := exec.Command(n.cfg.Launcher[0], append(n.cfg.Launcher[1:len(n.cfg.Launcher):len(n.cfg.Launcher)], a.dir)...)
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Stderr, cmd.Env = complaints, launcherEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	a.exited = make(chan struct{})
	go func() {
		_ = cmd.Wait() // what it has to say is in the spool
		close(a.exited)
	}()
	return nil
}

// launcherEnv is what a launcher needs of our environment: how to reach the
// server, and one thread, which keeps it small.
func launcherEnv() []string {
	env := []string{"GOMAXPROCS=1"}
	for _, name := range []string{"PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// stop passes a stop order to the launcher. A second order only counts when it
// leaves less time.
func (a *attempt) stop(log *slog.Logger, s stop) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil || a.ordered != nil && s.GraceMS >= a.ordered.GraceMS {
		return
	}
	if a.ordered != nil {
		s.Kind = a.ordered.Kind
	}
	if err := writeJSON(filepath.Join(a.dir, fileStop), s); err != nil {
		log.Error("stop order", "attempt", a.key.Attempt, "error", err)
		return // the next poll repeats the order
	}
	a.ordered = &s
	var st state
	if readJSON(filepath.Join(a.dir, fileState), &st) != nil {
		return // it has not looked around yet and will see the order when it does
	}
	if p, ok := readStat(st.PID); ok && p.Start == st.Start {
		_ = syscall.Kill(st.PID, syscall.SIGUSR1) // gone already: its record tells
	}
}

// seen is what the node knows of the attempt now.
func (a *attempt) seen() api.AttemptSeen {
	out := api.AttemptSeen{Attempt: a.key.Attempt, Fence: a.key.Fence, Rank: a.key.Rank, State: api.StateClaiming}
	a.mu.Lock()
	end := a.ended
	a.mu.Unlock()
	if end != nil {
		out.State, out.ElapsedUS = api.StateEnded, end.ElapsedUS
		return out
	}
	var s state
	if readJSON(filepath.Join(a.dir, fileState), &s) != nil || s.BootID != bootID() {
		return out
	}
	out.State = s.Phase
	// The launcher's own word, at most a second old: computed here it could
	// exceed what the end record is about to say, and would be charged.
	out.ElapsedUS = persistedElapsed(a.dir)
	return out
}

// conclude waits for an attempt's end, reports it until it is acknowledged, and
// clears the spool. It fails when the spool cannot be used or ctx ends.
func (n *node) conclude(ctx context.Context, a *attempt) error {
	if err := n.awaitLauncher(ctx, a); err != nil {
		return err
	}
	var end api.EndedReport
	err := readJSON(filepath.Join(a.dir, fileEnd), &end)
	if errors.Is(err, fs.ErrNotExist) {
		end, err = settleLost(ctx, a.dir, a.task)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.ended = &end
	a.mu.Unlock()
	flush, cancel := context.WithTimeout(ctx, flushLimit)
	logsErr := n.ship(flush, a)
	cancel()
	if err := n.report(ctx, end); err != nil {
		return err
	}
	if logsErr != nil {
		rest, cancel := context.WithTimeout(ctx, leftoverLogs)
		defer cancel()
		err := n.retry(rest, "logs", func() (bool, error) {
			err := n.ship(rest, a)
			return refused(err) != nil, err
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			n.cfg.Log.Warn("output lost", "node", n.cfg.Name, "attempt", a.key.Attempt, "error", err)
		}
	}
	if n.cfg.KeepEnds != "" {
		err := os.Rename(filepath.Join(a.dir, fileEnd), filepath.Join(n.cfg.KeepEnds, a.key.String()+".json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a lost launcher left none
			return err
		}
	}
	n.dropNotices(a.key)
	return os.RemoveAll(a.dir)
}

// report sends the end record until it is acknowledged. A refusal that will not
// change is an acknowledgement too: the server has closed the attempt its way.
func (n *node) report(ctx context.Context, end api.EndedReport) error {
	return n.retry(ctx, "ended", func() (bool, error) {
		var reply api.EndedReply
		err := n.call(ctx, callTimeout, api.PathEnded, end, &reply)
		if p := refused(err); p != nil {
			n.cfg.Log.Warn("end record refused", "node", n.cfg.Name, "attempt", end.Attempt, "error", p)
			return true, nil
		}
		return false, err
	})
}

// awaitLauncher returns when no launcher lives in the attempt's folder; until
// then it sends output.
func (n *node) awaitLauncher(ctx context.Context, a *attempt) error {
	if !a.adopted && a.exited == nil {
		return nil // never had one
	}
	every := n.cfg.LogEvery
	if a.adopted {
		every = min(every, adoptedPoll)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	nextLogs := time.Now()
	for {
		if a.adopted {
			lives, err := launcherLives(a.dir)
			if err != nil || !lives {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.exited:
			return nil
		case <-tick.C:
		}
		if time.Now().Before(nextLogs) {
			continue
		}
		nextLogs = time.Now().Add(n.cfg.LogEvery)
		if err := n.ship(ctx, a); err != nil {
			n.cfg.Log.Debug("output not sent", "node", n.cfg.Name, "attempt", a.key.Attempt, "error", err)
		}
	}
}

// ship sends the output the server does not have yet. A found-again attempt
// first asks, with an empty piece, how much that is.
func (n *node) ship(ctx context.Context, a *attempt) error {
	f, err := os.Open(filepath.Join(a.dir, fileOutput))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	ask := a.adopted && a.sent == 0
	buf := make([]byte, api.MaxLogChunk)
	for {
		size := 0
		if !ask {
			size, err = f.ReadAt(buf, a.sent)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if size == 0 {
				return nil
			}
		}
		var reply api.LogReply
		chunk := api.LogChunk{Attempt: a.key.Attempt, Rank: a.key.Rank, Offset: a.sent, Data: buf[:size]}
		if err := n.call(ctx, callTimeout, api.PathLogs, chunk, &reply); err != nil {
			return err
		}
		if !ask && reply.NextOffset <= a.sent {
			return fmt.Errorf("the server keeps this output at %d, after a piece from %d on", reply.NextOffset, a.sent)
		}
		a.sent, ask = reply.NextOffset, false
	}
}
