package web

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// chargeCSV is a downloaded file, taken apart.
type chargeCSV struct {
	head    map[string]string
	columns []string
	rows    [][]string
	trailer map[string][]string
	whole   string
}

func (f *fleet) export(who, query string) chargeCSV {
	f.t.Helper()
	a := f.as(who).get(view.ChargesCSVURL + "?" + query)
	if a.status != 200 {
		f.t.Fatalf("%s: %d %s", a.name, a.status, a.one("refusal"))
	}
	r := csv.NewReader(strings.NewReader(a.body))
	r.FieldsPerRecord = -1
	all, err := r.ReadAll()
	f.must(err)
	out := chargeCSV{head: map[string]string{}, trailer: map[string][]string{}, whole: a.body}
	for _, row := range all {
		name, comment := strings.CutPrefix(row[0], "# ")
		switch {
		case !comment && out.columns == nil:
			out.columns = row
		case !comment:
			out.rows = append(out.rows, row)
		case out.columns == nil:
			out.head[name] = row[1]
		default:
			out.trailer[name] = row[1:]
		}
	}
	return out
}

func (c *chargeCSV) cell(t *testing.T, row int, column string) string {
	t.Helper()
	i := slices.Index(c.columns, column)
	if i < 0 || row >= len(c.rows) {
		t.Fatalf("no column %s or row %d", column, row)
	}
	return c.rows[row][i]
}

func TestExportTrailerProvesTheFile(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "a", 4)
	f.run("researcher here", segPath, "b", 2)
	open := f.export("finance here", "")
	if open.trailer["Seal"][1] != "not every line is sealed yet" {
		t.Errorf("seal %q before sealing", open.trailer["Seal"])
	}
	f.seal()
	head, err := f.store.SealHead(t.Context())
	f.must(err)
	file := f.export("finance here", "")
	if len(file.rows) != 2 || file.trailer["Rows"][0] != "2" {
		t.Fatalf("%d rows, trailer says %q", len(file.rows), file.trailer["Rows"])
	}
	if got := file.trailer["GPU-hours"]; got[0] != "3" || got[1] != "10800000" {
		t.Errorf("sum %q", got)
	}
	if got := file.trailer["Seal"]; got[0] != idText(ledger.JobID(head.N)) || got[1] != hex.EncodeToString(head.Hash[:]) {
		t.Errorf("seal %q, head is %d", got, head.N)
	}
	above, _, _ := strings.Cut(file.whole, "# SHA-256")
	sum := sha256.Sum256([]byte(above))
	if file.trailer["SHA-256"][0] != hex.EncodeToString(sum[:]) {
		t.Error("the hash is not of what stands above it")
	}
	if file.head["Zone"] != "UTC" || file.head["Group"] != "/lab" || file.head["From"] != "the beginning" {
		t.Errorf("head %q", file.head)
	}
	// Later entries and seals do not change what the same span gives.
	f.db.Clock.Advance(24 * time.Hour)
	span := "from=2026-10-05&to=2026-10-05"
	before := f.export("finance here", span)
	f.run("researcher here", segPath, "c", 1)
	f.seal()
	if after := f.export("finance here", span); after.whole != before.whole || len(after.rows) != 2 {
		t.Errorf("the closed span changed: %d rows", len(after.rows))
	}
}

func TestL14TextIsTextAndNumbersAreNumbers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.db.Exec(t, `update groups set title = '=1+1', cost_centre = '00123' where id = $1`, f.seg)
	f.db.Exec(t, `update groups set title = '@SUM(A1)', cost_centre = '-2' where id = $1`, f.arms)
	f.run("researcher here", segPath, "charged", 1)
	stopped := f.job("researcher elsewhere", armsPath, "credited", 1)
	f.cycle()
	f.db.Clock.Advance(72 * time.Second) // 0.02 h
	f.must(f.store.StopJob(t.Context(), f.cmd("operator here"), stopped, "the node smells"))
	for _, p := range f.parts(stopped) {
		us := (72 * time.Second).Microseconds()
		_, err := f.store.Ended(t.Context(), store.End{PartRef: p, ExitCode: -1, Signal: 15, ElapsedUS: us, TermUS: us, Stopped: true})
		f.must(err)
	}
	file := f.export("finance here", "")
	if len(file.rows) != 3 {
		t.Fatalf("%d rows: %q", len(file.rows), file.rows)
	}
	for _, c := range []struct {
		row          int
		column, want string
	}{
		{0, "project_name", "'=1+1"},
		{0, "cost_centre", "00123"},
		{0, "gpu_hours", "0.5"},
		{0, "kind", "charge"},
		{1, "project_name", "'@SUM(A1)"},
		{1, "cost_centre", "'-2"},
		{1, "gpu_hours", "0.02"},
		{2, "gpu_hours", "-0.02"},
		{2, "units", "-72000"},
		{2, "kind", "credit"},
		{0, "unprotected_seconds", "0.000"},
		{0, "unprotected_rate", "1.000"},
	} {
		if got := file.cell(t, c.row, c.column); got != c.want {
			t.Errorf("row %d %s is %q, want %q", c.row, c.column, got, c.want)
		}
	}
	found := false
	for _, got := range f.server.chargeCells(store.Charge{Amount: 1}) {
		if got.name == "gpu_hours" {
			if found = true; got.value != "0.0000003" || !got.number {
				t.Errorf("one unit is %+v", got)
			}
		}
	}
	if !found {
		t.Error("there is no column gpu_hours")
	}
}

