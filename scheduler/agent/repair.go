package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"tranche/web/api"
)

const (
	fileRepair     = "repair.json"
	repairLimit    = time.Hour // of one run of the hook
	repairTailKept = 4 << 10   // bytes of its output
)

// repairState is what the agent remembers of the last repair order, so that a
// restart neither runs the hook twice nor forgets to report.
type repairState struct {
	api.Repaired
	Done bool `json:"done"`
}

// repair runs the hook for an order once, in the background, and reports.
func (n *node) repair(ctx context.Context, order api.RepairOrder) {
	n.mu.Lock()
	busy := n.repairing
	n.repairing = true
	n.mu.Unlock()
	if busy {
		return
	}
	n.watching.Go(func() {
		defer func() {
			n.mu.Lock()
			n.repairing = false
			n.mu.Unlock()
		}()
		state, err := n.repaired(ctx, order)
		if err != nil {
			n.cfg.Log.Error("the repair hook's state cannot be kept", "node", n.cfg.Name, "error", err)
			return
		}
		err = n.retry(ctx, "report the repair", func() (bool, error) {
			err := n.call(ctx, callTimeout, api.PathRepaired, state.Repaired, nil)
			return isDenied(err), err
		})
		if err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("the repair was not reported", "node", n.cfg.Name, "error", err)
		}
	})
}

// repaired gives how the order's hook ended: it runs it now, unless that was done
// or begun before. One that was cut short by the agent's end is not run again.
func (n *node) repaired(ctx context.Context, order api.RepairOrder) (repairState, error) {
	path := filepath.Join(n.cfg.StateDir, fileRepair)
	var state repairState
	if err := readJSON(path, &state); err != nil && !errors.Is(err, os.ErrNotExist) {
		return state, err
	}
	if state.N == order.N {
		if !state.Done {
			state.Done, state.ExitCode, state.Output = true, -1, "the agent was stopped while the hook ran"
		}
		return state, writeDurable(path, state)
	}
	state = repairState{Repaired: api.Repaired{N: order.N, None: n.cfg.RepairHook == ""}}
	if err := writeDurable(path, state); err != nil {
		return state, err
	}
	if !state.None {
		state.ExitCode, state.Output = runHook(ctx, n.cfg.RepairHook, n.cfg.Name, order.N)
	}
	state.Done = true
	return state, writeDurable(path, state)
}

// runHook runs a repair hook to its end and gives its exit code and the end of
// its output.
func runHook(ctx context.Context, hook, node string, order int64) (code int, output string) {
	ctx, cancel := context.WithTimeout(ctx, repairLimit)
	defer cancel()
	cmd := hookCommand(ctx, hook, node)
	cmd.Env = append(cmd.Env, "TRANCHE_REPAIR="+strconv.FormatInt(order, 10))
	text, err := cmd.CombinedOutput()
	if over := len(text) - repairTailKept; over > 0 {
		text = text[over:]
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, string(text)
	case errors.As(err, &exit):
		return exit.ExitCode(), string(text)
	}
	return -1, err.Error()
}
