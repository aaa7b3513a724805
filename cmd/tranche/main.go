// Command tranche is the command line of a Tranche server, and the agent that
// runs jobs on a node. It speaks HTTP and computes; it has no database.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"tranche/scheduler/agent"
	"tranche/web/api"
)

// Exit codes. Scripts may rely on them.
const (
	exitOK          = 0
	exitRefused     = 1 // the server or a check said no, and why
	exitUsage       = 2 // the command line makes no sense, or there was no login
	exitUnavailable = 3 // the server cannot be reached
	exitInterrupted = 130
)

const exitCodes = `Exit codes: 0 done, 1 refused (the sentence says why), 2 wrong usage or not
logged in, 3 the server cannot be reached, 130 interrupted.`

// commands are the program's sub-commands; each is described in the file of its subject.
type commands struct {
	Login   loginCommand   `cmd:"" group:"You" help:"Keep a server and an API token for later commands."`
	Whoami  whoamiCommand  `cmd:"" group:"You" help:"Say who the token belongs to and which roles it has."`
	Balance balanceCommand `cmd:"" group:"You" help:"Show what your projects may still use."`

	Submit submitCommand `cmd:"" group:"Jobs" help:"Hand in a job."`
	Jobs   jobsCommand   `cmd:"" group:"Jobs" help:"List jobs, newest first."`
	Job    jobCommand    `cmd:"" group:"Jobs" help:"Show one job with its attempts."`
	Why    whyCommand    `cmd:"" group:"Jobs" help:"Explain where a job stands, with the numbers that decided it."`
	Change changeCommand `cmd:"" group:"Jobs" help:"Change a waiting job in place."`
	Order  orderCommand  `cmd:"" group:"Jobs" help:"Show a pool's queue in order, with the standings that made it."`
	Renew  renewCommand  `cmd:"" group:"Jobs" help:"Ask for new protection of what runs, and wait for the answer."`
	Logs   logsCommand   `cmd:"" group:"Jobs" help:"Print a job's output."`
	Cancel cancelCommand `cmd:"" group:"Jobs" help:"End jobs; what runs gets its grace."`
	Pause  pauseCommand  `cmd:"" group:"Jobs" help:"Keep waiting jobs from starting."`
	Resume resumeCommand `cmd:"" group:"Jobs" help:"Let paused jobs start again."`

	Members membersCommand `cmd:"" group:"Projects" help:"Show or set the shares and caps of a project's members."`

	Policy policyCommand `cmd:"" group:"Dispatcher" help:"Show or turn the dispatcher's knobs."`

	Pools poolsCommand `cmd:"" group:"Nodes" help:"List pools, and how useful what they have free is."`
	Nodes nodesCommand `cmd:"" group:"Nodes" help:"List, drain, maintain and enrol nodes."`
	Agent agentCommand `cmd:"" group:"Nodes" help:"Run jobs on this machine."`

	Sim simCommand `cmd:"" group:"What if" help:"Try the dispatcher without a server."`

	Server string `help:"Base URL of the server; overrides the login." env:"TRANCHE_SERVER" placeholder:"URL"`
	JSON   bool   `name:"json" help:"Print JSON: the answer of the API, and refusals as RFC 9457 problems on standard error."`
}

// terminal is where a command reads and prints.
type terminal struct {
	In       *bufio.Reader
	Out, Err io.Writer
	JSON     bool
	Server   string // --server, "" = from the login
}

// usageError is a command line that parses but makes no sense.
type usageError struct{ text string }

func (u *usageError) Error() string { return u.text }

func main() {
	agent.LaunchIfAsked()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and gives the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	var cli commands
	code := -1
	parser, err := kong.New(&cli, kong.Name("tranche"), kong.Writers(out, errOut), kong.Exit(func(c int) { code = c }),
		kong.Description("Budgets for a shared GPU fleet, and the queue that follows them.\n\n"+exitCodes))
	if err != nil {
		fmt.Fprintln(errOut, "tranche:", err)
		return exitUsage
	}
	chosen, err := parser.Parse(args)
	if code == exitOK { // --help printed it all
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(errOut, "tranche:", err)
		fmt.Fprintln(errOut, "Try tranche --help, or --help after a command.")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	chosen.BindTo(ctx, (*context.Context)(nil))
	t := &terminal{In: bufio.NewReader(in), Out: out, Err: errOut, JSON: cli.JSON, Server: cli.Server}
	return t.fail(ctx, chosen.Run(t))
}

// fail prints what went wrong and gives the exit code. Of several errors each is
// printed, and the highest code counts.
func (t *terminal) fail(ctx context.Context, err error) int {
	if several, ok := err.(interface{ Unwrap() []error }); ok && ctx.Err() == nil {
		code := exitOK
		for _, one := range several.Unwrap() {
			code = max(code, t.fail(ctx, one))
		}
		return code
	}
	var refusal *api.Problem
	var gone *api.Unreachable
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &gone):
		fmt.Fprintln(t.Err, "tranche:", err)
		return exitUnavailable
	case errors.As(err, &usage):
		fmt.Fprintln(t.Err, "tranche:", err)
		return exitUsage
	case errors.As(err, &refusal):
		t.printProblem(refusal)
		return exitRefused
	}
	fmt.Fprintln(t.Err, "tranche:", err)
	return exitRefused
}

func (t *terminal) printProblem(p *api.Problem) {
	if t.JSON {
		_ = writeJSON(t.Err, p) // standard error is all there is to complain on
		return
	}
	fmt.Fprintln(t.Err, "tranche:", p)
	for _, f := range p.Fields {
		fmt.Fprintf(t.Err, "  %s: %s\n", f.Field, f.Detail)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Facts)) {
		fmt.Fprintf(t.Err, "  %s: %s\n", k, p.Facts[k])
	}
	if p.Instance != "" {
		fmt.Fprintf(t.Err, "  request: %s\n", p.Instance)
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
