package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"tranche/ledger"
)

// shots is a folder; with it the browser test also takes the manual's pictures.
var shots = flag.String("shots", "", "folder for screenshots of every page")

// demoSite is the demo as people get it, without its example jobs.
type demoSite struct {
	*demo
	box    *sandbox
	seeded *seeding
}

// startDemo runs the demo's own wiring in this process. Business time runs 600
// times as fast, so that a job of two seconds is worth a number.
func startDemo(t *testing.T) *demoSite {
	t.Helper()
	const speed = 600
	ctx := t.Context()
	data, err := os.MkdirTemp("", "tranche-browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	if err := os.Chmod(data, 0o755); err != nil { // PostgreSQL and jobs may be other users
		t.Fatal(err)
	}
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	d := newDemo(listener)
	config, err := d.webConfig(log, speed)
	if err != nil {
		t.Fatal(err)
	}
	box, err := openSandbox(ctx, sandboxConfig{
		Data: data, Listener: listener, Business: ledger.At(time.Date(2026, 10, 5, 6, 0, 0, 0, time.UTC)), Speed: speed,
		Tick: 200 * time.Millisecond, Web: config, Wrap: d.wrap, Heart: time.Second, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.close(); err != nil {
			t.Error(err)
		}
	})
	box.start(context.WithoutCancel(ctx))
	seeded, err := seedInstitute(ctx, box.site.store, d.issuer())
	if err != nil {
		t.Fatal(err)
	}
	operator, err := box.site.store.Actor(ctx, seeded.people["tomas"])
	if err != nil {
		t.Fatal(err)
	}
	if err := box.join(context.WithoutCancel(ctx), operator, seedNodes()); err != nil {
		t.Fatal(err)
	}
	return &demoSite{demo: d, box: box, seeded: seeded}
}

// findChromium skips the test on a machine without a browser, unless it is CI's.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no Chromium found, and CI must have one")
	}
	t.Skip("no Chromium found: apt-get install chromium runs this test too")
	return ""
}

// startBrowser gives a context that tabs are made from.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(findChromium(t)), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1280, 900),
		chromedp.Flag("lang", "en-GB"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	browser, cancelBrowser := chromedp.NewContext(ctx)
	t.Cleanup(cancelBrowser)
	if err := chromedp.Do(browser, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return browser
}

// tab is one tab with cookies of its own.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string
}

func newTab(t *testing.T, browser context.Context, base string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	// Without a timeout: a tab lives as long as the context of its first step.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	return &tab{t: t, ctx: ctx, base: base}
}

// patience bounds every step of a browser test.
const patience = 20 * time.Second

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		look, cancel := context.WithTimeout(b.ctx, 2*time.Second)
		defer cancel()
		where, _ := chromedp.Run(look, chromedp.Location())
		page, _ := chromedp.Run(look, chromedp.TextContent(chromedp.CSS("body")))
		b.t.Fatalf("at %s: %v\n%.1500s", where, err, page)
	}
}

func value[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	var out T
	b.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		var err error
		out, err = a(ctx, t)
		return chromedp.Void{}, err
	})
	return out
}

func byID(id string) chromedp.CSS { return chromedp.CSS(fmt.Sprintf(`[data-testid="%s"]`, id)) }

func byName(name string) chromedp.CSS { return chromedp.CSS(fmt.Sprintf(`main [name="%s"]`, name)) }

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+path), chromedp.WaitReady(chromedp.CSS("body")))
}

func (b *tab) click(id string) {
	b.t.Helper()
	b.do(chromedp.Click(byID(id), chromedp.NodeVisible))
}

func (b *tab) await(selector string) {
	b.t.Helper()
	b.do(chromedp.WaitReady(chromedp.CSS(selector)))
}

func (b *tab) fill(name, text string) {
	b.t.Helper()
	b.do(chromedp.SetValue(byName(name), text))
}

