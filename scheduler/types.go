// Package scheduler decides which jobs start, wait and stop. It is pure: the
// same Snapshot always gives the same Plan, byte for byte. Package store and
// package scheduler/sim fetch snapshots and carry plans out.
package scheduler

import "tranche/ledger"

// Instant, in short.
type Instant = ledger.Instant

// GPUTime is occupied GPU-time in milli-GPU-milliseconds: 1 GPU for 1 s is 1,000,000.
type GPUTime = int64

// Policy holds every knob of the dispatcher. It is versioned data inside the snapshot.
type Policy struct {
	Version           int64  `json:"version"`
	LookbackMs        int64  `json:"lookback_ms"`         // span of past usage that counts; 7 d
	CapMs             int64  `json:"cap_ms"`              // largest minimum runtime; 8 h
	CommitFloorMs     int64  `json:"commit_floor_ms"`     // 10 min
	MarginPPM         int64  `json:"margin_ppm"`          // V3: part of the preemptor's minimum commitment added to its side; 50,000
	GraceMs           int64  `json:"grace_ms"`            // default; 60 s
	GraceCapMs        int64  `json:"grace_cap_ms"`        // 10 min
	UnfundedGraceMs   int64  `json:"unfunded_grace_ms"`   // most an unfunded attempt gets; 15 s
	MaxRuntimeMs      int64  `json:"max_runtime_ms"`      // default; 7 d
	HoldStepMs        int64  `json:"hold_step_ms"`        // holds after protection; 15 min
	DebugMinMs        int64  `json:"debug_min_ms"`        // a debug job's longest minimum; 15 min
	DebugGPUs         int64  `json:"debug_gpus"`          // and most GPUs; 2
	HeadsPerProject   int    `json:"heads_per_project"`   // 32
	PastProtectionPPM int64  `json:"past_protection_ppm"` // price after protection; 1,000,000
	EvictPerMinute    int64  `json:"evict_per_minute"`    // token bucket of V1 and V3; 0 = no bound
	EvictBurst        int64  `json:"evict_burst"`         // its size
	Placer            string `json:"placer"`              // PlacerRagpX, PlacerRagpIO or PlacerBestFit
	PlacerSeed        int64  `json:"placer_seed"`         // of the random futures that ragp-x fills nodes with; 1
	MaxSteps          int64  `json:"max_steps"`           // bound on one cycle's work, in candidate looks
	MaxStarts         int    `json:"max_starts"`          // and most starts of one cycle, which one transaction carries out; 1,000; 0 = no bound
	FreezePPM         int64  `json:"freeze_ppm"`          // storm: part of a pool gone silent that freezes it; 200,000
	FreezeNodes       int64  `json:"freeze_nodes"`        // and at least so many; 3
	CheckBad          int64  `json:"check_bad"`           // bad health checks in a row that make a node degraded; 3
	CheckGood         int64  `json:"check_good"`          // good ones in a row that make it healthy again; 5
	CheckDwellMs      int64  `json:"check_dwell_ms"`      // degraded so long, it is drained; real time; 5 min
	AutoDrainPPM      int64  `json:"auto_drain_ppm"`      // most of a pool's nodes drained by their checks at once, at least one; 100,000
	ReservedStarts    bool   `json:"reserved_starts"`     // promise a start to one large job per pool
	LargeMinPPM       int64  `json:"large_min_ppm"`       // a large job needs at least this part of its pool; 250,000
	HolderEvicts      bool   `json:"holder_evicts"`       // V4: at its time the holder evicts whoever is past protection on its nodes
	IdleAfterMs       int64  `json:"idle_after_ms"`       // unused so long, an attempt is marked idle; 30 min
	IdleBelowPPM      int64  `json:"idle_below_ppm"`      // unused = GPU utilisation below this; 50,000
	IdleUnprotectMs   int64  `json:"idle_unprotect_ms"`   // idle so long, it loses its protection; 0 = never
	Visibility        string `json:"visibility"`          // "open" or "closed": what people see of others' projects; decides nothing in a cycle
}

