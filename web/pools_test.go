package web

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

func TestPoolPageShowsTheNumbersTheQueueIsSortedBy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "history", 8)
	running := f.job("researcher here", segPath, "running", 8)
	f.cycle()
	f.job("researcher here", segPath, "seg waits", 8)
	f.job("researcher elsewhere", armsPath, "arms waits", 8)
	f.cycle()
	page := f.as("nobody").open(view.PoolURL(f.h100))

	board, err := f.store.PoolBoard(t.Context(), f.h100)
	f.must(err)
	stored := map[string]string{}
	for _, l := range board.Standings {
		stored[l.Title] = l.Times(board.Policy.LookbackMs)
	}
	var shown []string
	for _, bar := range at(page.root, "standing-bars") {
		for _, row := range at(bar, "ratio") {
			shown = append(shown, textOf(row))
		}
	}
	// First level: Robots before Vision; then each one's only child.
	want := []string{stored["Robots"], stored["Vision"], stored["Arms"], stored["Segmentation"]}
	if !slices.Equal(shown, want) || stored["Vision"] == stored["Robots"] {
		t.Errorf("bars show %q, the table holds %q", shown, want)
	}
	queue := page.all("queue-row")
	if len(queue) != 2 || !strings.Contains(queue[0], "arms waits") || !strings.Contains(queue[1], "seg waits") {
		t.Errorf("queue %q", queue)
	}
	if !strings.Contains(queue[1], stored["Vision"]+" › "+stored["Segmentation"]) {
		t.Errorf("the queue does not show the path's standings: %q", queue[1])
	}
	if reasons := page.all("reason"); !strings.Contains(reasons[0], "protected") {
		t.Errorf("reasons %q", reasons)
	}
	if rows := at(page.root, "running-row"); len(rows) != 1 || textOf(rows[0]) == "" || !strings.Contains(textOf(rows[0]), "protected until") {
		t.Errorf("running rows %d of job %d", len(rows), running)
	}
	if answer := page.one("answer"); !strings.HasPrefix(answer, "8 of 8 devices are occupied; 2 jobs wait, and Robots goes first with ") {
		t.Errorf("answer %q", answer)
	}
}

func TestJobPageAndPoolPageAgree(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "history", 8)
	f.job("researcher here", segPath, "running", 8)
	f.cycle()
	id := f.job("researcher here", segPath, "seg waits", 8)
	f.job("researcher elsewhere", armsPath, "arms waits", 8)
	f.cycle()
	page := f.as("researcher here").open(view.JobURL(id))
	levels := page.all("level")
	if len(levels) != 2 || !strings.Contains(levels[0], "The Lab Vision") || !strings.Contains(levels[0], "Robots") || !strings.Contains(levels[1], "this one") {
		t.Errorf("levels %q", levels)
	}
	page.want("rank", "2")
	page.want("rank-of", "2")
	bars := f.as("researcher here").open(view.PoolURL(f.h100)).all("ratio")
	for i, standing := range page.all("standing") {
		if i < 2 && !slices.Contains(bars, standing) {
			t.Errorf("the job says %q, the pool %q", standing, bars)
		}
	}
}

func TestUnfundedJobsAreNotSortedByStandings(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher elsewhere", armsPath, "history", 8)
	f.job("researcher elsewhere", armsPath, "running", 8)
	f.cycle()
	free := f.job("researcher here", segPath, "free", 8, func(s *store.Submission) { s.Preset = "free" })
	f.job("researcher elsewhere", armsPath, "funded", 8)
	f.cycle()
	pool := f.as("nobody").open(view.PoolURL(f.h100))
	queue := pool.all("queue-row")
	if len(queue) != 2 || !strings.Contains(queue[0], "funded") || !strings.Contains(queue[1], "free") || !strings.Contains(queue[1], " – ") {
		t.Errorf("queue %q", queue)
	}
	// Segmentation had less of its share, but only an unfunded job waits there.
	if next := pool.all("next"); len(next) != 2 || !strings.Contains(pool.one("answer"), "Robots goes first") {
		t.Errorf("next %q, answer %q", next, pool.one("answer"))
	}
	if levels := f.as("nobody").open(view.JobURL(free)).all("level"); len(levels) != 0 {
		t.Errorf("an unfunded job is compared by funded standings: %q", levels)
	}
}

func TestShortOfFundsNamesTheLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	eight := int64(8 * 3_600_000)
	id := f.job("researcher elsewhere", armsPath, "too dear", 8, func(s *store.Submission) { s.MinMs = &eight })
	f.cycle()
	page := f.as("researcher elsewhere").open(view.JobURL(id))
	page.want("funds-needed", "64 GPU-h")
	page.want("funds-available", "50 GPU-h")
	page.want("funds-short", "14 GPU-h")
	page.want("funds-limited_by", armsPath)
}

func TestPoolsListCountsDevices(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.job("researcher here", segPath, "funded", 3)
	f.job("researcher elsewhere", armsPath, "free", 2, func(s *store.Submission) { s.Preset = "free" })
	f.cycle()
	f.db.Exec(t, `update devices set dead = true where node_id = $1 and idx = 7`, f.nodes[1])
	pools, err := f.store.Occupancy(t.Context())
	f.must(err)
	p := pools[0]
	if p.Nodes != 2 || p.Devices != 16 || p.Funded != 3 || p.Unfunded != 2 || p.Down != 1 || p.Idle() != 10 || p.Running != 2 {
		t.Errorf("%+v", p)
	}
	if answer := f.as("nobody").open(view.PoolsURL).one("answer"); answer != "5 of 16 devices are occupied; 0 jobs wait." {
		t.Errorf("answer %q", answer)
	}
}

func TestNodePagesEnrolAndDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.job("researcher here", segPath, "here", 8)
	f.cycle()
	b := f.as("operator here")
	list := b.open(view.NodesURL)
	enrolled := b.submit(list, "enrol-form", map[string]string{"hours": "2", "uses": "3"})
	token := enrolled.one("enrol-token")
	if enrolled.status != 200 || !strings.Contains(token, "TRANCHE_ENROL_TOKEN=") || !strings.Contains(token, "--server http://tranche.test") {
		t.Fatalf("status %d, token %q", enrolled.status, token)
	}
	secret, _, _ := strings.Cut(token[strings.Index(token, "TRANCHE_ENROL_TOKEN=")+len("TRANCHE_ENROL_TOKEN="):], " ")
	_, err := f.store.Enrol(t.Context(), store.EnrolInput{Token: secret, Secret: "new", Name: "n2", BootID: "b", CPUMilli: 64_000, RAMMiB: 512 * 1024})
	f.must(err)
	wrong := b.submit(b.open(view.NodesURL), "enrol-form", map[string]string{"hours": "100000"})
	if wrong.status != 422 {
		t.Errorf("a token for 100,000 h gives %d", wrong.status)
	}
	node := b.open(view.NodeURL(f.nodes[0]))
	if got := node.all("device-row"); len(got) != 8 || !strings.Contains(got[0], "here") {
		t.Errorf("devices %q", got)
	}
	if empty := b.submit(node, "drain-form", map[string]string{"reason": " "}); empty.status != 422 || !strings.Contains(empty.one("refusals"), "Say in up to 500") {
		t.Errorf("a drain without reason gives %d %q", empty.status, empty.one("refusals"))
	}
	drained := b.follow(b.submit(node, "drain-form", map[string]string{"reason": "fan 3 fails", "mode": "soft"}))
	drained.want("health", "draining")
	if why := drained.one("node-note"); !strings.Contains(why, "soft drain by operator here: fan 3 fails") {
		t.Errorf("note %q", why)
	}
	if at(f.as("pi here").open(view.NodeURL(f.nodes[0])).root, "undrain") != nil {
		t.Error("a PI is offered to drain")
	}
}

func TestNodesComeInPages(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.db.Exec(t, `insert into nodes (name, pool_id, token_hash, cpu_milli, ram_mib, enrolled_at, health_since, health)
		select 'm' || n, pool_id, sha256(('m' || n)::bytea), cpu_milli, ram_mib, enrolled_at, health_since, case when n = 7 then 'suspect' else 'healthy' end
		from nodes, generate_series(1, 120) n where id = 1`)
	b := f.as("operator here")
	first := b.open(view.NodesURL)
	rows := first.all("node-row")
	if len(rows) != 100 || !strings.HasPrefix(rows[9], "n1 ") || !strings.HasPrefix(rows[0], "m1 ") || first.one("answer") != "1 of 121 nodes is not healthy." {
		t.Fatalf("%d rows, first %q %q, answer %q", len(rows), rows[0], rows[9], first.one("answer"))
	}
	var next string
	for n := range at(first.root, "pager")[0].Descendants() {
		if href, ok := attribute(n, "href"); ok {
			next = href
		}
	}
	if rest := b.open(next).all("node-row"); len(rest) != 21 || !strings.HasPrefix(rest[20], "m120 ") {
		t.Errorf("the second page %s has %d rows", next, len(rest))
	}
	if pool := b.open(view.PoolURL(f.h100)); !strings.Contains(pool.body, "h100, the first 100 of 121 nodes") {
		t.Error("the pool's grid does not say that it is cut")
	}
}

func TestStandingsOrderBreaksTiesLikeTheTournament(t *testing.T) {
	t.Parallel()
	line := func(group ledger.GroupID, usage, share, head int64) store.StandingLine {
		return store.StandingLine{Standing: scheduler.Standing{Group: group, Usage: usage, MicroGPU: share}, Head: head}
	}
	lines := []store.StandingLine{line(6, 0, 0, 1), line(5, 10, 10, 9), line(4, 10, 10, 3), line(3, 20, 20, 8), line(2, 1, 10, 7), line(1, 10, 10, 9)}
	slices.SortFunc(lines, store.CompareStandings)
	var order []ledger.GroupID
	for _, l := range lines {
		order = append(order, l.Group)
	}
	if want := []ledger.GroupID{2, 3, 4, 1, 5, 6}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestContractBarHasEveryStateInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	id := f.job("researcher here", segPath, "bar", 1)
	f.db.Clock.Advance(5 * time.Minute)
	f.cycle()
	f.db.Clock.Advance(90 * time.Minute)
	actor := f.cmd("researcher here").Actor
	d, err := f.store.Job(t.Context(), actor, id)
	f.must(err)
	bar := f.server.contractBar(&d)
	var marks []view.Mark
	for i, span := range bar.Spans {
		marks = append(marks, span.Mark)
		if i > 0 && span.From != bar.Spans[i-1].To {
			t.Errorf("a gap before span %d", i)
		}
	}
	if want := []view.Mark{view.MarkWaiting, view.MarkProtected, view.MarkPast}; !slices.Equal(marks, want) {
		t.Errorf("marks %v, want %v", marks, want)
	}
	if bar.From != d.Submitted || bar.To != f.store.Now() {
		t.Errorf("the bar spans %v to %v", bar.From.Time(), bar.To.Time())
	}
}
