package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"tranche/ledger"
)

// attempt writes a live attempt of project a that holds 10 and has proven 2 of
// the 4 hours it is protected; nothing is charged yet.
func (k *books) attempt(t testing.TB) {
	t.Helper()
	started := k.Now()
	k.db.Exec(t, `insert into jobs (project_id, pool_id, member_id, nodes, gpus, cpu_milli, ram_mib, milli_gpu, rate_ppm, min_ms, grace_ms, max_ms, resumable, stop_on_money, or_free, queue_seq, state, submitted_at)
		values ($1, 1, 1, 1, 2, 16000, 128000, 2500, 1000000, 14400000, 60000, 86400000, true, false, false, 1, 'live', '2026-10-01')`, int64(k.a))
	k.db.Exec(t, `insert into attempts (job_id, n, project_id, pool_id, phase, funded, occupied_milli, milli_gpu, rate_ppm, min_ms, since, started_at, hold_until_ms, proven_ms)
		values (1, 1, $1, 1, 'running', true, 2000, 2500, 1000000, 14400000, $2, $2, 14400000, 7200000)`, int64(k.a), started.Time())
	k.db.Exec(t, `insert into hold_pieces (attempt_id, n, lot_id, amount) values (1, 0, $1, $2)`, int64(k.lotA.ID), int64(10*hour))
	k.must(t, k.hold("attempt:1", k.lotA, 10*hour))
}

func TestStatementShowsAwardedHeldRunningSpent(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_600_000)
	k.db.Exec(t, "update lots set amount = $1 where id = $2", int64(80*hour), int64(k.lotA.ID))
	k.must(t, k.award("a", k.lotA, 80*hour), k.award("b", k.lotB, 80*hour))
	k.must(t, k.hold("b:1", k.lotB, 60*hour))
	k.attempt(t)
	before := k.Now()
	k.db.Clock.Advance(time.Hour)
	charge := k.entry("charge:attempt:1:0ms:3600000ms", move(k.lotA.Account(ledger.Held), k.lotA.Account(ledger.Spent), 5*hour/2),
		move(ledger.OverrunAccount(ledger.Overrun, k.a, 1), ledger.OverrunAccount(ledger.Spent, k.a, 1), hour))
	charge.Period = 0
	k.must(t, charge)
	k.db.Exec(t, `update attempts set charged_ms = 3600000, charged = $1`, int64(7*hour/2))
	k.db.Exec(t, `update hold_pieces set spent = $1`, int64(5*hour/2))

	now, err := k.Statement(t.Context(), k.a, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := PoolBalance{
		Pool: 1, PoolName: "h100", Awarded: 80 * hour, Available: 70 * hour, Held: 15 * hour / 2, Running: 5 * hour / 2,
		Spent: 7 * hour / 2, Overrun: hour, Usable: 30 * hour, LimitedBy: "/lab/v",
	}
	if len(now.Pools) != 1 || now.Pools[0] != want {
		t.Errorf("now %+v\nwant %+v", now.Pools, want)
	}
	if len(now.Open) != 1 || now.Open[0].Running != 5*hour/2 || now.Open[0].Held != 15*hour/2 || now.Open[0].Charged != 7*hour/2 {
		t.Errorf("open %+v", now.Open)
	}
	past, err := k.Statement(t.Context(), k.a, before)
	if err != nil {
		t.Fatal(err)
	}
	want = PoolBalance{Pool: 1, PoolName: "h100", Awarded: 80 * hour, Available: 70 * hour, Held: 10 * hour, Usable: 70 * hour, LimitedBy: "/lab/v/a"}
	if !past.Past || len(past.Pools) != 1 || past.Pools[0] != want || len(past.Open) != 0 {
		t.Errorf("past %+v\nwant %+v", past.Pools, want)
	}
	over, err := k.Statement(t.Context(), k.a, k.lotA.First.Add(1))
	if err != nil || over.Pools[0].Available != 70*hour {
		t.Errorf("one ms after the start %+v, %v", over.Pools, err)
	}
	if _, err := k.Statement(t.Context(), 999, 0); err == nil {
		t.Error("a statement of nobody")
	}
}

