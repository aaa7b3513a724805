package ledger

import (
	"slices"
	"strconv"
)

// SplitChild is one child of a program and what it is to have. Percent and units
// are alternatives: PPM when ByPPM, else Want.
type SplitChild struct {
	Group   GroupID
	Path    string
	Account Account // its pot, or the Available account of its split lot
	Now     Amount  // what it has from this pot
	Balance Amount  // of Account: what a decrease may take back at most
	ByPPM   bool
	PPM     int64  // of what the parent received; 250,000 = 25 %
	Want    Amount // new total
}

// SplitInput is a new version of how a program's pot is divided. Children that
// are not named keep what they have and are not passed.
type SplitInput struct {
	Program   GroupID
	Path      string
	Pool      PoolID
	Period    PeriodID
	Received  Amount // what the program's pot received
	Balance   Amount // of its pot
	FactorPPM int64  // overcommit; 1,000,000 = 1.00
	Children  []SplitChild
	Version   int64 // the version that was read
	Latest    int64 // the version there is
	Actor     Actor
	Now       Instant
}

// SplitAmount is a child's total after a split.
type SplitAmount struct {
	Group  GroupID
	Before Amount
	After  Amount
}

// SplitField names the form field of one child's part.
func SplitField(child GroupID) string { return "part." + strconv.FormatInt(int64(child), 10) }

// Split divides a pot among children. Parts in percent are apportioned together,
// so that they add up to their common percentage of the pot exactly. Decreases
// come first in the entry and increases after. It is refused when the actor may
// not split there or leads a project that gains, when someone split in between,
// when a decrease would take more than the child still has, or when the pot is
// short. An entry without transfers means that nothing changes.
func Split(in SplitInput) (Entry, []SplitAmount, Refusals) {
	if r := in.Actor.May(SplitWrite, in.Path, in.Now); r != nil {
		return Entry{}, nil, Refusals{r}
	}
	if in.Version != in.Latest {
		return Entry{}, nil, Refusals{refuse(Conflict, "split.version", "", "Someone else split this pot after you opened the page. Reload it and split again.",
			"version", strconv.FormatInt(in.Latest, 10), "read", strconv.FormatInt(in.Version, 10))}
	}
	amounts, rs := splitAmounts(in)
	if len(rs) > 0 {
		return Entry{}, nil, rs
	}
	key := "split:program:" + strconv.FormatInt(int64(in.Program), 10) + ":pool:" + strconv.FormatInt(int64(in.Pool), 10) +
		":period:" + strconv.FormatInt(int64(in.Period), 10) + ":version:" + strconv.FormatInt(in.Latest+1, 10)
	e := Entry{Key: key, Kind: "split", At: in.Now, Period: in.Period, Actor: in.Actor.Person}
	pot := PotAccount(in.Program, in.Pool, in.Period)
	var net Amount
	for i, a := range amounts {
		child := in.Children[i]
		sum, err := net.Add(a.After - a.Before)
		if err != nil {
			return Entry{}, nil, Refusals{refuse(Invalid, "split.too_large", "", "These parts are too large to count.")}
		}
		net = sum
		if back := a.Before - a.After; back > 0 {
			rs = child.refuseDecrease(rs, back)
			e.add(child.Account, pot, back)
		}
		if a.After > a.Before && in.Actor.Leads(child.Path, in.Now) {
			rs = append(rs, refuse(Denied, "split.leads", SplitField(child.Group), "You lead "+child.Path+", so another manager must give it more."))
		}
	}
	for i, a := range amounts {
		if more := a.After - a.Before; more > 0 {
			e.add(pot, in.Children[i].Account, more)
		}
	}
	facts := PotFacts{Program: in.Program, Path: in.Path, Balance: in.Balance, Floor: PotFloor(in.Received, in.FactorPPM)}
	if r := facts.shortOf("", net); net > 0 && r != nil {
		rs = append(rs, r)
	}
	if len(rs) > 0 {
		return Entry{}, nil, rs
	}
	return e, amounts, nil
}

// splitAmounts gives each child's new total, in the order of in.Children.
func splitAmounts(in SplitInput) ([]SplitAmount, Refusals) {
	var rs Refusals
	var percents []int64
	out := make([]SplitAmount, len(in.Children))
	var sumPPM int64
	for i, c := range in.Children {
		out[i] = SplitAmount{Group: c.Group, Before: c.Now, After: c.Want}
		field := SplitField(c.Group)
		switch {
		case slices.ContainsFunc(in.Children[:i], func(o SplitChild) bool { return o.Group == c.Group }):
			rs = append(rs, refuse(Invalid, "split.twice", field, c.Path+" is named twice."))
		case c.ByPPM && (c.PPM < 0 || c.PPM > 10_000_000):
			rs = append(rs, refuse(Invalid, "split.percent", field, "A part must be between 0 and 1,000 %."))
		case !c.ByPPM && c.Want < 0:
			rs = append(rs, refuse(Invalid, "split.negative", field, "A part cannot be negative."))
		case c.ByPPM:
			percents = append(percents, c.PPM)
			sumPPM += c.PPM
		}
	}
	if len(rs) > 0 {
		return nil, rs
	}
	total, err := in.Received.MulRatio(sumPPM, 1_000_000)
	if err != nil {
		return nil, Refusals{refuse(Invalid, "split.too_large", "", "These parts are too large to count.")}
	}
	if sumPPM > 0 {
		parts := Apportion(total, percents)
		for i, c := range in.Children {
			if c.ByPPM {
				out[i].After, parts = parts[0], parts[1:]
			}
		}
	}
	return out, nil
}

// refuseDecrease adds a refusal when a child no longer has what is taken back.
func (c SplitChild) refuseDecrease(rs Refusals, back Amount) Refusals {
	left := max(0, c.Balance)
	if back <= left {
		return rs
	}
	least := c.Now - left
	return append(rs, refuse(Short, "split.given_on", SplitField(c.Group),
		c.Path+" has already given on, set aside or spent "+least.Hours()+" GPU-h; it cannot go below that.",
		"needed", back.Exact(), "available", left.Exact(), "short", (back-left).Exact(), "limited_by", c.Path))
}
