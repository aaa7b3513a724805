package scheduler

import "tranche/ledger"

// Class says what occupied GPU-time counts as. Only Funded is charged, and only
// Funded and Unfunded count in the two lookbacks.
type Class string

// The classes of an attempt's occupancy. Credited time was charged and given
// back (node lost, hard drain, operator stop): it occupied, but leaves the
// lookback.
const (
	ClassStarting Class = "starting" // leased, claim awaited
	ClassFunded   Class = "funded"
	ClassUnfunded Class = "unfunded"
	ClassEnding   Class = "ending" // told to leave, devices not free yet
	ClassCredited Class = "credited"
)

// Segment is one span of an attempt's occupancy. To = 0 means it lasts on.
// MilliGPU is what it occupies; ChargedMilliGPU is what standings count (more
// when a job takes an unusual part of a node's CPU or memory).
type Segment struct {
	Class           Class   `json:"class"`
	From            Instant `json:"from"`
	To              Instant `json:"to,omitempty"`
	MilliGPU        int64   `json:"milli_gpu"`
	ChargedMilliGPU int64   `json:"charged_milli_gpu"`
}

// JobPhase is where a job stands as a whole.
type JobPhase int8

// The phases of a job. An Active job has a live attempt; its Run.Phase says more.
const (
	JobWaiting JobPhase = iota + 1
	JobPaused
	JobActive
	JobOver
)

// Result says how a job that is over ended.
type Result string

// Results of jobs.
const (
	ResultOK        Result = "ok"
	ResultFailed    Result = "failed"
	ResultCancelled Result = "cancelled"
	ResultPreempted Result = "preempted" // not resumable
	ResultLost      Result = "lost"      // not resumable, node lost
	ResultTimeout   Result = "timeout"   // maximum runtime
	ResultFunds     Result = "funds"     // money ended and the contract says stop
)

// Cause says why an attempt is over.
type Cause string

// Causes of attempts' ends.
const (
	CauseFinished   Cause = "finished" // by itself
	CausePreempted  Cause = "preempted"
	CauseCancelled  Cause = "cancelled"
	CauseLost       Cause = "lost"
	CauseMaxRuntime Cause = "max-runtime"
	CauseMoney      Cause = "money"
	CauseRefused    Cause = "refused" // never started
)

// Exit is how one member of an attempt ended.
type Exit struct {
	Code    int  `json:"code"`
	Signal  int  `json:"signal,omitempty"`
	Stopped bool `json:"stopped,omitempty"` // it ended after the server's SIGTERM
	Lost    bool `json:"lost,omitempty"`    // its node fell silent or has no trace of it
}

// Member is an attempt's part on one node. ElapsedMs and TermMs are business
// milliseconds since its own claim, by the launcher's boot clock.
type Member struct {
	Rank      int32   `json:"rank"`
	Claimed   Instant `json:"claimed,omitempty"`
	ElapsedMs int64   `json:"elapsed_ms,omitempty"`
	TermMs    int64   `json:"term_ms,omitempty"` // when the ordered SIGTERM was delivered; 0 = never
	Ended     bool    `json:"ended,omitempty"`
	Exit      Exit    `json:"exit"`
}

