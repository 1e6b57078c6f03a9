package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

// profile describes the certificate of a role.
type profile struct {
	role, usage    string
	server, client bool
	chassis        bool // the common name is the system-id of a chassis
}

// A member of a clustered database is a client of the other members. The node's ovnkube serves the masters' health
// checks and reads the southbound database.
var profiles = []profile{
	{role: "nb", usage: "northbound database, alone or as a member of a cluster", server: true, client: true},
	{role: "sb", usage: "southbound database, alone or as a member of a cluster", server: true, client: true},
	{role: "northd", usage: "ovn-northd", client: true},
	{role: "chassis", usage: "ovn-controller of a node; the common name is its system-id, by which role ovn-controller tells chassis apart", client: true, chassis: true},
	{role: "master", usage: "ovnkube with --init-master, which also checks the health of nodes", client: true},
	{role: "node", usage: "ovnkube with --init-node, which also answers health checks", server: true, client: true},
}

// wrongFlag returns an error about a flag with an invalid value.
func wrongFlag(flag, value, problem, allowed string) error {
	return fmt.Errorf("--%s=%s: %s; allowed: %s", flag, value, problem, allowed)
}

// pkiCommand is the command "ovnkube pki".
type pkiCommand struct {
	out io.Writer
	now func() time.Time

	dir, name, systemID string
	hosts               cli.StringSlice
	days                int
	overwrite           bool

	configFile, namespace, node string // of the commands that run in a cluster
}

// runPKI runs the command, and returns its exit status.
func runPKI(ctx context.Context, args []string, out, errs io.Writer) int {
	return (&pkiCommand{out: out, now: time.Now}).run(ctx, args, errs)
}

