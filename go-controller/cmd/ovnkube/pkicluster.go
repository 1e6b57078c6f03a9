package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/app"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki/cluster"
)

// clusterCommands are the commands that run in a cluster, for as long as it exists.
func (p *pkiCommand) clusterCommands(command func(name, usage string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command, dir cli.Flag) []*cli.Command {
	file := configFileFlag(&p.configFile)
	return []*cli.Command{
		command("serve", "keep authorities and certificates of the control plane in Secrets, and sign what nodes request", p.serve, file,
			&cli.StringFlag{Name: "namespace", Usage: "`NAMESPACE` of the Secrets and of the nodes' account", Value: "ovn-kubernetes", Destination: &p.namespace}),
		command("request", "keep the certificate of a node in a directory", p.request, file, dir,
			&cli.StringFlag{Name: "node", Usage: "`NAME` of the node", Destination: &p.node}),
	}
}

func (p *pkiCommand) serve(c *cli.Context) error {
	return inCluster(c, p.configFile, func(ctx context.Context, kube kubernetes.Interface) error {
		broadcaster := record.NewBroadcaster()
		defer broadcaster.Shutdown()
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
		events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "ovnkube-pki"})
		return cluster.Issuer{Client: kube, Namespace: p.namespace, Now: p.now, Events: events}.Run(ctx)
	})
}

func (p *pkiCommand) request(c *cli.Context) error {
	if p.dir == "" {
		return fmt.Errorf("--dir is missing; allowed: a directory")
	}
	if p.node == "" {
		return fmt.Errorf("--node is missing; allowed: the name of a node")
	}
	return inCluster(c, p.configFile, func(ctx context.Context, kube kubernetes.Interface) error {
		return (&cluster.Node{Client: kube, Name: p.node, Dir: pki.Dir(p.dir), Now: p.now}).Run(ctx)
	})
}

// configFileFlag is the flag of commands that need only the API server.
func configFileFlag(to *string) cli.Flag {
	return &cli.StringFlag{Name: "config-file", Usage: "Configuration `FILE`, which says how the API server is reached; " + defaultConfigFile + " where that exists", Destination: to}
}

// inCluster runs a function with an API server client.
func inCluster(c *cli.Context, configFile string, run func(context.Context, kubernetes.Interface) error) error {
	if c.Args().Present() {
		return fmt.Errorf("%s: unexpected argument; allowed: flags only, see %s --help", c.Args().First(), c.Command.HelpName)
	}
	// The keys and certificates that the file names do not exist yet.
	cfg, _, err := loadWithoutFiles(configFile)
	if err != nil {
		return err
	}
	closeLog, err := setUpLog(config.Logging{Level: cfg.Logging.Level}) // it has no log file of its own
	if err != nil {
		return err
	}
	defer closeLog()
	kube, err := app.Kube(cfg.Kubernetes)
	if err != nil {
		return err
	}
	return run(c.Context, kube)
}