// Run is one attempt as Advance keeps it: contract, books and members. Elapsed
// times are milliseconds since Started.
type Run struct {
	Attempt  ledger.AttemptID `json:"attempt"`
	Job      ledger.JobID     `json:"job"`
	N        int32            `json:"n"`
	Project  ledger.GroupID   `json:"project"`
	Pool     ledger.PoolID    `json:"pool"`
	Rate     ledger.Rate      `json:"rate"`
	Past     ledger.Past      `json:"past,omitzero"` // price of its seconds without protection
	MilliGPU int64            `json:"milli_gpu"`     // occupied, whole gang
	MinMs    int64            `json:"min_ms"`        // 0 when it started unfunded
	Contract Contract         `json:"contract"`
	Prior    ledger.Amount    `json:"prior,omitempty"` // charged to the job by earlier attempts

	Phase          Phase          `json:"phase"`  // 0 = closed or none
	Funded         bool           `json:"funded"` // charged to a budget now
	FundedMs       int64          `json:"funded_ms,omitempty"`
	Since          Instant        `json:"since"`            // nominated or leased
	Leased         Instant        `json:"leased,omitempty"` // 0 while nominated
	Started        Instant        `json:"started,omitempty"`
	ProtectedUntil Instant        `json:"protected_until,omitempty"`
	Signalled      Instant        `json:"signalled,omitempty"`
	Rule           Rule           `json:"rule,omitempty"` // why it was told to stop
	StopMs         int64          `json:"stop_ms,omitempty"`
	Checkpoint     Instant        `json:"checkpoint,omitempty"`
	HoldUntilMs    int64          `json:"hold_until_ms,omitempty"`
	ChargedMs      int64          `json:"charged_ms,omitempty"`
	ProvenMs       int64          `json:"proven_ms,omitempty"`
	Hold           []ledger.Piece `json:"hold,omitempty"`
	Reserved       *Reservation   `json:"reserved,omitempty"` // in phase Reserved
	Charged        ledger.Amount  `json:"charged,omitempty"`  // by this attempt
	Credited       ledger.Amount  `json:"credited,omitempty"` // of Charged, given back
	CreditFromMs   int64          `json:"credit_from_ms,omitempty"`
	CreditToMs     int64          `json:"credit_to_ms,omitempty"`
	Ended          Instant        `json:"ended,omitempty"`
	Cause          Cause          `json:"cause,omitempty"` // once closed
	Members        []Member       `json:"members"`
}

// Life is one job with its latest attempt.
type Life struct {
	Job    JobPhase `json:"job"`
	Result Result   `json:"result,omitempty"`
	Cancel bool     `json:"cancel,omitempty"` // asked for while an attempt lived
	Run    Run      `json:"run"`
}

// EventKind names what happened.
type EventKind int8

// The events of a job's life, with the fields of Event each one reads.
const (
	EvNominated   EventKind = iota + 1 // Run, Lots: devices owned, victims still there
	EvLeased                           // Run, Lots when it was not nominated before
	EvClaimed                          // Rank, Funds
	EvAccrued                          // Rank, ElapsedMs; PostAll at day and period ends
	EvExtended                         // Hold, FromMs, ToMs, Lots
	EvMoneyEnded                       // FromMs = elapsed where the money ended
	EvSignalled                        // Rule: told to stop, for any reason but a cancel
	EvCancelled                        // by its owner
	EvFinished                         // Rank, ElapsedMs, TermMs, Exit, Funds: a launcher's end record
	EvLost                             // Rank, ElapsedMs (last heartbeat), Funds
	EvPaused                           // a waiting job steps aside
	EvResumed                          // and comes back
	EvReturned                         // Rank, Funds: lost, but its node is back and it still runs there
	EvReserved                         // Run, Lots: holds funds and a reserved start, no devices
	EvMoved                            // Reservation: the holder's other nodes or instant
	EvRenewed                          // Hold, FromMs, ToMs, Until, Lots: new protection in place
	EvUnprotected                      // idle too long: protection ends now
)

// Event is one thing that happened to a job at At (business time).
type Event struct {
	Kind        EventKind
	At          Instant
	Rank        int32
	ElapsedMs   int64 // of the member, since its own claim
	TermMs      int64
	FromMs      int64
	ToMs        int64
	PostAll     bool
	Rule        Rule
	Exit        Exit
	Run         *Run           // the new attempt, from NewRun
	Reservation *Reservation   // of EvMoved
	Until       Instant        // of EvRenewed: protected until then
	Hold        []ledger.Piece // of an extension
	Lots        []ledger.Lot   // facts about the lots that pieces name
	Funds       *ledger.Funds  // the project's funds now, under lock; Advance draws from a copy
	HoldStepMs  int64          // Policy.HoldStepMs, where Funds is given
}

// Step is what one event leads to. Entries are to be posted in order and in the
// same transaction. Segments is the attempt's whole occupancy so far; it
// replaces what was recorded of the attempt before.
type Step struct {
	Next     Life
	Changed  bool // false: a duplicate or late event, nothing to do
	Entries  []ledger.Entry
	Segments []Segment
	Freed    bool // the attempt is closed and its devices are free
	StopAll  bool // the members that still run must be told to stop
}

