package store

import (
	"context"
	"errors"
	"sync"
	"testing"

	"tranche/ledger"
)

// sendCommand runs one keyed command whose effect is a row in effects.
func sendCommand(ctx context.Context, s *Store, key, content string) (int64, error) {
	var n int64
	err := s.inTx(ctx, "command", func(tx *Tx) (err error) {
		n, err = once(ctx, tx, 7, key, content, func() (n int64, err error) {
			if content == "refused" {
				return 0, &ledger.Refusal{Kind: ledger.Invalid, Code: "no", Detail: "No."}
			}
			err = tx.QueryRow(ctx, "insert into effects default values returning n").Scan(&n)
			return n, err
		})
		return err
	})
	return n, err
}

func TestSameKeySentByManyHasOneEffect(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	db.Exec(t, "create table effects (n bigint generated always as identity)")
	results := make([]int64, 8)
	var wait sync.WaitGroup
	for i := range results {
		wait.Go(func() {
			var err error
			if results[i], err = sendCommand(t.Context(), s, "book:1", "same"); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, got := range results {
		if got != results[0] {
			t.Fatalf("results differ: %v", results)
		}
	}
	var rows int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from effects").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d effects (%v), want 1", rows, err)
	}
}

func TestSameKeyOtherContentIsAConflict(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	db.Exec(t, "create table effects (n bigint generated always as identity)")
	if _, err := sendCommand(t.Context(), s, "k", "one"); err != nil {
		t.Fatal(err)
	}
	var refusal *ledger.Refusal
	if _, err := sendCommand(t.Context(), s, "k", "two"); !errors.As(err, &refusal) || refusal.Kind != ledger.Conflict {
		t.Errorf("other content: %v, want a conflict", err)
	}
	if _, err := sendCommand(t.Context(), s, "", "two"); !errors.As(err, &refusal) || refusal.Code != "key.missing" {
		t.Errorf("no key: %v", err)
	}
	if _, err := sendCommand(t.Context(), s, "r", "refused"); !errors.As(err, &refusal) || refusal.Code != "no" {
		t.Errorf("refused: %v", err)
	}
	if _, err := sendCommand(t.Context(), s, "r", "now allowed"); err != nil {
		t.Errorf("the key of a refused command is free again, got %v", err)
	}
}

// Constraints are turned into sentences; those without one stay errors.
func TestBrokenConstraintBecomesARefusal(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	add := func(slug, path string) error {
		return s.inTx(t.Context(), "add", func(tx *Tx) error {
			_, err := tx.Exec(t.Context(), `insert into groups (kind, slug, title, path, created_at) values ('program', $1, 'T', $2, $3)`, slug, path, tx.Now)
			return err
		})
	}
	var refusal *ledger.Refusal
	if err := add("Bad Slug", "/bad"); !errors.As(err, &refusal) || refusal.Field != "slug" {
		t.Errorf("bad slug: %v", err)
	}
	if err := add("lab", "/lab"); err != nil {
		t.Fatal(err)
	}
	if err := add("lab", "/other"); !errors.As(err, &refusal) || refusal.Code != "group.root" {
		t.Errorf("second root: %v", err)
	}
	err := s.inTx(t.Context(), "bad", func(tx *Tx) error {
		_, err := tx.Exec(t.Context(), `insert into groups (kind, slug, title, path, created_at) values ('x', 'x', 'T', '/x', $1)`, tx.Now)
		return err
	})
	if err == nil || errors.As(err, new(*ledger.Refusal)) {
		t.Errorf("unlisted constraint: %v, want a plain error", err)
	}
}

// A renamed constraint would silently turn its sentence into a fault.
func TestEveryListedConstraintExists(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for name := range constraintRefusals() {
		var there bool
		err := s.pool.QueryRow(t.Context(), `select exists (select from pg_constraint where conname = $1) or exists (select from pg_indexes where indexname = $1)`, name).Scan(&there)
		if err != nil || !there {
			t.Errorf("the schema has no constraint %s (%v)", name, err)
		}
	}
}
