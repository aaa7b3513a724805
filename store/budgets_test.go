package store

import (
	"strings"
	"testing"

	"tranche/ledger"
)

// L8: a program of 100 with factor 1.6 and projects of 80 and 80.
func TestL8TreeLimitsByTheProgram(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 100 * hour}))
	k.must(t, k.SetOvercommit(t.Context(), k.as(t, k.ada), k.vision, 1_600_000))
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 80 * hour}, SplitWant{Child: k.track, Amount: 80 * hour}))
	k.must(t, k.use(t, k.seg, "a", 70*hour))
	if amount, by := k.usable(t, k.track); amount != 30*hour || by != "/lab/vision" {
		t.Errorf("B may use %s limited by %s, want 30 limited by /lab/vision", amount.Hours(), by)
	}
	refused(t, k.use(t, k.track, "b", 40*hour), ledger.Short)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 150 * hour}))
	if amount, by := k.usable(t, k.track); amount != 80*hour || by != "/lab/vision/tracking" {
		t.Errorf("after +50 B may use %s limited by %s, want 80 at once, limited by itself", amount.Hours(), by)
	}
	k.must(t, k.use(t, k.track, "b", 40*hour))
	report, err := k.Verify(t.Context())
	if err != nil || report.Sum != 0 {
		t.Errorf("the books sum to %d, %v", report.Sum, err)
	}
}

// An overcommit factor that is raised while usage exists counts what is there.
func TestOvercommitCountsUseThatIsThere(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 100 * hour}))
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 80 * hour}))
	k.must(t, k.use(t, k.seg, "a", 70*hour))
	r := refused(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.track, Amount: 80 * hour}), ledger.Short)
	if r.Facts["short"] != "60" || !strings.Contains(r.Detail, "/lab/vision") {
		t.Errorf("refused with %v %q, want short 60 by /lab/vision", r.Facts, r.Detail)
	}
	k.must(t, k.SetOvercommit(t.Context(), k.as(t, k.ada), k.vision, 1_600_000))
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.track, Amount: 80 * hour}))
	if amount, by := k.usable(t, k.track); amount != 30*hour || by != "/lab/vision" {
		t.Errorf("B may use %s limited by %s, want 30 by /lab/vision", amount.Hours(), by)
	}
	r = refused(t, k.SetOvercommit(t.Context(), k.as(t, k.ada), k.vision, 1_500_000), ledger.Short)
	if r.Facts["short"] != "10" {
		t.Errorf("lowering the factor: %v, want short 10", r.Facts)
	}
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.track, Amount: 20 * hour}))
	k.must(t, k.SetOvercommit(t.Context(), k.as(t, k.ada), k.vision, 1_000_000))
	if n := k.count(t, "select count(*) from path_limits"); n != 0 {
		t.Errorf("%d counters are left at factor 1", n)
	}
}

// L21: what a program hands out does not change its weight among its siblings.
func TestL21OvercommitDoesNotChangeAProgramsWeight(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	robots := k.group(t, k.lab, "Robots", false)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 100 * hour}, SplitWant{Child: robots, Amount: 300 * hour}))
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 100 * hour}))
	share := func() (vision, weight int64) {
		rows, err := k.Tree(t.Context(), k.h100, k.q4)
		k.must(t, err)
		for _, r := range rows {
			if r.ID == k.vision {
				return r.SharePPM, r.Weight
			}
		}
		return 0, 0
	}
	before, weight := share()
	k.must(t, k.SetOvercommit(t.Context(), k.as(t, k.ada), k.vision, 1_600_000))
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.track, Amount: 60 * hour}))
	after, weightAfter := share()
	if before < 249_990 || before > 250_000 || after != before || weight != weightAfter || weight != ledger.Weight(100*hour, 92*86400) {
		t.Errorf("share %d then %d ppm, weight %d then %d; want 250000 (rounded down) and the same weight", before, after, weight, weightAfter)
	}
}

