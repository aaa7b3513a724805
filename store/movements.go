package store

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Movement is one entry as one project sees it in one pool. The fields after
// Change are what the entry did to its other accounts.
type Movement struct {
	EntryID int64
	Key     string
	Kind    string
	At      ledger.Instant
	Actor   ledger.PersonID // 0: the system
	Pool    ledger.PoolID
	Change  ledger.Amount // of Available
	Held    ledger.Amount
	Spent   ledger.Amount
	Expired ledger.Amount
	Credit  ledger.Amount
	Overrun ledger.Amount
	Balance ledger.Amount // Available afterwards, over all lots of the pool
	Job     ledger.JobID  // whose attempt caused it; 0: none
}

// MovementQuery asks for one page of a project's movements.
type MovementQuery struct {
	Project ledger.GroupID
	Pool    ledger.PoolID  // 0: all
	From    ledger.Instant // 0: from the beginning
	To      ledger.Instant // exclusive; 0: to the end
	After   int64          // entry id: go on after it, oldest first
	Before  int64          // entry id: go on before it, newest first
	Newest  bool           // newest first
	Limit   int            // entries on a page, 1..1000
}

// MovementPage is one page in the order asked for. Opening and Closing are what
// was available per pool before the page's oldest entry and after its newest.
type MovementPage struct {
	Movements []Movement
	Opening   map[ledger.PoolID]ledger.Amount
	Closing   map[ledger.PoolID]ledger.Amount
	Next      int64 // entry id to go on after (or before); 0: that was all
}

// Movements gives one page of a project's ledger. Pages are keyed by entry, so
// that new entries never shift them.
func (s *Store) Movements(ctx context.Context, q MovementQuery) (MovementPage, error) {
	q.Limit = min(max(q.Limit, 1), 1000)
	page := MovementPage{}
	err := s.readTx(ctx, "movements", func(tx *Tx) error {
		page = MovementPage{Opening: map[ledger.PoolID]ledger.Amount{}, Closing: map[ledger.PoolID]ledger.Amount{}}
		low, high, err := q.bounds(ctx, tx)
		if err != nil {
			return err
		}
		ids, err := q.entryIDs(ctx, tx, low, high)
		if err != nil || len(ids) == 0 {
			return err
		}
		if len(ids) > q.Limit {
			ids = ids[:q.Limit]
			page.Next = ids[len(ids)-1]
		}
		return page.load(ctx, tx, q, ids)
	})
	return page, err
}

// bounds gives the entry ids [low, high] that the query may return.
func (q MovementQuery) bounds(ctx context.Context, tx *Tx) (low, high int64, err error) {
	low, high = q.After+1, 1<<62
	if q.Before > 0 {
		high = q.Before - 1
	}
	if q.From == 0 && q.To == 0 {
		return low, high, nil
	}
	var first, last int64
	err = tx.QueryRow(ctx, `select coalesce(min(id), 0), coalesce(max(id), -1) from entries
		where ($1::timestamptz is null or at >= $1) and ($2::timestamptz is null or at < $2)`, q.From, q.To).Scan(&first, &last)
	return max(low, first), min(high, last), err
}

// sqlProjectAccounts are the accounts a project sees; $2 = 0 means all pools.
const sqlProjectAccounts = `with acc as materialized (select id, kind, pool_id from accounts where group_id = $1 and ($2 = 0 or pool_id = $2) and kind <> 2) ` // 2: ledger.Pot

// entryIDs gives up to Limit + 1 entries in the order asked for. Each account
// contributes its own next ones, so the cost does not grow with the ledger.
func (q MovementQuery) entryIDs(ctx context.Context, tx *Tx, low, high int64) ([]int64, error) {
	order := "asc"
	if q.Newest {
		order = "desc"
	}
	side := func(column string) string {
		return `(select t.entry_id from transfers t where t.` + column + ` = acc.id and t.entry_id between $3 and $4 order by t.entry_id ` + order + ` limit $5)`
	}
	rows, err := tx.Query(ctx, sqlProjectAccounts+`select distinct x.entry_id from acc cross join lateral (`+side("debit")+` union all `+side("credit")+`) x
		order by 1 `+order+` limit $5`, q.Project, q.Pool, low, high, q.Limit+1)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// load fills the page with the entries ids, which are in the order asked for.
func (page *MovementPage) load(ctx context.Context, tx *Tx, q MovementQuery, ids []int64) error {
	oldest := ids[0]
	if q.Newest {
		oldest = ids[len(ids)-1]
	}
	if err := page.open(ctx, tx, q, oldest); err != nil {
		return err
	}
	sum := func(kind ledger.AccountKind) string {
		return `coalesce(sum(m.delta) filter (where acc.kind = ` + decimal(int64(kind)) + `), 0)::bigint`
	}
	rows, err := tx.Query(ctx, sqlProjectAccounts+`select e.id, e.key, e.kind, e.at, e.actor_id, acc.pool_id,
			coalesce((select a.job_id from attempts a where a.id = case split_part(e.key, ':', 2) when 'attempt' then split_part(e.key, ':', 3)::bigint end), 0),
			`+sum(ledger.Available)+`, `+sum(ledger.Held)+`, `+sum(ledger.Spent)+`, `+sum(ledger.Expired)+`, `+sum(ledger.Credit)+`, `+sum(ledger.Overrun)+`
		from entries e join transfers t on t.entry_id = e.id
		cross join lateral (values (t.debit, -t.amount), (t.credit, t.amount)) m (account_id, delta)
		join acc on acc.id = m.account_id
		where e.id = any($3) group by e.id, acc.pool_id order by e.id, acc.pool_id`, q.Project, q.Pool, ids)
	if err != nil {
		return err
	}
	for pool, amount := range page.Opening {
		page.Closing[pool] = amount
	}
	var m Movement
	_, err = pgx.ForEachRow(rows, []any{
		&m.EntryID, &m.Key, &m.Kind, &m.At, &m.Actor, &m.Pool, &m.Job,
		&m.Change, &m.Held, &m.Spent, &m.Expired, &m.Credit, &m.Overrun,
	}, func() error {
		page.Closing[m.Pool] += m.Change
		m.Balance = page.Closing[m.Pool]
		page.Movements = append(page.Movements, m)
		return nil
	})
	if q.Newest {
		for i, j := 0, len(page.Movements)-1; i < j; i, j = i+1, j-1 {
			page.Movements[i], page.Movements[j] = page.Movements[j], page.Movements[i]
		}
	}
	return err
}

// open finds what was available before an entry.
func (page *MovementPage) open(ctx context.Context, tx *Tx, q MovementQuery, before int64) error {
	rows, err := tx.Query(ctx, sqlProjectAccounts+`select acc.pool_id, sum(
			coalesce((select sum(amount) from transfers where credit = acc.id and entry_id < $3), 0)
			- coalesce((select sum(amount) from transfers where debit = acc.id and entry_id < $3), 0))::bigint
		from acc where acc.kind = `+decimal(int64(ledger.Available))+` group by 1`, q.Project, q.Pool, before)
	if err != nil {
		return err
	}
	var pool ledger.PoolID
	var amount ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&pool, &amount}, func() error {
		page.Opening[pool] = amount
		return nil
	})
	return err
}

// decimal writes a number that is a constant of the program into a statement.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }
