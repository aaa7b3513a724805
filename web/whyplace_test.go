package web

import (
	"encoding/json"
	"strings"
	"testing"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/scheduler/placing"
	"tranche/web/view"
)

// A job's page says why it runs where it does, with the terms of every node it was
// judged among; the interface says the same.
func TestAJobSaysWhyHere(t *testing.T) {
	t.Parallel()
	s := newFleet(t, 2)
	job := s.job("researcher here", "/lab/vision/segmentation", "train", 2)
	s.cycle()
	term := func(name string, weight, value int64) placing.Term {
		return placing.Term{Name: name, Weight: weight, Value: value}
	}
	row := func(node ledger.NodeID, chosen bool, future, left int64) scheduler.JudgedNode {
		return scheduler.JudgedNode{Node: node, Chosen: chosen, Total: -future - left/20, Terms: []placing.Term{
			term(placing.TermFuture, placing.Micro, -future), term(placing.TermEvenness, placing.Micro, 0), term(placing.TermScarcity, 3*placing.Micro, 0), term(placing.TermTightness, placing.Micro/20, -left),
		}}
	}
	tell := func(j *scheduler.Judged) {
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		s.db.Exec(t, `update attempts set start_facts = start_facts || jsonb_build_object('judged', $2::jsonb) where job_id = $1`, int64(job), text)
	}
	for _, c := range []struct {
		judged   scheduler.Judged
		sentence string
		rows     []string
	}{
		{scheduler.Judged{Fitting: 1}, "It is on the only node that had room.", nil},
		{scheduler.Judged{Fitting: 3}, "It is where there was room: 3 nodes, and it needed all of them.", nil},
		{
			scheduler.Judged{Fitting: 2, Nodes: []scheduler.JudgedNode{row(s.nodes[0], true, 250_000, 500_000), row(s.nodes[1], false, 1_250_000, 900_000)}},
			"Of 2 nodes with room it is where what is left stays most useful to the pool's usual jobs: the cost to them is 0.28 there, elsewhere at least 1.30.",
			[]string{"0.250 0.000 0.000 0.025 0.275", "1.250 0.000 0.000 0.045 1.295"},
		},
		{
			scheduler.Judged{Fitting: 2, Nodes: []scheduler.JudgedNode{{Node: s.nodes[0], Chosen: true, Total: 900_000, Terms: []placing.Term{term(placing.TermCosine, placing.Micro, 900_000)}}}},
			"Of 2 nodes with room it is where what is left is most like what it asks for; 1 is wholly alike.",
			[]string{"0.900"},
		},
	} {
		tell(&c.judged)
		page := s.as("researcher here").open(view.JobURL(job))
		page.want("place-sentence", c.sentence)
		for _, row := range c.rows {
			if table := page.one("judged"); !strings.Contains(table, row) {
				t.Errorf("the table %q lacks %q", table, row)
			}
		}
		if d, err := s.server.store.Job(t.Context(), ledger.Actor{}, job); err != nil {
			t.Fatal(err)
		} else if w := s.server.wireWhy(&d); !strings.Contains(lines(w), c.sentence) {
			t.Errorf("the interface says %s", lines(w))
		}
	}
}

func lines(v any) string {
	text, _ := json.Marshal(v)
	return strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(string(text))
}

// What no node offers is refused at its field, with what was typed still there.
func TestAJobFormAsksForDataThatNodesHave(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	who := f.as("researcher here")
	typed := map[string]string{"project": "/lab/vision/segmentation", "pool": "h100", "gpus": "1", "command": "train", "sto_mbps": "1000", "hbm_gib": "9000", "io_cores": "-1"}
	page := who.submit(who.open(view.NewJobURL), "job-form", typed)
	_, values := page.form("job-form")
	if page.status != 422 || values.Get("sto_mbps") != "1000" || values.Get("hbm_gib") != "9000" || page.one("refused-io_cores") == "" {
		t.Fatalf("%d, typed %v, refused %q", page.status, values, page.one("refusals"))
	}
	typed["io_cores"] = ""
	page = who.submit(page, "job-form", typed)
	if page.status != 422 || page.one("refused-sto_mbps") == "" || page.one("refused-hbm_gib") == "" {
		t.Fatalf("%d, refused %q", page.status, page.one("refusals"))
	}
	f.db.Exec(t, `update nodes set sto_mbps = 4000`)
	typed["hbm_gib"] = ""
	done := who.follow(who.submit(page, "job-form", typed))
	if text := done.one("contract"); !strings.Contains(text, "1 GB/s of storage") {
		t.Errorf("the job's page says %q", text)
	}
}
