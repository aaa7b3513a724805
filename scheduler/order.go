package scheduler

import (
	"cmp"
	"math/bits"
)

// ratio is GPU-time over share. Ratios are compared by 128-bit cross products;
// a share of 0 is above every other, and such ratios compare by GPU-time alone.
type ratio struct {
	time  GPUTime // ≥ 0
	share int64   // micro-GPU, ≥ 0
}

func (a ratio) compare(b ratio) int {
	switch {
	case a.share <= 0 && b.share <= 0:
		return cmp.Compare(a.time, b.time)
	case a.share <= 0:
		return 1
	case b.share <= 0:
		return -1
	}
	ah, al := bits.Mul64(uint64(max(0, a.time)), uint64(b.share))
	bh, bl := bits.Mul64(uint64(max(0, b.time)), uint64(a.share))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// Compare orders standings: negative when s has had less of its share.
func (s Standing) Compare(o Standing) int {
	return ratio{s.Usage + s.Commitment, s.MicroGPU}.compare(ratio{o.Usage + o.Commitment, o.MicroGPU})
}

// field is the standings of every group in one pool, by position in the tree:
// usage, commitment and share. One field counts funded, another unfunded time.
type field struct {
	t          *tree
	usage      []GPUTime
	commitment []GPUTime
	share      []int64
	paths      pathMemo
}

// pathMemo is the last path that was asked for: a project that waits for a
// place asks again and again, and nothing moves until something starts.
type pathMemo struct {
	group int32
	path  []Standing // nil = none
}

func newField(t *tree, share []int64) *field {
	n := len(t.groups)
	both := make([]GPUTime, 2*n)
	return &field{t: t, usage: both[:n:n], commitment: both[n:], share: share}
}

// sumUp makes ancestors the sum of their descendants; leaves must be filled.
func (f *field) sumUp() {
	for n := len(f.t.topDown) - 1; n >= 0; n-- {
		i := f.t.topDown[n]
		if p := f.t.parent[i]; p >= 0 {
			f.usage[p] += f.usage[i]
			f.commitment[p] += f.commitment[i]
		}
	}
}

// commit adds commitment to a group and all above it.
func (f *field) commit(g int32, d GPUTime) {
	f.paths = pathMemo{}
	for ; g >= 0; g = f.t.parent[g] {
		f.commitment[g] += d
	}
}

func (f *field) ratio(g int32) ratio { return ratio{f.usage[g] + f.commitment[g], f.share[g]} }

func (f *field) standing(p *Pool, g int32) Standing {
	return Standing{
		Pool: p.ID, Group: f.t.groups[g].ID, Usage: f.usage[g], Commitment: f.commitment[g], MicroGPU: f.share[g],
	}
}

// path gives the standings of a group and its ancestors below the root, root's
// child first; to be read only.
func (f *field) path(p *Pool, g int32) []Standing {
	if f.paths.path != nil && f.paths.group == g {
		return f.paths.path
	}
	n := f.t.depth[g]
	out := make([]Standing, n)
	f.paths = pathMemo{g, out}
	for ; n > 0; n-- {
		out[n-1] = f.standing(p, g)
		g = f.t.parent[g]
	}
	return out
}

// tournament yields projects with untried jobs in fair-share order: at each
// program the child with the least (standing, larger share, oldest head, id)
// goes first. Each program keeps its children in a heap; a change of one
// project's standing or head costs O(depth × log children).
type tournament struct {
	f     *field
	seq   []int64   // head's queue_seq of each group, as it would be fielded
	heaps [][]int32 // children with untried jobs; best first
	where []int32   // position of a group in its parent's heap; −1 = out
	top   []int32   // heap above the roots
}

func newTournament(f *field) *tournament {
	n := len(f.t.groups)
	tn := &tournament{f: f, seq: make([]int64, n), heaps: make([][]int32, n), where: make([]int32, n)}
	for i := range tn.where {
		tn.where[i] = -1
	}
	return tn
}

// less compares two siblings.
func (tn *tournament) less(a, b int32) bool {
	if c := tn.f.ratio(a).compare(tn.f.ratio(b)); c != 0 {
		return c < 0
	}
	if sa, sb := tn.f.share[a], tn.f.share[b]; sa != sb {
		return sa > sb
	}
	if tn.seq[a] != tn.seq[b] {
		return tn.seq[a] < tn.seq[b]
	}
	return tn.f.t.groups[a].ID < tn.f.t.groups[b].ID
}

func (tn *tournament) heapOf(parent int32) *[]int32 {
	if parent < 0 {
		return &tn.top
	}
	return &tn.heaps[parent]
}

// update puts a project in with its head's queue_seq, or back in order after its
// standing or head changed; its ancestors follow.
func (tn *tournament) update(g int32, seq int64) {
	tn.seq[g] = seq
	for g >= 0 {
		p := tn.f.t.parent[g]
		h := tn.heapOf(p)
		if tn.where[g] < 0 {
			tn.where[g] = int32(len(*h))
			*h = append(*h, g)
		}
		tn.fix(*h, int(tn.where[g]))
		if p >= 0 {
			tn.seq[p] = tn.seq[(*h)[0]]
		}
		g = p
	}
}

// restand puts a group's path back in order after commitments changed.
func (tn *tournament) restand(g int32) {
	for ; g >= 0; g = tn.f.t.parent[g] {
		p := tn.f.t.parent[g]
		h := tn.heapOf(p)
		if tn.where[g] >= 0 {
			tn.fix(*h, int(tn.where[g]))
		}
		if p >= 0 && len(*h) > 0 {
			tn.seq[p] = tn.seq[(*h)[0]]
		}
	}
}

// remove takes a project out for good; programs without any left follow.
func (tn *tournament) remove(g int32) {
	for g >= 0 && tn.where[g] >= 0 {
		p := tn.f.t.parent[g]
		h := tn.heapOf(p)
		i, last := int(tn.where[g]), len(*h)-1
		tn.swap(*h, i, last)
		*h = (*h)[:last]
		tn.where[g] = -1
		if i < last {
			tn.fix(*h, i)
		}
		if last > 0 {
			if p >= 0 {
				tn.seq[p] = tn.seq[(*h)[0]]
				tn.restand(p)
			}
			return
		}
		g = p
	}
}

// first is the project whose head goes next; −1 when none is left.
func (tn *tournament) first() int32 {
	h := tn.top
	for len(h) > 0 {
		g := h[0]
		if len(tn.heaps[g]) == 0 {
			return g
		}
		h = tn.heaps[g]
	}
	return -1
}

func (tn *tournament) swap(h []int32, i, j int) {
	h[i], h[j] = h[j], h[i]
	tn.where[h[i]], tn.where[h[j]] = int32(i), int32(j)
}

func (tn *tournament) fix(h []int32, i int) {
	for i > 0 && tn.less(h[i], h[(i-1)/2]) {
		tn.swap(h, i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if tn.less(h[c], h[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		tn.swap(h, i, least)
		i = least
	}
}
