package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// Posted tells what became of one entry.
type Posted struct {
	ID  int64 // of the entry in the books
	New bool  // false: its key was posted before, with the same transfers, and nothing changed
}

// post writes entries to the books: the only way to entries, transfers,
// balances and path counters. All go through or none does. An entry whose key
// was posted before changes nothing; with other transfers it is a Conflict. A
// balance that would leave its bounds is refused as Short. Balances are locked
// in the order of their accounts' ids until the transaction ends.
func post(ctx context.Context, tx *Tx, entries ...ledger.Entry) ([]Posted, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	args, err := postingOf(entries)
	if err != nil {
		return nil, err
	}
	ids, overcommitted, err := sendPosting(ctx, tx, args)
	if err != nil {
		return nil, err
	}
	posted := make([]Posted, len(entries))
	var fresh, repeated []ledger.Entry
	for i, e := range entries {
		id, ok := ids[e.Key]
		posted[i] = Posted{ID: id, New: ok}
		if ok {
			fresh = append(fresh, e)
		} else {
			repeated = append(repeated, e)
		}
	}
	if overcommitted {
		if err := moveLimits(ctx, tx, fresh); err != nil {
			return nil, err
		}
	}
	if len(repeated) == 0 {
		return posted, nil
	}
	known, err := knownEntries(ctx, tx, repeated)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if !posted[i].New {
			posted[i].ID = known[e.Key]
		}
	}
	return posted, nil
}

// posting is what one call sends: the accounts touched, each once and sorted,
// and the entries and transfers as columns.
type posting struct {
	accounts []ledger.Account
	account  accountColumns
	floors   []int64
	ceilings []int64

	keys, kinds     []string
	ats             []ledger.Instant
	periods, actors []int64
	hashes          [][]byte

	entryKeys       []string // of each transfer
	ns              []int32
	debits, credits []int32 // positions in accounts, from 1
	amounts         []int64
	transferHashes  [][]byte
}

// accountColumns are accounts as the columns of an unnest.
type accountColumns struct {
	kinds                        []int16
	pools, periods, groups, lots []int64
}

func columnsOf(accounts []ledger.Account) accountColumns {
	var c accountColumns
	for _, a := range accounts {
		c.kinds = append(c.kinds, int16(a.Kind))
		c.pools = append(c.pools, int64(a.Pool))
		c.periods = append(c.periods, int64(a.Period))
		c.groups = append(c.groups, int64(a.Group))
		c.lots = append(c.lots, int64(a.Lot))
	}
	return c
}

// postingOf checks the entries and lays them out.
func postingOf(entries []ledger.Entry) (*posting, error) {
	p := &posting{}
	for i, e := range entries {
		if r := e.Check(); r != nil {
			return nil, r
		}
		if slices.ContainsFunc(entries[:i], func(o ledger.Entry) bool { return o.Key == e.Key }) {
			return nil, fmt.Errorf("entry %s is posted twice in one call", e.Key)
		}
		for _, t := range e.Transfers {
			p.accounts = append(p.accounts, t.Debit, t.Credit)
		}
	}
	slices.SortFunc(p.accounts, ledger.Account.Compare)
	p.accounts = slices.Compact(p.accounts)
	p.account = columnsOf(p.accounts)
	for _, a := range p.accounts {
		b := ledger.NewBalance(a)
		p.floors, p.ceilings = append(p.floors, int64(b.Floor)), append(p.ceilings, int64(b.Ceiling))
	}
	for _, e := range entries {
		p.add(e)
	}
	return p, nil
}

func (p *posting) add(e ledger.Entry) {
	place := func(a ledger.Account) int32 {
		i, _ := slices.BinarySearchFunc(p.accounts, a, ledger.Account.Compare)
		return int32(i + 1)
	}
	hash := e.Hash()
	p.keys, p.kinds, p.ats = append(p.keys, e.Key), append(p.kinds, e.Kind), append(p.ats, e.At)
	p.periods, p.actors = append(p.periods, int64(e.Period)), append(p.actors, int64(e.Actor))
	p.hashes = append(p.hashes, hash[:])
	for n, t := range e.Transfers {
		hash := t.Hash(e.Key, n)
		p.entryKeys, p.ns = append(p.entryKeys, e.Key), append(p.ns, int32(n))
		p.debits, p.credits = append(p.debits, place(t.Debit)), append(p.credits, place(t.Credit))
		p.amounts = append(p.amounts, int64(t.Amount))
		p.transferHashes = append(p.transferHashes, hash[:])
	}
}

