package ledger

import (
	"cmp"
	"crypto/sha256"
	"strconv"
	"strings"
)

// AccountKind names what an account is for. Balance = credits − debits.
type AccountKind int8

// The kinds, with the sign their balance may have.
const (
	Supply    AccountKind = iota + 1 // per pool and period; ≤ 0: where units come from
	Pot                              // per program, pool, period; ≥ floor (0, or below with overcommit > 1)
	Available                        // per lot; ≥ 0
	Held                             // per lot; ≥ 0: set aside
	Spent                            // per lot (lot 0: overrun spending of a project); ≥ 0
	Expired                          // per lot; ≥ 0
	Credit                           // per lot; ≤ 0: contra account of corrections in the project's favour
	Overrun                          // per project and pool; ≤ 0: usage that exceeded every lot
)

// String is the kind's name in exports and hashes.
func (k AccountKind) String() string {
	switch k {
	case Supply:
		return "supply"
	case Pot:
		return "pot"
	case Available:
		return "available"
	case Held:
		return "held"
	case Spent:
		return "spent"
	case Expired:
		return "expired"
	case Credit:
		return "credit"
	case Overrun:
		return "overrun"
	}
	return "kind" + strconv.Itoa(int(k))
}

// Account identifies one ledger account. Fields that do not apply are zero.
type Account struct {
	Kind   AccountKind
	Pool   PoolID
	Period PeriodID
	Group  GroupID
	Lot    LotID
}

// SupplyAccount is where a pool's units of a period come from.
func SupplyAccount(pool PoolID, period PeriodID) Account {
	return Account{Kind: Supply, Pool: pool, Period: period}
}

// PotAccount is what a program has left to split and award.
func PotAccount(program GroupID, pool PoolID, period PeriodID) Account {
	return Account{Kind: Pot, Pool: pool, Period: period, Group: program}
}

// OverrunAccount is a project's account of a kind that exists without a lot:
// Overrun itself, and Spent and Credit of usage that exceeded every lot.
func OverrunAccount(kind AccountKind, project GroupID, pool PoolID) Account {
	return Account{Kind: kind, Pool: pool, Group: project}
}

// String is the account's canonical text: kind and its five numbers.
func (a Account) String() string { return string(a.append(nil)) }

func (a Account) append(b []byte) []byte {
	b = append(b, a.Kind.String()...)
	for _, n := range [4]struct {
		name string
		id   int64
	}{{" pool=", int64(a.Pool)}, {" period=", int64(a.Period)}, {" group=", int64(a.Group)}, {" lot=", int64(a.Lot)}} {
		b = strconv.AppendInt(append(b, n.name...), n.id, 10)
	}
	return b
}

// Compare orders accounts as every lock and every list does.
func (a Account) Compare(b Account) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Period, b.Period), cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Lot, b.Lot), cmp.Compare(a.Kind, b.Kind))
}

// wellFormed says that exactly the fields of the kind are set.
func (a Account) wellFormed() bool {
	pool, period, group, lot := a.Pool > 0, a.Period > 0, a.Group > 0, a.Lot > 0
	switch a.Kind {
	case Supply:
		return pool && period && a.Group == 0 && a.Lot == 0
	case Pot:
		return pool && period && group && a.Lot == 0
	case Available, Held, Expired:
		return pool && period && group && lot
	case Spent, Credit:
		return pool && group && ((period && lot) || (a.Period == 0 && a.Lot == 0))
	case Overrun:
		return pool && group && a.Period == 0 && a.Lot == 0
	}
	return false
}

// Transfer moves Amount (> 0) out of Debit and into Credit.
type Transfer struct {
	Debit  Account
	Credit Account
	Amount Amount
}

// Hash binds a transfer to its place n (from 0) in the entry of that key.
func (t Transfer) Hash(entryKey string, n int) [32]byte {
	b := make([]byte, 0, 256)
	b = append(b, "tranche transfer 1\nkey "...)
	b = strconv.AppendQuote(b, entryKey)
	b = strconv.AppendInt(append(b, "\nn "...), int64(n), 10)
	b = t.Debit.append(append(b, "\ndebit "...))
	b = t.Credit.append(append(b, "\ncredit "...))
	b = strconv.AppendInt(append(b, "\namount "...), int64(t.Amount), 10)
	return sha256.Sum256(append(b, '\n'))
}

// Entry is one immutable bookkeeping event. Key names its cause and makes it
// idempotent, e.g. "award:request:17" or "charge:attempt:881:0ms:3600000ms".
type Entry struct {
	Key       string
	Kind      string // first word of Key: open, split, award, hold, charge, release, credit
	At        Instant
	Period    PeriodID // period the event belongs to; 0 when it spans several
	Actor     PersonID // 0: the system
	Transfers []Transfer
}

