package ledger

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

// Account identifies one ledger account. Fields that do not apply are zero.
type Account struct {
	Kind   AccountKind
	Pool   PoolID
	Period PeriodID
	Group  GroupID
	Lot    LotID
}

// Transfer moves Amount (> 0) out of Debit and into Credit.
type Transfer struct {
	Debit  Account
	Credit Account
	Amount Amount
}

// Entry is one immutable bookkeeping event. Key names its cause and makes it
// idempotent, e.g. "award:request:17" or "charge:attempt:881:0ms:3600000ms".
type Entry struct {
	Key       string
	Kind      string // first word of Key: open, split, award, hold, charge, release, credit, expire …
	At        Instant
	Period    PeriodID // period the event belongs to; 0 when it spans several
	Actor     PersonID // 0: the system
	Transfers []Transfer
}
