package web

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

// showPools lists pools with what they hold now.
func (s *server) showPools(w http.ResponseWriter, r *http.Request) error {
	pools, err := s.store.Occupancy(r.Context())
	if err != nil {
		return err
	}
	var m view.Pools
	var devices, busy, waiting int
	for i := range pools {
		p := &pools[i]
		m.Rows = append(m.Rows, poolRow(p))
		devices += p.Devices
		busy += p.Funded + p.Unfunded + p.Ending
		waiting += p.Waiting
	}
	answer := fmt.Sprintf("%d of %s are occupied; %s.", busy, plural(int64(devices), "device"), counted(waiting, "job waits", "jobs wait"))
	shell := s.shell(r, "Pools", "pools", answer)
	shell.Refresh = view.PoolsURL
	return s.show(w, r, view.PoolsPage(shell, m))
}

func poolRow(p *store.PoolLine) view.PoolRow {
	device := p.Model
	if device == "" {
		device = "CPU only"
	}
	return view.PoolRow{
		ID: p.ID, Name: p.Name, Device: device, Nodes: p.Nodes, Devices: p.Devices, Funded: p.Funded, Unfunded: p.Unfunded,
		Ending: p.Ending, Idle: p.Idle(), Down: p.Down, Waiting: p.Waiting, Rate: rateText(p.RatePPM),
	}
}

// rateText writes a pool's rate: "1.000", "2.375".
func rateText(ppm int64) string {
	text := fmt.Sprintf("%d.%06d", ppm/1_000_000, ppm%1_000_000)
	for strings.HasSuffix(text, "0") && len(text)-strings.IndexByte(text, '.') > 4 {
		text = text[:len(text)-1]
	}
	return text
}

// showPool is one pool: standings, the queue in order, devices, what runs.
func (s *server) showPool(w http.ResponseWriter, r *http.Request) error {
	b, err := s.readBoard(r, ledger.PoolID(pathID(r)))
	if err != nil {
		return err
	}
	m := view.Pool{
		ID: b.ID, Name: b.Name, Occupied: poolRow(&b.PoolLine), Bars: standingBars(&b), Queue: s.queueRows(&b),
		More: max(0, b.Waiting-len(b.Queue)), Running: s.liveRows(&b), Cycle: s.cycleFacts(&b),
	}
	m.Promise, m.Indices = s.promise(b.Reserved, 0), s.indicesOf(&b)
	if n := len(b.Fleet.Nodes); n > 0 {
		label := b.Name
		if b.Fleet.More {
			label += fmt.Sprintf(", the first %d of %d nodes", n, b.Fleet.All)
		}
		m.Grid = s.nodeGrid(label, b.Fleet.Nodes)
	}
	if b.FrozenAt != 0 {
		m.Frozen = frozenText(b.Name, b.FrozenWhy)
	}
	shell := s.shell(r, b.Name, "pools", poolAnswer(&b, m.Bars))
	shell.Crumbs = []view.Link{{Text: "Pools", URL: view.PoolsURL}}
	shell.Refresh, shell.Every = r.URL.RequestURI(), "3s"
	return s.show(w, r, view.PoolPage(shell, m))
}

func frozenText(pool, why string) string {
	return "Pool " + pool + " is frozen: " + why + " Nothing new is placed until the nodes are back or an operator decides."
}

// poolAnswer says how full the pool is and who goes first.
func poolAnswer(b *store.Board, bars []view.StandingBars) string {
	busy := b.Funded + b.Unfunded + b.Ending
	text := fmt.Sprintf("%d of %s are occupied; %s", busy, plural(int64(b.Devices), "device"), counted(b.Waiting, "job waits", "jobs wait"))
	if len(bars) > 0 {
		for _, row := range bars[0].Rows {
			if row.Next {
				return text + ", and " + row.Group + " goes first with " + row.Standing + " × its share."
			}
		}
	}
	return text + "."
}

// standingBars draws every level of the tree that has jobs waiting, root first;
// a pool without a queue shows the first level.
func standingBars(b *store.Board) []view.StandingBars {
	parents := map[ledger.GroupID]string{}
	for _, l := range b.Standings {
		parents[l.Group] = l.Title
	}
	var order []ledger.GroupID
	levels := map[ledger.GroupID][]store.StandingLine{}
	for _, l := range b.Standings { // by path: a parent comes before its children
		if levels[l.Parent] == nil {
			order = append(order, l.Parent)
		}
		levels[l.Parent] = append(levels[l.Parent], l)
	}
	var out []view.StandingBars
	for i, parent := range order {
		waits := slices.ContainsFunc(levels[parent], func(l store.StandingLine) bool { return l.Waiting > 0 })
		if !waits && i > 0 {
			continue
		}
		label := "The tree's first level on " + b.Name
		if title := parents[parent]; title != "" {
			label = "Below " + title + " on " + b.Name
		}
		out = append(out, view.StandingBars{Label: label, Rows: standingRows(levels[parent], b.Policy.LookbackMs)})
	}
	return out
}

