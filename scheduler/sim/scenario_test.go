package sim

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// play runs one scenario file.
func play(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".scn"))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	r := NewRunner(Options{})
	if err := r.Run(context.Background(), sc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestS1ColdStart(t *testing.T)       { play(t, "s1_cold_start") }
func TestS4ProtectionEdge(t *testing.T)  { play(t, "s4_protection_edge") }
func TestS10GangDeadlock(t *testing.T)   { play(t, "s10_gang_deadlock") }
func TestS18Memo(t *testing.T)           { play(t, "s18_memo") }
func TestS19InsideAProject(t *testing.T) { play(t, "s19_member") }
func TestArrayLimit(t *testing.T)        { play(t, "array_limit") }
func TestAfter(t *testing.T)             { play(t, "after") }

// Victims: the unfunded first, the one that does it alone before two, none that turns
// out needless, and V3 with the commitments of all of them counted.
func TestVictims(t *testing.T) {
	play(t, "victims_unfunded_first")
	play(t, "victims_fewest")
	play(t, "victims_needless")
	play(t, "victims_all_counted")
	play(t, "victims_all_counted_in_a_room")
	play(t, "victims_restand")
	play(t, "vacated")
}

// Inside a project and in the second pass, and how much a cycle looks at.
func TestOrderOfMembersHeadsAndUnfunded(t *testing.T) {
	play(t, "member_order")
	play(t, "member_zero")
	play(t, "member_cap_others")
	play(t, "heads")
	play(t, "unfunded_order")
}

// What ends an attempt that nobody evicts: its maximum runtime, its money, its own limit.
func TestAttemptsEndByTheirContract(t *testing.T) {
	play(t, "max_runtime")
	play(t, "money_same_cycle")
	play(t, "max_charge")
	play(t, "max_charge_again")
	play(t, "max_charge_steps")
	play(t, "or_free_max_charge")
	play(t, "or_free_unprotected")
}

func TestBestFit(t *testing.T) {
	play(t, "best_fit")
	play(t, "fullest_device")
	play(t, "sharing_leaver")
	play(t, "never_fits")
}

func TestS17NothingMovesInAStorm(t *testing.T) { play(t, "storm") }

func TestDebugBounds(t *testing.T)                 { play(t, "debug_bounds") }
func TestAGangFollowsItsWorstNode(t *testing.T)    { play(t, "gang_worst_node") }
func TestIdlenessEndsNothingByItself(t *testing.T) { play(t, "idle_off") }

// New protection in place: what stands against it.
func TestRenewRefused(t *testing.T) {
	play(t, "renew_refused")
	play(t, "renew_slice")
	play(t, "renew_extended")
	play(t, "renew_reserved")
}

func TestEvictionsPerMinute(t *testing.T) {
	play(t, "evict_bucket")
	play(t, "evict_bucket_holder")
}

func TestS5FreeCycles(t *testing.T) {
	play(t, "s5_free_cycles")
	play(t, "s5_unfunded_32")
}

func TestS13DrainingNode(t *testing.T) {
	play(t, "s13_drain")
	play(t, "s13_hard_fault")
}

func TestS16Edges(t *testing.T) {
	play(t, "s16_debug")
	play(t, "s16_suspended")
	play(t, "s16_zero")
}

func TestEveryScenarioHolds(t *testing.T) {
	files, err := filepath.Glob("testdata/*.scn")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".scn")
		t.Run(name, func(t *testing.T) { play(t, name) })
	}
}
