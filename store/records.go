package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// fullEvery is the real time after which a record holds a whole snapshot again.
const fullEvery = 10 * time.Minute

// Recorder writes what cycles decided from, off their path. It is used by one
// goroutine of the leader. After a record that could not be written, the next
// one is whole.
type Recorder struct {
	leader *Leader
	budget int64 // bytes of bodies kept
	last   *scheduler.Snapshot
	full   time.Time // when the last whole one was written
}

// Recorder keeps records of the leader's cycles within a budget of bytes.
func (l *Leader) Recorder(budget int64) *Recorder { return &Recorder{leader: l, budget: budget} }

// Recorded says what a record took, and what had to go for it.
type Recorded struct {
	Full    bool
	Bytes   int64
	Dropped int64 // records
}

// Record writes one cycle: its snapshot as it was decided from, the hash of its
// plan, and how long it took. The snapshot must not change any more.
func (r *Recorder) Record(ctx context.Context, report scheduler.Report, took time.Duration) (Recorded, error) {
	now := report.Snapshot.Flat()
	out := Recorded{Full: r.last == nil || r.leader.store.clock().Sub(r.full) >= fullEvery}
	base := int64(0)
	var content any = now
	if !out.Full {
		base = r.last.Cycle
		content = scheduler.Diff(r.last, now)
	}
	body, err := packed(content)
	if err != nil {
		return out, fmt.Errorf("record of cycle %d: %w", now.Cycle, err)
	}
	out.Bytes = int64(len(body))
	p := report.Plan
	hash := sha256.Sum256(p.Bytes())
	evictions := 0
	for i := range p.Starts {
		evictions += len(p.Starts[i].Evict)
	}
	r.last = nil // until it is written, nothing may build on it
	err = r.leader.inLeaderTx(ctx, "record cycle", func(tx *Tx) error {
		if _, err := tx.Exec(ctx, `insert into cycle_records (cycle, base, at, body, bytes, plan_sha256, policy, starts, evictions, stops, steps, took_us)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, now.Cycle, base, now.Now, body, out.Bytes, hash[:], p.Policy,
			len(p.Starts), evictions, len(p.Stops), p.Steps, took.Microseconds()); err != nil {
			return err
		}
		if !out.Full {
			return nil
		}
		var err error
		out.Dropped, err = r.drop(ctx, tx)
		return err
	})
	if err != nil {
		return out, err
	}
	r.last = now
	if out.Full {
		r.full = r.leader.store.clock()
	}
	return out, nil
}

// drop removes the oldest records beyond the budget, always up to a whole one,
// and notes it.
func (r *Recorder) drop(ctx context.Context, tx *Tx) (int64, error) {
	var keep *int64
	err := tx.QueryRow(ctx, `with sums as (select cycle, base, sum(bytes) over (order by cycle desc) as sum from cycle_records)
		select min(cycle) from sums where base = 0 and sum <= $1`, r.budget).Scan(&keep)
	if err != nil {
		return 0, err
	}
	if keep == nil { // not even the newest whole one fits: keep it, it is the only one that helps
		if err := tx.QueryRow(ctx, `select max(cycle) from cycle_records where base = 0`).Scan(&keep); err != nil {
			return 0, err
		}
	}
	tag, err := tx.Exec(ctx, `delete from cycle_records where cycle < $1`, *keep)
	if err != nil || tag.RowsAffected() == 0 {
		return 0, err
	}
	_, err = tx.Exec(ctx, `update dispatcher set records_dropped = $1, records_dropped_at = $2`, *keep-1, tx.Now)
	return tag.RowsAffected(), err
}

func packed(v any) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.NewEncoder(z).Encode(v), z.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(body []byte, into any) error {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(z)
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// CycleRecord is one kept cycle, without its snapshot.
type CycleRecord struct {
	Cycle     int64          `json:"cycle"`
	Full      bool           `json:"full"`
	At        ledger.Instant `json:"at"`
	Bytes     int64          `json:"bytes"`
	Policy    int64          `json:"policy"`
	Starts    int            `json:"starts"`
	Evictions int            `json:"evictions"`
	Stops     int            `json:"stops"`
	Steps     int64          `json:"steps"`
	TookUs    int64          `json:"took_us"`
	Plan      [32]byte       `json:"-"`
}

// Kept says which cycles have records.
type Kept struct {
	Cycles    int64          `json:"cycles"`
	First     int64          `json:"first"`
	Last      int64          `json:"last"`
	Bytes     int64          `json:"bytes"`
	Dropped   int64          `json:"dropped"` // cycles up to this one went for want of room; 0 = none
	DroppedAt ledger.Instant `json:"dropped_at"`
}

// KeptCycles says which cycles have records and what had to go.
func (s *Store) KeptCycles(ctx context.Context) (Kept, error) {
	var k Kept
	err := s.readTx(ctx, "kept cycles", func(tx *Tx) error {
		return tx.QueryRow(ctx, `select (select count(*) from cycle_records), coalesce((select min(cycle) from cycle_records), 0),
			coalesce((select max(cycle) from cycle_records), 0), coalesce((select sum(bytes)::bigint from cycle_records), 0), records_dropped, records_dropped_at
			from dispatcher`).Scan(&k.Cycles, &k.First, &k.Last, &k.Bytes, &k.Dropped, &k.DroppedAt)
	})
	return k, err
}

// LastCycles gives the numbers of the newest n kept cycles: the first of them and
// the last. Both are 0 when nothing is kept.
func (s *Store) LastCycles(ctx context.Context, n int64) (from, to int64, err error) {
	err = s.readTx(ctx, "last cycles", func(tx *Tx) error {
		return tx.QueryRow(ctx, `select coalesce(min(cycle), 0), coalesce(max(cycle), 0)
			from (select cycle from cycle_records order by cycle desc limit $1) c`, n).Scan(&from, &to)
	})
	return from, to, err
}

// EachCycle rebuilds the snapshots of the kept cycles in [from, to], in order, and
// gives each to do. A record that is missing a part of its chain, or that cannot
// be read, is an error that names it.
func (s *Store) EachCycle(ctx context.Context, from, to int64, do func(CycleRecord, *scheduler.Snapshot) error) error {
	var start int64
	err := s.readTx(ctx, "each cycle", func(tx *Tx) error {
		return tx.QueryRow(ctx, `select coalesce(max(cycle), 0) from cycle_records where base = 0 and cycle <= $1`, from).Scan(&start)
	})
	if err != nil {
		return err
	}
	if start == 0 {
		return refuse(ledger.Missing, "replay.missing", "cycle", fmt.Sprintf("No whole record is kept at or before cycle %d.", from))
	}
	var snap *scheduler.Snapshot
	const page = 50
	for at := start; at <= to; {
		rows, err := s.recordPage(ctx, at, to, page)
		if err != nil {
			return err
		}
		for i := range rows {
			if snap, err = rows[i].onto(snap); err != nil {
				return fmt.Errorf("record of cycle %d: %w", rows[i].Cycle, err)
			}
			if rows[i].Cycle >= from {
				if err := do(rows[i].CycleRecord, snap); err != nil {
					return err
				}
			}
			at = rows[i].Cycle + 1
		}
		if len(rows) < page {
			return nil
		}
	}
	return nil
}

type recordRow struct {
	CycleRecord
	base int64
	body []byte
}

func (s *Store) recordPage(ctx context.Context, from, to int64, limit int) ([]recordRow, error) {
	var out []recordRow
	err := s.readTx(ctx, "cycle records", func(tx *Tx) error {
		rows, err := tx.Query(ctx, `select cycle, base, at, body, bytes, plan_sha256, policy, starts, evictions, stops, steps, took_us
			from cycle_records where cycle between $1 and $2 order by cycle limit $3`, from, to, limit)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (recordRow, error) {
			var r recordRow
			var hash []byte
			err := row.Scan(&r.Cycle, &r.base, &r.At, &r.body, &r.Bytes, &hash, &r.Policy, &r.Starts, &r.Evictions, &r.Stops, &r.Steps, &r.TookUs)
			r.Full = r.base == 0
			copy(r.Plan[:], hash)
			return r, err
		})
		return err
	})
	return out, err
}

// onto makes the record's snapshot of the one before it.
func (r *recordRow) onto(before *scheduler.Snapshot) (*scheduler.Snapshot, error) {
	if r.base == 0 {
		var s scheduler.Snapshot
		if err := unpack(r.body, &s); err != nil {
			return nil, err
		}
		return &s, nil
	}
	if before == nil || before.Cycle != r.base {
		return nil, fmt.Errorf("it changes cycle %d, which is not kept", r.base)
	}
	var d scheduler.Delta
	if err := unpack(r.body, &d); err != nil {
		return nil, err
	}
	return d.Apply(before)
}
