package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Package-level variables that change are state nobody passes. Allowed are
// embedded files, error sentinels and tables that nothing assigns to.
func TestHouseNoPackageState(t *testing.T) {
	all := sources(t)
	vars := map[string]map[string]bool{} // package → names
	for _, s := range all {
		if s.generated || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec)
				if embedded(gen, v) {
					continue
				}
				for i, name := range v.Names {
					if name.Name != "_" && (i >= len(v.Values) || changes(v.Values[i])) {
						t.Errorf("%s:%d: package-level variable %s can change", s.path, s.line(name.Pos()), name.Name)
					}
					if vars[s.pkg] == nil {
						vars[s.pkg] = map[string]bool{}
					}
					vars[s.pkg][name.Name] = true
				}
			}
		}
	}
	for _, s := range all {
		for _, name := range assignedPackageVars(s, vars[s.pkg]) {
			t.Errorf("%s: package-level variable %s is assigned to", s.path, name)
		}
	}
}

func embedded(gen *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{gen.Doc, v.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// changes says whether a variable's first value shows that it is there to change.
func changes(value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	if fun, ok := call.Fun.(*ast.Ident); ok {
		return fun.Name == "make" || fun.Name == "new"
	}
	return false
}

func assignedPackageVars(s source, names map[string]bool) []string {
	var found []string
	check := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				e = x.X
				continue
			case *ast.Ident:
				if !names[x.Name] {
					return
				}
				local := false
				if x.Obj != nil {
					spec, ok := x.Obj.Decl.(*ast.ValueSpec)
					local = !ok || !slices.ContainsFunc(s.file.Decls, func(d ast.Decl) bool {
						gen, ok := d.(*ast.GenDecl)
						return ok && slices.Contains(gen.Specs, ast.Spec(spec))
					})
				}
				if !local {
					found = append(found, x.Name)
				}
			}
			return
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, lhs := range n.Lhs {
					check(lhs)
				}
			}
		case *ast.IncDecStmt:
			check(n.X)
		}
		return true
	})
	return found
}

// What stands in the tree must hold on every machine: no hosts of package
// registries, no paths of one machine. The pattern does not match its own text.
func TestHouseWords(t *testing.T) {
	banned := regexp.MustCompile(`\b(proxy|sum|registry|index|deb)\.(golang|npmjs|debian|docker)\.(org|io|com)\b|\b(pypi|crates)\.(org|io)\b|/(root|work)/`)
	for _, name := range files(t) {
		if slices.Contains([]string{".png", ".gz", ".woff2", ".ico"}, path.Ext(name)) || strings.HasSuffix(name, ".min.js") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if word := banned.Find(line); word != nil {
				t.Errorf("%s:%d: %q must not stand in the tree", name, i+1, word)
			}
		}
	}
}
