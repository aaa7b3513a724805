package web

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/google/uuid"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

// showJob is one job's page: its time line, why it is where it is, what it cost.
func (s *server) showJob(w http.ResponseWriter, r *http.Request) error {
	page, err := s.jobPage(r, jobForms{newForm(), newForm()})
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// jobForms are the forms on a job's page: an operator's stop, and new protection.
type jobForms struct{ stop, renew view.Form }

// jobPage builds the page.
func (s *server) jobPage(r *http.Request, forms jobForms) (templ.Component, error) {
	d, err := s.readJob(r, ledger.JobID(pathID(r)))
	if err != nil {
		return nil, err
	}
	class, err := s.store.Class(r.Context(), store.ClassOf(d.Pool, d.Project, &d.Shape))
	if err != nil {
		return nil, err
	}
	m := view.Job{
		ID: d.ID, Name: jobName(&d.JobLine), Owner: d.Owner, ProjectID: d.Project, Project: d.Title, PoolID: d.Pool, Pool: d.PoolName,
		State: d.State, Bar: s.contractBar(&d), Why: s.why(&d), Contract: slices.Concat(contractFacts(&d), memoryFacts(&d, class), s.idleFacts(&d)), Workload: workloadFacts(d.Private), Attempts: s.attemptRows(&d),
		Charges: s.chargeRows(&d), Total: hours(d.Charged), MayCancel: d.May.Cancel, MayPause: d.May.Pause, MayResume: d.May.Resume, Key: uuid.NewString(),
	}
	m.StateText, _ = s.stateOf(&d.JobLine)
	if d.May.Stop {
		m.Stop = &forms.stop
	}
	if d.ArrayID != 0 {
		m.InArray = &view.InArray{ID: d.ArrayID, Index: strconv.Itoa(int(d.ArrayIndex)), Size: d.ArraySize, Before: d.Before, Next: d.Next}
	}
	m.Renewal = s.renewal(&d, forms.renew)
	if m.Log, err = s.logTail(r, &d); err != nil {
		return nil, err
	}
	shell := s.shell(r, m.Name, "jobs", s.jobAnswer(&d))
	shell.Crumbs = []view.Link{{Text: d.Title, URL: view.GroupURL(d.Project)}, {Text: "Jobs", URL: view.JobsURL + "?project=" + d.Path}}
	if d.Finished == 0 {
		shell.Refresh, shell.Every = r.URL.RequestURI(), "3s"
	}
	return view.JobPage(shell, m), nil
}

// jobAnswer is the sentence at the top: state, shape, place, cost.
func (s *server) jobAnswer(d *store.JobDetail) string {
	state, _ := s.stateOf(&d.JobLine)
	text := shapeOf(&d.JobLine) + " on " + d.PoolName + ", " + state + ". "
	if d.Held > 0 {
		return text + hours(d.Charged).Text + " GPU-h charged, " + hours(d.Running).Text + " running, " + hours(d.Held-d.Running).Text + " set aside."
	}
	return text + hours(d.Charged).Text + " GPU-h charged."
}

// contractFacts is what the job promises and is promised.
func contractFacts(d *store.JobDetail) []view.Fact {
	c := d.Contract
	atEnd, resumable := "goes on, unfunded", "yes"
	if c.StopOnMoney {
		atEnd = "stops"
	}
	if !c.Resumable {
		resumable = "no"
	}
	facts := []view.Fact{
		{Name: "Job", Value: idText(d.ID), ID: "job-id"},
		{Name: "Owner", Value: d.Owner},
		{Name: "Project", Value: d.Path},
		{Name: "Shape", Value: shapeOf(&d.JobLine) + ", " + milliText(d.Shape.CPUMilli) + " cores and " + gibText(d.Shape.RAMMiB) + " per node" + flowText(&d.Shape.Flow)},
		{Name: "Charged GPUs", Value: milliText(d.MilliGPU), Term: "rate"},
		{Name: "Protected for", Value: minimumText(c.MinMs), Term: "protected for", ID: "contract-minimum"},
		{Name: "Grace", Value: spanText(c.GraceMs), Term: "grace"},
		{Name: "Ends at the latest after", Value: spanText(c.MaxMs)},
		{Name: "Resumable", Value: resumable},
		{Name: "When money ends", Value: atEnd},
		{Name: "Urgency", Value: strconv.Itoa(int(c.Urgency)), Term: "urgency"},
	}
	if d.After != "" {
		facts = append(facts, view.Fact{Name: "Starts after", Value: d.After, ID: "job-after"})
	}
	if c.Interactive {
		facts = append(facts, view.Fact{Name: "Interactive", Value: "warned before its protection ends"})
	}
	if c.OrFree {
		facts = append(facts, view.Fact{Name: "Without funds", Value: "starts unfunded", Term: "unfunded"})
	}
	if c.MaxCharge > 0 {
		facts = append(facts, view.Fact{Name: "Charged at most", Value: hours(c.MaxCharge).Text + " GPU-h", Exact: hours(c.MaxCharge).Exact})
	}
	return facts
}

// flowText is what a job asks for beside GPUs, cores and memory.
func flowText(f *scheduler.Flow) string {
	var out string
	if f.HBMMiB > 0 {
		out += ", " + gibText(f.HBMMiB) + " on each GPU"
	}
	if f.NetMbps > 0 {
		out += ", " + rateOf(f.NetMbps, "Mbit/s", "Gbit/s") + " of network"
	}
	if f.StoMbps > 0 {
		out += ", " + rateOf(f.StoMbps, "MB/s", "GB/s") + " of storage"
	}
	if f.IOCMilli > 0 {
		out += ", " + milliText(f.IOCMilli) + " cores that move data"
	}
	return strings.Replace(out, ", 1 cores", ", 1 core", 1)
}

// rateOf writes a rate in the larger unit from a thousand on: "12.5 Gbit/s".
func rateOf(n int64, unit, thousands string) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " " + unit
	}
	return milliText(n) + " " + thousands
}

