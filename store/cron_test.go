package store

import (
	"context"
	"errors"
	"testing"
)

func TestCronRunHappensOncePerOccurrence(t *testing.T) {
	s, _ := newStore(t)
	runs := 0
	work := func(context.Context) (string, error) { runs++; return "done", nil }
	at := s.Now()
	for range 3 {
		if _, err := s.CronRun(t.Context(), "sweep", at, work); err != nil {
			t.Fatal(err)
		}
	}
	if ran, err := s.CronRun(t.Context(), "sweep", at.Add(1000), work); err != nil || !ran {
		t.Fatal(ran, err)
	}
	if runs != 2 {
		t.Errorf("ran %d times for two occurrences", runs)
	}
	boom := errors.New("boom")
	if ran, err := s.CronRun(t.Context(), "mail", at, func(context.Context) (string, error) { return "", boom }); !ran || !errors.Is(err, boom) {
		t.Errorf("failed run: %v %v", ran, err)
	}
	var outcome string
	if err := s.pool.QueryRow(t.Context(), `select outcome from cron_runs where job = 'mail'`).Scan(&outcome); err != nil || outcome != "failed: boom" {
		t.Errorf("outcome %q, error %v", outcome, err)
	}
}

func TestSweepLeavesWhatIsYoung(t *testing.T) {
	s, db := newStore(t)
	now := s.Real()
	db.Exec(t, `insert into sessions (token, data, expiry) values ('old', '', $1), ('new', '', $2)`, now.Add(-1000).Time(), now.Add(60_000).Time())
	db.Exec(t, `insert into node_telemetry (node_id, at, util_pct, hbm_used_mib) values (1, $1, '{}', '{}'), (1, $2, '{}', '{}')`,
		now.Add(-9*86_400_000).Time(), now.Time())
	removed, err := s.Sweep(t.Context(), 7*86_400_000, 30*86_400_000)
	if err != nil || removed != 2 {
		t.Fatalf("removed %d, error %v; want the old session and the old reading", removed, err)
	}
}
