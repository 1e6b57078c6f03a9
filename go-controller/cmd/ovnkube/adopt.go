package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/app"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

// adoptTimeout is the timeout of the whole command: a database that does not answer is an error.
const adoptTimeout = 2 * time.Minute

// runAdopt runs the command "ovnkube adopt", and returns its exit status.
func runAdopt(ctx context.Context, args []string, out, errs io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	app := adoptCommand(errs)
	app.Writer, app.ErrWriter = out, errs
	if err := app.RunContext(ctx, append([]string{app.Name}, args...)); err != nil {
		fmt.Fprintf(errs, "%s: %s\n", app.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func adoptCommand(errs io.Writer) *cli.App {
	wrong, _ := subcommandErrors()
	var (
		file string
		act  bool
	)
	flags, given := config.Flags()
	return &cli.App{
		Name: "ovnkube adopt", HelpName: "ovnkube adopt", Usage: "list what another implementation has in the northbound database, and take it over",
		HideVersion: true, HideHelpCommand: true, OnUsageError: wrong, ExitErrHandler: func(*cli.Context, error) {},
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "yes", Usage: "Mark what is understood as ovnkube's own; without it nothing is changed", Destination: &act},
			&cli.StringFlag{Name: "config-file", Usage: "Configuration `FILE`; " + defaultConfigFile + " where that exists", Destination: &file},
		}, flags...),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%s: unexpected argument; allowed: flags only, see %s --help", c.Args().First(), c.App.HelpName)
			}
			cfg, notices, err := loadFrom(config.Sources{Flags: given(), LookupEnv: os.LookupEnv, ReadFile: os.ReadFile,
				WithoutSouthbound: true, WithoutPage: true, WithoutKubernetes: true}, file)
			if err != nil {
				return err
			}
			for _, n := range notices {
				fmt.Fprintf(errs, "%s\n", n)
			}
			return app.Adopt(c.Context, cfg, act, c.App.Writer)
		},
	}
}
