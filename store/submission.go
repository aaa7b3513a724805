package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
)

// Bounds of a submission that no policy moves.
const (
	minuteMs       = int64(60_000)
	leastMinimumMs = 5 * minuteMs
	leastMaximumMs = minuteMs
	mostMaximumMs  = 60 * 24 * 60 * minuteMs
	mostCommand    = 65_536 // bytes
	mostPath       = 4_096
	mostEnv        = 256    // variables
	mostEnvBytes   = 65_536 // names and values together
	mostNodes      = 100_000
)

// presetMinimum gives a preset's protected time.
func presetMinimum(preset string) (int64, bool) {
	switch preset {
	case "debug":
		return 15 * minuteMs, true
	case "", "train":
		return 60 * minuteMs, true
	case "long":
		return 8 * 60 * minuteMs, true
	case "free":
		return 0, true
	}
	return 0, false
}

// formCheck collects what is wrong with a form.
type formCheck struct{ refusals ledger.Refusals }

func (f *formCheck) want(ok bool, field, code, detail string) bool {
	if !ok {
		f.refusals = append(f.refusals, refuse(ledger.Invalid, code, field, detail))
	}
	return ok
}

// check turns a submission into a job, or names every wrong field.
func (sub *Submission) check(t *target, actor ledger.Actor, now ledger.Instant) (*scheduler.Job, ledger.Refusals) {
	f := &formCheck{}
	j := &scheduler.Job{Project: t.project, Pool: t.pool.id}
	sub.checkWorkload(f)
	if sub.checkShape(f, t, j) {
		sub.checkFits(f, t, j)
	}
	sub.checkContract(f, t, j)
	if f.want(sub.Urgency >= 0 && sub.Urgency <= 9, "urgency", "job.urgency", "Urgency is 0 to 9.") && sub.Urgency > 5 {
		if denied := actor.May(ledger.JobUrgent, t.path, now); denied != nil {
			f.want(false, "urgency", "job.urgency_pi", "Urgency above 5 is for the project's PI; choose 0 to 5.")
		}
	}
	j.Contract.Urgency = int8(sub.Urgency)
	if len(f.refusals) > 0 {
		return nil, f.refusals
	}
	return j, nil
}

// checkWorkload looks at what is to run.
func (sub *Submission) checkWorkload(f *formCheck) {
	sub.checkOrder(f)
	f.want(!sub.Singleton || strings.TrimSpace(sub.Name) != "", "name", "job.singleton", "Only one job of a name at a time: give it a name.")
	f.want(len(sub.Name) <= 200, "name", "job.name", "A job's name has at most 200 characters.")
	f.want(strings.TrimSpace(sub.Command) != "", "command", "job.command", "Say what to run.")
	f.want(len(sub.Command) <= mostCommand, "command", "job.command_length", "A command has at most 64 KiB; put more into a script.")
	f.want(!strings.ContainsRune(sub.Command, 0), "command", "job.command", "A command cannot contain a zero byte.")
	f.want(len(sub.WorkDir) <= mostPath && !strings.ContainsRune(sub.WorkDir, 0), "workdir", "job.workdir", "This is not a folder's path.")
	f.want(len(sub.OutputPath) <= mostPath && !strings.ContainsRune(sub.OutputPath, 0), "output_path", "job.output_path", "This is not a file's path.")
	f.want(len(sub.Checkpoint) <= mostCommand && !strings.ContainsRune(sub.Checkpoint, 0), "checkpoint", "job.checkpoint",
		"Give signal:USR1, or a command of at most 64 KiB.")
	if name, ok := strings.CutPrefix(sub.Checkpoint, "signal:"); ok {
		f.want(slices.Contains([]string{"USR1", "USR2", "HUP", "INT", "TERM"}, name), "checkpoint", "job.checkpoint",
			"A checkpoint signal is USR1, USR2, HUP, INT or TERM.")
	}
	f.want(len(sub.Env) <= mostEnv, "env", "job.env", fmt.Sprintf("At most %d environment variables.", mostEnv))
	size := 0
	for _, name := range slices.Sorted(maps.Keys(sub.Env)) {
		size += len(name) + len(sub.Env[name])
		if !f.want(envName(name) && !strings.ContainsRune(sub.Env[name], 0), "env", "job.env",
			"“"+name+"” is no name of an environment variable: letters, digits and _, not beginning with a digit.") {
			continue
		}
		f.want(!strings.HasPrefix(name, "TRANCHE_"), "env", "job.env_reserved", name+" is set by Tranche itself; choose another name.")
	}
	f.want(size <= mostEnvBytes, "env", "job.env", "Environment variables have at most 64 KiB together.")
}