// NewRun makes the attempt that carries out a start of the job. id is its
// database key.
func NewRun(job *Job, s *Start, id ledger.AttemptID, now Instant) *Run {
	r := &Run{
		Attempt: id, Job: job.ID, N: s.N, Project: job.Project, Pool: job.Pool, Rate: job.Rate, Past: ledger.PastFrom(s.MinMs, s.PastPPM),
		MilliGPU: OccupiedMilliGPU(s.Placed), MinMs: s.MinMs, Contract: job.Contract, Prior: job.Charged,
		Funded: s.Funded, Since: now, HoldUntilMs: s.MinMs, Hold: append([]ledger.Piece(nil), s.Hold...),
		Members: make([]Member, len(s.Placed)),
	}
	for i := range s.Placed {
		r.Members[i].Rank = s.Placed[i].Rank
	}
	return r
}

// NewReserve makes the attempt that holds a reserved start. id is its database key.
func NewReserve(job *Job, s *Reserve, id ledger.AttemptID, now Instant) *Run {
	start := Start{AttemptRef: s.AttemptRef, Funded: true, MinMs: s.MinMs, Hold: s.Hold, PastPPM: s.PastPPM}
	r := NewRun(job, &start, id, now)
	res := s.Reservation
	r.Reserved = &res
	return r
}

// OccupiedMilliGPU is the sum of the devices' parts a placement takes.
func OccupiedMilliGPU(placed []Placed) int64 {
	var sum int64
	for i := range placed {
		sum += int64(len(placed[i].Devices)) * placed[i].GPUMilli
	}
	return sum
}

// price is what the attempt pays, over its whole life.
func (r *Run) price() ledger.Price { return ledger.Price{Rate: r.Rate, Past: r.Past} }

// price is what the attempt pays, over its whole life.
func (l *Live) price() ledger.Price { return ledger.Price{Rate: l.Job.Rate, Past: l.Past} }

// Live gives the attempt as the dispatcher sees it.
func (r *Run) Live(job Job, placed []Placed) Live {
	l := Live{
		Job: job, N: r.N, Attempt: r.Attempt, Phase: r.Phase, Funded: r.Funded, Since: r.Since,
		Started: r.Started, ProtectedUntil: r.ProtectedUntil, HoldUntilMs: r.HoldUntilMs, ProvenMs: r.ProvenMs,
		Signalled: r.Signalled, Rule: r.Rule, Checkpoint: r.Checkpoint, Charged: r.Charged, Placed: placed, Past: r.Past,
	}
	if r.Phase == Reserved {
		l.Reserved, l.Hold = r.Reserved, r.Hold
	}
	return l
}

// chargedToExit says whether an attempt stopped under the rule pays until its
// devices are free. Whoever is evicted pays only until the signal.
func (r Rule) chargedToExit() bool {
	switch r {
	case Cancelled, MoneyEnded, MaxRuntime, GangFailed, "":
		return true
	}
	return false
}

// credits says whether the rule breaks a promise and gives back what was
// charged since the last checkpoint.
func (r Rule) credits() bool { return r == V5Hard || r == Operator || r == NodeLost }

// Segments derives the attempt's occupancy from its state. Cost: O(1).
func (r *Run) Segments() []Segment {
	var out []Segment
	add := func(c Class, from, to Instant) {
		if to == 0 || to > from {
			out = append(out, Segment{c, from, to, r.MilliGPU, r.Rate.MilliGPU})
		}
	}
	if r.Leased != 0 {
		end := r.Started
		if end == 0 {
			end = r.Ended
		}
		add(ClassStarting, r.Leased, end)
	}
	if r.Started == 0 {
		return out
	}
	stop := r.Ended
	if !r.Rule.chargedToExit() {
		stop = r.Started.Add(r.StopMs)
	}
	at := r.Started
	if r.CreditToMs > r.CreditFromMs {
		from, to := r.Started.Add(r.CreditFromMs), r.Started.Add(r.CreditToMs)
		add(ClassFunded, at, from)
		add(ClassCredited, from, to)
		at = to
	}
	if r.Funded {
		add(ClassFunded, at, stop)
	} else {
		if from := r.Started.Add(r.FundedMs); from > at {
			add(ClassFunded, at, from)
			at = from
		}
		add(ClassUnfunded, at, stop)
	}
	if stop != 0 && stop != r.Ended {
		add(ClassEnding, stop, r.Ended)
	}
	return out
}
