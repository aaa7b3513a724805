package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tranche/web/api"
)

type nodesCommand struct {
	List     nodesListCommand     `cmd:"" default:"withargs" help:"List nodes with their health, what keeps work off them, and devices in use."`
	Show     nodesShowCommand     `cmd:"" help:"Show one node: who is on it, its health checks, maintenance and repair, what happened to it."`
	Drain    nodesDrainCommand    `cmd:"" help:"Keep new work off nodes; what runs leaves as protections end."`
	Undrain  nodesUndrainCommand  `cmd:"" help:"Let nodes take work again."`
	Maintain nodesMaintainCommand `cmd:"" help:"Plan maintenance of nodes, so that nothing is protected into it; or take it back."`
	Enrol    nodesEnrolCommand    `cmd:"" help:"Make a token that brings nodes into a pool; it is printed once."`
}

type nodesListCommand struct {
	Pool  string `help:"Only this pool."`
	Limit int    `help:"Nodes per page, at most 1000." default:"100"`
	After string `help:"Cursor of the next page, as the page before printed it."`
}

// Help adds examples.
func (nodesListCommand) Help() string {
	return `Examples:
  tranche nodes
  tranche nodes --pool h100
  tranche nodes --json | jq -r '.nodes[] | select(.health != "healthy") | .name'`
}

// Run prints one page of nodes.
func (c *nodesListCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.Nodes(ctx, c.Pool, c.After, c.Limit)
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		if len(got.Nodes) == 0 {
			p.line("No nodes here. Bring one in with: tranche nodes enrol --pool POOL")
			return
		}
		p.line("NODE\tPOOL\tHEALTH\tIN USE\tJOBS\tNOTE")
		for i := range got.Nodes {
			n := &got.Nodes[i]
			p.line("%s\t%s\t%s\t%d of %d\t%d\t%s", n.Name, n.Pool, n.Health, n.Occupied, n.Devices, len(n.Jobs), nodeNote(n))
		}
		if got.Next != "" {
			p.line("More: --after %s", got.Next)
		}
	})
}

// nodeNote says in few words what is the matter with a node.
func nodeNote(n *api.Node) string {
	if n.Maintenance == nil {
		return n.Note
	}
	text := "maintenance " + maintenance(n.Maintenance)
	if n.Note != "" {
		text = n.Note + "; " + text
	}
	return text
}

// maintenance writes when a node is worked on, and why.
func maintenance(m *api.NodeMaintenance) string {
	text := "from " + instant(m.From)
	if m.Until != nil {
		text += " to " + instant(*m.Until)
	}
	return text + ": " + m.Why
}

type nodesShowCommand struct {
	Node string `arg:"" help:"Name, or number."`
}

// Run prints one node.
func (c *nodesShowCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	n, err := client.Node(ctx, c.Node)
	if err != nil {
		return err
	}
	return t.print(n, func(p *page) { printNode(p, &n) })
}

func printNode(p *page, n *api.Node) {
	p.line("node %s\t%s", n.Name, n.Health)
	p.line("pool\t%s, node %d", n.Pool, n.ID)
	p.line("capacity\t%d devices, %d in use, %d mCPU, %d MiB", n.Devices, n.Occupied, n.CPUMilli, n.RAMMiB)
	if n.Topology != "" {
		p.line("place\t%s", n.Topology)
	}
	heard := "never"
	if n.Heartbeat != nil {
		heard = instant(*n.Heartbeat)
	}
	p.line("agent\t%s, heard of %s", n.Version, heard)
	if n.Note != "" && n.Drain == nil { // else the drain says it
		p.line("note\t%s", n.Note)
	}
	if n.Drain != nil {
		p.line("drain\t%s, since %s, by %s: %s", n.Drain.Mode, instant(n.Drain.Since), n.Drain.By, n.Drain.Why)
	}
	if n.Maintenance != nil {
		p.line("maintenance\t%s", maintenance(n.Maintenance))
	}
	if n.Check != nil {
		p.line("health check\t%s", joined(": ", n.Check.Last, n.Check.Why))
		if n.Check.Degraded != nil {
			p.line("degraded\tsince %s", instant(*n.Check.Degraded))
		}
	}
	printFlow(p, n)
	switch r := n.Repair; {
	case r != nil && r.Done != nil:
		p.line("repair hook\t%s: %s", instant(*r.Done), oneLine(r.Result))
	case r != nil:
		p.line("repair hook\tordered %s", instant(r.Ordered))
	}
	for i := range n.Holders {
		j := &n.Holders[i]
		money := "unfunded"
		if j.Funded {
			money = "funded"
		}
		if j.ProtectedUntil != nil {
			money += ", protected" + until(j.ProtectedUntil)
		}
		who := j.Project
		if j.User != "" {
			who += " of " + j.User
		}
		p.line("job %s\t%s, %s, %s, devices %s", jobNumber(j.Job), j.State, who, money, deviceList(j.Devices))
	}
	printMemory(p, n.Memory)
	if len(n.Events) > 0 {
		p.line("")
		p.line("What happened:")
	}
	for _, e := range n.Events {
		p.line("%s\t%s", instant(e.At), joined(": ", joined(" ", e.By, e.What), oneLine(e.Why)))
	}
}

