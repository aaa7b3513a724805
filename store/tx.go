package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/ledger"
)

// maxTries bounds how often a transaction is run again after the database
// ended it for another one's sake (serialization failure, deadlock).
const maxTries = 4

// Tx is a transaction with its one instant. The function it is given to may run
// more than once, so it must not change anything outside the transaction.
type Tx struct {
	pgx.Tx
	Now    ledger.Instant // business instant of every row this transaction writes
	Real   ledger.Instant // real instant, for liveness only
	notify []string
}

// Notify wakes the listeners of a channel after the commit.
func (tx *Tx) Notify(channel string) {
	if !slices.Contains(tx.notify, channel) {
		tx.notify = append(tx.notify, channel)
	}
}

// inTx runs fn in one READ COMMITTED transaction: begin, freeze Now, run,
// commit, notify. Refusals come back as they are, database errors wrapped.
func (s *Store) inTx(ctx context.Context, name string, fn func(*Tx) error) error {
	return s.run(ctx, s.pool, name, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn)
}

// readTx runs fn on one unchanging view of the database.
func (s *Store) readTx(ctx context.Context, name string, fn func(*Tx) error) error {
	return s.run(ctx, s.pool, name, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn)
}

func (s *Store) run(ctx context.Context, pool *pgxpool.Pool, name string, opt pgx.TxOptions, fn func(*Tx) error) error {
	backoff := 5 * time.Millisecond
	for try := 1; ; try++ {
		tx := &Tx{}
		err := s.attempt(ctx, pool, opt, tx, fn)
		if err == nil {
			s.sendNotifications(ctx, tx.notify)
			return nil
		}
		if !retryable(err) || try == maxTries {
			return s.translate(name, err)
		}
		s.log.DebugContext(ctx, "transaction runs again", "name", name, "try", try, "cause", err)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return fmt.Errorf("store: %s: %w", name, ctx.Err())
		}
		backoff *= 4
	}
}

func (s *Store) attempt(ctx context.Context, pool *pgxpool.Pool, opt pgx.TxOptions, tx *Tx, fn func(*Tx) error) (err error) {
	if tx.Tx, err = pool.BeginTx(ctx, opt); err != nil {
		return err
	}
	defer func() {
		// Also when fn panics. After a commit this does nothing.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if back := tx.Rollback(clean); back != nil && !errors.Is(back, pgx.ErrTxClosed) && err == nil {
			err = back
		}
	}()
	tx.Now, tx.Real = s.Now(), s.Real()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// retryable tells whether the database asks for the transaction again.
func retryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// sendNotifications wakes listeners in one statement of its own: inside the
// transaction NOTIFY would serialise all commits. A lost one costs at most the
// listeners' tick, so failure is only logged.
func (s *Store) sendNotifications(ctx context.Context, channels []string) {
	if len(channels) == 0 {
		return
	}
	if _, err := s.pool.Exec(ctx, `select pg_notify(c, '') from unnest($1::text[]) c`, channels); err != nil {
		s.log.WarnContext(ctx, "listeners were not woken", "channels", channels, "cause", err)
	}
}

// Listen gives the name of a channel each time something was sent on it, and
// once for every channel after each (re)connection, since messages in between
// are lost. It ends, closing the result, with ctx.
func (s *Store) Listen(ctx context.Context, channels ...string) <-chan string {
	out := make(chan string, len(channels))
	go func() {
		defer close(out)
		for ctx.Err() == nil {
			if err := s.listen(ctx, channels, out); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "listening again in a second", "cause", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// listen serves one connection until it or ctx ends.
func (s *Store) listen(ctx context.Context, channels []string, out chan<- string) (err error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("store: listen: %w", err)
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(clean))
	}()
	send := func(channel string) {
		select {
		case out <- channel:
		case <-ctx.Done():
		}
	}
	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return fmt.Errorf("store: listen: %w", err)
		}
	}
	for _, channel := range channels {
		send(channel)
	}
	for ctx.Err() == nil {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("store: listen: %w", err)
		}
		send(note.Channel)
	}
	return nil
}
