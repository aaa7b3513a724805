package placing

import "math"

// Board places asks on nodes, one after the other, and remembers each score
// until its node changes.
type Board struct {
	Nodes  []Node
	asks   []Ask
	placer Placer
	cached bool

	version []uint32 // per node, counts its changes from 1
	cells   [][]cell // per ask, per node
	scores  [][]Score
}

// cell is what a search reads of a remembered score.
type cell struct {
	version, epoch uint32
	total          int64
}

// nowhere marks a node that does not fit.
const nowhere = math.MinInt64

// Choice is where an ask goes.
type Choice struct {
	Node int // position in Nodes
	Score
}

// NewBoard takes the nodes over. asks are all that will be placed; without
// cached every score is worked out anew, which is slow and gives the same.
func NewBoard(nodes []Node, asks []Ask, p Placer, cached bool) *Board {
	b := &Board{Nodes: nodes, asks: asks, placer: p, cached: cached}
	b.version = make([]uint32, len(nodes))
	b.cells = make([][]cell, len(asks))
	b.scores = make([][]Score, len(asks))
	b.Forget()
	return b
}

// Forget drops every remembered score, as when the placer learnt something new.
func (b *Board) Forget() {
	for i := range b.version {
		b.version[i]++
	}
}

// Find gives the best node for the ask at this position, and false if none fits.
func (b *Board) Find(ask int) (Choice, bool) {
	if b.cells[ask] == nil {
		b.cells[ask] = make([]cell, len(b.Nodes))
		b.scores[ask] = make([]Score, len(b.Nodes))
	}
	cells, epoch := b.cells[ask], b.placer.Epoch()
	best, top := -1, int64(nowhere)
	for i := range cells {
		c := &cells[i]
		if c.version != b.version[i] || c.epoch != epoch || !b.cached {
			b.score(ask, i, epoch)
		}
		if c.total < top || c.total == nowhere {
			continue
		}
		if c.total > top || b.scores[ask][i].Tie < b.scores[ask][best].Tie {
			best, top = i, c.total
		}
	}
	if best < 0 {
		return Choice{}, false
	}
	return Choice{best, b.scores[ask][best]}, true
}

// score brings one cell up to date.
func (b *Board) score(ask, node int, epoch uint32) {
	c, s := &b.cells[ask][node], &b.scores[ask][node]
	n, a := &b.Nodes[node], &b.asks[ask]
	switch {
	case c.version == b.version[node] && b.cached:
		if c.total != nowhere {
			b.placer.Renew(s)
			c.total = s.Total
		}
	case !n.Fits(a):
		c.total = nowhere
	default:
		*s = b.placer.Score(n, a)
		c.total = s.Total
	}
	c.version, c.epoch = b.version[node], epoch
}

// Place finds the best node and puts the ask there.
func (b *Board) Place(ask int) (Choice, bool) {
	c, ok := b.Find(ask)
	if ok {
		b.Nodes[c.Node].Take(&b.asks[ask], c.Devices)
		b.version[c.Node]++
	}
	return c, ok
}
