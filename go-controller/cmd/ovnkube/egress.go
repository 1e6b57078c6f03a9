package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// Exit statuses of "ovnkube egress".
const (
	exitInPlace    = 0
	exitNotInPlace = 1
	exitNoAnswer   = 2 // wrong usage, or the API server does not answer
)

// plugin is the name under which kubectl finds the command.
const plugin = "kubectl-egress"

// egressArgs returns the arguments of "ovnkube egress", including when it is called as a kubectl plugin; false for
// any other command line.
func egressArgs(args []string) ([]string, bool) {
	switch {
	case len(args) > 0 && filepath.Base(args[0]) == plugin:
		return args[1:], true
	case len(args) > 1 && args[1] == "egress":
		return args[2:], true
	}
	return nil, false
}

// egress is the command "ovnkube egress".
type egress struct {
	in        io.Reader
	out, errs io.Writer
	now       func() time.Time
	// wait waits for d, and reports whether the context is not done.
	wait func(ctx context.Context, d time.Duration) bool
	// connect returns clients for a kubeconfig; "" means the default one.
	connect func(kubeconfig, context string) (reader.Clients, error)

	kubeconfig, context, namespace, output, to, listen string
	timeout, interval                                  time.Duration
	watch, notInPlace                                  bool
}

// runEgress runs the command, and returns its exit status.
func runEgress(ctx context.Context, args []string, out, errs io.Writer) int {
	e := &egress{in: os.Stdin, out: out, now: time.Now, wait: wait, connect: connect}
	return e.run(ctx, args, errs)
}

