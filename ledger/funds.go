package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Lot is one award's GPU-hours in a project's ledger, usable in [First, Last).
type Lot struct {
	ID        LotID    `json:"id"`
	Project   GroupID  `json:"project"`
	Pool      PoolID   `json:"pool"`
	Period    PeriodID `json:"period"`
	First     Instant  `json:"first"`
	Last      Instant  `json:"last"`
	Available Amount   `json:"available"` // balance of the lot's Available account
}

// ValidAt says whether the lot may pay for the instant. It follows from the
// clock alone: no sweep has to run for a lot to be over.
func (l Lot) ValidAt(at Instant) bool { return l.First <= at && at < l.Last }

// Account is the lot's account of a kind that exists per lot.
func (l Lot) Account(kind AccountKind) Account {
	return Account{Kind: kind, Pool: l.Pool, Period: l.Period, Group: l.Project, Lot: l.ID}
}

// PathLimit is the counter of one ancestor program with an overcommit factor
// above 1: what everything below it may have spent and held in one period.
type PathLimit struct {
	Program GroupID  `json:"program"`
	Path    string   `json:"path"` // for sentences: "limited by program /lab/vision"
	Pool    PoolID   `json:"pool"`
	Period  PeriodID `json:"period"`
	Limit   Amount   `json:"limit"` // units the program received
	Used    Amount   `json:"used"`  // spent + held below it
}

// Funds is what a hold is checked against: a project's lots in one pool and the
// counters of its overcommitted ancestors.
type Funds struct {
	Project GroupID     `json:"project"`
	Path    string      `json:"path"`
	Pool    PoolID      `json:"pool"`
	Lots    []Lot       `json:"lots"`             // any order; Draw orders by (Last, ID)
	Limits  []PathLimit `json:"limits,omitempty"` // of every period a lot belongs to
}

// Piece is the part of a hold that one lot covers. Pieces of an attempt are in
// the order of its elapsed time; Spent + Released ≤ Amount.
type Piece struct {
	Lot      LotID  `json:"lot"`
	Amount   Amount `json:"amount"`
	Spent    Amount `json:"spent,omitempty"`
	Released Amount `json:"released,omitempty"`
}

// rest is what the piece still holds.
func (p Piece) rest() Amount { return p.Amount - p.Spent - p.Released }

// Outstanding is what pieces still hold: neither spent nor released.
func Outstanding(pieces []Piece) Amount {
	var sum Amount
	for _, p := range pieces {
		sum += p.rest()
	}
	return sum
}

// ExtendHold appends the pieces of a further hold to an attempt's pieces, in a
// new slice. A piece that goes on with the last lot is joined to it, so that a
// week of 15-minute holds stays one row.
func ExtendHold(hold, more []Piece) []Piece {
	out := slices.Clone(hold)
	for _, p := range more {
		if n := len(out); n > 0 && out[n-1].Lot == p.Lot && out[n-1].Released == 0 {
			out[n-1].Amount += p.Amount
			out[n-1].Spent += p.Spent
			out[n-1].Released = p.Released
			continue
		}
		out = append(out, p)
	}
	return out
}

// Draw covers an attempt's elapsed milliseconds [fromMs, toMs) with lots: the
// amount is rate.Cum(toMs) − rate.Cum(fromMs), cut wherever a lot begins or ends,
// each part taken from the lots valid then, earliest expiry first, then id, and
// within the limits of every ancestor for the lot's period. A millisecond belongs
// to the lots valid when it begins. Success deducts from f, so that several holds
// of one cycle see each other. Otherwise f stays as it was and the refusal, of
// kind Short, says in GPU-hours what is needed, available and short, and who
// limits it.
func (f *Funds) Draw(rate Tariff, start Instant, fromMs, toMs int64) ([]Piece, *Refusal) {
	order := f.byExpiry()
	work := Funds{Project: f.Project, Path: f.Path, Pool: f.Pool, Lots: slices.Clone(f.Lots), Limits: slices.Clone(f.Limits)}
	var pieces []Piece
	var short Amount
	var limitedBy string
	var gap Instant
	cuts := f.cuts(start, fromMs, toMs)
	for i := 0; i+1 < len(cuts); i++ {
		need := rate.Cum(cuts[i+1]) - rate.Cum(cuts[i])
		at := start.Add(cuts[i])
		for _, n := range order {
			lot := &work.Lots[n]
			if need == 0 || !lot.ValidAt(at) {
				continue
			}
			if part := min(need, lot.Available, work.headroom(lot.Period)); part > 0 {
				work.take(lot, part)
				need -= part
				pieces = ExtendHold(pieces, []Piece{{Lot: lot.ID, Amount: part}})
			}
		}
		if need > 0 {
			if short == 0 {
				_, limitedBy = work.Usable(at)
				gap = at
			}
			short += need
		}
	}
	if short > 0 {
		return nil, f.shortRefusal(rate.Cum(toMs)-rate.Cum(fromMs), short, limitedBy, gap)
	}
	f.Lots, f.Limits = work.Lots, work.Limits
	return pieces, nil
}

