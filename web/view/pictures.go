package view

import (
	"time"

	"tranche/ledger"
)

// Mark is one meaning with one look, the same in tables, pictures and legends.
type Mark string

// The marks.
const (
	MarkSpent        Mark = "spent"
	MarkRunning      Mark = "running"
	MarkHeld         Mark = "held"
	MarkUsable       Mark = "usable"
	MarkLimited      Mark = "limited" // left, but a group above has less
	MarkExpired      Mark = "expired"
	MarkProtected    Mark = "protected"
	MarkPast         Mark = "past" // funded, past its protection
	MarkUnfunded     Mark = "unfunded"
	MarkBookedUsed   Mark = "booked-used"
	MarkBookedUnused Mark = "booked-unused"
	MarkEnding       Mark = "ending"
	MarkIdle         Mark = "idle"
	MarkDown         Mark = "down"
	MarkWaiting      Mark = "waiting"
	MarkStarting     Mark = "starting"
)

// BudgetBar is one lot's or group's budget on one pool: spent, running, set
// aside, usable, expired, in that order, over Total. Amounts are ledger units.
type BudgetBar struct {
	Label   string // "h100", or a lot's name
	URL     string // where the label leads, or ""
	Total   ledger.Amount
	Spent   ledger.Amount
	Running ledger.Amount
	Held    ledger.Amount // set aside, without the running part
	Expired ledger.Amount
	// Pot says that the bar is a program's pot: Spent is what it handed out.
	Pot bool
	// Limited is what is left here but not usable now, because LimitedBy, a group
	// above, has less.
	Limited   ledger.Amount
	LimitedBy string
	// DuePPM is where time says spending should be, ProjectedPPM where it ends
	// at the present pace, both in millionths of Total. Negative: not drawn.
	DuePPM, ProjectedPPM int64
	ProjectedText        string // "used up by 12 December", or ""
}

// ContractBar is a job's time line.
type ContractBar struct {
	Label    string
	From, To ledger.Instant // what the bar spans
	Now      ledger.Instant
	Zone     *time.Location // of the labels; nil is UTC
	Spans    []ContractSpan
	Points   []ContractPoint
}

// ContractSpan is one state of the job: MarkWaiting, MarkStarting,
// MarkProtected, MarkPast, MarkUnfunded, MarkEnding, MarkBookedUsed.
type ContractSpan struct {
	Mark     Mark
	From, To ledger.Instant
	Text     string // "protected for 1 h, until 14:20"
}

// ContractPoint is an instant worth a marker. Kind is start, checkpoint,
// warning, eviction or finish; Rule is the number that was applied ("V3").
type ContractPoint struct {
	Kind string
	At   ledger.Instant
	Rule string
	Text string
}

// StandingBars draws siblings side by side in the order the dispatcher would
// serve them: bar = usage + commitment, tick = share. All in GPU-time of the
// lookback, so that bar ÷ tick is the standing the queue is sorted by.
type StandingBars struct {
	Label string // "Children of Vision on h100"
	Rows  []StandingRow
}

// StandingRow is one sibling. Amounts are ledger units over the lookback.
type StandingRow struct {
	Group      string
	URL        string
	Usage      ledger.Amount
	Commitment ledger.Amount
	Share      ledger.Amount // what its share of the lookback would be; 0 = no share
	Standing   string        // "0.71", as the dispatcher computed it; "–" without share
	Next       bool          // the lowest ratio that has a job waiting
	Waiting    int           // jobs waiting below it
}

// NodeGrid is nodes × devices as small squares.
type NodeGrid struct {
	Label string
	Nodes []GridNode
}

// GridNode is one row of the grid.
type GridNode struct {
	ID      ledger.NodeID
	Name    string
	Health  string // healthy, suspect, degraded, draining, lost
	Devices []GridDevice
}

// GridDevice is one square: what occupies it, until when, and why it is here.
type GridDevice struct {
	Mark  Mark
	Stall bool
	Who   string // "llm-7b, Vision / Segmentation"; "" when idle
	Until string // "protected until 14:20"
	Why   string // "rule V1, best fit"
	URL   string // the job, or "" when idle
}
