package view

import (
	"fmt"
	"strconv"
	"time"

	"tranche/ledger"
)

// Pictures are laid out in basis points of their width: 10,000 is the whole.
// SVG takes them as percentages, so that a bar fits any width without a script
// and hatches keep their scale.
const whole int64 = 10_000

// pct writes basis points as an SVG percentage, "12.34%".
func pct(bp int64) string {
	sign := ""
	if bp < 0 {
		sign, bp = "-", -bp
	}
	return fmt.Sprintf("%s%d.%02d%%", sign, bp/100, bp%100)
}

// scale gives n/of in basis points, at most the whole; 0 when of is 0.
func scale(n, of int64) int64 {
	if of <= 0 || n <= 0 {
		return 0
	}
	if n >= of {
		return whole
	}
	for of > 1<<48 { // keeps n × whole inside int64; a picture needs no more
		of, n = of>>4, n>>4
	}
	return n * whole / of
}

// part is one piece of a bar: from X, W wide, in basis points.
type part struct {
	Mark   Mark
	X, W   int64
	Name   string
	Amount ledger.Amount
}

// visible is the least width of a part that is not zero, in basis points.
const visible int64 = 100

// parts lays the bar out: the pieces lie edge to edge, add up to the whole, and
// none that is above zero vanishes. More used than awarded widens the scale.
func (b BudgetBar) parts() []part {
	usable := b.Total - b.Spent - b.Running - b.Held - b.Limited - b.Expired
	if usable < 0 {
		usable = 0
	}
	used, rest := "spent", "usable"
	if b.Pot {
		used, rest = "handed out", "left"
	}
	ps := []part{
		{Mark: MarkSpent, Name: used, Amount: b.Spent},
		{Mark: MarkRunning, Name: "running", Amount: b.Running},
		{Mark: MarkHeld, Name: "set aside", Amount: b.Held},
		{Mark: MarkUsable, Name: rest, Amount: usable},
		{Mark: MarkLimited, Name: "left, but limited by " + b.LimitedBy, Amount: b.Limited},
		{Mark: MarkExpired, Name: "expired", Amount: b.Expired},
	}
	total := b.scaleTotal()
	shown := ps[:0]
	cum, at := int64(0), int64(0)
	for _, p := range ps {
		if p.Amount <= 0 {
			continue
		}
		cum += int64(p.Amount)
		p.X = at
		p.W = max(scale(cum, total)-at, visible)
		at = p.X + p.W
		shown = append(shown, p)
	}
	return fit(shown, at)
}

// scaleTotal is what the whole width stands for.
func (b BudgetBar) scaleTotal() int64 {
	return max(int64(b.Total), int64(b.Spent+b.Running+b.Held+b.Limited+b.Expired))
}

// fit takes what the least widths added from the widest part, so that the bar
// ends at the whole.
func fit(ps []part, end int64) []part {
	if end <= whole || len(ps) == 0 {
		return ps
	}
	widest := 0
	for i := range ps {
		if ps[i].W > ps[widest].W {
			widest = i
		}
	}
	ps[widest].W -= end - whole
	for i := widest + 1; i < len(ps); i++ {
		ps[i].X -= end - whole
	}
	return ps
}

// tick is a place on a budget bar given in millionths of Total; beyond says
// that it lies right of the bar.
func (b BudgetBar) tick(ppm int64) (x int64, beyond bool) {
	x = ppm / 100
	if total := b.scaleTotal(); total > int64(b.Total) {
		x = x * scale(int64(b.Total), total) / whole
	}
	return min(x, whole), x > whole
}

// place gives an instant's position on the bar, cut to its ends.
func (b ContractBar) place(i ledger.Instant) int64 {
	if i <= b.From {
		return 0
	}
	return scale(int64(i-b.From), int64(b.To-b.From))
}

// pointPlace is a marker with the row its label stands in: a label that would
// touch the one before it goes one row up.
type pointPlace struct {
	ContractPoint
	X   int64
	Row int
}

// labelRoom is the width a marker's label needs, in basis points.
const labelRoom int64 = 500

func (b ContractBar) points() []pointPlace {
	out := make([]pointPlace, 0, len(b.Points))
	last := [2]int64{-whole, -whole}
	for _, p := range b.Points {
		x := b.place(p.At)
		row := 0
		if x-last[0] < labelRoom && x-last[1] >= labelRoom {
			row = 1
		}
		last[row] = x
		out = append(out, pointPlace{p, x, row})
	}
	return out
}

