package web

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/store"
)

// formReader reads a form's fields and collects what cannot be read.
type formReader struct {
	values   url.Values
	refusals ledger.Refusals
}

func (f *formReader) text(name string) string { return strings.TrimSpace(f.values.Get(name)) }

// number reads a whole number; an empty field is 0.
func (f *formReader) number(name string) int64 {
	text := f.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		f.refusals = append(f.refusals, invalid(name, "number.unreadable", "Write a whole number here, such as 8."))
		return 0
	}
	return n
}

// times reads a whole number in another unit; an empty field is nil: the default.
func (f *formReader) times(name string, unit int64) *int64 {
	if f.text(name) == "" {
		return nil
	}
	n := unit * f.number(name)
	return &n
}

// span reads a duration; an empty field is nil: the default.
func (f *formReader) span(name string) *int64 {
	if f.text(name) == "" {
		return nil
	}
	ms, refusal := parseSpan(name, f.text(name))
	if refusal != nil {
		f.refusals = append(f.refusals, refusal)
		return nil
	}
	return &ms
}

// hours reads an amount; an empty field is 0.
func (f *formReader) hours(name string) ledger.Amount {
	if f.text(name) == "" {
		return 0
	}
	a, refusal := ledger.ParseGPUHours(name, f.text(name), 1)
	if refusal != nil {
		f.refusals = append(f.refusals, refusal)
	}
	return a
}

// environment reads KEY=VALUE lines.
func (f *formReader) environment(name string) map[string]string {
	env := map[string]string{}
	for line := range strings.Lines(f.values.Get(name)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			f.refusals = append(f.refusals, invalid(name, "environment.unreadable", "Write one KEY=VALUE on each line; one line has no =."))
			return nil
		}
		env[strings.TrimSpace(key)] = value
	}
	return env
}

// parseJobForm reads the submit form. What cannot be read is refused and takes
// its default, so that the rest can be checked in the same round.
func parseJobForm(values url.Values) (store.Submission, ledger.Refusals) {
	f := &formReader{values: values}
	resumable := f.text("resumable") != ""
	sub := store.Submission{
		Name: f.text("name"), Project: f.text("project"), Pool: f.text("pool"),
		Nodes: f.number("nodes"), GPUs: f.number("gpus"), GPUMilli: f.number("gpu_milli"),
		CPUMilli: 1000 * f.number("cpus"), RAMMiB: 1024 * f.number("memory_gib"),
		Flow: store.SubmittedFlow{
			HBMMiB: f.times("hbm_gib", 1024), NetMbps: f.times("net_mbps", 1), StoMbps: f.times("sto_mbps", 1), IOCMilli: f.times("io_cores", 1000),
		},
		Command: strings.ReplaceAll(values.Get("command"), "\r\n", "\n"), WorkDir: f.text("workdir"), Env: f.environment("environment"),
		OutputPath: f.text("output"), Checkpoint: f.text("checkpoint"),
		MinMs: f.span("minimum"), GraceMs: f.span("grace"), MaxMs: f.span("maximum"), Resumable: &resumable,
		StopOnMoney: f.text("at_end") == "stop", OrFree: f.text("or_free") != "", Interactive: f.text("interactive") != "",
		After: strings.Fields(strings.ReplaceAll(f.text("after"), ",", " ")), Singleton: f.text("singleton") != "", Array: f.text("array"),
		Urgency: int(min(f.number("urgency"), 1000)), MaxCharge: f.hours("max_charge"),
	}
	return sub, f.refusals
}

// fillJobForm writes an older job into the form; its contract only without a
// preset, its private parts only for readers who see them.
func fillJobForm(values map[string][]string, d *store.JobDetail, preset bool) {
	set := func(name, value string) { values[name] = []string{value} }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	set("name", d.Name)
	set("project", d.Path)
	set("pool", d.PoolName)
	set("nodes", number(d.Shape.Nodes))
	set("gpus", number(d.Shape.GPUs))
	if d.Shape.GPUMilli != 1000 {
		set("gpu_milli", number(d.Shape.GPUMilli))
	}
	for _, v := range []struct {
		name string
		n    int64
	}{{"hbm_gib", d.Shape.HBMMiB / 1024}, {"net_mbps", d.Shape.NetMbps}, {"sto_mbps", d.Shape.StoMbps}, {"io_cores", d.Shape.IOCMilli / 1000}} {
		if v.n > 0 {
			set(v.name, number(v.n))
		}
	}
	set("urgency", number(int64(d.Contract.Urgency)))
	if d.Contract.Interactive {
		set("interactive", "on")
	}
	if !preset {
		set("minimum", spanText(d.Contract.MinMs))
		set("grace", spanText(d.Contract.GraceMs))
		set("maximum", spanText(d.Contract.MaxMs))
	}
	p := d.Private
	if p == nil {
		return
	}
	set("command", p.Command)
	set("workdir", p.WorkDir)
	set("output", p.OutputPath)
	set("checkpoint", p.Checkpoint)
	lines := ""
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		lines += name + "=" + p.Env[name] + "\n"
	}
	set("environment", lines)
}
