package link

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// muteTable is the nftables table, of family netdev, that holds a chain for each
// muted link.
const muteTable = "ovn-kube-mute"

// Mute makes the kernel ignore what comes in by a link whose frames the
// userspace datapath of OVS reads: it takes a copy of each, and without Mute the
// kernel would answer ARP, forward and reset connections behind OVS's back. It
// drops at ingress, which is after the copy was taken, and takes IPv6 off the
// link. With the kernel datapath it is not needed and would break the port.
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

// isMuted reports whether the chain of a link is there; it goes with the link.
func isMuted(c *nftables.Conn, name string) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return false, fmt.Errorf("mute link %s: list chains: %w", name, err)
	}
	return slices.ContainsFunc(chains, func(ch *nftables.Chain) bool {
		return ch.Table.Name == muteTable && ch.Name == name && ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop
	}), nil
}

// Unmute takes back what Mute did; a link that is gone or was not muted is no
// error. IPv6 stays off where the link has gone.
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

// UnmuteAll removes all chains of Mute at once; for clean-up.
func UnmuteAll() error {
	err := without(func(c *nftables.Conn) {
		c.DelTable(&nftables.Table{Name: muteTable, Family: nftables.TableFamilyNetdev})
	})
	if err != nil {
		return fmt.Errorf("remove the nftables table %s: %w", muteTable, err)
	}
	return nil
}

// nothing are errors that say that there is nothing to remove: no such object, or a
// kernel that has no nftables, or not for this family, where Mute cannot have been.
var nothing = []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT}

// without removes something from nftables; what is not there is no error.
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
