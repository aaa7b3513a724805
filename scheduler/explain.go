package scheduler

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	"tranche/ledger"
)

// Codes of Reasons. The table below words each of them.
const (
	WhyFunds       = "funds"       // the hold is not covered
	WhyMaxCharge   = "max-charge"  // the job's own limit leaves too little
	WhyNever       = "never-fits"  // the pool cannot hold the shape even when empty
	WhyProtected   = "protected"   // no room, and too few of those who run may be stopped yet
	WhyStanding    = "standing"    // no room, and those past protection are not over-served against it
	WhyEvictRate   = "evict-rate"  // the bound on evictions per minute is reached
	WhyFull        = "full"        // an unfunded job, and no free room
	WhySuspended   = "suspended"   // the project starts nothing
	WhyFrozen      = "frozen"      // a storm: nothing is placed in the pool
	WhyBehind      = "behind"      // more jobs of its project go first than a cycle looks at
	WhyDropped     = "dropped"     // decided, but the world had changed when it was to be carried out
	WhyNominated   = "nominated"   // its devices are being left
	WhyStarting    = "starting"    // leased, the node has not begun yet
	WhyPaused      = "paused"      // by its owner
	WhyNoCycle     = "not-looked"  // no cycle has looked at it yet
	WhyOutOfWork   = "out-of-work" // the cycle's bound on work was reached before it
	WhyReserved    = "reserved"    // there would be room, but nodes are kept for the reserved start
	WhyDependency  = "dependency"  // it waits for other jobs to end
	WhyArrayLimit  = "array-limit" // as many jobs of its array go at once as it was submitted for
	WhyMemberCap   = "member-cap"  // its owner has as many GPUs at once as their cap in the project allows
	WhyMaxRuntime  = "max-runtime" // new protection would last beyond the maximum runtime
	WhyRival       = "rival"       // another job goes first in the order and could have its devices
	WhyHolder      = "holder"      // it has the pool's reserved start itself
	WhyMaintenance = "maintenance" // there would be room, but nodes go into maintenance too soon
	WhySlice       = "slice"       // there would be room, but devices are booked for a time slice too soon
)

// Names of facts.
const (
	FactNeeded    = "needed"     // GPU-hours, exact
	FactAvailable = "available"  // GPU-hours, exact
	FactShort     = "short"      // GPU-hours, exact
	FactLimitedBy = "limited_by" // path
	FactGPUs      = "gpus"       // per node
	FactWant      = "want"       // nodes asked for
	FactNodes     = "nodes"      // nodes of the pool
	FactFree      = "free"       // nodes with room
	FactRejected  = "rejected_"  // + dimension: nodes rejected for it
	FactLacks     = "lacks"      // GPUs the pool has too few of, free
	FactUntil     = "until"      // µs: when enough devices are past protection
	FactAhead     = "ahead"      // jobs that go first
	FactAfter     = "after"      // the jobs and arrays it waits for
	FactAtOnce    = "at_once"    // jobs of one array
	FactCap       = "cap"        // GPUs at once
	FactInUse     = "in_use"     // charged GPUs of the member
	FactHolder    = "holder"     // job that has the reserved start
	FactKept      = "kept_until" // µs: T* of the reserved start
	FactLatest    = "latest"     // µs: it starts by then
)

// Names turns what a Reason holds into what a reader may see: a path, or
// "another project" under a closed policy; an instant in the reader's zone.
type Names struct {
	Group   func(ledger.GroupID) string
	Instant func(Instant) string
}

// HiddenJob stands in an explanation for a job whose number the reader may not see.
const HiddenJob = ledger.JobID(-1)

// JobName is a job by its number: "job 12".
func JobName(id ledger.JobID) string {
	if id == HiddenJob {
		return "a job of " + ledger.Hidden
	}
	return "job " + strconv.FormatInt(int64(id), 10)
}

