// Command tranched is Tranche's server: pages, programming interface, agents'
// endpoints, dispatcher and books on one PostgreSQL.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"tranche/scheduler/agent"
)

// commands are the program's sub-commands.
type commands struct {
	Demo    demoCommand    `cmd:"" help:"Show everything on this machine: own PostgreSQL, example institute, simulated nodes that run real processes."`
	Serve   serveCommand   `cmd:"" help:"Run the server on a migrated database."`
	Migrate migrateCommand `cmd:"" help:"Bring the database up to this program's schema, as its owner."`
	Setup   setupCommand   `cmd:"" help:"Make a new site usable: schema, root, first administrator, and if asked a first pool. May run at every start."`
	Verify  verifyCommand  `cmd:"" help:"Recompute the books from their entries; exit 1 names what differs."`
	Replay  replayCommand  `cmd:"" help:"Decide recorded cycles again and compare with what was decided; exit 1 names the first that differs."`
	Doctor  doctorCommand  `cmd:"" help:"Check configuration, database, sign-in provider and clock, and say what to do."`

	LogLevel slog.Level `help:"Least level that is logged: debug, info, warn or error." env:"TRANCHE_LOG_LEVEL" default:"info"`
}

// terminal is what sub-commands print to: results to Out, progress to Err.
type terminal struct {
	Out, Err io.Writer
	Log      *slog.Logger
}

// errFailed makes the program exit 1 after the sub-command itself said why.
var errFailed = errors.New("failed")

func main() {
	agent.LaunchIfAsked() // launchers are this program too; keep them light
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run parses and executes one command line and gives the exit code: 0, 1 for a
// failure, 2 for a command line that makes no sense.
func run(args []string, out, errOut io.Writer) int {
	var cli commands
	parser, err := kong.New(&cli, kong.Name("tranched"), kong.Writers(out, errOut), kong.UsageOnError(),
		kong.Description("Budgets for a shared GPU fleet, and the queue that follows them."), kong.Vars{"version": version()})
	if err != nil {
		fmt.Fprintln(errOut, "tranched:", err)
		return 2
	}
	chosen, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(errOut, "tranched:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: cli.LogLevel}))
	chosen.BindTo(ctx, (*context.Context)(nil))
	err = chosen.Run(terminal{Out: out, Err: errOut, Log: log})
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errFailed):
		fmt.Fprintln(errOut, "tranched:", err)
	}
	return 1
}
