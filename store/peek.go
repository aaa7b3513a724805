package store

import (
	"context"
	"fmt"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// Bounds of the snapshots that are taken for readers.
const (
	peekFresh   = 2 * time.Second  // real time for which one is given out again
	peekTimeout = 10 * time.Second // of reading one
)

// peek keeps the snapshot that readers share.
type peek struct {
	turn chan struct{} // holds one token: whoever has it may read and use the rest
	eye  eye
	snap *scheduler.Snapshot
	at   ledger.Instant // real, when it was read
}

func newPeek() peek {
	p := peek{turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// Peek gives what a cycle would decide from, read at most 2 s ago, on any server
// and without leadership. The caller owns what it gets, but must not change what
// the slices hold: their arrays are shared with other readers.
func (s *Store) Peek(ctx context.Context) (*scheduler.Snapshot, error) {
	p := &s.peek
	select {
	case <-p.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("store: peek: %w", ctx.Err())
	}
	defer func() { p.turn <- struct{}{} }()
	if age := s.Real() - p.at; p.snap != nil && age >= 0 && age < ledger.Instant(peekFresh.Microseconds()) {
		return p.snap.Clone(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	r, err := p.eye.read(ctx, s, s.pool, s.Now())
	if err != nil {
		return nil, err
	}
	p.snap, p.at = r.snap, s.Real()
	return p.snap.Clone(), nil
}