// Closed says that people see of others' projects only that they are there.
func (p *Policy) Closed() bool { return p.Visibility == "closed" }

// DefaultPolicy is what DESIGN names.
func DefaultPolicy() Policy {
	const minute = 60_000
	return Policy{
		Version: 1, LookbackMs: 7 * 24 * 60 * minute, CapMs: 480 * minute, CommitFloorMs: 10 * minute,
		MarginPPM: 50_000, GraceMs: minute, GraceCapMs: 10 * minute, UnfundedGraceMs: 15_000,
		MaxRuntimeMs: 7 * 24 * 60 * minute, HoldStepMs: 15 * minute, DebugMinMs: 15 * minute, DebugGPUs: 2,
		HeadsPerProject: 32, PastProtectionPPM: 1_000_000, EvictPerMinute: 600, EvictBurst: 600,
		Placer: PlacerRagpX, PlacerSeed: 1, MaxSteps: 400_000, MaxStarts: 1000, FreezePPM: 200_000, FreezeNodes: 3,
		CheckBad: 3, CheckGood: 5, CheckDwellMs: 5 * minute, AutoDrainPPM: 100_000,
		ReservedStarts: true, LargeMinPPM: 250_000, HolderEvicts: true,
		IdleAfterMs: 30 * minute, IdleBelowPPM: 50_000, Visibility: "open",
	}
}

// pastPPM is the price after protection where it differs; 0 = as within it.
func (p *Policy) pastPPM() int64 { return ledger.PastFrom(0, p.PastProtectionPPM).PPM }

// Pool is a set of nodes of one GPU model that share one queue and one fair share.
type Pool struct {
	ID      ledger.PoolID `json:"id"`
	Name    string        `json:"name"`
	RatePPM int64         `json:"rate_ppm"`
	Frozen  bool          `json:"frozen,omitempty"` // storm: nothing new is placed
}

// Group is a node of the tree. A tombstone keeps usage under its parent.
type Group struct {
	ID        ledger.GroupID `json:"id"`
	Parent    ledger.GroupID `json:"parent"` // 0 for the root
	Path      string         `json:"path"`
	Project   bool           `json:"project"`
	Suspended bool           `json:"suspended,omitempty"` // starts nothing new; what runs goes on
}

// Share is a group's weight in one pool in micro-GPU (ledger.Weight); 0 = last in order.
type Share struct {
	Pool     ledger.PoolID  `json:"pool"`
	Group    ledger.GroupID `json:"group"`
	MicroGPU int64          `json:"micro_gpu"`
}

// Usage is GPU-time inside the lookback at Snapshot.Now.
type Usage struct {
	Pool     ledger.PoolID  `json:"pool"`
	Project  ledger.GroupID `json:"project"`
	Funded   GPUTime        `json:"funded"`
	Unfunded GPUTime        `json:"unfunded"`
}

// MemberUsage is one member's funded GPU-time inside the lookback; Share is the
// member's share inside the project (any positive unit; 0 counts as 1).
type MemberUsage struct {
	Pool    ledger.PoolID   `json:"pool"`
	Project ledger.GroupID  `json:"project"`
	Member  ledger.PersonID `json:"member"`
	Funded  GPUTime         `json:"funded"`
	Share   int64           `json:"share"`
	CapGPUs int64           `json:"cap_gpus,omitempty"` // most charged GPUs of theirs at once, funded; 0 = no cap
}

// Health of a node as the dispatcher sees it.
type Health int8

// Only a healthy node takes new work; the others keep what they run.
const (
	Healthy  Health = iota
	Suspect         // silent or with an unconfirmed kill: nothing new
	Draining        // soft: empties as protections end
	Faulted         // hard fault: everything leaves at once
	Lost            // its attempts have ended at the last heartbeat
)

