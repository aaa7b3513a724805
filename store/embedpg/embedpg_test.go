package embedpg

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// folder is a data folder that the server's account may enter.
func folder(t *testing.T) string {
	t.Helper()
	root := ""
	if _, err := os.Stat("/dev/shm"); err == nil {
		root = "/dev/shm"
	}
	dir, err := os.MkdirTemp(root, "tranche-embedpg")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func query[T any](t *testing.T, s *Server, sql string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("books", Owner))
	if err != nil {
		t.Fatal(err)
	}
	var result T
	if err := conn.QueryRow(ctx, sql).Scan(&result); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return result
}

// One life of a folder: made, written, stopped, started again, killed with its
// server left behind, and started once more without losing a row.
func TestDataSurvivesStopAndKill(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s, err := Start(t.Context(), Options{Dir: dir, Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.CreateDatabase(t.Context(), "books"); err != nil {
			t.Fatal(err)
		}
	}
	query[int](t, s, "with made as (select 1) select 1 from made")
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another running tranched") {
		t.Errorf("second start on a folder in use: %v", err)
	}
	if got := query[string](t, s, "select current_setting('listen_addresses') || current_setting('fsync') || current_setting('TimeZone')"); got != "onUTC" {
		t.Errorf("settings %q", got)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(s.Pid(), 0); err != syscall.ESRCH {
		t.Errorf("the server still runs after Stop: %v", err)
	}

	if s, err = Start(t.Context(), Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	first := s.Pid()
	if err := s.lock.Close(); err != nil { // as the kernel does for a killed program
		t.Fatal(err)
	}
	next, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-s.Done() // the orphan was stopped
	if next.Pid() == first {
		t.Error("the orphan was not replaced")
	}
	if got := query[int](t, next, "select count(*) from pg_database where datname = 'books'"); got != 1 {
		t.Error("the database is gone")
	}
	if err := next.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestStalePidFileIsRemoved(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	file := filepath.Join(dir, "postmaster.pid")
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := clearOrphan(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the stale file is still there: %v", err)
	}
}

// data writes what choose looks at: a data folder of a major.
func data(t *testing.T, base string, name, version string) {
	t.Helper()
	dir := filepath.Join(base, "postgres-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte(version+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	v15, v17 := binaries{"/usr/lib/postgresql/15/bin", 15}, binaries{"/usr/lib/postgresql/17/bin", 17}
	empty, made15, renamed := t.TempDir(), t.TempDir(), t.TempDir()
	data(t, made15, "15", "15")
	data(t, renamed, "17", "16")
	for name, c := range map[string]struct {
		found []binaries
		base  string
		want  int
		says  string
	}{
		"newest for new data":           {[]binaries{v17, v15}, empty, 17, ""},
		"the one that made the data":    {[]binaries{v17, v15}, made15, 15, ""},
		"data of a major not installed": {[]binaries{v17}, made15, 0, "was made by PostgreSQL 15 but only PostgreSQL 17 was found"},
		"renamed data folder":           {[]binaries{v17}, renamed, 0, "holds data of PostgreSQL 16"},
		"nothing installed":             {nil, empty, 0, "apt-get install postgresql"},
	} {
		got, err := choose(c.found, c.base)
		if got.major != c.want || (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: PostgreSQL %d, %v", name, got.major, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: not one sentence: %v", name, err)
		}
	}
}

func TestRootsHomeIsRefused(t *testing.T) {
	t.Parallel()
	as := &account{name: "somebody else", uid: uint32(os.Geteuid()) + 1, gid: 65534}
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := as.mayEnter(filepath.Join(private, "data")); err == nil || !strings.Contains(err.Error(), "/var/lib/tranche") {
		t.Errorf("a folder under a private parent: %v, want a refusal with advice", err)
	}
}

// The same start works for an ordinary user: the test runs itself as nobody.
func TestStartAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the other tests already run as an ordinary user")
	}
	dir := folder(t)
	binary := filepath.Join(dir, "embedpg.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("no /proc to copy the test binary from")
	}
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	nobody := &account{uid: 65534, gid: 65534}
	if err := nobody.own(dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestDataSurvivesStopAndKill$", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody.uid, Gid: nobody.gid}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDataSurvivesStopAndKill") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// Killing the program takes the server along (Linux's parent-death signal).
func TestServerDiesWithItsProgram(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("TRANCHE_TEST_DIE"); dir != "" {
		s, err := Start(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(s.Pid())), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skip("only Linux has the parent-death signal")
	}
	dir := folder(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestServerDiesWithItsProgram$")
	cmd.Env = append(os.Environ(), "TRANCHE_TEST_DIE="+dir)
	out, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(filepath.Join(dir, "pid"))
	if readErr != nil {
		t.Fatalf("the killed program: %v\n%s", err, out)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(15 * time.Second); servesFolder(t.Context(), pid, dir); {
		if time.Now().After(deadline) {
			t.Fatal("the server outlived its program")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
