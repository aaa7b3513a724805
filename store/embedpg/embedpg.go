// Package embedpg starts a real PostgreSQL as a child of this program: it finds
// (or fetches once) the binaries, makes the data folder, and stops the server
// again. The demo and the tests use it; production brings its own database.
package embedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Owner is the superuser of an embedded cluster; migrations run as it.
const Owner = "tranche"

// Options say where the server keeps its data and how careful it is.
type Options struct {
	Dir      string    // base folder; DefaultDir() when empty
	Fsync    bool      // survive a power cut; tests switch it off for speed
	Log      io.Writer // the server's log; nil discards it
	Settings []string  // further "name=value" server settings
}

// Server is a running PostgreSQL.
type Server struct {
	bin    binaries
	data   string // data folder
	socket string // folder of the unix socket
	lock   *os.File
	pid    int
	done   chan struct{} // closed when the process has ended
	tail   *tail
	stop   sync.Once
}

// DefaultDir is where the data lives unless the user says otherwise:
// /var/lib/tranche for root, the XDG data home for everybody else.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/tranche", nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tranche"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder to keep data in: set XDG_DATA_HOME: %w", err)
	}
	return filepath.Join(home, ".local", "share", "tranche"), nil
}

// Start makes the cluster when it is new, starts the server and returns when it
// answers. Errors are single sentences that say what to do.
func Start(ctx context.Context, opt Options) (*Server, error) {
	base, err := baseDir(opt.Dir)
	if err != nil {
		return nil, err
	}
	bin, err := installation(ctx, base)
	if err != nil {
		return nil, err
	}
	as, err := prepare(base)
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(base)
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, data: dataDir(base, bin.major), lock: lock, done: make(chan struct{}), tail: &tail{next: opt.Log}}
	if err := s.launch(ctx, base, as, opt); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func baseDir(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return "", err
		}
	}
	base, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data folder %s: %w", dir, err)
	}
	return base, nil
}

// installation picks the binaries, fetching them when the machine has none.
func installation(ctx context.Context, base string) (binaries, error) {
	cache := filepath.Join(base, "bin")
	found, err := find(ctx, cache)
	if err != nil {
		return binaries{}, err
	}
	if len(found) == 0 {
		b, err := fetch(ctx, cache)
		if err != nil {
			return binaries{}, fmt.Errorf("%w (fetching it failed: %v)", errNoBinaries, err)
		}
		found = append(found, b)
	}
	return choose(found, base)
}

// prepare makes the base folder and hands it to the account the server runs as.
func prepare(base string) (*account, error) {
	as, err := runAs()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	return as, as.mayEnter(filepath.Join(base, "postgres"))
}

// lockFolder keeps a second program out of the same folder. The lock goes with
// the process, so after it is ours any server still running there is an orphan.
func lockFolder(base string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(base, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("the data folder %s is in use by another running tranched: stop it, or choose another data folder", base), file.Close())
	}
	return file, nil
}