// Node is a machine with its devices; capacities are what is installed.
type Node struct {
	ID       ledger.NodeID `json:"id"`
	Name     string        `json:"name"`
	Pool     ledger.PoolID `json:"pool"`
	Topology string        `json:"topology,omitempty"` // path label, e.g. "rack3/switch1"
	Health   Health        `json:"health,omitempty"`
	Devices  []Device      `json:"devices"`
	CPUMilli int64         `json:"cpu_milli"`
	RAMMiB   int64         `json:"ram_mib"`
	HBMMiB   int64         `json:"hbm_mib,omitempty"`   // of each device
	NetMbps  int64         `json:"net_mbps,omitempty"`  // network, Mbit/s; 0 = offers none
	StoMbps  int64         `json:"sto_mbps,omitempty"`  // storage bandwidth, MB/s; likewise
	IOCMilli int64         `json:"ioc_milli,omitempty"` // processors that move data; likewise
	StoPPM   int64         `json:"sto_ppm,omitempty"`   // what is left of the storage bandwidth while it is degraded; 0 = all
	// Planned maintenance: nothing is protected beyond MaintFrom, and from then
	// until MaintUntil the node empties as if draining. 0 = none planned.
	MaintFrom  Instant `json:"maint_from,omitempty"`
	MaintUntil Instant `json:"maint_until,omitempty"`
}

// Device is one GPU of a node, or one MIG instance.
type Device struct {
	Index int32 `json:"index"`
	Dead  bool  `json:"dead,omitempty"`
}

// Shape is what a job asks for on each of its nodes.
type Shape struct {
	Nodes    int64 `json:"nodes"`               // ≥ 1; gangs have more
	GPUs     int64 `json:"gpus"`                // per node; 0 in CPU-only pools
	GPUMilli int64 `json:"gpu_milli,omitempty"` // 1..1000 of one GPU; 0 or 1000 = whole; below 1000 only with GPUs = 1
	CPUMilli int64 `json:"cpu_milli"`
	RAMMiB   int64 `json:"ram_mib"`
	Flow
}

// Flow is what a job asks for beside GPUs, cores and memory, on each of its nodes. The
// variances say how far its kind of job strays from what it asks for.
type Flow struct {
	HBMMiB   int64 `json:"hbm_mib,omitempty"`   // of each device; 0 = as large a part of it as of its compute
	NetMbps  int64 `json:"net_mbps,omitempty"`  // Mbit/s
	StoMbps  int64 `json:"sto_mbps,omitempty"`  // MB/s
	IOCMilli int64 `json:"ioc_milli,omitempty"` // processors that move data
	HBMVar   int64 `json:"hbm_var,omitempty"`   // MiB²
	StoVar   int64 `json:"sto_var,omitempty"`   // (MB/s)²
	IOCVar   int64 `json:"ioc_var,omitempty"`   // milli-cores²
}

// Placed is the part of an attempt on one node. Rank counts from 0.
type Placed struct {
	Rank     int32         `json:"rank"`
	Node     ledger.NodeID `json:"node"`
	Devices  []int32       `json:"devices"`
	GPUMilli int64         `json:"gpu_milli"` // per device
	CPUMilli int64         `json:"cpu_milli"`
	RAMMiB   int64         `json:"ram_mib"`
	Flow
}

// Contract is what a job promises and is promised.
type Contract struct {
	MinMs       int64         `json:"min_ms"` // 0 = unfunded
	GraceMs     int64         `json:"grace_ms"`
	MaxMs       int64         `json:"max_ms"`
	Resumable   bool          `json:"resumable"`
	StopOnMoney bool          `json:"stop_on_money,omitempty"` // when money ends: stop instead of going on unfunded
	OrFree      bool          `json:"or_free,omitempty"`
	MaxCharge   ledger.Amount `json:"max_charge,omitempty"` // per job over all attempts; 0 = none
	Urgency     int8          `json:"urgency"`
	Interactive bool          `json:"interactive,omitempty"` // somebody sits at it: warned before protection ends
}