func TestExportFilterIsHalfOpenInTheAccountingZone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	zone, err := time.LoadLocation("Europe/Paris")
	f.must(err)
	f.server.zone = zone
	f.db.Clock.Advance(13*time.Hour + 30*time.Minute) // 21:30 UTC, 23:30 in Paris
	f.run("researcher here", segPath, "late", 1)      // booked at 24:00 of 5 October
	for query, rows := range map[string]int{
		"from=2026-10-05&to=2026-10-05":           0,
		"from=2026-10-06&to=2026-10-06":           1,
		"to=2026-10-05":                           0,
		"from=2026-10-06":                         1,
		"pool=h100":                               1,
		"pool=a100":                               0,
		"group=" + url.QueryEscape("/lab/robots"): 0,
		"group=" + url.QueryEscape(segPath) + "&from=2026-10-06&pool=h100": 1,
		"group=" + url.QueryEscape("/lab/vision") + "&from=&to=&pool=":     1,
	} {
		file := f.export("finance here", query)
		if len(file.rows) != rows {
			t.Errorf("%s gives %d lines, want %d", query, len(file.rows), rows)
		}
		page := f.as("finance here").open(view.ExportURL + "?" + query)
		if got := len(page.all("export-row")); got != rows {
			t.Errorf("the page of %s shows %d lines, the file has %d", query, got, rows)
		}
	}
	file := f.export("finance here", "from=2026-10-06")
	if file.head["From"] != "2026-10-06T00:00:00.000000+02:00" || file.head["Zone"] != "Europe/Paris" || file.cell(t, 0, "booked_at") != "2026-10-06T00:00:00.000000+02:00" {
		t.Errorf("head %q, booked at %s", file.head, file.cell(t, 0, "booked_at"))
	}
	for _, query := range []string{"from=yesterday", "from=2026-10-06&to=2026-10-05"} {
		if a := f.as("finance here").get(view.ChargesCSVURL + "?" + query); a.status != 422 {
			t.Errorf("%s gives %d", query, a.status)
		}
	}
}

func TestExportStaysBelowWhatTheReaderMayExport(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "seg", 1)
	f.run("researcher elsewhere", armsPath, "arms", 1)
	file := f.export("pi here", "")
	if len(file.rows) != 1 || file.head["Group"] != segPath {
		t.Errorf("%d rows of %s", len(file.rows), file.head["Group"])
	}
	if a := f.as("pi here").get(view.ChargesCSVURL + "?group=" + url.QueryEscape("/lab")); a.status != 404 || strings.Contains(a.body, "# Tranche") {
		t.Errorf("the whole tree gives %d", a.status)
	}
	if a := f.as("researcher here").get(view.ChargesCSVURL); a.status != 403 {
		t.Errorf("a researcher gets %d", a.status)
	}
	if got := f.as("manager elsewhere").open(view.ExportURL).one("export-total"); got != "0.5" {
		t.Errorf("total %q", got)
	}
}

func TestVerifyPageNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.run("researcher here", segPath, "a", 1)
	f.seal()
	b := f.as("auditor here")
	page := b.send("POST", view.VerifyURL, url.Values{"key": {"1"}})
	page.want("verify-result", "The books are sound.")
	page.want("verify-sum", "0")
	f.db.Exec(t, `update transfers set amount = amount + 1 where (entry_id, n) = (select e.id, 0 from entries e where e.kind = 'charge' limit 1)`)
	page = b.send("POST", view.VerifyURL, url.Values{"key": {"2"}})
	page.want("verify-result", "The books differ from what was sealed.")
	if rows := page.all("fault-row"); len(rows) == 0 || !strings.HasPrefix(rows[0], "charge:attempt:1:0ms:1800000ms 0 ") {
		t.Errorf("faults %q", rows)
	}
}
