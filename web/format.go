package web

import (
	"fmt"
	"strconv"
	"time"

	"tranche/ledger"
	"tranche/web/view"
)

// hours shows an amount in GPU-h, its exact value on hover.
func hours(a ledger.Amount) view.Num {
	return view.Num{Text: a.Hours(), Exact: a.Exact() + " GPU-h"}
}

// signed shows a change of an amount: "+12", "−3.5".
func signed(a ledger.Amount) view.Num {
	n := hours(a)
	if a > 0 {
		n.Text = "+" + n.Text
	}
	return n
}

// clock is the time of day in the accounting zone: "14:20:05 CET".
func (s *server) clock(at ledger.Instant) string { return at.Time().In(s.zone).Format("15:04:05 MST") }

// day is a date in the accounting zone, as date fields hold it: "2026-11-30".
func (s *server) day(at ledger.Instant) string {
	if at == 0 {
		return ""
	}
	return at.Time().In(s.zone).Format(time.DateOnly)
}

// dayText is a date in the accounting zone for people: "31 December 2026".
func (s *server) dayText(at ledger.Instant) string {
	return at.Time().In(s.zone).Format("2 January 2006")
}

// lastDay is the last day of a half-open span: the day before its end.
func (s *server) lastDay(end ledger.Instant) string {
	if end == 0 {
		return ""
	}
	return s.day(end - 1)
}

// when shows an instant: relative to now in lists, exact with its zone on hover.
func (s *server) when(at ledger.Instant) view.When {
	if at == 0 {
		return view.When{}
	}
	return view.When{Text: relative(at, s.store.Now(), s.zone), Exact: s.exact(at)}
}

// exact is an instant to the second with its zone.
func (s *server) exact(at ledger.Instant) string {
	return at.Time().In(s.zone).Format("2006-01-02 15:04:05 MST")
}

// until shows the last instant of a half-open span: "through 31 December".
func (s *server) until(end ledger.Instant) view.When {
	if end == 0 {
		return view.When{}
	}
	last := (end - 1).Time().In(s.zone)
	return view.When{Text: last.Format("2 January 2006"), Exact: "until " + s.exact(end)}
}

// relative says how far away an instant is; beyond a week it is a date.
func relative(at, now ledger.Instant, zone *time.Location) string {
	ms := now.MillisSince(at)
	past := ms >= 0
	if !past {
		ms = -ms
	}
	var text string
	switch {
	case ms < 60_000:
		text = "moments"
	case ms < 3_600_000:
		text = fmt.Sprintf("%d min", ms/60_000)
	case ms < 86_400_000:
		text = fmt.Sprintf("%d h", ms/3_600_000)
	case ms < 7*86_400_000:
		text = plural(ms/86_400_000, "day")
	default:
		return at.Time().In(zone).Format("2 January 2006")
	}
	if past {
		return text + " ago"
	}
	return "in " + text
}

// plural counts things: "1 day", "3 days".
func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

// counted is a number with what it counts and does: "1 job waits", "3 jobs wait".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// percent shows parts per million, rounded to hundredths: "35 %", "35.5 %".
func percent(ppm int64) string {
	cents := (ppm + 50) / 100
	whole, rest := cents/100, cents%100
	switch {
	case rest == 0:
		return strconv.FormatInt(whole, 10) + " %"
	case rest%10 == 0:
		return fmt.Sprintf("%d.%d %%", whole, rest/10)
	}
	return fmt.Sprintf("%d.%02d %%", whole, rest)
}

// ratio gives part of whole in ppm; 0 of nothing.
func ratio(part, whole ledger.Amount) int64 {
	if whole <= 0 || part <= 0 {
		return 0
	}
	ppm, err := part.MulRatio(1_000_000, int64(whole))
	if err != nil {
		return 0
	}
	return int64(ppm)
}

// idText writes an identity as form values hold it.
func idText[T ~int64](id T) string { return strconv.FormatInt(int64(id), 10) }
