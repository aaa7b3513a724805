package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Anchor is a seal's hash kept outside the database, from an export's trailer or
// the auditors' mail.
type Anchor struct {
	N    int64
	Hash [32]byte
}

// Fault is one difference between the books and what they must be. Entry and
// Transfer name the place where there is one.
type Fault struct {
	Entry    string // key, or ""
	Transfer int    // number within the entry from 0, or −1
	Detail   string // one sentence
}

// String is the fault as verify prints it.
func (f Fault) String() string {
	switch {
	case f.Entry != "" && f.Transfer >= 0:
		return fmt.Sprintf("entry %s, transfer %d: %s", f.Entry, f.Transfer, f.Detail)
	case f.Entry != "":
		return fmt.Sprintf("entry %s: %s", f.Entry, f.Detail)
	}
	return f.Detail
}

// faultsMost bounds the faults that are named; the count goes on.
const faultsMost = 100

// Report is the answer of Verify.
type Report struct {
	Entries   int64
	Transfers int64
	Accounts  int64
	Unsealed  int64 // entries that no seal covers yet
	Head      Seal
	Sum       ledger.Amount // of all balances; 0 when the books are right
	FaultsAll int64
	Faults    []Fault // the first 100
}

// OK tells that nothing differs.
func (r *Report) OK() bool { return r.FaultsAll == 0 }

func (r *Report) fault(entry string, transfer int, format string, args ...any) {
	r.FaultsAll++
	if len(r.Faults) < faultsMost {
		r.Faults = append(r.Faults, Fault{entry, transfer, fmt.Sprintf(format, args...)})
	}
}

// Verify reads the whole books at one instant and reports every difference:
// transfers and entries against their hashes, balances against the transfers,
// the sum of all balances, what is set aside against what attempts hold, the
// path counters, the chain of seals and the anchors. The faults are the report's; an error means it could not be made.
func (s *Store) Verify(ctx context.Context, anchors ...Anchor) (*Report, error) {
	var report *Report
	err := s.readTx(ctx, "verify", func(tx *Tx) error {
		if _, err := tx.Exec(ctx, `set local statement_timeout = 0`); err != nil {
			return err
		}
		report = &Report{}
		v := &verifier{report: report, rebuilt: map[ledger.Account]ledger.Amount{}, doubtful: map[ledger.Account]bool{}}
		for _, check := range []func(context.Context, *Tx) error{v.entries, v.balances, v.holds, v.limits, v.seals} {
			if err := check(ctx, tx); err != nil {
				return err
			}
		}
		return v.anchors(ctx, tx, anchors)
	})
	return report, err
}

// verifier carries what the checks share.
type verifier struct {
	report   *Report
	rebuilt  map[ledger.Account]ledger.Amount
	doubtful map[ledger.Account]bool // touched by a faulty transfer, so its balance differs for that reason
}

// storedTransfer is one row of the pass over the books; N is −1 for an entry
// that has lost all its transfers.
type storedTransfer struct {
	id           int64
	entry        ledger.Entry // without transfers
	entryHash    []byte
	n            int
	transfer     ledger.Transfer
	transferHash []byte
}

const sqlBooks = `select e.id, e.key, e.kind, e.at, e.period_id, e.actor_id, e.hash,
		coalesce(t.n, -1), coalesce(t.amount, 0), coalesce(t.hash, ''),
		coalesce(d.kind, 0), coalesce(d.pool_id, 0), coalesce(d.period_id, 0), coalesce(d.group_id, 0), coalesce(d.lot_id, 0),
		coalesce(c.kind, 0), coalesce(c.pool_id, 0), coalesce(c.period_id, 0), coalesce(c.group_id, 0), coalesce(c.lot_id, 0)
	from entries e left join transfers t on t.entry_id = e.id
	left join accounts d on d.id = t.debit left join accounts c on c.id = t.credit
	order by e.id, t.n`

