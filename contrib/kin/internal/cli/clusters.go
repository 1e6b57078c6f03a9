package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/build"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/cluster"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
)

// home returns a path relative to the directory of kin's executable; everything else is found
// there unless flags override it.
func home(parts ...string) string {
	self, err := os.Executable()
	if err != nil {
		return filepath.Join(parts...)
	}
	return filepath.Join(append([]string{filepath.Dir(self)}, parts...)...)
}

const networkName = "network"

// networkFlag parses each value as one config.Network: commas separate
// the ranges of one network, not values.
func networkFlag() cli.Flag {
	return &cli.GenericFlag{Name: networkName, Usage: "`NAME=CIDR[,CIDR]` of a wire that nodes are on as well, repeatable", Value: &networks{}}
}

type networks []config.Network

// Set adds a network.
func (n *networks) Set(text string) error {
	network, err := config.ParseNetwork(text)
	*n = append(*n, network)
	return err
}

func (n *networks) String() string { return "" }

func artifactsFlag() cli.Flag {
	return &cli.StringFlag{Name: "artifacts", Usage: "`DIR` of the Kubernetes programs and images kin builds", EnvVars: []string{"KIN_ARTIFACTS"}, Value: home("..", "kin")}
}

func sourceFlag() cli.Flag {
	return &cli.StringFlag{Name: "source", Usage: "`DIR` of the modules to build them from", EnvVars: []string{"KIN_SOURCE"}, Value: home("..", "..", "contrib", "kin")}
}

func createCommand() *cli.Command {
	return &cli.Command{
		Name: "create", Usage: "create a cluster",
		Subcommands: []*cli.Command{{
			Name: "cluster", Usage: "create a cluster", Action: create,
			Flags: []cli.Flag{
				nameFlag(),
				&cli.IntFlag{Name: "nodes", Usage: "`NUMBER` of nodes, the control plane included", DefaultText: "3"},
				&cli.StringFlag{Name: "gateway-mode", Usage: "shared or local", DefaultText: "shared"},
				&cli.StringFlag{Name: "ip-family", Usage: "dual, ipv4 or ipv6", DefaultText: "dual"},
				&cli.StringFlag{Name: "datapath", Usage: "Open vSwitch's: kernel, userspace or auto, which is the kernel's where it has one", EnvVars: []string{"KIN_DATAPATH"}, DefaultText: "userspace"},
				&cli.IntFlag{Name: "cpu-weight", Usage: "the cluster's share of the processors where others compete for them, `1..10000`", EnvVars: []string{"KIN_CPU_WEIGHT"}, DefaultText: "100"},
				networkFlag(),
				&cli.StringFlag{Name: "config", Usage: "configuration `FILE`; flags override it"},
				&cli.DurationFlag{Name: "wait", Usage: "how long to wait for the control plane, and again for the nodes", EnvVars: []string{"KIN_WAIT"}, Value: 2 * time.Minute},
				&cli.StringFlag{Name: "install", Usage: "ovnkube and OVN as pods from its manifests, or as processes of the nodes: manifests or processes", EnvVars: []string{"KIN_INSTALL"}, Value: cluster.InstallManifests},
				&cli.StringFlag{Name: "image", Usage: "archive `FILE` of ovnkube's image, which make image builds, for --install manifests", EnvVars: []string{"KIN_IMAGE"}, Value: home("..", "image.tar")},
				&cli.BoolFlag{Name: "no-ovnkube", Usage: "no network: nodes register but do not become ready"},
				&cli.BoolFlag{Name: "retain", Usage: "leave what there is standing when creation fails"},
				&cli.StringFlag{Name: "kubeconfig-out", Usage: "also write the kubeconfig to `FILE`"},
				&cli.StringFlag{Name: "ovnkube-bin-dir", Usage: "`DIR` of ovnkube and ovn-k8s-cni-overlay", EnvVars: []string{"KIN_OVNKUBE_BIN_DIR"}, Value: home()},
				&cli.StringFlag{Name: "crds", Usage: "`DIR` of manifests to apply first", EnvVars: []string{"KIN_CRDS"}, Value: home("..", "..", "dist", "crds")},
				&cli.StringFlag{Name: "manifests", Usage: "`DIR` of the manifests of ovnkube", EnvVars: []string{"KIN_MANIFESTS"}, Value: home("..", "..", "dist", "base")},
				artifactsFlag(), sourceFlag(),
			},
		}},
	}
}

func create(c *cli.Context) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	s, err := store(c)
	if err != nil {
		return err
	}
	cfg, err := configuration(c)
	if err != nil {
		return err
	}
	options := cluster.CreateOptions{Config: cfg, Ovnkube: !c.Bool("no-ovnkube"), Wait: c.Duration("wait"), KubeconfigOut: c.String("kubeconfig-out"),
		Install: c.String("install")}
	if err := checkInstall(c); err != nil {
		return err
	}
	for flag, path := range map[string]*string{
		"artifacts": &options.Paths.Artifacts, "ovnkube-bin-dir": &options.Paths.OvnkubeBin, "source": &options.Source, "crds": &options.CRDs, "image": &options.Image, "manifests": &options.Manifests,
	} {
		if *path, err = filepath.Abs(c.String(flag)); err != nil {
			return fmt.Errorf("find --%s: %w", flag, err)
		}
	}
	began := time.Now()
	fmt.Printf("Creating cluster %q ...\n", cfg.Name)
	made, err := s.Create(c.Context, options, newSteps(os.Stdout))
	if err != nil {
		if made != nil && !c.Bool("retain") {
			return errors.Join(err, s.Delete(cfg.Name))
		}
		return err
	}
	fmt.Printf("Cluster %q is up after %.1f s. Use it with:\n\nexport KUBECONFIG=%s\n", cfg.Name, time.Since(began).Seconds(), made.KubeconfigPath())
	fmt.Printf("export PATH=%s:$PATH   # kubectl\n", options.Paths.Artifacts+"/bin")
	return nil
}

