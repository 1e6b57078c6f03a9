package link

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// muteTable is the nftables table, of family netdev, with a chain for each muted link.
const muteTable = "ovn-kube-mute"

// Mute makes the kernel ignore frames received on a link that the userspace datapath of OVS reads.
// That datapath gets a copy of each frame, so without Mute the kernel would also answer ARP,
// forward packets and reset connections. Mute drops frames at ingress, after the copy was taken,
// and disables IPv6 on the link. With the kernel datapath it is not needed and would break the
// port.
func Mute(name string) error {
	if _, err := get(name); err != nil {
		return err
	}
	if HasIPv6() {
		if err := SetLinkSysctl(topology.IPv6, name, "disable_ipv6", "1"); err != nil {
			return err
		}
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("mute link %s: %w", name, err)
	}
	if muted, err := isMuted(c, name); muted || err != nil {
		return err
	}
	drop := nftables.ChainPolicyDrop
	table := c.AddTable(&nftables.Table{Name: muteTable, Family: nftables.TableFamilyNetdev})
	c.AddChain(&nftables.Chain{
		Name: name, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityFilter,
		Device: name, Policy: &drop,
	})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("mute link %s: %w", name, err)
	}
	return nil
}

// isMuted reports whether a link has its chain; the chain goes away with the link.
func isMuted(c *nftables.Conn, name string) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return false, fmt.Errorf("mute link %s: list chains: %w", name, err)
	}
	return slices.ContainsFunc(chains, func(ch *nftables.Chain) bool {
		return ch.Table.Name == muteTable && ch.Name == name && ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop
	}), nil
}

// Unmute reverts Mute; it is not an error if the link is gone or was not muted. If the link is
// gone, IPv6 is not re-enabled.
func Unmute(name string) error {
	err := without(func(c *nftables.Conn) {
		c.DelChain(&nftables.Chain{Name: name, Table: &nftables.Table{Name: muteTable, Family: nftables.TableFamilyNetdev}})
	})
	if err != nil {
		return fmt.Errorf("unmute link %s: %w", name, err)
	}
	if ok, err := Exists(name); err != nil || !ok || !HasIPv6() {
		return err
	}
	return SetLinkSysctl(topology.IPv6, name, "disable_ipv6", "0")
}

// UnmuteAll removes all chains of Mute at once; for cleanup.
func UnmuteAll() error {
	err := without(func(c *nftables.Conn) {
		c.DelTable(&nftables.Table{Name: muteTable, Family: nftables.TableFamilyNetdev})
	})
	if err != nil {
		return fmt.Errorf("remove the nftables table %s: %w", muteTable, err)
	}
	return nil
}

// nothing are errors that mean that there is nothing to remove: no such object, or a kernel without
// nftables, or without nftables for this family, on which Mute cannot have been called.
var nothing = []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT}

// without removes something from nftables; it is not an error if it does not exist.
func without(remove func(*nftables.Conn), opts ...nftables.ConnOption) error {
	c, err := nftables.New(opts...)
	if err == nil {
		remove(c)
		err = c.Flush()
	}
	if slices.ContainsFunc(nothing, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return err
}
