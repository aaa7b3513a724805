package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/store"
)

// founder is the first administrator while the institute is set up: beside the
// role that is being given, every role at the root, for one call.
func founder(person ledger.PersonID, name string, root ledger.GroupID, path string) ledger.Actor {
	a := ledger.Actor{Person: person, Name: name}
	for _, role := range ledger.Roles() {
		a.Grants = append(a.Grants, ledger.Grant{Role: role, Group: root, Path: path})
	}
	return a
}

// seedPerson is one person of the example institute.
type seedPerson struct {
	Subject, Name string
	Role          ledger.Role // "" = none
	At            string      // path
	Label, Can    string      // for the button that signs in as them; "" = no button
}

// seedGroup is one group of the example institute, parents first.
type seedGroup struct {
	Path, Title, CostCentre string
	Project                 bool
}

// seedAward is what a project asked for and was given.
type seedAward struct {
	Author, Reviewer, Project, Purpose, Outcome string
	Asked, Awarded                              map[string]int64 // GPU-hours by pool; nothing awarded = still waiting
}

const (
	seedRoot = "/helios"
	seedZone = "Europe/Paris"
	seedMail = "@helios.example"
)

func seedGroups() []seedGroup {
	return []seedGroup{
		{Path: "/helios/vision", Title: "Vision and Robotics"},
		{Path: "/helios/vision/wildlife", Title: "Wildlife from Camera Traps", CostCentre: "4711-20", Project: true},
		{Path: "/helios/vision/hands", Title: "Dexterous Hands", CostCentre: "4711-31", Project: true},
		{Path: "/helios/language", Title: "Language"},
		{Path: "/helios/language/lowres", Title: "Low-Resource Translation", CostCentre: "4720-02", Project: true},
		{Path: "/helios/language/dialogue", Title: "Clinical Dialogue", CostCentre: "4720-07", Project: true},
		{Path: "/helios/earth", Title: "Earth and Climate"},
		{Path: "/helios/earth/monsoon", Title: "Monsoon Forecasts", CostCentre: "00815", Project: true},
	}
}

func seedPeople() []seedPerson {
	return []seedPerson{
		{"ingrid", "Ingrid Sørensen", ledger.Admin, "/helios", "admin of the institute", "opens periods, splits the root's pot, names managers"},
		{"mateo", "Mateo Ruiz", ledger.Manager, "/helios/vision", "manager of Vision and Robotics", "splits Vision's pot and answers its requests"},
		{"ana", "Ana Petrova", ledger.PI, "/helios/vision/wildlife", "PI of Wildlife from Camera Traps", "asks for GPU-hours and invites members"},
		{"kofi", "Kofi Mensah", ledger.Researcher, "/helios/vision/wildlife", "researcher in Wildlife from Camera Traps", "submits jobs and follows them"},
		{"claire", "Claire Dubois", ledger.Finance, "/helios", "finance", "reads and exports charges"},
		{"tomas", "Tomás Novák", ledger.Operator, "/helios", "operator", "drains nodes and stops jobs"},
		{"lena", "Lena Fischer", ledger.Manager, "/helios/language", "", ""},
		{"samir", "Samir Haddad", ledger.Manager, "/helios/earth", "", ""},
		{"yuki", "Yuki Tanaka", ledger.PI, "/helios/vision/hands", "", ""},
		{"amara", "Amara Okafor", ledger.PI, "/helios/language/lowres", "", ""},
		{"jonas", "Jonas Lindqvist", ledger.PI, "/helios/language/dialogue", "", ""},
		{"priya", "Priya Raman", ledger.PI, "/helios/earth/monsoon", "", ""},
	}
}

func seedPools() []store.Pool {
	return []store.Pool{
		{Name: "h100", GPUModel: "NVIDIA H100 80GB", RatePPM: 1_000_000, NodeGPUs: nodeDevices, NodeCPUMilli: nodeCPUMilli, NodeRAMMiB: nodeRAMMiB, NodeHBMMiB: 81_920, Demand: seedDemand()},
		{Name: "a100", GPUModel: "NVIDIA A100 40GB", RatePPM: 500_000, NodeGPUs: nodeDevices, NodeCPUMilli: nodeCPUMilli, NodeRAMMiB: nodeRAMMiB, NodeHBMMiB: 40_960, Demand: seedDemand()},
	}
}

// seedDemand is what a job of the demo needs per GPU: half of what a node could feed
// it with.
func seedDemand() store.Demand { return store.Demand{NetMbps: 12_500, StoMbps: 1000, IOCMilli: 1000} }

