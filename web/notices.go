package web

import (
	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
)

// notices are what an attempt's command is told, in the words of the job's page:
// the newest warning, the answer to a request for new protection, why it stops.
func (s *server) notices(o *store.Order, lookbackMs int64) []string {
	names := s.names(&store.JobLine{Title: o.Title}, o.Names)
	var out []string
	if w := o.Run.Warning(); w != nil {
		out = append(out, "Protected for another "+ledger.FormatMillis(w.LeftMs)+". "+scheduler.WarningSentence(w, lookbackMs, names))
	}
	if answer := o.Run.Answer(); answer != nil {
		out = append(out, scheduler.RenewalSentence(answer, lookbackMs, names))
	}
	if o.Stop {
		out = append(out, s.whyStopped(&store.JobDetail{Policy: scheduler.Policy{LookbackMs: lookbackMs}}, &o.Run, names))
	}
	return out
}
