// Package store keeps Tranche in PostgreSQL. It owns all SQL: one exported
// method is one transaction is one verb.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/ledger"
	"tranche/migrations"
)

// Config says which database to open and whose clock to trust.
type Config struct {
	URL      string           // any user's address of the database; Open connects as the server's role
	Password string           // of the server's role; "" where the database trusts it or the URL names it
	Clock    func() time.Time // real time; in production time.Now (its monotonic reading measures the leader's silence)
	Timeline Timeline         // business time; the zero Timeline is real time
	MaxConns int32            // of the main pool; default 16
	Log      *slog.Logger     // default: slog.Default()
}

// Timeline maps real time to business time: at the real instant Real the
// business instant was Business, and it runs Speed times as fast since.
type Timeline struct {
	Real     ledger.Instant
	Business ledger.Instant
	Speed    int64 // ≥ 1; 0 makes business time real time
}

// At gives the business instant at a real instant.
func (t Timeline) At(real ledger.Instant) ledger.Instant {
	if t.Speed == 0 {
		return real
	}
	return t.Business + (real-t.Real)*ledger.Instant(t.Speed)
}

// Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	pool       *pgxpool.Pool
	leaderPool *pgxpool.Pool
	clock      func() time.Time
	timeline   Timeline
	last       atomic.Int64 // latest business instant given out: the timeline never goes back
	log        *slog.Logger
	beats      heartbeats
	orders     watch
	peek       peek
	outlooks   outlooks
	open       context.Context // ends with Close
	shut       context.CancelFunc
}

// Open connects to a migrated database as the server's role. It refuses to work
// with a role that could change the books.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Clock == nil {
		return nil, errors.New("store: open: no clock given")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 16
	}
	s := &Store{clock: cfg.Clock, timeline: cfg.Timeline, log: cfg.Log, peek: newPeek()}
	s.open, s.shut = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if s.pool, err = openPool(ctx, cfg, poolSpec{name: "tranched", conns: cfg.MaxConns, idleInTx: 10 * time.Second}); err != nil {
		return nil, err
	}
	if s.leaderPool, err = openPool(ctx, cfg, poolSpec{name: "tranched leader", conns: 3, idleInTx: leaderIdle}); err != nil {
		s.pool.Close()
		return nil, err
	}
	if err := errors.Join(s.checkRole(ctx), s.resumeTimeline(ctx)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all connections; running transactions are rolled back.
func (s *Store) Close() {
	s.shut()
	s.leaderPool.Close()
	s.pool.Close()
}

// Pool is for libraries that bring their own statements (sessions, metrics).
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Now gives the business instant, never earlier than one given out before.
func (s *Store) Now() ledger.Instant {
	now := int64(s.timeline.At(s.Real()))
	for {
		last := s.last.Load()
		if now <= last {
			return ledger.Instant(last)
		}
		if s.last.CompareAndSwap(last, now) {
			return ledger.Instant(now)
		}
	}
}

// Real gives the instant in real time, which liveness is measured in.
func (s *Store) Real() ledger.Instant { return ledger.At(s.clock()) }

// Speed is how many business milliseconds pass in a real one.
func (s *Store) Speed() int64 { return max(1, s.timeline.Speed) }

// poolSpec is what differs between the pools.
type poolSpec struct {
	name     string
	conns    int32
	idleInTx time.Duration // a transaction left idle this long is ended by the database
}

func openPool(ctx context.Context, cfg Config, spec poolSpec) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("store: open: database address: %w", err)
	}
	if pc.ConnConfig.User != migrations.AppRole {
		pc.ConnConfig.User = migrations.AppRole
		pc.ConnConfig.Password = cfg.Password
	} else if cfg.Password != "" {
		pc.ConnConfig.Password = cfg.Password
	}
	pc.MaxConns = spec.conns
	millis := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	for name, value := range map[string]string{
		"application_name":                    spec.name,
		"timezone":                            "UTC",
		"statement_timeout":                   millis(30 * time.Second),
		"lock_timeout":                        millis(5 * time.Second),
		"idle_in_transaction_session_timeout": millis(spec.idleInTx),
	} {
		pc.ConnConfig.RuntimeParams[name] = value
	}
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerTypes(conn.TypeMap())
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("store: open the database as %s: %w", migrations.AppRole, err)
	}
	return pool, nil
}

// checkRole makes sure the pool's role really is the harmless one.
func (s *Store) checkRole(ctx context.Context) error {
	var user string
	var super bool
	err := s.pool.QueryRow(ctx, `select rolname, rolsuper from pg_roles where rolname = session_user`).Scan(&user, &super)
	if err != nil {
		return fmt.Errorf("store: open: %w", err)
	}
	if super || user != migrations.AppRole {
		return fmt.Errorf("store: open: connected as %s (superuser: %t), but the server only runs as the plain role %s", user, super, migrations.AppRole)
	}
	return nil
}

// resumeTimeline begins at the last instant the dispatcher recorded, should the
// machine's clock have been set back since. A timeline that runs faster than
// real time goes on from there, since it was ahead when it stopped.
func (s *Store) resumeTimeline(ctx context.Context) error {
	var last ledger.Instant
	if err := s.pool.QueryRow(ctx, `select last_instant from dispatcher`).Scan(&last); err != nil {
		return fmt.Errorf("store: open: %w", err)
	}
	if ahead := last - s.timeline.At(s.Real()); s.timeline.Speed > 1 && ahead > 0 {
		s.timeline.Business += ahead
	}
	s.last.Store(int64(last))
	return nil
}
