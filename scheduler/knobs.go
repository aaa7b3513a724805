package scheduler

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"tranche/ledger"
)

// Unit says how a knob's number is written for people.
type Unit string

// Units of knobs.
const (
	UnitDuration Unit = "duration" // ms; "8 h"
	UnitPercent  Unit = "percent"  // ppm; "5 %"
	UnitCount    Unit = "count"
	UnitSwitch   Unit = "switch" // on or off
	UnitChoice   Unit = "choice"
)

// Knob is one number of the policy: what it is called, what it may be, what it does.
type Knob struct {
	Name    string // as in the policy's JSON
	Title   string
	Group   string
	Unit    Unit
	Min     int64
	Max     int64
	Choices []string // of a choice
	Help    string
	field   string
}

const (
	secondMs = int64(1000)
	minuteMs = 60 * secondMs
	hourMs   = 60 * minuteMs
	dayMs    = 24 * hourMs
)

// Knobs lists every knob of the policy, in the order people read them.
func Knobs() []Knob {
	return []Knob{
		{"lookback_ms", "Lookback", "Fair share", UnitDuration, 10 * minuteMs, 90 * dayMs, nil, "Past usage that counts in standings. Longer forgives a burst later; shorter lets a group that was away catch up less.", "LookbackMs"},
		{"commit_floor_ms", "Least commitment", "Fair share", UnitDuration, 0, 8 * hourMs, nil, "What a running attempt counts at least, whatever is left of its protection. Higher spreads starts over more groups within one cycle.", "CommitFloorMs"},
		{"heads_per_project", "Jobs looked at per project", "Fair share", UnitCount, 1, 1000, nil, "Most jobs of one project, and of one of its members, that a cycle looks at. More explains longer queues and costs time.", "HeadsPerProject"},
		{"margin_ppm", "Margin of V3", "Eviction", UnitPercent, 0, 1_000_000, nil, "Part of the preemptor's minimum commitment added to its side before it may evict another project. Higher evicts less often.", "MarginPPM"},
		{"evict_per_minute", "Evictions per minute", "Eviction", UnitCount, 0, 1_000_000, nil, "Most evictions under V1 and V3 a minute, over all pools; 0 sets no bound.", "EvictPerMinute"},
		{"evict_burst", "Evictions at once", "Eviction", UnitCount, 1, 1_000_000, nil, "How many of them may come together after a quiet time.", "EvictBurst"},
		{"cap_ms", "Longest minimum runtime", "Contract", UnitDuration, 15 * minuteMs, 7 * dayMs, nil, "The longest protection a job may ask for. It bounds every wait: a reserved start comes at most this, a grace and a cycle after its claim.", "CapMs"},
		{"grace_ms", "Grace", "Contract", UnitDuration, 0, hourMs, nil, "Time between SIGTERM and SIGKILL that a job gets when it says nothing.", "GraceMs"},
		{"grace_cap_ms", "Longest grace", "Contract", UnitDuration, 0, hourMs, nil, "The most a job may ask for. Longer lets jobs save more, and lets others wait longer for their devices.", "GraceCapMs"},
		{"unfunded_grace_ms", "Longest grace of unfunded jobs", "Contract", UnitDuration, 0, 10 * minuteMs, nil, "Unfunded attempts leave this fast for funded ones.", "UnfundedGraceMs"},
		{"max_runtime_ms", "Maximum runtime", "Contract", UnitDuration, hourMs, 90 * dayMs, nil, "After this an attempt ends, when the job says nothing.", "MaxRuntimeMs"},
		{"hold_step_ms", "Step of holds", "Contract", UnitDuration, minuteMs, 8 * hourMs, nil, "After its protection an attempt sets this much more aside at a time. Longer posts less often, and binds more money.", "HoldStepMs"},
		{"past_protection_ppm", "Price after protection", "Contract", UnitPercent, 10_000, ledger.MaxPastPPM, nil, "What a GPU-second costs after protection, of the full price. Less rewards jobs that ask for little protection and can be stopped; what is set aside already keeps its price.", "PastProtectionPPM"},
		{"debug_min_ms", "Debug: longest minimum", "Contract", UnitDuration, 5 * minuteMs, hourMs, nil, "A job protected no longer than this, on few GPUs, is a debug job: those who leave soonest make room for it.", "DebugMinMs"},
		{"debug_gpus", "Debug: most GPUs", "Contract", UnitCount, 1, 64, nil, "And it wants at most so many GPUs.", "DebugGPUs"},
		{"reserved_starts", "Reserved starts", "Reserved start", UnitSwitch, 0, 1, nil, "Promise one large job per pool nodes and an instant. Off lets large jobs wait until chance frees enough nodes at once.", "ReservedStarts"},
		{"large_min_ppm", "A large job needs at least", "Reserved start", UnitPercent, 10_000, 1_000_000, nil, "Part of its pool's GPUs. Lower promises starts to smaller jobs, too, which then wait for each other.", "LargeMinPPM"},
		{"holder_evicts", "The holder evicts at its time (V4)", "Reserved start", UnitSwitch, 0, 1, nil, "At its instant the holder evicts whoever is past protection on its nodes. Off leaves it to V1 to V3: then its wait has no bound.", "HolderEvicts"},
		{"freeze_ppm", "Storm: part of a pool", "Storms", UnitPercent, 10_000, 1_000_000, nil, "When more of a pool's nodes than this fall silent or break within five minutes, nothing is lost and nothing placed until they are back.", "FreezePPM"},
		{"freeze_nodes", "Storm: at least so many nodes", "Storms", UnitCount, 1, 10_000, nil, "And at least so many nodes, so that two of four are no storm.", "FreezeNodes"},
		{"check_bad", "Bad checks in a row", "Health checks", UnitCount, 1, 100, nil, "So many bad health checks one after another make a node degraded: nothing new is placed on it.", "CheckBad"},
		{"check_good", "Good checks in a row", "Health checks", UnitCount, 1, 100, nil, "So many good ones one after another, for at least the dwell, make it healthy again.", "CheckGood"},
		{"check_dwell_ms", "Dwell", "Health checks", UnitDuration, 0, dayMs, nil, "A node degraded for so long is drained; it stays drained or degraded for at least so long. Real time.", "CheckDwellMs"},
		{"auto_drain_ppm", "Drained by checks at once", "Health checks", UnitPercent, 0, 1_000_000, nil, "Most of a pool's nodes that their checks may drain at one time; one always may.", "AutoDrainPPM"},
		{"idle_after_ms", "Idle after", "Idle use", UnitDuration, minuteMs, dayMs, nil, "A funded attempt whose GPUs are unused for so long is marked idle; what it is charged from then on is shown as charged without use.", "IdleAfterMs"},
		{"idle_below_ppm", "Unused is below", "Idle use", UnitPercent, 0, 500_000, nil, "GPU utilisation below which a GPU counts as unused.", "IdleBelowPPM"},
		{"idle_unprotect_ms", "Protection ends when idle for", "Idle use", UnitDuration, 0, 7 * dayMs, nil, "An attempt idle for so long loses its protection; 0 never takes it.", "IdleUnprotectMs"},
		{"placer", "Placement", "Placement", UnitChoice, 0, 0, []string{PlacerRagpX, PlacerRagpIO, PlacerBestFit}, "How nodes are chosen among those with room: ragp-x keeps what is left useful to the jobs the pool usually gets, ragp-io takes the node whose rest is most like the demand, best-fit the one that keeps the least.", "Placer"},
		{"placer_seed", "Placement futures", "Placement", UnitCount, 1, 1_000_000_000, nil, "Seed of the random futures that ragp-x fills nodes with; the same seed gives the same choices.", "PlacerSeed"},
		{"visibility", "Others' projects", "Visibility", UnitChoice, 0, 0, []string{"open", "closed"}, "open: everybody signed in sees names, shares, usage, standings, queue and job shapes of all groups. closed: of groups where one has no role at or above, one sees the numbers that decide the order, but \"another project\" for every name.", "Visibility"},
		{"max_steps", "Work of a cycle", "Bounds", UnitCount, 1000, 1_000_000_000, nil, "Most candidates one cycle looks at; the rest waits for the next. More considers longer queues at once and takes longer.", "MaxSteps"},
		{"max_starts", "Starts of a cycle", "Bounds", UnitCount, 1, 100_000, nil, "Most jobs one cycle starts; the rest waits for the next, which follows at once. One transaction carries them all out: more makes a fleet that comes up full sooner, and that transaction longer.", "MaxStarts"},
	}
}

