package web

import (
	"net/http"

	"tranche/ledger"
	"tranche/store"
	"tranche/web/view"
)

// idleUnits is what a job was charged without using it, over all attempts.
func (s *server) idleUnits(d *store.JobDetail) ledger.Amount {
	rate, sum := ledger.Rate{MilliGPU: d.MilliGPU, PPM: d.RatePPM}, ledger.Amount(0)
	for i := range d.Runs {
		a := &d.Runs[i]
		sum += min(a.Charged-a.Credited, rate.Cum(a.IdleMs(s.store.Now())))
	}
	return sum
}

// idleFacts say that a job does not use what it holds, or did not.
func (s *server) idleFacts(d *store.JobDetail) []view.Fact {
	var facts []view.Fact
	if n := len(d.Runs); n > 0 && d.Runs[n-1].IdleSince != 0 && d.Runs[n-1].Phase == "running" {
		since := s.when(d.Runs[n-1].IdleSince)
		facts = append(facts, view.Fact{Name: "Its GPUs are unused", Value: "since " + s.clockOrDay(d.Runs[n-1].IdleSince), Exact: since.Exact, ID: "idle-since"})
	}
	if units := s.idleUnits(d); units > 0 {
		facts = append(facts, view.Fact{Name: "Charged without use", Value: hours(units).Text + " GPU-h of " + hours(d.Charged).Text, Exact: hours(units).Exact, ID: "idle-charged"})
	}
	return facts
}

// idleSpanMs is how far back a group's idle use is added up: 7 days.
const idleSpanMs = 7 * 24 * 3_600_000

func (s *server) idleUse(r *http.Request, group ledger.GroupID) (string, error) {
	use, err := s.store.IdleUse(r.Context(), group, idleSpanMs)
	return idleSentence(use), err
}

// idleSentence is what a group's projects were charged without use lately.
func idleSentence(u store.IdleUse) string {
	if u.Amount == 0 {
		return ""
	}
	return hours(u.Amount).Text + " GPU-h, " + percent(ratio(u.Amount, u.Of)) + " of what attempts of the last 7 days were charged, went to " +
		counted(int(u.Jobs), "job", "jobs") + " that did not use their GPUs."
}
