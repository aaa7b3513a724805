package web

import (
	"bufio"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// previewLines is how many lines the page shows of the file.
const previewLines = 50

// chargeFilter is what an export asks for, as typed and as understood.
type chargeFilter struct {
	query    store.ChargeQuery
	from, to string // dates as typed; to is the last day
	group    string // path as typed, "" for all the reader may export
}

// chargeFilterOf reads the filter of page and file alike. Days are days of the
// accounting zone: "to" counts until its end.
func (s *server) chargeFilterOf(r *http.Request) (chargeFilter, error) {
	q := r.URL.Query()
	f := chargeFilter{from: q.Get("from"), to: q.Get("to"), group: q.Get("group")}
	f.query = store.ChargeQuery{Actor: actorOf(r), Pool: q.Get("pool")}
	var refusals ledger.Refusals
	for _, d := range []struct {
		field, text string
		plus        int
		out         *ledger.Instant
	}{{"from", f.from, 0, &f.query.From}, {"to", f.to, 1, &f.query.To}} {
		if d.text == "" {
			continue
		}
		day, err := time.ParseInLocation(time.DateOnly, d.text, s.zone)
		if err != nil {
			refusals = append(refusals, invalid(d.field, "date.unreadable", "Write a date as 2026-11-30."))
			continue
		}
		*d.out = ledger.At(day.AddDate(0, 0, d.plus))
	}
	if f.query.From != 0 && f.query.To != 0 && f.query.From >= f.query.To {
		refusals = append(refusals, invalid("to", "date.order", "The last day is before the first one."))
	}
	if len(refusals) > 0 {
		return f, refusals
	}
	return f, nil
}

// exportGroups lists where the reader may export, parents first, and finds the
// group of the filter among them: without one it is the first.
func (s *server) exportGroups(r *http.Request, f *chargeFilter) ([]view.Option, error) {
	groups, err := s.readGroups(r)
	if err != nil {
		return nil, err
	}
	now := s.store.Now()
	var out []view.Option
	for _, g := range groups {
		if f.query.Actor.May(ledger.ExportCharges, g.Path, now) != nil {
			continue
		}
		out = append(out, view.Option{Value: g.Path, Text: g.Path})
		if f.group == g.Path || (f.group == "" && f.query.Group == 0) {
			f.query.Group = g.ID
			f.group = g.Path
		}
	}
	if f.query.Group == 0 {
		return nil, missing("group", "There is no program or project "+f.group+" whose charges you may export.")
	}
	return out, nil
}

// showExport previews the charges as the file will have them: the same query and
// the same cells.
func (s *server) showExport(w http.ResponseWriter, r *http.Request) error {
	f, err := s.chargeFilterOf(r)
	if err != nil {
		return err
	}
	m := view.Export{From: f.from, To: f.to, Zone: s.zone.String(), Pool: f.query.Pool}
	if m.Groups, err = s.exportGroups(r, &f); err != nil {
		return err
	}
	if m.Pools, err = s.poolOptions(r, "all"); err != nil {
		return err
	}
	totals, err := s.store.StreamCharges(r.Context(), f.query, func(c store.Charge) error {
		if len(m.Preview) < previewLines {
			m.Preview = append(m.Preview, s.exportLine(c))
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.Group, m.Rows, m.Total = f.group, int(totals.Rows), hours(totals.Amount)
	m.URL = view.ChargesCSVURL + "?" + url.Values{"from": {f.from}, "to": {f.to}, "group": {f.group}, "pool": {f.query.Pool}}.Encode()
	answer := plural(totals.Rows, "line") + " with " + hours(totals.Amount).Text + " GPU-h at " + f.group + " and below."
	return s.show(w, r, view.ExportPage(s.shell(r, "Charges to export", "export", answer), m))
}

// exportLine is a line of the file as the page shows it.
func (s *server) exportLine(c store.Charge) view.ExportLine {
	job := ""
	if c.Job != 0 {
		job = idText(c.Job)
	}
	return view.ExportLine{At: s.stamp(c.At), Project: c.Path, Pool: c.Pool, Job: job, Kind: chargeKind(c), Amount: hours(c.Amount), Key: c.Key}
}

// stamp writes an instant of a file: the accounting zone's time with its offset.
func (s *server) stamp(at ledger.Instant) string {
	if at == 0 {
		return ""
	}
	return at.Time().In(s.zone).Format("2006-01-02T15:04:05.000000Z07:00")
}

// chargeKind tells usage beyond every lot from what a lot bore.
func chargeKind(c store.Charge) string {
	if c.Kind == "charge" && c.Lot == 0 {
		return "overrun"
	}
	return c.Kind
}

// cell is one field of a file: text is guarded, numbers stay as they are.
type cell struct {
	name   string
	value  string
	number bool
}

// chargeCells are the columns of a charge line.
func (s *server) chargeCells(c store.Charge) []cell {
	id := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	return []cell{
		{"booked_at", s.stamp(c.At), false},
		{"kind", chargeKind(c), false},
		{"project", c.Path, false},
		{"project_name", c.Title, false},
		{"cost_centre", c.CostCentre, false},
		{"pool", c.Pool, false},
		{"period", c.Period, false},
		{"lot", id(int64(c.Lot)), true},
		{"job", id(int64(c.Job)), true},
		{"attempt", id(int64(c.AttemptN)), true},
		{"person", id(int64(c.Member)), true},
		{"used_from", s.stamp(c.From), false},
		{"used_to", s.stamp(c.To), false},
		{"charged_gpus", milliText(c.Rate.MilliGPU), true},
		{"rate", rateText(c.Rate.PPM), true},
		{"unprotected_seconds", secondsText(c.PastMs), true},
		{"unprotected_rate", rateText(c.PastPPM), true},
		{"gpu_hours", c.Amount.Exact(), true},
		{"units", strconv.FormatInt(int64(c.Amount), 10), true},
		{"entry", c.Key, false},
	}
}

// secondsText gives milliseconds in seconds, "0.250".
func secondsText(ms int64) string { return fmt.Sprintf("%d.%03d", ms/1000, ms%1000) }

// guard keeps a spreadsheet from reading text as a formula: a leading character
// that begins one is preceded by an apostrophe.
func guard(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n|%", rune(text[0])) {
		return "'" + text
	}
	return text
}

// charges streams the charges as CSV: filter in the head, then the lines, then
// a trailer with their number, their sum, the seal that covers them and the
// SHA-256 of everything above it. A file without a trailer is not whole.
func (s *server) chargesCSV(w http.ResponseWriter, r *http.Request) error {
	f, err := s.chargeFilterOf(r)
	if err != nil {
		return err
	}
	if _, err := s.exportGroups(r, &f); err != nil {
		return err
	}
	file := newChargeFile(w, s, f)
	totals, err := s.store.StreamCharges(r.Context(), f.query, file.line)
	if err == nil {
		err = file.close(totals)
	}
	if err != nil && file.begun {
		s.log.WarnContext(r.Context(), "export cut short", "request", visitOf(r.Context()).id, "cause", err)
		panic(http.ErrAbortHandler) // half a file must not look like a whole one
	}
	return err
}

// chargeFile writes the file; nothing is sent before the first line or the end,
// so that a refusal still is one.
type chargeFile struct {
	s      *server
	w      http.ResponseWriter
	filter chargeFilter
	sum    hash.Hash
	buffer *bufio.Writer
	csv    *csv.Writer
	begun  bool
}

func newChargeFile(w http.ResponseWriter, s *server, f chargeFilter) *chargeFile {
	file := &chargeFile{s: s, w: w, filter: f, sum: sha256.New()}
	file.buffer = bufio.NewWriterSize(io.MultiWriter(w, file.sum), 64<<10)
	file.csv = csv.NewWriter(file.buffer)
	file.csv.UseCRLF = true
	return file
}

// begin sends the headers and the head: what the file is and what was asked for.
func (f *chargeFile) begin() error {
	f.begun = true
	name := "tranche-charges" + strings.ReplaceAll(f.filter.group, "/", "-")
	for _, part := range []string{f.filter.from, f.filter.to, f.filter.query.Pool} {
		if part != "" {
			name += "_" + part
		}
	}
	f.w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	f.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.csv"`)
	f.w.Header().Set("Cache-Control", "no-store")
	or := func(text, otherwise string) string {
		if text == "" {
			return otherwise
		}
		return text
	}
	var names []string
	for _, c := range f.s.chargeCells(store.Charge{}) {
		names = append(names, c.name)
	}
	return f.rows([][]string{
		{"# Tranche charges", "version 1"},
		{"# Zone", f.s.zone.String()},
		{"# Basis", "by the instant of booking, from (included) until (not included)"},
		{"# From", or(f.s.stamp(f.filter.query.From), "the beginning")},
		{"# Until", or(f.s.stamp(f.filter.query.To), "the end")},
		{"# Group", guard(f.filter.group)},
		{"# Pool", or(guard(f.filter.query.Pool), "all")},
		{"# Unit", "1 GPU-hour is 3600000 units"},
		names,
	})
}

func (f *chargeFile) rows(rows [][]string) error {
	for _, row := range rows {
		if err := f.csv.Write(row); err != nil {
			return err
		}
	}
	return nil
}

// line writes one charge.
func (f *chargeFile) line(c store.Charge) error {
	if !f.begun {
		if err := f.begin(); err != nil {
			return err
		}
	}
	cells := f.s.chargeCells(c)
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = cell.value
		if !cell.number {
			row[i] = guard(cell.value)
		}
	}
	return f.csv.Write(row)
}

// close writes the trailer.
func (f *chargeFile) close(t store.ChargeTotals) error {
	if !f.begun {
		if err := f.begin(); err != nil {
			return err
		}
	}
	seal := []string{"# Seal", "", "not every line is sealed yet"}
	switch {
	case t.Rows == 0:
		seal[2] = "no lines"
	case t.Head.N != 0:
		seal = []string{"# Seal", strconv.FormatInt(t.Head.N, 10), hex.EncodeToString(t.Head.Hash[:])}
	}
	if err := f.rows([][]string{
		{"# Rows", strconv.FormatInt(t.Rows, 10)},
		{"# GPU-hours", t.Amount.Exact(), strconv.FormatInt(int64(t.Amount), 10)},
		seal,
	}); err != nil {
		return err
	}
	f.csv.Flush()
	if err := errors.Join(f.csv.Error(), f.buffer.Flush()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f.w, "# SHA-256,%s\r\n", hex.EncodeToString(f.sum.Sum(nil)))
	return err
}
