package scheduler

import (
	"slices"

	"tranche/ledger"
)

// tree indexes the groups of a snapshot. Groups are known by their position in
// Snapshot.Groups; −1 is "above the root".
type tree struct {
	groups    []Group
	ids       []ledger.GroupID // of groups
	parent    []int32
	depth     []int32
	suspended []bool // itself or an ancestor
	children  [][]int32
	roots     []int32
	topDown   []int32 // parents before children
}

// newTree builds the index. A parent that is missing or would close a circle
// makes its group a root, so that a bad tree still gives a plan.
func newTree(groups []Group) *tree {
	t := &tree{
		groups: groups, parent: make([]int32, len(groups)), depth: make([]int32, len(groups)),
		suspended: make([]bool, len(groups)), children: make([][]int32, len(groups)),
	}
	t.ids = make([]ledger.GroupID, len(groups))
	for i := range groups {
		t.ids[i] = groups[i].ID
	}
	for i := range groups {
		t.parent[i] = t.pos(groups[i].Parent)
	}
	for i := range groups {
		t.breakCircle(int32(i))
	}
	for i := range groups {
		if p := t.parent[i]; p >= 0 {
			t.children[p] = append(t.children[p], int32(i))
		} else {
			t.roots = append(t.roots, int32(i))
		}
	}
	t.topDown = append(t.topDown, t.roots...)
	for n := 0; n < len(t.topDown); n++ {
		i := t.topDown[n]
		t.suspended[i] = groups[i].Suspended
		if p := t.parent[i]; p >= 0 {
			t.depth[i] = t.depth[p] + 1
			t.suspended[i] = t.suspended[i] || t.suspended[p]
		}
		t.topDown = append(t.topDown, t.children[i]...)
	}
	return t
}

func (t *tree) breakCircle(i int32) {
	at := i
	for range len(t.groups) {
		if at = t.parent[at]; at < 0 {
			return
		}
	}
	t.parent[i] = -1
}

// pos finds a group; −1 when it is none or unknown.
func (t *tree) pos(id ledger.GroupID) int32 {
	if id == 0 {
		return -1
	}
	i, ok := slices.BinarySearch(t.ids, id)
	if !ok {
		return -1
	}
	return int32(i)
}

// fork gives the two children of the lowest common ancestor that lead to a and
// b. When one contains the other (or they are the same) ok is false.
func (t *tree) fork(a, b int32) (childA, childB int32, ok bool) {
	for t.depth[a] > t.depth[b] {
		a = t.parent[a]
	}
	for t.depth[b] > t.depth[a] {
		b = t.parent[b]
	}
	if a == b {
		return a, b, false
	}
	for t.parent[a] != t.parent[b] {
		a, b = t.parent[a], t.parent[b]
	}
	return a, b, true
}