// Get is the knob's number in a policy: 0 or 1 of a switch, the place in Choices of
// a choice (−1 = none of them).
func (k *Knob) Get(p *Policy) int64 {
	switch v := reflect.ValueOf(p).Elem().FieldByName(k.field); v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return 1
		}
		return 0
	case reflect.String:
		for i, c := range k.Choices {
			if c == v.String() {
				return int64(i)
			}
		}
		return -1
	default:
		return v.Int()
	}
}

// Set turns the knob. The number must be one that Parse gave or Get would give.
func (k *Knob) Set(p *Policy, n int64) {
	switch v := reflect.ValueOf(p).Elem().FieldByName(k.field); v.Kind() {
	case reflect.Bool:
		v.SetBool(n != 0)
	case reflect.String:
		v.SetString(k.Choices[n])
	default:
		v.SetInt(n)
	}
}

// Text writes a number as people do: "8 h", "5 %", "on".
func (k *Knob) Text(n int64) string {
	switch k.Unit {
	case UnitDuration:
		if n == 0 {
			return "0"
		}
		return ledger.FormatMillis(n)
	case UnitPercent:
		whole, rest := n/10_000, n%10_000
		if rest == 0 {
			return strconv.FormatInt(whole, 10) + " %"
		}
		return strconv.FormatInt(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%04d", rest), "0") + " %"
	case UnitSwitch:
		if n != 0 {
			return "on"
		}
		return "off"
	case UnitChoice:
		if n < 0 || n >= int64(len(k.Choices)) {
			return ""
		}
		return k.Choices[n]
	}
	return strconv.FormatInt(n, 10)
}

// Range words what the knob may be: "15 min to 7 d".
func (k *Knob) Range() string {
	switch k.Unit {
	case UnitSwitch:
		return "on or off"
	case UnitChoice:
		return strings.Join(k.Choices, ", ")
	}
	return k.Text(k.Min) + " to " + k.Text(k.Max)
}

// Parse reads what a person typed, and refuses what is out of range.
func (k *Knob) Parse(text string) (int64, *ledger.Refusal) {
	n, ok := k.read(strings.TrimSpace(text))
	if ok && (k.Unit == UnitChoice || n >= k.Min && n <= k.Max) {
		return n, nil
	}
	how := map[Unit]string{UnitDuration: `, written like "8 h", "90 min" or "1h30m"`, UnitPercent: `, written like "5 %"`, UnitCount: ", a whole number"}[k.Unit]
	return 0, &ledger.Refusal{Kind: ledger.Invalid, Code: "policy.range", Field: k.Name, Detail: k.Title + " is " + k.Range() + how + "."}
}

func (k *Knob) read(text string) (int64, bool) {
	switch k.Unit {
	case UnitDuration:
		return readSpan(text)
	case UnitPercent:
		amount, refusal := ledger.ParseGPUHours("", strings.TrimSpace(strings.TrimSuffix(text, "%")), 0)
		// A GPU-hour is 3,600,000 units: the parser is exact, and so is the part.
		ppm := int64(amount) / 360
		return ppm, refusal == nil && ppm*360 == int64(amount)
	case UnitSwitch:
		return map[string]int64{"on": 1, "yes": 1, "true": 1}[text], text == "on" || text == "off" || text == "yes" || text == "no" || text == "true" || text == "false"
	case UnitChoice:
		for i, c := range k.Choices {
			if c == text {
				return int64(i), true
			}
		}
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	return n, err == nil
}

// readSpan reads "8 h", "1h30m", "90 min", "7 d", "1500 ms" or "0".
func readSpan(text string) (int64, bool) {
	if text == "0" {
		return 0, true
	}
	total, rest := int64(0), text
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || n > 1_000_000_000 {
			return 0, false
		}
		rest = strings.TrimSpace(rest[digits:])
		letters := len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))
		unit, ok := map[string]int64{"ms": 1, "s": secondMs, "m": minuteMs, "min": minuteMs, "h": hourMs, "d": dayMs}[rest[:letters]]
		if !ok {
			return 0, false
		}
		total += n * unit
		rest = rest[letters:]
	}
	return total, text != ""
}

