package web

import (
	"fmt"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

// shapeText is what a job occupies: "2 × 8 GPUs", "¼ of a GPU" as "0.25 GPU".
func shapeText(nodes, gpus, gpuMilli, cpuMilli int64) string {
	var one string
	switch {
	case gpus == 0:
		one = plural((cpuMilli+999)/1000, "core")
	case gpuMilli > 0 && gpuMilli < 1000:
		one = strings.TrimRight(fmt.Sprintf("0.%03d", gpuMilli), "0") + " GPU"
	default:
		one = plural(gpus, "GPU")
	}
	if nodes > 1 {
		return strconv.FormatInt(nodes, 10) + " × " + one
	}
	return one
}

func shapeOf(j *store.JobLine) string {
	return shapeText(j.Shape.Nodes, j.Shape.GPUs, j.Shape.GPUMilli, j.Shape.CPUMilli)
}

// jobName is how lists call a job.
func jobName(j *store.JobLine) string {
	if j.ID == scheduler.HiddenJob {
		return "a job"
	}
	if j.Name != "" {
		if j.ArrayID != 0 {
			return j.Name + " [" + strconv.Itoa(int(j.ArrayIndex)) + "]"
		}
		return j.Name
	}
	return "job " + idText(j.ID)
}

// pathText is the path of a job's project as programs read it.
func pathText(j *store.JobLine) string {
	if j.ID == scheduler.HiddenJob {
		return ledger.Hidden
	}
	return j.Path
}

// stateOf gives a job's state as people read it, and its mark.
func (s *server) stateOf(j *store.JobLine) (string, view.Mark) {
	now := s.store.Now()
	switch j.State {
	case "waiting":
		return "waiting", view.MarkWaiting
	case "starting":
		if j.Last.Phase == "nominated" {
			return "starting when its GPUs are left", view.MarkStarting
		}
		return "starting", view.MarkStarting
	case "running":
		switch {
		case !j.Last.Funded:
			return "running, unfunded", view.MarkUnfunded
		case j.Last.ProtectedUntil > now:
			return "running, protected until " + s.clockOrDay(j.Last.ProtectedUntil), view.MarkProtected
		}
		return "running, past protection", view.MarkPast
	case "ending":
		return "ending: " + ruleWord(j.Last.Rule), view.MarkEnding
	}
	return overText(j), ""
}

// ruleWord says in two words why an attempt is told to stop.
func ruleWord(rule string) string {
	switch rule {
	case "V1", "V2", "V3", "V4", "VS":
		return "evicted by rule " + rule
	case "V5", "V5-hard":
		return "its node is drained"
	case "max-runtime":
		return "maximum runtime reached"
	case "money":
		return "the money ended"
	case "cancel":
		return "cancelled"
	case "operator":
		return "stopped by an operator"
	case "replan":
		return "its node fell away"
	case "gang":
		return "another part of it failed"
	case "lost":
		return "a node of it was lost"
	case "unreserved":
		return "its reserved start fell away"
	}
	return "finishing"
}

// overText says how a job that is over ended.
func overText(j *store.JobLine) string {
	switch j.Result {
	case "ok":
		return "finished"
	case "cancelled":
		return "cancelled"
	case "preempted":
		return "evicted, not resumable"
	case "lost":
		return "node lost, not resumable"
	case "timeout":
		return "stopped at its maximum runtime"
	case "funds":
		return "stopped when the money ended"
	case "failed":
		return "failed with " + exitText(j.ExitCode, j.ExitSignal)
	}
	return j.State
}

// exitText is an exit status: "exit 3", "signal 9".
func exitText(code *int, signal int) string {
	switch {
	case signal != 0:
		return "signal " + strconv.Itoa(signal)
	case code == nil:
		return "no exit status"
	}
	return "exit " + strconv.Itoa(*code)
}

// endText says how an attempt ended.
func endText(a *store.AttemptLine) string {
	text := ""
	switch a.Cause {
	case "":
		return ""
	case "finished":
		return exitText(a.ExitCode, a.ExitSignal)
	case "preempted":
		text = ruleWord(a.Rule)
		if a.StopByJob != 0 {
			text += " for " + scheduler.JobName(a.StopByJob)
		}
		return text
	case "cancelled":
		text = "cancelled"
	case "lost":
		text = "node lost"
	case "max-runtime":
		text = "maximum runtime reached"
	case "money":
		text = "the money ended"
	case "refused":
		text = "never started"
	default:
		text = a.Cause
	}
	if a.Detail != "" {
		text += ": " + a.Detail
	}
	return text
}

// clockOrDay is a time of day for instants of today, else a date with it.
func (s *server) clockOrDay(at ledger.Instant) string {
	t, now := at.Time().In(s.zone), s.store.Now().Time().In(s.zone)
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("2 January, 15:04")
}

// elapsedOf is how long a job's newest attempt has run: "3 h 20 min", "–".
func (s *server) elapsedOf(a *store.AttemptHead) string {
	if a == nil || a.Started == 0 {
		return "–"
	}
	if a.Ended != 0 {
		return ledger.FormatMillis(a.ElapsedMs)
	}
	return ledger.FormatMillis(max(a.ElapsedMs, s.store.Now().MillisSince(a.Started)))
}

// jobRow is a job in a list.
func (s *server) jobRow(j *store.JobLine, lookbackMs int64) view.JobRow {
	row := view.JobRow{
		ID: j.ID, Name: jobName(j), Owner: j.Owner, ProjectID: j.Project, Project: j.Title, PoolID: j.Pool, Pool: j.PoolName,
		Shape: shapeOf(j), State: j.State, Submitted: s.when(j.Submitted), Elapsed: s.elapsedOf(j.Last), Charged: hours(j.Charged),
	}
	row.StateText, row.Mark = s.stateOf(j)
	row.Why = s.whyShort(j, lookbackMs)
	if j.ArrayID != 0 {
		row.Index = strconv.Itoa(int(j.ArrayIndex))
	}
	if a := j.Array; a != nil {
		row.Array = &view.ArrayRow{ID: a.ID, Indices: a.Indices, After: a.After, ArrayCounts: arrayCounts(a)}
		row.Name, row.State, row.Elapsed, row.Charged = arrayName(a), "array", "–", hours(a.Charged)
	}
	return row
}

func (s *server) jobRows(jobs []store.JobLine, lookbackMs int64) []view.JobRow {
	rows := make([]view.JobRow, len(jobs))
	for i := range jobs {
		rows[i] = s.jobRow(&jobs[i], lookbackMs)
	}
	return rows
}

// spanText writes a contract's duration as its field takes it back: "1 h", "90 min", "0".
func spanText(ms int64) string {
	switch {
	case ms == 0:
		return "0"
	case ms%86_400_000 == 0 && ms > 86_400_000:
		return strconv.FormatInt(ms/86_400_000, 10) + " days"
	case ms%3_600_000 == 0:
		return strconv.FormatInt(ms/3_600_000, 10) + " h"
	case ms%60_000 == 0 && ms > 60_000:
		return strconv.FormatInt(ms/60_000, 10) + " min"
	case ms%1000 == 0:
		return strconv.FormatInt(ms/1000, 10) + " s"
	}
	return strconv.FormatInt(ms, 10) + " ms"
}

// minimumText is a contract's protected time in tables.
func minimumText(ms int64) string {
	if ms == 0 {
		return "free"
	}
	return spanText(ms)
}

// parseSpan reads what a person typed as a duration: "1 h", "90 min", "1h30m",
// "7 days", "0"; milliseconds.
func parseSpan(field, text string) (int64, *ledger.Refusal) {
	unreadable := invalid(field, "duration.unreadable", "Write a duration with its unit, such as 90 min, 1 h or 7 days.")
	rest := strings.ToLower(strings.TrimSpace(text))
	if rest == "0" {
		return 0, nil
	}
	var sum int64
	for parts := 0; rest != ""; parts++ {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || parts == 4 {
			return 0, unreadable
		}
		rest = strings.TrimLeft(rest[digits:], " \u00a0\u202f")
		letters := len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))
		unit, known := spanUnits(rest[:letters])
		if !known || n > 366*86_400_000/unit {
			return 0, unreadable
		}
		sum += n * unit
		rest = strings.TrimLeft(rest[letters:], " \u00a0\u202f")
	}
	if sum == 0 && strings.TrimSpace(text) == "" {
		return 0, unreadable
	}
	return sum, nil
}

// spanUnits gives a unit's milliseconds.
func spanUnits(unit string) (int64, bool) {
	switch unit {
	case "ms":
		return 1, true
	case "s", "sec", "second", "seconds":
		return 1000, true
	case "m", "min", "minute", "minutes":
		return 60_000, true
	case "h", "hour", "hours":
		return 3_600_000, true
	case "d", "day", "days":
		return 86_400_000, true
	}
	return 0, false
}
