package web

import (
	"cmp"
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/api"
)

// nodeOperations are the calls about nodes.
func (s *server) nodeOperations(page []parameter) []operation {
	const get, post = http.MethodGet, http.MethodPost
	return []operation{
		{get, api.PathNodes, ledger.SeeOpen, signedIn, "nodes", "Nodes with the jobs on them.", append([]parameter{{"pool", "string", "name"}}, page...), nil, api.NodeList{}, s.apiNodes},
		{get, api.PathNode, ledger.SeeOpen, signedIn, "node", "One node: its health checks, maintenance and repair, who is on it, what happened to it.", nil, nil, api.Node{}, s.apiNode},
		{post, api.PathDrain, ledger.NodeWrite, atRoot, "drain", "Keep new work off a node; what runs leaves as protections end, or at once and credited.", nil, api.Drain{}, api.Node{}, s.apiDrain},
		{post, api.PathUndrain, ledger.NodeWrite, atRoot, "undrain", "Let a node take work again.", nil, api.Command{}, api.Node{}, s.apiUndrain},
		{post, api.PathMaintain, ledger.NodeWrite, atRoot, "maintain", "Plan a node's maintenance, so that nothing is protected into it; or take it back.", nil, api.Maintain{}, api.Node{}, s.apiMaintain},
		{post, api.PathEnrolTokens, ledger.NodeEnrol, atRoot, "enrol", "Make a token that brings nodes into a pool. It is given this once.", nil, api.NewEnrolToken{}, api.EnrolToken{}, s.apiEnrolToken},
	}
}

// wireNode is a node in a list.
func (s *server) wireNode(n *store.NodeLine) api.Node {
	node := api.Node{
		ID: n.ID, Name: n.Name, Pool: n.PoolName, Health: healthText(n), Note: note(n), Devices: len(n.Devices), Occupied: occupied(n), CPUMilli: n.CPUMilli,
		RAMMiB: n.RAMMiB, Heartbeat: timeOf(n.Heartbeat), Jobs: []ledger.JobID{},
	}
	for _, h := range n.Holders {
		if h.Job.ID == scheduler.HiddenJob {
			continue // it counts among what is occupied alone
		}
		node.Jobs = append(node.Jobs, h.Job.ID)
	}
	wireFlow(&node, n)
	if n.Drain != "" {
		node.Drain = &api.NodeDrain{Mode: n.Drain, Why: n.DrainWhy, By: cmp.Or(n.DrainBy, byChecks), Since: n.DrainSince.Time()}
	}
	if s.isMaintained(n) {
		node.Maintenance = &api.NodeMaintenance{From: n.MaintFrom.Time(), Until: timeOf(n.MaintUntil), Why: n.MaintWhy}
	}
	return node
}

// wireNodeDetail is one node with what its page shows.
func (s *server) wireNodeDetail(d *store.NodeDetail) api.Node {
	node := s.wireNode(&d.NodeLine)
	node.Memory = wireHeadroom(d)
	node.Version, node.Topology, node.Enrolled = d.Version, d.Topology, timeOf(d.Enrolled)
	if d.CheckLast != scheduler.CheckNone {
		node.Check = &api.NodeCheck{Last: string(d.CheckLast), Why: d.CheckWhy, Degraded: timeOf(d.Degraded)}
	}
	if d.RepairAsked != 0 {
		node.Repair = &api.NodeRepair{Ordered: d.RepairAsked.Time(), Done: timeOf(d.RepairDone), Result: d.Repaired}
	}
	for i := range d.Holders {
		h := &d.Holders[i]
		on := api.NodeJob{Job: max(0, h.Job.ID), Name: h.Job.Name, Project: pathText(&h.Job), User: h.Job.Owner, State: h.Job.State, Devices: h.Devices}
		if a := h.Job.Last; a != nil && a.Funded && a.MinMs > 0 {
			on.Funded, on.ProtectedUntil = true, timeOf(a.ProtectedUntil)
		}
		node.Holders = append(node.Holders, on)
	}
	for i := range d.Events {
		e := s.nodeEvent(&d.Events[i])
		node.Events = append(node.Events, api.NodeEvent{At: d.Events[i].At.Time(), By: e.By, What: e.Verb, Why: e.Words})
	}
	return node
}