func seedNodes() []simNode {
	var nodes []simNode
	for _, p := range seedPools() {
		count := map[string]int{"h100": 4, "a100": 2}[p.Name]
		for i := range count {
			nodes = append(nodes, simNode{Name: fmt.Sprintf("%s-%02d", p.Name, i+1), Pool: p.Name, Model: p.GPUModel, HBMMiB: p.NodeHBMMiB})
		}
	}
	nodes[len(nodes)-1].StorageHook = seedRebuild
	return nodes
}

// seedRebuild is the storage of one node of the example: for eight minutes of every
// half hour it does as if it rebuilt a disk.
const seedRebuild = `if [ $(( $(date +%s) / 60 % 30 )) -lt 8 ]; then echo 35; else echo 97; fi`

func seedAwards() []seedAward {
	return []seedAward{
		{
			"ana", "mateo", "/helios/vision/wildlife", "Train a detector for 400 species on twelve years of camera-trap images.", "An open model and its data sheet by December.",
			map[string]int64{"h100": 2400, "a100": 600},
			map[string]int64{"h100": 1800, "a100": 600},
		},
		{
			"yuki", "mateo", "/helios/vision/hands", "Policies for a five-finger hand, trained in simulation.", "A grasping policy that transfers without retraining.",
			map[string]int64{"h100": 3600},
			map[string]int64{"h100": 3000},
		},
		{
			"amara", "lena", "/helios/language/lowres", "Translation for 40 languages with under a million sentences each.", "Checkpoints and an evaluation set for each language.",
			map[string]int64{"h100": 5200, "a100": 900},
			map[string]int64{"h100": 4400, "a100": 900},
		},
		{
			"jonas", "lena", "/helios/language/dialogue", "Summaries of clinical conversations that name their sources.", "A study with two hospitals.",
			map[string]int64{"h100": 1500},
			map[string]int64{"h100": 1500},
		},
		{
			"priya", "samir", "/helios/earth/monsoon", "Ensemble forecasts of monsoon onset, 32 members.", "Weekly forecasts through the season.",
			map[string]int64{"h100": 2800},
			map[string]int64{"h100": 2600},
		},
		{
			"ana", "mateo", "/helios/vision/wildlife", "Fine-tune on the night images of the new cameras in the Vosges.", "A night model by the end of the period.",
			map[string]int64{"h100": 600},
			nil,
		},
	}
}

// seedTraining prints as a training does, one step in two real seconds, keeps its
// step in the job's scratch folder and goes on from there when it was preempted.
func seedTraining(steps int) string {
	return fmt.Sprintf(`f="$TRANCHE_SCRATCH/step"; s=$(cat "$f" 2>/dev/null || echo 1)
[ "$s" = 1 ] || echo "going on from step $s"
while [ "$s" -le %d ]; do echo "step $s  loss 0.$((900 - s))"; s=$((s + 1)); echo "$s" >"$f"; sleep 2; done`, steps)
}

// seedJob is work that the demo begins with: copies of one submission, numbered.
type seedJob struct {
	who    string
	copies int
	job    store.Submission
}

// seedJobs asks for about four times the fleet, so that a first look finds jobs
// that run, wait, and are preempted once protections end: for the better part of
// a real hour at the demo's usual speed.
func seedJobs() []seedJob {
	const wildlife, hands, lowres, dialogue, monsoon = "/helios/vision/wildlife", "/helios/vision/hands", "/helios/language/lowres", "/helios/language/dialogue", "/helios/earth/monsoon"
	return []seedJob{
		{"yuki", 4, store.Submission{Preset: "train", Name: "hand policy, seed", Project: hands, Pool: "h100", Nodes: 1, GPUs: 8, Command: seedTraining(400)}},
		{"kofi", 1, store.Submission{Preset: "debug", Name: "read one shard", Project: wildlife, Pool: "a100", Nodes: 1, GPUs: 1, Command: `echo "reading shard 17"; sleep 20; echo "8192 images, 3 broken"`}},
		{"amara", 3, store.Submission{Preset: "train", Name: "yoruba–english, fold", Project: lowres, Pool: "h100", Nodes: 1, GPUs: 8, Command: seedTraining(300)}},
		{"amara", 1, store.Submission{Preset: "train", Name: "40 languages, two nodes", Project: lowres, Pool: "h100", Nodes: 2, GPUs: 8, Command: seedTraining(90)}},
		{"kofi", 5, store.Submission{Preset: "train", Name: "detector, fold", Project: wildlife, Pool: "h100", Nodes: 1, GPUs: 4, Command: seedTraining(240)}},
		{"jonas", 3, store.Submission{Preset: "free", Name: "tokenise archive, part", Project: dialogue, Pool: "h100", Nodes: 1, GPUs: 4, Command: seedTraining(300)}},
		{"jonas", 2, store.Submission{Preset: "train", Name: "summaries, hospital", Project: dialogue, Pool: "a100", Nodes: 1, GPUs: 2, Command: seedTraining(500)}},
		{"priya", 4, store.Submission{Preset: "long", Name: "ensemble member", Project: monsoon, Pool: "h100", Nodes: 1, GPUs: 4, Command: seedTraining(270)}},
	}
}