// milliText writes thousandths: "8", "0.25".
func milliText(milli int64) string {
	whole, rest := milli/1000, milli%1000
	if rest == 0 {
		return strconv.FormatInt(whole, 10)
	}
	return strconv.FormatInt(whole, 10) + "." + strings.TrimRight(strconv.FormatInt(1000+rest, 10)[1:], "0")
}

// gibText writes MiB as GiB where that is whole.
func gibText(mib int64) string {
	if mib%1024 == 0 {
		return strconv.FormatInt(mib/1024, 10) + " GiB"
	}
	return strconv.FormatInt(mib, 10) + " MiB"
}

// workloadFacts is what runs; empty for readers who may not see it.
func workloadFacts(p *store.JobCommand) []view.Fact {
	if p == nil {
		return nil
	}
	facts := []view.Fact{{Name: "Command", Value: p.Command, ID: "job-command"}}
	for _, f := range []view.Fact{{Name: "Working directory", Value: p.WorkDir}, {Name: "Output path", Value: p.OutputPath}, {Name: "Checkpoint", Value: p.Checkpoint}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		facts = append(facts, view.Fact{Name: name, Value: p.Env[name]})
	}
	return facts
}

// attemptRows lists the job's runs, oldest first.
func (s *server) attemptRows(d *store.JobDetail) []view.AttemptRow {
	var rows []view.AttemptRow
	for i := range d.Runs {
		a := &d.Runs[i]
		row := view.AttemptRow{
			ID: a.ID, Number: a.N, NodeText: nodesText(a.NodeNames), Class: s.classOf(a),
			Started: s.when(a.Started), Ended: s.when(a.Ended), Elapsed: "–", End: endText(a), Charged: hours(a.Charged - a.Credited),
		}
		if len(a.NodeIDs) == 1 {
			row.NodeID = a.NodeIDs[0]
		}
		if a.Started != 0 {
			row.Elapsed = ledger.FormatMillis(a.ElapsedMs)
			if a.Ended == 0 {
				row.Elapsed = ledger.FormatMillis(max(a.ElapsedMs, s.store.Now().MillisSince(a.Started)))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// nodesText names the first nodes of a gang and counts the others.
func nodesText(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}

// classOf is the mark of an attempt as it is now, or as it ended.
func (s *server) classOf(a *store.AttemptLine) view.Mark {
	switch {
	case a.Phase == "reserved":
		return view.MarkWaiting
	case a.Phase == "nominated" || a.Phase == "starting":
		return view.MarkStarting
	case a.Phase == "ending":
		return view.MarkEnding
	case a.MinMs == 0 || !a.Funded:
		return view.MarkUnfunded
	case a.Phase == "running" && a.ProtectedUntil > s.store.Now():
		return view.MarkProtected
	case a.Phase == "running":
		return view.MarkPast
	}
	return view.MarkSpent
}

// chargeRows lists what the books hold about the job: set aside, charged, given back.
func (s *server) chargeRows(d *store.JobDetail) []view.ChargeRow {
	var rows []view.ChargeRow
	for _, c := range d.Charges {
		row := view.ChargeRow{Key: c.Key, At: s.when(c.At), Lot: c.Lot, Amount: hours(c.Amount)}
		row.Kind, row.Amount = movementKind(c), hours(c.Amount)
		if row.Kind == "credit" {
			row.Amount = hours(-c.Amount)
		}
		row.From, row.To = spanOfKey(c.Key)
		rows = append(rows, row)
	}
	return rows
}

// movementKind says in one word what a transfer of a job does.
func movementKind(c store.JobCharge) string {
	switch {
	case c.To == ledger.Held:
		return "set aside"
	case c.From == ledger.Overrun:
		return "overrun"
	case c.To == ledger.Spent:
		return "charge"
	case c.From == ledger.Credit:
		return "credit"
	case c.To == ledger.Expired:
		return "expired"
	}
	return "given back"
}

// spanOfKey reads the elapsed span that an entry's key names:
// "charge:attempt:881:0ms:3600000ms".
func spanOfKey(key string) (from, to string) {
	parts := strings.Split(key, ":")
	if len(parts) < 5 {
		return "", ""
	}
	var out [2]string
	for i, text := range parts[3:5] {
		ms, err := strconv.ParseInt(strings.TrimSuffix(text, "ms"), 10, 64)
		if err != nil {
			return "", ""
		}
		out[i] = ledger.FormatMillis(ms)
	}
	return out[0], out[1]
}

// Bounds of the output on a job's page.
const (
	tailBytes = 64 << 10
	tailLines = 200
)

// logTail is the end of the newest attempt's output; nil when the reader may not see it.
func (s *server) logTail(r *http.Request, d *store.JobDetail) (*view.LogTail, error) {
	if !d.May.Logs || len(d.Runs) == 0 {
		return nil, nil
	}
	piece, err := s.store.Logs(r.Context(), actorOf(r), store.LogQuery{Job: d.ID, Offset: -tailBytes, Limit: tailBytes})
	if err != nil {
		return nil, err
	}
	tail := &view.LogTail{Live: !piece.End && d.Finished == 0}
	text := strings.ToValidUTF8(string(bytes.TrimRight(piece.Data, "\n")), "\uFFFD")
	if text == "" {
		return tail, nil
	}
	tail.Lines = strings.Split(text, "\n")
	cut := piece.Offset > 0
	if n := len(tail.Lines); n > tailLines {
		tail.Lines, cut = tail.Lines[n-tailLines:], true
	}
	if cut {
		tail.Skipped = "Shows the last " + strconv.Itoa(len(tail.Lines)) + " lines of " + strconv.FormatInt(piece.Size, 10) + " bytes."
	}
	for i, line := range tail.Lines {
		tail.Lines[i] = printable(line)
	}
	return tail, nil
}

// printable drops control characters, which a page cannot show, and keeps of a
// progress line what it was overwritten with last.
func printable(line string) string {
	line = strings.TrimSuffix(line, "\r")
	if i := strings.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:]
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' || c == utf8.RuneError || c == 0x7f {
			return -1
		}
		return c
	}, line)
}

// showJobLog gives the whole kept output as text. What was cut between head and
// tail is said where it is missing.
func (s *server) showJobLog(w http.ResponseWriter, r *http.Request) error {
	q := store.LogQuery{Job: ledger.JobID(pathID(r)), Limit: 256 << 10}
	first, err := s.store.Logs(r.Context(), actorOf(r), q)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	q.Attempt = first.Attempt
	// What is written meanwhile is not waited for.
	for piece := first; q.Offset < first.Size; {
		if piece.Offset > q.Offset {
			_, _ = w.Write([]byte("\n[" + strconv.FormatInt(piece.Offset-q.Offset, 10) + " bytes are no longer kept]\n"))
		}
		if _, err := w.Write(piece.Data); err != nil || len(piece.Data) == 0 {
			break // a visitor who left is nobody's fault
		}
		q.Offset = piece.Next
		if piece, err = s.store.Logs(r.Context(), actorOf(r), q); err != nil {
			return err
		}
	}
	return nil
}
