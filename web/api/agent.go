package api

import "tranche/ledger"

// Paths of the agent protocol. Enrol is authorised by the enrol token in its
// body; every other call carries "Authorization: Bearer <node token>".
// A refusal is application/problem+json (see Problem).
const (
	PathEnrol     = "/agent/v1/enrol"
	PathPoll      = "/agent/v1/poll"
	PathHeartbeat = "/agent/v1/heartbeat"
	PathClaim     = "/agent/v1/claim"
	PathEnded     = "/agent/v1/ended"
	PathLogs      = "/agent/v1/logs"
	PathRepaired  = "/agent/v1/repaired"
)

// Device is one GPU of a node as the agent found it.
type Device struct {
	Index  int    `json:"index"`
	UUID   string `json:"uuid"`
	Model  string `json:"model"`
	HBMMiB int64  `json:"hbm_mib"`
}

// Capacities is what a node has to give.
type Capacities struct {
	Devices  []Device `json:"devices"`
	CPUMilli int64    `json:"cpu_milli"`
	RAMMiB   int64    `json:"ram_mib"`
	NetMbps  int64    `json:"net_mbps"`
	StoMbps  int64    `json:"sto_mbps"` // MB/s
	IOCMilli int64    `json:"ioc_milli"`
	// Topology is the node's place, outermost first, e.g. "room1/rack3/switch2".
	Topology string `json:"topology,omitempty"`
}

// EnrolRequest introduces a node. Enrolling the same name with a valid enrol
// token again is allowed and gives a fresh node token for the same node id.
type EnrolRequest struct {
	Token      string     `json:"token"`
	Name       string     `json:"name"`
	Pool       string     `json:"pool,omitempty"`
	Capacities Capacities `json:"capacities"`
	BootID     string     `json:"boot_id"`
	Version    string     `json:"version"`
}

// EnrolReply gives the node its identity and secret.
type EnrolReply struct {
	NodeID    ledger.NodeID `json:"node_id"`
	NodeToken string        `json:"node_token"`
	// SpeedPPM is business time per real time; 1,000,000 in production.
	SpeedPPM int64 `json:"speed_ppm"`
}

// Actions of an Order.
const (
	ActionStart = "start" // not claimed yet: start a launcher unless there is one
	ActionRun   = "run"   // claimed: keep it; a node that has no such attempt reports it as lost
	ActionStop  = "stop"  // SIGTERM now, SIGKILL after GraceMS
)

// PollRequest asks for the node's desired state. It answers at once when the
// desired state differs from Version, else when it changes or WaitMS is over.
type PollRequest struct {
	Version int64 `json:"version"` // last one seen, 0 for none
	WaitMS  int64 `json:"wait_ms"` // real time, at most 60,000
}

// Desired is the whole desired state of one node. It is level-triggered: an
// attempt that is missing here must not run on the node.
type Desired struct {
	Version  int64   `json:"version"`
	SpeedPPM int64   `json:"speed_ppm"`
	Attempts []Order `json:"attempts"`
	// Repair orders the node's repair hook, once per number, until it is reported.
	Repair *RepairOrder `json:"repair,omitempty"`
}

// RepairOrder asks for one run of the repair hook: the node is drained and empty.
type RepairOrder struct {
	N int64 `json:"n"`
}

// Repaired says how the hook of an order ended.
type Repaired struct {
	N        int64  `json:"n"`
	None     bool   `json:"none,omitempty"` // none is configured
	ExitCode int    `json:"exit_code"`
	Output   string `json:"output,omitempty"` // its end, at most 4 KiB
}

// Order is what the server wants of one attempt's part on this node.
type Order struct {
	Attempt  ledger.AttemptID `json:"attempt"`
	Fence    int64            `json:"fence"`
	Rank     int              `json:"rank"` // 0-based place of this node in the gang
	Action   string           `json:"action"`
	GraceMS  int64            `json:"grace_ms"`            // real milliseconds from SIGTERM to SIGKILL
	StopKind string           `json:"stop_kind,omitempty"` // why: preempted, cancelled, drain, timeout, funds … echoed in EndedReport
	// Notices are sentences for the running command, oldest first: that its
	// protection ends and who is next, the answer to a request for more, why it is
	// to stop. The agent adds to the notice file what is not in it yet.
	Notices []string `json:"notices,omitempty"`
	Spec    Spec     `json:"spec"`
}

