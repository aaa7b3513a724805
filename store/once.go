package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"tranche/ledger"
)

// once runs fn unless the actor has sent this key before: then the first result
// comes back, or a Conflict when the content differs. A command that was refused
// left nothing behind, so the same key may be tried again.
func once[T any](ctx context.Context, tx *Tx, actor ledger.PersonID, key string, content any, fn func() (T, error)) (T, error) {
	var result, none T
	text, err := json.Marshal(content)
	if err != nil {
		return none, fmt.Errorf("content of command %s: %w", key, err)
	}
	if key == "" {
		return none, &ledger.Refusal{
			Kind: ledger.Invalid, Code: "key.missing", Field: "key",
			Detail: "Every command needs a key that its sender makes up; send one.",
		}
	}
	hash := sha256.Sum256(text)
	// A second sender of the key waits here until the first has committed.
	tag, err := tx.Exec(ctx, `insert into command_keys (actor_id, key, content_hash, result, at) values ($1, $2, $3, 'null', $4)
		on conflict (actor_id, key) do nothing`, actor, key, hash[:], tx.Now)
	if err != nil {
		return none, err
	}
	if tag.RowsAffected() == 0 {
		return firstResult[T](ctx, tx, actor, key, hash)
	}
	if result, err = fn(); err != nil {
		return none, err
	}
	if text, err = json.Marshal(result); err != nil {
		return none, fmt.Errorf("result of command %s: %w", key, err)
	}
	_, err = tx.Exec(ctx, `update command_keys set result = $3 where actor_id = $1 and key = $2`, actor, key, text)
	return result, err
}

// firstResult answers a repeated key.
func firstResult[T any](ctx context.Context, tx *Tx, actor ledger.PersonID, key string, hash [32]byte) (T, error) {
	var result, none T
	var known, text []byte
	err := tx.QueryRow(ctx, `select content_hash, result::text from command_keys where actor_id = $1 and key = $2`, actor, key).
		Scan(&known, &text)
	if err != nil {
		return none, err
	}
	if [32]byte(known) != hash {
		return none, &ledger.Refusal{
			Kind: ledger.Conflict, Code: "key.conflict", Field: "key",
			Detail: "This key was already used for another command; reload the page or send a new key.",
		}
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return none, fmt.Errorf("first result of command %s: %w", key, err)
	}
	return result, nil
}
