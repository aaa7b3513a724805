package static_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tranche/static"
	"tranche/web/view"
)

// policy is as strict as pages need: no inline script, no inline style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"

// browser opens one tab, or skips where there is none to open.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI needs a Chromium")
		}
		t.Skip("no Chromium on the path")
	}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1280, 900))
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, cancelTime := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancelTime)
	return ctx
}

// site serves a live job page that counts its own renewals, a split form and a
// job form, under the strict policy.
func site(t *testing.T) (base string, away *atomic.Bool) {
	t.Helper()
	var n atomic.Int64
	away = &atomic.Bool{}
	who := &view.Who{Name: "Ada Byron", Role: "PI"}
	mux := http.NewServeMux()
	mux.Handle(static.Prefix, static.Handler())
	page := func(path string, draw func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", policy)
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			draw(w, r)
		})
	}
	page("/jobs/1", func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s := view.Shell{Title: "Job 1", Who: who, AsOf: "renewal " + strconv.FormatInt(n.Add(1), 10), Refresh: "/jobs/1", Every: "100ms"}
		m := view.Job{ID: 1, Name: "job", Pool: "h100", PoolID: 1, Log: &view.LogTail{Lines: []string{"a", "b"}}}
		if err := view.JobPage(s, m).Render(r.Context(), w); err != nil {
			t.Error(err)
		}
	})
	page("/groups/1", func(w http.ResponseWriter, r *http.Request) {
		m := view.Program{ID: 1, Name: "Vision", Period: "2026-Q4", Split: &view.Split{
			Pool: "1", Pot: view.Num{Text: "40 000", Exact: "40000"}, PotMilliHours: 40_000_000, Mode: "percent",
			Rows: []view.SplitRow{{ID: 7, Name: "Imaging", Value: "60"}, {ID: 8, Name: "Robotics", Value: "12.5"}},
		}}
		if err := view.ProgramPage(view.Shell{Title: "Vision", Who: who}, m).Render(r.Context(), w); err != nil {
			t.Error(err)
		}
	})
	page("/jobs/new", func(w http.ResponseWriter, r *http.Request) {
		m := view.JobForm{Projects: []view.Option{{Value: "7", Text: "Imaging"}}, Pools: []view.Option{{Value: "1", Text: "h100"}}, MayUrgency: 9}
		if err := view.JobFormPage(view.Shell{Title: "Submit a job", Who: who}, m).Render(r.Context(), w); err != nil {
			t.Error(err)
		}
	})
	page("/nodes/1", func(w http.ResponseWriter, r *http.Request) {
		squares := []view.GridDevice{{Mark: view.MarkProtected, Who: "job of Imaging", Until: "protected until 14:20", URL: "/jobs/1"}, {Mark: view.MarkIdle}}
		m := view.Node{ID: 1, Name: "n1", Grid: view.NodeGrid{Nodes: []view.GridNode{{ID: 1, Name: "n1", Health: "healthy", Devices: squares}}}}
		if err := view.NodePage(view.Shell{Title: "n1", Who: who}, m).Render(r.Context(), w); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, away
}

// want polls an expression until it is true, at most 10 s.
func want(t *testing.T, ctx context.Context, what, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression)); err != nil {
		now, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText.slice(0, 400) : ""`))
		t.Fatalf("%s: %v\n%s", what, err, now)
	}
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func js(code string) chromedp.Action[chromedp.Void] { return chromedp.Evaluate[chromedp.Void](code) }

func TestComfortInABrowser(t *testing.T) {
	ctx := browser(t)
	base, away := site(t)

	// A live page renews itself; focus and the very element stay, words follow.
	do(t, ctx, chromedp.Navigate(base+"/jobs/1"), js(`window.log = document.querySelector("[data-testid=log-tail]"); log.focus(); window.broken = []; addEventListener("securitypolicyviolation", e => broken.push(e.violatedDirective + " " + e.sourceFile))`))
	want(t, ctx, "renewals", `document.querySelector("[data-testid=as-of]").textContent.split(" ")[1] > 3`)
	want(t, ctx, "focus and element stay", `document.activeElement === window.log && document.contains(window.log)`)
	want(t, ctx, "no breach of the policy", `window.broken.length === 0`)

	// A server that is away is said; when it is back the page goes on.
	away.Store(true)
	want(t, ctx, "stale is said", `document.body.classList.contains("stale") && !!document.querySelector("[data-testid=title]")`)
	away.Store(false)
	want(t, ctx, "fresh again", `!document.body.classList.contains("stale")`)

	// The split form shows the other unit, what is left, and changes unit.
	do(t, ctx, chromedp.Navigate(base+"/groups/1"))
	want(t, ctx, "sum and rest", `document.querySelector("[data-testid=split-sum]").textContent === "72.5 %" && document.querySelector("[data-split-left]").textContent.replace(/\s/g, "") === "11000GPU-hleft"`)
	do(t, ctx, chromedp.Click("[data-testid=mode-hours]"))
	want(t, ctx, "GPU-hours", `document.querySelector("[data-testid=field-share_7]").value === "24000" && document.querySelector("[data-testid=field-share_8]").value === "5000"`)
	do(t, ctx, chromedp.SetValue("[data-testid=field-share_8]", "20000"), js(`document.querySelector("[data-testid=field-share_8]").dispatchEvent(new Event("input", {bubbles: true}))`))
	want(t, ctx, "too much is said", `document.querySelector("[data-split-left]").textContent.includes("too much")`)

	// A preset fills the contract and keeps what was typed; the button says what it does.
	do(t, ctx, chromedp.Navigate(base+"/jobs/new"), chromedp.SendKeys("[data-testid=field-command]", "sleep 60"), chromedp.Click("[data-testid=preset-long]"))
	want(t, ctx, "preset", `document.querySelector("[data-testid=field-minimum]").value === "8 h" && document.querySelector("[data-testid=field-command]").value === "sleep 60"`)
	do(t, ctx, js(`document.querySelector("[data-testid=field-gpus]").value = "8"; document.querySelector("[data-testid=field-gpus]").dispatchEvent(new Event("input", {bubbles: true}))`))
	want(t, ctx, "the button", `document.querySelector("[data-testid=job-submit]").textContent === "Submit 8 GPUs"`)
}

func TestKeyboardAndNarrowScreen(t *testing.T) {
	ctx := browser(t)
	base, _ := site(t)

	// The first stop is the way past the rail; a device says who, until when.
	do(t, ctx, chromedp.Navigate(base+"/nodes/1"), chromedp.KeyEvent("\t"))
	want(t, ctx, "skip link", `document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().top >= 0`)
	do(t, ctx, js(`document.querySelector("[data-testid=device]").focus()`))
	want(t, ctx, "the card", `!document.querySelector("#tip").hidden && document.querySelector("#tip").textContent.includes("protected until 14:20")`)
	do(t, ctx, chromedp.KeyEvent(kb.ArrowRight))
	want(t, ctx, "the next device", `document.activeElement.getAttribute("aria-label") === "n1 device 1: idle"`)

	// On a narrow screen the rail is a bar and the rest opens above it.
	do(t, ctx, chromedp.EmulateViewport(390, 800), chromedp.Navigate(base+"/groups/1"))
	want(t, ctx, "the rest is closed", `document.querySelector("[data-testid=nav-nodes]").getBoundingClientRect().height === 0`)
	do(t, ctx, chromedp.Click(".rail-more-button button"))
	want(t, ctx, "the rest is open", `document.querySelector("[data-testid=nav-nodes]").getBoundingClientRect().height > 0`)
	want(t, ctx, "nothing is wider than the screen", `document.documentElement.scrollWidth <= 390`)
}
