package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tranche/web/api"
)

// What the server has to say reaches the running command, each sentence once, over
// a restart of the agent; the command's user cannot write there.
func TestTheCommandReadsItsNotices(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	stopAgent := runAgent(t, cfg)
	o := order(1, `
		told() { until [ "$(wc -l < "$TRANCHE_NOTICES")" -ge "$1" ]; do sleep 0.02; done; }
		echo up; told 1; { echo forged >> "$TRANCHE_NOTICES"; } 2>/dev/null; echo heard; told 2; cat "$TRANCHE_NOTICES"`)
	p.want(o)
	until(t, "the command is up", func() bool { return p.log(1) == "up\n" })
	const first, second = "Protected for another 30 min.", "Protected for another 10 min."
	o.Action, o.Notices = api.ActionRun, []string{first}
	p.want(o)
	until(t, "the first notice was read", func() bool { return slices.Contains(lines(p.log(1)), "heard") })
	stopAgent()
	runAgent(t, cfg)
	o.Notices = []string{first, "Protected for\nanother 10 min."}
	p.want(o)
	if e := oneEnd(t, p); e.ExitCode != 0 {
		t.Fatalf("end record %+v", e)
	}
	got, want := lines(p.log(1)), []string{"up", "heard", first, second}
	if os.Getuid() != 0 {
		got = slices.DeleteFunc(got, func(s string) bool { return s == "forged" }) // it runs as the agent's user
	}
	if !slices.Equal(got, want) {
		t.Errorf("output %q, want %q", got, want)
	}
	until(t, "the file is gone", func() bool {
		left, err := os.ReadDir(filepath.Join(cfg.StateDir, "notices"))
		return err == nil && len(left) == 0
	})
}
