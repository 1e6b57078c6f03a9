package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
)

// hostPortPrefix starts the name of an outside host's port on the switch, which
// is limited to 15 characters.
const hostPortPrefix = "host"

// AddHost creates a machine outside the cluster on one of its networks.
func (c *Cluster) AddHost(name string, network plan.Network, addresses []netip.Prefix) error {
	if err := config.CheckName("host", name); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	names, err := c.Machines()
	if err != nil {
		return err
	}
	if _, isNode := plan.NodeNamed(c.Config, name); isNode || slices.Contains(names, name) {
		return fmt.Errorf("cluster %s has a machine %q already", c.name, name)
	}
	if err := c.checkFree(addresses); err != nil {
		return err
	}
	d := c.Machine(name)
	err = c.makeHost(d, name, network, addresses)
	if err == nil {
		err = c.boot(name)
	}
	if err != nil {
		return errors.Join(err, c.removeHost(name))
	}
	return nil
}

func (c *Cluster) makeHost(d machine.Dir, name string, network plan.Network, addresses []netip.Prefix) error {
	port, err := c.freePort()
	if err != nil {
		return err
	}
	if err := machine.MakeDisk(d.Disk(), name, c.hosts()); err != nil {
		return err
	}
	return d.Save(machine.Spec{
		Cluster: c.name, Hostname: name, Cgroup: c.cgroup() + "/" + name, CPUWeight: c.Config.CPUWeight, Disk: d.Disk(), Binds: c.programBinds(),
		Uplinks: []machine.Uplink{{
			Name: component.UplinkName, Port: port, Bridge: network.Bridge, MAC: plan.HostMAC(addresses), MTU: mtu, Frames: c.frames(),
			Addresses: addresses, Gateways: gatewaysFor(network, addresses),
		}},
		Sysctls: machine.QuietSysctls(component.UplinkName),
		Env:     component.HostEnvironment(),
	})
}

// gatewaysFor lists a network's gateways in the families that a host has.
func gatewaysFor(network plan.Network, addresses []netip.Prefix) []netip.Addr {
	var list []netip.Addr
	for _, g := range network.Gateways() {
		if slices.ContainsFunc(addresses, func(a netip.Prefix) bool { return a.Contains(g.Addr()) }) {
			list = append(list, g.Addr())
		}
	}
	return list
}

func (c *Cluster) checkFree(addresses []netip.Prefix) error {
	taken := map[netip.Addr]string{}
	for _, network := range plan.Networks(c.Config) {
		for _, g := range network.Gateways() {
			taken[g.Addr()] = "the gateway"
		}
		for _, n := range c.Nodes() {
			for _, a := range network.Node(n) {
				taken[a.Addr()] = n.Name
			}
		}
	}
	hosts, err := c.Hosts()
	if err != nil {
		return err
	}
	for name, spec := range hosts {
		for _, u := range spec.Uplinks {
			for _, a := range u.Addresses {
				taken[a.Addr()] = name
			}
		}
	}
	for _, a := range addresses {
		if owner, is := taken[a.Addr()]; is {
			return fmt.Errorf("address %s belongs to %s", a.Addr(), owner)
		}
	}
	return nil
}

// Network finds a network by name; the nodes' own has none.
func (c *Cluster) Network(name string) (plan.Network, error) {
	for _, n := range plan.Networks(c.Config) {
		if n.Name == name {
			return n, nil
		}
	}
	return plan.Network{}, fmt.Errorf("cluster %s has no network %q", c.name, name)
}

// HostAddress parses an address of a host, with a prefix length or, if there is none, with that of the
// network's subnet that contains it.
func HostAddress(network plan.Network, text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor ADDRESS/LENGTH", text)
	}
	for _, subnet := range network.Subnets {
		if subnet.Contains(addr) {
			return netip.PrefixFrom(addr, subnet.Bits()), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("%s is not on the wire (%v); give its length if that is meant: %s/%d", addr, network.Subnets, addr, addr.BitLen())
}

// Hosts lists the machines outside the cluster.
func (c *Cluster) Hosts() (map[string]machine.Spec, error) {
	names, err := c.Machines()
	if err != nil {
		return nil, err
	}
	hosts := map[string]machine.Spec{}
	for _, name := range names {
		if _, isNode := plan.NodeNamed(c.Config, name); isNode || name == WireName {
			continue
		}
		spec, err := c.Machine(name).Load()
		if errors.Is(err, fs.ErrNotExist) { // just deleted, or being created
			continue
		}
		if err != nil {
			return nil, err
		}
		hosts[name] = spec
	}
	return hosts, nil
}

// freePort returns the name of a port of the switch that no host uses.
func (c *Cluster) freePort() (string, error) {
	hosts, err := c.Hosts()
	if err != nil {
		return "", err
	}
	for i := 0; ; i++ {
		port := fmt.Sprintf("%s%d", hostPortPrefix, i)
		used := false
		for _, spec := range hosts {
			used = used || slices.ContainsFunc(spec.Uplinks, func(u machine.Uplink) bool { return u.Port == port })
		}
		if !used {
			return port, nil
		}
	}
}

// DeleteHost removes a machine outside the cluster.
func (c *Cluster) DeleteHost(name string) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, isNode := plan.NodeNamed(c.Config, name); isNode || name == WireName {
		return fmt.Errorf("%s is part of cluster %s, not a host outside it", name, c.name)
	}
	if _, err := c.Find(name); err != nil {
		return err
	}
	return c.removeHost(name)
}

func (c *Cluster) removeHost(name string) error {
	d := c.Machine(name)
	if err := machine.Kill(d); err != nil {
		return err
	}
	if err := c.unplug(name); err != nil {
		return err
	}
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("remove host's directory: %w", err)
	}
	return nil
}