// Validate names every knob that is out of range, and what does not go together.
func (p *Policy) Validate() ledger.Refusals {
	var out ledger.Refusals
	for _, k := range Knobs() {
		if n := k.Get(p); k.Unit == UnitChoice && n < 0 || k.Unit != UnitChoice && (n < k.Min || n > k.Max) {
			out = append(out, &ledger.Refusal{Kind: ledger.Invalid, Code: "policy.range", Field: k.Name, Detail: k.Title + " is " + k.Range() + "."})
		}
	}
	want := func(ok bool, field, detail string) {
		if !ok {
			out = append(out, &ledger.Refusal{Kind: ledger.Invalid, Code: "policy.pair", Field: field, Detail: detail})
		}
	}
	want(p.GraceMs <= p.GraceCapMs, "grace_ms", "The grace of a job that says nothing is at most the longest grace.")
	want(p.UnfundedGraceMs <= p.GraceCapMs, "unfunded_grace_ms", "Unfunded jobs get at most the longest grace.")
	want(p.HoldStepMs <= p.CapMs, "hold_step_ms", "A step of holds is at most the longest minimum runtime.")
	want(p.DebugMinMs <= p.CapMs, "debug_min_ms", "A debug job's minimum is at most the longest minimum runtime.")
	want(p.CapMs <= p.MaxRuntimeMs, "cap_ms", "The longest minimum runtime is at most the maximum runtime.")
	want(p.IdleUnprotectMs == 0 || p.IdleUnprotectMs >= p.IdleAfterMs, "idle_unprotect_ms", "Protection ends at the earliest when the attempt is marked idle.")
	return out
}

// Turn is one knob that differs between two policies.
type Turn struct {
	Knob Knob
	From int64
	To   int64
}

// Turned lists the knobs in which two policies differ, in the order of Knobs.
func Turned(from, to *Policy) []Turn {
	var out []Turn
	for _, k := range Knobs() {
		if a, b := k.Get(from), k.Get(to); a != b {
			out = append(out, Turn{k, a, b})
		}
	}
	return out
}
