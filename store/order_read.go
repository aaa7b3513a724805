package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// PoolOrder is one page of a pool's queue in the order of the last cycle, with
// the standings that made it and the pool's reserved start.
type PoolOrder struct {
	PoolLine
	Standings  []StandingLine
	StandingAt ledger.Instant // of the cycle that left them; 0: none yet
	Rows       []JobLine
	Next       string // cursor of the page after; "" at the end
	Skip       string // the same for readers to whom a cursor must name no job
	Reserved   *Promise
	Policy     scheduler.Policy
}

// Promise is a pool's reserved start with the jobs that it names.
type Promise struct {
	scheduler.ReserveView
	Jobs map[ledger.JobID]JobLine // holder and queue
	From ledger.Instant           // nodes are kept since then
}

// Bounds of one page of an order.
const (
	orderPage = 100
	mostOrder = 500
)

// orderCursor is where a page ended: rank, place in the queue, job; or, as "@100",
// after how many jobs, which names none.
type orderCursor struct {
	rank, seq int64
	job       ledger.JobID
	skip      int64
}

func parseOrderCursor(text string) (orderCursor, *ledger.Refusal) {
	var c orderCursor
	if text == "" {
		return c, nil
	}
	if skip, ok := strings.CutPrefix(text, "@"); ok {
		if n, err := strconv.ParseInt(skip, 10, 32); err == nil && n > 0 {
			return orderCursor{skip: n}, nil
		}
	}
	parts := strings.Split(text, "-")
	if len(parts) == 3 {
		rank, err1 := strconv.ParseInt(parts[0], 10, 32)
		seq, err2 := strconv.ParseInt(parts[1], 10, 64)
		job, err3 := strconv.ParseInt(parts[2], 10, 64)
		if err1 == nil && err2 == nil && err3 == nil {
			return orderCursor{rank: rank, seq: seq, job: ledger.JobID(job)}, nil
		}
	}
	return c, refuse(ledger.Invalid, "order.cursor", "after", "This is no place of the order; begin with its first page.")
}

// unranked is the rank of a job that the last cycle did not come to.
const unranked = 1<<31 - 1

// PoolOrder reads one page of a pool's order; limit 0 is 100, at most 500.
func (s *Store) PoolOrder(ctx context.Context, pool ledger.PoolID, after string, limit int) (PoolOrder, error) {
	var o PoolOrder
	from, refusal := parseOrderCursor(after)
	if refusal != nil {
		return o, refusal
	}
	if limit <= 0 {
		limit = orderPage
	}
	limit = min(limit, mostOrder)
	err := s.readTx(ctx, "pool order", func(tx *Tx) error {
		lines, err := poolLines(ctx, tx, pool)
		if err != nil {
			return err
		}
		if len(lines) == 0 || pool == 0 {
			return refuse(ledger.Missing, "pool.missing", "", "There is no such pool.")
		}
		o = PoolOrder{PoolLine: lines[0]}
		if o.Policy, err = loadPolicy(ctx, tx); err != nil {
			return err
		}
		if o.Standings, err = standingsOf(ctx, tx, pool); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `select max(at) from standings where pool_id = $1`, pool).Scan(&o.StandingAt); err != nil {
			return err
		}
		if o.Reserved, err = promiseIn(ctx, tx, pool); err != nil {
			return err
		}
		return o.read(ctx, tx, from, limit)
	})
	return o, err
}

// read finds the page on narrow rows first: the queue may be long.
func (o *PoolOrder) read(ctx context.Context, tx *Tx, from orderCursor, limit int) error {
	var err error
	o.Rows, err = jobLines(ctx, tx, ` join (select q.id, coalesce(w.rank, $6) as place from jobs q left join job_reasons w on w.job_id = q.id
			where q.pool_id = $1 and q.state = 'pending' and not q.blocked and (coalesce(w.rank, $6), q.queue_seq, q.id) > ($2, $3, $4)
			order by place, q.queue_seq, q.id limit $5 offset $7) f on f.id = j.id
		order by f.place, j.queue_seq, j.id`, o.ID, from.rank, from.seq, from.job, limit+1, unranked, from.skip)
	if err != nil || len(o.Rows) <= limit {
		return err
	}
	o.Rows, o.Skip = o.Rows[:limit], fmt.Sprintf("@%d", from.skip+int64(limit))
	last, rank := &o.Rows[limit-1], int64(unranked)
	if last.Reason != nil && last.Reason.Rank > 0 {
		rank = int64(last.Reason.Rank)
	}
	o.Next = fmt.Sprintf("%d-%d-%d", rank, last.QueueSeq, last.ID)
	return nil
}

// promiseIn reads what the last cycle said of a pool's reserved start; nil when
// nobody has it or would claim it.
func promiseIn(ctx context.Context, tx *Tx, pool ledger.PoolID) (*Promise, error) {
	var text []byte
	p := &Promise{Jobs: map[ledger.JobID]JobLine{}}
	err := tx.QueryRow(ctx, `select v.view, a.reserved_since from reserved_views v
		left join attempts a on a.pool_id = v.pool_id and a.phase = 'reserved' where v.pool_id = $1`, pool).Scan(&text, &p.From)
	if noRow(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &p.ReserveView); err != nil {
		return nil, fmt.Errorf("reserved start of pool %d: %w", pool, err)
	}
	ids := p.Queue
	if p.Holder != nil {
		ids = append(ids[:len(ids):len(ids)], p.Holder.Job)
	}
	rows, err := tx.Query(ctx, sqlJobLine+` where j.id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, scanJobLine)
	for _, j := range jobs {
		p.Jobs[j.ID] = j
	}
	return p, err
}

// PoolByName finds a pool's number.
func (s *Store) PoolByName(ctx context.Context, name string) (ledger.PoolID, error) {
	var id ledger.PoolID
	err := s.readTx(ctx, "pool", func(tx *Tx) error {
		var err error
		id, err = poolByName(ctx, tx, name)
		return err
	})
	return id, err
}
