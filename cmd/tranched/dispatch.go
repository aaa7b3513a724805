package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"tranche/store"
)

// cycleChannel is notified when something may let a job start.
const cycleChannel = "tranche_cycle"

// dispatch leads whenever this server may, until ctx ends.
func (s *site) dispatch(ctx context.Context) error {
	wake := s.store.Listen(ctx, cycleChannel)
	for ctx.Err() == nil {
		leader, err := s.store.Campaign(ctx, s.holder)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		s.log.Debug("leading", "epoch", leader.Epoch())
		s.metrics.leading.Set(1)
		err = s.lead(ctx, leader, wake)
		s.metrics.leading.Set(0)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrFenced) {
			return err
		}
	}
	return nil
}

// lead runs cycles until ctx ends or another server has taken over.
func (s *site) lead(ctx context.Context, leader *store.Leader, wake <-chan string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return leader.Hold(ctx) })
	group.Go(func() error {
		tick := time.NewTicker(s.cfg.Tick)
		defer tick.Stop()
		for {
			if err := s.cycle(ctx, leader); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			case <-wake:
			}
		}
	})
	return group.Wait()
}

// cycle is one round of the leader's work.
func (s *site) cycle(ctx context.Context, leader *store.Leader) error {
	began := clock()
	_, err := leader.Seal(ctx)
	s.metrics.observeCycle(clock().Sub(began))
	if errors.Is(err, store.ErrFenced) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		s.log.Error("cycle failed", "cause", err)
	}
	return nil
}
