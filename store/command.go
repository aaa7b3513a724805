package store

import (
	"context"
	"encoding/json"
	"fmt"

	"tranche/ledger"
)

// Command is the head of everything that changes state: who wants it, the key
// its originator made up, and the address it came from.
type Command struct {
	Actor  ledger.Actor
	Key    string
	Remote string
}

// act is one audited deed.
type act struct {
	Verb    string // "request.award"
	Subject string // "request 17"
	Before  any    // nil: nothing
	After   any
}

// audit records who did what, when and from where, with the state before and
// after. Commands of jobs and secrets must never be passed in.
func audit(ctx context.Context, tx *Tx, cmd Command, a act) error {
	before, err := jsonOrNull(a.Before)
	if err != nil {
		return fmt.Errorf("audit %s: %w", a.Verb, err)
	}
	after, err := jsonOrNull(a.After)
	if err != nil {
		return fmt.Errorf("audit %s: %w", a.Verb, err)
	}
	_, err = tx.Exec(ctx, `insert into audit (at, person_id, remote, verb, subject, before, after) values ($1, $2, $3, $4, $5, $6, $7)`,
		tx.Now, cmd.Actor.Person, cmd.Remote, a.Verb, a.Subject, before, after)
	return err
}

func jsonOrNull(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

// letter is something a person should hear of; it is delivered after the commit.
type letter struct {
	Kind    string // "request.awarded"
	Person  ledger.PersonID
	Subject string
	Body    any
}

// mail puts a letter into the outbox.
func mail(ctx context.Context, tx *Tx, l letter) error {
	body, err := json.Marshal(l.Body)
	if err != nil {
		return fmt.Errorf("letter %s: %w", l.Kind, err)
	}
	_, err = tx.Exec(ctx, `insert into outbox (at, kind, person_id, subject, body) values ($1, $2, nullif($3::bigint, 0), $4, $5)`,
		tx.Now, l.Kind, l.Person, l.Subject, body)
	return err
}

// runCommand does one command in one transaction: a repeated key gives the first
// result, everything else runs fn once.
func runCommand[T any](ctx context.Context, s *Store, name string, cmd Command, content any, fn func(*Tx) (T, error)) (T, error) {
	var out T
	err := s.inTx(ctx, name, func(tx *Tx) error {
		var err error
		out, err = once(ctx, tx, cmd.Actor.Person, cmd.Key, [2]any{name, content}, func() (T, error) { return fn(tx) })
		return err
	})
	return out, err
}