// Pages in both directions give every movement once, and each balance follows
// from the one before it.
func TestMovementsPageBothWays(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	k.must(t, k.award("a", k.lotA, 50*hour), k.award("b", k.lotB, 50*hour))
	for i := range 7 {
		k.db.Clock.Advance(time.Minute)
		key := "attempt:" + decimal(int64(i))
		k.must(t, k.hold(key, k.lotA, 3*hour), k.hold("other:"+key, k.lotB, hour))
		k.must(t, k.entry("release:"+key, move(k.lotA.Account(ledger.Held), k.lotA.Account(ledger.Available), hour)))
	}
	read := func(newest bool) (all []Movement) {
		q := MovementQuery{Project: k.a, Newest: newest, Limit: 4}
		for {
			page, err := k.Movements(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(page.Movements); n > 0 {
				oldest, latest := page.Movements[0], page.Movements[n-1]
				if newest {
					oldest, latest = latest, oldest
				}
				if page.Opening[1]+oldest.Change != oldest.Balance || page.Closing[1] != latest.Balance {
					t.Errorf("opening %v, oldest %+v, latest %+v, closing %v", page.Opening, oldest, latest, page.Closing)
				}
			}
			all = append(all, page.Movements...)
			if page.Next == 0 {
				return all
			}
			q.After, q.Before = page.Next, 0
			if newest {
				q.After, q.Before = 0, page.Next
			}
		}
	}
	forward, backward := read(false), read(true)
	slices.Reverse(backward)
	if len(forward) != 15 || !slices.Equal(forward, backward) {
		t.Errorf("%d forward, %d backward, want 15 equal ones", len(forward), len(backward))
	}
	if last := forward[14]; last.Balance != 36*hour || last.Change != hour || last.Held != -hour {
		t.Errorf("last %+v, want 36 GPU-h available", last)
	}
	page, err := k.Movements(t.Context(), MovementQuery{Project: k.a, Pool: 1, From: k.Now().Add(-60_000), To: k.Now(), Limit: 100})
	if err != nil || len(page.Movements) != 2 || page.Opening[1] != 40*hour {
		t.Errorf("the last minute but one: %+v, %v", page, err)
	}
}

func TestStreamChargesGivesChargesAndCredits(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	k.must(t, k.award("a", k.lotA, 50*hour))
	k.attempt(t)
	k.must(t, k.entry("charge:attempt:1:0ms:3600000ms", move(k.lotA.Account(ledger.Held), k.lotA.Account(ledger.Spent), 5*hour/2)))
	k.db.Clock.Advance(time.Hour)
	k.must(t, k.entry("credit:attempt:1:node-loss", move(k.lotA.Account(ledger.Credit), k.lotA.Account(ledger.Available), hour)))
	finance := ledger.Actor{Person: 1, Grants: []ledger.Grant{{Role: ledger.Finance, Group: k.lab, Path: "/lab"}}}
	stream := func(q ChargeQuery) (all []Charge, totals ChargeTotals, err error) {
		totals, err = k.StreamCharges(t.Context(), q, func(c Charge) error { all = append(all, c); return nil })
		return all, totals, err
	}
	all, totals, err := stream(ChargeQuery{Actor: finance})
	if err != nil || len(all) != 2 || totals.Rows != 2 || totals.Amount != 3*hour/2 {
		t.Fatalf("%+v, %+v, %v", all, totals, err)
	}
	c := all[0]
	if c.Kind != "charge" || c.Path != "/lab/v/a" || c.Pool != "h100" || c.Period != "2026-Q4" || c.Job != 1 || c.AttemptN != 1 || c.Member != 1 ||
		c.Amount != 5*hour/2 || c.To.MillisSince(c.From) != 3_600_000 || c.Rate.MilliGPU != 2500 || c.Lot != k.lotA.ID {
		t.Errorf("charge %+v", c)
	}
	if all[1].Kind != "credit" || all[1].Amount != -hour {
		t.Errorf("credit %+v", all[1])
	}
	if all, _, err := stream(ChargeQuery{Actor: finance, Group: k.a, From: k.Now()}); err != nil || len(all) != 1 {
		t.Errorf("since the credit: %+v, %v", all, err)
	}
	if all, _, err := stream(ChargeQuery{Actor: finance, Group: k.b}); err != nil || len(all) != 0 {
		t.Errorf("the other project: %+v, %v", all, err)
	}
	_, _, err = stream(ChargeQuery{Actor: ledger.Actor{Person: 2}})
	wantRefusal(t, err, ledger.Denied)
	stop := errors.New("disk full")
	if _, err := k.StreamCharges(context.Background(), ChargeQuery{Actor: finance}, func(Charge) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the writer's error came back as %v", err)
	}
}
