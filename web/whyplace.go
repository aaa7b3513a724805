package web

import (
	"strconv"
	"strings"

	"tranche/scheduler"
	"tranche/scheduler/placing"
	"tranche/store"
	"tranche/web/view"
)

// termWords name what a score is made of, as its price: less is better.
func termWords() map[string]string {
	return map[string]string{
		placing.TermFuture: "Strands", placing.TermEvenness: "Leaves uneven", placing.TermCosine: "Unlike the demand",
		placing.TermScarcity: "Takes scarce places", placing.TermTightness: "Leaves over",
	}
}

// placeOf says why an attempt runs where it does; nil when no placer judged it.
func placeOf(d *store.JobDetail, last *store.AttemptLine) *view.WhyPlace {
	start := last.Start()
	if start == nil || start.Judged == nil {
		return nil
	}
	j := start.Judged
	p := &view.WhyPlace{}
	nodes := plural(int64(j.Fitting), "node")
	if len(j.Nodes) == 0 {
		p.Sentence = "It is where there was room: " + nodes + ", and it needed all of them."
		if j.Fitting == 1 {
			p.Sentence = "It is on the only node that had room."
		}
		return p
	}
	cosine := len(j.Nodes[0].Terms) == 1
	p.Sentence = "Of " + nodes + " with room it is where what is left stays most useful to the pool's usual jobs" + against(j) + "."
	if cosine {
		p.Sentence = "Of " + nodes + " with room it is where what is left is most like what it asks for; 1 is wholly alike."
		p.Terms = []string{"Alike"}
	} else {
		for _, t := range j.Nodes[0].Terms {
			p.Terms = append(p.Terms, termWords()[t.Name])
		}
	}
	for i := range j.Nodes {
		p.Rows = append(p.Rows, placeRow(d, &j.Nodes[i], cosine))
	}
	return p
}

// against compares the chosen with the next; "" when all were alike.
func against(j *scheduler.Judged) string {
	last, next := int64(0), int64(0)
	for i := range j.Nodes {
		if !j.Nodes[i].Chosen {
			next = j.Nodes[i].Total
			break
		}
		last = j.Nodes[i].Total
	}
	if next == 0 && last == 0 || next == last {
		return ""
	}
	return ": the cost to them is " + hundredths(-last) + " there, elsewhere at least " + hundredths(-next)
}

// hundredths writes millionths with two decimals.
func hundredths(n int64) string {
	return strings.TrimSuffix(micro((n+5000)/10_000*10_000), "0")
}

// placeRow writes one node's score.
func placeRow(d *store.JobDetail, n *scheduler.JudgedNode, cosine bool) view.WhyPlaceRow {
	row := view.WhyPlaceRow{Node: d.NodeNames[n.Node], URL: view.NodeURL(n.Node), Chosen: n.Chosen, Total: micro(-n.Total)}
	if cosine {
		row.Total = micro(n.Total)
	}
	for _, t := range n.Terms {
		v := -t.Weight * t.Value / placing.Micro
		if cosine {
			v = t.Value
		}
		row.Values = append(row.Values, micro(v))
	}
	return row
}

// micro writes millionths with three decimals.
func micro(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	n = (n + 500) / 1000
	if n == 0 {
		sign = ""
	}
	return sign + strconv.FormatInt(n/1000, 10) + "." + strconv.FormatInt(1000+n%1000, 10)[1:]
}
