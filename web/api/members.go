package api

import (
	"time"

	"tranche/ledger"
)

// Paths of a project's members.
const (
	PathMembers = "/api/v1/members" // GET ?project=; POST SetMember
)

// Member is one person who holds a role in a project.
type Member struct {
	Person ledger.PersonID `json:"person"`
	Name   string          `json:"name"`
	Mail   string          `json:"mail,omitempty"` // for who leads the project, and one's own
	Roles  []string        `json:"roles"`
	Until  *time.Time      `json:"until,omitempty"` // when the last of the roles ends
	Share  int64           `json:"share"`           // 1 to 1,000
	Cap    int64           `json:"cap_gpus"`        // charged GPUs at once in each pool; 0 = none
	Used   ledger.Amount   `json:"used_units"`      // occupied within the lookback, at rate 1.000
}

// Members are the people of one project, by name.
type Members struct {
	Project  string   `json:"project"`
	Lookback int64    `json:"lookback_ms"`
	Members  []Member `json:"members"`
}

// SetMember gives a member a share and a cap; both are set.
type SetMember struct {
	Key     string          `json:"key"`
	Project string          `json:"project"` // path
	Person  ledger.PersonID `json:"person"`
	Share   int64           `json:"share"`
	Cap     int64           `json:"cap_gpus"` // 0 = none
}
