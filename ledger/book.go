package ledger

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Balance is one account's balance (credits − debits) with the bounds that code
// decides it must keep. Pots of overcommitted programs have a floor below 0.
type Balance struct {
	Account Account
	Amount  Amount
	Floor   Amount
	Ceiling Amount
}

// NewBalance is an account at 0 with the bounds of its kind: money comes from
// Supply, Credit and Overrun, which are never positive; every other account is
// never negative.
func NewBalance(a Account) Balance {
	if a.Kind == Supply || a.Kind == Credit || a.Kind == Overrun {
		return Balance{Account: a, Floor: math.MinInt64, Ceiling: 0}
	}
	return Balance{Account: a, Floor: 0, Ceiling: math.MaxInt64}
}

// PotFloor is how far below 0 the pot of a program that received so much may go:
// −(factor − 1) × received. factorPPM is 1,000,000 for "no overcommit".
func PotFloor(received Amount, factorPPM int64) Amount {
	extra, err := received.MulRatio(max(0, factorPPM-1_000_000), 1_000_000)
	if err != nil {
		return 0
	}
	return -extra
}

// Apply posts one entry to the balances it touches. rows are those balances in
// any order; an account without a row starts as NewBalance. It gives the touched
// balances afterwards, sorted by account, and never changes rows. Nothing is ever
// clamped: a balance that would leave its bounds refuses the whole entry with
// kind Short, a malformed entry with kind Invalid.
func Apply(rows []Balance, e Entry) ([]Balance, *Refusal) {
	if r := e.Check(); r != nil {
		return nil, r
	}
	after := make([]Balance, 0, 2*len(e.Transfers))
	at := func(a Account) *Balance {
		for i := range after {
			if after[i].Account == a {
				return &after[i]
			}
		}
		if i := slices.IndexFunc(rows, func(b Balance) bool { return b.Account == a }); i >= 0 {
			after = append(after, rows[i])
		} else {
			after = append(after, NewBalance(a))
		}
		return &after[len(after)-1]
	}
	for _, t := range e.Transfers {
		for _, side := range [2]struct {
			account Account
			delta   Amount
		}{{t.Debit, -t.Amount}, {t.Credit, t.Amount}} {
			b := at(side.account)
			sum, err := b.Amount.Add(side.delta)
			if err != nil {
				return nil, refuse(Invalid, "entry.overflow", "", "This amount is too large for the books.", "account", side.account.String())
			}
			b.Amount = sum
		}
	}
	slices.SortFunc(after, func(x, y Balance) int { return x.Account.Compare(y.Account) })
	for _, b := range after {
		if b.Amount < b.Floor || b.Amount > b.Ceiling {
			return nil, b.refusal()
		}
	}
	return after, nil
}

// refusal says what a balance outside its bounds lacks.
func (b Balance) refusal() *Refusal {
	short := b.Floor - b.Amount
	if b.Amount > b.Ceiling {
		short = b.Amount - b.Ceiling
	}
	return refuse(Short, "balance.short", "", "Short "+short.Hours()+" GPU-h in "+b.Account.String()+".",
		"short", short.Exact(), "limited_by", b.Account.String())
}

// Book is a set of balances in memory with the keys that made them: what the
// simulator keeps, and what verify rebuilds.
type Book struct {
	rows map[Account]Balance
	keys map[string][32]byte
}

// NewBook starts a book from balances; bounds are taken as given.
func NewBook(rows []Balance) *Book {
	b := &Book{rows: make(map[Account]Balance, len(rows)), keys: map[string][32]byte{}}
	for _, r := range rows {
		b.rows[r.Account] = r
	}
	return b
}

// Apply posts an entry whole or not at all and says whether it was new: the same
// key with the same content changes nothing, with other content it is refused as
// a conflict.
func (b *Book) Apply(e Entry) (bool, *Refusal) {
	hash := e.Hash()
	if seen, ok := b.keys[e.Key]; ok {
		if seen != hash {
			return false, refuse(Conflict, "entry.key_reused", "",
				"This command was already carried out with other content; start again from a fresh page.", "key", e.Key)
		}
		return false, nil
	}
	rows := make([]Balance, 0, 2*len(e.Transfers))
	for _, t := range e.Transfers {
		for _, a := range [2]Account{t.Debit, t.Credit} {
			if row, ok := b.rows[a]; ok {
				rows = append(rows, row)
			}
		}
	}
	after, r := Apply(rows, e)
	if r != nil {
		return false, r
	}
	for _, row := range after {
		b.rows[row.Account] = row
	}
	b.keys[e.Key] = hash
	return true, nil
}

// Balance gives one account's balance, 0 with its default bounds when untouched.
func (b *Book) Balance(a Account) Balance {
	if row, ok := b.rows[a]; ok {
		return row
	}
	return NewBalance(a)
}

// SetBounds changes the bounds of one account, as an overcommit factor does.
func (b *Book) SetBounds(a Account, floor, ceiling Amount) {
	row := b.Balance(a)
	row.Floor, row.Ceiling = floor, ceiling
	b.rows[a] = row
}

// Balances gives every balance, sorted by account.
func (b *Book) Balances() []Balance {
	out := make([]Balance, 0, len(b.rows))
	for _, row := range b.rows {
		out = append(out, row)
	}
	slices.SortFunc(out, func(x, y Balance) int { return x.Account.Compare(y.Account) })
	return out
}

// PathDelta is how much an entry changes "spent + held" of one project in one
// pool and period: what the counters of its overcommitted ancestors move by.
type PathDelta struct {
	Project GroupID
	Pool    PoolID
	Period  PeriodID
	Amount  Amount
}

// PathDeltas nets an entry's effect on path counters: only what moves between a
// lot's Available and Held, what a hold loses to Expired, and refunds of credits
// count; usage beyond every lot does not. Sorted by pool, period, project; no zeros.
func (e Entry) PathDeltas() []PathDelta {
	var out []PathDelta
	add := func(a Account, amount Amount) {
		for i := range out {
			if d := &out[i]; d.Project == a.Group && d.Pool == a.Pool && d.Period == a.Period {
				d.Amount += amount
				return
			}
		}
		out = append(out, PathDelta{Project: a.Group, Pool: a.Pool, Period: a.Period, Amount: amount})
	}
	for _, t := range e.Transfers {
		switch {
		case t.Debit.Kind == Available && t.Credit.Kind == Held:
			add(t.Credit, t.Amount)
		case t.Debit.Kind == Held && (t.Credit.Kind == Available || t.Credit.Kind == Expired):
			add(t.Debit, -t.Amount)
		case t.Debit.Kind == Credit && t.Debit.Lot != 0:
			add(t.Debit, -t.Amount)
		}
	}
	out = slices.DeleteFunc(out, func(d PathDelta) bool { return d.Amount == 0 })
	slices.SortFunc(out, func(x, y PathDelta) int {
		return cmp.Or(cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Period, y.Period), cmp.Compare(x.Project, y.Project))
	})
	return out
}

// sentenceGroup names a group for a sentence: a path says enough.
func sentenceGroup(path string, id GroupID) string {
	if path != "" {
		return path
	}
	return "group " + strconv.FormatInt(int64(id), 10)
}
