package view

import (
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"tranche/ledger"
)

// page is one page with a model, as handlers would fill it.
type page struct {
	name string
	c    templ.Component
}

func zone(t testing.TB) *time.Location {
	t.Helper()
	z, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func at(s string) ledger.Instant {
	v, err := time.Parse("2006-01-02 15:04", s)
	if err != nil {
		panic(err)
	}
	return ledger.At(v)
}

func h(n int64) Num { return gpuh(ledger.Amount(n) * ledger.GPUHour) }

func amt(n int64) ledger.Amount { return ledger.Amount(n) * ledger.GPUHour }

func shell(title, answer, here string) Shell {
	return Shell{
		Title: title, Answer: answer, Here: here, AsOf: "14:20:05 CET",
		Demo: "Demonstration: simulated nodes, development identities, this machine only.",
		Who:  &Who{Name: "Ada Byron", Role: "PI of Segmentation", Admin: true, Finance: true, Audit: true, People: true, Waiting: 2},
	}
}

func bar(label string, total, spent, running, held, expired int64) BudgetBar {
	return BudgetBar{
		Label: label, URL: "/pools/1", Total: amt(total), Spent: amt(spent), Running: amt(running), Held: amt(held), Expired: amt(expired),
		DuePPM: 660_000, ProjectedPPM: 880_000, ProjectedText: "10 560 at the present pace",
	}
}

func usableRows() []UsableRow {
	u := When{"in 31 days", "2026-12-31 24:00:00 CET"}
	return []UsableRow{
		{1, "Segmentation", 1, "h100", h(1240), "Vision's pot", u, h(980), bar("Segmentation on h100", 12000, 8200, 310, 250, 0)},
		{1, "Segmentation", 2, "a100", h(3318), "its own lots", u, h(3318), bar("Segmentation on a100", 4000, 480, 90, 112, 0)},
		{4, "Speech-to-text", 1, "h100", gpuh(ledger.Amount(42_750_000)), "its own lots", u, h(11), bar("Speech-to-text on h100", 600, 520, 20, 8, 40)},
	}
}

func jobRows() []JobRow {
	w := func(a, b string) When { return When{a, b} }
	return []JobRow{
		{812, "seg-vit-l-finetune", "Ada Byron", 1, "Segmentation", 1, "h100", "2 × 8 GPUs", "running", "running, protected until 14:20", MarkProtected, "", w("3 h ago", "2026-11-30 11:18:44 CET"), "2 h 58 min", h(48), "", nil},
		{815, "seg-vit-l-eval", "Ada Byron", 1, "Segmentation", 1, "h100", "8 GPUs", "waiting", "waiting, place 3 of 41", MarkWaiting, "Waits for 8 GPUs on h100: 3 are free on the best node, and Vision has had 1.40 × its share.", w("12 min ago", "2026-11-30 14:08:02 CET"), "–", h(0), "", nil},
		{790, "sweep-17", "Ada Byron", 1, "Segmentation", 2, "a100", "1 GPU", "running", "running, unfunded", MarkUnfunded, "", w("1 day 2 h ago", "2026-11-29 12:08:02 CET"), "6 h 12 min", h(0), "", nil},
		{788, "sweep-16", "Ada Byron", 1, "Segmentation", 2, "a100", "4 GPUs", "running", "running, past protection", MarkPast, "", w("1 day 3 h ago", "2026-11-29 11:08:02 CET"), "9 h", gpuh(129_600_000 / 4 * 3), "", nil},
		{770, "preprocess", "Ada Byron", 4, "Speech-to-text", 1, "h100", "1 GPU", "failed", "failed, exit 1", "", "Ended by itself with exit 1 after 4 min.", w("2 days ago", "2026-11-28 09:00:10 CET"), "4 min", gpuh(240_000), "", nil},
		{744, "seg-base", "Ada Byron", 1, "Segmentation", 1, "h100", "8 GPUs", "finished", "finished", MarkSpent, "", w("3 days ago", "2026-11-27 09:00:10 CET"), "7 h 40 min", gpuh(220_800_017), "", nil},
	}
}

func requestRows() []RequestRow {
	w := When{"2 h ago", "2026-11-30 12:12:44 CET"}
	return []RequestRow{
		{17, "Segmentation", "Fine-tune the segmentation backbone on the new microscopy set and publish weights", "2027-Q1", "12 000 on h100", "–", "submitted", "waits for Grace Hopper", w, "Ada Byron", true},
		{12, "Speech-to-text", "Low-resource languages", "2026-Q4", "900 on h100", "600 on h100", "awarded", "awarded in part", w, "Grace Hopper", false},
		{9, "Protein folding", "Inverse folding benchmark", "2026-Q4", "40 000 on h100", "–", "denied", "denied", w, "Grace Hopper", false},
	}
}

func standings() StandingBars {
	return StandingBars{Label: "Children of Lab on h100", Rows: []StandingRow{
		{"Speech", "/groups/3", amt(410), amt(24), amt(900), "0.48", true, 3},
		{"Vision", "/groups/2", amt(1120), amt(96), amt(1350), "0.90", false, 12},
		{"Biology", "/groups/5", amt(900), amt(360), amt(900), "1.40", false, 26},
		{"Visitors", "/groups/6", amt(12), amt(0), amt(0), "–", false, 0},
	}}
}

func grid() NodeGrid {
	g := NodeGrid{Label: "h100"}
	marks := []Mark{MarkProtected, MarkProtected, MarkPast, MarkUnfunded, MarkIdle, MarkEnding, MarkUnfunded, MarkPast}
	for n := range 12 {
		node := GridNode{ID: ledger.NodeID(n + 1), Name: "n" + itoa(int64(n+1)), Health: "healthy"}
		for d := range 8 {
			m := marks[(n*3+d/2)%len(marks)]
			if n == 7 {
				m, node.Health = MarkDown, "lost"
			}
			dev := GridDevice{Mark: m, Stall: n == 2 && d == 1}
			if m != MarkIdle && m != MarkDown {
				dev.Who, dev.Until, dev.Why, dev.URL = "seg-vit-l-finetune, Segmentation", "protected until 14:20", "best fit: 8 of 8 free", "/jobs/812"
			}
			node.Devices = append(node.Devices, dev)
		}
		g.Nodes = append(g.Nodes, node)
	}
	g.Nodes[4].Health = "draining"
	return g
}

func lots() []LotRow {
	d := func(s string) When { return When{s, s + " 00:00:00 CET"} }
	return []LotRow{
		{31, "h100", 12, d("1 October 2026"), d("31 December 2026"), h(12000), h(8200), h(310), h(250), h(3240), "current", bar("Lot 31", 12000, 8200, 310, 250, 0)},
		{28, "h100", 0, d("1 July 2026"), d("30 September 2026"), h(600), h(560), h(0), h(0), h(0), "expired", bar("Lot 28", 600, 560, 0, 0, 40)},
		{33, "a100", 12, d("1 October 2026"), d("31 December 2026"), h(4000), h(480), h(90), h(112), h(3318), "current", bar("Lot 33", 4000, 480, 90, 112, 0)},
	}
}

func statement() Statement {
	w := When{"just now", "2026-11-30 14:20:01 CET"}
	return Statement{
		ID: 1, Name: "Segmentation", Zone: "Europe/Berlin", Usable: usableRows()[:2],
		Pools: []PoolSum{{1, "h100", h(12600), h(8760), h(310), h(250), h(1240), h(40), h(0)}, {2, "a100", h(4000), h(480), h(90), h(112), h(3318), h(0), h(0)}},
		Lots:  lots(),
		Open: []OpenRow{
			{812, "seg-vit-l-finetune", "h100", "2 × 8 GPUs", MarkProtected, "protected", When{"2 h 58 min ago", "x"}, When{"in 2 min", "2026-11-30 14:22:00 CET"}, gpuh(500_000), h(48)},
			{790, "sweep-17", "a100", "1 GPU", MarkUnfunded, "unfunded", When{"6 h 12 min ago", "x"}, When{}, h(0), h(0)},
		},
		Entries: []EntryRow{
			{991, w, "settle", "Charge of job 812, attempt 1", "/jobs/812", "charge:attempt:881:0ms:3600000ms", "h100", h(-16), h(1240)},
			{990, w, "hold", "Set aside for job 812", "/jobs/812", "hold:attempt:881:0ms:10800000ms", "h100", h(-48), h(1256)},
			{870, When{"59 days ago", "2026-10-01 09:14:22 CEST"}, "award", "Award of request 12 by Grace Hopper", "/requests/12", "award:request:12", "h100", h(12000), h(12000)},
		},
		Pager:   Pager{Older: "/groups/1?before=870", Shown: "3 of 412"},
		Members: []MemberRow{{1, "Ada Byron", "PI", h(310), When{}, "2", "", "", ""}, {2, "Emmy Noether", "researcher", h(44), When{"in 90 days", "2027-02-28 24:00:00 CET"}, "1", "16", "/groups/1/member", "k1"}},
	}
}

func request() Request {
	return Request{
		ID: 17, Kind: "new budget", Project: "Segmentation", ProjectID: 1, Program: "Vision", Period: "2027-Q1", By: "Ada Byron",
		State: "submitted", StateText: "waits for Grace Hopper since 2 h",
		Lines:   []RequestedLine{{"h100", h(12000), Num{}}, {"a100", h(2000), h(1500)}},
		Purpose: "Fine-tune the segmentation backbone on the new microscopy set and publish weights.", Outcome: "Weights and a paper.", Deadline: "15 March 2027",
		New:       []Fact{{Name: "Name", Value: "Microscopy"}, {Name: "Cost centre", Value: "4711"}},
		History:   []HistoryRow{{When{"2 h ago", "2026-11-30 12:12:44 CET"}, "Ada Byron", "asked for 12 000 GPU-h on h100", ""}, {When{"1 h ago", "2026-11-30 13:12:44 CET"}, "Grace Hopper", "sent it back", "Which months need most of it?"}},
		MayReview: true, MayWithdraw: true, MayEdit: true, Key: "k",
	}
}

func review() Review {
	pot := bar("Vision's pot on h100", 40000, 21000, 0, 0, 0)
	return Review{
		Request: request(), Form: Form{Key: "k"}, Version: 3, First: "2027-01-01", Last: "2027-03-31", Zone: "Europe/Berlin",
		Lines: []ReviewLine{
			{1, "h100", h(12000), h(19000), h(7000), Num{}, "22 %", "35 %", h(310), pot},
			{2, "a100", h(2000), h(1940), h(-60), h(60), "4 %", "9 %", h(44), bar("Vision's pot on a100", 5000, 3060, 0, 0, 0)},
		},
		Past: []Fact{{Name: "2026-Q4", Value: "12 000 awarded, 8 200 spent on h100"}, {Name: "2026-Q3", Value: "600 awarded, 560 spent on h100"}},
	}
}

func jobPage(z *time.Location) Job {
	return Job{
		ID: 812, Name: "seg-vit-l-finetune", Owner: "Ada Byron", ProjectID: 1, Project: "Segmentation", PoolID: 1, Pool: "h100",
		State: "running", StateText: "running on n3 and n4, past protection since 13:22",
		Bar: &ContractBar{
			Label: "Time line of job 812", From: at("2026-11-30 09:50"), To: at("2026-11-30 13:40"), Now: at("2026-11-30 13:20"), Zone: z,
			Spans: []ContractSpan{
				{MarkWaiting, at("2026-11-30 09:50"), at("2026-11-30 10:20"), "waited 30 min, from 10:50 to 11:20"},
				{MarkProtected, at("2026-11-30 10:20"), at("2026-11-30 12:20"), "protected for 2 h, until 13:20"},
				{MarkPast, at("2026-11-30 12:20"), at("2026-11-30 13:10"), "past protection: rule V3 applies, from 13:20"},
				{MarkEnding, at("2026-11-30 13:10"), at("2026-11-30 13:16"), "grace, 6 min, until 14:16"},
			},
			Points: []ContractPoint{
				{"checkpoint", at("2026-11-30 11:40"), "", "checkpoint"},
				{"warning", at("2026-11-30 12:10"), "10 min", "warned: protection ends in 10 min"},
				{"eviction", at("2026-11-30 13:10"), "V3", "evicted for job 840 of Speech"},
			},
		},
		Why: &Why{
			Sentence: "Waits for 16 GPUs on h100: 3 are free on the best node, and rule V3 frees none, because Vision has had 0.90 × its share.",
			Code:     "capacity.short", Rank: 3, Of: 41,
			Levels:   []WhyLevel{{"Lab", "Vision", h(1120), h(96), "45 %", "0.90", "Speech", "0.48"}, {"Vision", "Segmentation", h(700), h(48), "60 %", "0.83", "", ""}},
			Nodes:    []WhyNodes{{"GPUs free", 10, "most free: 3 of 8 on n7"}, {"health", 2, "n8 lost, n5 draining"}},
			Funds:    []Fact{{Name: "Needed", Value: "128 GPU-h", ID: "needed"}, {Name: "Usable", Value: "1 240 GPU-h, limited by Vision's pot"}},
			Changes:  []WhyChange{{"Ask for GPU-hours", "a manager answers", "/requests/new"}, {"Submit it free", "not charged, may be stopped at any time", "/jobs/new?preset=free"}},
			Eviction: []Fact{{Name: "Rule", Value: "V3: past protection, another project"}, {Name: "Standing", Value: "Speech 0.48 with the job, Vision 0.90 without"}},
		},
		Contract: []Fact{{Name: "Protected for", Value: "2 h", Term: "protected for"}, {Name: "Grace", Value: "6 min", Term: "grace"}, {Name: "When money ends", Value: "go on, unfunded"}},
		Workload: []Fact{{Name: "Command", Value: "python train.py --resume\n  --epochs 40"}, {Name: "Working directory", Value: "/home/ada/seg"}},
		Attempts: []AttemptRow{{881, 1, "n3, n4", 3, MarkProtected, When{"3 h ago", "x"}, When{"4 min ago", "x"}, "2 h 56 min", "evicted by rule V3 for job 840", gpuh(168_960_000)}},
		Charges: []ChargeRow{
			{"charge:attempt:881:0ms:7200000ms", When{"1 h ago", "x"}, "0 min", "2 h", "charge", 31, h(32)},
			{"charge:attempt:881:7200000ms:10560000ms", When{"4 min ago", "x"}, "2 h", "2 h 56 min", "charge", 31, gpuh(53_760_000)},
		},
		Total: gpuh(168_960_000), Log: &LogTail{Lines: strings.Split(strings.Repeat("epoch 12  loss 0.0812  lr 3.0e-04  7 412 img/s\n", 12), "\n"), Skipped: "The last 13 of 10 412 lines.", Live: true},
		MayCancel: true, MayPause: true, MayResume: true, Key: "k",
	}
}

func poolRow() PoolRow {
	return PoolRow{1, "h100", "NVIDIA H100 80 GB", 12, 96, 58, 20, 2, 8, 8, 41, "1.000"}
}

func poolPage() Pool {
	return Pool{
		ID: 1, Name: "h100", Occupied: poolRow(), Bars: []StandingBars{standings()}, More: 35, Grid: grid(),
		Queue: []QueueRow{
			{1, 840, "asr-large", "Emmy Noether", "Speech-to-text", "2 × 8 GPUs", "8 h", "0.48", 5, "2 min", "Starts now: evicts job 812 by rule V3."},
			{2, 841, "asr-small", "Emmy Noether", "Speech-to-text", "1 GPU", "1 h", "0.50", 5, "2 min", "No free fit."},
			{3, 815, "seg-vit-l-eval", "Ada Byron", "Segmentation", "8 GPUs", "1 h", "0.90", 7, "12 min", "Waits for 8 GPUs: 3 are free on the best node."},
		},
		Running: []RunningRow{{812, "seg-vit-l-finetune", "Ada Byron", "Segmentation", "2 × 8 GPUs", MarkProtected, "protected until 14:20", "0.90", "n3, n4", "2 h 58 min"}, {790, "sweep-17", "Ada Byron", "Segmentation", "1 GPU", MarkUnfunded, "unfunded: rule V1 applies", "–", "n7", "6 h 12 min"}},
		Cycle:   []Fact{{Name: "When", Value: "14:20:04 CET"}, {Name: "Took", Value: "2.1 ms"}, {Name: "Started", Value: "1"}, {Name: "Evicted", Value: "1"}},
	}
}

func nodePage() Node {
	g := grid()
	g.Nodes, g.Label = g.Nodes[2:3], ""
	return Node{
		ID: 3, Name: "n3", PoolID: 1, Pool: "h100", Health: "healthy", Grid: g, MayDrain: true, Form: Form{Key: "k"},
		Waits:   "Soft: empty at 18:40 at the latest. Hard: 3 jobs stop now and are credited.",
		Facts:   []Fact{{Name: "Capacity", Value: "8 GPUs, 128 cores, 1 024 GiB"}, {Name: "Heard of", Value: "2 s ago"}},
		Devices: []DeviceRow{{0, "NVIDIA H100 80 GB", "GPU-5a1c", "97 %", "61 of 80 GiB", MarkProtected, "seg-vit-l-finetune", 812, "healthy"}, {1, "NVIDIA H100 80 GB", "GPU-9f20", "0 %", "0 of 80 GiB", MarkIdle, "", 0, "healthy"}},
		Headroom: Headroom{
			Answer: "61 GiB of 160 GiB of GPU memory are in use; 12 GiB more are kept as headroom for what the jobs here may still need.",
			Rows: []HeadroomRow{
				{Device: 0, Total: 81_920, Used: 62_464, Forecast: 68_000, Declared: 81_920, Reserved: 74_752, Jobs: 2, Basis: "by what such jobs have used"},
				{Device: 1, Total: 81_920, Forecast: -1},
			},
			Storage: "Its storage is degraded since 4 min ago: it counts with 48 % of its 16 000 MB/s until it has been good for a while.", Slow: true,
		},
		Attempts: poolPage().Running[:1], Events: []HistoryRow{{When{"3 days ago", "x"}, "agent", "enrolled", ""}},
	}
}

func treeRows() []TreeRow {
	return []TreeRow{
		{1, 0, false, "Lab", "Grace Hopper", "100 %", "–", 78, 41, bar("Lab", 95000, 51000, 2400, 1300, 600)},
		{2, 1, false, "Vision", "Grace Hopper", "45 %", "0.90", 40, 12, bar("Vision", 40000, 21000, 900, 600, 40)},
		{7, 2, true, "Segmentation", "Ada Byron", "60 %", "0.83", 24, 3, bar("Segmentation", 12600, 8760, 310, 250, 40)},
		{8, 2, true, "Tracking", "Mary Somerville", "40 %", "1.02", 16, 9, bar("Tracking", 9000, 3000, 590, 350, 0)},
		{3, 1, false, "Speech", "Emmy Noether", "30 %", "0.48", 20, 3, bar("Speech", 28000, 9000, 400, 200, 0)},
		{4, 2, true, "Speech-to-text", "Emmy Noether", "100 %", "0.48", 20, 3, bar("Speech-to-text", 600, 520, 20, 8, 40)},
		{5, 1, false, "Biology", "Rosalind Franklin", "25 %", "1.40", 18, 26, bar("Biology", 27000, 21000, 1100, 500, 560)},
	}
}

func program() Program {
	pot := bar("h100", 40000, 21000, 900, 600, 40)
	return Program{
		ID: 2, Name: "Vision", Period: "2026-Q4", Requests: requestRows()[:1],
		Pots:     []PotRow{{1, "h100", h(40000), h(0), h(21600), h(18400), pot}},
		Children: []ChildRow{{7, "Segmentation", true, "Ada Byron", "h100", "60 %", "0.83", h(12600), h(9070), h(1240)}, {8, "Tracking", false, "Mary Somerville", "h100", "40 %", "1.02", h(9000), h(3590), h(5060)}},
		Split: &Split{
			Form: Form{Key: "k"}, Pools: []Option{{"1", "h100"}, {"2", "a100"}}, Pool: "1", Pot: h(40000), PotMilliHours: 40_000_000, Mode: "percent",
			Rows: []SplitRow{{7, "Imaging", "60", "24 000 GPU-h", h(9320)}, {8, "Robotics", "25", "10 000 GPU-h", h(3940)}},
		},
	}
}

// fullPages is every page with everything on it.
func fullPages(z *time.Location) []page {
	return append(dailyPages(z), setUpPages()...)
}

func dailyPages(z *time.Location) []page {
	home := shell("Home", "You can use 1\u202f240 GPU-h on h100 until 31 December; Vision's pot is the limit.", "home")
	home.Flash = "Request 17 was sent to Grace Hopper."
	job := shell("seg-vit-l-finetune", "Past protection since 13:20: rule V3 may stop it, and Speech at 0.48 is next in line.", "jobs")
	job.Crumbs = []Link{{"Lab", "/groups/1"}, {"Vision", "/groups/2"}, {"Segmentation", "/groups/7"}}
	job.Actions = []Action{{Text: "Submit a copy", URL: "/jobs/new?from=812", ID: "copy"}, {Text: "Cancel", URL: "/jobs/812/cancel", Post: true, Harm: true, Confirm: "Stop it and give the rest back?", ID: "cancel"}}
	st := shell("Budget of Segmentation", "1\u202f240 GPU-h are usable on h100 now; 8\u202f760 are spent, 310 running, 250 set aside.", "tree")
	st.Crumbs = job.Crumbs[:2]
	st.Actions = []Action{{Text: "Submit a job", URL: "/jobs/new", ID: "submit"}, {Text: "Ask for GPU-hours", URL: "/requests/new", ID: "ask"}, {Text: "Charges as CSV", URL: "/export?group=1", ID: "csv"}}
	bare := Shell{Title: "Sign in", Answer: "Sign in to see what you can use.", Demo: home.Demo}
	devs := []DevPerson{{"admin", "Grace Hopper", "admin", "opens periods, builds the tree"}, {"manager", "Lise Meitner", "manager of Vision", "splits Vision's pot and answers requests"}, {"pi", "Ada Byron", "PI of Segmentation", "asks for GPU-hours and submits jobs"}}
	opts := []Option{{"7", "Segmentation"}, {"4", "Speech-to-text"}}
	pools := []Option{{"1", "h100"}, {"2", "a100"}}
	jobForm := JobForm{Form: Form{Key: "k"}, Projects: opts, Pools: pools, Usable: usableRows(), Caps: JobCaps{"8 h", "", "10 min", "7 days"}, MayUrgency: 9}
	reqForm := RequestForm{
		Form: Form{Key: "k"}, Periods: []Option{{"2", "2027-Q1"}}, Projects: append(opts, Option{"new", "a new project"}), Programs: []Option{{"2", "Vision"}},
		Lines: []RequestLine{{1, "h100", "NVIDIA H100 80 GB", "Vision's pot has 19 000 GPU-h left."}, {2, "a100", "", ""}}, Note: "Which months need most of it?",
	}
	return []page{
		{"signin", SignInPage(bare, SignIn{Provider: "Institute login", Next: "/", People: devs})},
		{"join", JoinPage(shell("Join a project", "You belong to no project yet: ask one, or wait for an invite.", "home"), Join{Form: Form{Key: "k"}, Projects: opts, Sent: []JoinAsk{{"Tracking", When{"2 h ago", "x"}, "waits for Mary Somerville"}}})},
		{"home", HomePage(home, Home{usableRows(), jobRows(), requestRows()[1:], requestRows()[:1]})},
		{"tree", TreePage(shell("Tree", "45 % of h100 belong to Vision, 30 % to Speech, 25 % to Biology.", "tree"), Tree{"2026-Q4", pools, "1", treeRows()})},
		{"program", ProgramPage(shell("Vision", "18\u202f400 of 40\u202f000 GPU-h of Vision's pot on h100 are still to award.", "tree"), program())},
		{"statement", StatementPage(st, statement())},
		{"requests", RequestsPage(shell("Requests", "2 requests wait for you.", "requests"), Requests{Rows: requestRows(), Pager: Pager{Older: "/requests?before=9", Shown: "3 of 17"}, MayAsk: true})},
		{"request-form", RequestFormPage(shell("Ask for GPU-hours", "Vision has 19\u202f000 GPU-h on h100 left for 2027-Q1.", "requests"), reqForm)},
		{"request", RequestPage(shell("Request 17", "Segmentation asks for 12\u202f000 GPU-h on h100; Grace Hopper answers.", "requests"), request())},
		{"review", ReviewPage(shell("Answer request 17", "Vision's pot covers the 12\u202f000 on h100; 60 GPU-h short on a100.", "requests"), review())},
		{"jobs", JobsPage(shell("Jobs", "3 of your jobs run, 1 waits at place 3 of 41.", "jobs"), Jobs{Projects: opts, Pools: pools, Rows: jobRows(), MaySubmit: true, Pager: Pager{Shown: "6 of 6"}})},
		{"job-form", JobFormPage(shell("Submit a job", "You can use 1\u202f240 GPU-h on h100 now.", "jobs"), jobForm)},
		{"job", JobPage(job, jobPage(z))},
		{"pools", PoolsPage(shell("Pools", "88 of 96 devices of h100 are up, 80 of them occupied.", "pools"), Pools{[]PoolRow{poolRow()}})},
		{"pool", PoolPage(shell("h100", "Speech is next: it has had 0.48 × its share. 41 jobs wait.", "pools"), poolPage())},
		{"nodes", NodesPage(shell("Nodes", "11 of 12 nodes are up; n8 has been silent for 6 min.", "nodes"), Nodes{Grids: []NodeGrid{grid()}, Rows: []NodeRow{{3, "n3", 1, "h100", "healthy", 8, 8, When{"2 s ago", "x"}, ""}, {8, "n8", 1, "h100", "lost", 8, 0, When{"6 min ago", "x"}, "4 attempts ended at 14:14 and were credited"}}, Enrol: &Enrol{Form: Form{Key: "k"}, Pools: pools, Token: "tren_abc", Command: "tranche agent --server http://localhost:8080 --token tren_abc"}})},
		{"node", NodePage(shell("n3", "8 of 8 devices are occupied; it is empty at 18:40 at the latest if drained now.", "nodes"), nodePage())},
	}
}

func poolDemand() PoolDemand {
	return PoolDemand{1, "h100", "12.5 Gbit/s of network, 0.5 cores that move data", "200 Gbit/s of network, 16 cores that move data", Form{Key: "k"}}
}

func setUpPages() []page {
	groups := []Option{{"2", "Vision"}, {"7", "Vision / Segmentation"}}
	roles := []Option{{"researcher", "researcher"}, {"pi", "PI"}, {"manager", "manager"}}
	return []page{
		{"periods", PeriodsPage(shell("Periods", "2026-Q4 is open until 31 December.", "periods"), Periods{Form{Key: "k"}, "Europe/Berlin", []PeriodRow{{1, "2026-Q4", "1 October 2026", "31 December 2026", "95 000 on h100", "open"}}, []PeriodSupply{{1, "h100", "201370", "96 devices × 2 208 h × 95 %"}}})},
		{"admin-pools", AdminPoolsPage(shell("Pools set up", "1 pool.", "admin-pools"), AdminPools{Form{Key: "k"}, []PoolRow{poolRow()}, []PoolDemand{poolDemand()}})},
		{"pool-demand", PoolDemandPage(shell("What jobs of h100 usually need", "", "admin-pools"), poolDemand())},
		{"groups", GroupsPage(shell("Groups set up", "4 programs, 3 projects.", "groups"), Groups{Form{Key: "k"}, groups, treeRows()})},
		{"people", PeoplePage(shell("People", "3 people hold roles in Vision and below.", "people"), People{
			Group: "Vision", GroupID: 2, Form: Form{Key: "k"}, Grant: &Form{Key: "g"}, People: []Option{{"1", "Ada Byron"}}, Groups: groups, Roles: roles, GrantRoles: roles, GrantGroups: groups,
			Rows:    []PersonRow{{1, "Ada Byron", "ada@example.org", "pi", "PI", 7, "Segmentation", When{}, "invite", When{"2 min ago", "x"}, true}},
			Asks:    []JoinRow{{5, "Alan Turing", "Segmentation", "I would like to help with the decoder.", When{"1 h ago", "x"}}},
			Invites: []InviteRow{{"mary@example.org", "Tracking", "researcher", When{"1 day ago", "x"}, "open until 7 December", "http://localhost:8080/invite/abc"}},
		})},
		{"tokens", TokensPage(shell("API tokens", "1 token is valid.", "tokens"), Tokens{Form{Key: "k"}, groups, "trn_4f1c0a", []TokenRow{{1, "laptop", "Segmentation", When{"1 day ago", "x"}, When{"in 89 days", "x"}, When{}, h(100), "valid", "k1"}}})},
		{"export", ExportPage(shell("Charges", "1\u202f204 charges between 1 October and 30 November, 9\u202f070 GPU-h.", "export"), Export{From: "2026-10-01", To: "2026-11-30", Zone: "Europe/Berlin", Groups: groups, Group: "2", Rows: 1204, Total: h(9070), URL: "/export/charges.csv?from=2026-10-01&to=2026-11-30", Preview: []ExportLine{{"2026-11-30 14:20:01 CET", "Segmentation", "h100", "seg-vit-l-finetune", "charge", h(16), "charge:attempt:881:0ms:3600000ms"}}})},
		{"audit", AuditPage(shell("Audit", "Everything people did, newest first.", "audit"), Audit{Verbs: []Option{{"", "any"}, {"award", "award"}}, Rows: []AuditRow{{1, When{"1 h ago", "x"}, "Grace Hopper", "127.0.0.1", "award", "Request 12", "/requests/12", "{\"state\":\"submitted\"}", "{\"state\":\"awarded\"}"}}})},
		{"verify", VerifyPage(shell("Verify", "The books differ from what was sealed in 1 entry.", "verify"), Verify{Ran: true, At: When{"just now", "x"}, Took: "0.8 s", Facts: []Fact{{Name: "Entries", Value: "10 412", ID: "entries"}, {Name: "Sum of all accounts", Value: "0", ID: "sum"}}, Faults: []VerifyFault{{"award:request:12", "2", "hash differs"}}, Command: "tranched verify", Key: "k"})},
		{"refusal", ErrorPage(shell("Not yours to see", "You may not see the budget of Biology.", ""), RefusalPage{Detail: "Its PI and the managers of Lab can. Ask Rosalind Franklin.", Facts: []Fact{{Name: "Needs", Value: "a role at Lab / Biology"}}, Next: []Link{{"Home", "/"}, {"See the tree", "/tree"}}, Ref: "r-8812"})},
	}
}
