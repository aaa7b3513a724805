package ledger

// Lot is one award's GPU-hours in a project's ledger, usable in [First, Last).
type Lot struct {
	ID        LotID
	Project   GroupID
	Pool      PoolID
	Period    PeriodID
	First     Instant
	Last      Instant
	Available Amount // balance of the lot's Available account
}

// PathLimit is the counter of one ancestor program with an overcommit factor
// above 1: what everything below it may have spent and held in one period.
type PathLimit struct {
	Program GroupID
	Path    string // for sentences: "limited by program /lab/vision"
	Pool    PoolID
	Period  PeriodID
	Limit   Amount // units the program received
	Used    Amount // spent + held below it
}

// Rate says what an attempt pays: charged milli-GPUs at a pool rate in ppm of a
// standard GPU-hour.
type Rate struct {
	MilliGPU int64 // ≥ 1
	PPM      int64 // > 0; 1,000,000 = 1.000
}

// Piece is the part of a hold that one lot covers. Pieces of an attempt are in
// the order of its elapsed time; Spent + Released ≤ Amount.
type Piece struct {
	Lot      LotID
	Amount   Amount
	Spent    Amount
	Released Amount
}

// Cum gives the units an attempt owes for its first elapsed milliseconds:
// floor(MilliGPU · PPM · ms / 10⁹) in 128-bit arithmetic. Charges are
// differences of Cum, so pieces always add up to the whole.
func (r Rate) Cum(ms int64) Amount {
	panic("filled by the ledger work")
}

// Funds is what a hold is checked against: a project's lots in one pool and the
// counters of its overcommitted ancestors.
type Funds struct {
	Project GroupID
	Path    string
	Pool    PoolID
	Lots    []Lot       // any order; Draw orders by (Last, ID)
	Limits  []PathLimit // of every period a lot belongs to
}
