package store

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"tranche/scheduler"
)

// Any server sees what the leader decides from, keeps it for two seconds, and
// lets readers decide on it side by side.
func TestPeekSeesWhatTheLeaderDecidesFrom(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	k.submit(t, "a", 1, 8, anHour)
	k.submit(t, "a", 2, 8, anHour)
	k.cycle(t)
	k.claimAll(t)
	other := openStore(t, k.db)
	text := func(s *scheduler.Snapshot, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for range 3 {
		k.pass(30 * time.Minute)
		if peeked, snapped := text(other.Peek(t.Context())), text(k.world.Snapshot(t.Context(), other.Now())); peeked != snapped {
			t.Fatalf("peeked\n%s\nthe leader's\n%s", peeked, snapped)
		}
		k.cycle(t)
	}
	first := text(other.Peek(t.Context()))
	k.submit(t, "a", 1, 1, anHour)
	if text(other.Peek(t.Context())) != first {
		t.Error("read again within two seconds")
	}
	k.pass(2 * time.Second)
	if text(other.Peek(t.Context())) == first {
		t.Error("not read again after two seconds")
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			s, err := other.Peek(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			s.Waiting = s.Waiting[:1]
			scheduler.Decide(s)
		})
	}
	wait.Wait()
}