// axisTick is one label under a time line.
type axisTick struct {
	X     int64
	Text  string
	Minor bool // left out on narrow screens
}

// axisSteps are the distances between labels that read well, in seconds.
var axisSteps = []int64{1, 5, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800}

// axis labels round times: at most 8, every second one minor. Steps of an hour
// and more are counted from midnight in the zone.
func (b ContractBar) axis() []axisTick {
	zone := b.zone()
	span := int64(b.To-b.From) / 1_000_000
	if span <= 0 {
		return nil
	}
	step := axisSteps[len(axisSteps)-1]
	for _, s := range axisSteps {
		if span/s < 8 {
			step = s
			break
		}
	}
	step = max(step, span/8)
	t := b.From.Time().In(zone)
	day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, zone)
	layout := "15:04"
	if step < 60 {
		layout = "15:04:05"
	} else if step >= 86400 {
		layout = "2 Jan"
	}
	var out []axisTick
	first := (t.Unix() - day.Unix() + step - 1) / step
	for n := first; len(out) < 10; n++ {
		i := ledger.At(day.Add(time.Duration(n*step) * time.Second))
		if i > b.To {
			break
		}
		out = append(out, axisTick{X: b.place(i), Text: i.Time().In(zone).Format(layout), Minor: (n-first)%2 == 1})
	}
	return out
}

func (b ContractBar) zone() *time.Location {
	if b.Zone == nil {
		return time.UTC
	}
	return b.Zone
}

// exact writes an instant of the bar with seconds and zone.
func (b ContractBar) exact(i ledger.Instant) string {
	return i.Time().In(b.zone()).Format("2006-01-02 15:04:05 MST")
}

// standingPlace is a row of standing bars in basis points of the common scale.
type standingPlace struct {
	StandingRow
	Used, Committed, Target int64 // widths; Target is the tick's place
	Gap                     int64 // missing up to the tick, 0 when nothing waits for it
}

// places lays all rows out on one scale, so that bars compare with each other.
func (s StandingBars) places() []standingPlace {
	most := int64(0)
	for _, r := range s.Rows {
		most = max(most, int64(r.Usage+r.Commitment), int64(r.Share))
	}
	most += most / 50 // keeps the longest tick off the edge
	out := make([]standingPlace, 0, len(s.Rows))
	for _, r := range s.Rows {
		p := standingPlace{StandingRow: r, Target: scale(int64(r.Share), most)}
		p.Used = scale(int64(r.Usage), most)
		p.Committed = scale(int64(r.Usage+r.Commitment), most) - p.Used
		if end := p.Used + p.Committed; r.Waiting > 0 && end < p.Target {
			p.Gap = p.Target - end
		}
		out = append(out, p)
	}
	return out
}

// Squares of the node grid, in pixels.
const (
	square  = 14
	pitch   = 18 // square and gap
	perLine = 8
)

// cell is the place of the i-th device of a node.
func cell(i int) (x, y int) { return i % perLine * pitch, i / perLine * pitch }

// gridSize is the picture's size for n devices.
func gridSize(n int) (w, h int) {
	lines := (n + perLine - 1) / perLine
	return min(n, perLine)*pitch - (pitch - square) + 2, lines*pitch - (pitch - square) + 2
}

// parts is a pool's occupancy, edge to edge over all devices.
func (p PoolRow) parts() []part {
	all := []struct {
		m    Mark
		name string
		n    int
	}{{MarkProtected, "funded", p.Funded}, {MarkUnfunded, "unfunded", p.Unfunded}, {MarkEnding, "ending", p.Ending}, {MarkIdle, "idle", p.Idle}, {MarkDown, "down", p.Down}}
	var out []part
	cum, at := int64(0), int64(0)
	for _, o := range all {
		if o.n <= 0 {
			continue
		}
		cum += int64(o.n)
		end := scale(cum, int64(p.Devices))
		out = append(out, part{Mark: o.m, X: at, W: end - at, Name: strconv.Itoa(o.n) + " " + o.name})
		at = end
	}
	return out
}

// text is a pool's occupancy in words.
func (p PoolRow) text() string {
	return strconv.Itoa(p.Funded) + " funded, " + strconv.Itoa(p.Unfunded) + " unfunded, " + strconv.Itoa(p.Ending) + " ending, " +
		strconv.Itoa(p.Idle) + " idle, " + strconv.Itoa(p.Down) + " down, of " + strconv.Itoa(p.Devices) + " devices"
}
