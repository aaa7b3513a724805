package agent

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tranche/web/api"
)

// storageLimit bounds one run of the storage hook: a storage that hangs is worse
// than a slow one, and the hook may hang with it.
const storageLimit = 8 * time.Second

// checkStorage runs the storage hook again and again. What it printed travels with
// the heartbeats; what follows from it is the server's to say.
func (n *node) checkStorage(ctx context.Context) error {
	return again(ctx, n.cfg.StorageEvery, func() {
		check := runStorage(ctx, n.cfg.StorageHook, n.cfg.Name, storageLimit)
		if ctx.Err() != nil {
			return // it was cut short
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.storage.Failed != check.Failed {
			n.cfg.Log.Info("storage hook", "node", n.cfg.Name, "ppm", check.PPM, "failed", check.Failed)
		}
		n.storage = &check
	})
}

// runStorage runs the hook once, in a process group of its own, which is killed at
// the limit. A hook that fails has said nothing of the storage: it says why.
func runStorage(ctx context.Context, hook, node string, limit time.Duration) api.StorageCheck {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd, said, noise := groupCommand(ctx, hook, node), &opening{room: 4 << 10}, &opening{room: 4 << 10}
	cmd.Stdout, cmd.Stderr = said, noise
	err := cmd.Run()
	check := api.StorageCheck{N: bootMicros()}
	switch {
	case ctx.Err() != nil:
		check.Failed = fmt.Sprintf("it did not end within %s", limit)
	case err != nil:
		check.Failed = strings.TrimSpace(firstLine(string(noise.text)) + " (" + err.Error() + ")")
	default:
		ppm, ok := percentPPM(string(said.text))
		if !ok {
			check.Failed = fmt.Sprintf("it printed %q, not a percentage", firstLine(string(said.text)))
		}
		check.PPM = ppm
	}
	return check
}

// percentPPM reads "87", "87.5" or "87.5 %". A storage may be faster than nominal;
// more than twice is twice.
func percentPPM(text string) (int64, bool) {
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	percent, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(percent) || percent < 0 || math.IsInf(percent, 0) {
		return 0, false
	}
	return int64(math.Round(min(percent, 200) * 10_000)), true
}
