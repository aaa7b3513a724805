package embedpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldestMajor is the oldest PostgreSQL the program's SQL is written for.
const oldestMajor = 15

// binaries is one installed PostgreSQL: the folder with initdb and postgres.
type binaries struct {
	dir   string
	major int
}

// errNoBinaries says what a person does about a missing PostgreSQL.
var errNoBinaries = errors.New("PostgreSQL 15 or newer was not found on this machine: install it" +
	" (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17)," +
	" or run one with docker compose and set DATABASE_URL to it")

// find lists the usable installations, the preferred one first: $PGBIN, then
// the packaged places by falling version, then initdb on PATH, then the cache.
func find(ctx context.Context, cacheDir string) ([]binaries, error) {
	if dir := os.Getenv("PGBIN"); dir != "" {
		b, err := inspect(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("PGBIN=%s does not hold PostgreSQL %d or newer: %w", dir, oldestMajor, err)
		}
		return []binaries{b}, nil
	}
	found := packaged(ctx)
	var rest []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			rest = append(rest, filepath.Dir(real))
		}
	}
	cached, err := filepath.Glob(filepath.Join(cacheDir, "*", "bin"))
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", cacheDir, err)
	}
	for _, dir := range append(rest, cached...) {
		if b, err := inspect(ctx, dir); err == nil {
			found = append(found, b)
		}
	}
	return found, nil
}

// packaged looks where distributions and installers put PostgreSQL.
func packaged(ctx context.Context) []binaries {
	var found []binaries
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern fails, and these are fixed
		}
		for _, dir := range dirs {
			if b, err := inspect(ctx, dir); err == nil {
				found = append(found, b)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b binaries) int { return cmp.Compare(b.major, a.major) })
	return found
}

// inspect asks the postgres in dir for its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("ask for the version: %w", err)
	}
	major, err := parseMajor(string(out))
	if err != nil {
		return binaries{}, err
	}
	if major < oldestMajor {
		return binaries{}, fmt.Errorf("it is PostgreSQL %d", major)
	}
	return binaries{dir: dir, major: major}, nil
}

// parseMajor reads "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
func parseMajor(version string) (int, error) {
	_, rest, ok := strings.Cut(version, "(PostgreSQL) ")
	if !ok {
		return 0, fmt.Errorf("unreadable version %q", strings.TrimSpace(version))
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err := strconv.Atoi(rest[:end])
	if err != nil {
		return 0, fmt.Errorf("unreadable version %q", strings.TrimSpace(version))
	}
	return major, nil
}

// choose picks the installation for base. Data that exists decides: it can only
// be opened by the major that made it, wherever that stands in the list.
func choose(found []binaries, base string) (binaries, error) {
	made, err := majorsIn(base)
	if err != nil {
		return binaries{}, err
	}
	for _, b := range found {
		if slices.Contains(made, b.major) {
			return b, nil
		}
	}
	if len(found) == 0 {
		return binaries{}, errNoBinaries
	}
	if len(made) > 0 {
		return binaries{}, fmt.Errorf("the data folder %s was made by PostgreSQL %d but only PostgreSQL %d was found (%s):"+
			" install PostgreSQL %[2]d or set PGBIN to its bin folder, or choose another data folder to begin with empty books",
			dataDir(base, made[0]), made[0], found[0].major, found[0].dir)
	}
	return found[0], nil
}

// majorsIn lists the majors that have a data folder under base, highest first.
func majorsIn(base string) ([]int, error) {
	files, err := filepath.Glob(filepath.Join(base, "postgres-*", "PG_VERSION"))
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", base, err)
	}
	var majors []int
	for _, file := range files {
		name := strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "postgres-")
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the version of a data folder: %w", err)
		}
		version := strings.TrimSpace(string(text))
		major, err := strconv.Atoi(version)
		if err != nil || version != name {
			return nil, fmt.Errorf("the data folder %s holds data of PostgreSQL %s:"+
				" name it postgres-%[2]s again, or choose another data folder", filepath.Dir(file), version)
		}
		majors = append(majors, major)
	}
	slices.SortFunc(majors, func(a, b int) int { return cmp.Compare(b, a) })
	return majors, nil
}

// dataDir is the data folder of one major under base.
func dataDir(base string, major int) string {
	return filepath.Join(base, "postgres-"+strconv.Itoa(major))
}
