package api

import (
	"time"

	"tranche/ledger"
)

// WhoAmI tells a token's owner what the server takes them for.
type WhoAmI struct {
	Person   ledger.PersonID `json:"person"`
	Name     string          `json:"name"`
	Mail     string          `json:"mail,omitempty"`
	Roles    []RoleAt        `json:"roles"`
	Projects []string        `json:"projects"` // paths of the projects they may submit to
	Zone     string          `json:"zone"`     // accounting zone, IANA name
	// TokenProject is the project or program the token is bound to, "" for none.
	TokenProject string `json:"token_project,omitempty"`
	// TokenExpires is when the token ends.
	TokenExpires *time.Time `json:"token_expires,omitempty"`
	// TokenLimit is what jobs may cost that are submitted with the token, nil
	// without a limit; TokenUsed is what they cost, or may still cost.
	TokenLimit *ledger.Amount `json:"token_limit_units,omitempty"`
	TokenUsed  *ledger.Amount `json:"token_used_units,omitempty"`
}

// RoleAt is one role held at a path of the tree.
type RoleAt struct {
	Role  string     `json:"role"`
	Path  string     `json:"path"`
	Until *time.Time `json:"until,omitempty"`
}

// Balance is one project's position in one pool.
type Balance struct {
	Project   string        `json:"project"`
	Pool      string        `json:"pool"`
	Awarded   ledger.Amount `json:"awarded_units"`
	Spent     ledger.Amount `json:"spent_units"` // settled, net of credits
	Running   ledger.Amount `json:"running_units"`
	Held      ledger.Amount `json:"held_units"`
	Usable    ledger.Amount `json:"usable_units"`
	LimitedBy string        `json:"limited_by,omitempty"` // path of the binding group
	Expires   *time.Time    `json:"expires,omitempty"`    // when the next lot ends
	// Of attempts that ended in this period: GPU-time they asked to be protected for
	// and the part of it that they ran, as units at rate 1.000.
	ProtectionAsked ledger.Amount `json:"protection_asked_units,omitempty"`
	ProtectionUsed  ledger.Amount `json:"protection_used_units,omitempty"`
}

// Balances is the answer of PathBalances, ordered by project, then pool.
type Balances struct {
	Balances []Balance `json:"balances"`
	At       time.Time `json:"at"`
}

// Statement is one project's ledger in one pool between two instants.
type Statement struct {
	Project string          `json:"project"`
	Pool    string          `json:"pool"`
	From    time.Time       `json:"from"`
	To      time.Time       `json:"to"`
	Lots    []Lot           `json:"lots"`
	Lines   []StatementLine `json:"lines"` // one keyset page, oldest first
	Next    string          `json:"next,omitempty"`
}

// Lot is one award's GPU-hours.
type Lot struct {
	ID        ledger.LotID  `json:"id"`
	Start     time.Time     `json:"start"`
	End       time.Time     `json:"end"`
	Awarded   ledger.Amount `json:"awarded_units"`
	Available ledger.Amount `json:"available_units"`
	Held      ledger.Amount `json:"held_units"`
	Spent     ledger.Amount `json:"spent_units"`
	Expired   ledger.Amount `json:"expired_units"`
}

// StatementLine is one movement. Amount is signed: what reduces the project's
// available GPU-hours is negative.
type StatementLine struct {
	At     time.Time     `json:"at"`
	Kind   string        `json:"kind"` // award, hold, charge, release, credit, overrun …
	Amount ledger.Amount `json:"amount_units"`
	Job    ledger.JobID  `json:"job,omitempty"`
	Text   string        `json:"text"`
	Key    string        `json:"key"` // the entry's key
}