// entries goes through the books once, in constant memory.
func (v *verifier) entries(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, sqlBooks)
	if err != nil {
		return err
	}
	var r, first storedTransfer
	var of []storedTransfer
	d, c := &r.transfer.Debit, &r.transfer.Credit
	_, err = pgx.ForEachRow(rows, []any{
		&r.id, &r.entry.Key, &r.entry.Kind, &r.entry.At, &r.entry.Period, &r.entry.Actor, &r.entryHash,
		&r.n, &r.transfer.Amount, &r.transferHash,
		&d.Kind, &d.Pool, &d.Period, &d.Group, &d.Lot, &c.Kind, &c.Pool, &c.Period, &c.Group, &c.Lot,
	}, func() error {
		if len(of) > 0 && of[0].id != r.id {
			v.entry(of)
			of = of[:0]
		}
		first = r
		first.entryHash, first.transferHash = slices.Clone(r.entryHash), slices.Clone(r.transferHash)
		of = append(of, first)
		return nil
	})
	if err == nil && len(of) > 0 {
		v.entry(of)
	}
	return err
}

// entry checks one entry's rows.
func (v *verifier) entry(of []storedTransfer) {
	e, sound := of[0].entry, true
	v.report.Entries++
	for place, row := range of {
		if row.n < 0 {
			break
		}
		v.report.Transfers++
		t := row.transfer
		e.Transfers = append(e.Transfers, t)
		v.rebuilt[t.Debit] -= t.Amount
		v.rebuilt[t.Credit] += t.Amount
		if hash := t.Hash(e.Key, row.n); row.n != place || !slices.Equal(hash[:], row.transferHash) {
			v.report.fault(e.Key, row.n, "its content does not fit its hash")
			v.doubtful[t.Debit], v.doubtful[t.Credit] = true, true
			sound = false
		}
	}
	if hash := e.Hash(); sound && !slices.Equal(hash[:], of[0].entryHash) {
		v.report.fault(e.Key, -1, "its content does not fit its hash")
		for _, t := range e.Transfers {
			v.doubtful[t.Debit], v.doubtful[t.Credit] = true, true
		}
	}
}

// balances compares the kept balances with the transfers, and adds them all up.
func (v *verifier) balances(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `select a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id, b.balance
		from balances b join accounts a on a.id = b.account_id order by a.id`)
	if err != nil {
		return err
	}
	var a ledger.Account
	var kept ledger.Amount
	_, err = pgx.ForEachRow(rows, []any{&a.Kind, &a.Pool, &a.Period, &a.Group, &a.Lot, &kept}, func() error {
		v.report.Accounts++
		v.report.Sum += kept
		if kept != v.rebuilt[a] && !v.doubtful[a] {
			v.report.fault("", -1, "the balance of %v is %d units, its transfers give %d", a, kept, v.rebuilt[a])
		}
		delete(v.rebuilt, a)
		return nil
	})
	if err != nil {
		return err
	}
	var lost []ledger.Account
	for a, amount := range v.rebuilt {
		if amount != 0 && !v.doubtful[a] {
			lost = append(lost, a)
		}
	}
	slices.SortFunc(lost, ledger.Account.Compare)
	for _, a := range lost {
		v.report.fault("", -1, "the balance of %v is missing, its transfers give %d units", a, v.rebuilt[a])
	}
	if v.report.Sum != 0 {
		v.report.fault("", -1, "all balances add up to %d units instead of 0", v.report.Sum)
	}
	return nil
}

// holds compares what each lot has set aside with what attempts still hold of it:
// a hold that nobody will settle or release is lost to its project.
func (v *verifier) holds(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `with held as (
			select a.lot_id, b.balance as amount from accounts a join balances b on b.account_id = a.id where a.kind = $1),
		pieces as (
			select lot_id, sum(amount - spent - released)::bigint as amount from hold_pieces group by 1)
		select lot_id, coalesce(held.amount, 0), coalesce(pieces.amount, 0) from held full join pieces using (lot_id)
		where coalesce(held.amount, 0) <> coalesce(pieces.amount, 0) order by 1`, int16(ledger.Held))
	if err != nil {
		return err
	}
	var lot, held, pieces int64
	_, err = pgx.ForEachRow(rows, []any{&lot, &held, &pieces}, func() error {
		v.report.fault("", -1, "lot %d has %d units set aside, its attempts hold %d", lot, held, pieces)
		return nil
	})
	return err
}