// Job waits for a start. Jobs of one project are ordered by urgency, then the
// member with least usage ÷ member share, then QueueSeq.
type Job struct {
	ID        ledger.JobID    `json:"id"`
	Project   ledger.GroupID  `json:"project"`
	Pool      ledger.PoolID   `json:"pool"`
	Member    ledger.PersonID `json:"member"`
	QueueSeq  int64           `json:"queue_seq"` // kept over preemption
	Submitted Instant         `json:"submitted"`
	Attempts  int32           `json:"attempts"` // made so far; the next has N = Attempts + 1
	Charged   ledger.Amount   `json:"charged,omitempty"`
	Shape     Shape           `json:"shape"`
	Rate      ledger.Rate     `json:"rate"` // charged milli-GPUs of the whole attempt, pool rate
	Contract  Contract        `json:"contract"`
}

// Phase of a live attempt.
type Phase int8

// Nominated attempts own their devices but wait for victims to leave them;
// Ending attempts have been told to stop and hold their devices until confirmed exit.
const (
	Nominated Phase = iota + 1
	Starting        // lease written, claim awaited
	Running
	Ending
	Reserved // holds funds and the pool's reserved start, but no devices yet
)

// Live is an attempt that holds devices. It is known by (Job.ID, N).
type Live struct {
	Job            Job              `json:"job"`
	N              int32            `json:"n"`
	Attempt        ledger.AttemptID `json:"attempt"`
	Phase          Phase            `json:"phase"`
	Funded         bool             `json:"funded"`                    // charged to a budget now; false once money ended
	Since          Instant          `json:"since"`                     // nominated or leased
	Started        Instant          `json:"started,omitempty"`         // first claim; 0 before
	ProtectedUntil Instant          `json:"protected_until,omitempty"` // latest member's claim + minimum; 0 when unfunded or not started
	HoldUntilMs    int64            `json:"hold_until_ms,omitempty"`   // elapsed time up to which holds exist
	ProvenMs       int64            `json:"proven_ms,omitempty"`       // elapsed time the agents have reported
	Signalled      Instant          `json:"signalled,omitempty"`       // told to stop
	Rule           Rule             `json:"rule,omitempty"`            // why
	Charged        ledger.Amount    `json:"charged,omitempty"`         // by this attempt so far
	Checkpoint     Instant          `json:"checkpoint,omitempty"`      // last recorded one
	Placed         []Placed         `json:"placed"`
	Past           ledger.Past      `json:"past,omitzero"`        // price of its seconds without protection
	Reserved       *Reservation     `json:"reserved,omitempty"`   // in phase Reserved
	Hold           []ledger.Piece   `json:"hold,omitempty"`       // in phase Reserved: what its start brings along
	RenewMs        int64            `json:"renew_ms,omitempty"`   // its owner asks for so much new protection; 0 = not
	WarnedMs       int64            `json:"warned_ms,omitempty"`  // the shortest time before its protection's end it was warned at
	IdleSince      Instant          `json:"idle_since,omitempty"` // marked idle since then; 0 = in use
}

// Reservation is the one promise per pool that the dispatcher makes to a large
// job it cannot place yet. Until At its nodes take only what is unprotected then.
type Reservation struct {
	Since  Instant         `json:"since"`  // the bound on the wait runs from here; a node's loss restarts it
	At     Instant         `json:"at"`     // T*: every occupant's protection is over
	Domain string          `json:"domain"` // topology label that holds all nodes; "" = the whole pool
	Nodes  []ledger.NodeID `json:"nodes"`  // ascending
}

// Slice is a booked time slice: a project's right of way on so many whole devices
// of a pool in [From, To).
type Slice struct {
	ID      ledger.SliceID `json:"id"`
	Project ledger.GroupID `json:"project"`
	Pool    ledger.PoolID  `json:"pool"`
	GPUs    int64          `json:"gpus"`
	From    Instant        `json:"from"`
	To      Instant        `json:"to"`
	Devices []Named        `json:"devices,omitempty"` // planned on; ascending; none before it comes near
}

