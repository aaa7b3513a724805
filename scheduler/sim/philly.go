package sim

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/ledger"
)

// PhillyJob is one row of the flat job table of Microsoft's Philly trace (2017).
type PhillyJob struct {
	Line       int            // 1-based line of the file; the header is line 1
	Submitted  ledger.Instant // the trace's local clock, read as UTC
	DurationMs int64          // how long the job ran, > 0
	GPUs       int64          // ≥ 1
	Cluster    string         // virtual cluster: the tenant
}

// phillyColumns are the columns the reader needs, by name; others may stand between them.
var phillyColumns = [...]string{"timestamp", "duration", "num_gpus", "cluster"}

// maxPhillyLine bounds one line of a trace, bytes.
const maxPhillyLine = 1 << 16

// MalformedLine names the first line that a trace reader could not take.
type MalformedLine struct {
	Line int
	Why  string
}

func (m *MalformedLine) Error() string {
	return fmt.Sprintf("line %d of the trace is malformed: %s", m.Line, m.Why)
}

// ReadPhilly reads a whole job table and gives its jobs ordered by submission,
// then line. Blank lines are not malformed. A malformed line is refused with
// *MalformedLine, or left out and counted in skipped when lenient.
func ReadPhilly(r io.Reader, lenient bool) (jobs []PhillyJob, skipped int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxPhillyLine)
	var at [len(phillyColumns)]int
	width, number := 0, 0
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		fields := strings.Split(text, ",")
		if width == 0 {
			if at, err = phillyHeader(fields); err != nil {
				return nil, 0, err
			}
			width = len(fields)
			continue
		}
		job, why := phillyRow(fields, width, at)
		switch {
		case why == "":
			job.Line = number
			jobs = append(jobs, job)
		case lenient:
			skipped++
		default:
			return nil, 0, &MalformedLine{number, why}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("read line %d of the trace: %w", number+1, err)
	}
	if width == 0 {
		return nil, 0, fmt.Errorf("the trace is empty: a header line with %s was expected", strings.Join(phillyColumns[:], ", "))
	}
	slices.SortFunc(jobs, func(a, b PhillyJob) int {
		if a.Submitted != b.Submitted {
			return cmpInstant(a.Submitted, b.Submitted)
		}
		return a.Line - b.Line
	})
	return jobs, skipped, nil
}

func cmpInstant(a, b ledger.Instant) int {
	if a < b {
		return -1
	}
	return 1
}

// phillyHeader finds the needed columns by name.
func phillyHeader(fields []string) (at [len(phillyColumns)]int, err error) {
	for i, name := range phillyColumns {
		at[i] = slices.Index(fields, name)
		if at[i] < 0 {
			return at, fmt.Errorf("the trace's header has no column %q", name)
		}
	}
	return at, nil
}

// phillyRow reads one row; why is "" when it is well-formed.
func phillyRow(fields []string, width int, at [len(phillyColumns)]int) (job PhillyJob, why string) {
	if len(fields) != width {
		return job, fmt.Sprintf("%d columns instead of %d", len(fields), width)
	}
	value := func(i int) string { return strings.TrimSpace(fields[at[i]]) }
	submitted, err := time.Parse(time.DateTime, value(0))
	if err != nil {
		return job, fmt.Sprintf("timestamp %q is not YYYY-MM-DD HH:MM:SS", value(0))
	}
	ms, ok := secondsToMs(value(1))
	if !ok || ms <= 0 {
		return job, fmt.Sprintf("duration %q is not a positive number of seconds", value(1))
	}
	gpus, err := strconv.ParseInt(value(2), 10, 32)
	if err != nil || gpus < 1 {
		return job, fmt.Sprintf("num_gpus %q is not a whole number above 0", value(2))
	}
	if value(3) == "" {
		return job, "cluster is empty"
	}
	return PhillyJob{Submitted: ledger.At(submitted), DurationMs: ms, GPUs: gpus, Cluster: value(3)}, ""
}

// secondsToMs reads decimal seconds such as "66.0" exactly; digits past the
// millisecond are cut.
func secondsToMs(text string) (ms int64, ok bool) {
	whole, part, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<40 {
		return 0, false
	}
	for _, digit := range part {
		if digit < '0' || digit > '9' {
			return 0, false
		}
	}
	if len(part) > 3 {
		part = part[:3]
	}
	thousandths, err := strconv.ParseInt(part+strings.Repeat("0", 3-len(part)), 10, 64)
	if err != nil {
		return 0, false
	}
	return seconds*1000 + thousandths, true
}
