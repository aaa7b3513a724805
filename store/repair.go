package store

import (
	"context"
	"fmt"
	"strings"

	"tranche/ledger"
)

// repairResultMost bounds what is kept of a repair hook's output, bytes.
const repairResultMost = 4000

// AskRepairs orders the repair hook on nodes that are drained or in maintenance
// and empty, once per drain or maintenance. It gives how many it ordered.
func (w *World) AskRepairs(ctx context.Context) (int64, error) {
	var asked int64
	err := w.leader.inLeaderTx(ctx, "ask repairs", func(tx *Tx) error {
		tag, err := tx.Exec(ctx, `with due as (
				select n.id, case when n.drain <> '' then n.drain_since else n.maint_from end as cause from nodes n
				where n.retired_at is null and n.health <> 'lost'
					and (n.drain <> '' or n.maint_from <= $1 and (n.maint_until is null or n.maint_until > $1))
					and not exists (select from placements p join attempts a on a.id = p.attempt_id
						where p.node_id = n.id and not p.ended and a.phase <> 'closed')
				order by n.id for update of n)
			update nodes n set repair_n = n.repair_n + 1, repair_for = due.cause, repair_asked_at = $1, repair_done_at = null, repair_result = '', orders = n.orders + 1
			from due where due.id = n.id and n.repair_for is distinct from due.cause`, tx.Now)
		if err != nil {
			return err
		}
		if asked = tag.RowsAffected(); asked > 0 {
			tx.Notify(channelOrders)
			tx.Notify(channelPage)
		}
		return nil
	})
	return asked, err
}

// Repair is how a node's repair hook ended.
type Repair struct {
	N        int64
	None     bool // the agent has none
	ExitCode int
	Output   string // its end
}

// Repaired notes how a node's repair hook ended. A report of an older order, or
// one that was noted already, changes nothing.
func (s *Store) Repaired(ctx context.Context, node ledger.NodeID, r Repair) error {
	result := "none is configured on the node"
	if !r.None {
		result = strings.TrimSpace(fmt.Sprintf("exit code %d\n%s", r.ExitCode, strings.ToValidUTF8(r.Output, "\uFFFD")))
	}
	if over := len(result) - repairResultMost; over > 0 {
		result = strings.ToValidUTF8(result[over:], "")
	}
	return s.inTx(ctx, "repaired", func(tx *Tx) error {
		tag, err := tx.Exec(ctx, `update nodes set repair_done_at = $3, repair_result = $4 where id = $1 and repair_n = $2 and repair_done_at is null`,
			node, r.N, tx.Now, result)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		tx.Notify(channelPage)
		return audit(ctx, tx, Command{}, act{Verb: "node.repaired", Subject: subjectOf("node", int64(node)), After: map[string]string{"result": result}})
	})
}
