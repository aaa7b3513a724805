package web

import (
	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// contractBar draws a job's life: waiting, starting, protected, past protection,
// unfunded, ending, with the instants and rules that moved it on.
func (s *server) contractBar(d *store.JobDetail) *view.ContractBar {
	now := s.store.Now()
	b := &bar{s: s, now: now, end: now, ContractBar: view.ContractBar{Label: jobName(&d.JobLine), From: d.Submitted, Now: now, Zone: s.zone}}
	if d.Finished != 0 {
		b.end = d.Finished
	}
	at := d.Submitted
	for i := range d.Runs {
		a := &d.Runs[i]
		b.span(view.MarkWaiting, at, a.Since, "waiting")
		at = b.attempt(a)
	}
	if d.Finished == 0 && (len(d.Runs) == 0 || d.Runs[len(d.Runs)-1].Phase == "closed") {
		b.span(view.MarkWaiting, at, now, "waiting")
		at = now
	}
	if d.Finished != 0 {
		b.point("finish", d.Finished, "", overText(&d.JobLine))
		at = max(at, d.Finished)
	}
	b.To = max(at, b.end)
	if b.To <= b.From {
		b.To = b.From.Add(60_000)
	}
	return &b.ContractBar
}

// bar collects spans while it walks through a job's attempts.
type bar struct {
	view.ContractBar
	s        *server
	now, end ledger.Instant
}

func (b *bar) span(mark view.Mark, from, to ledger.Instant, text string) {
	if to > from {
		b.Spans = append(b.Spans, view.ContractSpan{Mark: mark, From: from, To: to, Text: text + ", " + ledger.FormatMillis(to.MillisSince(from))})
	}
}

func (b *bar) point(kind string, at ledger.Instant, rule, text string) {
	if at != 0 {
		b.Points = append(b.Points, view.ContractPoint{Kind: kind, At: at, Rule: rule, Text: text + " at " + b.s.clockOrDay(at)})
	}
}

// attempt draws one run and gives where it ends: for a protected one at the end
// of its protection, though that is still to come.
func (b *bar) attempt(a *store.AttemptLine) ledger.Instant {
	end := a.Ended
	if end == 0 {
		end = b.now
	}
	if a.Phase == "reserved" {
		b.span(view.MarkWaiting, a.Since, end, "waiting, with the pool's reserved start")
		return end
	}
	if a.Started == 0 {
		b.span(view.MarkStarting, a.Since, end, "starting")
		return end
	}
	b.span(view.MarkStarting, a.Since, a.Started, "starting")
	b.point("start", a.Started, "", "started")
	b.point("checkpoint", a.Checkpoint, "", "checkpoint")
	stop := end
	if a.StopAsked != 0 && a.StopAsked < end {
		stop = max(a.StopAsked, a.Started)
	}
	last := b.running(a, stop)
	if a.StopAsked != 0 {
		b.point("eviction", a.StopAsked, a.Rule, ruleWord(a.Rule))
		b.span(view.MarkEnding, stop, end, "ending")
		return end
	}
	return max(end, last)
}

// running draws what lies between start and stop by what it was charged as.
func (b *bar) running(a *store.AttemptLine, stop ledger.Instant) ledger.Instant {
	at := a.Started
	if a.MinMs == 0 {
		b.span(view.MarkUnfunded, at, stop, "unfunded")
		return stop
	}
	live := a.Ended == 0 && a.StopAsked == 0
	protected := stop
	if a.ProtectedUntil != 0 && (live || a.ProtectedUntil < stop) {
		protected = a.ProtectedUntil
	}
	b.span(view.MarkProtected, at, protected, "protected until "+b.s.clockOrDay(protected))
	if protected >= stop {
		return protected
	}
	funded := stop
	if !a.Funded && a.FundedMs > 0 {
		funded = min(stop, max(protected, a.Started.Add(a.FundedMs)))
	}
	b.span(view.MarkPast, protected, funded, "past protection")
	b.span(view.MarkUnfunded, funded, stop, "unfunded since its budget ended")
	return stop
}
