package scheduler

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tranche/ledger"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reasons.md anew")

// codesIn gives the values of the constants of a file whose names begin with
// Why, with the comment that says what each one means.
func codesIn(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 || !strings.HasPrefix(v.Names[0].Name, "Why") {
			return true
		}
		code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		codes[code] = strings.TrimSpace(v.Comment.Text())
		return true
	})
	return codes
}

// reasonsPage is docs/reasons.md as the tables word it.
func reasonsPage(meanings map[string]string) string {
	var b strings.Builder
	b.WriteString("# Why a job waits, and why one stops\n\n" +
		"Every job that did not start in a cycle has one Reason: a code, its numbers, and a sentence. Page, interface and command line print the same sentence. " +
		"A word in {braces} is a number or a name; a part in [brackets] is left out when there is nothing to say. This page is written by `go test ./scheduler -run Reasons -rewrite`.\n\n" +
		"| code | when | sentence |\n|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(sentences)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", code, meanings[code], sentences[code])
	}
	b.WriteString("\n## Evictions and stops\n\n| rule | sentence |\n|---|---|\n")
	names := Names{Group: func(id ledger.GroupID) string {
		return map[ledger.GroupID]string{1: "{its group}", 2: "{the other group}"}[id]
	}}
	for _, r := range []Rule{V1, V2, V3, V4} {
		e := Evict{Rule: r, Standing: Standing{Group: 1, Usage: 1_400_000 * 3600, MicroGPU: 1_000_000}, Against: Standing{Group: 2, Usage: 900_000 * 3600, MicroGPU: 1_000_000}, LostMs: 10 * aMinute}
		fmt.Fprintf(&b, "| %s | %s |\n", r, EvictionSentence(&e, "{job}", anHour, names))
	}
	for _, r := range stopRules() {
		fmt.Fprintf(&b, "| %s | %s |\n", r, StopSentence(r))
	}
	b.WriteString("\n## No bound on the reserved start yet\n\n| code | sentence |\n|---|---|\n")
	for _, code := range []string{NoBoundFirst, NoBoundFunds, NoBoundNodes, NoBoundStarting, NoBoundSwitch} {
		fmt.Fprintf(&b, "| `%s` | %s |\n", code, NoBoundSentence(code))
	}
	return b.String()
}

func stopRules() []Rule {
	return []Rule{V5, V5Hard, MaxRuntime, MoneyEnded, Cancelled, Operator, Replan, GangFailed, NodeLost, Unreserved}
}

// Every code has its sentence and every sentence its code; the page in docs says
// the same.
func TestReasonsAreAllListed(t *testing.T) {
	codes := codesIn(t, "explain.go")
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if sentences[code] == "" {
			t.Errorf("code %q has no sentence", code)
		}
		if codes[code] == "" {
			t.Errorf("code %q has no comment that says when it is given", code)
		}
	}
	for code := range sentences {
		if _, ok := codes[code]; !ok {
			t.Errorf("sentence %q belongs to no code of explain.go", code)
		}
	}
	const file = "../docs/reasons.md"
	want := reasonsPage(codes)
	if *rewrite {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("docs/reasons.md does not say what the tables say (%v): go test ./scheduler -run Reasons -rewrite", err)
	}
}

// No other file of the package makes up a code of its own.
func TestReasonsAreListedInOneFile(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := f.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && name != "explain.go" {
			if codes := codesIn(t, name); len(codes) > 0 {
				t.Errorf("%s lists codes of its own: %v", name, codes)
			}
		}
	}
}
