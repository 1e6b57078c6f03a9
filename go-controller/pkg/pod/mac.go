package pod

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// macPrefix is the prefix of the MAC addresses of ports of the cluster network.
var macPrefix = [2]byte{0x0a, 0x58}

// macOf returns the MAC address of a pod: the one derived from its IPv4
// address, or from its first address if it has none.
func macOf(addrs []netip.Prefix) string {
	if p, ok := topology.PrefixOf(topology.IPv4, addrs); ok {
		return topology.MACOf(p.Addr())
	}
	return topology.MACOf(addrs[0].Addr())
}

// A MAC address that a pod keeps although it is not the one that macOf returns may be
// derived from another address of the node. Then the host number of that address is
// marked as taken, too, so that no other pod gets it.

// macPool returns the pool from whose addresses macOf derives MAC addresses; nil if there is none.
func (n *node) macPool() *pool {
	for _, p := range n.pools {
		if p.subnet.Addr().Is4() {
			return p
		}
	}
	if len(n.pools) == 0 {
		return nil
	}
	return n.pools[0]
}

// mayHaveMAC reports whether a pod with some addresses can keep a MAC address. In an IPv4 subnet it must be
// derived from another one of these addresses.
func (n *node) mayHaveMAC(mac string, addrs []netip.Prefix) bool {
	number, belongs, ok := n.macNumber(mac)
	if !ok || belongs && (number < firstPod || n.macPool().used.has(number)) {
		return false
	}
	return !n.macPool().subnet.Addr().Is4() ||
		slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return topology.MACOf(p.Addr()) == mac })
}

// macNumber returns the host number in macPool from which a MAC address is derived, and whether there is
// one. ok is false if no pod of the node can have the MAC address.
func (n *node) macNumber(mac string) (number uint64, belongs, ok bool) {
	b, err := net.ParseMAC(mac)
	pool := n.macPool()
	if err != nil || len(b) != 6 || [2]byte(b[:2]) != macPrefix || pool == nil {
		return 0, false, false
	}
	base := pool.subnet.Addr().As16()
	number = uint64(binary.BigEndian.Uint32(b[2:]) - binary.BigEndian.Uint32(base[12:]))
	return number, number < pool.end, true
}

// occupyMAC records that who keeps a MAC address.
func (n *node) occupyMAC(who Holder, mac string) {
	if number, belongs, ok := n.macNumber(mac); ok {
		n.macs[mac] = who
		if belongs {
			n.macPool().used.set(number)
		}
	}
}

// vacateMAC reverts occupyMAC.
func (n *node) vacateMAC(who Holder, mac string) {
	if mac == "" || n.macs[mac] != who {
		return
	}
	delete(n.macs, mac)
	if number, belongs, ok := n.macNumber(mac); ok && belongs {
		n.macPool().used.clear(number)
	}
}