// printFlow says what moves through a node and how its storage does.
func printFlow(p *page, n *api.Node) {
	rate := func(name, unit string, now *int64, offers int64) {
		switch {
		case now != nil:
			p.line("%s\t%d of %d %s now", name, *now, offers, unit)
		case offers > 0:
			p.line("%s\t%d %s offered, not measured", name, offers, unit)
		}
	}
	rate("network", "Mbit/s", n.NetNowMbps, n.NetMbps)
	rate("storage", "MB/s", n.StoNowMbps, n.StoMbps)
	st := n.Storage
	if st == nil {
		return
	}
	said := "nothing yet"
	if st.SaidPPM != nil {
		said = fmt.Sprintf("%d %%", (*st.SaidPPM+5_000)/10_000)
	}
	p.line("storage hook\tsaid %s; counts with %d %%", said, (st.CountsPPM+5_000)/10_000)
	if st.Degraded != nil {
		p.line("storage degraded\tsince %s", instant(*st.Degraded))
	}
	if st.Failed != "" {
		p.line("storage hook failed\t%s", oneLine(st.Failed))
	}
}

// printMemory lists the memory of the devices that somebody holds, in MiB.
func printMemory(p *page, memory []api.DeviceMemory) {
	for _, m := range memory {
		if m.Jobs == 0 {
			continue
		}
		next := "no readings yet"
		if m.ForecastMiB != nil {
			next = fmt.Sprintf("at most %d in 5 min", *m.ForecastMiB)
		}
		basis := "as declared"
		if m.Learnt {
			basis = "by what such jobs have used"
		}
		p.line("memory %d\t%d of %d MiB in use, %s, %d declared, %d set aside %s: headroom %d", m.Device, m.UsedMiB, m.TotalMiB, next, m.DeclaredMiB, m.ReservedMiB, basis, m.HeadroomMiB)
	}
}

// oneLine keeps a text of several lines in its row.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ⏎ ")
}

// joined puts the parts that are not empty together.
func joined(between string, parts ...string) string {
	var out []string
	for _, part := range parts {
		if part != "" {
			out = append(out, part)
		}
	}
	return strings.Join(out, between)
}

func deviceList(devices []int32) string {
	words := make([]string, len(devices))
	for i, d := range devices {
		words[i] = strconv.Itoa(int(d))
	}
	return strings.Join(words, " ")
}

type nodesDrainCommand struct {
	Nodes []string `arg:"" name:"node" help:"Names, or numbers."`
	Hard  bool     `help:"Stop what runs now; what was charged since the last checkpoints is credited."`
	Why   string   `help:"Why; users of the node read it." required:""`
}

// Help adds examples.
func (nodesDrainCommand) Help() string {
	return `Examples:
  tranche nodes drain h100-07 --why "fan 3 fails"
  tranche nodes drain h100-0{1..8} --hard --why "water in rack 7"

Every node gets its own line; exit 1 says that at least one was refused.`
}

// Run drains the nodes.
func (c *nodesDrainCommand) Run(ctx context.Context, t *terminal) error {
	mode := api.DrainSoft
	if c.Hard {
		mode = api.DrainHard
	}
	return t.eachNode(c.Nodes, func(client *api.Client, node string) (api.Node, error) {
		return client.DrainNode(ctx, node, api.Drain{Key: newKey(), Mode: mode, Why: c.Why})
	})
}

type nodesUndrainCommand struct {
	Nodes []string `arg:"" name:"node" help:"Names, or numbers."`
}

// Run gives the nodes back.
func (c *nodesUndrainCommand) Run(ctx context.Context, t *terminal) error {
	return t.eachNode(c.Nodes, func(client *api.Client, node string) (api.Node, error) {
		return client.UndrainNode(ctx, node, newKey())
	})
}