// sentences is the one table of Reason codes. {fact} is replaced by the fact's
// wording; a part in [brackets] is left out when one of its facts is missing.
var sentences = map[string]string{
	WhyFunds:       "{short} GPU-h short of the {needed} GPU-h that must be set aside before it starts[, limited by {limited_by}].",
	WhyMaxCharge:   "Its own limit leaves {available} GPU-h, but {needed} GPU-h must be set aside before it starts.",
	WhyNever:       "The pool has too few nodes that could ever hold {shape}; ask for fewer GPUs or less CPU and memory per node.",
	WhyProtected:   "Waits for {shape}: {room}[, and what runs there is protected until about {until}].[ {ahead}]",
	WhyStanding:    "Waits for {shape}: {room}, and nobody past protection has had more of its share.[ {standing}][ {ahead}]",
	WhyEvictRate:   "Waits for {shape}: {room}. As many attempts as the policy allows in a minute have been told to leave for others; it is tried again as soon as more may be.",
	WhyFull:        "Runs unfunded, so it waits for {shape} that nobody uses: {room}.[ {ahead}]",
	WhySuspended:   "Its project is suspended: what runs goes on, nothing new starts until a manager lifts it.",
	WhyFrozen:      "Many nodes of the pool fell silent at once; nothing is placed until they are back or an operator decides.",
	WhyBehind:      "More jobs of its project go before it than one cycle looks at; it comes into view as they start.",
	WhyDropped:     "It was to start, but the cluster changed in that moment; it is tried again in the next cycle.",
	WhyNominated:   "It has its devices and starts as soon as those who run there have left.",
	WhyStarting:    "It has its devices; the node is about to start it.",
	WhyPaused:      "Paused by its owner; resume it to queue it again.",
	WhyNoCycle:     "The dispatcher has not looked at it yet; that happens within seconds.",
	WhyReserved:    "Waits for {shape}: {room}. Nodes are kept for {holder}, which has the pool's reserved start from {kept_until} on; a job that is protected no longer than that may still go before it.",
	WhyHolder:      "It has the pool's reserved start: nodes are kept for it, and the last protection there is over at {kept_until}[; it starts by {latest} at the latest].",
	WhyMaintenance: "Waits for {shape}: {room}. Nodes go into planned maintenance before its protection would be over; a shorter protection still fits before that.",
	WhySlice:       "Waits for {shape}: {room}. Devices are booked for a time slice that begins before its protection would be over, or at once; a shorter protection may still fit before it, and unfunded work is lent what the slice leaves unused.",
	WhyDependency:  "It was submitted to start after {after}; it is queued at its old place when that has ended as it should, and cancelled when that cannot be any more.",
	WhyArrayLimit:  "Its array lets {at_once} of its jobs go at once, in the order of their indices; it is queued when its turn has come.",
	WhyMemberCap:   "Its owner may have {cap} GPUs at once in this project and has {in_use}; it starts when others of theirs have ended, or when who leads the project raises the cap.",
	WhyMaxRuntime:  "New protection would last beyond its maximum runtime; submit the rest as a new job.",
	WhyRival:       "A job of a group that has had less of its share, or a more urgent one of its project, goes first and could have its devices; new protection would keep it out.",
	WhyOutOfWork:   "The cycle looked at as many jobs as it may before this one; it goes on with the next cycle.",
}

// Sentence says a Reason in one sentence with its numbers.
func Sentence(r *Reason, lookbackMs int64, names Names) string {
	text, ok := sentences[r.Code]
	if !ok {
		return "Waits (" + r.Code + ")."
	}
	return fill(text, func(name string) string { return r.word(name, lookbackMs, names) })
}

// Fact gives one fact's value; "" when the Reason has none of that name.
func (r *Reason) Fact(name string) string {
	for i := range r.Facts {
		if r.Facts[i].Name == name {
			return r.Facts[i].Value
		}
	}
	return ""
}

// Outside says that the job is kept out of the queue by its submission's order.
func (r *Reason) Outside() bool { return r.Code == WhyDependency || r.Code == WhyArrayLimit }