// GiveBack returns what pieces still hold to the lots and counters they were
// drawn from, as when a nomination is dropped or a claim recomputes its hold.
// Pieces of lots that f does not have are left alone.
func (f *Funds) GiveBack(pieces []Piece) {
	for _, p := range pieces {
		for i := range f.Lots {
			if lot := &f.Lots[i]; lot.ID == p.Lot {
				f.take(lot, -p.rest())
			}
		}
	}
}

// Usable is what a hold could draw at an instant, and who limits it: per period
// the smaller of what the valid lots have left and of what each overcommitted
// ancestor leaves. The binding group is the ancestor that cuts most, else the
// project itself.
func (f *Funds) Usable(at Instant) (Amount, string) {
	type sum struct {
		period PeriodID
		amount Amount
	}
	var sums []sum
	for _, lot := range f.Lots {
		if !lot.ValidAt(at) {
			continue
		}
		i := slices.IndexFunc(sums, func(s sum) bool { return s.period == lot.Period })
		if i < 0 {
			sums, i = append(sums, sum{period: lot.Period}), len(sums)
		}
		sums[i].amount += lot.Available
	}
	var total, cut Amount
	limitedBy := sentenceGroup(f.Path, f.Project)
	for _, s := range sums {
		usable := s.amount
		for _, l := range f.Limits {
			if left := max(0, l.Limit-l.Used); l.Period == s.period {
				usable = min(usable, left)
				if s.amount-left > cut {
					cut, limitedBy = s.amount-left, sentenceGroup(l.Path, l.Program)
				}
			}
		}
		total += usable
	}
	return total, limitedBy
}

// byExpiry gives the indices of f.Lots, earliest expiry first, then id.
func (f *Funds) byExpiry() []int {
	order := make([]int, len(f.Lots))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := f.Lots[a], f.Lots[b]
		return cmp.Or(cmp.Compare(x.Last, y.Last), cmp.Compare(x.ID, y.ID))
	})
	return order
}

// cuts gives fromMs, toMs and every elapsed millisecond between them at which
// some lot begins or ends, ascending.
func (f *Funds) cuts(start Instant, fromMs, toMs int64) []int64 {
	cuts := []int64{fromMs, toMs}
	for _, lot := range f.Lots {
		for _, edge := range [2]Instant{lot.First, lot.Last} {
			// The first millisecond that begins at or after the edge.
			ms := -start.MillisSince(edge)
			if fromMs < ms && ms < toMs {
				cuts = append(cuts, ms)
			}
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// headroom is the least that f's ancestors leave in a period, never below 0.
func (f *Funds) headroom(period PeriodID) Amount {
	least := Amount(1<<63 - 1)
	for _, l := range f.Limits {
		if l.Period == period {
			least = min(least, max(0, l.Limit-l.Used))
		}
	}
	return least
}

// take moves an amount out of a lot into every counter of its period.
func (f *Funds) take(lot *Lot, amount Amount) {
	lot.Available -= amount
	for i := range f.Limits {
		if f.Limits[i].Period == lot.Period {
			f.Limits[i].Used += amount
		}
	}
}

// shortRefusal words what a hold lacks.
func (f *Funds) shortRefusal(needed, short Amount, limitedBy string, gap Instant) *Refusal {
	return refuse(Short, "funds.short", "", "Short "+short.Hours()+" GPU-h of "+needed.Hours()+" GPU-h, limited by "+limitedBy+".",
		"needed", needed.Exact(), "available", (needed - short).Exact(), "short", short.Exact(),
		"limited_by", limitedBy, "uncovered_from", gap.Time().Format(time.RFC3339))
}
