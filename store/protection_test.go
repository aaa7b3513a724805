package store

import (
	"testing"
	"time"
)

// A project sees what of the protection it asked for was used; attempts that
// hardware or operators ended do not count, nor do unfunded ones.
func TestProtectionAskedAgainstUsed(t *testing.T) {
	t.Parallel()
	k := newBooks(t, 1_000_000)
	k.must(t, k.award("a", k.lotA, 80*hour))
	k.attempt(t)
	for n, c := range []struct {
		minMs, elapsedMs int64
		cause, rule      string
	}{
		{14_400_000, 3_600_000, "finished", ""},           // 1 of 4 h
		{7_200_000, 9_000_000, "preempted", "V3"},         // all of its 2 h
		{14_400_000, 60_000, "lost", ""},                  // its node broke
		{14_400_000, 60_000, "preempted", "operator"},     // an operator stopped it
		{0, 9_000_000, "finished", ""},                    // unfunded
		{14_400_000, 3_600_000, "finished", "last-month"}, // see below
	} {
		ended := k.Now().Add(int64(n) * 1000)
		if c.rule == "last-month" {
			ended = k.Now().Add(-90 * 86_400_000)
		}
		k.db.Exec(t, `insert into attempts (job_id, n, project_id, pool_id, phase, funded, occupied_milli, milli_gpu, rate_ppm, min_ms, since, started_at, ended_at, elapsed_ms, cause, stop_rule)
			values (1, $1, $2, 1, 'closed', true, 2000, 2000, 1000000, $3, $4, $4, $4, $5, $6, $7)`, n+2, int64(k.a), c.minMs, ended.Time(), c.elapsedMs, c.cause, c.rule)
	}
	k.db.Clock.Advance(time.Minute)
	st, err := k.Statement(t.Context(), k.a, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Pools) != 1 || st.Pools[0].Asked != 12*hour || st.Pools[0].Ran != 6*hour {
		t.Errorf("%+v, want 6 of 12 GPU-h", st.Pools)
	}
}