func (s *server) apiNodes(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := pageOf(r)
	if err != nil {
		return err
	}
	page, err := s.readNodes(r, store.NodeQuery{Pool: r.URL.Query().Get("pool"), After: ledger.NodeID(after), Limit: limit})
	if err != nil {
		return err
	}
	out := api.NodeList{Nodes: make([]api.Node, len(page.Nodes))}
	if page.More {
		out.Next = idText(page.Nodes[len(page.Nodes)-1].ID)
	}
	for i := range page.Nodes {
		out.Nodes[i] = s.wireNode(&page.Nodes[i])
	}
	return writeJSON(w, http.StatusOK, out)
}

// namedNode finds the node that the address names.
func (s *server) namedNode(r *http.Request) (ledger.NodeID, error) {
	return s.store.NodeID(r.Context(), chi.URLParam(r, "node"))
}

func (s *server) answerNode(w http.ResponseWriter, r *http.Request, id ledger.NodeID) error {
	d, err := s.readNode(r, id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.wireNodeDetail(&d))
}

func (s *server) apiNode(w http.ResponseWriter, r *http.Request) error {
	id, err := s.namedNode(r)
	if err != nil {
		return err
	}
	return s.answerNode(w, r, id)
}

// nodeCommand carries out a command on the node that the address names.
func (s *server) nodeCommand(w http.ResponseWriter, r *http.Request, key string, do func(context.Context, store.Command, ledger.NodeID) error) error {
	id, err := s.namedNode(r)
	if err != nil {
		return err
	}
	if err := do(r.Context(), s.apiCommand(r, key), id); err != nil {
		return err
	}
	return s.answerNode(w, r, id)
}

func (s *server) apiDrain(w http.ResponseWriter, r *http.Request) error {
	var in api.Drain
	if err := readBody(r, &in); err != nil {
		return err
	}
	return s.nodeCommand(w, r, in.Key, func(ctx context.Context, cmd store.Command, id ledger.NodeID) error {
		return refield(s.store.DrainNode(ctx, cmd, id, cmp.Or(in.Mode, api.DrainSoft), in.Why), "reason", "why")
	})
}

func (s *server) apiUndrain(w http.ResponseWriter, r *http.Request) error {
	var in api.Command
	if err := readBody(r, &in); err != nil {
		return err
	}
	return s.nodeCommand(w, r, in.Key, s.store.UndrainNode)
}

func (s *server) apiMaintain(w http.ResponseWriter, r *http.Request) error {
	var in api.Maintain
	if err := readBody(r, &in); err != nil {
		return err
	}
	var m store.Maintenance
	if !in.Clear {
		var err error
		if m, err = s.readMaintenance(in.From, in.Until, in.Why); err != nil {
			return err
		}
	} else if in.From+in.Until+in.Why != "" {
		return invalid("clear", "node.maintenance", "To take a maintenance back, give nothing else.")
	}
	return s.nodeCommand(w, r, in.Key, func(ctx context.Context, cmd store.Command, id ledger.NodeID) error {
		return s.store.PlanMaintenance(ctx, cmd, id, m)
	})
}

func (s *server) apiEnrolToken(w http.ResponseWriter, r *http.Request) error {
	var in api.NewEnrolToken
	if err := readBody(r, &in); err != nil {
		return err
	}
	cmd := s.apiCommand(r, in.Key)
	token := store.EnrolTokenInput{Pool: in.Pool, Hours: cmp.Or(in.Hours, 24), Uses: cmp.Or(in.Uses, 1), Secret: s.mint(cmd, "enrol")}
	if _, err := s.store.CreateEnrolToken(r.Context(), cmd, token); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.EnrolToken{
		Token: token.Secret, Pool: token.Pool, Hours: token.Hours, Uses: token.Uses, Command: s.agentLine(token.Secret),
	})
}
