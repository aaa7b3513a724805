package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clearOrphan stops a server that a killed program left on data and removes a
// postmaster.pid whose number now belongs to something else. The caller holds
// the folder's lock, so nobody else's server can be running there.
func clearOrphan(ctx context.Context, data string) error {
	file := filepath.Join(data, "postmaster.pid")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 || !servesFolder(ctx, pid, data) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the stale %s: %w", file, err)
		}
		return nil
	}
	if err := signal(pid, syscall.SIGINT); err != nil {
		return err
	}
	return awaitEnd(ctx, pid, data)
}

// awaitEnd waits 10 seconds for an orphan to shut down, then kills it.
func awaitEnd(ctx context.Context, pid int, data string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for servesFolder(ctx, pid, data) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			if err := signal(-pid, syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
	return nil
}

// servesFolder tells whether process pid lives and was started with data as its
// data folder.
func servesFolder(ctx context.Context, pid int, data string) bool {
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		return strings.Contains(string(line), data)
	}
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		return false // this system has /proc, so the process is gone
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), data)
}
