package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
)

// sealMost bounds the entries of one seal; more wait for the next.
const sealMost = 20_000

// Seal is one link of the chain over the committed entries. It covers the
// entries of the transactions [From, To), in the order of transaction and id.
type Seal struct {
	N       int64
	At      ledger.Instant
	Prev    [32]byte
	From    int64 // transaction ids, as PostgreSQL counts them
	To      int64
	Entries int64
	Hash    [32]byte
}

// Seal appends one seal over the entries committed since the last one and gives
// how many it covers; without any, nothing is written. Which entries are due is
// told by the transactions that were over when it began, never by ids: an entry
// with a lower id may commit later than one with a higher.
func (l *Leader) Seal(ctx context.Context) (int64, error) {
	var sealed int64
	err := l.inLeaderTx(ctx, "seal", func(tx *Tx) error {
		last, err := lastSeal(ctx, tx)
		if err != nil {
			return err
		}
		next := Seal{N: last.N + 1, At: tx.Now, Prev: last.Hash, From: last.To}
		hashes, err := next.collect(ctx, tx)
		if err != nil || len(hashes) == 0 {
			return err
		}
		next.Entries = int64(len(hashes))
		next.Hash = ledger.SealHash(next.Prev, next.From, next.To, hashes)
		_, err = tx.Exec(ctx, `insert into seals (n, at, prev, from_xid, to_xid, entries, hash)
			values ($1, $2, $3, $4::text::xid8, $5::text::xid8, $6, $7)`,
			next.N, next.At, next.Prev[:], fmt.Sprint(next.From), fmt.Sprint(next.To), next.Entries, next.Hash[:])
		sealed = next.Entries
		return err
	})
	return sealed, err
}

// SealHead gives the newest seal, which stands for all entries up to it; N is 0
// while nothing is sealed.
func (s *Store) SealHead(ctx context.Context) (Seal, error) {
	var head Seal
	err := s.readTx(ctx, "seal head", func(tx *Tx) (err error) {
		head, err = lastSeal(ctx, tx)
		return err
	})
	return head, err
}

func lastSeal(ctx context.Context, tx *Tx) (Seal, error) {
	return readSeal(tx.QueryRow(ctx, `select `+sealColumns+` from seals order by n desc limit 1`))
}

// sealOf gives the seal that covers a transaction; N is 0 while there is none.
func sealOf(ctx context.Context, tx *Tx, xid int64) (Seal, error) {
	return readSeal(tx.QueryRow(ctx, `select `+sealColumns+` from seals where to_xid > $1::text::xid8 order by n limit 1`, decimal(xid)))
}

const sealColumns = `n, at, prev, from_xid::text::bigint, to_xid::text::bigint, entries, hash`

func readSeal(row pgx.Row) (Seal, error) {
	var s Seal
	var prev, hash []byte
	err := row.Scan(&s.N, &s.At, &prev, &s.From, &s.To, &s.Entries, &hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return Seal{}, nil
	}
	if err != nil {
		return Seal{}, err
	}
	s.Prev, s.Hash = [32]byte(prev), [32]byte(hash)
	return s, nil
}

// collect sets To and gives the hashes the seal covers. Every transaction below
// the snapshot's xmin is over, so what it wrote is complete and visible.
func (s *Seal) collect(ctx context.Context, tx *Tx) ([][32]byte, error) {
	if err := tx.QueryRow(ctx, `select pg_snapshot_xmin(pg_current_snapshot())::text::bigint`).Scan(&s.To); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `select xid::text::bigint, hash from entries
		where xid >= $1::text::xid8 and xid < $2::text::xid8 order by xid, id limit $3`, fmt.Sprint(s.From), fmt.Sprint(s.To), sealMost+1)
	if err != nil {
		return nil, err
	}
	var xids []int64
	var hashes [][32]byte
	var xid int64
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&xid, &hash}, func() error {
		xids, hashes = append(xids, xid), append(hashes, [32]byte(hash))
		return nil
	})
	if err != nil || len(hashes) <= sealMost {
		return hashes, err
	}
	// Too many: end before the last transaction, which may be cut in two here.
	end := len(xids) - 1
	for end > 0 && xids[end-1] == xids[len(xids)-1] {
		end--
	}
	if end == 0 {
		return nil, fmt.Errorf("transaction %d wrote more than %d entries", xids[0], sealMost)
	}
	s.To = xids[end]
	return hashes[:end], nil
}