// Named is one device of a node.
type Named struct {
	Node  ledger.NodeID `json:"node"`
	Index int32         `json:"index"`
}

// SlicePlan names a slice's devices, or others for those that fell away.
type SlicePlan struct {
	Slice   ledger.SliceID `json:"slice"`
	Devices []Named        `json:"devices"`
	Lost    []Named        `json:"lost,omitempty"` // replaced because they fell away
}

// Bucket bounds V1 and V3 evictions per minute; it may go negative once for a gang. What
// came in is counted up to At.
type Bucket struct {
	MilliTokens int64   `json:"milli_tokens"`
	At          Instant `json:"at"`
}

// Snapshot is the whole input of one cycle. Slices are sorted: Pools, Groups,
// Nodes by ID; Shares, Usage, Funds by (Pool, Group); Members by (Pool, Project,
// Member); Slices by (Pool, From, ID); Mixes by Pool; Live by (Job.ID, N); Waiting by (Pool, Project, -Urgency, QueueSeq, ID).
type Snapshot struct {
	Cycle   int64          `json:"cycle"`
	Now     Instant        `json:"now"`
	Policy  Policy         `json:"policy"`
	Pools   []Pool         `json:"pools"`
	Groups  []Group        `json:"groups"`
	Shares  []Share        `json:"shares"`
	Usage   []Usage        `json:"usage"`
	Members []MemberUsage  `json:"members"`
	Funds   []ledger.Funds `json:"funds"`
	Nodes   []Node         `json:"nodes"`
	Slices  []Slice        `json:"slices,omitempty"` // that are not over
	Live    []Live         `json:"live"`
	Waiting []Job          `json:"waiting"`
	Bucket  Bucket         `json:"bucket"`
	Mixes   []Mix          `json:"mixes,omitempty"` // by pool
	Tried   []ledger.JobID `json:"tried,omitempty"` // large jobs that failed for capacity in the cycle before; ascending
	Quiet   bool           `json:"quiet,omitempty"` // leave Reasons and Standings out of the plan

	ix     *index
	memory *Memory
}

// Rule numbers of evictions and stops; they go into the explanation.
type Rule string

// The rules of DESIGN 8, and the stops that are no eviction.
const (
	V1         Rule = "V1"      // unfunded, by any funded job
	V2         Rule = "V2"      // past protection, same project, higher urgency
	V3         Rule = "V3"      // past protection, other project, standing decides
	V4         Rule = "V4"      // past protection, by the holder of the reserved start at its time
	VS         Rule = "VS"      // unfunded or past protection, on devices that a slice has booked, before it begins
	V5         Rule = "V5"      // soft drain: at protected until
	V5Hard     Rule = "V5-hard" // hard fault: at once, credited
	MaxRuntime Rule = "max-runtime"
	MoneyEnded Rule = "money"
	Cancelled  Rule = "cancel"
	Operator   Rule = "operator"
	Replan     Rule = "replan"     // a nominated attempt whose node fell away waits again
	GangFailed Rule = "gang"       // another member of the gang ended with a failure
	NodeLost   Rule = "lost"       // another member's node was lost
	Unreserved Rule = "unreserved" // a reserved start fell away with its funds or its nodes; the job waits again
)

// AttemptRef names an attempt independently of database keys.
type AttemptRef struct {
	Job ledger.JobID `json:"job"`
	N   int32        `json:"n"`
}

// Evict is one victim of a start, with the numbers that decided it.
type Evict struct {
	AttemptRef
	Attempt  ledger.AttemptID `json:"attempt"`
	Rule     Rule             `json:"rule"`
	Standing Standing         `json:"standing"` // the victim's group below the lowest common ancestor, without the victims
	Against  Standing         `json:"against"`  // the preemptor's group there, with the job and the margin
	LostMs   int64            `json:"lost_ms"`  // since the last checkpoint or the start
}

