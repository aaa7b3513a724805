package store

import (
	"fmt"
	"testing"

	"tranche/ledger"
)

// BenchmarkPost posts batches of 100 charges; BenchmarkRawInserts writes the
// same rows with the same keys and indexes, without balances and checks.
func BenchmarkPost(b *testing.B) {
	k := newBooks(b, 1_000_000)
	k.must(b, k.award("a", k.lotA, 100*hour))
	k.must(b, k.hold("attempt:0", k.lotA, 100*hour))
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		entries := make([]ledger.Entry, 100)
		for i := range entries {
			entries[i] = k.entry(fmt.Sprintf("charge:attempt:%d:%dms:1ms", n, i), move(k.lotA.Account(ledger.Held), k.lotA.Account(ledger.Spent), 1))
		}
		k.must(b, entries...)
	}
}

func BenchmarkRawInserts(b *testing.B) {
	k := newBooks(b, 1_000_000)
	k.must(b, k.award("a", k.lotA, 100*hour))
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		p := &posting{accounts: []ledger.Account{k.lotA.Account(ledger.Held), k.lotA.Account(ledger.Spent)}}
		for i := range 100 {
			p.add(k.entry(fmt.Sprintf("charge:attempt:%d:%dms:1ms", n, i), move(p.accounts[0], p.accounts[1], 1)))
		}
		err := k.inTx(b.Context(), "raw", func(tx *Tx) error {
			_, err := tx.Exec(b.Context(), `with e as (insert into entries (key, kind, at, period_id, actor_id, hash)
					select * from unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bytea[]) returning id, key)
				insert into transfers (entry_id, n, debit, credit, amount, hash)
				select e.id, t.n, 1, 2, t.amount, t.hash from unnest($7::text[], $8::int[], $9::bigint[], $10::bytea[]) t (key, n, amount, hash) join e using (key)`,
				p.keys, p.kinds, p.ats, p.periods, p.actors, p.hashes, p.entryKeys, p.ns, p.amounts, p.transferHashes)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
