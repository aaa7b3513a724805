package view

import (
	"fmt"
	"strconv"
	"strings"

	"tranche/ledger"
)

// LineChart is one number over time, in millionths.
type LineChart struct {
	Label  string // "24 h"
	Name   string // of the number
	From   ledger.Instant
	To     ledger.Instant
	GapMs  int64 // points further apart are not joined
	Points []ChartPoint
	Stall  bool // drawn in the mark of stall
}

// ChartPoint is one point; PPM is 0 to 1,000,000.
type ChartPoint struct {
	At  ledger.Instant
	PPM int64
}

// top is what the chart's height stands for: the next of 1, 2, 5, 10, ... percent.
func (c *LineChart) top() int64 {
	most := int64(0)
	for _, p := range c.Points {
		most = max(most, p.PPM)
	}
	for _, nice := range []int64{10_000, 20_000, 50_000, 100_000, 200_000, 500_000} {
		if most <= nice {
			return nice
		}
	}
	return 1_000_000
}

// spans are the points that hang together, each as places in the picture.
func (c *LineChart) spans() (out [][][2]int64) {
	top := c.top()
	for i, p := range c.Points {
		at := [2]int64{scale(int64(p.At-c.From), int64(c.To-c.From)), 1000 - scale(p.PPM, top)*94/1000} // a little room above, so that the line is seen at the top
		if i == 0 || p.At.MillisSince(c.Points[i-1].At) > c.GapMs {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], at)
	}
	return out
}

// line is the path through the points; one alone is a dot.
func (c LineChart) line() string {
	var b strings.Builder
	for _, span := range c.spans() {
		for i, at := range span {
			b.WriteString(map[bool]string{true: "M", false: "L"}[i == 0])
			fmt.Fprintf(&b, "%d %d", at[0], at[1])
		}
		if len(span) == 1 {
			b.WriteString("h1")
		}
	}
	return b.String()
}

// area is what lies below the line.
func (c LineChart) area() string {
	var b strings.Builder
	for _, span := range c.spans() {
		if len(span) < 2 {
			continue
		}
		fmt.Fprintf(&b, "M%d 1000", span[0][0])
		for _, at := range span {
			fmt.Fprintf(&b, "L%d %d", at[0], at[1])
		}
		fmt.Fprintf(&b, "V1000z")
	}
	return b.String()
}

// extent is what the chart spans in height, or that there is nothing yet.
func (c LineChart) extent() string {
	if len(c.Points) == 0 {
		return "nothing yet"
	}
	return "0 to " + strconv.FormatInt(c.top()/10_000, 10) + " %"
}

// text is the chart in words, its accessible name.
func (c LineChart) text() string {
	if len(c.Points) == 0 {
		return c.Name + " over " + c.Label + ": nothing measured yet"
	}
	least, most := c.Points[0].PPM, c.Points[0].PPM
	for _, p := range c.Points {
		least, most = min(least, p.PPM), max(most, p.PPM)
	}
	return c.Name + " over " + c.Label + ": from " + tenths(least) + " to " + tenths(most) + ", last " + tenths(c.Points[len(c.Points)-1].PPM)
}

// tenths writes millionths in percent to a tenth.
func tenths(ppm int64) string {
	n := (ppm + 500) / 1000
	return strconv.FormatInt(n/10, 10) + "." + strconv.FormatInt(n%10, 10) + " %"
}