// Standing is (usage + commitment) / share of one group among its siblings.
type Standing struct {
	Pool       ledger.PoolID  `json:"pool"`
	Group      ledger.GroupID `json:"group"`
	Usage      GPUTime        `json:"usage"`
	Commitment GPUTime        `json:"commitment"`
	MicroGPU   int64          `json:"micro_gpu"` // share
}

// Start is one job's start with the evictions it needs: all or none.
type Start struct {
	AttemptRef
	Project ledger.GroupID `json:"project"`
	Pool    ledger.PoolID  `json:"pool"`
	Funded  bool           `json:"funded"`
	MinMs   int64          `json:"min_ms"` // 0 when it starts unfunded
	Hold    []ledger.Piece `json:"hold,omitempty"`
	Placed  []Placed       `json:"placed"`
	Evict   []Evict        `json:"evict,omitempty"`
	Judged  *Judged        `json:"judged,omitempty"` // how its nodes were chosen
	// Nominate: some devices are still to be left (by victims, or by attempts
	// that were ending already); the attempt owns them and is promoted when all
	// are free. Else it is leased at once.
	Nominate bool `json:"nominate,omitempty"`
	// Reserved: the attempt exists already in phase Reserved and brings its hold.
	Reserved bool       `json:"reserved,omitempty"`
	Path     []Standing `json:"path"` // the job's groups, root's child first, when it was chosen
	Rank     int        `json:"rank"` // order of choice in this cycle's pool, from 1
	// PastPPM is the price after protection; 0 = as within it, and for a holder, who
	// has it from its reservation.
	PastPPM int64 `json:"past_ppm,omitempty"`
}

// Extension prolongs the hold of a funded attempt past its protection.
type Extension struct {
	AttemptRef
	Attempt ledger.AttemptID `json:"attempt"`
	FromMs  int64            `json:"from_ms"`
	ToMs    int64            `json:"to_ms"`
	Hold    []ledger.Piece   `json:"hold"`
}

// MoneyEnd says that a funded attempt found no further funds at AtMs of its
// elapsed time: it goes on unfunded, or is stopped.
type MoneyEnd struct {
	AttemptRef
	Attempt ledger.AttemptID `json:"attempt"`
	AtMs    int64            `json:"at_ms"`
	Stop    bool             `json:"stop"`
	Short   Reason           `json:"short"`
}

// Stop ends an attempt for a reason that needs no preemptor.
type Stop struct {
	AttemptRef
	Attempt ledger.AttemptID `json:"attempt"`
	Rule    Rule             `json:"rule"`
}

// Reserve makes a waiting job the holder of its pool's reserved start: an attempt
// in phase Reserved, with the hold for its whole protected span from At on.
type Reserve struct {
	AttemptRef
	Project     ledger.GroupID `json:"project"`
	Pool        ledger.PoolID  `json:"pool"`
	MinMs       int64          `json:"min_ms"`
	Hold        []ledger.Piece `json:"hold,omitempty"`
	Reservation Reservation    `json:"reservation"`
	Path        []Standing     `json:"path,omitempty"`
	Rank        int            `json:"rank"`
	PastPPM     int64          `json:"past_ppm,omitempty"` // price after protection; 0 = as within it
}

// ReserveMove gives a holder other nodes or another instant.
type ReserveMove struct {
	AttemptRef
	Attempt     ledger.AttemptID `json:"attempt"`
	Reservation Reservation      `json:"reservation"`
	Lost        []ledger.NodeID  `json:"lost,omitempty"` // replaced because they fell away
}

