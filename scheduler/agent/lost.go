package agent

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"tranche/web/api"
)

// settleLost cleans up after a launcher that died without an end record and
// writes that record in its place. It returns when nothing of the attempt runs
// any more: only then are its devices free.
//
// The elapsed is what is proven: up to now if the command was still running,
// else the last value the launcher persisted. It fails when the spool cannot be
// used, or with the context's error while something still refuses to die.
func settleLost(ctx context.Context, dir string, t task) (api.EndedReport, error) {
	o := t.Order
	end := api.EndedReport{
		Attempt: o.Attempt, Fence: o.Fence, Rank: o.Rank, Launcher: t.Launcher,
		ExitCode: -1, Cause: api.CauseLauncherLost, Detail: "the launcher died without an end record",
	}
	var s state
	err := readJSON(filepath.Join(dir, fileState), &s)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it died before it could claim
	case err != nil:
		return end, err
	case s.BootID != bootID():
		end.Cause, end.Detail = api.CauseRebooted, "the node restarted"
		end.ElapsedUS = persistedElapsed(dir)
	default:
		end.ElapsedUS = persistedElapsed(dir)
		ran, err := killOrphans(ctx, s, t.Launcher)
		if err != nil {
			return end, err
		}
		if ran && s.ClaimUS > 0 {
			end.ElapsedUS = bootMicros() - s.ClaimUS
		}
	}
	end.Started, end.TermUS = s.Group > 0, s.TermUS
	end.ElapsedUS = max(end.ElapsedUS, end.TermUS)
	var ordered stop
	if readJSON(filepath.Join(dir, fileStop), &ordered) == nil {
		end.StopKind = ordered.Kind
	}
	return end, writeDurable(filepath.Join(dir, fileEnd), end)
}

// killOrphans kills all that a dead launcher left running and waits for it to
// go. It tells whether the attempt's own processes were still there. Processes are
// found by their control group, their process group and the launcher's name in
// their environment; a process group whose number was given out again is left alone.
func killOrphans(ctx context.Context, s state, launcher string) (ran bool, err error) {
	mark := "TRANCHE_LAUNCHER=" + launcher
	for {
		killCgroup(s.Cgroup)
		alive := orphans(s, mark)
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is what we want
		}
		if len(alive) == 0 && !cgroupBusy(s.Cgroup) {
			removeCgroup(s.Cgroup)
			return ran, nil
		}
		ran = true
		select {
		case <-ctx.Done():
			return ran, ctx.Err()
		case <-time.After(killAgain):
		}
	}
}

// orphans lists the living processes of a dead launcher.
func orphans(s state, mark string) []int {
	var members, out []int
	ours := false
	for _, p := range listProcesses() {
		if p.Zombie {
			continue
		}
		marked := hasEnv(p.PID, mark)
		switch {
		case s.Group > 0 && p.Group == s.Group:
			members = append(members, p.PID)
			ours = ours || marked
		case marked:
			out = append(out, p.PID)
		}
	}
	if ours {
		out = append(out, members...)
	}
	return out
}
