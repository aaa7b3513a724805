package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// queueReturned looks for attempts that were given up with their node and that
// the node now reports as still there, while nothing newer of the job has started.
func queueReturned(batch *pgx.Batch, beats []Beat, out *[]PartRef) {
	var nodes, attempts, fences []int64
	var ranks []int32
	for _, b := range beats {
		for _, a := range b.Attempts {
			nodes, attempts = append(nodes, int64(b.Node)), append(attempts, int64(a.Attempt))
			fences, ranks = append(fences, a.Fence), append(ranks, a.Rank)
		}
	}
	if len(nodes) == 0 {
		return
	}
	batch.Queue(`select p.node_id, p.attempt_id, a.fence, p.rank
		from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[]) u (node, attempt, fence, rank)
		join placements p on p.attempt_id = u.attempt and p.rank = u.rank and p.node_id = u.node and p.returns
		join attempts a on a.id = p.attempt_id and a.fence = u.fence
		join jobs j on j.id = a.job_id and j.state = 'pending' and j.attempts = a.n order by 2, 4`, nodes, attempts, fences, ranks).
		Query(each(out, func(p *PartRef) []any { return []any{&p.Node, &p.Attempt, &p.Fence, &p.Rank} }))
}

// takeBack lets a returned attempt go on, unless its devices or its job have
// been given to something newer meanwhile.
func (s *Store) takeBack(ctx context.Context, p PartRef) error {
	return s.inTx(ctx, "take back", func(tx *Tx) error {
		l, i, err := lockPart(ctx, tx, p)
		if err != nil || i < 0 || !l.parts[i].returns || l.state.Job != scheduler.JobWaiting {
			return err
		}
		funds, err := lockFundsOf(ctx, tx, purse{l.job.Project, l.job.Pool}, l.path)
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `select id from nodes where id = $1 for update`, p.Node).Scan(new(ledger.NodeID)); err != nil {
			return err
		}
		var taken bool
		err = tx.QueryRow(ctx, `select exists (select from placements q join attempts b on b.id = q.attempt_id
			where q.node_id = $1 and b.phase <> 'closed' and q.devices && $2)`, p.Node, l.placed[i].Devices).Scan(&taken)
		if err != nil || taken {
			return err
		}
		changed, refusal := l.advance(scheduler.Event{Kind: scheduler.EvReturned, At: tx.Now, Rank: p.Rank, Funds: funds}, "taken-back", nil)
		if refusal != nil {
			return refusal
		}
		if changed {
			l.parts[i].returns, l.parts[i].detail = false, ""
		}
		return s.keep(ctx, tx, l)
	})
}

// forgetReturn notes that a part that was given up is really over.
func forgetReturn(ctx context.Context, tx *Tx, p PartRef) error {
	_, err := tx.Exec(ctx, `update placements set returns = false where attempt_id = $1 and rank = $2 and node_id = $3 and returns`,
		p.Attempt, p.Rank, p.Node)
	return err
}
