package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// minMTU6 is the minimum MTU of a link with IPv6.
const minMTU6 = 1280

// validate performs checks that involve more than one option.
func (l *loader) validate() error {
	for _, check := range []func() error{
		l.checkFamilies, l.checkOverlaps, l.checkMTU, l.checkNextHops, l.checkExternalGateways, l.checkElection, l.checkMetricsTLS, l.checkPage,
		func() error { return l.checkDatabase(&l.config.OVNNorth) },
		l.checkSouthbound, l.checkKubernetes,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// familiesOf returns the families of prefixes, IPv4 first.
func familiesOf(prefixes []netip.Prefix) []topology.Family {
	var out []topology.Family
	for _, f := range topology.Families {
		if _, ok := topology.PrefixOf(f, prefixes); ok {
			out = append(out, f)
		}
	}
	return out
}

func familyNames(fams []topology.Family) string {
	names := make([]string, 0, len(fams))
	for _, f := range fams {
		names = append(names, f.String())
	}
	return strings.Join(names, " and ")
}

// checkFamilies checks that there is one service range for each family of pods.
func (l *loader) checkFamilies() error {
	services := l.config.Kubernetes.ServiceCIDRs
	want, have := l.config.Families(), familiesOf(services)
	if slices.Equal(want, have) && len(services) == len(want) {
		return nil
	}
	problem := fmt.Sprintf("%d ranges", len(services))
	if !slices.Equal(want, have) {
		problem = familyNames(have)
	}
	pods := l.origin(&l.config.Default.ClusterSubnets)
	return l.refuse(&l.config.Kubernetes.ServiceCIDRs, problem,
		fmt.Sprintf("one range for each of %s, the families of %s %q", familyNames(want), pods.where, pods.text))
}

// checkOverlaps checks that ranges with different uses do not overlap.
func (l *loader) checkOverlaps() error {
	c := &l.config
	type use struct {
		field    any
		prefixes []netip.Prefix
	}
	uses := []use{
		{&c.Default.ClusterSubnets, c.Default.ClusterPrefixes()},
		{&c.Kubernetes.ServiceCIDRs, c.Kubernetes.ServiceCIDRs},
		{&c.Gateway.V4JoinSubnet, []netip.Prefix{c.Gateway.V4JoinSubnet}},
		{&c.Gateway.V6JoinSubnet, []netip.Prefix{c.Gateway.V6JoinSubnet}},
		{&c.Gateway.V4MasqueradeSubnet, []netip.Prefix{c.Gateway.V4MasqueradeSubnet}},
		{&c.Gateway.V6MasqueradeSubnet, []netip.Prefix{c.Gateway.V6MasqueradeSubnet}},
	}
	var seen []use // with one prefix each
	for _, u := range uses {
		for _, p := range u.prefixes {
			for _, s := range seen {
				if q := s.prefixes[0]; p.Overlaps(q) {
					other := l.origin(s.field)
					return l.refuse(u.field, fmt.Sprintf("%s overlaps %s of %s %q", p, q, other.where, other.text),
						"ranges that share no address")
				}
			}
			seen = append(seen, use{u.field, []netip.Prefix{p}})
		}
	}
	return nil
}

func (l *loader) checkMTU() error {
	d := &l.config.Default
	if d.MTU < minMTU6 && slices.Contains(l.config.Families(), topology.IPv6) {
		return l.refuse(&d.MTU, "too small for IPv6", fmt.Sprintf("at least %d in a cluster with IPv6", minMTU6))
	}
	return nil
}

func (l *loader) checkNextHops() error {
	fams := l.config.Families()
	for _, a := range l.config.Gateway.NextHops {
		if !slices.Contains(fams, topology.FamilyOf(a)) {
			return l.refuse(&l.config.Gateway.NextHops, fmt.Sprintf("%s is %s", a, topology.FamilyOf(a)),
				"addresses of the cluster's families, "+familyNames(fams))
		}
	}
	return nil
}

// checkExternalGateways checks that the second uplink differs from the gateway's.
func (l *loader) checkExternalGateways() error {
	g := &l.config.Gateway
	if g.ExternalGatewayInterface != "" && g.ExternalGatewayInterface == g.Interface {
		return l.refuse(&g.ExternalGatewayInterface, "the same as "+l.origin(&g.Interface).where, "an interface other than the gateway's")
	}
	return nil
}

// checkElection checks the requirements of client-go's leader election.
func (l *loader) checkElection() error {
	ha := &l.config.MasterHA
	if ha.RenewDeadline >= ha.LeaseDuration {
		return l.refuse(&ha.RenewDeadline, "not shorter than the lease",
			fmt.Sprintf("less than the lease duration, %d", int(ha.LeaseDuration/time.Second)))
	}
	// Attempts are spread over up to 1.2 times the period.
	if ha.RetryPeriod+ha.RetryPeriod/5 >= ha.RenewDeadline {
		return l.refuse(&ha.RetryPeriod, "too long for the renew deadline",
			fmt.Sprintf("less than the renew deadline, %d, divided by 1.2", int(ha.RenewDeadline/time.Second)))
	}
	return nil
}

// checkMetricsTLS does not require the files to exist: a node cannot wait for them, since they may come over the network.
func (l *loader) checkMetricsTLS() error {
	m := &l.config.Metrics
	return l.checkTogether(&m.ServerKey, &m.ServerCert)
}

// checkPage checks that the page has TLS unless it is on a loopback address: users of the
// page send a token, which must not be readable on the network.
func (l *loader) checkPage() error {
	p := &l.config.Page
	if p.BindAddress != "" && p.Key == "" && p.Cert == "" && !onLoopback(p.BindAddress) {
		return l.refuse(&p.BindAddress, "no loopback address, and there is no TLS",
			"a loopback address, or any with "+l.option(&p.Key).Name()+" and "+l.option(&p.Cert).Name())
	}
	if err := l.checkTogether(&p.Key, &p.Cert); err != nil {
		return err
	}
	if l.sources.WithoutPage {
		return nil
	}
	return l.checkPair(&p.Key, &p.Cert, "")
}

// checkTogether checks that a key and its certificate are given together or not at all.
func (l *loader) checkTogether(key, cert *string) error {
	switch {
	case *key == "" && *cert != "":
		return l.refuse(cert, "no private key", "both "+l.option(key).Name()+" and "+l.option(cert).Name()+", or neither")
	case *key != "" && *cert == "":
		return l.refuse(key, "no certificate", "both "+l.option(key).Name()+" and "+l.option(cert).Name()+", or neither")
	}
	return nil
}

// checkDatabase checks that the three files are given with ssl, and only then. Whoever has a server certificate of the
// authority can impersonate a database whose name is not checked.
func (l *loader) checkDatabase(db *Database) error {
	unused := db == &l.config.OVNNorth && l.sources.WithoutNorthbound || db == &l.config.OVNSouth && l.sources.WithoutSouthbound
	if db.Secure() && !unused && db.CommonName == "" {
		l.notices = append(l.notices, Notice{Where: l.origin(&db.Endpoints).where, Reason: "uses ssl, but " + l.option(&db.CommonName).Name() +
			" is not set: every server certificate that the authority signed is accepted as the database's"})
	}
	e := l.origin(&db.Endpoints)
	for _, field := range []*string{&db.PrivKey, &db.Cert, &db.CACert} {
		switch {
		case db.Secure() && *field == "":
			return l.refuse(field, "", "a PEM file: "+e.where+" uses ssl")
		case !db.Secure() && *field != l.option(field).Default:
			return l.refuse(field, fmt.Sprintf("not used by %s %q", e.where, e.text), "keys and certificates with ssl: addresses only")
		}
	}
	if !db.Secure() || unused {
		return nil
	}
	if err := l.checkPair(&db.PrivKey, &db.Cert, ": "+e.where+" uses ssl"); err != nil {
		return err
	}
	return l.checkAuthorities(&db.CACert, ": "+e.where+" uses ssl")
}

// checkSouthbound checks the southbound database, once it is known: its files may fit an address that could not be read yet.
func (l *loader) checkSouthbound() error {
	if l.southboundUnread() {
		return nil
	}
	return l.checkDatabase(&l.config.OVNSouth)
}

// checkKubernetes checks the files that are used: a kubeconfig has its own authority and credentials.
func (l *loader) checkKubernetes() error {
	if l.sources.WithoutKubernetes {
		return nil
	}
	k := &l.config.Kubernetes
	if _, err := l.readable(&k.Kubeconfig, "a readable kubeconfig file"); err != nil || k.Kubeconfig != "" {
		return err
	}
	if err := l.checkAuthorities(&k.CACert, ""); err != nil {
		return err
	}
	_, err := l.readable(&k.TokenFile, "a readable file with a token")
	return err
}