func TestSplitInPercentVersionsAndDecreases(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	robots := k.group(t, k.lab, "Robots", false)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, ByPPM: true, PPM: 350_000}, SplitWant{Child: robots, ByPPM: true, PPM: 650_000}))
	if p := k.pot(t, k.vision); p.Received != 350*hour || p.Left != 350*hour {
		t.Errorf("Vision received %+v, want 350", p)
	}
	root := k.pot(t, k.lab)
	if root.Received != 1000*hour || root.ToPrograms != 1000*hour || root.Left != 0 || root.Version != 1 {
		t.Errorf("the root's pot %+v", root)
	}
	_, err := k.SplitPot(t.Context(), k.as(t, k.ada), SplitCommand{Program: k.lab, Pool: k.h100, Period: k.q4, Version: 0, Wants: []SplitWant{{Child: robots, Amount: 0}}})
	refused(t, err, ledger.Conflict)
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 100 * hour}))
	k.must(t, k.use(t, k.seg, "a", 60*hour))
	r := refused(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 50 * hour}), ledger.Short)
	if !strings.Contains(r.Detail, "60 GPU-h") {
		t.Errorf("a decrease below what is set aside: %q", r.Detail)
	}
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 60 * hour}))
	refused(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 59 * hour}), ledger.Short)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 60 * hour}))
	parts, err := k.Splits(t.Context(), k.lab, k.h100, k.q4)
	k.must(t, err)
	if len(parts) != 2 || parts[0].Title != "Robots" || parts[0].Amount != 650*hour || parts[0].PPM != 650_000 || parts[1].Floor != 60*hour {
		t.Errorf("parts %+v", parts)
	}
	if n := k.count(t, "select count(*) from split_parts p join splits s on s.id = p.split_id where s.program_id = $1", int64(k.lab)); n != 4 {
		t.Errorf("%d parts in the versions of the root's split, want 2 in each of 2", n)
	}
}

func TestSplitToAProjectOneLeadsNeedsASecondPerson(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.grant(t, k.grace, ledger.PI, k.seg)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 100 * hour}))
	r := refused(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 10 * hour}), ledger.Denied)
	if !strings.Contains(r.Detail, "You lead") {
		t.Errorf("refused with %q", r.Detail)
	}
	if n := k.count(t, "select count(*) from lots"); n != 0 {
		t.Errorf("%d lots after a refused split", n)
	}
	k.must(t, k.split(t, k.hedy, k.vision, SplitWant{Child: k.seg, Amount: 10 * hour}))
	refused(t, k.split(t, k.mary, k.vision, SplitWant{Child: k.track, Amount: hour}), ledger.Denied)
}

func TestPeriodsNeitherOverlapNorComeTwice(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	in := PeriodInput{
		Name: "2027-Q1", First: instant("2026-12-31"), Last: instant("2027-04-01"), Zone: "Europe/Berlin",
		Supplies: []SupplyInput{{Pool: k.h100, Devices: 8, AvailabilityPPM: 950_000}},
	}
	_, err := k.OpenPeriod(t.Context(), k.as(t, k.ada), in)
	refused(t, err, ledger.Conflict)
	in.First = instant("2027-01-01")
	_, err = k.OpenPeriod(t.Context(), k.as(t, k.grace), in)
	refused(t, err, ledger.Denied)
	cmd := k.as(t, k.ada)
	id, err := k.OpenPeriod(t.Context(), cmd, in)
	k.must(t, err)
	again, err := k.OpenPeriod(t.Context(), cmd, in)
	if err != nil || again != id {
		t.Errorf("the second click gave %d, %v; want %d", again, err, id)
	}
	supplies, err := k.Supplies(t.Context())
	k.must(t, err)
	want := ledger.Amount(8*90*86400*1000) * 95 / 100
	if last := supplies[len(supplies)-1]; last.Period != id || last.Amount != want {
		t.Errorf("supply %+v, want %d", last, want)
	}
}

