package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"tranche/web/api"
)

const (
	checkLimit  = 30 * time.Second // of one run of the health check
	reasonBytes = 200
)

// checkHealth runs the health check again and again. What it said travels with the
// heartbeats; what follows from it is the server's to say.
func (n *node) checkHealth(ctx context.Context) error {
	return again(ctx, n.cfg.CheckEvery, func() {
		check := runCheck(ctx, n.cfg.HealthHook, n.cfg.Name, checkLimit)
		if ctx.Err() != nil {
			return // it was cut short
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.check.Outcome != check.Outcome {
			n.cfg.Log.Info("health check", "node", n.cfg.Name, "outcome", check.Outcome, "reason", check.Reason)
		}
		n.check = &check
	})
}

// again does something at once and so long after each time it was done, until ctx ends.
func again(ctx context.Context, every time.Duration, do func()) error {
	for {
		do()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// runCheck runs the check once, in a process group of its own, which is killed at
// the limit. Whatever else goes wrong with it is a degraded node too: a check that
// cannot be run says nothing good.
func runCheck(ctx context.Context, hook, node string, limit time.Duration) api.Check {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd, said := groupCommand(ctx, hook, node), &opening{room: 4 << 10}
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Run()
	check := api.Check{N: bootMicros(), Outcome: "degraded", Reason: firstLine(string(said.text))}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		check.Reason = fmt.Sprintf("the health check did not end within %s", limit)
	case err == nil:
		check.Outcome = "ok"
	case errors.As(err, &exit) && exit.ExitCode() == 1:
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		check.Outcome = "fault"
	default:
		check.Reason = strings.TrimSpace(check.Reason + " (the health check ended with " + err.Error() + ")")
	}
	return check
}

// hookCommand is a site's own command on a node.
func hookCommand(ctx context.Context, hook, node string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", hook)
	// The agent's own variables may hold its enrolment token.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TRANCHE_") })
	cmd.Env = append(cmd.Env, "TRANCHE_NODE="+node)
	cmd.WaitDelay = time.Second
	return cmd
}

// groupCommand is a hookCommand in a process group of its own, all of which is killed
// when ctx ends.
func groupCommand(ctx context.Context, hook, node string) *exec.Cmd {
	cmd := hookCommand(ctx, hook, node)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// opening keeps the beginning of what is written to it.
type opening struct {
	room int
	text []byte
}

func (o *opening) Write(b []byte) (int, error) {
	o.text = append(o.text, b[:min(len(b), o.room-len(o.text))]...)
	return len(b), nil
}

// firstLine is the first line of a text, printable and short.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(text, "")), "\n")
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line)
	if len(line) > reasonBytes {
		line = strings.ToValidUTF8(line[:reasonBytes], "")
	}
	return strings.TrimSpace(line)
}
