package store

import (
	"context"
	"strings"
	"unicode/utf8"

	"tranche/ledger"
)

// Maintenance is when a node is to be worked on: nothing is protected beyond From,
// and from then until Until (0 = until it is taken back) it empties and takes
// nothing. The zero value is none.
type Maintenance struct {
	From  ledger.Instant `json:"from"`
	Until ledger.Instant `json:"until"`
	Why   string         `json:"why"`
}

// PlanMaintenance plans a node's maintenance, moves it, or with the zero value
// takes it back.
func (s *Store) PlanMaintenance(ctx context.Context, cmd Command, node ledger.NodeID, m Maintenance) error {
	m.Why = strings.TrimSpace(m.Why)
	if refusals := m.check(s.Now()); len(refusals) > 0 {
		return refusals
	}
	_, err := runCommand(ctx, s, "node.maintain", cmd, [2]any{node, m}, func(tx *Tx) (bool, error) {
		if err := mayOnFleet(ctx, tx, cmd.Actor, ledger.NodeWrite); err != nil {
			return false, err
		}
		var before Maintenance
		err := tx.QueryRow(ctx, `select maint_from, maint_until, maint_reason from nodes where id = $1 and retired_at is null for update`, node).
			Scan(&before.From, &before.Until, &before.Why)
		if noRow(err) {
			return false, refuse(ledger.Missing, "node.missing", "", "There is no such node.")
		}
		if err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, `update nodes set maint_from = $2, maint_until = $3, maint_reason = $4 where id = $1`, node, m.From, m.Until, m.Why); err != nil {
			return false, err
		}
		tx.Notify(channelCycle)
		tx.Notify(channelPage)
		return true, audit(ctx, tx, cmd, act{Verb: "node.maintain", Subject: subjectOf("node", int64(node)), Before: before, After: m})
	})
	return err
}

func (m *Maintenance) check(now ledger.Instant) ledger.Refusals {
	if *m == (Maintenance{}) {
		return nil
	}
	var out ledger.Refusals
	want := func(ok bool, field, detail string) {
		if !ok {
			out = append(out, refuse(ledger.Invalid, "node.maintenance", field, detail))
		}
	}
	want(m.From > 0, "from", "Say when the maintenance begins; to take it back, use the button for that.")
	want(m.From == 0 || m.From >= now.Add(-60_000), "from", "A maintenance begins now or later; drain the node if it is broken already.")
	want(m.Until == 0 || m.Until > m.From, "until", "A maintenance ends after it began.")
	want(m.Why != "" && utf8.RuneCountInString(m.Why) <= 500, "why", "Say in up to 500 characters why; users of the node will read it.")
	return out
}
