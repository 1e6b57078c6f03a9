// Command ovnkube provides the network of a Kubernetes cluster with OVN: as the master that plans it, as a node
// that connects its pods, or as both.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/app"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// defaultConfigFile is read if it exists and --config-file is not given.
const defaultConfigFile = "/etc/openvswitch/ovn_k8s.conf"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// The first signal stops gracefully, the second one immediately.
	context.AfterFunc(ctx, stop)
	if args, ok := egressArgs(os.Args); ok {
		os.Exit(runEgress(ctx, args, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "pki" {
		os.Exit(runPKI(ctx, os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "database" {
		os.Exit(runDatabase(ctx, os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "adopt" {
		os.Exit(runAdopt(ctx, os.Args[2:], os.Stdout, os.Stderr))
	}
	err := command().RunContext(ctx, os.Args)
	klog.Flush()
	if err != nil {
		fmt.Fprintf(os.Stderr, "ovnkube: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

// command returns the command line. Roles are selected with flags rather than subcommands, as in OVN-Kubernetes.
func command() *cli.App {
	var (
		role app.Role
		file string
	)
	flags, given := config.Flags()
	return &cli.App{
		Name:            "ovnkube",
		Usage:           "the network of a Kubernetes cluster on OVN",
		UsageText:       "ovnkube [--init-master NAME] [--init-node NAME] [options]\novnkube --cleanup-node NAME [options]\novnkube pki init|issue|renew|serve|request [options]\novnkube database prepare|maintain [options]\novnkube adopt [--yes] [options]",
		Version:         version.Get().String(),
		HideHelpCommand: true,
		// Errors are returned to main unchanged: one line, without the help page.
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return usageError(err, "ovnkube") },
		ExitErrHandler: func(*cli.Context, error) {},
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "init-master", Usage: "Be a master, under the `NAME` of this node", Destination: &role.Master},
			&cli.StringFlag{Name: "init-node", Usage: "Be the node `NAME`", Destination: &role.Node},
			&cli.StringFlag{Name: "cleanup-node", Usage: "Take everything off node `NAME` that --init-node put there, and end", Destination: &role.CleanupNode},
			&cli.StringFlag{Name: "config-file", Usage: "Configuration `FILE`; " + defaultConfigFile + " where that exists", Destination: &file},
		}, flags...),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%s: unexpected argument; allowed: flags only, see ovnkube --help", c.Args().First())
			}
			for _, name := range []string{"init-master", "init-node", "cleanup-node"} {
				if c.IsSet(name) && c.String(name) == "" { // such as an environment variable that is not set
					return &config.Error{Where: "--" + name, Allowed: "the name of a node"}
				}
			}
			if err := role.Validate(); err != nil {
				return err
			}
			cfg, notices, err := loadUntilRead(c.Context, func() (config.Config, []config.Notice, error) { return load(file, given(), role) })
			if errors.Is(c.Context.Err(), context.Canceled) { // it was told to end while it waited
				return nil
			}
			if err != nil {
				return err
			}
			return run(c.Context, cfg, notices, role)
		},
	}
}

// usageError names the flag of a command as it was written.
func usageError(err error, command string) error {
	text := err.Error()
	for _, prefix := range []string{"flag provided but not defined: -", "flag needs an argument: -"} {
		name, ok := strings.CutPrefix(text, prefix)
		if !ok {
			continue
		}
		name = "--" + strings.TrimLeft(name, "-")
		if prefix[5] == 'p' {
			return fmt.Errorf("%s: unknown flag; allowed: the flags in %s --help", argument(name), command)
		}
		return fmt.Errorf("%s: value missing; allowed: %s VALUE or %s=VALUE", name, name, name)
	}
	return err
}

// argument returns the argument that contains flag name, including the value if both are one argument.
func argument(name string) string {
	for _, a := range os.Args[1:] {
		if strings.HasPrefix(strings.TrimLeft(a, "-"), name[2:]+"=") {
			return a
		}
	}
	return name
}

// rereadPause is the time between two attempts to read the external_ids of Open vSwitch.
const rereadPause = time.Second

// loadUntilRead loads the configuration, and waits for Open vSwitch, until ctx ends, if a setting that only its external_ids
// can have is needed: on a host that boots, it may answer later than this process starts.
func loadUntilRead(ctx context.Context, load func() (config.Config, []config.Notice, error)) (config.Config, []config.Notice, error) {
	last := ""
	for {
		cfg, notices, err := load()
		if !errors.Is(err, config.ErrExternalIDs) {
			return cfg, notices, err
		}
		if now := err.Error(); now != last {
			klog.InfoS("Waiting for Open vSwitch", "err", err)
			last = now
		}
		select {
		case <-time.After(rereadPause):
		case <-ctx.Done():
			return config.Config{}, nil, err
		}
	}
}

// load loads the configuration from its sources.
func load(file string, flags map[string]string, role app.Role) (config.Config, []config.Notice, error) {
	s := config.Sources{Flags: flags, LookupEnv: os.LookupEnv, ReadFile: os.ReadFile,
		WithoutNorthbound: role.Master == "", WithoutSouthbound: role.CleanupNode != "", WithoutPage: role.Master == ""}
	if node := cmp.Or(role.Node, role.CleanupNode); node != "" {
		s.ExternalIDs = func() (map[string]string, error) { return app.ExternalIDs(node) }
	}
	return loadFrom(s, file)
}

// loadWithoutFiles loads the configuration for a command that creates the keys and certificates named in it.
func loadWithoutFiles(file string) (config.Config, []config.Notice, error) {
	return loadFrom(config.Sources{LookupEnv: os.LookupEnv}, file)
}

// loadFrom adds the file to the sources.
func loadFrom(s config.Sources, file string) (config.Config, []config.Notice, error) {
	name := file
	if name == "" {
		name = defaultConfigFile
	}
	data, err := os.ReadFile(name)
	switch {
	case err == nil:
		s.File = &config.File{Name: name, Data: data}
	case file != "" || !errors.Is(err, fs.ErrNotExist):
		return config.Config{}, nil, &config.Error{Where: "--config-file", Value: name, Problem: "cannot be read: " + config.Reason(err), Allowed: "a readable file"}
	}
	return config.Load(s)
}

// run runs the role with the process's log and pid file.
func run(ctx context.Context, cfg config.Config, notices []config.Notice, role app.Role) error {
	closeLog, err := setUpLog(cfg.Logging)
	if err != nil {
		return err
	}
	defer closeLog()
	for _, n := range notices {
		if n.Override {
			klog.Info(n.String())
		} else {
			klog.Warning(n.String())
		}
	}
	remove, err := writePIDFile(cfg.PIDFile)
	if err != nil {
		return err
	}
	defer remove()
	return app.Run(ctx, cfg, role)
}