// seeding is an institute being filled; every command has a key of its own, so a
// seeding that was cut short goes on where it stopped.
type seeding struct {
	s      *store.Store
	issuer string
	actor  ledger.Actor // founder
	groups map[string]ledger.GroupID
	people map[string]ledger.PersonID
	pools  map[string]ledger.PoolID
	period ledger.PeriodID
}

func (d *seeding) cmd(key string) store.Command {
	return store.Command{Actor: d.actor, Key: "seed:" + key, Remote: "setup"}
}

// as is a command of one of the people.
func (d *seeding) as(ctx context.Context, who, key string) (store.Command, error) {
	actor, err := d.s.Actor(ctx, d.people[who])
	return store.Command{Actor: actor, Key: "seed:" + key, Remote: "setup"}, err
}

// found makes the root and its first administrator.
func (d *seeding) found(ctx context.Context, slug, title string, first seedPerson) error {
	d.groups, d.people, d.pools = map[string]ledger.GroupID{}, map[string]ledger.PersonID{}, map[string]ledger.PoolID{}
	root, err := d.s.FoundTree(ctx, slug, title)
	if err != nil {
		return err
	}
	d.groups["/"+slug] = root
	id, err := d.signIn(ctx, first)
	if err != nil {
		return err
	}
	d.actor = founder(id, first.Name, root, "/"+slug)
	return d.person(ctx, first)
}

func (d *seeding) signIn(ctx context.Context, p seedPerson) (ledger.PersonID, error) {
	return d.s.SignIn(ctx, store.Identity{
		Issuer: d.issuer, Subject: p.Subject, Name: p.Name, Username: p.Subject,
		Email: p.Subject + seedMail, Remote: "setup",
	})
}

// person makes one person known and gives the role.
func (d *seeding) person(ctx context.Context, p seedPerson) error {
	id, err := d.signIn(ctx, p)
	if err != nil {
		return err
	}
	d.people[p.Subject] = id
	if p.Role == "" {
		return nil
	}
	return d.s.GrantRole(ctx, d.cmd("grant:"+d.issuer+":"+p.Subject), store.RoleInput{Person: id, Group: d.groups[p.At], Role: p.Role})
}

// supply is one pool's part in a period.
type supply struct {
	pool            string
	devices         int64
	availabilityPPM int64
}

func (d *seeding) openPeriod(ctx context.Context, in store.PeriodInput, supplies []supply) (err error) {
	for _, y := range supplies {
		in.Supplies = append(in.Supplies, store.SupplyInput{Pool: d.pools[y.pool], Devices: y.devices, AvailabilityPPM: y.availabilityPPM})
	}
	d.period, err = d.s.OpenPeriod(ctx, d.cmd("period:"+in.Name), in)
	return err
}

// split gives each child its ppm of a program's pot.
func (d *seeding) split(ctx context.Context, program, pool string, ppm map[string]int64, order []string) error {
	in := store.SplitCommand{Program: d.groups[program], Pool: d.pools[pool], Period: d.period}
	for _, child := range order {
		in.Wants = append(in.Wants, store.SplitWant{Child: d.groups[child], ByPPM: true, PPM: ppm[child]})
	}
	_, err := d.s.SplitPot(ctx, d.cmd("split:"+program+":"+pool), in)
	return err
}

// award lets the author ask and the reviewer answer; without an answer the
// request waits.
func (d *seeding) award(ctx context.Context, n int, a seedAward) error {
	lines := func(hours map[string]int64) (out []ledger.RequestLine) {
		for _, pool := range []string{"h100", "a100"} {
			if hours[pool] > 0 {
				out = append(out, ledger.RequestLine{Pool: d.pools[pool], Asked: ledger.Amount(hours[pool]) * ledger.GPUHour})
			}
		}
		return out
	}
	cmd, err := d.as(ctx, a.Author, fmt.Sprintf("request:%d", n))
	if err != nil {
		return err
	}
	id, err := d.s.SaveRequest(ctx, cmd, store.RequestInput{
		Project: d.groups[a.Project], Period: d.period, Purpose: a.Purpose,
		Outcome: a.Outcome, Lines: lines(a.Asked), Submit: true,
	})
	if err != nil || a.Awarded == nil {
		return err
	}
	decision := ledger.Decision{Action: ledger.Award, Version: 1, Reason: "Within what the program has."}
	for _, l := range lines(a.Awarded) {
		decision.Amounts = append(decision.Amounts, ledger.PoolAmount{Pool: l.Pool, Amount: l.Asked})
	}
	if cmd, err = d.as(ctx, a.Reviewer, fmt.Sprintf("review:%d", n)); err != nil {
		return err
	}
	_, err = d.s.ReviewRequest(ctx, cmd, store.ReviewCommand{Request: id, Decision: decision})
	return err
}

