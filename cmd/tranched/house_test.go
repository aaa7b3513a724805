package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// The house rules: who may import whom, what pure packages may touch, and the
// size of things. A package that is missing here may not exist.
var mayImport = map[string][]string{
	"ledger":                {},
	"scheduler":             {"ledger", "scheduler/placing"},
	"scheduler/placing":     {},
	"scheduler/sim":         {"ledger", "scheduler", "scheduler/placing"},
	"scheduler/sim/packing": {"scheduler/placing"},
	"scheduler/sim/stalls":  {"scheduler/placing"},
	"scheduler/agent":       {"ledger", "web/api"},
	"store":                 {"ledger", "scheduler", "scheduler/placing", "migrations"},
	"store/embedpg":         {},
	"store/testdb":          {"migrations", "store/embedpg"},
	"store/storetest":       {"ledger", "scheduler", "store", "store/testdb"},
	"migrations":            {"ledger"},
	"static":                {},
	"web":                   {"ledger", "scheduler", "scheduler/placing", "store", "static", "web/api", "web/view"},
	"web/api":               {"ledger"},
	"web/view":              {"ledger", "scheduler", "static"},
	"web/devidp":            {},
	"cmd/tranche":           {"ledger", "scheduler", "scheduler/placing", "scheduler/sim", "scheduler/sim/packing", "scheduler/sim/stalls", "scheduler/agent", "web/api"},
	"cmd/tranched":          {"ledger", "scheduler", "scheduler/sim", "scheduler/agent", "store", "store/embedpg", "migrations", "static", "web", "web/api", "web/devidp"},
}

const (
	maxFunctionLines = 70
	maxFileLines     = 620
)

// source is one Go file of the tree.
type source struct {
	path      string // from the module's root, with slashes
	pkg       string // its folder
	test      bool
	generated bool
	file      *ast.File
	fset      *token.FileSet
	text      string
}

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

const root = "../.."

// files gives every file of the tree below root, without version control and build output.
func files(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dist", ".tranche", "node_modules"}, d.Name()):
			return filepath.SkipDir
		case !d.IsDir() && d.Name() != ".git": // a file in a linked worktree
			rel, err := filepath.Rel(root, p)
			all = append(all, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{
			path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(file), file: file, fset: fset, text: string(text),
		})
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found below %s", len(all), root)
	}
	return all
}

func imports(s source) []string {
	var all []string
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			all = append(all, p)
		}
	}
	return all
}

func TestHouseImports(t *testing.T) {
	for _, s := range sources(t) {
		allowed, known := mayImport[s.pkg]
		if !known {
			t.Errorf("%s: package %s has no line in the house's table of imports", s.path, s.pkg)
			continue
		}
		for _, p := range imports(s) {
			inside, ok := strings.CutPrefix(p, "tranche/")
			if ok && !s.test && !slices.Contains(allowed, inside) {
				t.Errorf("%s: package %s may not import %s", s.path, s.pkg, p)
			}
		}
		for _, word := range []string{"util", "utils", "common", "models", "helpers"} {
			if path.Base(s.pkg) == word {
				t.Errorf("%s: no package may be called %s", s.path, word)
			}
		}
	}
}

// pure says which packages decide without clock, chance, input or output.
func pure(pkg string) bool {
	return slices.Contains([]string{"ledger", "scheduler", "scheduler/placing", "scheduler/sim", "scheduler/sim/packing", "scheduler/sim/stalls"}, pkg)
}

func bannedInPure(pkg, imported string) bool {
	if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") {
		return true // not the standard library
	}
	if imported == "math/rand/v2" && (pkg == "scheduler/sim" || pkg == "scheduler/sim/stalls") {
		return false // seeded sources only, see below
	}
	for _, banned := range []string{"os", "net", "log", "sync", "database", "syscall", "math/rand", "crypto/rand", "runtime", "plugin", "unsafe", "context/"} {
		if imported == banned || strings.HasPrefix(imported, strings.TrimSuffix(banned, "/")+"/") {
			return true
		}
	}
	return false
}

