package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// noticePath is the file in which an attempt's command reads what it is told,
// StateDir/notices/<key>: one sentence a line, written by the agent alone. It is
// outside the spool, which the job's user cannot look into.
func (n *node) noticePath(k key) string {
	return filepath.Join(n.cfg.StateDir, "notices", k.String())
}

// makeNotices makes the empty file, readable by everybody: it names no secrets,
// and who runs the command need not be who runs the agent.
func (n *node) makeNotices(k key) error {
	f, err := os.OpenFile(n.noticePath(k), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("notice file: %w", err)
	}
	return errors.Join(f.Chmod(0o644), f.Close()) // whatever the umask
}

// tell adds the sentences that are not in the file yet. The server repeats them
// with every answer, so a failed or cut write is made good at the next.
func (n *node) tell(k key, notices []string) {
	if len(notices) == 0 {
		return
	}
	was, err := os.ReadFile(n.noticePath(k))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.cfg.Log.Error("notices", "attempt", k.Attempt, "error", err)
		return
	}
	said := strings.Split(string(was), "\n")
	var more strings.Builder
	for _, line := range notices {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !slices.Contains(said, line) {
			more.WriteString(line + "\n")
		}
	}
	if more.Len() == 0 {
		return
	}
	if err := appendTo(n.noticePath(k), more.String()); err != nil {
		n.cfg.Log.Error("notices", "attempt", k.Attempt, "error", err)
	}
}

// appendTo adds to a file in one write.
func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// dropNotices removes the file of an attempt that is over.
func (n *node) dropNotices(k key) {
	if err := os.Remove(n.noticePath(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.cfg.Log.Error("notices", "attempt", k.Attempt, "error", err)
	}
}
