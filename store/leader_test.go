package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"tranche/ledger"
)

func TestOldLeaderIsFenced(t *testing.T) {
	t.Parallel()
	first, db := newStore(t)
	second := openStore(t, db)
	db.Exec(t, "create table marks (epoch bigint)")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	old, err := first.Campaign(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	mark := func(l *Leader) error {
		return l.inLeaderTx(ctx, "mark", func(tx *Tx) error {
			_, err := tx.Exec(ctx, "insert into marks values ($1)", l.Epoch())
			return err
		})
	}
	if err := mark(old); err != nil {
		t.Fatal(err)
	}
	_, seen, err := second.challenge(ctx, "second", beat{}, false)
	if err != nil || seen.holder != "first" {
		t.Fatalf("second saw %+v, %v", seen, err)
	}
	if err := old.beat(ctx); err != nil {
		t.Fatal(err)
	}
	if l, _, err := second.challenge(ctx, "second", seen, true); l != nil || err != nil {
		t.Fatalf("took over a leader that beat since: %v, %v", l, err)
	}
	_, seen, err = second.challenge(ctx, "second", beat{}, false)
	if err != nil {
		t.Fatal(err)
	}
	fresh, _, err := second.challenge(ctx, "second", seen, true)
	if err != nil || fresh == nil || fresh.Epoch() != old.Epoch()+1 {
		t.Fatalf("silent leader not replaced: %+v, %v", fresh, err)
	}
	if err := mark(old); !errors.Is(err, ErrFenced) {
		t.Errorf("old leader's write: %v, want ErrFenced", err)
	}
	if err := old.beat(ctx); !errors.Is(err, ErrFenced) {
		t.Errorf("old leader's beat: %v, want ErrFenced", err)
	}
	if err := mark(fresh); err != nil {
		t.Error(err)
	}
	var olds, news int
	err = second.pool.QueryRow(ctx, "select count(*) filter (where epoch = $1), count(*) filter (where epoch = $2) from marks", old.Epoch(), fresh.Epoch()).Scan(&olds, &news)
	if err != nil || olds != 1 || news != 1 {
		t.Errorf("%d rows of the old leader and %d of the new (%v), want 1 and 1", olds, news, err)
	}
}

// A takeover waits for a leader transaction in flight: what it wrote is there
// before the new leader reads.
func TestTakeoverWaitsForTheLeadersTransaction(t *testing.T) {
	t.Parallel()
	first, db := newStore(t)
	second := openStore(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	old, err := first.Campaign(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	_, seen, err := second.challenge(ctx, "second", beat{}, false)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	err = old.inLeaderTx(ctx, "slow", func(tx *Tx) error {
		go func() {
			_, _, err := second.challenge(ctx, "second", seen, true)
			taken <- err
		}()
		waiting := `select exists(select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`
		for blocked := false; !blocked; {
			if err := first.pool.QueryRow(ctx, waiting).Scan(&blocked); err != nil {
				return err
			}
		}
		select {
		case <-taken:
			t.Error("taken over in the middle of a leader transaction")
		default:
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	if err := old.beat(ctx); !errors.Is(err, ErrFenced) {
		t.Errorf("old leader after the takeover: %v", err)
	}
}

// Holding ends with the context and frees the row at once.
func TestResignedLeadershipIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	hold, stop := context.WithCancel(t.Context())
	leader, err := s.Campaign(hold, "a")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := leader.Hold(hold); err != nil {
		t.Fatal(err)
	}
	next, err := s.Campaign(t.Context(), "b")
	if err != nil || next.Epoch() != 2 {
		t.Fatalf("second leadership: %+v, %v", next, err)
	}
	var since ledger.Instant
	if err := s.pool.QueryRow(t.Context(), "select since from leader").Scan(&since); err != nil || since != s.Real() {
		t.Errorf("leader since %d (%v), want %d", since, err, s.Real())
	}
}
