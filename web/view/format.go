package view

import (
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
)

// gpuh is an amount of a picture as a number with its exact value.
func gpuh(a ledger.Amount) Num { return Num{Text: a.Hours(), Exact: a.Exact()} }

// group writes a whole number with narrow no-break spaces between thousands.
func group(n int) string {
	s := strconv.Itoa(n)
	out := ""
	for len(s) > 3 && s[len(s)-4] != '-' {
		out = "\u202f" + s[len(s)-3:] + out
		s = s[:len(s)-3]
	}
	return s + out
}

// count is a number of things: "1 line", "1 204 lines".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return group(n) + " " + thing
}

// zero hides a count that says nothing.
func zero(n int) string {
	if n == 0 {
		return "–"
	}
	return group(n)
}

// dash stands for a value that is not there.
func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// commaed joins what is there with a comma.
func commaed(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

func orDash(n Num) Num {
	if n.Text == "" {
		return Num{Text: "–"}
	}
	return n
}

// pad is what the style sheet sets behind a number of an account table, so that
// decimal points stand below each other; the text itself stays as it is.
func (n Num) pad() string {
	if n.Text == "" {
		return ""
	}
	if last := n.Text[len(n.Text)-1]; last < '0' || last > '9' {
		return ""
	}
	_, decimals, point := strings.Cut(n.Text, ".")
	switch {
	case !point:
		return ".00"
	case len(decimals) == 1:
		return "0"
	}
	return ""
}

// bare is the exact value without its unit: what copies and form fields hold.
func (n Num) bare() string { return strings.TrimSuffix(n.Exact, " GPU-h") }

// depth is the indentation class of a tree row; the sheet knows 0 to 6.
func depth(n int) string { return strconv.Itoa(min(max(n, 0), 6)) }