func TestHousePurePackages(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	for _, s := range sources(t) {
		if !pure(s.pkg) || s.test {
			continue
		}
		for _, p := range imports(s) {
			if bannedInPure(s.pkg, p) {
				t.Errorf("%s: a pure package may not import %s", s.path, p)
			}
		}
		// What a simulated machine does is physics; where jobs go, scheduler/placing decides.
		floats := s.pkg == "scheduler/sim" && strings.HasPrefix(path.Base(s.path), "report") || s.pkg == "scheduler/sim/stalls"
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s:%d: a pure package starts no goroutine and has no channel", s.path, s.line(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s:%d: a pure package may not ask time.%s", s.path, s.line(n.Pos()), n.Sel.Name)
				}
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "rand" && !slices.Contains([]string{"New", "NewPCG", "Rand", "PCG", "Source"}, n.Sel.Name) {
					t.Errorf("%s:%d: rand.%s is not seeded", s.path, s.line(n.Pos()), n.Sel.Name)
				}
			case *ast.Ident:
				if (n.Name == "float64" || n.Name == "float32") && !floats {
					t.Errorf("%s:%d: no floats where something is decided or charged", s.path, s.line(n.Pos()))
				}
			case *ast.BasicLit:
				if n.Kind == token.FLOAT && !floats {
					t.Errorf("%s:%d: no floats where something is decided or charged", s.path, s.line(n.Pos()))
				}
			}
			return true
		})
	}
}

// Wall-clock readings belong to the clock that serve hands out; the agent and
// the command line run on other machines and have their own.
func TestHouseOneClock(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.generated || s.path == "cmd/tranched/serve.go" || s.pkg == "scheduler/agent" || s.pkg == "cmd/tranche" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Now" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s:%d: only cmd/tranched/serve.go asks time.Now", s.path, s.line(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestHouseSizes(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		if n := strings.Count(s.text, "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: split it by subject", s.path, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFunctionLines {
					t.Errorf("%s:%d: function %s has %d lines, more than %d", s.path, s.line(f.Pos()), f.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
}

func TestHouseMigrations(t *testing.T) {
	form := regexp.MustCompile(`^(\d{14})_[a-z0-9]+(_[a-z0-9]+)*\.sql$`)
	seen := map[string]string{}
	for _, name := range files(t) {
		if path.Dir(name) != "migrations" || !strings.HasSuffix(name, ".sql") {
			continue
		}
		m := form.FindStringSubmatch(path.Base(name))
		if m == nil {
			t.Errorf("%s: a migration is called YYYYMMDDhhmmss_what_it_does.sql", name)
			continue
		}
		if other, twice := seen[m[1]]; twice {
			t.Errorf("%s and %s have the same time", name, other)
		}
		seen[m[1]] = name
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "-- +goose Up") || strings.Contains(string(text), "-- +goose Down") {
			t.Errorf("%s: migrations go forward only: one Up part, no Down part", name)
		}
	}
	if len(seen) == 0 {
		t.Error("no migration found")
	}
}

// callers names the functions outside tests that call pkg.name.
func callers(all []source, pkg, name string) []string {
	found := map[string]bool{}
	for _, s := range all {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch fun := call.Fun.(type) {
				case *ast.Ident:
					if s.pkg == pkg && fun.Name == name {
						found[s.pkg+"."+f.Name.Name] = true
					}
				case *ast.SelectorExpr:
					if x, ok := fun.X.(*ast.Ident); ok && x.Name == path.Base(pkg) && fun.Sel.Name == name {
						found[s.pkg+"."+f.Name.Name] = true
					}
				}
				return true
			})
		}
	}
	var names []string
	for n := range found {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// One caller each keeps the simulator and the live system on the same rules.
// Whoever else decides carries nothing out: it says what a cycle would do.
func TestHouseOneCaller(t *testing.T) {
	all := sources(t)
	for fn, want := range map[[2]string][]string{
		{"scheduler", "Decide"}: {
			"scheduler.RunCycle",
			"scheduler.asItIs", "scheduler.starts", "scheduler.table", // parts of Changes
			"cmd/tranched.compare",  // decides recorded cycles again
			"scheduler.UnderPolicy", // shows what a policy would change
		},
		{"ledger", "Charge"}: {"scheduler.charge"}, // a part of Advance
	} {
		if got := callers(all, fn[0], fn[1]); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s.%s is called by %v; only %s may", fn[0], fn[1], got, want)
		}
	}
}
