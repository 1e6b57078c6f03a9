// Command scale measures a master of ovnkube, or the agent of a node, in a cluster of a given size.
//
//	scale run [FLAG...]            measure a master; this needs root
//	scale agent [FLAG...]          measure the agent of a node, without a master; this needs root
//	scale ask [FLAG...]            measure answers of "ovnkube egress" only, without a master; this needs root
//	scale show FILE [FILE]         print a run as a table, or compare two
//	scale plot [FLAG...] SIZE FILE... >SVG   plot time against size
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
	"github.com/ovnkube/ovnkube/test/scale/result"
)

func main() { os.Exit(command(os.Args[1:])) }

const usage = `usage: scale run [FLAG...]
       scale agent [FLAG...]
       scale ask [FLAG...]
       scale show FILE [FILE]
       scale plot [-phases REGEXP] SIZE FILE...`

// command runs a command line and returns its exit status.
func command(args []string) int {
	var err error
	status := 0
	switch {
	case len(args) > 0 && measures[args[0]] != nil && !plane.Inside():
		status, err = plane.Enter()
	case len(args) > 0 && measures[args[0]] != nil:
		err = run(args[0], args[1:])
	case len(args) > 1 && args[0] == "show":
		err = show(args[1:])
	case len(args) > 1 && args[0] == "plot":
		err = plot(args[1:])
	default:
		err = fmt.Errorf("%s", usage)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		return 1
	}
	return status
}

// measures are the measuring functions by command.
var measures = map[string]func(context.Context, options) error{
	"run": measure, "agent": measureAgent, "ask": measureAnswers,
}

func run(name string, args []string) error {
	flags := flag.NewFlagSet("scale "+name, flag.ExitOnError)
	var o options
	size := flags.String("size", "small", "how large the cluster is: tiny, small, large, egressips")
	times := flags.Int("times", 1, "by what the numbers of nodes and objects are multiplied")
	addresses := flags.Int("addresses", 0, "how many addresses EgressIPs have, where not as many as those of the size")
	flags.StringVar(&o.out, "out", "_output/scale.json", "file that the results are written to")
	flags.StringVar(&o.profiles, "profiles", "", "directory for profiles of processors and memory at starts, of the agent at events, too")
	flags.StringVar(&o.logs, "logs", "", "directory that logs are kept in; it is made, and a temporary one without it")
	flags.StringVar(&o.cluster, "cluster", "", "directory that keeps the objects of the cluster for the next time, for agent and ask; it is made")
	flags.IntVar(&o.repeat, "repeat", 3, "how often each event is measured")
	flags.StringVar(&o.plane.KubernetesDir, "kubernetes", "_output/kin/bin", "directory of the programs of Kubernetes")
	flags.StringVar(&o.plane.Ovnkube, "ovnkube", "_output/bin/ovnkube", "the program to measure")
	flags.StringVar(&o.crds, "crds", "dist/crds", "directory of the definitions of our kinds")
	masterArgs := flags.String("master-args", "", "further arguments of masters, separated by blanks")
	agentArgs := flags.String("agent-args", "", "further arguments of the agent, separated by blanks")
	_ = flags.Parse(args) // it exits
	o.plane.MasterArgs, o.plane.AgentArgs = strings.Fields(*masterArgs), strings.Fields(*agentArgs)
	var err error
	if o.size, err = load.SizeOf(*size, *times); err != nil {
		return err
	}
	if *addresses > 0 {
		o.size.Addresses = *addresses
	}
	for _, path := range []*string{&o.out, &o.profiles, &o.logs, &o.cluster, &o.plane.KubernetesDir, &o.plane.Ovnkube, &o.crds} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := measures[name](ctx, o); err != nil {
		return err
	}
	return show([]string{o.out})
}

func show(paths []string) error {
	var runs [][]result.Result
	for _, path := range paths {
		all, err := result.Load(path)
		if err != nil {
			return err
		}
		runs = append(runs, all)
	}
	switch len(runs) {
	case 1:
		return result.WriteTable(os.Stdout, runs[0])
	case 2:
		return result.WriteComparison(os.Stdout, runs[0], runs[1])
	}
	return fmt.Errorf("%s", usage)
}

func plot(args []string) error {
	flags := flag.NewFlagSet("scale plot", flag.ExitOnError)
	phases := flags.String("phases", "", "regular expression of the phases to plot")
	_ = flags.Parse(args) // it exits
	if flags.NArg() < 2 {
		return fmt.Errorf("%s", usage)
	}
	match, err := regexp.Compile(*phases)
	if err != nil {
		return fmt.Errorf("-phases: %w", err)
	}
	var all []result.Result
	for _, path := range flags.Args()[1:] {
		one, err := result.Load(path)
		if err != nil {
			return err
		}
		all = append(all, one...)
	}
	return result.WritePlot(os.Stdout, all, flags.Arg(0), match)
}
