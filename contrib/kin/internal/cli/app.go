// Package cli is the kin command line: flags in, calls of package cluster,
// text out. It also has the hidden commands with which kin runs as the first process
// of its machines.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/cluster"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
)

// Version is set by the linker.
var Version = "development"

// Run runs a command line and returns the exit status.
func Run(args []string) int {
	a := app()
	// An interrupted creation cleans up after itself.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := a.RunContext(ctx, flagsFirst(a.Commands, args))
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exited](err); ok {
		return int(code)
	}
	fmt.Fprintf(os.Stderr, "ERROR: %v\n", err)
	return 1
}

// exited is the exit status of a program that ran in a machine: the program has already printed
// its own errors.
type exited int

func (e exited) Error() string { return fmt.Sprintf("ended with status %d", int(e)) }

// asExited passes on a program's exit status, or for a signal the status that a shell would return.
func asExited(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exited(128 + int(status.Signal()))
	}
	return exited(exit.ExitCode())
}

func app() *cli.App {
	return &cli.App{
		Name:            "kin",
		Usage:           "Kubernetes in Namespaces: a real cluster on this machine, for developers and tests",
		Version:         Version,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Usage: "`DIR` of all clusters", EnvVars: []string{"KIN_STATE"}, Value: "/var/lib/kin"},
		},
		Commands: append([]*cli.Command{
			createCommand(), deleteCommand(), getCommand(), buildCommand(), execCommand(), nodeCommand(),
			hostCommand(), serviceCommand(), loadCommand(), logsCommand(),
		}, hiddenCommands()...),
		// Errors are printed once, by Run.
		ExitErrHandler: func(*cli.Context, error) {},
	}
}

// hiddenCommands are the commands with which kin starts itself.
func hiddenCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: machine.SetupCommand, Hidden: true, SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				if c.NArg() != 3 {
					return errors.New("wants CLUSTER, MACHINE and DIR")
				}
				return machine.Setup(c.Args().Get(0), c.Args().Get(1), c.Args().Get(2))
			},
		},
		{
			Name: machine.MainCommand, Hidden: true, SkipFlagParsing: true,
			Action: func(*cli.Context) error { return machine.Main() },
		},
		{
			Name: machine.RunCommand, Hidden: true, SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				fmt.Fprintf(os.Stderr, "kin: %v\n", machine.Become(c.Args().Slice()))
				return exited(127)
			},
		},
		{
			Name: component.HookCommand, Hidden: true, SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				return component.RunHook(c.Context, c.Args().First(), c.Args().Tail())
			},
		},
	}
}

func nameFlag() cli.Flag {
	return &cli.StringFlag{Name: "name", Usage: "`NAME` of the cluster", EnvVars: []string{"KIN_CLUSTER"}, Value: "kin"}
}

func store(c *cli.Context) (cluster.Store, error) {
	if c.String("state") == "" {
		return "", errors.New("--state is empty: say which directory the clusters are in")
	}
	dir, err := filepath.Abs(c.String("state"))
	if err != nil {
		return "", fmt.Errorf("find state directory: %w", err)
	}
	return cluster.Store(dir), nil
}

// opened opens the cluster that a command refers to.
func opened(c *cli.Context) (*cluster.Cluster, error) {
	s, err := store(c)
	if err != nil {
		return nil, err
	}
	return s.Open(c.String("name"))
}

// arguments returns a command's arguments, and fails if their number differs from that of names.
func arguments(c *cli.Context, names ...string) ([]string, error) {
	args := c.Args().Slice()
	if len(args) != len(names) {
		return nil, fmt.Errorf("%s takes %d arguments %v, got %d", c.Command.HelpName, len(names), names, len(args))
	}
	return args, nil
}
