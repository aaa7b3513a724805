package api

import (
	"time"

	"tranche/ledger"
)

// Paths of the fleet, and of the description of this interface.
const (
	PathPools       = "/api/v1/pools"
	PathPoolIndices = "/api/v1/pools/{pool}/indices" // GET ?span=day|week; {pool} is a name
	PathNodes       = "/api/v1/nodes"                // GET ?pool=&after=&limit=
	PathOpenAPI     = "/api/v1/openapi.json"

	// {node} is a node's name, or its number where no node is called so.
	PathNode        = "/api/v1/nodes/{node}"
	PathDrain       = "/api/v1/nodes/{node}/drain"    // POST Drain
	PathUndrain     = "/api/v1/nodes/{node}/undrain"  // POST Command
	PathMaintain    = "/api/v1/nodes/{node}/maintain" // POST Maintain
	PathEnrolTokens = "/api/v1/enrol-tokens"          // POST NewEnrolToken
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
	Frozen   string        `json:"frozen,omitempty"`  // why nothing new is placed
	Indices  *PoolIndices  `json:"indices,omitempty"` // the last; nil = none in the last hour
}

// PoolList is every pool, by name.
type PoolList struct {
	Pools []Pool `json:"pools"`
}

// Node is one machine. Its fields from Version on are only in the answer about a
// single node.
type Node struct {
	ID        ledger.NodeID  `json:"id"`
	Name      string         `json:"name"`
	Pool      string         `json:"pool"`
	Health    string         `json:"health"` // healthy, suspect, degraded, draining, lost
	Note      string         `json:"note,omitempty"`
	Devices   int            `json:"devices"`
	Occupied  int            `json:"occupied"` // devices that somebody holds
	CPUMilli  int64          `json:"cpu_milli"`
	RAMMiB    int64          `json:"ram_mib"`
	Heartbeat *time.Time     `json:"heartbeat,omitempty"` // real time
	Jobs      []ledger.JobID `json:"jobs"`                // that hold devices here
	// What it offers (0 = none) and what moves now (nil = it cannot tell), Mbit/s and MB/s.
	NetMbps    int64        `json:"net_mbps"`
	StoMbps    int64        `json:"sto_mbps"`
	NetNowMbps *int64       `json:"net_now_mbps,omitempty"`
	StoNowMbps *int64       `json:"sto_now_mbps,omitempty"`
	Storage    *NodeStorage `json:"storage,omitempty"` // nil: its agent has no storage hook
	// Drain and Maintenance are nil when there is none.
	Drain       *NodeDrain       `json:"drain,omitempty"`
	Maintenance *NodeMaintenance `json:"maintenance,omitempty"`

	Version  string         `json:"agent_version,omitempty"`
	Topology string         `json:"topology,omitempty"`
	Enrolled *time.Time     `json:"enrolled,omitempty"`
	Check    *NodeCheck     `json:"health_check,omitempty"` // nil: its agent has no health hook
	Repair   *NodeRepair    `json:"repair,omitempty"`       // of this drain or maintenance
	Holders  []NodeJob      `json:"holders,omitempty"`
	Memory   []DeviceMemory `json:"memory,omitempty"` // of one node alone
	Events   []NodeEvent    `json:"events,omitempty"` // newest first, at most 50
}

// Spans of a pool's indices.
const (
	SpanDay  = "day"
	SpanWeek = "week"
)

// Where a stall was worked out from.
const (
	StallMeasured = "measured" // what the nodes say moves through them
	StallDeclared = "declared" // what jobs ask for: no node tells
	StallMixed    = "mixed"    // some nodes tell
)

// PoolIndices say how much of what a pool has free is of little use, and how long its
// GPUs wait for data at most; in millionths.
type PoolIndices struct {
	At             time.Time `json:"at"` // five minutes from here; a point of a week is the mean of half an hour
	FitPPM         int64     `json:"f_fit_ppm"`
	GPUPPM         int64     `json:"f_gpu_ppm"`
	ShapePPM       int64     `json:"f_shape_ppm"`
	RawPPM         int64     `json:"f_raw_ppm"`
	StallPPM       int64     `json:"stall_ppm"`
	StallFrom      string    `json:"stall_from"`
	FreeMilliGPUs  int64     `json:"free_milli_gpus"`
	UnfitMilliGPUs int64     `json:"unfit_milli_gpus"` // of them, what no job of the usual mix can take
	MixVersion     int64     `json:"mix_version"`      // 0 = nothing is learnt of the pool's jobs yet
}

// PoolIndexList is a pool's indices now and over a span, oldest first.
type PoolIndexList struct {
	Pool   string        `json:"pool"`
	Now    *PoolIndices  `json:"now,omitempty"` // nil = none in the last hour
	Words  []string      `json:"words,omitempty"`
	Points []PoolIndices `json:"points"`
}

