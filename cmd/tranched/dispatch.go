package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
)

const (
	cycleChannel = "tranche_cycle" // notified when something may let a job start
	sealEvery    = time.Second
	lookEvery    = time.Second     // for silent nodes
	idleEvery    = 5 * time.Second // for attempts that do not use what they hold
	learnEvery   = 5 * time.Second // from attempts that have ended
	raiseEvery   = 6               // of these, for what is set aside for running jobs
	gaugeEvery   = 2 * time.Second // at most, however fast business time goes
	failedPause  = time.Second     // after a cycle that could not be run
)

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

// lead runs cycles until ctx ends or another server has taken over: at each
// wake-up and each tick, and never more than half of the time, so that a storm of
// wake-ups becomes one cycle.
func (s *site) lead(ctx context.Context, leader *store.Leader, wake <-chan string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return leader.Hold(ctx) })
	rec := newRecorder(s)
	group.Go(func() error { return rec.write(ctx, leader.Recorder(s.cfg.RecordBytes)) })
	group.Go(func() error { return s.followMemory(ctx, leader) })
	gauging := make(chan gaugeWork, 1)
	group.Go(func() error { return s.keepGauges(ctx, leader, gauging) })
	group.Go(func() error {
		r := &round{site: s, leader: leader, world: s.store.World(leader), rec: rec, gauging: gauging}
		tick := time.NewTicker(s.cfg.Tick)
		defer tick.Stop()
		for {
			rest, err := r.run(ctx)
			if err != nil {
				return err
			}
			if err := sleep(ctx, rest); err != nil {
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

// followMemory lets classes of jobs learn from those that have ended, and what is set
// aside for running ones grow with what is expected of them, beside the cycles, until
// ctx or the leadership ends.
func (s *site) followMemory(ctx context.Context, leader *store.Leader) error {
	tick := time.NewTicker(learnEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		_, err := leader.LearnPeaks(ctx)
		if err == nil && n%raiseEvery == 0 {
			_, err = leader.RaiseReserves(ctx)
		}
		if errors.Is(err, store.ErrFenced) {
			return err
		} else if err != nil && ctx.Err() == nil {
			s.log.Error("jobs' memory was not followed", "cause", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// round is the leader's work from one cycle to the next.
type round struct {
	site           *site
	leader         *store.Leader
	world          *store.World
	rec            *recorder
	sealed, looked time.Time
	idled          time.Time
	gauging        chan<- gaugeWork
	gauged         time.Time
	slot           ledger.Instant // of the last gauges
}

// gaugeWork is what the pools are gauged from.
type gaugeWork struct {
	at     ledger.Instant
	stands []scheduler.PoolStand
}

// keepGauges works the pools' gauges out beside the cycles, until ctx or the
// leadership ends.
func (s *site) keepGauges(ctx context.Context, leader *store.Leader, work <-chan gaugeWork) error {
	defer s.metrics.indices.Reset() // they are the leader's to tell
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case w := <-work:
			gauges, err := leader.KeepGauges(ctx, w.at, w.stands)
			if errors.Is(err, store.ErrFenced) {
				return err
			} else if err != nil && ctx.Err() == nil {
				s.log.Error("pools were not gauged", "cause", err)
			}
			s.metrics.observeGauges(gauges)
		}
	}
}

// gauge hands the pools over to be gauged when five minutes of business time have
// begun; it never waits.
func (r *round) gauge(snap *scheduler.Snapshot, now time.Time) {
	slot := store.GaugeSlot(snap.Now)
	if slot == r.slot || now.Sub(r.gauged) < gaugeEvery {
		return
	}
	select {
	case r.gauging <- gaugeWork{slot, snap.Stands()}:
		r.slot, r.gauged = slot, now
	default: // the last ones are still being worked out
	}
}

// run does one round and says how long to rest at least. It fails only when the
// leadership or ctx is over: whatever else goes wrong is logged and tried again.
func (r *round) run(ctx context.Context) (rest time.Duration, err error) {
	began := clock()
	err = r.steps(ctx, began)
	took := clock().Sub(began)
	r.site.metrics.observeCycle(took)
	if r.site.cfg.OnCycle != nil {
		r.site.cfg.OnCycle(took)
	}
	if errors.Is(err, store.ErrFenced) || ctx.Err() != nil {
		return 0, errors.Join(err, ctx.Err())
	}
	if err != nil {
		r.site.log.Error("cycle failed", "cause", err)
		return failedPause, nil
	}
	return took, nil
}

// tellChanges logs what became of nodes, and storms, for who is on duty.
func (r *round) tellChanges(out *scheduler.Reconciled) {
	for _, c := range out.Changes {
		r.site.log.Warn("node's health changed", "node", c.Node, "to", c.To)
	}
	for _, c := range out.Checks {
		r.site.log.Warn("node's health checks changed its standing", "node", c.Node, "degraded", c.Degraded, "drained", c.Drained != "")
	}
	for _, pool := range out.Frozen {
		r.site.log.Error("storm: many nodes fell silent or degraded at once; nothing is placed", "pool", pool)
	}
}

func (r *round) steps(ctx context.Context, now time.Time) error {
	if now.Sub(r.looked) >= lookEvery {
		changes, err := r.world.Reconcile(ctx)
		if err != nil {
			return err
		}
		if changes != nil {
			r.tellChanges(changes)
		}
		r.looked = now
	}
	if now.Sub(r.idled) >= idleEvery {
		marked, err := r.world.MarkIdle(ctx)
		if err != nil {
			return err
		}
		if marked > 0 {
			r.site.log.Info("attempts do not use what they hold", "marked", marked)
		}
		asked, err := r.world.AskRepairs(ctx)
		if err != nil {
			return err
		}
		if asked > 0 {
			r.site.log.Info("nodes are empty: their repair hooks are ordered", "nodes", asked)
		}
		r.idled = now
	}
	began := clock()
	report, err := scheduler.RunCycle(ctx, r.world, r.site.store.Now())
	if err != nil {
		return err
	}
	r.gauge(report.Snapshot, now)
	r.rec.take(report, clock().Sub(began))
	r.site.metrics.observeReport(report)
	if now.Sub(r.sealed) >= sealEvery {
		if _, err := r.leader.Seal(ctx); err != nil {
			return err
		}
		r.sealed = now
	}
	return nil
}

// sleep waits in real time, or gives ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
