package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// StopLaunchers ends whatever runs under a state folder, as the machine's own
// shutdown would: SIGTERM to each launcher, which passes it on, kills what stays
// and writes its end record. It returns when all are gone, or with ctx's error.
// Agents alive meanwhile report the ends; otherwise the next one does.
func StopLaunchers(ctx context.Context, stateDir string) error {
	root := filepath.Join(stateDir, "attempts")
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := parseKey(e.Name()); !ok {
			continue
		}
		if err := stopLauncher(filepath.Join(root, e.Name())); err != nil {
			return err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, e := range entries {
		for {
			// A folder that is gone was concluded by its agent.
			lives, err := launcherLives(filepath.Join(root, e.Name()))
			if errors.Is(err, fs.ErrNotExist) || err == nil && !lives {
				break
			}
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("launchers under %s are still alive: %w", stateDir, ctx.Err())
			case <-tick.C:
			}
			// Again, for one that was too young to be found the first time.
			if err := stopLauncher(filepath.Join(root, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopLauncher signals one launcher if it lives.
func stopLauncher(dir string) error {
	lives, err := launcherLives(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !lives {
		return nil
	}
	if err != nil {
		return err
	}
	var s state
	if err := readJSON(filepath.Join(dir, fileState), &s); err != nil {
		return nil // it has only just been started; the caller's wait covers it
	}
	p, ok := readStat(s.PID)
	if !ok || p.Start != s.Start {
		return nil
	}
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop launcher %d: %w", s.PID, err)
	}
	return nil
}
