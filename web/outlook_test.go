package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// press sends the form around a button.
func (b *browser) press(page *answer, button string) *answer {
	b.site.t.Helper()
	found := at(page.root, button)
	if len(found) == 0 {
		b.site.t.Fatalf("%s: no button %q", page.name, button)
	}
	form := found[0].Parent
	action, _ := attribute(form, "action")
	values := url.Values{}
	for n := range form.Descendants() {
		if name, ok := attribute(n, "name"); ok && n.Type == html.ElementNode {
			value, _ := attribute(n, "value")
			values.Add(name, value)
		}
	}
	return b.send("POST", action, values)
}

// fill lets Segmentation run on all but so many GPUs of the last node.
func (f *fleet) fill(free int64) {
	f.t.Helper()
	for i := range f.nodes {
		gpus := int64(8)
		if i == len(f.nodes)-1 {
			gpus -= free
		}
		f.job("researcher here", segPath, "first", gpus)
	}
	f.cycle()
}

// Each change is offered with a button to whoever may change the job; pressed, it
// starts the job in the next cycle.
func TestAButtonMakesTheJobStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.fill(2)
	f.db.Clock.Advance(time.Minute)
	id := f.job("researcher elsewhere", armsPath, "waits", 4)
	f.cycle()
	f.db.Clock.Advance(time.Minute)
	f.job("researcher here", segPath, "small", 1)
	f.cycle()
	owner := f.as("researcher elsewhere")
	page := owner.open(view.JobURL(id))
	if at(page.root, "outlook-link") == nil {
		t.Fatal("no link to what would start it")
	}
	changes := owner.open(view.JobChangesURL(id))
	offers := changes.all("offer")
	if len(offers) != 1 || !strings.Contains(offers[0], "Take 1 GPU instead of 4: it would start now on n4.") {
		t.Fatalf("offers %q", offers)
	}
	if ahead := changes.one("ahead"); !strings.Contains(ahead, "1 job of Vision, queued later, started first: Vision had had") {
		t.Errorf("ahead %q", ahead)
	}
	stranger := f.as("researcher here").open(view.JobChangesURL(id))
	if at(stranger.root, "offer-0") != nil || len(stranger.all("offer")) != 1 {
		t.Error("somebody else should see the offer, without its button")
	}
	changed := owner.follow(owner.press(changes, "offer-0"))
	changed.want("flash", "Changed. The next cycle decides on it as it is now.")
	f.cycle()
	if state := owner.open(view.JobURL(id)).one("job-state"); !strings.HasPrefix(state, "running") {
		t.Errorf("the job is %q", state)
	}
	if again := owner.press(changes, "offer-0"); again.status != 303 {
		t.Errorf("the same button twice: %d", again.status)
	}
}

// Programs read and send the same.
func TestAPIOffersAndTakesChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.fill(2)
	id := f.job("researcher elsewhere", armsPath, "waits", 4)
	f.cycle()
	ctx, c := t.Context(), f.client("researcher elsewhere", f.arms)
	o, err := c.Outlook(ctx, id)
	f.must(err)
	if len(o.Changes) != 1 || o.At == nil || o.Changes[0].Kind != "gpus" || o.Changes[0].Change == nil || o.Changes[0].Change.GPUs != 2 {
		t.Fatalf("outlook %+v", o)
	}
	order, err := c.Order(ctx, "h100", "", 1)
	f.must(err)
	if len(order.Jobs) != 1 || order.Jobs[0].Job != id || order.Jobs[0].Rank != 1 || order.Next != "" || order.Waiting != 1 {
		t.Errorf("order %+v", order)
	}
	if len(order.Groups) != 4 || order.Groups[0].Group != "Robots" || !order.Groups[0].Next || order.Groups[1].Depth != 1 {
		t.Errorf("groups %+v", order.Groups)
	}
	change := *o.Changes[0].Change
	change.Key = "k1"
	for range 2 {
		job, err := c.ChangeJob(ctx, id, change)
		f.must(err)
		if job.GPUs != 2 || job.State != "waiting" {
			t.Errorf("changed to %+v", job)
		}
	}
	_, err = f.client("researcher here", f.seg).ChangeJob(ctx, id, api.ChangeJob{Key: "k2", GPUs: 1})
	wantProblem(t, err, 403, "actor.token_project")
}