// The statements of a posting, sent together. Each sees what the ones before it
// made, and what other transactions committed while it waited.
const (
	sqlAccounts = `insert into accounts (kind, pool_id, period_id, group_id, lot_id)
		select * from unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) u (kind, pool_id, period_id, group_id, lot_id)
		where not exists (select from accounts a where (a.kind, a.pool_id, a.period_id, a.group_id, a.lot_id) = (u.kind, u.pool_id, u.period_id, u.group_id, u.lot_id))
		on conflict do nothing`
	sqlBalances = `insert into balances (account_id, floor, ceiling)
		select a.id, u.floor, u.ceiling
		from unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
			u (kind, pool_id, period_id, group_id, lot_id, floor, ceiling)
		join accounts a using (kind, pool_id, period_id, group_id, lot_id)
		where not exists (select from balances b where b.account_id = a.id)
		order by a.id
		on conflict do nothing`
	sqlLock = `select b.account_id from balances b where b.account_id in (
			select a.id from unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) u (kind, pool_id, period_id, group_id, lot_id)
			join accounts a using (kind, pool_id, period_id, group_id, lot_id))
		order by b.account_id for update`
	sqlPost = `with acc as (
			select a.id, u.place
			from unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) with ordinality u (kind, pool_id, period_id, group_id, lot_id, place)
			join accounts a using (kind, pool_id, period_id, group_id, lot_id)),
		new_entries as (
			insert into entries (key, kind, at, period_id, actor_id, hash)
			select * from unnest($6::text[], $7::text[], $8::timestamptz[], $9::bigint[], $10::bigint[], $11::bytea[])
			on conflict (key) do nothing
			returning id, key),
		new_transfers as (
			insert into transfers (entry_id, n, debit, credit, amount, hash)
			select e.id, t.n, d.id, c.id, t.amount, t.hash
			from unnest($12::text[], $13::int[], $14::int[], $15::int[], $16::bigint[], $17::bytea[]) t (key, n, debit, credit, amount, hash)
			join new_entries e using (key) join acc d on d.place = t.debit join acc c on c.place = t.credit
			returning debit, credit, amount),
		moved as (
			select account_id, sum(delta)::bigint as delta
			from (select debit, -amount from new_transfers union all select credit, amount from new_transfers) m (account_id, delta)
			group by account_id),
		updated as (
			update balances b set balance = balance + moved.delta from moved where b.account_id = moved.account_id)
		select id, key, exists (select from groups where overcommit_ppm > 1000000) from new_entries`
)

// sendPosting writes a posting in one round trip and gives the ids of the entries that
// were new, and whether any program has path counters to keep.
func sendPosting(ctx context.Context, tx *Tx, p *posting) (map[string]int64, bool, error) {
	a := p.account
	batch := &pgx.Batch{}
	batch.Queue(sqlAccounts, a.kinds, a.pools, a.periods, a.groups, a.lots)
	batch.Queue(sqlBalances, a.kinds, a.pools, a.periods, a.groups, a.lots, p.floors, p.ceilings)
	batch.Queue(sqlLock, a.kinds, a.pools, a.periods, a.groups, a.lots)
	ids, overcommitted := make(map[string]int64, len(p.keys)), false
	batch.Queue(sqlPost, a.kinds, a.pools, a.periods, a.groups, a.lots,
		p.keys, p.kinds, p.ats, p.periods, p.actors, p.hashes,
		p.entryKeys, p.ns, p.debits, p.credits, p.amounts, p.transferHashes).
		Query(func(rows pgx.Rows) error {
			var id int64
			var key string
			_, err := pgx.ForEachRow(rows, []any{&id, &key, &overcommitted}, func() error {
				ids[key] = id
				return nil
			})
			return err
		})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, false, fmt.Errorf("post %s: %w", p.keys[0], err)
	}
	return ids, overcommitted, nil
}

// knownEntries gives the ids of entries that were posted before, and refuses
// when the books hold other transfers under one of their keys.
func knownEntries(ctx context.Context, tx *Tx, entries []ledger.Entry) (map[string]int64, error) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	type row struct {
		ID     int64
		Key    string
		Hashes [][]byte
	}
	rows, err := tx.Query(ctx, `select e.id, e.key, array_agg(t.hash order by t.n) as hashes
		from entries e join transfers t on t.entry_id = e.id where e.key = any($1) group by e.id`, keys)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return nil, err
	}
	known := make(map[string]int64, len(found))
	for _, e := range entries {
		i := slices.IndexFunc(found, func(r row) bool { return r.Key == e.Key })
		if i < 0 {
			return nil, fmt.Errorf("entry %s was neither new nor known", e.Key)
		}
		same := len(found[i].Hashes) == len(e.Transfers)
		for n := 0; same && n < len(e.Transfers); n++ {
			same = [32]byte(found[i].Hashes[n]) == e.Transfers[n].Hash(e.Key, n)
		}
		if !same {
			return nil, &ledger.Refusal{
				Kind: ledger.Conflict, Code: "entry.key_reused", Facts: map[string]string{"key": e.Key},
				Detail: "This command was already carried out with other content; start again from a fresh page.",
			}
		}
		known[e.Key] = found[i].ID
	}
	return known, nil
}
