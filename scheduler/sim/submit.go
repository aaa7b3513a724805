package sim

import (
	"fmt"
	"strconv"
	"strings"

	"tranche/ledger"
	"tranche/scheduler"
)

func (r *Runner) submit(st *Statement) error {
	if len(st.Args) != 2 {
		return fmt.Errorf("needs a job's name and a project, like j1 /lab/a")
	}
	g := r.groups[st.Args[1]]
	if g == 0 {
		return fmt.Errorf("no project %s", st.Args[1])
	}
	o := st.options()
	order, err := r.order(o)
	if err != nil {
		return err
	}
	spec, b, err := r.spec(o, g)
	if err != nil {
		return err
	}
	list, err := names(st.Args[0])
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := r.hand(name, spec, b, order); err != nil {
			return err
		}
	}
	return nil
}

// hand submits one job, or the jobs of an array: sweep.0, sweep.1 …
func (r *Runner) hand(name string, spec scheduler.Job, b Behaviour, o Order) error {
	var list []string
	if o.Array == nil {
		list = []string{name}
	} else {
		for _, i := range o.Array.Indices {
			list = append(list, name+"."+strconv.Itoa(int(i)))
		}
	}
	for _, n := range append(list, name) {
		if _, isArray := r.arrays[n]; isArray || r.jobs[n] != 0 {
			return fmt.Errorf("job %s exists already", n)
		}
	}
	var ids []ledger.JobID
	if o.Array == nil && len(o.After) == 0 && o.Single == "" {
		ids = []ledger.JobID{r.World.Submit(spec, b)}
	} else {
		var err error
		if ids, err = r.World.SubmitAll(spec, b, o); err != nil {
			return err
		}
	}
	for i, id := range ids {
		r.jobs[list[i]], r.names[id], r.current = id, list[i], list[i]
	}
	if o.Array != nil {
		r.arrays[name] = array{ledger.ArrayID(len(r.arrays) + 1), list}
	}
	return nil
}

// array is an array with the names of its jobs.
type array struct {
	id   ledger.ArrayID
	jobs []string
}

// order reads array=0-9%2, after=ok:j1,any:sweep and singleton=NAME.
func (r *Runner) order(o *options) (Order, error) {
	a, refusal := scheduler.ParseArray(o.text("array", ""))
	out := Order{Array: a, Single: o.text("singleton", "")}
	if refusal != nil {
		return out, refusal
	}
	if a != nil && out.Single != "" {
		return out, fmt.Errorf("all jobs of an array have its name: to run one at a time, write array=...%%1")
	}
	text := o.text("after", "")
	if text == "" {
		return out, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		kind, rest, _ := strings.Cut(word, ":")
		needs := scheduler.Needs(kind)
		if needs != scheduler.NeedsOK && needs != scheduler.NeedsAny {
			return out, fmt.Errorf("after=%q: write ok:j1 or any:j1, several with a comma between", word)
		}
		for name := range strings.SplitSeq(rest, ":") {
			switch x, isArray := r.arrays[name]; {
			case isArray:
				out.After = append(out.After, After{Needs: needs, Array: x.id})
			case r.jobs[name] != 0:
				out.After = append(out.After, After{Needs: needs, Job: r.jobs[name]})
			default:
				return out, fmt.Errorf("after=%q: there is no job or array %s", word, name)
			}
		}
	}
	return out, nil
}

// spec reads a job: gpus= counts the whole gang; nodes= splits it, by default
// over as few nodes as hold it.
func (r *Runner) spec(o *options, g ledger.GroupID) (scheduler.Job, Behaviour, error) {
	p := &r.policy
	pool, err := r.pool(o.text("pool", ""))
	if err != nil {
		return scheduler.Job{}, Behaviour{}, err
	}
	node := r.World.firstNode(pool)
	if node == nil {
		return scheduler.Job{}, Behaviour{}, fmt.Errorf("its pool has no node")
	}
	per := max(1, int64(len(node.Devices)))
	gpus := o.number("gpus", 1)
	nodes := o.number("nodes", max(1, (gpus+per-1)/per))
	spec := scheduler.Job{Project: g, Pool: pool, Member: r.member(o.text("member", "one"))}
	if nodes < 1 || gpus < 0 || gpus%nodes != 0 {
		return spec, Behaviour{}, fmt.Errorf("%d GPUs do not go evenly on %d nodes", gpus, nodes)
	}
	spec.Shape = scheduler.Shape{Nodes: nodes, GPUs: gpus / nodes, GPUMilli: o.number("milli", 1000)}
	whole := ledger.Shape{
		Nodes: 1, GPUs: spec.Shape.GPUs, GPUMilli: spec.Shape.GPUMilli,
		NodeGPUs: int64(len(node.Devices)), NodeCPUMilli: node.CPUMilli, NodeRAMMiB: node.RAMMiB,
	}
	spec.Shape.CPUMilli = o.number("cpu_milli", ledger.DefaultCPU(whole))
	whole.CPUMilli = spec.Shape.CPUMilli
	spec.Shape.RAMMiB = o.number("ram_mib", ledger.DefaultRAM(whole))
	spec.Shape.Flow = scheduler.Flow{
		HBMMiB: o.number("hbm_mib", 0), NetMbps: o.number("net_mbps", 0), StoMbps: o.number("sto_mbps", 0), IOCMilli: o.number("ioc_milli", 0),
		HBMVar: o.number("hbm_var", 0), StoVar: o.number("sto_var", 0), IOCVar: o.number("ioc_var", 0),
	}
	c := &spec.Contract
	c.MinMs, c.GraceMs, c.MaxMs = o.duration("min", 3_600_000), o.duration("grace", p.GraceMs), o.duration("max", p.MaxRuntimeMs)
	c.Resumable, c.StopOnMoney, c.OrFree = o.flag("resumable", true), o.flag("stop_on_money", false), o.flag("or_free", false)
	c.Urgency, c.Interactive = int8(o.number("urgency", 0)), o.flag("interactive", false)
	if o.has("max_charge") {
		if c.MaxCharge, err = hours(o.text("max_charge", "")); err != nil {
			return spec, Behaviour{}, err
		}
	}
	b := Behaviour{ForMs: o.duration("for", -1), Code: int(o.number("code", 0)), ExitMs: o.duration("exits", -1)}
	return spec, b, o.done()
}
