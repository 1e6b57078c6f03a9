package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki/cluster"
	"github.com/ovnkube/ovnkube/go-controller/pkg/raft"
)

// databaseCommand is the command "ovnkube database".
type databaseCommand struct {
	address, northbound, southbound string
	data, run, pki                  string

	configFile, namespace, configMap string
}

// runDatabase runs the command, and returns its exit status.
func runDatabase(ctx context.Context, args []string, out, errs io.Writer) int {
	app := (&databaseCommand{}).command()
	app.Writer, app.ErrWriter = out, errs
	if err := app.RunContext(ctx, append([]string{app.Name}, args...)); err != nil {
		fmt.Fprintf(errs, "%s: %s\n", app.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func (d *databaseCommand) command() *cli.App {
	wrong, group := subcommandErrors()
	members := func(name, usage string, to *string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage + ": ssl:ADDRESS:PORT, separated by commas; the first one creates the cluster", Destination: to}
	}
	flags := []cli.Flag{
		&cli.StringFlag{Name: "address", Usage: "`ADDRESS` of this node, one of those of the members", Destination: &d.address},
		members("northbound", "`MEMBERS` of the northbound database", &d.northbound),
		members("southbound", "`MEMBERS` of the southbound database", &d.southbound),
		&cli.StringFlag{Name: "data-dir", Usage: "`DIRECTORY` of the files", Value: "/var/lib/ovn", Destination: &d.data},
		&cli.StringFlag{Name: "run-dir", Usage: "`DIRECTORY` of the sockets", Value: "/run/ovn", Destination: &d.run},
	}
	registry := []cli.Flag{
		configFileFlag(&d.configFile),
		&cli.StringFlag{Name: "namespace", Usage: "`NAMESPACE` of the ConfigMap", Value: "ovn-kubernetes", Destination: &d.namespace},
		&cli.StringFlag{Name: "config-map", Usage: "`NAME` of the ConfigMap that has the IDs of the clusters", Value: "ovn-databases", Destination: &d.configMap},
	}
	return &cli.App{
		Name: "ovnkube database", HelpName: "ovnkube database", Usage: "the members of clustered databases",
		HideVersion: true, HideHelpCommand: true, OnUsageError: wrong, ExitErrHandler: func(*cli.Context, error) {}, Action: group,
		Commands: []*cli.Command{
			{
				Name: "prepare", Usage: "make the files of this node's members: create the clusters, or join them", Action: d.prepare,
				Flags: append(append([]cli.Flag{}, flags...), registry...), OnUsageError: wrong, HideHelpCommand: true,
			},
			{
				Name: "maintain", Usage: "while the servers run, remove members that this node was before it lost its disk, follow newer schemas, end a server that left its cluster, replace an unreadable file, and connect local clients to the leaders", Action: d.maintain,
				Flags: append(append([]cli.Flag{}, flags...),
					&cli.StringFlag{Name: "pki-dir", Usage: "`DIRECTORY` of ovn-privkey.pem, ovn-cert.pem and cacert.pem, with which members are asked", Value: "/etc/ovn/pki", Destination: &d.pki}), OnUsageError: wrong, HideHelpCommand: true,
			},
		},
	}
}

// members returns this node's members of both databases.
func (d *databaseCommand) members(c *cli.Context, registry raft.Registry) ([]raft.Member, error) {
	if c.Args().Present() {
		return nil, fmt.Errorf("%s: unexpected argument; allowed: flags only, see %s --help", c.Args().First(), c.Command.HelpName)
	}
	address, err := netip.ParseAddr(d.address)
	if err != nil {
		return nil, wrongFlag("address", d.address, "no address", "an IP address")
	}
	var all []raft.Member
	for i, list := range []struct{ flag, text string }{{"northbound", d.northbound}, {"southbound", d.southbound}} {
		members, err := raft.ParseMembers(list.text)
		if err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", list.flag, list.text, err)
		}
		m := raft.Member{Database: raft.Databases(d.data, d.run)[i], Address: address, Members: members, Registry: registry}
		if err := m.Check(); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", list.flag, list.text, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func (d *databaseCommand) prepare(c *cli.Context) error {
	if _, err := d.members(c, nil); err != nil { // before any requests
		return err
	}
	return inCluster(c, d.configFile, func(ctx context.Context, kube kubernetes.Interface) error {
		members, err := d.members(c, raft.ConfigMap{Client: kube, Namespace: d.namespace, Name: d.configMap})
		if err != nil {
			return err
		}
		for _, m := range members {
			if err := m.Prepare(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *databaseCommand) maintain(c *cli.Context) error {
	members, err := d.members(c, nil)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(c.Context)
	group.Go(func() error {
		raft.Maintain(ctx, members)
		return nil
	})
	for _, m := range members {
		var secure *tls.Config
		if m.Members.Scheme == "ssl" {
			// The servers' certificates are for the names of databases.
			if secure, err = pki.Dir(d.pki).Files(cluster.Name).Session(x509.ExtKeyUsageServerAuth, m.Database.Name); err != nil {
				return err
			}
		}
		group.Go(func() error { return m.Lead(ctx, secure) })
	}
	return group.Wait()
}