// launch runs initdb for a new cluster, clears what a killed program left
// behind, and starts the server process.
func (s *Server) launch(ctx context.Context, base string, as *account, opt Options) error {
	if _, err := os.Stat(filepath.Join(s.data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := s.initdb(ctx, as, opt.Fsync); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("look at the data folder: %w", err)
	}
	if err := as.own(s.data); err != nil {
		return fmt.Errorf("hand the data folder to PostgreSQL: %w", err)
	}
	if err := clearOrphan(ctx, s.data); err != nil {
		return err
	}
	if err := s.makeSocketDir(base, as); err != nil {
		return err
	}
	args := []string{"-D", s.data, "-k", s.socket, "-p", "5432"}
	settings := append([]string{"listen_addresses=", "timezone=UTC", "log_timezone=UTC", "unix_socket_permissions=0700"}, opt.Settings...)
	if !opt.Fsync {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return s.fork(args, as)
}

// initdb builds the cluster beside its place and renames it when complete, so a
// kill in the middle leaves nothing that looks like data.
func (s *Server) initdb(ctx context.Context, as *account, fsync bool) error {
	fresh := s.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove a half-made data folder: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := as.own(fresh); err != nil {
		return fmt.Errorf("hand the data folder to PostgreSQL: %w", err)
	}
	args := []string{"-D", fresh, "-U", Owner, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions"}
	if !fsync {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin.dir, "initdb"), args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), "/", sysProcAttr(as)
	cmd.SysProcAttr.Setpgid = false
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb could not make %s: %w: %s", s.data, err, lastLine(out))
	}
	if err := os.Rename(fresh, s.data); err != nil {
		return fmt.Errorf("put the new data folder in place: %w", err)
	}
	return nil
}

// makeSocketDir finds a short private folder: a unix socket's path is limited
// to about 100 bytes, which a deep data folder can exceed.
func (s *Server) makeSocketDir(base string, as *account) error {
	s.socket = filepath.Join(base, "s")
	err := os.Mkdir(s.socket, 0o700)
	if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err == nil && len(s.socket)+len("/.s.PGSQL.5432.lock") > 90 {
		s.socket, err = os.MkdirTemp("", "tranche")
	}
	if err == nil {
		err = os.Chmod(s.socket, 0o700)
	}
	if err == nil {
		err = as.own(s.socket)
	}
	if err != nil {
		return fmt.Errorf("make a folder for the socket: %w", err)
	}
	return nil
}

// fork starts the server from a goroutine that keeps its thread until the
// server ends (see sysProcAttr).
func (s *Server) fork(args []string, as *account) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(filepath.Join(s.bin.dir, "postgres"), args...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = environment(), "/", sysProcAttr(as)
		cmd.Stdout, cmd.Stderr = s.tail, s.tail
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start PostgreSQL: %w", err)
			return
		}
		s.pid = cmd.Process.Pid
		started <- nil
		if err := cmd.Wait(); err != nil {
			fmt.Fprintf(s.tail, "postgres ended: %v\n", err)
		}
		close(s.done)
	}()
	return <-started
}

// await returns when the server answers a connection, for at most one minute
// (it may have to recover from a crash first).
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres", Owner))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.done:
			return fmt.Errorf("PostgreSQL ended while starting: %s", s.tail.last())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not answer: %w: %s", err, s.tail.last())
		case <-tick.C:
		}
	}
}

// URL addresses a database of the server as a user.
func (s *Server) URL(db, user string) string {
	query := url.Values{"host": {s.socket}, "port": {"5432"}, "user": {user}, "sslmode": {"disable"}}
	return "postgres:///" + url.PathEscape(db) + "?" + query.Encode()
}

// Pid is the process id of the server, for tests that kill it.
func (s *Server) Pid() int { return s.pid }

// Done is closed when the server's process has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// CreateDatabase makes a database unless it is there already.
func (s *Server) CreateDatabase(ctx context.Context, name string) (err error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres", Owner))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var there bool
	if err := conn.QueryRow(ctx, "select exists(select from pg_database where datname = $1)", name).Scan(&there); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	if there {
		return nil
	}
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// Stop asks for a fast shutdown, kills after 10 seconds, and may be called more
// than once.
func (s *Server) Stop() (err error) {
	s.stop.Do(func() {
		err = errors.Join(s.end(), s.lock.Close())
		if strings.HasPrefix(s.socket, os.TempDir()) {
			err = errors.Join(err, os.RemoveAll(s.socket))
		}
	})
	return err
}

func (s *Server) end() error {
	if err := signal(s.pid, syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(10 * time.Second):
	}
	if err := signal(-s.pid, syscall.SIGKILL); err != nil {
		return err
	}
	<-s.done
	return errors.New("PostgreSQL did not stop within 10 s and was killed")
}

// signal ignores a process that is gone already.
func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal PostgreSQL: %w", err)
	}
	return nil
}

// environment keeps the user's PG* variables and locale away from the server.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// tail passes the log on and keeps its end for error messages.
type tail struct {
	mu   sync.Mutex
	next io.Writer
	kept []byte
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > tailBytes {
		t.kept = t.kept[len(t.kept)-tailBytes:]
	}
	if t.next == nil {
		return len(p), nil
	}
	return t.next.Write(p)
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLine(t.kept)
}

// lastLine gives the last line that says FATAL or error, else the last line.
func lastLine(log []byte) string {
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if bytes.Contains(lines[i], []byte("FATAL")) || bytes.Contains(lines[i], []byte("error:")) {
			return string(lines[i])
		}
	}
	return string(lines[len(lines)-1])
}