// checkInstall returns an error if the --install options are invalid.
func checkInstall(c *cli.Context) error {
	switch way := c.String("install"); way {
	case cluster.InstallProcesses:
		return nil
	case cluster.InstallManifests:
		if _, err := os.Stat(c.String("image")); err != nil {
			return fmt.Errorf("--image: %w; make image builds it, and --install processes needs none", err)
		}
		return nil
	default:
		return fmt.Errorf("--install: %q is not a way to install ovnkube; allowed: %s, %s", way, cluster.InstallManifests, cluster.InstallProcesses)
	}
}

// configuration returns the configuration file, overridden by the flags.
func configuration(c *cli.Context) (config.Cluster, error) {
	cfg, err := config.Load(c.String("config"))
	if err != nil {
		return cfg, err
	}
	if c.IsSet("name") || cfg.Name == "" {
		cfg.Name = c.String("name")
		// An empty name is not the default: it may come from an unset variable.
		if err := config.CheckName("--name", cfg.Name); err != nil {
			return cfg, err
		}
	}
	if c.IsSet("nodes") {
		cfg.Nodes = c.Int("nodes")
		if cfg.Nodes == 0 {
			return cfg, errors.New("--nodes: 0 is not a number of nodes")
		}
	}
	if c.IsSet("gateway-mode") {
		cfg.GatewayMode = c.String("gateway-mode")
	}
	if c.IsSet("ip-family") {
		cfg.IPFamily = c.String("ip-family")
	}
	if c.IsSet("cpu-weight") {
		cfg.CPUWeight = c.Int("cpu-weight")
		if cfg.CPUWeight == 0 {
			return cfg, errors.New("--cpu-weight: 0 is not between 1 and 10000")
		}
	}
	if c.IsSet("datapath") {
		cfg.Datapath = c.String("datapath")
	}
	if c.IsSet(networkName) {
		cfg.Networks = *c.Generic(networkName).(*networks)
	}
	return cfg.Default()
}

func deleteCommand() *cli.Command {
	return &cli.Command{
		Name: "delete", Usage: "delete a cluster",
		Subcommands: []*cli.Command{{
			Name: "cluster", Usage: "delete a cluster and all that belongs to it", Flags: []cli.Flag{nameFlag()},
			Action: func(c *cli.Context) error {
				if _, err := arguments(c); err != nil {
					return err
				}
				s, err := store(c)
				if err != nil {
					return err
				}
				fmt.Printf("Deleting cluster %q ...\n", c.String("name"))
				return s.Delete(c.String("name"))
			},
		}},
	}
}

func buildCommand() *cli.Command {
	return &cli.Command{
		Name: "build", Usage: "build the Kubernetes programs and images, unless they are built",
		Flags:       []cli.Flag{artifactsFlag(), sourceFlag()},
		Subcommands: []*cli.Command{buildImageCommand()},
		Action: func(c *cli.Context) error {
			artifacts, err := filepath.Abs(c.String("artifacts"))
			if err != nil {
				return fmt.Errorf("find --artifacts: %w", err)
			}
			source := c.String("source")
			return newSteps(os.Stdout).Step("Building Kubernetes and images", func(update func(string)) error {
				if build.Artifacts(artifacts).Current(source) {
					update("already built")
				}
				return build.Artifacts(artifacts).Build(c.Context, source, update)
			})
		},
	}
}

func getCommand() *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "show clusters, nodes, hosts or the kubeconfig",
		Subcommands: []*cli.Command{
			{Name: "clusters", Usage: "list clusters", Action: getClusters},
			{Name: "nodes", Usage: "list a cluster's machines", Flags: []cli.Flag{nameFlag()}, Action: getNodes},
			{Name: "kubeconfig", Usage: "print the kubeconfig", Flags: []cli.Flag{
				nameFlag(),
				&cli.BoolFlag{Name: "path", Usage: "print where it is instead"},
			}, Action: getKubeconfig},
		},
	}
}

func getClusters(c *cli.Context) error {
	s, err := store(c)
	if err != nil {
		return err
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Println(name)
	}
	return nil
}

func getKubeconfig(c *cli.Context) error {
	k, err := opened(c)
	if err != nil {
		return err
	}
	if c.Bool("path") {
		fmt.Println(k.KubeconfigPath())
		return nil
	}
	text, err := k.Kubeconfig()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func getNodes(c *cli.Context) error {
	k, err := opened(c)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tSTATE\tPID\tADDRESSES")
	line := func(name, role string, addresses []string) {
		state, pid := "off", "-"
		if p, on := k.Machine(name).Running(); on {
			state, pid = "on", fmt.Sprint(p.Pid)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, role, state, pid, strings.Join(addresses, ","))
	}
	for _, n := range k.Nodes() {
		role := "worker"
		if n.ControlPlane() {
			role = "control-plane"
		}
		var addresses []string
		for _, network := range plan.Networks(k.Config) {
			for _, a := range network.Node(n) {
				addresses = append(addresses, a.Addr().String())
			}
		}
		line(n.Name, role, addresses)
	}
	hosts, err := k.Hosts()
	if err != nil {
		return err
	}
	var names []string
	for name := range hosts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		var addresses []string
		for _, u := range hosts[name].Uplinks {
			for _, a := range u.Addresses {
				addresses = append(addresses, a.Addr().String())
			}
		}
		line(name, "host", addresses)
	}
	return w.Flush()
}
