package store

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"tranche/scheduler"
)

// Recorded cycles decide again to the same bytes, over starts, ends, evictions
// and a change of leader; what went for want of room is said, and a damaged
// record is named.
func TestRecordedCyclesReplayToTheSameBytes(t *testing.T) {
	t.Parallel()
	k := newSite(t, 3)
	k.project(t, "a", 1000)
	k.project(t, "b", 1000)
	rec := k.world.leader.Recorder(1 << 20)
	first := k.turnRecorded(t, rec, 15)
	rec = k.world.leader.Recorder(1 << 20) // a new leader begins with a whole record
	k.turnRecorded(t, rec, 15)
	kept, err := k.KeptCycles(t.Context())
	if err != nil || kept.Cycles != 30 || kept.First != first || kept.Last != first+29 || kept.Dropped != 0 {
		t.Fatalf("kept %+v, %v", kept, err)
	}
	if from, to, err := k.LastCycles(t.Context(), 5); err != nil || from != first+25 || to != first+29 {
		t.Errorf("last five: %d to %d, %v", from, to, err)
	}
	full, starts := k.replayAll(t, first, first+29)
	if full < 2 || full > 10 || starts < 5 {
		t.Errorf("%d whole records, %d starts", full, starts)
	}
	k.replayAll(t, first+20, first+22) // from the middle of a chain
	k.db.Exec(t, `update cycle_records set body = '\x00' where cycle = $1`, first+3)
	err = k.EachCycle(t.Context(), first, first+29, func(CycleRecord, *scheduler.Snapshot) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "cycle 4") {
		t.Errorf("a damaged record: %v", err)
	}
	small := k.world.leader.Recorder(1)
	k.cycle(t)
	done, err := small.Record(t.Context(), k.report, time.Millisecond)
	if err != nil || done.Dropped != 30 {
		t.Fatalf("dropped %d, %v", done.Dropped, err)
	}
	if kept, err = k.KeptCycles(t.Context()); err != nil || kept.Cycles != 1 || kept.Dropped != first+29 || kept.DroppedAt == 0 {
		t.Errorf("kept %+v, %v", kept, err)
	}
	k.db.Exec(t, `update leader set epoch = epoch + 1`)
	if _, err := small.Record(t.Context(), k.report, 0); !errors.Is(err, ErrFenced) {
		t.Errorf("a former leader records: %v", err)
	}
}

// turnRecorded runs n cycles with something happening before each, and records
// them. It gives the first one's number.
func (k *site) turnRecorded(t *testing.T, rec *Recorder, n int) (first int64) {
	t.Helper()
	for i := range n {
		switch i % 3 {
		case 0:
			k.submit(t, []string{"a", "b"}[i%2], 1, 8, 5*60_000)
		case 1:
			k.claimAll(t)
		case 2:
			k.pass(3 * time.Minute)
		}
		k.cycle(t)
		if _, err := rec.Record(t.Context(), k.report, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = k.report.Plan.Cycle
		}
	}
	return first
}

// replayAll decides kept cycles again.
func (k *site) replayAll(t *testing.T, from, to int64) (full, starts int) {
	t.Helper()
	next := from
	err := k.EachCycle(t.Context(), from, to, func(r CycleRecord, s *scheduler.Snapshot) error {
		plan := scheduler.Decide(s)
		if r.Cycle != next || sha256.Sum256(plan.Bytes()) != r.Plan || len(plan.Starts) != r.Starts {
			t.Errorf("cycle %d (expected %d) decides otherwise", r.Cycle, next)
		}
		if r.Full {
			full++
		}
		starts += r.Starts
		next++
		return nil
	})
	if err != nil || next != to+1 {
		t.Fatalf("replayed up to %d of %d: %v", next-1, to, err)
	}
	return full, starts
}
