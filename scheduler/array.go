package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
)

// Bounds of an array.
const (
	MostArrayJobs  = 10_000
	mostArrayIndex = 999_999
	mostArrayText  = 4_096 // bytes
)

// Array says which indices the jobs of one submission have, and how many of them
// may go at once; nil is one job without an index.
type Array struct {
	Text    string  // the indices as written, without spaces and the limit
	Indices []int32 // ascending, each once
	AtOnce  int     // jobs that may be queued or live at once; 0 = all
}

// Size is how many jobs a submission makes.
func (a *Array) Size() int64 {
	if a == nil {
		return 1
	}
	return int64(len(a.Indices))
}

// ParseArray reads indices and the limit: "0-99%8", "1-9:2,12". An empty text is
// no array.
func ParseArray(text string) (*Array, *ledger.Refusal) {
	text = strings.Join(strings.Fields(text), "")
	if text == "" {
		return nil, nil
	}
	invalid := func(detail string) *ledger.Refusal {
		return &ledger.Refusal{Kind: ledger.Invalid, Code: "job.array", Field: "array", Detail: detail}
	}
	if len(text) > mostArrayText {
		return nil, invalid(fmt.Sprintf("Write the indices in at most %d characters.", mostArrayText))
	}
	ranges, limit, limited := strings.Cut(text, "%")
	a := &Array{Text: ranges}
	if limited {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > MostArrayJobs {
			return nil, invalid(fmt.Sprintf("After %% write how many may run at once, 1 to %d: 0-99%%8.", MostArrayJobs))
		}
		a.AtOnce = n
	}
	for part := range strings.SplitSeq(ranges, ",") {
		first, last, step, ok := parseRange(part)
		if !ok {
			return nil, invalid(fmt.Sprintf("“%.40s” is no index: write 0-99, 1-9:2 for every second, or 3,7,12; from 0 to %d.", part, mostArrayIndex))
		}
		if len(a.Indices)+(last-first)/step >= MostArrayJobs {
			return nil, invalid(fmt.Sprintf("An array has at most %d jobs; hand in the rest as another one.", MostArrayJobs))
		}
		for i := first; i <= last; i += step {
			a.Indices = append(a.Indices, int32(i))
		}
	}
	slices.Sort(a.Indices)
	a.Indices = slices.Compact(a.Indices)
	return a, nil
}

// parseRange reads "7", "0-99" or "1-9:2".
func parseRange(text string) (first, last, step int, ok bool) {
	span, by, stepped := strings.Cut(text, ":")
	from, to, ranged := strings.Cut(span, "-")
	number := func(s string, least int) (n int) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > mostArrayIndex || s[0] == '+' {
			ok = false
		}
		return n
	}
	ok = ranged || !stepped
	first, step = number(from, 0), 1
	last = first
	if ranged {
		last = number(to, first)
	}
	if stepped {
		step = number(by, 1)
	}
	return first, last, step, ok
}

// Room is how many more jobs of an array may join those that are queued or live.
// What is over the limit stays outside the queue: no cycle can break it.
func Room(size, atOnce, going int) int {
	if atOnce == 0 {
		return size
	}
	return max(0, atOnce-going)
}