// checkOrder looks at what it waits for, and at its array.
func (sub *Submission) checkOrder(f *formCheck) {
	if _, refusal := parseAfter(sub.After); refusal != nil {
		f.refusals = append(f.refusals, refusal)
	}
	array, refusal := scheduler.ParseArray(sub.Array)
	if refusal != nil {
		f.refusals = append(f.refusals, refusal)
		return
	}
	if array == nil {
		return
	}
	f.want(!sub.Singleton, "singleton", "job.singleton_array", "All jobs of an array have its name; to run one at a time, write %1 after the indices.")
	f.want(array.Size() == 1 || sub.OutputPath == "" || strings.Contains(sub.OutputPath, "%a"), "output_path", "job.output_array",
		"The jobs of an array would overwrite each other's output: put %a, the index, into the path, or leave it empty.")
}

func envName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// checkShape fills the shape with its defaults and the rate, and says whether it
// is whole enough to be compared with nodes.
func (sub *Submission) checkShape(f *formCheck, t *target, j *scheduler.Job) bool {
	before := len(f.refusals)
	nodes := sub.Nodes
	if nodes == 0 {
		nodes = 1
	}
	milli := sub.GPUMilli
	if milli == 0 {
		milli = 1000
	}
	f.want(nodes >= 1 && nodes <= mostNodes, "nodes", "job.nodes", "A job runs on at least one node.")
	if t.pool.gpus == 0 {
		f.want(sub.GPUs == 0, "gpus", "job.gpus", "Pool "+t.pool.name+" has no GPUs; ask for 0.")
	} else {
		f.want(sub.GPUs >= 1, "gpus", "job.gpus", "A job in pool "+t.pool.name+" needs at least 1 GPU per node.")
	}
	f.want(milli >= 1 && milli <= 1000, "gpu_milli", "job.gpu_milli", "A part of a GPU is 1 to 1000 thousandths.")
	f.want(milli == 1000 || sub.GPUs == 1, "gpu_milli", "job.gpu_milli_whole", "Only a job with one GPU per node may take a part of it.")
	f.want(sub.CPUMilli >= 0, "cpu_milli", "job.cpu", "A job cannot have less than no cores.")
	f.want(sub.RAMMiB >= 0, "ram_mib", "job.ram", "A job cannot have less than no memory.")
	sub.Flow.check(f)
	if len(f.refusals) > before {
		return false
	}
	shape := ledger.Shape{
		Nodes: nodes, GPUs: sub.GPUs, GPUMilli: milli, CPUMilli: sub.CPUMilli, RAMMiB: sub.RAMMiB,
		NodeGPUs: t.pool.gpus, NodeCPUMilli: t.pool.cpuMilli, NodeRAMMiB: t.pool.ramMiB,
	}
	if shape.CPUMilli == 0 {
		shape.CPUMilli = max(1, ledger.DefaultCPU(shape))
	}
	if shape.RAMMiB == 0 {
		shape.RAMMiB = max(1, ledger.DefaultRAM(shape))
	}
	j.Shape = scheduler.Shape{Nodes: nodes, GPUs: sub.GPUs, GPUMilli: milli, CPUMilli: shape.CPUMilli, RAMMiB: shape.RAMMiB}
	j.Shape.Flow = sub.Flow.over(t, &j.Shape)
	j.Rate = ledger.Rate{MilliGPU: max(1, ledger.ChargedMilliGPU(shape)), PPM: t.pool.ratePPM}
	if refusal := j.Rate.Check(); refusal != nil {
		refusal.Field = "nodes"
		f.refusals = append(f.refusals, refusal)
		return false
	}
	return true
}

