package scheduler

import (
	"strconv"
	"strings"

	"tranche/ledger"
)

// RenewalSentence says what an attempt that asked for new protection was told.
func RenewalSentence(r *Renewal, lookbackMs int64, names Names) string {
	if r.Refused == nil {
		text := "New protection is granted until " + names.Instant(r.Until) + "."
		if sum := ledger.Outstanding(r.Hold); sum > 0 {
			text += " " + sum.Hours() + " GPU-h more are set aside."
		}
		return text
	}
	text := "New protection was refused. " + Sentence(r.Refused, lookbackMs, names)
	if r.Rival != nil {
		text += " " + rivalSentence(r.Rival, lookbackMs, names)
	}
	return text
}

// WarningSentence says that protection ends, and who is next.
func WarningSentence(w *Warning, lookbackMs int64, names Names) string {
	text := "Its protection ends at " + names.Instant(w.Until) + "."
	if w.Rival == nil {
		return text + " Nobody who waits now could evict it then. Ask for new protection to be sure."
	}
	return text + " From then on it may be evicted: " + rivalSentence(w.Rival, lookbackMs, names) + " Save your work, or ask for new protection."
}

func rivalSentence(r *Rival, lookbackMs int64, names Names) string {
	job, with := JobName(r.Job), ""
	job = strings.ToUpper(job[:1]) + job[1:]
	switch {
	case r.Rule == V4:
		return job + " has the reserved start and takes its nodes at " + names.Instant(r.At) + " (V4)."
	case r.Others == 1:
		with = " It would take one other attempt's devices as well."
	case r.Others > 1:
		with = " It would take those of " + strconv.Itoa(r.Others) + " others as well."
	}
	if r.Rule == V2 {
		return job + " of the same project is more urgent (V2)." + with
	}
	return job + " is next: " + names.Group(r.Theirs.Group) + " has had " + r.Theirs.Times(lookbackMs) + " × its share with that job and the margin, " +
		names.Group(r.Mine.Group) + " " + r.Mine.Times(lookbackMs) + " × without this one (V3)." + with
}
