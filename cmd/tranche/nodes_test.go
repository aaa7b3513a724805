package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/web/api"
)

func TestNodesPages(t *testing.T) {
	at := time.Date(2026, 12, 3, 7, 0, 0, 0, time.UTC)
	later := at.Add(4 * time.Hour)
	n := api.Node{
		ID: 7, Name: "h100-07", Pool: "h100", Health: "draining", Note: "soft drain by its health checks: slow disk", Devices: 8, Occupied: 4, Jobs: []ledger.JobID{12},
		Heartbeat: &at, Version: "1.2", Topology: "hall1/rack7", Drain: &api.NodeDrain{Mode: api.DrainSoft, Why: "slow disk", By: "its health checks", Since: at},
		Maintenance: &api.NodeMaintenance{From: at, Until: &later, Why: "new firmware"}, Check: &api.NodeCheck{Last: "degraded", Why: "slow disk", Degraded: &at},
		NetMbps: 50_000, StoMbps: 16_000, StoNowMbps: new(int64(900)), Storage: &api.NodeStorage{SaidPPM: new(int64(350_000)), Failed: "no such pool", Degraded: &at, CountsPPM: 480_000},
		Memory:  []api.DeviceMemory{{Device: 0, TotalMiB: 81_920, UsedMiB: 40_000, Jobs: 1, ForecastMiB: new(int64(45_000)), DeclaredMiB: 81_920, ReservedMiB: 60_000, HeadroomMiB: 20_000, Learnt: true}, {Device: 1, TotalMiB: 81_920}},
		Repair:  &api.NodeRepair{Ordered: at, Done: &later, Result: "exit 0\nticket 7"},
		Holders: []api.NodeJob{{Job: 12, Project: "/lab/a", User: "ada", State: "running", Devices: []int32{0, 1, 2, 3}, Funded: true, ProtectedUntil: &later}},
		Events:  []api.NodeEvent{{At: at, By: "Tomás Novák", What: "soft drain", Why: "fan 3 fails"}},
	}
	p := loggedIn(t, map[string][]any{
		"GET /api/v1/nodes":         {api.NodeList{Nodes: []api.Node{n}, Next: "7"}, api.NodeList{}},
		"GET /api/v1/nodes/h100-07": {n},
	})
	_, out, _ := tranche("", "nodes", "--pool", "h100")
	wantIn(t, out, "h100-07", "draining", "4 of 8", "slow disk; maintenance from 2026-12-03 07:00:00 UTC to 2026-12-03 11:00:00 UTC: new firmware", "More: --after 7")
	if q := p.calls[0].Query; q != "limit=100&pool=h100" {
		t.Errorf("query %q", q)
	}
	_, out, _ = tranche("", "nodes")
	wantIn(t, out, "tranche nodes enrol")
	_, out, _ = tranche("", "nodes", "show", "h100-07")
	wantIn(t, out, "node h100-07", "hall1/rack7", "soft, since 2026-12-03 07:00:00 UTC, by its health checks: slow disk", "degraded: slow disk", "exit 0 ⏎ ticket 7",
		"job 12", "running, /lab/a of ada, funded, protected until 2026-12-03 11:00:00 UTC, devices 0 1 2 3", "Tomás Novák soft drain: fan 3 fails", "new firmware",
		"50000 Mbit/s offered, not measured", "900 of 16000 MB/s now", "said 35 %; counts with 48 %", "no such pool",
		"40000 of 81920 MiB in use, at most 45000 in 5 min, 81920 declared, 60000 set aside by what such jobs have used: headroom 20000")
	if strings.Contains(out, "memory 1") {
		t.Errorf("a device that nobody holds is listed: %s", out)
	}
	_, out, _ = tranche("", "--json", "nodes", "show", "h100-07")
	var again api.Node
	if err := json.Unmarshal([]byte(out), &again); err != nil || again.Check.Last != "degraded" || len(again.Holders) != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// Each node of a rack gets its own line and its own key; every refusal is said
// and names its node.
func TestNodesAreCommandedTogether(t *testing.T) {
	until := time.Date(2026, 12, 3, 11, 0, 0, 0, time.UTC)
	drained := api.Node{Name: "n1", Health: "draining", Note: "soft drain by Tomás Novák: fan", Drain: &api.NodeDrain{Mode: api.DrainSoft}, Holders: []api.NodeJob{{Job: 1, ProtectedUntil: &until}, {Job: 2}}}
	empty := api.Node{Name: "n4", Health: "draining", Note: "soft drain by Tomás Novák: fan", Drain: &api.NodeDrain{Mode: api.DrainSoft}}
	missing := api.Problem{Status: 404, Detail: "There is no such node."}
	p := loggedIn(t, map[string][]any{
		"POST /api/v1/nodes/n1/drain":    {drained},
		"POST /api/v1/nodes/n2/drain":    {missing},
		"POST /api/v1/nodes/n3/drain":    {missing},
		"POST /api/v1/nodes/n4/drain":    {empty},
		"POST /api/v1/nodes/n1/undrain":  {api.Node{Name: "n1", Health: "healthy"}},
		"POST /api/v1/nodes/n5/undrain":  {api.Node{Name: "n5", Health: "degraded", Note: "its health checks say: slow disk"}},
		"POST /api/v1/nodes/n1/maintain": {api.Node{Name: "n1", Health: "healthy", Maintenance: &api.NodeMaintenance{From: until, Why: "firmware"}}},
	})
	code, out, errOut := tranche("", "nodes", "drain", "n1", "n2", "n3", "n4", "--hard", "--why", "fan")
	wantIn(t, out, "n1 draining: soft drain by Tomás Novák: fan; 2 jobs on it, the last protected until 2026-12-03 11:00:00 UTC", "n4 draining", "it is empty")
	wantIn(t, errOut, "There is no such node.", "node: n2", "node: n3")
	var first, last api.Drain
	_ = json.Unmarshal(p.calls[0].Body, &first)
	_ = json.Unmarshal(p.calls[3].Body, &last)
	if code != exitRefused || first.Mode != api.DrainHard || first.Why != "fan" || first.Key == "" || first.Key == last.Key {
		t.Errorf("exit %d, sent %+v and %+v", code, first, last)
	}
	if code, out, _ = tranche("", "nodes", "undrain", "n1"); code != exitOK || !strings.Contains(out, "n1 healthy, takes work") {
		t.Errorf("exit %d, %s", code, out)
	}
	_, out, _ = tranche("", "nodes", "undrain", "n5")
	wantIn(t, out, "n5 degraded: its health checks say: slow disk; nothing new starts")
	_, out, _ = tranche("", "nodes", "maintain", "n1", "--from", "2026-12-03T12:00", "--why", "firmware")
	wantIn(t, out, "maintenance from 2026-12-03 11:00:00 UTC: firmware")
	var plan api.Maintain
	if err := json.Unmarshal(p.calls[len(p.calls)-1].Body, &plan); err != nil || plan.From != "2026-12-03T12:00" || plan.Why != "firmware" || plan.Clear || plan.Key == "" {
		t.Errorf("sent %+v (%v)", plan, err)
	}
	calls := len(p.calls)
	for _, wrong := range [][]string{
		{"drain", "n1"},
		{"drain", "--why", "x"},
		{"maintain", "n1"},
		{"maintain", "n1", "--from", "2026-12-03T12:00"},
		{"maintain", "n1", "--clear", "--why", "x"},
		{"enrol"},
		{"h100-07"},
	} {
		if code, _, errOut := tranche("", append([]string{"nodes"}, wrong...)...); code != exitUsage || errOut == "" {
			t.Errorf("%v: exit %d, %q", wrong, code, errOut)
		}
	}
	if len(p.calls) != calls {
		t.Error("a wrong command line reached the server")
	}
	for _, name := range []string{"drain", "maintain", "enrol"} {
		if _, out, _ := tranche("", "nodes", name, "--help"); !strings.Contains(out, "Examples:") {
			t.Errorf("nodes %s --help has no examples", name)
		}
	}
}

func TestNodesEnrol(t *testing.T) {
	p := loggedIn(t, map[string][]any{"POST /api/v1/enrol-tokens": {api.EnrolToken{Token: "s3cr3t", Pool: "h100", Hours: 24, Uses: 8, Command: "TRANCHE_ENROL_TOKEN=s3cr3t tranche agent"}}})
	_, out, _ := tranche("", "nodes", "enrol", "--pool", "h100", "--uses", "8")
	wantIn(t, out, "s3cr3t\n", "8 nodes of pool h100, for 24 h", "TRANCHE_ENROL_TOKEN=s3cr3t tranche agent")
	var sent api.NewEnrolToken
	if err := json.Unmarshal(p.calls[0].Body, &sent); err != nil || sent.Pool != "h100" || sent.Uses != 8 || sent.Hours != 24 || sent.Key == "" {
		t.Errorf("sent %+v (%v)", sent, err)
	}
}

// What is not given stays as it is, and people may be named as the list names them.
func TestMembers(t *testing.T) {
	list := api.Members{Project: "/lab/a", Lookback: 604_800_000, Members: []api.Member{
		{Person: 4, Name: "Ana Silva", Roles: []string{"pi", "researcher"}, Share: 1},
		{Person: 5, Name: "Kofi Mensah", Mail: "kofi@example.org", Roles: []string{"researcher"}, Share: 3, Cap: 8, Used: 12 * ledger.GPUHour},
		{Person: 6, Name: "ana silva", Roles: []string{"researcher"}, Share: 1},
	}}
	p := loggedIn(t, map[string][]any{"GET /api/v1/members": {list}, "POST /api/v1/members": {list}})
	_, out, _ := tranche("", "members", "/lab/a")
	wantIn(t, out, "GPU-HOURS IN 7 DAYS", "kofi@example.org", "Kofi Mensah", "pi, researcher", "none", "12")
	for _, c := range []struct {
		args       []string
		person     ledger.PersonID
		share, cap int64
	}{
		{[]string{"kofi@example.org", "--share", "2"}, 5, 2, 8},
		{[]string{"kofi mensah", "--cap", "none"}, 5, 3, 0},
		{[]string{"6", "--cap", "4", "--share", "9"}, 6, 9, 4},
	} {
		code, out, errOut := tranche("", append([]string{"members", "set", "/lab/a"}, c.args...)...)
		var sent api.SetMember
		err := json.Unmarshal(p.calls[len(p.calls)-1].Body, &sent)
		if err != nil || code != exitOK || sent.Person != c.person || sent.Share != c.share || sent.Cap != c.cap || sent.Key == "" || !strings.Contains(out, "/lab/a: share") {
			t.Errorf("%v: exit %d, sent %+v, %s%s", c.args, code, sent, out, errOut)
		}
	}
	for want, args := range map[string][]string{
		"2 members are called": {"Ana Silva", "--share", "2"},
		"holds no role":        {"Mateo", "--share", "2"},
	} {
		if code, _, errOut := tranche("", append([]string{"members", "set", "/lab/a"}, args...)...); code != exitRefused || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit %d, %q", args, code, errOut)
		}
	}
	for _, wrong := range [][]string{{"kofi@example.org"}, {"kofi@example.org", "--cap", "0"}, {"kofi@example.org", "--cap", "many"}, {"--share", "2"}} {
		if code, _, errOut := tranche("", append([]string{"members", "set", "/lab/a"}, wrong...)...); code != exitUsage || errOut == "" {
			t.Errorf("%v: exit %d, %q", wrong, code, errOut)
		}
	}
}