// The order's page goes through the whole queue, level by level on top.
func TestOrderPageShowsTheTreeAndTheQueue(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.fill(0)
	for i := range 11 {
		f.job("researcher here", segPath, "seg "+strconv.Itoa(i), 1)
	}
	f.job("researcher elsewhere", armsPath, "arms", 1)
	f.cycle()
	page := f.as("nobody").open(view.PoolOrderURL(f.h100))
	if groups := page.all("order-group"); len(groups) != 4 || !strings.HasPrefix(groups[0], "Robots next 0.00") {
		t.Errorf("groups %q", groups)
	}
	if rows := page.all("queue-row"); len(rows) != 12 || !strings.Contains(rows[0], "arms") {
		t.Errorf("%d rows, first %q", len(rows), rows[:min(1, len(rows))])
	}
	if got := f.as("nobody").get(view.PoolOrderURL(f.h100) + "?after=x"); got.status != 422 {
		t.Errorf("a broken cursor gives %d", got.status)
	}
}

// A job that waits behind the reserved start, and its holder, are told until when.
func TestReservedStartIsShown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	long := func(s *store.Submission) { s.Preset = "long" }
	f.job("researcher here", segPath, "busy", 4)
	f.cycle()
	big := f.job("researcher elsewhere", armsPath, "big", 8, func(s *store.Submission) { s.Nodes = 2 })
	for range 3 {
		f.cycle()
		f.db.Clock.Advance(time.Second)
	}
	behind := f.job("researcher here", segPath, "behind", 4, long)
	f.cycle()
	b := f.as("researcher here")
	holder := b.open(view.JobURL(big))
	if p := holder.one("promise"); !strings.HasPrefix(p, "This job has it: nodes are kept for it") || !strings.Contains(holder.one("promise-latest"), "at the latest") {
		t.Errorf("the holder reads %q, %q", p, holder.one("promise-latest"))
	}
	if at(holder.root, "outlook") != nil {
		t.Error("the holder is offered changes")
	}
	page := b.open(view.JobURL(behind))
	if why := page.one("why-sentence"); !strings.Contains(why, "Nodes are kept for job "+idText(big)) {
		t.Errorf("the job behind reads %q", why)
	}
	if p := page.one("promise"); !strings.Contains(p, "Job "+idText(big)+" (big) of Arms has it") {
		t.Errorf("the job behind reads %q", p)
	}
	if offers := b.open(view.JobChangesURL(behind)).all("offer"); len(offers) == 0 || !strings.Contains(offers[0], "Protect it for") {
		t.Errorf("the job behind is offered %q", offers)
	}
	b.open(view.PoolURL(f.h100)).want("promise", b.open(view.PoolOrderURL(f.h100)).one("promise"))
}

// An eviction under V3 draws both standings, names the job that came, and says
// where the evicted one stands now; programs read the same.
func TestV3DrawsBothStandings(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	victim := f.job("researcher elsewhere", armsPath, "long run", 8)
	f.cycle()
	f.db.Clock.Advance(70 * time.Minute)
	f.cycle()
	came := f.job("researcher here", segPath, "comes", 8)
	f.cycle()
	for _, p := range f.parts(victim) {
		_, err := f.store.Ended(t.Context(), store.End{PartRef: p, ElapsedUS: (70 * time.Minute).Microseconds(), Stopped: true, TermUS: (70 * time.Minute).Microseconds()})
		f.must(err)
	}
	f.cycle()
	page := f.as("researcher elsewhere").open(view.JobURL(victim))
	page.want("eviction-rule", "V3")
	page.want("eviction-by", "job "+idText(came))
	page.want("eviction-lost", "1 h 10 min")
	if rows := page.all("ratio"); len(rows) != 2 || !strings.HasPrefix(rows[0], "Vision whose job came") || !strings.HasPrefix(rows[1], "Robots whose attempt left") {
		t.Errorf("standings %q", rows)
	}
	if said := page.one("evicted"); !strings.Contains(said, "Evicted (V3): past its protection, and Robots has had") {
		t.Errorf("said %q", said)
	}
	if now := page.one("eviction-now"); !strings.HasPrefix(now, "place 1 of ") {
		t.Errorf("now %q", now)
	}
	why, err := f.client("researcher elsewhere", f.arms).Why(t.Context(), victim)
	f.must(err)
	if !slices.ContainsFunc(why.Lines, func(l api.WhyLine) bool { return l.Label == "Before" && l.Value == page.one("evicted") }) {
		t.Errorf("programs read %+v", why.Lines)
	}
}
