// Package plan says who is who on a cluster's wire: the names, addresses and
// MACs of nodes, and where the control plane's servers listen.
//
// Everything here is a pure function of the configuration, so any later kin
// command finds the same answers without asking the cluster.
package plan

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
)

// Ports of the control plane, on every address of its node.
const (
	APIServerPort  = 6443
	NorthboundPort = 6641
	SouthboundPort = 6642
)

// Node is one machine of the cluster.
type Node struct {
	Name string
	// Index counts from 0, which is the control plane.
	Index int
	// MAC is the hardware address of the uplink.
	MAC string
	// Addresses are the node's own, with the length of the wire's subnet, one
	// a family, IPv4 first.
	Addresses []netip.Prefix
}

// ControlPlane says whether the node runs the cluster's servers.
func (n Node) ControlPlane() bool { return n.Index == 0 }

// Primary is the address of the cluster's first family.
func (n Node) Primary() netip.Addr { return n.Addresses[0].Addr() }

// AddrList is the addresses without length.
func (n Node) AddrList() []netip.Addr {
	list := make([]netip.Addr, len(n.Addresses))
	for i, a := range n.Addresses {
		list[i] = a.Addr()
	}
	return list
}

// Nodes lists the cluster's machines, the control plane first.
func Nodes(c config.Cluster) []Node {
	nodes := make([]Node, c.Nodes)
	for i := range nodes {
		host := i + 2 // 1 is the gateway
		nodes[i] = Node{
			Name:  nodeName(c.NodePrefix, i),
			Index: i,
			MAC:   fmt.Sprintf("02:42:ac:12:%02x:%02x", host>>8, host&0xff),
		}
		for _, subnet := range c.NodeSubnets() {
			nodes[i].Addresses = append(nodes[i].Addresses, Host(subnet, host))
		}
	}
	return nodes
}

// NodeNamed finds a node.
func NodeNamed(c config.Cluster, name string) (Node, bool) {
	for _, n := range Nodes(c) {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Gateways are the addresses of the wire itself, every machine's default
// gateway, with the subnet's length.
func Gateways(c config.Cluster) []netip.Prefix {
	var list []netip.Prefix
	for _, subnet := range c.NodeSubnets() {
		list = append(list, Host(subnet, 1))
	}
	return list
}

// Host is the numbered address of a subnet, with the subnet's length.
func Host(subnet netip.Prefix, number int) netip.Prefix {
	bytes := subnet.Masked().Addr().AsSlice()
	for i := len(bytes) - 1; i >= 0 && number > 0; i-- {
		number += int(bytes[i])
		bytes[i] = byte(number)
		number >>= 8
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, subnet.Bits())
}

// HostMAC is the hardware address of an outside host: made of its first address,
// so that a host that comes back finds itself in its neighbours' caches.
func HostMAC(addresses []netip.Prefix) string {
	kind, addr := byte(0x43), addresses[0].Addr()
	for _, a := range addresses {
		if a.Addr().Is4() {
			kind, addr = 0x42, a.Addr()
			break
		}
	}
	tail := addr.AsSlice()
	return net.HardwareAddr(append([]byte{0x02, kind}, tail[len(tail)-4:]...)).String()
}

// HostPort joins as a URL or a server's flag wants it.
func HostPort(addr netip.Addr, port int) string {
	return net.JoinHostPort(addr.String(), strconv.Itoa(port))
}

func nodeName(prefix string, index int) string {
	switch index {
	case 0:
		return prefix + "-control-plane"
	case 1:
		return prefix + "-worker"
	}
	return fmt.Sprintf("%s-worker%d", prefix, index)
}
