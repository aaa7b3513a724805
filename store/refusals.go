package store

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"tranche/ledger"
)

// constraintRefusals says, in one place, what a broken constraint means to a
// person. A constraint without a row here is a fault of the program and
// travels as a wrapped error.
func constraintRefusals() map[string]ledger.Refusal {
	short := ledger.Refusal{
		Kind: ledger.Short, Code: "funds.short",
		Detail: "There are not enough GPU-hours left for this; somebody may have used them a moment ago. Look at the balance and try again.",
	}
	conflict := func(code, field, detail string) ledger.Refusal {
		return ledger.Refusal{Kind: ledger.Conflict, Code: code, Field: field, Detail: detail}
	}
	invalid := func(code, field, detail string) ledger.Refusal {
		return ledger.Refusal{Kind: ledger.Invalid, Code: code, Field: field, Detail: detail}
	}
	return map[string]ledger.Refusal{
		"balances_floor":         short,
		"balances_ceiling":       short,
		"path_limits_used":       short,
		"path_limits_received":   short,
		"hold_pieces_sum":        short,
		"api_tokens_limit":       {Kind: ledger.Short, Code: "token.limit", Detail: "This API token has reached its spending limit; use another token or ask for a higher limit."},
		"groups_path_key":        conflict("group.exists", "slug", "There is already a group with this name here; choose another name."),
		"groups_root_key":        conflict("group.root", "parent", "The tree already has its root; choose a parent."),
		"groups_slug_form":       invalid("group.slug", "slug", "A short name has lower-case letters, digits and hyphens, and begins with a letter or digit."),
		"groups_title_length":    invalid("group.title", "title", "A title has 1 to 200 characters."),
		"role_grants_live_key":   conflict("role.held", "person", "This person already holds this role here."),
		"join_requests_open_key": conflict("join.open", "project", "You have already asked to join this project; its PI has to answer."),
		"pools_name_key":         conflict("pool.exists", "name", "There is already a pool with this name; choose another name."),
		"nodes_name_key":         conflict("node.exists", "name", "A node with this name is already enrolled; retire it first or choose another name."),
		"periods_name_key":       conflict("period.exists", "name", "There is already a period with this name; choose another name."),
		"periods_apart":          conflict("period.overlap", "first", "This period overlaps another one; periods follow each other without overlap."),
		"periods_order":          invalid("period.order", "last", "A period ends after it begins."),
		"splits_version_key":     conflict("split.version", "", "Somebody else changed this split a moment ago; look at it and try again."),
		"request_lines_asked":    invalid("request.asked", "asked", "Ask for more than zero GPU-hours."),
		"requests_reviewer_not_author": {
			Kind: ledger.Denied, Code: "request.own",
			Detail: "Nobody reviews their own request; ask another manager.",
		},
		"lots_order": invalid("lot.order", "last", "A lot ends after it begins."),
	}
}

// translate turns what ended a transaction into what the caller should see:
// refusals as they are, known constraints as refusals, the rest wrapped.
func (s *Store) translate(name string, err error) error {
	var one *ledger.Refusal
	var many ledger.Refusals
	if errors.As(err, &one) || errors.As(err, &many) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if refusal, ok := constraintRefusals()[pg.ConstraintName]; ok {
			return &refusal
		}
		if pg.Code == "55P03" {
			return &ledger.Refusal{
				Kind: ledger.Unavailable, Code: "busy",
				Detail: "Somebody else is changing the same thing right now; try again in a moment.",
			}
		}
	}
	return fmt.Errorf("store: %s: %w", name, err)
}