// sqlLimits compares each counter with what the pots' and lots' accounts say.
const sqlLimits = `with over as (select id, path, parent_id from groups where overcommit_ppm > 1000000),
	received as (
		select o.id as program_id, a.pool_id, a.period_id,
			sum(case when t.credit = a.id then t.amount else -t.amount end)::bigint as amount
		from over o join accounts a on a.kind = $1 and a.group_id = o.id
		join transfers t on t.credit = a.id or t.debit = a.id
		join accounts other on other.id = case when t.credit = a.id then t.debit else t.credit end
		where other.kind = $2 or (other.kind = $1 and other.group_id = o.parent_id)
		group by 1, 2, 3),
	used as (
		select o.id as program_id, a.pool_id, a.period_id, sum(b.balance)::bigint as amount
		from over o join groups g on starts_with(g.path, rtrim(o.path, '/') || '/')
		join accounts a on a.group_id = g.id and a.lot_id <> 0 and a.kind = any($3::smallint[])
		join balances b on b.account_id = a.id
		group by 1, 2, 3)
	select o.path, l.pool_id, l.period_id, l.received, l.used,
		coalesce((select amount from received r where (r.program_id, r.pool_id, r.period_id) = (l.program_id, l.pool_id, l.period_id)), 0),
		coalesce((select amount from used u where (u.program_id, u.pool_id, u.period_id) = (l.program_id, l.pool_id, l.period_id)), 0)
	from path_limits l join over o on o.id = l.program_id order by l.program_id, l.pool_id, l.period_id`

// limits compares the path counters with the balances below their programs.
func (v *verifier) limits(ctx context.Context, tx *Tx) error {
	kinds := []int16{int16(ledger.Held), int16(ledger.Spent), int16(ledger.Credit)}
	rows, err := tx.Query(ctx, sqlLimits, int16(ledger.Pot), int16(ledger.Supply), kinds)
	if err != nil {
		return err
	}
	var path string
	var pool, period, received, used, receivedWant, usedWant int64
	_, err = pgx.ForEachRow(rows, []any{&path, &pool, &period, &received, &used, &receivedWant, &usedWant}, func() error {
		if received != receivedWant || used != usedWant {
			v.report.fault("", -1, "the counter of %s (pool %d, period %d) has received %d and used %d units, the books say %d and %d",
				path, pool, period, received, used, receivedWant, usedWant)
		}
		return nil
	})
	return err
}

// seals checks the chain link by link against the entries each one covers.
func (v *verifier) seals(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `select s.n, s.at, s.prev, s.from_xid::text::bigint, s.to_xid::text::bigint, s.entries, s.hash,
			(select array_agg(e.hash order by e.xid, e.id) from entries e where e.xid >= s.from_xid and e.xid < s.to_xid)
		from seals s order by s.n`)
	if err != nil {
		return err
	}
	var last, s Seal
	var prev, hash []byte
	var covered [][]byte
	_, err = pgx.ForEachRow(rows, []any{&s.N, &s.At, &prev, &s.From, &s.To, &s.Entries, &hash, &covered}, func() error {
		s.Prev, s.Hash = [32]byte(prev), [32]byte(hash)
		hashes := make([][32]byte, len(covered))
		for i := range covered {
			hashes[i] = [32]byte(covered[i])
		}
		switch {
		case s.N != last.N+1 || s.From != last.To || s.Prev != last.Hash:
			v.report.fault("", -1, "seal %d does not continue seal %d", s.N, last.N)
		case int64(len(hashes)) != s.Entries:
			v.report.fault("", -1, "seal %d was made over %d entries, now there are %d", s.N, s.Entries, len(hashes))
		case ledger.SealHash(s.Prev, s.From, s.To, hashes) != s.Hash:
			v.report.fault("", -1, "seal %d does not fit the entries it covers", s.N)
		}
		last = s
		return nil
	})
	if err != nil {
		return err
	}
	v.report.Head = last
	return tx.QueryRow(ctx, `select count(*) from entries where xid >= $1::text::xid8`, fmt.Sprint(last.To)).Scan(&v.report.Unsealed)
}

// anchors compares seals with what was written down elsewhere.
func (v *verifier) anchors(ctx context.Context, tx *Tx, anchors []Anchor) error {
	slices.SortFunc(anchors, func(a, b Anchor) int { return cmp.Compare(a.N, b.N) })
	for _, anchor := range anchors {
		var same bool
		err := tx.QueryRow(ctx, `select coalesce((select hash = $2 from seals where n = $1), false)`, anchor.N, anchor.Hash[:]).Scan(&same)
		if err != nil {
			return err
		}
		if !same {
			v.report.fault("", -1, "seal %d is not the one of the anchor %x", anchor.N, anchor.Hash)
		}
	}
	return nil
}
