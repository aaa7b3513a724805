package api

import (
	"time"

	"tranche/ledger"
)

// Paths about what a waiting job could do, and about a pool's order.
const (
	PathChanges = "/api/v1/jobs/{id}/changes" // GET
	PathChange  = "/api/v1/jobs/{id}/change"  // POST ChangeJob
	PathOrder   = "/api/v1/order"             // GET ?pool=&after=&limit=
)

// Outlook is what would start a waiting job in the next cycle, and what went
// before it. Each change was tried on what the dispatcher saw.
type Outlook struct {
	Job     ledger.JobID `json:"job"`
	AsItIs  string       `json:"as_it_is,omitempty"` // it starts without any change
	None    string       `json:"none,omitempty"`     // why nothing is offered
	Changes []Offer      `json:"changes"`            // the smallest first, at most 3
	Ahead   []string     `json:"ahead,omitempty"`    // sentences: what was queued later and went first
	At      *time.Time   `json:"at,omitempty"`       // of what was decided on
}

// Offer is one change with its effect.
type Offer struct {
	Kind   string        `json:"kind"` // funds, cores, minimum, gpus, nodes, pool, free
	Text   string        `json:"text"`
	Effect string        `json:"effect"`
	Short  ledger.Amount `json:"short_units,omitempty"` // kind funds: GPU-hours that are missing
	Change *ChangeJob    `json:"change,omitempty"`      // what to send; none of kind funds
}

// ChangeJob alters a waiting job; fields that are left out stay as they are. It
// keeps its place when it asks for less in the same pool.
type ChangeJob struct {
	Key          string `json:"key"`
	Pool         string `json:"pool,omitempty"`
	Nodes        int64  `json:"nodes,omitempty"`
	GPUs         int64  `json:"gpus,omitempty"`      // per node
	CPUMilli     int64  `json:"cpu_milli,omitempty"` // per node; follows the GPUs when left out
	RAMMiB       int64  `json:"ram_mib,omitempty"`   // per node; follows the GPUs when left out
	MinRuntimeMS *int64 `json:"min_runtime_ms,omitempty"`
}

// PoolOrder is one page of a pool's queue in the order of the last cycle, with the
// standings that made it.
type PoolOrder struct {
	Pool     string       `json:"pool"`
	Waiting  int          `json:"waiting"`
	Reserved string       `json:"reserved,omitempty"` // the pool's reserved start, in sentences
	Groups   []OrderGroup `json:"groups"`             // children below their parents, siblings as they are served
	Jobs     []OrderJob   `json:"jobs"`
	Next     string       `json:"next,omitempty"` // cursor of the page after
	At       *time.Time   `json:"at,omitempty"`   // of the cycle
}

// OrderGroup is one group's standing. Usage and commitment are GPU-hours.
type OrderGroup struct {
	Group      string `json:"group"`
	Depth      int    `json:"depth"`
	Standing   string `json:"standing"` // × its share
	Usage      string `json:"usage"`
	Commitment string `json:"commitment"`
	Share      string `json:"share"` // of its siblings
	Waiting    int    `json:"waiting"`
	Next       bool   `json:"next,omitempty"` // goes first among its siblings
}

// OrderJob is one waiting job at its place.
type OrderJob struct {
	Rank         int          `json:"rank"` // 0: the last cycle did not come to it
	Job          ledger.JobID `json:"job"`  // 0: of another project that the reader may not see
	Name         string       `json:"name,omitempty"`
	Project      string       `json:"project"`
	User         string       `json:"user"`
	Shape        string       `json:"shape"`
	MinRuntimeMS int64        `json:"min_runtime_ms"`
	Standing     string       `json:"standing"` // of its groups, first level first
	Reason       string       `json:"reason"`
}