// checkFits refuses what no node of the pool could ever hold.
func (sub *Submission) checkFits(f *formCheck, t *target, j *scheduler.Job) {
	nodes, bounded := t.nodes, true
	if len(nodes) == 0 { // none enrolled yet: the reference node speaks for them
		nodes, bounded = []nodeSize{t.pool.reference()}, false
	}
	var most nodeSize
	var enough int64
	for i := range nodes {
		n := &nodes[i]
		most.grow(n)
		if n.Offers(n.gpus, &j.Shape) {
			enough++
		}
	}
	ok := f.want(j.Shape.GPUs <= most.gpus, "gpus", "job.too_many_gpus",
		fmt.Sprintf("No node of pool %s has %d GPUs; the largest has %d. Ask for more nodes instead.", t.pool.name, j.Shape.GPUs, most.gpus))
	if !ok {
		return // its default cores and memory are as much too many
	}
	ok = f.want(j.Shape.CPUMilli <= most.CPUMilli, "cpu_milli", "job.too_many_cores",
		fmt.Sprintf("No node of pool %s has %d cores; the largest has %d.", t.pool.name, j.Shape.CPUMilli/1000, most.CPUMilli/1000)) && ok
	ok = f.want(j.Shape.RAMMiB <= most.RAMMiB, "ram_mib", "job.too_much_ram",
		fmt.Sprintf("No node of pool %s has %d MiB of memory; the largest has %d MiB.", t.pool.name, j.Shape.RAMMiB, most.RAMMiB)) && ok
	if !bounded {
		return
	}
	ok = sub.Flow.checkFits(f, t, &j.Shape, &most) && ok
	if ok {
		f.want(enough >= j.Shape.Nodes, "nodes", "job.too_many_nodes",
			fmt.Sprintf("Pool %s has %d nodes that could hold this; the job asks for %d.", t.pool.name, enough, j.Shape.Nodes))
	}
}

// checkContract fills the contract from preset and policy.
func (sub *Submission) checkContract(f *formCheck, t *target, j *scheduler.Job) {
	p, c := t.policy, &j.Contract
	minMs, known := presetMinimum(sub.Preset)
	f.want(known, "preset", "job.preset", "Choose Debug, Train, Long or Free.")
	minMs = given(sub.MinMs, min(minMs, p.CapMs))
	f.want(minMs == 0 || (minMs >= leastMinimumMs && minMs <= p.CapMs), "min_runtime_ms", "job.minimum",
		"Protected time is 0 (free of charge, may be stopped at any time) or between 5 min and "+ledger.FormatMillis(p.CapMs)+".")
	mostGrace := p.GraceCapMs
	if minMs == 0 {
		mostGrace = p.UnfundedGraceMs
	}
	grace := given(sub.GraceMs, min(p.GraceMs, mostGrace))
	f.want(grace >= 0 && grace <= mostGrace, "grace_ms", "job.grace",
		"Grace is at most "+ledger.FormatMillis(mostGrace)+" here; unfunded jobs get at most "+ledger.FormatMillis(p.UnfundedGraceMs)+".")
	maxMs := given(sub.MaxMs, max(p.MaxRuntimeMs, minMs))
	f.want(maxMs >= max(leastMaximumMs, minMs) && maxMs <= mostMaximumMs, "max_runtime_ms", "job.maximum",
		"The maximum runtime is at least the protected time and 1 min, at most "+ledger.FormatMillis(mostMaximumMs)+".")
	f.want(sub.MaxCharge >= 0, "max_charge_units", "job.max_charge", "A limit on the charge is above 0.")
	*c = scheduler.Contract{
		MinMs: minMs, GraceMs: grace, MaxMs: maxMs, Resumable: sub.Resumable == nil || *sub.Resumable,
		StopOnMoney: sub.StopOnMoney, OrFree: sub.OrFree, MaxCharge: sub.MaxCharge, Interactive: sub.Interactive,
	}
	if j.Rate.MilliGPU > 0 && sub.MaxCharge > 0 {
		needed := j.Rate.Cum(minMs)
		f.want(needed <= sub.MaxCharge, "max_charge_units", "job.max_charge",
			"The protected time alone costs "+needed.Hours()+" GPU-h; allow at least that, or protect a shorter time.")
	}
}

// given is what a person typed, or the default.
func given(typed *int64, otherwise int64) int64 {
	if typed != nil {
		return *typed
	}
	return otherwise
}
