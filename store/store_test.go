package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"tranche/ledger"
)

func TestInstantTravelsUnchanged(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	want := ledger.At(time.Date(2026, 10, 25, 0, 30, 0, 123_456_000, time.UTC))
	var got, none ledger.Instant
	var list []ledger.Instant
	var plain time.Time
	var span pgtype.Range[ledger.Instant]
	err := s.pool.QueryRow(t.Context(), `select $1::timestamptz, $2::timestamptz, array[$1::timestamptz], $1::timestamptz, tstzrange($1, $2)`, want, ledger.Instant(0)).
		Scan(&got, &none, &list, &plain, &span)
	if err != nil {
		t.Fatal(err)
	}
	if got != want || none != 0 || len(list) != 1 || list[0] != want || span.Lower != want {
		t.Errorf("got %d, none %d, list %v, span %v; want %d", got, none, list, span, want)
	}
	if plain.Location() != time.UTC || !plain.Equal(want.Time()) {
		t.Errorf("as time %v, want %v in UTC", plain, want.Time())
	}
}

func TestTimelineNeverGoesBack(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	first := s.Now()
	db.Clock.Advance(-90 * time.Second)
	if s.Now() != first {
		t.Errorf("clock set back 90 s: now %d, want %d", s.Now(), first)
	}
	db.Clock.Advance(91 * time.Second)
	if s.Now() != first.Add(1000) {
		t.Errorf("a second later: now %d, want %d", s.Now(), first.Add(1000))
	}
}

func TestTimelineRunsAtSpeed(t *testing.T) {
	line := Timeline{Real: 1_000_000, Business: 50_000_000, Speed: 720}
	if got := line.At(2_000_000); got != 770_000_000 {
		t.Errorf("one real second later: %d, want 770000000", got)
	}
	if got := (Timeline{}).At(7); got != 7 {
		t.Errorf("no timeline: %d, want 7", got)
	}
}

func TestInTxRunsAgainAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	db.Exec(t, "create table marks (n int)")
	tries := 0
	fail := func(upTo int) func(*Tx) error {
		return func(tx *Tx) error {
			tries++
			if _, err := tx.Exec(t.Context(), "insert into marks values ($1)", tries); err != nil {
				return err
			}
			if tries <= upTo {
				_, err := tx.Exec(t.Context(), "do $$ begin raise exception 'again' using errcode = '40001'; end $$")
				return err
			}
			return nil
		}
	}
	if err := s.inTx(t.Context(), "mark", fail(2)); err != nil {
		t.Fatal(err)
	}
	var n, sum int
	if err := s.pool.QueryRow(t.Context(), "select count(*), sum(n) from marks").Scan(&n, &sum); err != nil {
		t.Fatal(err)
	}
	if tries != 3 || n != 1 || sum != 3 {
		t.Errorf("%d tries left %d rows with sum %d; want 3 tries and only the third's row", tries, n, sum)
	}
	tries = 0
	if err := s.inTx(t.Context(), "mark", fail(99)); err == nil || tries != maxTries {
		t.Errorf("hopeless: %d tries, error %v; want %d and an error", tries, err, maxTries)
	}
}

func TestNotifyComesOnceAndOnlyAfterCommit(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	heard := s.Listen(ctx, "jobs", "nodes")
	if a, b := <-heard, <-heard; a != "jobs" || b != "nodes" {
		t.Fatalf("after connecting heard %q, %q", a, b)
	}
	undo := errors.New("undo")
	err := s.inTx(ctx, "undone", func(tx *Tx) error { tx.Notify("jobs"); return undo })
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	err = s.inTx(ctx, "done", func(tx *Tx) error {
		tx.Notify("nodes")
		tx.Notify("nodes")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.inTx(ctx, "last", func(tx *Tx) error { tx.Notify("jobs"); return nil }); err != nil {
		t.Fatal(err)
	}
	if a, b := <-heard, <-heard; a != "nodes" || b != "jobs" {
		t.Errorf("heard %q, %q; want nodes once, then jobs", a, b)
	}
}
