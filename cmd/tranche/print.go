package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tranche/web/api"
)

// page collects lines; tabs separate columns.
type page struct{ *tabwriter.Writer }

func (p *page) line(format string, args ...any) {
	fmt.Fprintf(p, format+"\n", args...) // buffered: Flush tells whether it arrived
}

// print writes v as JSON, or for people through text.
func (t *terminal) print(v any, text func(*page)) error {
	if t.JSON {
		return writeJSON(t.Out, v)
	}
	p := &page{tabwriter.NewWriter(t.Out, 0, 8, 2, ' ', 0)}
	text(p)
	return p.Flush()
}

// instant writes a point in time for people, with its zone.
func instant(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

func until(at *time.Time) string {
	if at == nil {
		return ""
	}
	return " until " + instant(*at)
}

// span writes milliseconds of business time for people.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// shape writes what a job asks for.
func shape(j api.Job) string {
	switch {
	case j.GPUs == 0:
		return fmt.Sprintf("%d × %d mCPU", j.Nodes, j.CPUMilli)
	case j.GPUMilli > 0 && j.GPUMilli < 1000:
		return fmt.Sprintf("%d × %d/1000 GPU", j.Nodes, j.GPUMilli)
	}
	return fmt.Sprintf("%d × %d GPU", j.Nodes, j.GPUs)
}

// outcome writes a job's state and, when it is over, how it ended.
func outcome(j api.Job) string {
	s := j.State
	if j.Result != "" && j.Result != j.State {
		s += ", " + j.Result
	}
	if j.Signal != 0 {
		return s + ", signal " + strconv.Itoa(j.Signal)
	}
	if j.ExitCode != nil && *j.ExitCode != 0 {
		return s + ", exit " + strconv.Itoa(*j.ExitCode)
	}
	return s
}

// duration is a span on the command line: Go's form, or whole days as "2d".
type duration struct{ time.Duration }

// UnmarshalText reads "90m", "1h30m" or "2d".
func (d *duration) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 0 || n > 3650 {
			return fmt.Errorf("%q is not a number of days", s)
		}
		d.Duration = time.Duration(n) * 24 * time.Hour
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 90m, 1h30m or 2d", s)
	}
	d.Duration = v
	return nil
}

// millis gives an optional duration as the wire wants it.
func (d *duration) millis() *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
