package view

import (
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
)

// nnbsp is the narrow no-break space that groups thousands and joins a number
// to its unit.
const nnbsp = "\u202f"

// GPUh is an amount as a number of GPU-hours: grouped thousands, at most two
// decimals; the exact value for hover and copies.
func GPUh(a ledger.Amount) Num { return Num{Text: hours(a), Exact: exactHours(a)} }

// hours rounds half away from zero to hundredths of a GPU-hour for the eye; what
// is charged is never taken from here.
func hours(a ledger.Amount) string {
	sign, u := "", uint64(a)
	if a < 0 {
		sign, u = "−", -u
	}
	const hundredth = uint64(ledger.GPUHour) / 100
	c := (u + hundredth/2) / hundredth
	if c == 0 && u > 0 {
		return sign + "<0.01"
	}
	s := sign + Group(int64(c/100))
	if f := c % 100; f > 0 {
		s += "." + pad2(f)
	}
	return s
}

// exactHours is the whole value with as many decimals as it needs and no
// grouping, so that a copy can be pasted into a sheet.
func exactHours(a ledger.Amount) string {
	sign, u := "", uint64(a)
	if a < 0 {
		sign, u = "-", -u
	}
	const hour = uint64(ledger.GPUHour)
	s := sign + strconv.FormatUint(u/hour, 10)
	rest := u % hour
	if rest == 0 {
		return s
	}
	// 1/3,600,000 of an hour has no finite decimal: ten digits tell units apart.
	frac := strconv.FormatUint(rest*10_000_000_000/hour, 10)
	return s + "." + strings.TrimRight(strings.Repeat("0", 10-len(frac))+frac, "0")
}

// Group writes a whole number with thin spaces between thousands.
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "−", s[1:]
	}
	out := ""
	for len(s) > 3 {
		out = nnbsp + s[len(s)-3:] + out
		s = s[:len(s)-3]
	}
	return sign + s + out
}

func pad2(n uint64) string {
	if n < 10 {
		return "0" + strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10)
}

// At writes an instant for people: relative to now for lists, exact with its
// zone for hover and detail. The zero instant gives an empty When.
func At(i, now ledger.Instant, zone *time.Location) When {
	if i == 0 {
		return When{}
	}
	exact := i.Time().In(zone).Format("2006-01-02 15:04:05 MST")
	ms := now.MillisSince(i)
	if ms < 0 {
		return When{Text: "in " + Span(-ms), Exact: exact}
	}
	if ms < 60_000 {
		return When{Text: "just now", Exact: exact}
	}
	return When{Text: Span(ms) + " ago", Exact: exact}
}

// Clock writes "14:20:05 CET", for the as-of line.
func Clock(i ledger.Instant, zone *time.Location) string {
	return i.Time().In(zone).Format("15:04:05 MST")
}

// Day writes "31 Dec 2026". Days end at 24:00, so the last day of a
// half-open interval is the day of the instant before its end.
func Day(i ledger.Instant, zone *time.Location) string {
	return i.Time().In(zone).Format("2 Jan 2006")
}

// Span writes a duration given in milliseconds with its two largest units:
// "45 s", "12 min", "3 h 20 min", "2 days 4 h".
func Span(ms int64) string {
	s := ms / 1000
	switch {
	case s < 60:
		return strconv.FormatInt(s, 10) + " s"
	case s < 3600:
		return strconv.FormatInt(s/60, 10) + " min"
	case s < 24*3600:
		return two(s/3600, "h", s%3600/60, "min")
	case s < 48*3600:
		return two(1, "day", (s-24*3600)/3600, "h")
	}
	return two(s/(24*3600), "days", s%(24*3600)/3600, "h")
}

func two(a int64, ua string, b int64, ub string) string {
	s := strconv.FormatInt(a, 10) + " " + ua
	if b > 0 {
		s += " " + strconv.FormatInt(b, 10) + " " + ub
	}
	return s
}
