package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// storeReads are what handlers may ask the store past the read functions of
// web/sight.go, though it is told neither of an actor nor of a command; each with
// why it names nobody whom a reader may not see.
var storeReads = map[string][]string{
	"it names no group":                        {"Now", "Real", "Speed", "PolicyNow", "PolicyHistory", "Pools", "Offers", "PoolDevices", "PoolByName", "Pool", "PoolGauges", "NodeID", "Occupancy", "Periods", "PeriodAt", "Supplies", "Root", "SealHead"},
	"its routes are for roles at the root":     {"Audit", "AuditVerbs", "PolicyPreview", "Verify"},
	"the guard has looked at the group":        {"Group", "Ancestry", "Statement", "Movements", "Pots", "Splits", "MemberUse", "MemberShares", "IdleUse", "PoolUse"},
	"the guard has looked at the job":          {"Class"},
	"its groups come from a read function":     {"UsableBy", "StreamCharges"},
	"people for who may give them roles":       {"Persons"},
	"it is about the reader":                   {"SignIn", "Actor", "TokenActor", "PersonByID"},
	"it is for whoever holds an invite":        {"InviteOffer"},
	"it speaks with a node by the node's name": {"Enrol", "NodeByToken", "WaitForOrders", "DesiredState", "Claim", "Ended", "Heartbeat", "AppendLog", "Repaired"},
}

const sightFile = "web/sight.go"

// Under a closed policy other projects are hidden in one file: what it reads of
// the store no handler reads itself, and whatever else a handler reads either
// checks who asks or is in the table above.
func TestHouseNoReadPastSight(t *testing.T) {
	all := sources(t)
	checked, known := askedByActors(all), map[string]bool{}
	for _, s := range all {
		if s.path == sightFile {
			for _, use := range storeUses(s) {
				known[use.method] = true
			}
		}
	}
	if len(known) < 12 || len(checked) < 30 {
		t.Fatalf("%d reads in %s and %d methods that ask who: the test does not see the code", len(known), sightFile, len(checked))
	}
	var past, used []string
	for _, list := range storeReads {
		past = append(past, list...)
	}
	for _, s := range all {
		if s.pkg != "web" || s.test || s.path == sightFile {
			continue
		}
		for _, use := range storeUses(s) {
			used = append(used, use.method)
			if slices.Contains(past, use.method) || !known[use.method] && checked[use.method] {
				continue
			}
			t.Errorf("%s: store.%s may name what a closed policy hides: read it through a function of %s", use.at, use.method, sightFile)
		}
	}
	for _, name := range past {
		if !slices.Contains(used, name) {
			t.Errorf("the table of reads names %s, which no handler uses", name)
		}
	}
}

// storeUse is one mention of a method of the store.
type storeUse struct{ method, at string }

// storeUses finds x.store.Method.
func storeUses(s source) (out []storeUse) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.SelectorExpr); ok && x.Sel.Name == "store" {
				out = append(out, storeUse{sel.Sel.Name, fmt.Sprintf("%s:%d", s.path, s.line(sel.Pos()))})
			}
		}
		return true
	})
	return out
}

// askedByActors are the methods of the store that are told who asks.
func askedByActors(all []source) map[string]bool {
	out := map[string]bool{}
	for _, s := range all {
		if s.pkg != "store" || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			for _, p := range f.Type.Params.List {
				kind := s.text[s.fset.Position(p.Type.Pos()).Offset:s.fset.Position(p.Type.End()).Offset]
				if kind == "Command" || strings.HasSuffix(kind, "ledger.Actor") {
					out[f.Name.Name] = true
				}
			}
		}
	}
	return out
}
