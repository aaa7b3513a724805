package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Charge is one line of a project's charges: the part of one charge or credit
// that one lot bore. Names of people are not in it.
type Charge struct {
	EntryID    int64
	Key        string
	Kind       string // charge or credit
	At         ledger.Instant
	Group      ledger.GroupID
	Path       string
	Title      string
	CostCentre string
	Pool       string
	Period     string       // "" for usage beyond every lot
	Lot        ledger.LotID // 0: beyond every lot (overrun)
	Job        ledger.JobID
	Attempt    ledger.AttemptID
	AttemptN   int
	Member     ledger.PersonID
	From       ledger.Instant // of the usage; 0 in credits
	To         ledger.Instant
	Rate       ledger.Rate
	PastPPM    int64         // price of seconds without protection; 1,000,000 = like all others
	PastMs     int64         // of the span, without protection
	Amount     ledger.Amount // negative in credits
}

// ChargeQuery asks for the charges booked in [From, To) at a path and below.
type ChargeQuery struct {
	Actor ledger.Actor
	Group ledger.GroupID // 0: the whole tree
	Pool  string         // name; "": all
	From  ledger.Instant // 0: from the beginning
	To    ledger.Instant // 0: to the end
}

// ChargeTotals closes an export: what was given, and the first seal that covers
// all of it, so that the same lines always name the same seal. Head.N is 0 while
// some line is not sealed, and when there is none.
type ChargeTotals struct {
	Group  Group
	Rows   int64
	Amount ledger.Amount
	Head   Seal
	newest int64 // transaction of the lines
}

const sqlCharges = `select e.id, e.key, e.kind, e.at, g.id, g.path, g.title, g.cost_centre, p.name, coalesce(per.name, ''), acc.lot_id,
		case e.kind when 'charge' then t.amount else -t.amount end,
		coalesce(a.id, 0), coalesce(a.n, 0), coalesce(a.job_id, 0), coalesce(j.member_id, 0),
		coalesce(a.milli_gpu, 0), coalesce(a.rate_ppm, 0), coalesce(a.past_ppm, 0), coalesce(a.price_turns, '{}'), a.started_at, e.xid::text::bigint
	from entries e join transfers t on t.entry_id = e.id
	join accounts acc on acc.id = case e.kind when 'charge' then t.credit else t.debit end
		and acc.kind = case e.kind when 'charge' then $1::smallint else $2::smallint end
	join groups g on g.id = acc.group_id
	join pools p on p.id = acc.pool_id
	left join periods per on per.id = acc.period_id
	left join attempts a on split_part(e.key, ':', 2) = 'attempt' and a.id = split_part(e.key, ':', 3)::bigint
	left join jobs j on j.id = a.job_id
	where e.kind in ('charge', 'credit') and (g.id = $3 or starts_with(g.path, $4))
		and ($5::timestamptz is null or e.at >= $5) and ($6::timestamptz is null or e.at < $6)
		and ($7 = '' or p.name = $7)
	order by e.id, t.n`

// StreamCharges calls each for every charge line, oldest first, without keeping
// them: an export of any size takes constant memory. Whoever may not export at
// the path is refused before the first line.
func (s *Store) StreamCharges(ctx context.Context, q ChargeQuery, each func(Charge) error) (ChargeTotals, error) {
	var totals ChargeTotals
	err := s.readTx(ctx, "charges", func(tx *Tx) (err error) {
		totals = ChargeTotals{}
		if totals.Group, err = q.root(ctx, tx); err != nil {
			return err
		}
		if r := q.Actor.May(ledger.ExportCharges, totals.Group.Path, tx.Now); r != nil {
			return r
		}
		// The reader may be slow: as long as it reads, the statement runs.
		if _, err = tx.Exec(ctx, `set local statement_timeout = `+decimal((30*time.Minute).Milliseconds())); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sqlCharges, int16(ledger.Spent), int16(ledger.Credit), totals.Group.ID,
			strings.TrimRight(totals.Group.Path, "/")+"/", q.From, q.To, q.Pool)
		if err != nil {
			return err
		}
		if err := totals.stream(rows, each); err != nil || totals.Rows == 0 {
			return err
		}
		totals.Head, err = sealOf(ctx, tx, totals.newest)
		return err
	})
	return totals, err
}

// root is the group whose charges are asked for.
func (q ChargeQuery) root(ctx context.Context, tx *Tx) (Group, error) {
	if q.Group != 0 {
		return groupByID(ctx, tx, q.Group)
	}
	var g Group
	err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.parent_id is null`).Scan(g.fields()...)
	return g, err
}

func (totals *ChargeTotals) stream(rows pgx.Rows, each func(Charge) error) error {
	var c Charge
	var started ledger.Instant
	var xid int64
	var past ledger.Past
	_, err := pgx.ForEachRow(rows, []any{
		&c.EntryID, &c.Key, &c.Kind, &c.At, &c.Group, &c.Path, &c.Title, &c.CostCentre, &c.Pool, &c.Period, &c.Lot,
		&c.Amount, &c.Attempt, &c.AttemptN, &c.Job, &c.Member, &c.Rate.MilliGPU, &c.Rate.PPM, &past.PPM, &past.Turns, &started, &xid,
	}, func() error {
		totals.newest = max(totals.newest, xid)
		fromMs, toMs := usageOf(c.Key)
		c.From, c.To, c.PastPPM, c.PastMs = 0, 0, 1_000_000, past.Unprotected(toMs)-past.Unprotected(fromMs)
		if toMs > 0 && started != 0 {
			c.From, c.To = started.Add(fromMs), started.Add(toMs)
		}
		if !past.IsZero() {
			c.PastPPM = past.PPM
		}
		totals.Rows++
		totals.Amount += c.Amount
		return each(c)
	})
	return err
}

// usageOf reads the elapsed span that a charge's key names, e.g.
// "charge:attempt:881:0ms:3600000ms"; 0 and 0 of other keys.
func usageOf(key string) (fromMs, toMs int64) {
	parts := strings.Split(key, ":")
	if len(parts) < 5 || parts[0] != "charge" {
		return 0, 0
	}
	fromMs, err := strconv.ParseInt(strings.TrimSuffix(parts[3], "ms"), 10, 64)
	if err != nil {
		return 0, 0
	}
	if toMs, err = strconv.ParseInt(strings.TrimSuffix(parts[4], "ms"), 10, 64); err != nil {
		return 0, 0
	}
	return fromMs, toMs
}
