package store

import (
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// going counts an array's jobs that are queued or live, and those that are live.
func (k *site) going(t testing.TB, array ledger.ArrayID) (queued, live int) {
	t.Helper()
	if err := k.pool.QueryRow(t.Context(), `select count(*) filter (where state = 'pending' and not blocked), count(*) filter (where state = 'live')
		from jobs where array_id = $1`, array).Scan(&queued, &live); err != nil {
		t.Fatal(err)
	}
	return queued, live
}

func (k *site) wantGoing(t testing.TB, queued, live int) {
	t.Helper()
	if q, l := k.going(t, 1); q != queued || l != live {
		t.Errorf("%d queued, %d live; want %d, %d", q, l, queued, live)
	}
}

// Of an array with a limit so many go at once, in the order of their indices,
// whatever room there is; an end, a pause and a cancellation each let the next in.
func TestArrayLimitHolds(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	k.project(t, "a", 1000)
	first := k.submit(t, "a", 1, 1, anHour, arrayOf("0-9%3"))
	k.wantGoing(t, 3, 0)
	k.cycle(t)
	k.wantGoing(t, 0, 3)
	d, err := k.Job(t.Context(), k.actor, first+3)
	if err != nil || d.Reason == nil || d.Reason.Code != scheduler.WhyArrayLimit || d.Reason.Fact(scheduler.FactAtOnce) != "3" {
		t.Errorf("the fourth: %+v, %v", d.Reason, err)
	}
	k.cycle(t)
	k.wantGoing(t, 0, 3)
	k.claimAll(t)
	k.pass(time.Minute)
	k.end(t, first+1, time.Minute, 1, false)
	k.wantGoing(t, 1, 2)
	if err := k.PauseJob(t.Context(), k.command(), first+3); err != nil { // its place goes to the next
		t.Fatal(err)
	}
	k.wantGoing(t, 1, 2)
	k.cycle(t)
	k.want(t, first+4, "starting")
	if err := k.ResumeJob(t.Context(), k.command(), first+3); err != nil { // and it waits for another
		t.Fatal(err)
	}
	k.wantGoing(t, 0, 3)
	if err := k.CancelJob(t.Context(), k.command(), first); err != nil {
		t.Fatal(err)
	}
	k.wantGoing(t, 0, 3) // it has its grace
	k.end(t, first, time.Minute, -1, true)
	k.wantGoing(t, 1, 2)
	if k.blocked(t, first+3) || !k.blocked(t, first+5) {
		t.Error("the resumed job does not go before the later one")
	}
	if err := k.CancelJob(t.Context(), k.command(), first+3); err != nil {
		t.Fatal(err)
	}
	if k.blocked(t, first+5) {
		t.Error("a cancelled job keeps its place")
	}
}

// An evicted job goes back to the queue and still counts.
func TestArrayLimitThroughEviction(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	first := k.submit(t, "a", 1, 4, 0, arrayOf("1-6%2"))
	k.cycle(t)
	k.claimAll(t)
	k.pass(time.Minute)
	k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	k.want(t, first, "ending")
	k.wantGoing(t, 0, 2)
	k.pass(time.Second)
	k.end(t, first, 61*time.Second, -1, true)
	k.wantGoing(t, 1, 1)
	k.end(t, first+1, 61*time.Second, -1, true)
	k.wantGoing(t, 2, 0)
	k.want(t, first, "pending preempted")
	k.want(t, first+2, "pending ")
}

// Cancelling an array while the dispatcher starts its jobs leaves none behind.
func TestCancelOfAnArrayRacesStarts(t *testing.T) {
	t.Parallel()
	k := newSite(t, 4)
	a := k.project(t, "a", 1000)
	for array := ledger.ArrayID(1); array <= 6; array++ {
		k.submit(t, "a", 1, 1, anHour, arrayOf("0-63%20"))
		cmd, cancelled := k.command(), make(chan error, 2)
		for range 2 { // a double click
			go func() { cancelled <- k.CancelArray(t.Context(), cmd, array) }()
		}
		k.cycle(t)
		for range 2 {
			if err := <-cancelled; err != nil {
				t.Fatal(err)
			}
		}
		k.cycle(t)
		for _, orders := range k.orders(t) {
			for _, o := range orders {
				if !o.Stop && o.Array == array {
					t.Errorf("job %d of the cancelled array A%d is to go on", o.Job, array)
				}
			}
		}
		k.wantStates(t, array, "cancelled 64")
	}
	k.wantBalance(t, a, "1000", "0", "0")
}

// All of an array steps aside and comes back; what runs goes on.
func TestPausedArrayComesBack(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	first := k.submit(t, "a", 1, 4, anHour, arrayOf("0-9%4"))
	k.cycle(t)
	if err := k.PauseArray(t.Context(), k.command(), 1); err != nil {
		t.Fatal(err)
	}
	k.wantStates(t, 1, "live 2, paused 8")
	k.claimAll(t)
	k.pass(time.Minute)
	k.end(t, first, time.Minute, 0, false)
	k.cycle(t)
	k.wantGoing(t, 0, 1)
	if err := k.ResumeArray(t.Context(), k.command(), 1); err != nil {
		t.Fatal(err)
	}
	k.wantGoing(t, 3, 1)
	stranger := k.actor
	stranger.Person, stranger.Grants = 99, nil
	cmd := k.command()
	cmd.Actor = stranger
	wantRefusal(t, saved(0, k.CancelArray(t.Context(), cmd, 1)), ledger.Denied)
	wantRefusal(t, saved(0, k.CancelArray(t.Context(), k.command(), 99)), ledger.Missing)
}

// After an array means after all its jobs; an array waits, and falls, as one.
func TestAfterAnArray(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	after := func(words ...string) func(*Submission) { return func(s *Submission) { s.After = words } }
	first := k.submit(t, "a", 1, 4, anHour, arrayOf("0-1"))
	merge := k.submit(t, "a", 1, 8, anHour, after("ok:A1"))
	tidy := k.submit(t, "a", 1, 8, anHour, after("any:a1"))
	k.submit(t, "a", 1, 1, anHour, arrayOf("0-9%2", after("ok:2"))) // after one job of the array
	last := k.submit(t, "a", 1, 1, anHour, arrayOf("0-4", after("ok:A2")))
	k.wantInvalid(t, Submission{Project: "/lab/a", Pool: "h100", GPUs: 8, Command: "x", After: []string{"ok:A9"}})
	k.cycle(t)
	k.claimAll(t)
	k.pass(time.Minute)
	k.end(t, first, time.Minute, 0, false)
	if !k.blocked(t, merge) || !k.blocked(t, tidy) || !k.blocked(t, last) {
		t.Error("one end of two lets go")
	}
	k.wantStates(t, 2, "pending 10")
	k.end(t, first+1, time.Minute, 1, false) // the array is over, and not well
	k.want(t, merge, "cancelled ")
	if k.blocked(t, tidy) {
		t.Error("any: waits for more than the end")
	}
	k.wantStates(t, 2, "cancelled 10")
	k.wantStates(t, 3, "cancelled 5")
	letters := 0
	if err := k.pool.QueryRow(t.Context(), `select count(*) from outbox where kind = 'array.dependency'`).Scan(&letters); err != nil || letters != 2 {
		t.Errorf("%d letters, %v", letters, err)
	}
}
