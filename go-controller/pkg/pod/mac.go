package pod

import (
	"encoding/binary"
	"net"
	"net/netip"

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

// A MAC address that a pod keeps although it is not derived from its address may be
// derived from another address of the node. Then the host number of that address is
// marked as taken, too, so that no other pod gets it.

// mayHaveMAC reports whether a pod can keep a MAC address.
func (n *node) mayHaveMAC(mac string) bool {
	number, belongs, ok := n.macNumber(mac)
	return ok && (!belongs || number >= firstPod && !n.pools[0].used.has(number))
}

// macNumber returns the host number from which a MAC address is derived, and whether there is
// one. ok is false if no pod of the node can have the MAC address.
func (n *node) macNumber(mac string) (number uint64, belongs, ok bool) {
	b, err := net.ParseMAC(mac)
	if err != nil || len(b) != 6 || [2]byte(b[:2]) != macPrefix || len(n.pools) == 0 {
		return 0, false, false
	}
	for _, p := range n.pools {
		if p.subnet.Addr().Is4() {
			return 0, false, false // in an IPv4 subnet it is always derived from the address
		}
	}
	base := n.pools[0].subnet.Addr().As16()
	number = uint64(binary.BigEndian.Uint32(b[2:]) - binary.BigEndian.Uint32(base[12:]))
	return number, number < n.pools[0].end, true
}

// occupyMAC records that who keeps a MAC address.
func (n *node) occupyMAC(who Holder, mac string) {
	if number, belongs, ok := n.macNumber(mac); ok {
		n.macs[mac] = who
		if belongs {
			n.pools[0].used.set(number)
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
		n.pools[0].used.clear(number)
	}
}
