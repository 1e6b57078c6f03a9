package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/cluster"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

const execName = "exec"

func execCommand() *cli.Command {
	return &cli.Command{
		Name: execName, Usage: "run a program in a node, in a host, or in the machine called " + cluster.WireName,
		ArgsUsage: "MACHINE [--] COMMAND [ARG...]", Flags: []cli.Flag{nameFlag()},
		Action: func(c *cli.Context) error {
			args := c.Args().Slice()
			if len(args) > 1 && args[1] == "--" {
				args = append(args[:1], args[2:]...)
			}
			if len(args) < 2 {
				return errors.New("kin exec takes a machine and a command")
			}
			k, err := opened(c)
			if err != nil {
				return err
			}
			return asExited(k.Exec(args[0], args[1:]))
		},
	}
}

func nodeCommand() *cli.Command {
	act := func(f func(*cluster.Cluster, string) error) cli.ActionFunc {
		return func(c *cli.Context) error {
			args, err := arguments(c, "NODE")
			if err != nil {
				return err
			}
			k, err := opened(c)
			if err != nil {
				return err
			}
			return f(k, args[0])
		}
	}
	flags := []cli.Flag{nameFlag()}
	return &cli.Command{
		Name: "node", Usage: "switch nodes on and off",
		Subcommands: []*cli.Command{
			{Name: "stop", Usage: "shut a node down in order", ArgsUsage: "NODE", Flags: flags, Action: act((*cluster.Cluster).StopNode)},
			{Name: "kill", Usage: "cut a node's power", ArgsUsage: "NODE", Flags: flags, Action: act((*cluster.Cluster).KillNode)},
			{Name: "start", Usage: "boot a node that is off", ArgsUsage: "NODE", Flags: flags, Action: act((*cluster.Cluster).StartNode)},
		},
	}
}

func hostCommand() *cli.Command {
	return &cli.Command{
		Name: "host", Usage: "machines outside the cluster, on one of its networks",
		Subcommands: []*cli.Command{
			{
				Name: "add", Usage: "add a machine", ArgsUsage: "NAME", Action: addHost,
				Flags: []cli.Flag{
					nameFlag(),
					&cli.StringSliceFlag{Name: "ip", Usage: "`ADDRESS` or ADDRESS/LENGTH, repeatable", Required: true},
					&cli.StringFlag{Name: "network", Usage: "`NAME` of a network of the cluster", DefaultText: "the nodes' own"},
				},
			},
			{
				Name: "delete", Usage: "remove a machine", ArgsUsage: "NAME", Flags: []cli.Flag{nameFlag()},
				Action: func(c *cli.Context) error {
					args, err := arguments(c, "NAME")
					if err != nil {
						return err
					}
					k, err := opened(c)
					if err != nil {
						return err
					}
					return k.DeleteHost(args[0])
				},
			},
		},
	}
}

func addHost(c *cli.Context) error {
	args, err := arguments(c, "NAME")
	if err != nil {
		return err
	}
	k, err := opened(c)
	if err != nil {
		return err
	}
	network, err := k.Network(c.String("network"))
	if err != nil {
		return fmt.Errorf("--network: %w", err)
	}
	var addresses []netip.Prefix
	for _, text := range c.StringSlice("ip") {
		a, err := cluster.HostAddress(network, text)
		if err != nil {
			return fmt.Errorf("--ip: %w", err)
		}
		addresses = append(addresses, a)
	}
	return k.AddHost(args[0], network, addresses)
}

func serviceCommand() *cli.Command {
	var subcommands []*cli.Command
	for verb, usage := range map[string]string{
		"start": "start a daemon that was stopped", "stop": "stop a daemon until it is started again",
		"restart": "stop and start a daemon", "kill": "end a daemon at once, as a crash would; it is started again",
	} {
		subcommands = append(subcommands, &cli.Command{
			Name: verb, Usage: usage, ArgsUsage: "NODE COMPONENT", Flags: []cli.Flag{nameFlag()},
			Action: func(c *cli.Context) error {
				args, err := arguments(c, "NODE", "COMPONENT")
				if err != nil {
					return err
				}
				k, err := opened(c)
				if err != nil {
					return err
				}
				_, err = k.Service(args[0], verb, args[1])
				return err
			},
		})
	}
	subcommands = append(subcommands, &cli.Command{
		Name: "list", Usage: "show what a node's daemons are doing", ArgsUsage: "NODE", Flags: []cli.Flag{nameFlag()}, Action: listServices,
	})
	return &cli.Command{Name: "service", Usage: "a node's daemons", Subcommands: subcommands}
}

func listServices(c *cli.Context) error {
	args, err := arguments(c, "NODE")
	if err != nil {
		return err
	}
	k, err := opened(c)
	if err != nil {
		return err
	}
	units, err := k.Services(args[0])
	if err != nil {
		return err
	}
	printServices(os.Stdout, units)
	return nil
}

func printServices(out io.Writer, units []supervise.Status) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tSTATE\tFOR\tPID\tRESTARTS\tPROBLEM")
	for _, u := range units {
		pid := "-"
		if u.Pid != 0 {
			pid = fmt.Sprint(u.Pid)
		}
		problem, _, _ := strings.Cut(u.Problem, "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", u.Name, u.State, time.Since(u.Since).Round(time.Second), pid, u.Restarts, problem)
	}
	w.Flush()
}

func loadCommand() *cli.Command {
	return &cli.Command{
		Name: "load", Usage: "give nodes something",
		Subcommands: []*cli.Command{{
			Name: "image", Usage: "read an image archive (docker save) into every node", ArgsUsage: "FILE", Flags: []cli.Flag{nameFlag()},
			Action: func(c *cli.Context) error {
				args, err := arguments(c, "FILE")
				if err != nil {
					return err
				}
				k, err := opened(c)
				if err != nil {
					return err
				}
				return k.LoadImage(args[0])
			},
		}},
	}
}
