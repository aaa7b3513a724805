package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tranche/web/view"
)

// Everything works where scripts do not run: forms post, pages answer.
func testNoScript(t *testing.T, browser context.Context, site *demoSite) {
	b := newTab(t, browser, site.public())
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.signIn("kofi")
	b.open("/jobs/new?preset=free")
	b.choose("project", "Wildlife from Camera Traps")
	b.choose("pool", "a100")
	b.fill("gpus", "99") // refused: the form comes back with what was typed
	b.fill("command", "sleep 60")
	b.click("job-submit")
	b.await(`[data-testid="refused-gpus"]`)
	b.want("the command after a refusal", value(b, chromedp.Value(byName("command"))), "sleep 60")
	b.fill("gpus", "1")
	b.click("job-submit")
	b.await(`[data-testid="job-cancel"]`)
	b.click("job-cancel") // asks first
	b.click("job-cancel-yes")
	b.await(`main:not(:has([data-testid="job-cancel"]))`)
	if page := b.text("main"); !strings.Contains(page, "ancelled") {
		t.Errorf("the cancelled job's page says:\n%s", page)
	}
}

// tabTo moves the focus with the keyboard alone until it is on the element.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	for range 120 {
		b.do(chromedp.KeyEvent(kb.Tab))
		on := value(b, chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement.matches(%q)`, selector)))
		if !on {
			continue
		}
		ring := value(b, chromedp.Evaluate[bool](`(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== "none" || s.boxShadow !== "none" })()`))
		if !ring {
			b.t.Errorf("the focus cannot be seen on %s", selector)
		}
		return
	}
	b.t.Fatalf("the tab key never reaches %s", selector)
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// A job is submitted without ever touching the mouse.
func testKeyboard(t *testing.T, browser context.Context, site *demoSite) {
	b := newTab(t, browser, site.public())
	b.open("/sign-in")
	b.tabTo(`[data-testid="sign-in-kofi"]`)
	b.press(kb.Enter)
	b.await(`[data-testid="who"]`)
	b.tabTo(`a[href="/jobs"]`)
	b.press(kb.Enter)
	b.await(`[data-testid="job-filters"]`)
	b.tabTo(`main a[href^="/jobs/new"]`)
	b.press(kb.Enter)
	b.await(`[data-testid="job-form"]`)
	b.tabTo(`main [name="name"]`)
	b.press("by keyboard")
	b.tabTo(`main [name="command"]`)
	b.press("echo typed")
	b.tabTo(`[data-testid="job-submit"]`)
	b.press(kb.Enter)
	b.await(`[data-testid="contract-bar"], [data-testid="why-sentence"]`)
	if page := b.text("main"); !strings.Contains(page, "echo typed") {
		t.Errorf("the job's page does not show its command:\n%s", page)
	}
}

// testShots takes the manual's pictures while the example's jobs run.
func testShots(t *testing.T, browser context.Context, site *demoSite) {
	if *shots == "" {
		t.Skip("give -shots a folder to take pictures")
	}
	if err := site.seeded.submit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newTab(t, browser, site.public())
	b.open("/sign-in")
	b.shoot("sign-in")
	for _, v := range []struct {
		who   string
		pages map[string]string
	}{
		{"kofi", map[string]string{"home": "/", "jobs": view.JobsURL, "job-form": view.NewJobURL, "pools": view.PoolsURL, "pool": view.PoolURL(1), "nodes": view.NodesURL, "tokens": view.TokensURL}},
		{"ana", map[string]string{"request-form": view.NewRequestURL, "requests": view.RequestsURL, "ledger": view.GroupURL(site.seeded.groups["/helios/vision/wildlife"])}},
		{"mateo", map[string]string{"tree": view.TreeURL, "program": view.GroupURL(site.seeded.groups["/helios/vision"]), "review": view.ReviewURL(6)}},
		{"claire", map[string]string{"export": view.ExportURL, "verify": view.VerifyURL}},
		{"tomas", map[string]string{"node": view.NodeURL(1)}},
		{"ingrid", map[string]string{"periods": view.PeriodsURL, "people": view.PeopleURL, "audit": view.AuditURL}},
	} {
		b = newTab(t, browser, site.public())
		b.signIn(v.who)
		for name, page := range v.pages {
			b.open(page)
			b.shoot(name)
		}
		if v.who == "kofi" {
			b.open(view.JobsURL)
			b.do(chromedp.Click(chromedp.CSS(`[data-testid="job-row"] a[href^="/jobs/"]`)))
			b.await(`[data-testid="contract-bar"], [data-testid="why-sentence"]`)
			b.shoot("job")
		}
	}
}
