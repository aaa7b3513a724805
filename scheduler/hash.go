package scheduler

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"tranche/ledger"
)

// Hash is the SHA-256 of the plan's canonical JSON without what only a database
// numbers: attempt and lot ids. Two worlds that decide alike hash alike.
func (p *Plan) Hash() [32]byte {
	c := *p
	c.Extend = slices.Clone(p.Extend)
	for i := range c.Extend {
		c.Extend[i].Attempt, c.Extend[i].Hold = 0, nameless(c.Extend[i].Hold)
	}
	c.MoneyEnds = slices.Clone(p.MoneyEnds)
	for i := range c.MoneyEnds {
		c.MoneyEnds[i].Attempt = 0
	}
	c.Stops = slices.Clone(p.Stops)
	for i := range c.Stops {
		c.Stops[i].Attempt = 0
	}
	c.Starts = slices.Clone(p.Starts)
	for i := range c.Starts {
		s := &c.Starts[i]
		s.Hold, s.Evict = nameless(s.Hold), slices.Clone(s.Evict)
		for k := range s.Evict {
			s.Evict[k].Attempt = 0
		}
	}
	c.Moves = slices.Clone(p.Moves)
	for i := range c.Moves {
		c.Moves[i].Attempt = 0
	}
	c.Reserves = slices.Clone(p.Reserves)
	for i := range c.Reserves {
		c.Reserves[i].Hold = nameless(c.Reserves[i].Hold)
	}
	c.Renewals = slices.Clone(p.Renewals)
	for i := range c.Renewals {
		c.Renewals[i].Attempt, c.Renewals[i].Hold = 0, nameless(c.Renewals[i].Hold)
	}
	c.Warnings = slices.Clone(p.Warnings)
	for i := range c.Warnings {
		c.Warnings[i].Attempt = 0
	}
	text, err := json.Marshal(&c)
	if err != nil {
		panic(fmt.Sprintf("a plan is plain data: %v", err))
	}
	return sha256.Sum256(text)
}

func nameless(pieces []ledger.Piece) []ledger.Piece {
	out := slices.Clone(pieces)
	for i := range out {
		out[i].Lot = 0
	}
	return out
}
