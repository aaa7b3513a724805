package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/web/api"
)

// S13: the repair hook runs once per order, also when the answer is lost and the
// agent is started again; one that was cut short is reported and not run twice.
func TestS13RepairHookRunsOnce(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "runs")
	agent := func(hook string) *node {
		return &node{cfg: Config{Name: "n7", StateDir: dir, RepairHook: hook, Log: slog.New(slog.DiscardHandler)}}
	}
	t.Setenv("TRANCHE_ENROL_TOKEN", "secret")
	hook := `echo "$TRANCHE_NODE $TRANCHE_REPAIR $TRANCHE_ENROL_TOKEN" >>` + log + `; echo reseated; exit 3`
	for range 3 { // each time as if the agent had been started again
		got, err := agent(hook).repaired(t.Context(), api.RepairOrder{N: 1})
		if err != nil || got.ExitCode != 3 || got.None || strings.TrimSpace(got.Output) != "reseated" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := agent(hook).repaired(t.Context(), api.RepairOrder{N: 2}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil || string(text) != "n7 1 \nn7 2 \n" {
		t.Errorf("ran %q, %v", text, err)
	}
	if err := writeDurable(filepath.Join(dir, fileRepair), repairState{Repaired: api.Repaired{N: 3}}); err != nil {
		t.Fatal(err)
	}
	if got, err := agent(hook).repaired(t.Context(), api.RepairOrder{N: 3}); err != nil || got.ExitCode != -1 || !strings.Contains(got.Output, "stopped while") {
		t.Errorf("cut short: %+v, %v", got, err)
	}
	if again, err := os.ReadFile(log); err != nil || string(again) != string(text) {
		t.Errorf("ran again: %q, %v", again, err)
	}
	if got, err := agent("").repaired(t.Context(), api.RepairOrder{N: 4}); err != nil || !got.None {
		t.Errorf("without a hook: %+v, %v", got, err)
	}
}