func (p *pkiCommand) run(ctx context.Context, args []string, errs io.Writer) int {
	app := p.command()
	app.Writer, app.ErrWriter = p.out, errs
	if err := app.RunContext(ctx, append([]string{"ovnkube pki"}, args...)); err != nil {
		fmt.Fprintf(errs, "ovnkube pki: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func (p *pkiCommand) command() *cli.App {
	wrong, group := subcommandErrors()
	dir := &cli.StringFlag{Name: "dir", Usage: "`DIRECTORY` with the authority and the certificates", Destination: &p.dir}
	days := func(usage string, value int) cli.Flag {
		return &cli.IntFlag{Name: "days", Usage: usage, Value: value, Destination: &p.days}
	}
	command := func(name, usage string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Action: action, Flags: flags, OnUsageError: wrong, HideHelpCommand: true}
	}
	issue := command("issue", "make a key and a certificate", group)
	for _, r := range profiles {
		flags := []cli.Flag{
			dir, days("How many `DAYS` it is valid", 365),
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the files; else the role, with the system-id of a chassis", Destination: &p.name},
			&cli.BoolFlag{Name: "overwrite", Usage: "Replace a certificate of that name, and its key", Destination: &p.overwrite},
		}
		if r.server {
			flags = append(flags, &cli.StringSliceFlag{Name: "host", Usage: "Address or DNS `NAME` under which it is reached; may be repeated", Destination: &p.hosts})
		}
		if r.chassis {
			flags = append(flags, &cli.StringFlag{Name: "system-id", Usage: "`ID` of the chassis: external_ids:system-id of the node's Open vSwitch", Destination: &p.systemID})
		}
		issue.Subcommands = append(issue.Subcommands, command(r.role, r.usage, func(c *cli.Context) error { return p.issue(c, r) }, flags...))
	}
	return &cli.App{
		Name: "ovnkube pki", HelpName: "ovnkube pki", Usage: "the certificates of the databases and their clients",
		HideVersion: true, HideHelpCommand: true, OnUsageError: wrong, ExitErrHandler: func(*cli.Context, error) {}, Action: group,
		Commands: append([]*cli.Command{
			command("init", "make a certificate authority", p.init, dir, days("How many `DAYS` it is valid", 3650),
				&cli.StringFlag{Name: "name", Usage: "Common `NAME` of the authority", Value: "ovnkube", Destination: &p.name}),
			issue,
			command("renew", "renew the certificates that expire soon, and list all", p.renew, dir,
				days("Renew what has fewer `DAYS` left", 90)),
		}, p.clusterCommands(command, dir)...),
	}
}

// subcommandErrors returns the handlers for wrong usage of a program with subcommands, and for a missing
// subcommand.
func subcommandErrors() (wrong cli.OnUsageErrorFunc, group cli.ActionFunc) {
	wrong = func(c *cli.Context, err error, _ bool) error {
		return usageError(err, c.Command.HelpName)
	}
	group = func(c *cli.Context) error {
		if c.Args().Present() {
			return fmt.Errorf("%s: unknown command; see %s --help", c.Args().First(), c.Command.HelpName)
		}
		return fmt.Errorf("a command is missing; see %s --help", c.Command.HelpName)
	}
	return wrong, group
}

// check checks what is common to all commands.
func (p *pkiCommand) check(c *cli.Context) error {
	switch {
	case c.Args().Present():
		return fmt.Errorf("%s: unexpected argument; allowed: flags only, see %s --help", c.Args().First(), c.Command.HelpName)
	case p.dir == "":
		return errors.New("--dir is missing; allowed: a directory")
	case p.days < 1 || p.days > 36500:
		return wrongFlag("days", fmt.Sprint(p.days), "no such lifetime", "1 to 36500")
	}
	return nil
}

func (p *pkiCommand) lifetime() time.Duration { return time.Duration(p.days) * 24 * time.Hour }

func (p *pkiCommand) init(c *cli.Context) error {
	if err := p.check(c); err != nil {
		return err
	}
	if p.name == "" || len(p.name) > pki.CommonNameLength {
		return wrongFlag("name", p.name, "no common name", fmt.Sprintf("1 to %d characters", pki.CommonNameLength))
	}
	a, err := pki.Dir(p.dir).Init(p.name, p.now(), p.lifetime())
	if errors.Is(err, fs.ErrExist) {
		return wrongFlag("dir", p.dir, "has an authority already", "a directory without one")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "authority %s in %s, valid until %s\n", p.name, p.dir, a.Cert.NotAfter.UTC().Format(time.DateOnly))
	return nil
}

var (
	fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	dnsName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	numbers  = regexp.MustCompile(`^[0-9.]+$`) // an invalid address rather than a name
)

func (p *pkiCommand) issue(c *cli.Context, r profile) error {
	if err := p.check(c); err != nil {
		return err
	}
	s := pki.Subject{Name: r.role, Server: r.server, Client: r.client}
	name := r.role
	if r.chassis {
		if !fileName.MatchString(p.systemID) || len(p.systemID) > pki.CommonNameLength {
			return wrongFlag("system-id", p.systemID, "no system-id",
				fmt.Sprintf("what ovs-vsctl get Open_vSwitch . external_ids:system-id prints, letters, digits, '.', '_' and '-', at most %d", pki.CommonNameLength))
		}
		s.Name, name = p.systemID, r.role+"-"+p.systemID
	}
	if p.name != "" {
		name = p.name
	}
	if !fileName.MatchString(name) {
		return wrongFlag("name", name, "no name of a file", "letters, digits, '.', '_' and '-'")
	}
	if r.server {
		if err := p.addHosts(&s); err != nil {
			return err
		}
	}
	dir := pki.Dir(p.dir)
	cert, err := dir.Issue(name, s, p.now(), p.lifetime(), p.overwrite)
	switch {
	case errors.Is(err, fs.ErrExist):
		return wrongFlag("name", name, err.Error(), "another name, or --overwrite")
	case errors.Is(err, fs.ErrNotExist):
		return wrongFlag("dir", p.dir, err.Error(), "a directory that ovnkube pki init wrote")
	case err != nil:
		return err
	}
	f := dir.Files(name)
	fmt.Fprintf(p.out, "%s\n%s\nvalid until %s\n", f.Cert, f.Key, cert.NotAfter.UTC().Format(time.DateOnly))
	return nil
}

// addHosts adds the hosts of the command line to a subject.
func (p *pkiCommand) addHosts(s *pki.Subject) error {
	const allowed = "an address or a DNS name under which clients reach it, in lower case; may be repeated"
	if len(p.hosts.Value()) == 0 {
		return errors.New("--host is missing; allowed: " + allowed)
	}
	for _, host := range p.hosts.Value() {
		addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
		switch {
		case err == nil && addr.Zone() == "" && !addr.IsUnspecified() && !addr.IsMulticast():
			if addr = addr.Unmap(); !slices.Contains(s.Addresses, addr) {
				s.Addresses = append(s.Addresses, addr)
			}
		case err != nil && dnsName.MatchString(host) && len(host) <= 253 && !numbers.MatchString(host):
			if !slices.Contains(s.DNS, host) {
				s.DNS = append(s.DNS, host)
			}
		default:
			return wrongFlag("host", host, "no address or DNS name of a server", allowed)
		}
	}
	return nil
}

func (p *pkiCommand) renew(c *cli.Context) error {
	if err := p.check(c); err != nil {
		return err
	}
	dir := pki.Dir(p.dir)
	a, err := dir.Authority()
	if errors.Is(err, fs.ErrNotExist) {
		return wrongFlag("dir", p.dir, err.Error(), "a directory that ovnkube pki init wrote")
	}
	if err != nil {
		return err
	}
	certs, err := dir.Renew(p.now(), p.lifetime())
	for _, n := range certs {
		what := "valid"
		if n.Renewed {
			what = "renewed, valid"
		}
		fmt.Fprintf(p.out, "%s: %s until %s\n", n.Name, what, n.Cert.NotAfter.UTC().Format(time.DateOnly))
	}
	if left := a.Cert.NotAfter.Sub(p.now()); left < p.lifetime() {
		err = errors.Join(err, fmt.Errorf("the authority in %s ends on %s: make another one with ovnkube pki init", p.dir, a.Cert.NotAfter.UTC().Format(time.DateOnly)))
	}
	return err
}