// standingRows gives siblings in the order the dispatcher serves them.
func standingRows(lines []store.StandingLine, lookbackMs int64) []view.StandingRow {
	slices.SortFunc(lines, store.CompareStandings)
	next := slices.IndexFunc(lines, func(l store.StandingLine) bool { return l.Funded > 0 })
	rows := make([]view.StandingRow, len(lines))
	for i, l := range lines {
		rows[i] = view.StandingRow{
			Group: l.Title, URL: view.GroupURL(l.Group), Usage: ledger.Amount(l.Usage / 1000),
			Commitment: ledger.Amount(l.Commitment / 1000), Share: shareOf(l.MicroGPU, lookbackMs), Standing: l.Times(lookbackMs),
			Next: i == next, Waiting: l.Waiting,
		}
		if l.MicroGPU == 0 {
			rows[i].Standing = "–"
		}
	}
	return rows
}

// shareOf is what a share gives over the lookback, in ledger units.
func shareOf(microGPU, lookbackMs int64) ledger.Amount {
	a, err := ledger.Amount(microGPU).MulRatio(lookbackMs, 1_000_000)
	if err != nil {
		return 0
	}
	return a
}

// queueRows lists what waits in the order of the last cycle.
func (s *server) queueRows(b *store.Board) []view.QueueRow {
	now := s.store.Now()
	rows := make([]view.QueueRow, 0, len(b.Queue))
	for i := range b.Queue {
		j := &b.Queue[i]
		row := view.QueueRow{
			JobID: j.ID, Job: jobName(j), Owner: j.Owner, Project: j.Title, Shape: shapeOf(j), Minimum: minimumText(j.Contract.MinMs),
			Standing: "–", Urgency: int(j.Contract.Urgency), Waiting: ledger.FormatMillis(now.MillisSince(j.Submitted)),
			Reason: s.whyShort(j, b.Policy.LookbackMs),
		}
		if j.Reason != nil {
			row.Rank = j.Reason.Rank
		}
		if !secondPass(j) {
			row.Standing = pathStanding(b.Standings, j.Path, b.Policy)
		}
		rows = append(rows, row)
	}
	return rows
}

// secondPass says that a waiting job fills what the funded ones leave: other
// numbers than the standings order it.
func secondPass(j *store.JobLine) bool {
	return j.Contract.MinMs == 0 || (j.Reason != nil && j.Reason.Code == scheduler.WhyFull)
}

// pathStanding writes the standings of a job's groups, first level first: the
// numbers the order went by.
func pathStanding(lines []store.StandingLine, path string, policy scheduler.Policy) string {
	var parts []string
	for i := range lines {
		if ledger.Covers(lines[i].Path, path) {
			parts = append(parts, lines[i].Times(policy.LookbackMs))
		}
	}
	return strings.Join(parts, " › ")
}

// liveRows lists what runs on the pool.
func (s *server) liveRows(b *store.Board) []view.RunningRow {
	rows := make([]view.RunningRow, 0, len(b.Live))
	for i := range b.Live {
		row := s.runningRow(&b.Live[i])
		row.Node = nodesText(b.LiveNodes[i])
		row.Standing = pathStanding(b.Standings, b.Live[i].Path, b.Policy)
		rows = append(rows, row)
	}
	return rows
}

// runningRow is a live job in a list.
func (s *server) runningRow(j *store.JobLine) view.RunningRow {
	state, mark := s.stateOf(j)
	return view.RunningRow{
		JobID: j.ID, Job: jobName(j), Owner: j.Owner, Project: j.Title, Shape: shapeOf(j), Class: mark,
		State: strings.TrimPrefix(state, "running, "), Elapsed: s.elapsedOf(j.Last),
	}
}

// cycleFacts says when the last cycle left the standings.
func (s *server) cycleFacts(b *store.Board) []view.Fact {
	if b.StandingAt == 0 {
		return nil
	}
	return []view.Fact{
		{Name: "Standings of", Value: s.clock(b.StandingAt), Exact: s.when(b.StandingAt).Exact, Term: "cycle"},
		{Name: "Running", Value: plural(int64(b.Running), "attempt"), Term: "attempt"},
		{Name: "Policy", Value: "version " + strconv.FormatInt(b.Policy.Version, 10)},
		{Name: "Lookback", Value: spanText(b.Policy.LookbackMs), Term: "lookback"},
	}
}