// ReserveView is what people see of a pool's reserved start.
type ReserveView struct {
	Pool    ledger.PoolID  `json:"pool"`
	Holder  *AttemptRef    `json:"holder,omitempty"`
	At      Instant        `json:"at,omitempty"`
	Latest  Instant        `json:"latest,omitempty"`   // it starts by then; 0 = no bound yet
	NoBound string         `json:"no_bound,omitempty"` // code of the reason
	Queue   []ledger.JobID `json:"queue,omitempty"`    // who would claim next, in order; at most 10
}

// Rival is who could evict an attempt once it is past its protection.
type Rival struct {
	Job     ledger.JobID   `json:"job"`
	Project ledger.GroupID `json:"project"`
	Rule    Rule           `json:"rule"`
	Mine    Standing       `json:"mine"`             // of the attempt's group below the fork, without it
	Theirs  Standing       `json:"theirs"`           // of the rival's, with its job and the margin
	Others  int            `json:"others,omitempty"` // attempts that would have to leave besides
	At      Instant        `json:"at,omitempty"`     // V4: when the holder takes its nodes
}

// Renewal answers an attempt that asked for new protection in place: granted with
// the hold that it takes, or refused with the Reason and, where standing decided,
// the rival.
type Renewal struct {
	AttemptRef
	Attempt ledger.AttemptID `json:"attempt"`
	FromMs  int64            `json:"from_ms"` // elapsed time up to which holds existed
	ToMs    int64            `json:"to_ms"`   // elapsed time at which the new protection ends
	Until   Instant          `json:"until,omitempty"`
	Hold    []ledger.Piece   `json:"hold,omitempty"`
	Refused *Reason          `json:"refused,omitempty"`
	Rival   *Rival           `json:"rival,omitempty"`
}

// Warning tells an interactive attempt that its protection ends soon.
type Warning struct {
	AttemptRef
	Attempt ledger.AttemptID `json:"attempt"`
	LeftMs  int64            `json:"left_ms"`         // the threshold: 30, 10 or 2 min
	Until   Instant          `json:"until"`           // protection's end
	Rival   *Rival           `json:"rival,omitempty"` // who is next and could evict it; nil = nobody now
}

// Fact is one named number or word of a Reason, in the order sentences use them.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Reason says why a job did not start in this cycle.
type Reason struct {
	Job   ledger.JobID `json:"job"`
	Code  string       `json:"code"` // listed in explain.go with its sentence
	Rank  int          `json:"rank"` // position in the pool's order, from 1; 0 = beyond the heads
	Facts []Fact       `json:"facts,omitempty"`
	Path  []Standing   `json:"path,omitempty"`
}

// Plan is the whole output of one cycle, in the order it is to be applied.
type Plan struct {
	Cycle     int64          `json:"cycle"`
	Now       Instant        `json:"now"`
	Policy    int64          `json:"policy"` // version
	Extend    []Extension    `json:"extend,omitempty"`
	MoneyEnds []MoneyEnd     `json:"money_ends,omitempty"`
	Stops     []Stop         `json:"stops,omitempty"`
	Unprotect []AttemptRef   `json:"unprotect,omitempty"` // idle too long: protected no more
	Renewals  []Renewal      `json:"renewals,omitempty"`
	Warnings  []Warning      `json:"warnings,omitempty"`
	Promote   []AttemptRef   `json:"promote,omitempty"` // nominated attempts whose devices are all free now
	Moves     []ReserveMove  `json:"moves,omitempty"`
	Slices    []SlicePlan    `json:"slices,omitempty"`
	Starts    []Start        `json:"starts,omitempty"`
	Reserves  []Reserve      `json:"reserves,omitempty"`
	Reasons   []Reason       `json:"reasons,omitempty"`   // by job id
	Standings []Standing     `json:"standings,omitempty"` // every group with a share, usage or commitment: what the pool page draws
	Reserved  []ReserveView  `json:"reserved,omitempty"`  // per pool with a holder or with somebody who would claim
	Tried     []ledger.JobID `json:"tried,omitempty"`     // for the next snapshot
	Bucket    Bucket         `json:"bucket"`
	Steps     int64          `json:"steps"`
}