func (e *egress) run(ctx context.Context, args []string, errs io.Writer) int {
	e.errs = errs
	app := e.command()
	app.Writer, app.ErrWriter = e.out, errs
	err := app.RunContext(ctx, append([]string{"ovnkube egress"}, inOrder(labelsInOrder(args))...))
	switch {
	case err != nil:
		fmt.Fprintf(errs, "ovnkube egress: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
		return exitNoAnswer
	case e.notInPlace:
		return exitNotInPlace
	}
	return exitInPlace
}

func (e *egress) command() *cli.App {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "kubeconfig", Usage: "`FILE` with the clusters; KUBECONFIG, ~/.kube/config or the pod's account where it is absent", Destination: &e.kubeconfig},
		&cli.StringFlag{Name: "context", Usage: "`NAME` of the context in it", Destination: &e.context},
		&cli.StringFlag{Name: "system-namespace", Usage: "The `NAMESPACE` that ovnkube runs in", Value: "ovn-kubernetes", Destination: &e.namespace},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT` of the answer: text, json or yaml", Value: "text", Destination: &e.output},
		&cli.DurationFlag{Name: "request-timeout", Usage: "How long all requests together may take", Value: 30 * time.Second, Destination: &e.timeout},
	}
	wrong := func(c *cli.Context, err error, _ bool) error { return usageError(err, c.Command.HelpName) }
	group := func(c *cli.Context) error {
		if c.Args().Present() {
			return fmt.Errorf("%s: unknown command; see %s --help", c.Args().First(), c.Command.HelpName)
		}
		return fmt.Errorf("a command is missing; see %s --help", c.Command.HelpName)
	}
	return &cli.App{
		Name: "ovnkube egress", HelpName: "ovnkube egress", Usage: "why pods leave the cluster with which address",
		Version: version.Get().String(), HideVersion: true, HideHelpCommand: true,
		OnUsageError: wrong, ExitErrHandler: func(*cli.Context, error) {}, Action: group, DisableSliceFlagSeparator: true,
		Commands: []*cli.Command{e.historyCommand(wrong, group), e.statusCommand(wrong, flags), e.serveCommand(wrong, flags), e.whatIfCommand(wrong, flags), e.traceCommand(wrong, flags), {
			Name: "explain", Usage: "say what becomes of what an object is about", OnUsageError: wrong, HideHelpCommand: true, Action: group,
			Subcommands: []*cli.Command{{
				Name: "pod", ArgsUsage: "NAMESPACE/NAME", Usage: "the address that a pod leaves with, and why", OnUsageError: wrong, HideHelpCommand: true,
				Flags:  append([]cli.Flag{&cli.StringFlag{Name: "to", Usage: "What the pod sends to `ADDRESS[:PORT]`", Destination: &e.to}}, flags...),
				Action: e.explainPod,
			}, {
				Name: "egressip", ArgsUsage: "NAME", Usage: "where the addresses of an EgressIP are, why there, and for which pods", OnUsageError: wrong, HideHelpCommand: true,
				Flags: flags, Action: e.explainEgressIP,
			}, {
				Name: "service", ArgsUsage: "NAMESPACE/NAME", Usage: "which pods of a Service leave with the address of its load balancer, from which node, and why", OnUsageError: wrong, HideHelpCommand: true,
				Flags: flags, Action: e.explainService,
			}, {
				Name: "address", ArgsUsage: "ADDRESS", Usage: "who uses an address, which node has it, and what it is otherwise", OnUsageError: wrong, HideHelpCommand: true,
				Flags: flags, Action: e.explainAddress,
			}, {
				Name: "node", ArgsUsage: "NAME", Usage: "the egress addresses of a node, what it can serve, and the gateways of its pods", OnUsageError: wrong, HideHelpCommand: true,
				Flags: flags, Action: e.explainNode,
			}},
		}},
	}
}

func (e *egress) explainPod(c *cli.Context) error {
	key, err := e.key(c, "pod")
	if err != nil {
		return err
	}
	to, err := destination(e.to)
	if err != nil {
		return err
	}
	return e.answerFrom(c.Context, e.readPod(key), func(cluster *explain.Cluster) (answer, explain.Header, error) {
		p, err := cluster.Pod(key, to)
		return p, p.Header, err
	})
}

func (e *egress) explainEgressIP(c *cli.Context) error {
	name, err := e.name(c, "EgressIP")
	if err != nil {
		return err
	}
	return e.answerFrom(c.Context, e.readEgressIP(name), func(cluster *explain.Cluster) (answer, explain.Header, error) {
		a, err := cluster.EgressIP(name)
		return a, a.Header, err
	})
}

func (e *egress) explainService(c *cli.Context) error {
	key, err := e.key(c, "Service")
	if err != nil {
		return err
	}
	return e.answer(c.Context, func(cluster *explain.Cluster) (answer, explain.Header, error) {
		s, err := cluster.Service(key)
		return s, s.Header, err
	})
}

func (e *egress) explainNode(c *cli.Context) error {
	name, err := e.name(c, "node")
	if err != nil {
		return err
	}
	return e.answer(c.Context, func(cluster *explain.Cluster) (answer, explain.Header, error) {
		n, err := cluster.Node(name)
		return n, n.Header, err
	})
}

func (e *egress) explainAddress(c *cli.Context) error {
	address, err := e.address(c)
	if err != nil {
		return err
	}
	return e.answer(c.Context, func(cluster *explain.Cluster) (answer, explain.Header, error) {
		a := cluster.Address(address)
		return a, a.Header, nil
	})
}

// name returns the only argument of a command about a cluster-scoped object.
func (e *egress) name(c *cli.Context, kind string) (string, error) {
	name, err := e.argument(c, "NAME")
	if err != nil {
		return "", err
	}
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q: no %s; allowed: NAME", name, kind)
	}
	return name, nil
}

// key returns the only argument of a command about a namespaced object.
func (e *egress) key(c *cli.Context, kind string) (string, error) {
	key, err := e.argument(c, "NAMESPACE/NAME")
	if err != nil {
		return "", err
	}
	if namespace, name, ok := strings.Cut(key, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q: no %s; allowed: NAMESPACE/NAME", key, kind)
	}
	return key, nil
}

// address returns the only argument of a command about an address.
func (e *egress) address(c *cli.Context) (netip.Addr, error) {
	text, err := e.argument(c, "ADDRESS")
	if err != nil {
		return netip.Addr{}, err
	}
	return explain.ParseAddress(text)
}

// switches are the flags that take no value.
var switches = []string{"h", "help", "w", "watch", "probe"}

// inOrder moves flags before the object, as the parser requires: people also write them after it.
func inOrder(args []string) []string {
	var words, flags []string
	complete := true
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") || a == "-" {
			words = append(words, a)
			continue
		}
		flags = append(flags, a)
		if name := strings.TrimLeft(a, "-"); !strings.Contains(a, "=") && !slices.Contains(switches, name) {
			if i++; i < len(args) {
				flags = append(flags, args[i])
			} else {
				complete = false
			}
		}
	}
	commands := min(1, len(words))
	if commands > 0 && (words[0] == "explain" || words[0] == "history") {
		commands = min(2, len(words))
	}
	if !complete { // the object would become the value of the last flag
		return slices.Concat(words[:commands], flags)
	}
	return slices.Concat(words[:commands], flags, words[commands:])
}

// argument returns the only argument of a command.
func (e *egress) argument(c *cli.Context, what string) (string, error) {
	if err := e.format(); err != nil {
		return "", err
	}
	switch {
	case c.NArg() == 0:
		return "", fmt.Errorf("%s is missing; see %s --help", what, c.Command.HelpName)
	case c.NArg() > 1:
		return "", fmt.Errorf("%s: unexpected argument; allowed: one %s", c.Args().Get(1), what)
	}
	return c.Args().First(), nil
}

// format validates the output format.
func (e *egress) format() error {
	if e.output != "text" && e.output != "json" && e.output != "yaml" {
		return fmt.Errorf("--output=%s: unknown format; allowed: text, json, yaml", e.output)
	}
	return nil
}

// destination parses the flag --to.
func destination(text string) (netip.AddrPort, error) {
	to, err := explain.ParseDestination(text)
	if err != nil {
		return to, fmt.Errorf("--to=%s: %w", text, err)
	}
	return to, nil
}

// answer is the output of a command.
type answer interface{ Text(w io.Writer) }

// readFunc reads what an answer needs from the cluster.
type readFunc func(context.Context, reader.Clients) (*explain.Cluster, error)

// answer reads the cluster and writes the answer to a question about it.
func (e *egress) answer(ctx context.Context, ask func(*explain.Cluster) (answer, explain.Header, error)) error {
	return e.answerFrom(ctx, e.read, ask)
}

func (e *egress) answerFrom(ctx context.Context, read readFunc, ask func(*explain.Cluster) (answer, explain.Header, error)) error {
	clients, err := e.connect(e.kubeconfig, e.context)
	if err != nil {
		return err
	}
	cluster, err := read(ctx, clients)
	if err != nil {
		return err
	}
	a, header, err := ask(cluster)
	if err != nil {
		return err
	}
	e.notInPlace = !header.InPlace
	return e.write(a)
}

// read reads the cluster.
func (e *egress) read(ctx context.Context, clients reader.Clients) (*explain.Cluster, error) {
	return e.cluster(ctx, func(ctx context.Context) (explain.Snapshot, error) {
		return reader.Read(ctx, clients, e.namespace, reader.FromConfigMap)
	})
}

// readPod reads everything about a pod.
func (e *egress) readPod(key string) readFunc { return e.readSome(reader.ReadPod, key) }

// readEgressIP reads everything about an EgressIP.
func (e *egress) readEgressIP(name string) readFunc { return e.readSome(reader.ReadEgressIP, name) }

func (e *egress) readSome(read func(context.Context, reader.Clients, string, reader.Settings, string) (explain.Snapshot, error), key string) readFunc {
	return func(ctx context.Context, clients reader.Clients) (*explain.Cluster, error) {
		return e.cluster(ctx, func(ctx context.Context) (explain.Snapshot, error) {
			return read(ctx, clients, e.namespace, reader.FromConfigMap, key)
		})
	}
}

// cluster runs the planners on what was read.
func (e *egress) cluster(ctx context.Context, read func(context.Context) (explain.Snapshot, error)) (*explain.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	snap, err := read(ctx)
	if err != nil {
		return nil, err
	}
	snap.Taken = e.now()
	return explain.New(snap)
}

func (e *egress) write(a answer) error {
	if e.output == "text" {
		a.Text(e.out)
		return nil
	}
	data, err := json.MarshalIndent(a, "", "  ")
	if err == nil && e.output == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = fmt.Fprintln(e.out, strings.TrimSuffix(string(data), "\n"))
	return err
}

// connect creates the user's clients.
func connect(kubeconfig, name string) (reader.Clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		return reader.Clients{}, fmt.Errorf("find the API server: %w", err)
	}
	rc.UserAgent = "ovnkube-egress/" + version.Get().Version
	return reader.NewClients(rc)
}