// What people and projects occupied counts inside the lookback only, funded or
// not, and not what was credited.
func TestUseCountsTheLookback(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.db.Exec(t, `insert into jobs (project_id, pool_id, member_id, nodes, gpus, cpu_milli, ram_mib, milli_gpu, rate_ppm, min_ms, grace_ms, max_ms, resumable, stop_on_money, or_free, queue_seq, state, submitted_at)
		values ($1, $2, $3, 1, 2, 16000, 128000, 2000, 1000000, 0, 15000, 86400000, true, false, false, 1, 'finished', '2026-09-01')`, int64(k.seg), int64(k.h100), int64(k.emmy))
	k.db.Exec(t, `insert into attempts (job_id, n, project_id, pool_id, phase, funded, occupied_milli, milli_gpu, rate_ppm, min_ms, since) values (1, 1, $1, $2, 'closed', false, 2000, 2000, 1000000, 0, '2026-09-01')`,
		int64(k.seg), int64(k.h100))
	for _, s := range []struct {
		class         string
		hoursAgo, ran int64
	}{{"funded", 5, 2}, {"unfunded", 2, 1}, {"funded", 169, 2}, {"credited", 30, 3}, {"ending", 20, 1}} {
		first := k.Now().Add(-s.hoursAgo * 3_600_000)
		k.db.Exec(t, `insert into usage_segments (attempt_id, project_id, pool_id, member_id, class, milli_gpu, occupied_milli, first, last) values (1, $1, $2, $3, $4, 2000, 2000, $5, $6)`,
			int64(k.seg), int64(k.h100), int64(k.emmy), s.class, first.Time(), first.Add(s.ran*3_600_000).Time())
	}
	check := func(want ledger.Amount) {
		t.Helper()
		members, err := k.MemberUse(t.Context(), k.seg)
		k.must(t, err)
		pool, err := k.PoolUse(t.Context(), k.seg, k.h100)
		k.must(t, err)
		if members[k.emmy] != want || pool != want {
			t.Errorf("member %s, project %s; want %s", members[k.emmy].Hours(), pool.Hours(), want.Hours())
		}
	}
	// 2 GPUs × (2 h + 1 h + the hour of the old one that lies inside 168 h).
	check(8 * hour)
	// One that runs since 3 h, of which 1 h is recorded already.
	k.db.Exec(t, `insert into attempts (job_id, n, project_id, pool_id, phase, funded, occupied_milli, milli_gpu, rate_ppm, min_ms, since, started_at, recorded_until) values (1, 2, $1, $2, 'running', false, 2000, 2000, 1000000, 0, $3, $3, $4)`,
		int64(k.seg), int64(k.h100), k.Now().Add(-3*3_600_000).Time(), k.Now().Add(-2*3_600_000).Time())
	check(12 * hour)
}

// Deliverable is what the share gives until the lot ends, at most what is usable.
func TestDeliverableFollowsTheShare(t *testing.T) {
	t.Parallel()
	k := newInstitute(t)
	k.must(t, k.split(t, k.ada, k.lab, SplitWant{Child: k.vision, Amount: 920 * hour}))
	k.must(t, k.split(t, k.grace, k.vision, SplitWant{Child: k.seg, Amount: 920 * hour}))
	at := instant("2026-11-16") // half of 92 days: 46 are left
	k.db.Clock.Advance(at.Time().Sub(k.Now().Time()))
	list, err := k.UsableBy(t.Context(), []ledger.GroupID{k.seg})
	k.must(t, err)
	if u := list[0]; u.Amount != 920*hour || u.Until != instant("2027-01-01") || u.Deliverable < 459*hour || u.Deliverable > 460*hour {
		t.Errorf("usable %s until %v, deliverable %s; want 920 and 460", u.Amount.Hours(), u.Until.Time(), u.Deliverable.Hours())
	}
}