// NodeStorage is what a node's storage hook says and what that has led to.
type NodeStorage struct {
	SaidPPM   *int64     `json:"said_ppm,omitempty"` // by the last run that worked, of the nominal bandwidth
	Failed    string     `json:"failed,omitempty"`   // why the last run said nothing
	At        *time.Time `json:"at,omitempty"`       // of the last run; real time
	Degraded  *time.Time `json:"degraded,omitempty"` // since when; real time
	CountsPPM int64      `json:"counts_ppm"`         // so much of sto_mbps counts for the dispatcher
}

// DeviceMemory is one device's memory: in use, to come, declared, and set aside.
type DeviceMemory struct {
	Device      int32  `json:"device"`
	TotalMiB    int64  `json:"total_mib"`
	UsedMiB     int64  `json:"used_mib"`
	Jobs        int    `json:"jobs"`                   // that hold a part of it
	ForecastMiB *int64 `json:"forecast_mib,omitempty"` // at most, within five minutes; nil = no readings yet
	DeclaredMiB int64  `json:"declared_mib"`
	ReservedMiB int64  `json:"reserved_mib"` // what the dispatcher sets aside
	HeadroomMiB int64  `json:"headroom_mib"` // of it, not in use
	Learnt      bool   `json:"learnt"`       // set aside by what such jobs used, not as declared
}

// Modes of a drain.
const (
	DrainSoft = "soft" // empties as protections end
	DrainHard = "hard" // what runs stops now and is credited
)

// NodeDrain says why a node takes nothing new.
type NodeDrain struct {
	Mode  string    `json:"mode"`
	Why   string    `json:"why"`
	By    string    `json:"by"` // "its health checks" when they did it
	Since time.Time `json:"since"`
}

// NodeMaintenance is when a node is worked on: nothing is protected beyond From.
type NodeMaintenance struct {
	From  time.Time  `json:"from"`
	Until *time.Time `json:"until,omitempty"` // nil: until it is taken back
	Why   string     `json:"why"`
}

// NodeCheck is what a node's own health checks say.
type NodeCheck struct {
	Last     string     `json:"last"` // good, degraded, fault
	Why      string     `json:"why,omitempty"`
	Degraded *time.Time `json:"degraded_since,omitempty"` // real time; nil: it is not
}

// NodeRepair is the repair hook of a drained or maintained node.
type NodeRepair struct {
	Ordered time.Time  `json:"ordered"`
	Done    *time.Time `json:"done,omitempty"`
	Result  string     `json:"result,omitempty"`
}

// NodeJob is a job that holds devices of a node.
type NodeJob struct {
	Job            ledger.JobID `json:"job"` // 0: of another project that the reader may not see
	Name           string       `json:"name,omitempty"`
	Project        string       `json:"project"`
	User           string       `json:"user"`
	State          string       `json:"state"`
	Devices        []int32      `json:"devices"`
	Funded         bool         `json:"funded"`
	ProtectedUntil *time.Time   `json:"protected_until,omitempty"`
}

// NodeEvent is something that people did to a node, or it did by itself.
type NodeEvent struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	What string    `json:"what"`
	Why  string    `json:"why,omitempty"`
}

// Drain keeps new work off a node.
type Drain struct {
	Key  string `json:"key"`
	Mode string `json:"mode,omitempty"` // soft, the default, or hard
	Why  string `json:"why"`
}

// Maintain plans a node's maintenance, moves it, or takes it back. Instants are
// RFC 3339, or without an offset in the accounting zone: "2026-12-03T08:00".
type Maintain struct {
	Key   string `json:"key"`
	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"` // "": until it is taken back
	Why   string `json:"why,omitempty"`
	Clear bool   `json:"clear,omitempty"` // take it back; nothing else is given then
}

// NewEnrolToken asks for the right to bring nodes into a pool.
type NewEnrolToken struct {
	Key   string `json:"key"`
	Pool  string `json:"pool"`
	Hours int64  `json:"hours,omitempty"` // real time until it expires; 0 = 24
	Uses  int    `json:"uses,omitempty"`  // nodes it may bring in; 0 = 1
}

// EnrolToken is a new enrolment token. It is shown this once; the same key gives
// it again until the server restarts.
type EnrolToken struct {
	Token   string `json:"token"`
	Pool    string `json:"pool"`
	Hours   int64  `json:"hours"`
	Uses    int    `json:"uses"`
	Command string `json:"command"` // what to start on the machine
}

// NodeList is one keyset page of the nodes that are not retired, by pool and
// name. Next is the cursor of the next page ("" at the end).
type NodeList struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"`
}