// seedInstitute fills a database with the example institute; what an earlier
// call did is found again by its keys.
func seedInstitute(ctx context.Context, s *store.Store, issuer string) (*seeding, error) {
	d := &seeding{s: s, issuer: issuer}
	people := seedPeople()
	if err := d.found(ctx, seedRoot[1:], "Helios Institute", people[0]); err != nil {
		return nil, fmt.Errorf("seed the root: %w", err)
	}
	for _, g := range seedGroups() {
		slash := strings.LastIndexByte(g.Path, '/')
		id, err := s.CreateGroup(ctx, d.cmd("group:"+g.Path), store.GroupInput{
			Parent: d.groups[g.Path[:slash]], Project: g.Project,
			Title: g.Title, Slug: g.Path[slash+1:], CostCentre: g.CostCentre,
		})
		if err != nil {
			return nil, fmt.Errorf("seed %s: %w", g.Path, err)
		}
		d.groups[g.Path] = id
	}
	for _, p := range people[1:] {
		if err := d.person(ctx, p); err != nil {
			return nil, fmt.Errorf("seed %s: %w", p.Name, err)
		}
	}
	return d, d.fill(ctx)
}

// fill gives the seeded groups pools, a period, awards and jobs.
func (d *seeding) fill(ctx context.Context) error {
	for _, p := range seedPools() {
		id, err := d.s.CreatePool(ctx, d.cmd("pool:"+p.Name), p)
		if err != nil {
			return fmt.Errorf("seed pool %s: %w", p.Name, err)
		}
		d.pools[p.Name] = id
	}
	name, first, last, err := quarter(d.s.Now(), seedZone)
	if err != nil {
		return err
	}
	err = d.openPeriod(ctx, store.PeriodInput{Name: name, First: first, Last: last, Zone: seedZone},
		[]supply{{"h100", 32, 950_000}, {"a100", 16, 950_000}})
	if err != nil {
		return fmt.Errorf("seed period: %w", err)
	}
	programs := []string{"/helios/vision", "/helios/language", "/helios/earth"}
	for _, pool := range []string{"h100", "a100"} {
		err := d.split(ctx, seedRoot, pool, map[string]int64{programs[0]: 400_000, programs[1]: 350_000, programs[2]: 250_000}, programs)
		if err != nil {
			return fmt.Errorf("seed split: %w", err)
		}
	}
	for n, a := range seedAwards() {
		if err := d.award(ctx, n, a); err != nil {
			return fmt.Errorf("seed request of %s: %w", a.Author, err)
		}
	}
	return nil
}

// submit hands the example's jobs in, the first copy of each before the second; the
// pools know from the start what they get.
func (d *seeding) submit(ctx context.Context) error {
	jobs := seedJobs()
	for copied := 1; ; copied++ {
		more := false
		for n, j := range jobs {
			if copied > j.copies {
				continue
			}
			more = true
			cmd, err := d.as(ctx, j.who, fmt.Sprintf("job:%d:%d", n, copied))
			if j.copies > 1 {
				j.job.Name = fmt.Sprintf("%s %d", j.job.Name, copied)
			}
			if err == nil {
				_, err = d.s.SubmitJob(ctx, cmd, j.job)
			}
			if err != nil {
				return fmt.Errorf("seed job of %s: %w", j.who, err)
			}
		}
		if !more {
			_, err := d.s.LearnMixes(ctx)
			return err
		}
	}
}

// quarter is the calendar quarter that holds an instant, in the accounting zone.
func quarter(now ledger.Instant, zoneName string) (name string, first, last ledger.Instant, err error) {
	zone, err := time.LoadLocation(zoneName)
	if err != nil {
		return "", 0, 0, err
	}
	t := now.Time().In(zone)
	q := (int(t.Month()) - 1) / 3
	at := func(q int) ledger.Instant {
		return ledger.At(time.Date(t.Year(), time.Month(q*3+1), 1, 0, 0, 0, 0, zone))
	}
	return fmt.Sprintf("%d-Q%d", t.Year(), q+1), at(q), at(q + 1), nil
}
