package main

import (
	"context"
	"crypto/rand"
	"strings"

	"tranche/ledger"
	"tranche/web/api"
)

type submitCommand struct {
	Project string `required:"" short:"p" help:"Path of the project that pays." placeholder:"/PROGRAM/PROJECT"`
	Pool    string `required:"" help:"Pool to run in."`
	Preset  string `help:"debug (protected 15 min), train (1 h, the default), long (8 h) or free (unfunded, may be stopped at any time)." enum:"debug,train,long,free," default:"" placeholder:"PRESET"`
	Name    string `help:"Name for people."`

	Nodes    int64  `help:"Nodes; all start together or none." default:"1"`
	GPUs     int64  `name:"gpus" short:"g" help:"GPUs per node."`
	GPUMilli int64  `help:"Part of one GPU in thousandths." placeholder:"1..1000"`
	CPUMilli int64  `help:"Thousandths of CPU cores per node; default the GPUs' proportional part."`
	RAMMiB   int64  `name:"ram-mib" help:"MiB of memory per node; default the GPUs' proportional part."`
	HBMMiB   *int64 `name:"hbm-mib" help:"MiB of memory on each GPU; default as large a part as of the GPU."`
	NetMbps  *int64 `name:"net-mbps" help:"Network per node, Mbit/s; default the pool's."`
	StoMbps  *int64 `name:"sto-mbps" help:"Storage bandwidth per node, MB/s; default the pool's."`
	IOCMilli *int64 `name:"ioc-milli" help:"Thousandths of cores that move data, per node; default the pool's."`

	Workdir    string            `help:"Folder to run in, on the node; default the job's scratch folder."`
	Env        map[string]string `short:"e" help:"Environment entry; may be repeated." placeholder:"NAME=VALUE" mapsep:"none"`
	Output     string            `short:"o" help:"File on the node that gets the output; relative to the working folder."`
	Checkpoint string            `help:"What to do at the start of grace: signal:USR1, or a shell command."`

	Protect       *duration `help:"Minimum runtime: protected from other jobs for so long; 0 = unfunded." placeholder:"DURATION"`
	Grace         *duration `help:"Time from SIGTERM to SIGKILL." placeholder:"DURATION"`
	MaxRuntime    *duration `help:"End the job after so long." placeholder:"DURATION"`
	Resumable     *bool     `negatable:"" help:"Whether it can go on in a later attempt (default yes)."`
	WhenMoneyEnds string    `help:"go_on (unfunded) or stop." enum:"go_on,stop," default:"" placeholder:"WHAT"`
	Urgency       int       `short:"u" help:"0 to 9; sorts jobs inside the project." default:"0"`
	OrFree        bool      `help:"Without funds, start unfunded instead of waiting."`
	After         []string  `help:"Start after these jobs: ok:12 once job 12 has ended well, any:13 once job 13 has ended; ok:A4 after all jobs of array A4." placeholder:"ok:JOB"`
	Singleton     bool      `help:"One job of this name at a time: wait for your earlier ones."`
	Array         string    `help:"A job for each index: 0-99, 1-9:2, 3,7,12; 0-99%8 lets 8 go at once." placeholder:"INDICES"`
	Interactive   bool      `help:"Somebody sits at it: warn before its protection ends."`
	MaxCharge     string    `help:"Most GPU-hours this job may ever cost." placeholder:"GPU-HOURS"`

	Key     string   `help:"Name of this very submission; the same key again gives the same job. Default: a new one." placeholder:"TEXT"`
	Command []string `arg:"" passthrough:"" help:"What to run, after --. One word is taken as shell text, several as a program and its arguments."`
}

// Help adds examples.
func (submitCommand) Help() string {
	return `Prints the number of the job or array. Retries after a lost answer are safe: they carry the same key.

Examples:
  tranche submit -p /vision/detect --pool h100 -g 1 --preset debug -- python check.py
  tranche submit -p /vision/detect --pool h100 --nodes 4 -g 8 --protect 2h --checkpoint signal:USR1 \
      -e LR=0.1 --workdir /data/ada -- torchrun train.py --config big.yaml
  tranche submit -p /vision/detect --pool h100 -g 1 --array 0-99%8 -- 'python sweep.py --seed $TRANCHE_ARRAY_INDEX'
  tranche submit -p /vision/detect --pool h100 -g 1 --preset free -- 'make data && python eval.py | tee out'`
}

// Run hands in the job.
func (c *submitCommand) Run(ctx context.Context, t *terminal) error {
	s, err := c.submission()
	if err != nil {
		return err
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	j, err := client.Submit(ctx, s)
	if err != nil {
		return err
	}
	return t.print(j, func(p *page) {
		if a := j.InArray; a != nil {
			p.line("array A%d of %d jobs in %s, each protected for %s; the first is job %d", a.Array, a.Size, j.Project, span(j.MinRuntimeMS), j.ID)
			return
		}
		p.line("job %d %s in %s, protected for %s", j.ID, j.State, j.Project, span(j.MinRuntimeMS))
		if j.Reason != "" {
			p.line("%s", j.Reason)
		}
	})
}

// submission turns the flags into the wire's form.
func (c *submitCommand) submission() (api.Submit, error) {
	s := api.Submit{
		Key: c.Key, Preset: c.Preset, Name: c.Name, Project: c.Project, Pool: c.Pool,
		Nodes: c.Nodes, GPUs: c.GPUs, GPUMilli: c.GPUMilli, CPUMilli: c.CPUMilli, RAMMiB: c.RAMMiB,
		HBMMiB: c.HBMMiB, NetMbps: c.NetMbps, StoMbps: c.StoMbps, IOCMilli: c.IOCMilli,
		Command: shellText(c.Command), WorkDir: c.Workdir, Env: c.Env, OutputPath: c.Output, Checkpoint: c.Checkpoint,
		MinRuntimeMS: c.Protect.millis(), GraceMS: c.Grace.millis(), MaxRuntimeMS: c.MaxRuntime.millis(),
		Resumable: c.Resumable, WhenMoneyEnds: c.WhenMoneyEnds, Urgency: c.Urgency, OrFree: c.OrFree, Interactive: c.Interactive, After: c.After, Singleton: c.Singleton, Array: c.Array,
	}
	if s.Key == "" {
		s.Key = newKey()
	}
	if s.Command == "" {
		return s, &usageError{"say what to run, after --"}
	}
	if c.MaxCharge != "" {
		most, refusal := ledger.ParseGPUHours("max_charge", c.MaxCharge, 0)
		if refusal != nil {
			return s, &usageError{"--max-charge: " + refusal.Detail}
		}
		s.MaxCharge = &most
	}
	return s, nil
}

// newKey names one command of this program for ever.
func newKey() string { return "cli-" + rand.Text() }

// shellText makes one line for the shell: a single word is shell text already,
// several are quoted one by one.
func shellText(words []string) string {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 1 {
		return words[0]
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellQuote(w)
	}
	return strings.Join(quoted, " ")
}

func shellQuote(w string) string {
	plain := w != ""
	for _, r := range w {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		plain = plain && (letter || strings.ContainsRune("-_./:=,+@%", r))
	}
	if plain {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