// choose takes the first option of a select whose text contains words.
func (b *tab) choose(name, words string) {
	b.t.Helper()
	found := value(b, chromedp.Evaluate[string](fmt.Sprintf(
		`[...document.querySelector('main [name="%s"]').options].find(o => o.text.includes(%q))?.value ?? ""`, name, words)))
	if found == "" {
		b.t.Fatalf("select %s offers nothing with %q", name, words)
	}
	b.fill(name, found)
}

func (b *tab) text(selector string) string {
	b.t.Helper()
	return strings.TrimSpace(value(b, chromedp.TextContent(chromedp.CSS(selector))))
}

// cell reads a value of the first row of a kind that contains all the words.
func (b *tab) cell(row, id string, words ...string) string {
	b.t.Helper()
	test := "true"
	for _, w := range words {
		test += fmt.Sprintf(" && r.textContent.includes(%q)", w)
	}
	return value(b, chromedp.Evaluate[string](fmt.Sprintf(
		`[...document.querySelectorAll('[data-testid="%s"]')].find(r => %s)?.querySelector('[data-testid="%s"]')?.textContent.trim() ?? "no such cell"`, row, test, id)))
}

func (b *tab) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s is %q, want %q", what, got, want)
	}
}

// signIn goes through the development provider as one of its people.
func (b *tab) signIn(subject string) {
	b.t.Helper()
	b.open("/sign-in")
	b.click("sign-in-" + subject)
	b.await(`[data-testid="who"]`)
}

// shoot takes a picture of the page for the manual.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	picture := value(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func TestBrowser(t *testing.T) {
	browser := startBrowser(t)
	site := startDemo(t)
	t.Run("flow", func(t *testing.T) { testFlow(t, browser, site) })
	t.Run("no script", func(t *testing.T) { testNoScript(t, browser, site) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, browser, site) })
	t.Run("pictures", func(t *testing.T) { testShots(t, browser, site) })
	t.Run("foreign host", func(t *testing.T) { testForeignHost(t, site) })
}

// The whole life of a GPU-hour: asked for, awarded in part, set aside, used,
// charged, exported; each number is compared where it is shown.
func testFlow(t *testing.T, browser context.Context, site *demoSite) {
	const project, pool = "Wildlife from Camera Traps", "h100"
	pools, err := site.box.site.store.Pools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var h100 ledger.PoolID
	for _, p := range pools {
		if p.Name == pool {
			h100 = p.ID
		}
	}
	b := newTab(t, browser, site.public())

	b.signIn("ana")
	b.want("usable before", b.cell("usable-row", "usable", project, pool), (1800 * ledger.GPUHour).Hours())
	b.open("/requests/new")
	b.choose("project", project)
	b.fill(fmt.Sprintf("hours_%d", h100), "100")
	b.fill("purpose", "Sort the night images.")
	b.fill("outcome", "A night model.")
	b.click("request-submit")
	b.await(`[data-testid="request-state"][data-state="submitted"]`)
	request := value(b, chromedp.Location())
	b.want("asked", b.cell("requested-row", "asked", pool), "100")

	b = newTab(t, browser, site.public())
	b.signIn("mateo")
	b.do(chromedp.Navigate(request + "/review"))
	b.fill(fmt.Sprintf("award_%d", h100), "60")
	b.click("decide-award")
	b.await(`[data-testid="request-state"][data-state="awarded"]`)
	b.want("awarded", b.cell("requested-row", "awarded", pool), "60")

	b = newTab(t, browser, site.public())
	b.signIn("kofi")
	b.want("usable after the award", b.cell("usable-row", "usable", project, pool), (1860 * ledger.GPUHour).Hours())
	job := b.submitDebug(project, pool)
	charged := b.awaitEnd(site, job)
	b.want("charged on the job's page", b.cell("attempt-row", "attempt-charged"), charged.Hours())
	b.open("/")
	left := 1860*ledger.GPUHour - charged
	b.want("usable after the job", b.cell("usable-row", "usable", project, pool), left.Hours())

	b.checkStatement(project, pool, charged)
	b = newTab(t, browser, site.public())
	b.signIn("claire")
	b.open("/export")
	b.checkExport(job, charged)
}

