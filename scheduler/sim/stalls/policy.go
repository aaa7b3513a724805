package stalls

import (
	"fmt"

	"tranche/scheduler/placing"
)

// policy is a placer with what it may see.
type policy struct {
	name string
	// blind to storage and the processors that move data; nothing held back for
	// what jobs may come to need.
	blind bool
	make  func(w *world) placing.Placer
}

// futuresSeed is that of the policy's random futures.
const futuresSeed = 1

// policies in the order of the report: three blind to storage, then three that see
// all seven dimensions by the same scores, then those that were made for it.
func policies() []policy {
	ragpx := func(weights placing.Weights) func(*world) placing.Placer {
		return func(w *world) placing.Placer { return newPriced(w, weights, nil) }
	}
	return []policy{
		{"scalar_5", true, func(*world) placing.Placer { return placing.Scalar{} }},
		{"tetris_5", true, func(*world) placing.Placer { return placing.Tetris{} }},
		{"ragp_5d", true, func(*world) placing.Placer { return placing.Ragp5D() }},
		{"scalar_7", false, func(*world) placing.Placer { return placing.Scalar{} }},
		{"tetris_7", false, func(*world) placing.Placer { return placing.Tetris{} }},
		{"bestfit_7", false, func(*world) placing.Placer { return placing.Tightest{} }},
		{"ragp_io", false, func(*world) placing.Placer { return placing.RagpIO() }},
		{"fgd_7", false, func(w *world) placing.Placer { return placing.NewFGDIn7(w.mix) }},
		{"ragp_x", false, ragpx(placing.Churning())},
		{"ragp_x_saturating", false, ragpx(placing.Saturating())},
		{"ragp_x_switch", false, func(w *world) placing.Placer {
			busy := placing.Saturating()
			return newPriced(w, placing.Churning(), &busy)
		}},
	}
}

func policyNamed(name string) (policy, error) {
	for _, p := range policies() {
		if p.name == name {
			return p, nil
		}
	}
	return policy{}, fmt.Errorf("there is no policy %q", name)
}

// priced is ragp-x with prices that follow the fleet, once a minute. With a second
// set of weights it changes to those while the fleet is nearly reserved or a job waits.
type priced struct {
	*placing.RagpX
	w           *world
	calm        *placing.RagpX
	busy        *placing.RagpX // nil = one setting
	switchedAt  float64
	refreshedAt float64
	due, room   []int64
}

func newPriced(w *world, calm placing.Weights, busy *placing.Weights) *priced {
	p := &priced{w: w, calm: placing.NewRagpX(w.mix, calm, futuresSeed), refreshedAt: -1e9, switchedAt: -1e9}
	p.RagpX = p.calm
	if busy != nil {
		p.busy = placing.NewRagpX(w.mix, *busy, futuresSeed)
	}
	for _, r := range []*placing.RagpX{p.calm, p.busy} {
		if r == nil {
			continue
		}
		empty := make([]int64, len(w.mix.Kinds))
		for n := range w.nodes {
			node := w.nodes[n].base
			r.Places(&node, empty)
		}
		r.Worth(len(w.nodes), empty)
	}
	p.due, p.room = make([]int64, len(w.mix.Kinds)), make([]int64, len(w.mix.Kinds))
	for i := range w.mix.Kinds {
		rate := w.sc.rate() * float64(w.mix.Kinds[i].Weight) / float64(w.mix.Total)
		p.due[i] = int64((30*rate + 1) * placing.Micro) // of the next half hour
	}
	return p
}

const (
	refreshEvery = 60.0  // s
	stayFor      = 300.0 // s that a setting is kept at least
)

// tick brings prices and setting up to date.
func (p *priced) tick() {
	if p.busy != nil && p.w.now-p.switchedAt >= stayFor {
		full := p.w.reserved() > 0.9 || p.w.waits > 0
		if want := map[bool]*placing.RagpX{false: p.calm, true: p.busy}[full]; want != p.RagpX {
			p.RagpX, p.switchedAt, p.refreshedAt = want, p.w.now, -1e9
		}
	}
	if p.w.now-p.refreshedAt < refreshEvery {
		return
	}
	p.refreshedAt = p.w.now
	clear(p.room)
	for n := range p.w.nodes {
		view := p.w.view(n, -1)
		p.RagpX.Places(&view, p.room)
	}
	p.RagpX.Price(p.room, p.due)
}