type nodesMaintainCommand struct {
	Nodes []string `arg:"" name:"node" help:"Names, or numbers."`
	From  string   `help:"When it begins, such as 2026-12-03T08:00 in the accounting zone, or with an offset: 2026-12-03T07:00:00Z." placeholder:"INSTANT"`
	Until string   `help:"When it ends; without it: when you take it back." placeholder:"INSTANT"`
	Why   string   `help:"Why; users of the node read it."`
	Clear bool     `help:"Take the planned maintenance back."`
}

// Help adds examples.
func (nodesMaintainCommand) Help() string {
	return `Examples:
  tranche nodes maintain h100-07 --from 2026-12-03T08:00 --until 2026-12-03T12:00 --why "new firmware"
  tranche nodes maintain h100-0{1..8} --from 2026-12-03T08:00 --why "rack 7 moves"
  tranche nodes maintain h100-07 --clear

A new plan replaces the one before.`
}

// Run plans, moves or takes back.
func (c *nodesMaintainCommand) Run(ctx context.Context, t *terminal) error {
	switch {
	case c.Clear && c.From+c.Until+c.Why != "":
		return &usageError{"--clear takes a maintenance back; give nothing else with it"}
	case !c.Clear && (c.From == "" || c.Why == ""):
		return &usageError{"say when it begins and why: --from 2026-12-03T08:00 --why TEXT; or --clear"}
	}
	return t.eachNode(c.Nodes, func(client *api.Client, node string) (api.Node, error) {
		return client.MaintainNode(ctx, node, api.Maintain{Key: newKey(), From: c.From, Until: c.Until, Why: c.Why, Clear: c.Clear})
	})
}

// eachNode sends one command per node and says for each what it led to. A refused
// one does not keep the others from being sent; its refusal names the node.
func (t *terminal) eachNode(nodes []string, send func(*api.Client, string) (api.Node, error)) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	var refused []error
	for _, name := range nodes {
		n, err := send(client, name)
		if err == nil {
			err = t.print(n, func(p *page) { p.line("%s", nodeOutcome(&n)) })
		}
		var p *api.Problem
		if errors.As(err, &p) {
			facts := map[string]string{"node": name}
			for k, v := range p.Facts {
				facts[k] = v
			}
			p.Facts = facts
		}
		if err != nil {
			refused = append(refused, err)
		}
	}
	return errors.Join(refused...)
}

// nodeOutcome says in a line what state a node is in and when it will be empty.
func nodeOutcome(n *api.Node) string {
	text := n.Name + " " + n.Health
	if n.Health == "healthy" {
		text += ", takes work"
	}
	if note := nodeNote(n); note != "" {
		text += ": " + note
	}
	switch {
	case n.Drain == nil && n.Health != "healthy":
		return text + "; nothing new starts"
	case n.Drain == nil:
		return text
	}
	if len(n.Holders) == 0 {
		return text + "; it is empty"
	}
	jobs := "1 job"
	if len(n.Holders) > 1 {
		jobs = fmt.Sprintf("%d jobs", len(n.Holders))
	}
	text += "; " + jobs + " on it"
	var last time.Time
	for _, j := range n.Holders {
		if j.ProtectedUntil != nil && j.ProtectedUntil.After(last) {
			last = *j.ProtectedUntil
		}
	}
	if n.Drain.Mode == api.DrainSoft && !last.IsZero() {
		text += ", the last protected until " + instant(last)
	}
	return text
}

type nodesEnrolCommand struct {
	Pool  string `help:"Pool that the nodes join." required:""`
	Hours int64  `help:"How long the token is good for, at most 744 (31 days)." default:"24"`
	Uses  int    `help:"For how many nodes." default:"1"`
}

// Help adds examples.
func (nodesEnrolCommand) Help() string {
	return `Examples:
  tranche nodes enrol --pool h100
  tranche nodes enrol --pool h100 --uses 8 --json | jq -r .token > enrol

The token is printed this once. Keep it in a file that only root reads, and see
tranche agent --help.`
}

// Run makes the token.
func (c *nodesEnrolCommand) Run(ctx context.Context, t *terminal) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	got, err := client.NewEnrolToken(ctx, api.NewEnrolToken{Key: newKey(), Pool: c.Pool, Hours: c.Hours, Uses: c.Uses})
	if err != nil {
		return err
	}
	return t.print(got, func(p *page) {
		p.line("%s", got.Token)
		nodes := "one node"
		if got.Uses > 1 {
			nodes = fmt.Sprintf("%d nodes", got.Uses)
		}
		p.line("Good for %s of pool %s, for %d h; it is not shown again. Start on the machine:", nodes, got.Pool, got.Hours)
		p.line("  %s", got.Command)
	})
}
