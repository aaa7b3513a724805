package store

import (
	"errors"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
)

// What nobody says is the pool's default per GPU, of what its nodes offer; what no
// node offers is refused with what to do.
func TestPoolDefaultsFillWhatAJobNeeds(t *testing.T) {
	t.Parallel()
	k := newSite(t, 1)
	k.project(t, "a", 1000)
	k.db.Exec(t, `update nodes set net_mbps = 100000, sto_mbps = 16000`)
	k.db.Exec(t, `update devices set hbm_mib = 80000`)
	demand := Demand{NetMbps: 10_000, StoMbps: 3000, IOCMilli: 500}
	refused(t, k.SetPoolDemand(t.Context(), k.command(), 1, demand), ledger.Denied)
	k.db.Exec(t, `insert into role_grants (person_id, role, group_id, granted_at) values (1, 'admin', 1, '2026-10-01')`)
	admin, err := k.Actor(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	cmd := func() Command { c := k.command(); c.Actor = admin; return c }
	if err := k.SetPoolDemand(t.Context(), cmd(), 1, demand); err != nil {
		t.Fatal(err)
	}
	refused(t, k.SetPoolDemand(t.Context(), cmd(), 1, Demand{NetMbps: -1}), ledger.Invalid)
	refused(t, k.SetPoolDemand(t.Context(), cmd(), 99, demand), ledger.Missing)
	for name, c := range map[string]struct {
		change func(*Submission)
		want   scheduler.Flow
	}{
		"two GPUs":    {func(s *Submission) { s.GPUs = 2 }, scheduler.Flow{NetMbps: 20_000, StoMbps: 6000}},
		"a quarter":   {func(s *Submission) { s.GPUs, s.GPUMilli = 1, 250 }, scheduler.Flow{NetMbps: 2500, StoMbps: 750}},
		"a full node": {func(s *Submission) { s.GPUs = 8 }, scheduler.Flow{NetMbps: 80_000, StoMbps: 16_000}}, // no more than a node has
		"its own": {func(s *Submission) {
			s.GPUs, s.Flow = 1, SubmittedFlow{HBMMiB: number(70_000), NetMbps: number(0), StoMbps: number(9)}
		}, scheduler.Flow{HBMMiB: 70_000, StoMbps: 9}},
	} {
		if got := k.read(t, k.submit(t, "a", 1, 1, anHour, c.change)).Shape.Flow; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	k.cycle(t)
	var net, sto, hbm int64
	if err := k.pool.QueryRow(t.Context(), `select sum(net_mbps), sum(sto_mbps), max(hbm_mib) from placements`).Scan(&net, &sto, &hbm); err != nil || net == 0 || sto == 0 {
		t.Errorf("placements hold %d Mbit/s, %d MB/s, %d MiB: %v", net, sto, hbm, err)
	}
	for field, f := range map[string]SubmittedFlow{
		"ioc_milli": {IOCMilli: number(1)}, "sto_mbps": {StoMbps: number(16_001)}, "hbm_mib": {HBMMiB: number(80_001)}, "net_mbps": {NetMbps: number(-1)},
	} {
		_, err := k.SubmitJob(t.Context(), k.command(), Submission{Project: "/lab/a", Pool: "h100", GPUs: 1, Command: "true", Flow: f})
		var refusals ledger.Refusals
		if !errors.As(err, &refusals) || len(refusals) != 1 || refusals[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func number(n int64) *int64 { return &n }
