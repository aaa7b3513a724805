// Package testdb gives each test its own real PostgreSQL database: one cluster
// per test process, migrated once, cloned per test. Tests of package store use
// it directly; everybody else takes storetest.
package testdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/migrations"
	"tranche/store/embedpg"
)

// template is the migrated database the tests' databases are copied from.
const template = "tranche_template"

// cluster is the process's PostgreSQL with a connection for CREATE DATABASE.
type cluster struct {
	server *embedpg.Server
	mu     sync.Mutex // one copy at a time: they lock the template
	admin  *pgx.Conn
	alive  io.Closer // the reaper's pipe: closed, also by the garbage collector, it ends the server
	count  atomic.Int64
}

// shared starts the cluster on first use. It is the one package-level variable
// a cluster per test process cannot do without: there is no TestMain.
var shared = sync.OnceValues(start)

// DB is one test's database.
type DB struct {
	URL   string // as the owner: migrations and forbidden changes
	Clock *Clock
}

// New clones a migrated database for the test and drops it at its end.
func New(t testing.TB) *DB {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	name := fmt.Sprintf("t%d", c.count.Add(1))
	if err := c.exec("create database " + name + " template " + template + " strategy file_copy"); err != nil {
		t.Fatalf("test database: %v", err)
	}
	t.Cleanup(func() {
		if err := c.exec("drop database " + name + " with (force)"); err != nil {
			t.Errorf("test database: %v", err)
		}
	})
	return &DB{URL: c.server.URL(name, embedpg.Owner), Clock: NewClock()}
}

// Empty gives a database without migrations, for tests of the migrations.
func Empty(t testing.TB) *DB {
	t.Helper()
	db := New(t)
	db.Exec(t, "drop schema public cascade")
	db.Exec(t, "create schema public")
	return db
}

// Exec runs one statement as the owner, who may do what the server may not.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		t.Fatalf("connect as owner: %v", err)
	}
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		t.Errorf("as owner: %s: %v", sql, err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func (c *cluster) exec(sql string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := c.admin.Exec(ctx, sql)
	return err
}

// start makes the cluster in memory where the system offers that.
func start() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	root := "/dev/shm"
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		root = ""
	}
	dir, err := os.MkdirTemp(root, "tranche-test")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		return nil, err
	}
	server, err := embedpg.Start(ctx, embedpg.Options{Dir: dir, Settings: []string{
		"shared_buffers=32MB", "max_connections=300", "wal_level=minimal", "max_wal_senders=0", "autovacuum=off", "jit=off",
	}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	alive, err := reap(server.Pid(), dir)
	if err != nil {
		return nil, errors.Join(err, server.Stop(), os.RemoveAll(dir))
	}
	if err := server.CreateDatabase(ctx, template); err != nil {
		return nil, err
	}
	if err := migrations.Apply(ctx, server.URL(template, embedpg.Owner), migrations.Options{}); err != nil {
		return nil, err
	}
	admin, err := pgx.Connect(ctx, server.URL("postgres", embedpg.Owner))
	if err != nil {
		return nil, err
	}
	return &cluster{server: server, admin: admin, alive: alive}, nil
}

// reap leaves a small process that reads from a pipe this process holds open:
// however the tests end, it then stops the server and removes its folder.
func reap(pid int, dir string) (io.Closer, error) {
	const script = `cat >/dev/null; kill -INT "$1" 2>/dev/null
		i=0; while kill -0 "$1" 2>/dev/null && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done
		kill -KILL "$1" 2>/dev/null; rm -rf "$2"`
	cmd := exec.Command("sh", "-c", script, "reap", strconv.Itoa(pid), dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return pipe, cmd.Start()
}

// Clock is a clock that only the test moves. It starts on 2026-10-05 at 08:00
// UTC, a Monday inside 2026-Q4.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock gives a clock at the usual start.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 10, 5, 8, 0, 0, 0, time.UTC)}
}

// Now reads the clock; its method value fits store.Config.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward (or back, with a negative d).
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
