package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"tranche/web/api"
)

// The machine's shutdown ends what runs, and the agent still reports it.
func TestStopLaunchersEndsAndReports(t *testing.T) {
	p, dir := newPeer(t), openDir(t)
	cfg := testConfig(t, p, dir)
	cfg.KeepEnds = t.TempDir()
	runAgent(t, cfg)
	p.want(order(1, "echo up; exec sleep 60"), order(2, "echo up; exec sleep 60"))
	until(t, "both run", func() bool { return p.log(1) != "" && p.log(2) != "" })
	if err := StopLaunchers(t.Context(), cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	until(t, "two end records", func() bool { return len(p.ends()) == 2 })
	for _, e := range p.ends() {
		if e.Signal != 15 || e.StopKind != "node_shutdown" || e.ElapsedUS == 0 {
			t.Errorf("end record %+v", e)
		}
	}
	until(t, "the records are kept", func() bool {
		kept, err := filepath.Glob(filepath.Join(cfg.KeepEnds, "*.json"))
		return err == nil && len(kept) == 2
	})
	kept, err := os.ReadFile(filepath.Join(cfg.KeepEnds, "1-3-0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record api.EndedReport
	if err := json.Unmarshal(kept, &record); err != nil || record.Attempt != 1 || record.Signal != 15 {
		t.Errorf("kept record %+v, error %v", record, err)
	}
	if err := StopLaunchers(t.Context(), filepath.Join(dir, "nowhere")); err != nil {
		t.Error(err)
	}
}