// submitDebug submits a job of two GPUs with the Debug preset and gives its number.
func (b *tab) submitDebug(project, pool string) ledger.JobID {
	b.t.Helper()
	b.open("/jobs/new?preset=debug")
	b.choose("project", project)
	b.choose("pool", pool)
	b.fill("gpus", "2")
	b.fill("command", "echo counting; sleep 2; echo counted")
	b.click("job-submit")
	b.await(`[data-testid="contract-bar"], [data-testid="why-sentence"]`)
	var id ledger.JobID
	if _, err := fmt.Sscanf(value(b, chromedp.Location()), b.base+"/jobs/%d", &id); err != nil {
		b.t.Fatalf("the submitted job's page: %v", err)
	}
	return id
}

// awaitEnd waits for a job's end and gives what the books charged for it.
func (b *tab) awaitEnd(site *demoSite, job ledger.JobID) ledger.Amount {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		b.open(fmt.Sprintf("/jobs/%d", job))
		if strings.Contains(b.text("main"), "finished") {
			break
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the job does not end:\n%s", b.text("main"))
		}
	}
	b.want("exit", b.text(`[data-testid="attempt-row"] [data-testid="attempt-end"]`), "exit 0")
	log := b.text(`[data-testid="log-tail"]`)
	if !strings.Contains(log, "counting") || !strings.Contains(log, "counted") {
		b.t.Errorf("the log is %q", log)
	}
	var pool ledger.PoolID = 1
	facts, err := site.box.site.store.Replay(b.t.Context(), pool)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range facts.Attempts {
		if a.Job == job {
			least, most := 2*1200*1000*ledger.Amount(1), 2*12_000*1000*ledger.Amount(1) // 2 GPUs, 2 s to 20 s at 600
			if a.Charged < least || a.Charged > most {
				b.t.Errorf("charged %d units, want between %d and %d", a.Charged, least, most)
			}
			return a.Charged
		}
	}
	b.t.Fatal("the job has no attempt")
	return 0
}

// checkStatement compares the project's ledger.
func (b *tab) checkStatement(project, pool string, charged ledger.Amount) {
	b.t.Helper()
	link := value(b, chromedp.Evaluate[string](fmt.Sprintf(
		`[...document.querySelectorAll('[data-testid="usable-row"] th a')].find(a => a.textContent.includes(%q)).getAttribute("href")`, project)))
	b.open(link)
	left := 1860*ledger.GPUHour - charged
	for id, want := range map[string]string{"awarded": (1860 * ledger.GPUHour).Hours(), "spent": charged.Hours(), "held": "0", "running": "0", "usable": left.Hours()} {
		b.want("statement: "+id, b.cell("sum-row", id, pool), want)
	}
}

// checkExport reads the CSV file with the browser's own session.
func (b *tab) checkExport(job ledger.JobID, charged ledger.Amount) {
	b.t.Helper()
	text := value(b, chromedp.Evaluate[string](`fetch("/export/charges.csv").then(r => r.text())`, chromedp.EvalAwaitPromise))
	lines := csv.NewReader(strings.NewReader(text))
	lines.FieldsPerRecord, lines.Comment = -1, '#'
	rows, err := lines.ReadAll()
	if err != nil || len(rows) < 2 {
		b.t.Fatalf("%d rows, error %v:\n%s", len(rows), err, text)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	var units ledger.Amount
	for _, row := range rows[1:] {
		if row[column["job"]] == fmt.Sprint(job) {
			var n int64
			if _, err := fmt.Sscan(row[column["units"]], &n); err != nil {
				b.t.Fatal(err)
			}
			units += ledger.Amount(n)
			b.want("cost centre", row[column["cost_centre"]], "4711-20")
		}
	}
	if units != charged {
		b.t.Errorf("the export charges %d units for job %d, the books %d:\n%s", units, job, charged, text)
	}
}

// A page of another site must not reach the demo under its own name.
func testForeignHost(t *testing.T, site *demoSite) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.public()+"/sign-in", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "evil.example"
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("status %d, error %v: %s", answer.StatusCode, err, body)
	}
}
