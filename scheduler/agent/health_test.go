package agent

import (
	"strings"
	"testing"
	"time"
)

// A check's exit code is its outcome, its first line the reason; one that hangs, or
// ends in any other way, is a degraded node.
func TestHealthCheckOutcomes(t *testing.T) {
	t.Setenv("TRANCHE_ENROL_TOKEN", "hunter2")
	for _, c := range []struct{ hook, outcome, reason string }{
		{"echo fine", "ok", "fine"},
		{"exit 0", "ok", ""},
		{"echo 'link down'; echo more; exit 1", "degraded", "link down"},
		{"printf 'Xid 79: GPU has fallen off\\033[31m the bus\\n'; exit 2", "fault", "Xid 79: GPU has fallen off [31m the bus"},
		{"echo $TRANCHE_NODE $TRANCHE_ENROL_TOKEN; exit 1", "degraded", "n7"},
		{"exit 7", "degraded", "(the health check ended with exit status 7)"},
		{"kill -9 $$", "degraded", "(the health check ended with signal: killed)"},
		{"yes | head -c 300000 | tr -d '\\n'; exit 1", "degraded", strings.Repeat("y", reasonBytes)},
	} {
		got := runCheck(t.Context(), c.hook, "n7", 20*time.Second)
		if got.Outcome != c.outcome || got.Reason != c.reason || got.N == 0 {
			t.Errorf("%s: %+v, want %s %q", c.hook, got, c.outcome, c.reason)
		}
	}
	begun := time.Now()
	got := runCheck(t.Context(), "sleep 60 & sleep 60", "n7", 50*time.Millisecond)
	if got.Outcome != "degraded" || got.Reason != "the health check did not end within 50ms" || time.Since(begun) > 10*time.Second {
		t.Errorf("one that hangs: %+v after %s", got, time.Since(begun))
	}
}

// What the check said last is in the heartbeats.
func TestHealthCheckTravelsWithHeartbeats(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	cfg.HealthHook, cfg.CheckEvery = "echo slow disk; exit 1", 20*time.Millisecond
	runAgent(t, cfg)
	var first int64
	until(t, "two checks were heard of", func() bool {
		beats := p.seenBeats() // all know of the check, from the first on
		if len(beats) == 0 || beats[len(beats)-1].Check.N == 0 {
			return false
		}
		check := beats[len(beats)-1].Check
		if check.Outcome != "degraded" || check.Reason != "slow disk" {
			t.Fatalf("check %+v", check)
		}
		if first == 0 {
			first = check.N
		}
		return check.N > first
	})
}
