package api

import (
	"time"

	"tranche/ledger"
)

// Paths of the fleet, and of the description of this interface.
const (
	PathPools   = "/api/v1/pools"
	PathNodes   = "/api/v1/nodes" // GET ?pool=&after=&limit=
	PathOpenAPI = "/api/v1/openapi.json"
)

// Pool is one pool with what it holds now, in devices.
type Pool struct {
	ID       ledger.PoolID `json:"id"`
	Name     string        `json:"name"`
	Model    string        `json:"model,omitempty"` // of its devices; none in a CPU-only pool
	RatePPM  int64         `json:"rate_ppm"`        // of a standard GPU-hour
	Nodes    int           `json:"nodes"`
	Devices  int           `json:"devices"`
	Funded   int           `json:"funded"`
	Unfunded int           `json:"unfunded"`
	Ending   int           `json:"ending"`
	Idle     int           `json:"idle"`
	Down     int           `json:"down"`
	Waiting  int           `json:"waiting_jobs"`
	Frozen   string        `json:"frozen,omitempty"` // why nothing new is placed
}

// PoolList is every pool, by name.
type PoolList struct {
	Pools []Pool `json:"pools"`
}

// Node is one machine.
type Node struct {
	ID        ledger.NodeID  `json:"id"`
	Name      string         `json:"name"`
	Pool      string         `json:"pool"`
	Health    string         `json:"health"` // healthy, suspect, draining, lost
	Note      string         `json:"note,omitempty"`
	Devices   int            `json:"devices"`
	CPUMilli  int64          `json:"cpu_milli"`
	RAMMiB    int64          `json:"ram_mib"`
	Heartbeat *time.Time     `json:"heartbeat,omitempty"` // real time
	Jobs      []ledger.JobID `json:"jobs"`                // that hold devices here
}

// NodeList is one keyset page of the nodes that are not retired, by pool and
// name. Next is the cursor of the next page ("" at the end).
type NodeList struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"`
}