// Spec is what to run.
type Spec struct {
	Job      ledger.JobID      `json:"job"`
	Project  string            `json:"project"` // path
	User     string            `json:"user"`    // sign-in name of the submitter
	Command  string            `json:"command"` // for /bin/sh -c
	WorkDir  string            `json:"workdir,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Output   string            `json:"output_path,omitempty"`
	Devices  []int             `json:"devices"`
	CPUMilli int64             `json:"cpu_milli"`
	RAMMiB   int64             `json:"ram_mib"`
	GPUMilli int64             `json:"gpu_milli"`
	// Checkpoint runs at the start of grace: "signal:USR1" or a shell command.
	Checkpoint string   `json:"checkpoint,omitempty"`
	Resume     bool     `json:"resume"` // an earlier attempt of this job has run
	Nodes      []string `json:"nodes"`  // names, by rank
}

// States of an attempt on a node.
const (
	StateClaiming = "claiming" // launcher lives, no claim yet
	StateRunning  = "running"
	StateEnding   = "ending" // SIGTERM sent; devices still busy
	StateEnded    = "ended"  // end record written, not acknowledged yet
)

// Heartbeat is the node's sign of life with a batch of telemetry.
type Heartbeat struct {
	BootID   string        `json:"boot_id"`
	BootUS   int64         `json:"boot_us"` // boot clock now, real µs
	Devices  []DeviceUse   `json:"devices"`
	Attempts []AttemptSeen `json:"attempts"`
	Check    *Check        `json:"check,omitempty"` // the last run of the health check; nil = the node has none
	Flow     NodeFlow      `json:"flow,omitzero"`
	Storage  *StorageCheck `json:"storage,omitempty"` // the last run of the storage hook; nil = the node has none
}

// NodeFlow is what moves through the node now; nil where it cannot tell.
type NodeFlow struct {
	NetMbps *int64 `json:"net_mbps,omitempty"` // Mbit/s in the busier direction
	StoMBps *int64 `json:"sto_mbps,omitempty"` // MB/s read and written
}

// StorageCheck is one run of a node's storage hook. N grows from run to run; 0 =
// it has not run yet since the agent started.
type StorageCheck struct {
	N      int64  `json:"n"`
	PPM    int64  `json:"ppm"`              // of the nominal bandwidth
	Failed string `json:"failed,omitempty"` // why the hook said nothing; PPM means nothing then
}

// Check is one run of a node's own health check. N grows from run to run; 0 = it
// has not run yet since the agent started.
type Check struct {
	N       int64  `json:"n"`
	Outcome string `json:"outcome"`          // ok, degraded or fault
	Reason  string `json:"reason,omitempty"` // first line of its output, at most 200 bytes
}

// DeviceUse is one reading of one device. UtilPct is below 0 where unknown.
type DeviceUse struct {
	Index      int   `json:"index"`
	UtilPct    int64 `json:"util_pct"`
	HBMUsedMiB int64 `json:"hbm_used_mib"`
	OK         bool  `json:"ok"`
}

// AttemptSeen is what the node knows of one attempt. ElapsedUS is real
// boot-clock µs since the accepted claim; the server multiplies by its speed.
type AttemptSeen struct {
	Attempt   ledger.AttemptID `json:"attempt"`
	Fence     int64            `json:"fence"`
	Rank      int              `json:"rank"`
	State     string           `json:"state"`
	ElapsedUS int64            `json:"elapsed_us"`
}

// ClaimRequest is a launcher's one-time leave to run user code. Launcher is a
// random name of this launcher: the same launcher asking again gets the same
// answer, another one is refused.
type ClaimRequest struct {
	Attempt  ledger.AttemptID `json:"attempt"`
	Fence    int64            `json:"fence"`
	Rank     int              `json:"rank"`
	Launcher string           `json:"launcher"`
	PID      int              `json:"pid"`
	BootUS   int64            `json:"boot_us"`
}

// ClaimReply grants a claim. A closed attempt, an old fence or a missing lot is
// a 409 Problem instead and nothing runs.
type ClaimReply struct {
	OK     bool `json:"ok"`
	Resume bool `json:"resume"`
}

// Causes of an end.
const (
	CauseExit         = "exit"          // ran to its own end
	CauseStopped      = "stopped"       // ended after the server's stop
	CauseRefused      = "claim_refused" // never started
	CauseWithdrawn    = "withdrawn"     // stopped before its claim; never started
	CauseStartFailed  = "start_failed"  // claimed or not, the command could not be started
	CauseNoUser       = "no_local_user" // this node has no unprivileged user to run it as; never started
	CauseLauncherLost = "launcher_lost" // the launcher died without an end record
	CauseRebooted     = "node_rebooted" // the node restarted under it
	CauseUnknown      = "unknown_here"  // ordered to run, but this node has no trace of it
)

// EndedReport is the launcher's truth about one attempt's part on this node.
// It is sent until acknowledged; the server takes it any number of times.
type EndedReport struct {
	Attempt  ledger.AttemptID `json:"attempt"`
	Fence    int64            `json:"fence"`
	Rank     int              `json:"rank"`
	Launcher string           `json:"launcher"`
	Started  bool             `json:"started"`   // user code ran
	ExitCode int              `json:"exit_code"` // −1 when ended by a signal or unknown
	Signal   int              `json:"signal"`    // 0 when it exited by itself
	// ElapsedUS is real boot-clock µs from the accepted claim to the moment the
	// whole process group was gone.
	ElapsedUS int64 `json:"elapsed_us"`
	// TermUS is the elapsed at which the server-ordered stop reached the command
	// (checkpoint hook or SIGTERM, the start of grace), 0 when there was none.
	TermUS   int64  `json:"term_us"`
	StopKind string `json:"stop_kind,omitempty"`
	Cause    string `json:"cause"`
	Detail   string `json:"detail,omitempty"` // one sentence for people
}

// EndedReply acknowledges an end record. Superseded means that a newer fence or
// an earlier close already decided; that too is an acknowledgement.
type EndedReply struct {
	Superseded bool `json:"superseded,omitempty"`
}

// LogChunk carries output of one attempt's part from Offset on. An empty one
// asks how much the server has.
type LogChunk struct {
	Attempt ledger.AttemptID `json:"attempt"`
	Rank    int              `json:"rank"`
	Offset  int64            `json:"offset"`
	Data    []byte           `json:"data"` // base64 in JSON, at most MaxLogChunk bytes
}

// MaxLogChunk bounds the data of one LogChunk, bytes.
const MaxLogChunk = 128 << 10

// LogReply says where to go on; the server is right when the two disagree.
type LogReply struct {
	NextOffset int64 `json:"next_offset"`
}
