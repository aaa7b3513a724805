package store

import (
	"errors"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
)

// read gives a job as the dispatcher sees it.
func (k *site) read(t *testing.T, id ledger.JobID) scheduler.Job {
	t.Helper()
	var j scheduler.Job
	if err := k.pool.QueryRow(t.Context(), `select `+jobColumns+` from jobs j where id = $1`, id).Scan(jobFields(&j)...); err != nil {
		t.Fatal(err)
	}
	return j
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var one *ledger.Refusal
	var many ledger.Refusals
	switch {
	case errors.As(err, &one) && one.Code == code:
	case errors.As(err, &many) && len(many) == 1 && many[0].Code == code:
	default:
		t.Errorf("%v, want the refusal %s", err, code)
	}
}

// A waiting job that asks for less keeps its place; for more, or elsewhere, it
// goes to the end. Rate, cores and memory follow.
func TestChangeAWaitingJob(t *testing.T) {
	t.Parallel()
	k := newSite(t, 2)
	k.project(t, "a", 1000)
	k.db.Exec(t, `insert into pools (name, rate_ppm, node_gpus, node_cpu_milli, node_ram_mib, created_at) values ('l40s', 500000, 4, 32000, 128000, '2026-10-01'),
		('cpu', 1000000, 0, 32000, 128000, '2026-10-01')`)
	id := k.submit(t, "a", 1, 8, anHour)
	was := k.read(t, id)
	half, key := int64(30*minute), k.command()
	for range 2 { // sent twice, done once
		if err := k.ChangeJob(t.Context(), key, id, JobChange{GPUs: 4, MinMs: &half}); err != nil {
			t.Fatal(err)
		}
	}
	is := k.read(t, id)
	if is.QueueSeq != was.QueueSeq || is.Shape.GPUs != 4 || is.Shape.CPUMilli != 32_000 || is.Shape.RAMMiB != 256_000 || is.Rate.MilliGPU != 4000 || is.Contract.MinMs != half {
		t.Errorf("asking for less gave %+v", is)
	}
	if err := k.ChangeJob(t.Context(), k.command(), id, JobChange{GPUs: 8}); err != nil {
		t.Fatal(err)
	}
	more := k.read(t, id)
	if more.QueueSeq <= was.QueueSeq || more.Rate.MilliGPU != 8000 {
		t.Errorf("asking for more gave %+v", more)
	}
	if err := k.ChangeJob(t.Context(), k.command(), id, JobChange{GPUs: 4, Pool: "l40s"}); err != nil {
		t.Fatal(err)
	}
	moved := k.read(t, id)
	if moved.Pool != 2 || moved.QueueSeq <= more.QueueSeq || moved.Rate != (ledger.Rate{MilliGPU: 4000, PPM: 500_000}) || moved.Shape.RAMMiB != 128_000 {
		t.Errorf("another pool gave %+v", moved)
	}
	none := int64(0)
	if err := k.ChangeJob(t.Context(), k.command(), id, JobChange{MinMs: &none}); err != nil {
		t.Fatal(err)
	}
	if free := k.read(t, id); free.Contract.MinMs != 0 || free.Contract.GraceMs != 15_000 || free.QueueSeq != moved.QueueSeq {
		t.Errorf("unfunded gave %+v", free)
	}
	wantCode(t, k.ChangeJob(t.Context(), k.command(), id, JobChange{Pool: "cpu"}), "job.pool_kind")
	wantCode(t, k.ChangeJob(t.Context(), k.command(), id, JobChange{GPUs: 5}), "job.too_many_gpus")
	var audited int
	if err := k.Pool().QueryRow(t.Context(), `select count(*) from audit where verb = 'job.change'`).Scan(&audited); err != nil || audited != 4 {
		t.Errorf("%d audited changes, want 4 (%v)", audited, err)
	}
}

// What runs, and what others own, is not changed.
func TestOnlyOnesOwnWaitingJobIsChanged(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	runs, waits := k.submit(t, "a", 1, 8, anHour), k.submit(t, "a", 1, 8, anHour)
	k.cycle(t)
	wantCode(t, k.ChangeJob(t.Context(), k.command(), runs, JobChange{GPUs: 4}), "job.not_waiting")
	stranger := k.command()
	stranger.Actor = ledger.Actor{Person: 2}
	if err := k.ChangeJob(t.Context(), stranger, waits, JobChange{GPUs: 4}); err == nil {
		t.Error("a stranger changed the job")
	}
}

// A job that waits is told what would start it; done, it starts.
func TestAChangeOfTheOutlookStartsTheJob(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	a, b := k.project(t, "a", 1000), k.project(t, "b", 2)
	k.submit(t, "a", 1, 6, anHour)
	k.cycle(t)
	k.claimAll(t)
	waits := k.submit(t, "b", 1, 4, anHour)
	k.cycle(t)
	k.pass(time.Second)
	k.submit(t, "a", 1, 1, anHour)
	k.cycle(t)
	o, err := k.JobOutlook(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Ahead) != 1 || o.Ahead[0].Group != a || o.Ahead[0].Started != 1 || o.Ahead[0].Free != 0 || o.Ahead[0].Standing == nil || o.Ahead[0].Standing.Group != a {
		t.Errorf("ahead %+v", o.Ahead)
	}
	if len(o.Changes) != 1 || o.Changes[0].Kind != scheduler.ChangeGPUs || o.Changes[0].To.Shape.GPUs != 1 {
		t.Fatalf("changes %+v", o.Changes)
	}
	c := &o.Changes[0].To
	if err := k.ChangeJob(t.Context(), k.command(), waits, JobChange{GPUs: c.Shape.GPUs, MinMs: &c.Contract.MinMs}); err != nil {
		t.Fatal(err)
	}
	k.cycle(t)
	k.want(t, waits, "starting")
	k.wantBalance(t, b, "1", "1", "0")
	if o, err = k.JobOutlook(t.Context(), waits); err != nil || len(o.Changes) > 0 {
		t.Errorf("a job that starts is offered %+v (%v)", o.Changes, err)
	}
}

// The pages of an order give every waiting job once, as the last cycle ranked them.
func TestPagesOfAPoolsOrder(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	k.project(t, "b", 1000)
	for i := range 11 {
		k.submit(t, string(rune('a'+i%2)), 1, 8, int64(i%3)*anHour)
	}
	k.cycle(t)
	late := k.submit(t, "b", 1, 8, anHour)
	var seen []ledger.JobID
	last, after := 0, ""
	for {
		o, err := k.PoolOrder(t.Context(), 1, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range o.Rows {
			if j.Reason != nil && j.Reason.Rank > 0 {
				if j.Reason.Rank <= last {
					t.Errorf("rank %d after %d", j.Reason.Rank, last)
				}
				last = j.Reason.Rank
			}
			seen = append(seen, j.ID)
		}
		if after = o.Next; after == "" {
			break
		}
	}
	if len(seen) != 11 || seen[10] != late {
		t.Errorf("pages gave %v, want the 10 that waited and job %d last", seen, late)
	}
	_, err := k.PoolOrder(t.Context(), 1, "7", 3)
	wantCode(t, err, "order.cursor")
}