// Hash is the SHA-256 of the entry's whole content: its head and the hashes of
// its transfers in order.
func (e Entry) Hash() [32]byte {
	b := make([]byte, 0, 160+32*len(e.Transfers))
	b = append(b, "tranche entry 1\nkey "...)
	b = strconv.AppendQuote(b, e.Key)
	b = strconv.AppendQuote(append(b, "\nkind "...), e.Kind)
	b = strconv.AppendInt(append(b, "\nat "...), int64(e.At), 10)
	b = strconv.AppendInt(append(b, "\nperiod "...), int64(e.Period), 10)
	b = strconv.AppendInt(append(b, "\nactor "...), int64(e.Actor), 10)
	b = strconv.AppendInt(append(b, "\ntransfers "...), int64(len(e.Transfers)), 10)
	b = append(b, '\n')
	for n, t := range e.Transfers {
		hash := t.Hash(e.Key, n)
		b = append(b, hash[:]...)
	}
	return sha256.Sum256(b)
}

// SealHash chains one seal to the one before: over the previous seal's hash (all
// zeros for the first), the transaction range [from, to) and the hashes of the
// entries it covers, in the order they are sealed.
func SealHash(prev [32]byte, from, to int64, hashes [][32]byte) [32]byte {
	h := sha256.New()
	h.Write([]byte("tranche seal 1\n"))
	h.Write(prev[:])
	b := strconv.AppendInt([]byte("\nfrom "), from, 10)
	b = strconv.AppendInt(append(b, "\nto "...), to, 10)
	b = strconv.AppendInt(append(b, "\nentries "...), int64(len(hashes)), 10)
	h.Write(append(b, '\n'))
	for i := range hashes {
		h.Write(hashes[i][:])
	}
	return [32]byte(h.Sum(nil))
}

// move is a pair of account kinds.
type move struct{ debit, credit AccountKind }

// moves lists, per kind of entry, what may be moved where.
var moves = map[string][]move{
	"open":    {{Supply, Pot}},
	"split":   {{Pot, Pot}, {Pot, Available}, {Available, Pot}},
	"award":   {{Pot, Available}},
	"hold":    {{Available, Held}},
	"charge":  {{Held, Spent}, {Held, Available}, {Held, Expired}, {Overrun, Spent}},
	"release": {{Held, Available}, {Held, Expired}},
	"credit":  {{Credit, Available}, {Credit, Expired}, {Credit, Overrun}},
}

// Check refuses an entry that no cause can make: an unknown kind, a key that does
// not begin with it, no transfer, an amount that is not above 0, an account
// against itself, a move its kind does not know, units changing pool or lot.
func (e Entry) Check() *Refusal {
	allowed, known := moves[e.Kind]
	if !known || !strings.HasPrefix(e.Key, e.Kind+":") || len(e.Key) > 200 {
		return e.malformed("its key must begin with its kind")
	}
	if len(e.Transfers) == 0 {
		return e.malformed("it has no transfer")
	}
	for _, t := range e.Transfers {
		if t.Amount <= 0 {
			return e.malformed("a transfer's amount must be above 0")
		}
		if t.Debit == t.Credit || !t.Debit.wellFormed() || !t.Credit.wellFormed() {
			return e.malformed("a transfer needs two different, whole accounts")
		}
		if !allowedMove(allowed, t) {
			return e.malformed("it may not move " + t.Debit.Kind.String() + " to " + t.Credit.Kind.String())
		}
		if !sameUnits(t) {
			return e.malformed("units may not change pool, period or lot")
		}
	}
	return nil
}

func allowedMove(allowed []move, t Transfer) bool {
	for _, m := range allowed {
		if m.debit == t.Debit.Kind && m.credit == t.Credit.Kind {
			return true
		}
	}
	return false
}

// sameUnits says that units stay in their pool and period, and within one lot
// once they are in one.
func sameUnits(t Transfer) bool {
	d, c := t.Debit, t.Credit
	if d.Kind == Supply || d.Kind == Pot || c.Kind == Pot {
		return d.Pool == c.Pool && d.Period == c.Period
	}
	return d.Pool == c.Pool && d.Period == c.Period && d.Group == c.Group && d.Lot == c.Lot
}

func (e Entry) malformed(why string) *Refusal {
	return refuse(Invalid, "entry.malformed", "", "Entry "+strconv.Quote(e.Key)+" is malformed: "+why+".", "key", e.Key)
}

// add appends a transfer, joining it to an earlier one between the same accounts.
func (e *Entry) add(debit, credit Account, amount Amount) {
	for i := range e.Transfers {
		if t := &e.Transfers[i]; t.Debit == debit && t.Credit == credit {
			t.Amount += amount
			return
		}
	}
	e.Transfers = append(e.Transfers, Transfer{Debit: debit, Credit: credit, Amount: amount})
}

// settlePeriod sets the entry's period when all its accounts agree on one.
func (e *Entry) settlePeriod() {
	e.Period = 0
	for i, t := range e.Transfers {
		period := max(t.Debit.Period, t.Credit.Period)
		if i > 0 && period != e.Period {
			e.Period = 0
			return
		}
		e.Period = period
	}
}