func (r *Reason) number(name string) int64 {
	n, err := strconv.ParseInt(r.Fact(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (r *Reason) word(name string, lookbackMs int64, names Names) string {
	switch name {
	case FactShort, FactNeeded, FactAvailable:
		a, ref := ledger.ParseGPUHours("", r.Fact(name), 0)
		if ref != nil {
			return r.Fact(name)
		}
		return a.Hours()
	case FactUntil, FactKept, FactLatest:
		if r.number(name) == 0 {
			return ""
		}
		return names.Instant(Instant(r.number(name)))
	case FactHolder:
		return JobName(ledger.JobID(r.number(FactHolder)))
	case "shape":
		return r.shape()
	case "room":
		return r.room()
	case FactAhead:
		if r.Rank < 2 {
			return ""
		}
		return count(int64(r.Rank-1), "job", "jobs") + " of the pool went before it in this cycle."
	case "standing":
		if len(r.Path) == 0 {
			return ""
		}
		s := &r.Path[len(r.Path)-1]
		return "Its project " + names.Group(s.Group) + " has had " + s.Times(lookbackMs) + " × its share."
	}
	return r.Fact(name)
}

// shape words what the job asks for: "2 nodes with 8 free GPUs each".
func (r *Reason) shape() string {
	gpus, nodes := r.number(FactGPUs), max(1, r.number(FactWant))
	what := count(gpus, "free GPU", "free GPUs")
	if gpus == 0 {
		what = "enough CPU and memory"
	}
	if nodes == 1 {
		return "a node with " + what
	}
	return strconv.FormatInt(nodes, 10) + " nodes with " + what + " each"
}

// room words how many nodes would do and what the others lack.
func (r *Reason) room() string {
	free, nodes := r.number(FactFree), r.number(FactNodes)
	text := "none of the " + count(nodes, "node", "nodes") + " has them"
	if free > 0 {
		text = "only " + strconv.FormatInt(free, 10) + " of the " + count(nodes, "node", "nodes") + " " + plural(free, "has", "have") + " them"
	}
	var lacks []string
	for _, d := range []struct{ dim, word string }{
		{FitsDevices, "GPUs"},
		{FitsSharing, "a part of a GPU"},
		{FitsCPU, "CPU"},
		{FitsRAM, "memory"},
		{FitsHBM, "GPU memory"},
		{FitsNet, "network bandwidth"},
		{FitsStorage, "storage bandwidth"},
		{FitsIOC, "processors that move data"},
		{FitsHealth, "health"},
	} {
		if n := r.number(FactRejected + d.dim); n > 0 {
			lacks = append(lacks, strconv.FormatInt(n, 10)+" "+plural(n, "lacks ", "lack ")+d.word)
		}
	}
	if n := r.number(FactRejected + FitsLimit); n > 0 {
		lacks = append(lacks, strconv.FormatInt(n, 10)+" "+plural(n, "has", "have")+" room only for shorter protection")
	}
	if len(lacks) == 0 {
		return text
	}
	return text + " (" + strings.Join(lacks, ", ") + ")"
}

// Times is a standing in multiples of the share: "1.40" has had 1.4 × what the
// share gives over the lookback; four decimals below 0.1; "no share" without one.
func (s *Standing) Times(lookbackMs int64) string {
	q, ok := s.TenThousandths(lookbackMs)
	switch {
	case !ok:
		return "no share"
	case q == math.MaxInt64:
		return "over 1000000"
	case q < 1000 && q > 0:
		return "0.0" + strconv.FormatInt(q+1000, 10)[1:]
	}
	return strconv.FormatInt(q/10000, 10) + "." + pad2(uint64(q%10000/100))
}

// TenThousandths is a standing in 1/10,000 of the share: 14,000 is 1.4 × what it
// gives over the lookback; the largest number when it is beyond counting, false
// without a share.
func (s *Standing) TenThousandths(lookbackMs int64) (int64, bool) { return s.parts(lookbackMs, 10_000) }

// parts is a standing in n-ths of the share, n at most 10^9.
func (s *Standing) parts(lookbackMs int64, n uint64) (int64, bool) {
	if s.MicroGPU <= 0 || lookbackMs <= 0 {
		return 0, false
	}
	// (usage + commitment) [milli-GPU·ms] / (share/1000 [milli-GPU] × lookback [ms]).
	hi, lo := bits.Mul64(uint64(max(0, s.Usage+s.Commitment)), 1000*n)
	denHi, den := bits.Mul64(uint64(s.MicroGPU), uint64(lookbackMs))
	if denHi > 0 || hi >= den {
		return math.MaxInt64, true
	}
	q, _ := bits.Div64(hi, lo, den)
	return int64(min(q, math.MaxInt64)), true
}

// TimesApart writes two standings with as many decimals as it takes to tell them
// apart, at most nine.
func TimesApart(a, b *Standing, lookbackMs int64) (string, string) {
	x, y := a.Times(lookbackMs), b.Times(lookbackMs)
	for digits, n := 2, uint64(100); x == y && digits <= 9; digits, n = digits+1, n*10 {
		p, ok := a.parts(lookbackMs, n)
		q, also := b.parts(lookbackMs, n)
		if !ok || !also || p == math.MaxInt64 || q == math.MaxInt64 {
			return x, y
		}
		if p != q {
			return decimal(p, n), decimal(q, n)
		}
	}
	return x, y
}

// decimal writes p n-ths: 357 hundredths as "3.57".
func decimal(p int64, n uint64) string {
	rest := strconv.FormatUint(uint64(p)%n+n, 10)[1:]
	return strconv.FormatUint(uint64(p)/n, 10) + "." + rest
}

func pad2(n uint64) string {
	if n < 10 {
		return "0" + strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10)
}

func count(n int64, one, many string) string {
	return strconv.FormatInt(n, 10) + " " + plural(n, one, many)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// fill replaces {name} by word(name) and drops [parts] with an empty word.
func fill(text string, word func(string) string) string {
	var out, part strings.Builder
	dst, missing := &out, false
	for len(text) > 0 {
		i := strings.IndexAny(text, "{[]")
		if i < 0 {
			dst.WriteString(text)
			break
		}
		dst.WriteString(text[:i])
		switch c := text[i]; c {
		case '{':
			end := i + strings.IndexByte(text[i:], '}')
			w := word(text[i+1 : end])
			missing = missing || w == ""
			dst.WriteString(w)
			i = end
		case '[':
			part.Reset()
			dst, missing = &part, false
		case ']':
			if !missing {
				out.WriteString(part.String())
			}
			dst, missing = &out, false
		}
		text = text[i+1:]
	}
	return out.String()
}

// fundsReason carries a ledger refusal's numbers.
func fundsReason(job ledger.JobID, ref *ledger.Refusal) Reason {
	r := Reason{Job: job, Code: WhyFunds}
	for _, name := range []string{FactNeeded, FactAvailable, FactShort, FactLimitedBy} {
		if v := ref.Facts[name]; v != "" {
			r.Facts = append(r.Facts, Fact{name, v})
		}
	}
	return r
}

// EvictionSentence says why an attempt was told to leave for another job:
// the rule, both standings, the preemptor and what was lost.
func EvictionSentence(e *Evict, preemptor string, lookbackMs int64, names Names) string {
	lost := " Progress since its last checkpoint or start: " + ledger.FormatMillis(e.LostMs) + "."
	switch e.Rule {
	case V1:
		return "Evicted (V1): it ran unfunded, and " + preemptor + " needed its devices." + lost
	case V2:
		return "Evicted (V2): past its protection, for the more urgent " + preemptor + " of the same project." + lost
	case V4:
		return "Evicted (V4): past its protection, on nodes kept for the reserved start of " + preemptor + ", whose time had come." + lost
	case V3:
		theirs, mine := TimesApart(&e.Standing, &e.Against, lookbackMs)
		return "Evicted (V3): past its protection, and " + names.Group(e.Standing.Group) + " has had " + theirs +
			" × its share even without it, " + names.Group(e.Against.Group) + " only " + mine +
			" × with " + preemptor + " and the margin." + lost
	}
	return StopSentence(e.Rule) + lost
}

// StopSentence says why an attempt was told to stop without a preemptor.
func StopSentence(r Rule) string {
	switch r {
	case Unreserved:
		return "Its reserved start fell away, with its funds or its nodes; it waits again at its old place."
	case V5:
		return "Stopped (V5): its node is being emptied and its protection is over."
	case VS:
		return "Stopped (VS): its devices are booked for a time slice, and it was not protected any more."
	case V5Hard:
		return "Stopped (V5): its node has a fault. What it was charged since its last checkpoint is credited."
	case MaxRuntime:
		return "Stopped at its maximum runtime."
	case MoneyEnded:
		return "Stopped because the money ended and its contract says so."
	case Cancelled:
		return "Cancelled."
	case Operator:
		return "Stopped by an operator. What it was charged since its last checkpoint is credited."
	case Replan:
		return "A node of its place fell away before it began; it waits for a new one."
	case GangFailed:
		return "Stopped because another part of it failed."
	case NodeLost:
		return "Stopped because a node of it was lost. What it was charged since its last checkpoint is credited."
	}
	return "Stopped (" + string(r) + ")."
}

// NoBoundSentence says why a pool's reserved start has no latest instant yet.
func NoBoundSentence(code string) string {
	switch code {
	case NoBoundSwitch:
		return "The policy does not let the holder evict at its time, so nobody can say when the last one leaves."
	case NoBoundStarting:
		return "Attempts that are about to start on the nodes may be protected beyond the cap; the bound is known once they have begun."
	case NoBoundNodes:
		return "Too few nodes could be kept for it: some are emptied, silent or go into maintenance."
	case NoBoundFunds:
		return "The GPU-hours for its protected time are not there."
	case NoBoundFirst:
		return "A job claims it once it failed for room in two cycles and its groups have had no more than their siblings on average."
	}
	return ""
}

// StartSentence says why a job was chosen: its standing, rank and evictions.
func StartSentence(s *Start, lookbackMs int64, names Names) string {
	text := "Chosen as number " + strconv.Itoa(s.Rank) + " of the pool's order"
	if n := len(s.Path); n > 0 {
		text += ": " + names.Group(s.Path[n-1].Group) + " had had " + s.Path[n-1].Times(lookbackMs) + " × its share"
	}
	if len(s.Evict) > 0 {
		text += "; " + count(int64(len(s.Evict)), "attempt had", "attempts had") + " to leave for it"
	}
	if !s.Funded {
		return text + ". It runs unfunded: free, and any funded job may evict it."
	}
	return text + ". The first " + ledger.FormatMillis(s.MinMs) + " of its run is protected."
}

// Span words a duration: "2 h 05 min", "30 s".
func Span(ms int64) string {
	s := max(0, ms) / 1000
	switch {
	case s >= 3600:
		return strconv.FormatInt(s/3600, 10) + " h " + pad2(uint64(s%3600/60)) + " min"
	case s >= 60:
		return strconv.FormatInt(s/60, 10) + " min"
	}
	return strconv.FormatInt(s, 10) + " s"
}
