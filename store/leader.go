package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	leaderIdle   = 2 * time.Second        // a leader transaction stuck this long is ended by the database
	leaderSilent = 3 * time.Second        // a counter that stood still this long has no living leader
	leaderLook   = 250 * time.Millisecond // how often an observer looks, and a leader beats
)

// ErrFenced tells a former leader that another one has taken over: nothing of
// the transaction was written, and it must stop leading.
var ErrFenced = errors.New("store: another server is the leader now")

// Leader is the right to write as the leader, until a higher epoch exists.
type Leader struct {
	store *Store
	epoch int64
}

// Epoch numbers the leaderships of this database, from 1.
func (l *Leader) Epoch() int64 { return l.epoch }

// beat is what an observer sees of a leader.
type beat struct {
	epoch, count int64
	holder       string
}

// Campaign waits until this server may lead: the row has no holder, or the
// holder's counter stood still for 3 s of this server's own clock.
func (s *Store) Campaign(ctx context.Context, holder string) (*Leader, error) {
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	var seen beat
	since := s.clock()
	for {
		leader, now, err := s.challenge(ctx, holder, seen, s.clock().Sub(since) >= leaderSilent)
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "could not look at the leader", "cause", err)
		}
		if leader != nil {
			return leader, nil
		}
		if err != nil || now != seen {
			seen, since = now, s.clock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("store: campaign: %w", ctx.Err())
		}
	}
}

// challenge looks at the leader row and takes it over when it is free, or when
// silent and still as it was last seen.
func (s *Store) challenge(ctx context.Context, holder string, seen beat, silent bool) (*Leader, beat, error) {
	var now beat
	err := s.leaderPool.QueryRow(ctx, `select epoch, beat, holder from leader`).Scan(&now.epoch, &now.count, &now.holder)
	if err != nil {
		return nil, beat{}, err
	}
	if now.holder != "" && (!silent || now != seen) {
		return nil, now, nil
	}
	tag, err := s.leaderPool.Exec(ctx, `update leader set epoch = epoch + 1, holder = $1, beat = 0, since = $4
		where epoch = $2 and beat = $3`, holder, now.epoch, now.count, s.Real())
	if err != nil || tag.RowsAffected() == 0 {
		return nil, now, err
	}
	return &Leader{store: s, epoch: now.epoch + 1}, now, nil
}

// Hold beats until ctx ends, then gives the leadership back, or returns
// ErrFenced as soon as another server has taken over.
func (l *Leader) Hold(ctx context.Context) error {
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			return l.resign(clean)
		case <-tick.C:
		}
		if err := l.beat(ctx); errors.Is(err, ErrFenced) {
			return err
		} else if err != nil && ctx.Err() == nil {
			l.store.log.WarnContext(ctx, "the leader's beat was not written", "cause", err)
		}
	}
}

// beat counts once, which keeps other servers from taking over for 3 s.
func (l *Leader) beat(ctx context.Context) error {
	return l.fencedExec(ctx, "beat", `update leader set beat = beat + 1 where epoch = $1`)
}

// resign lets the next server lead without waiting.
func (l *Leader) resign(ctx context.Context) error {
	return l.fencedExec(ctx, "resign", `update leader set holder = '', beat = beat + 1 where epoch = $1`)
}

func (l *Leader) fencedExec(ctx context.Context, name, sql string) error {
	tag, err := l.store.leaderPool.Exec(ctx, sql, l.epoch)
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	if tag.RowsAffected() == 0 {
		return ErrFenced
	}
	return nil
}

// inLeaderTx is inTx for the leader: it begins by locking the epoch, so a
// server that lost the leadership while it slept writes nothing.
func (l *Leader) inLeaderTx(ctx context.Context, name string, fn func(*Tx) error) error {
	opt := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	return l.store.run(ctx, l.store.leaderPool, name, opt, func(tx *Tx) error {
		var one int
		err := tx.QueryRow(ctx, `select 1 from leader where epoch = $1 for share`, l.epoch).Scan(&one)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrFenced
		}
		if err != nil {
			return err
		}
		return fn(tx)
	})
}
