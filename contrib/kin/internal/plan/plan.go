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
	APIServerPort         = 6443
	NorthboundPort        = 6641
	SouthboundPort        = 6642
	MastersSouthboundPort = 6643
)

// Node is one machine of the cluster.
type Node struct {
	Name string
	// Index counts from 0, which is the control plane.
	Index int
	// Addresses are the node's own, with the length of the wire's subnet, one
	// a family, IPv4 first.
	Addresses []netip.Prefix
}

// Network is one switch of the cluster.
type Network struct {
	// Name is empty for the nodes' own network.
	Name string
	// Index counts from 0, which is the nodes' own network.
	Index int
	// Bridge is the switch; it has the first address of each subnet.
	Bridge string
	// Interface is the nodes' interface on it.
	Interface string
	Subnets   []netip.Prefix
}

// Networks lists the cluster's networks, the nodes' own first.
func Networks(c config.Cluster) []Network {
	list := []Network{{Subnets: c.NodeSubnets()}}
	for _, n := range c.Networks {
		list = append(list, Network{Name: n.Name, Subnets: c.NetworkSubnets(n)})
	}
	for i := range list {
		list[i].Index, list[i].Bridge, list[i].Interface = i, fmt.Sprintf("br%d", i), fmt.Sprintf("eth%d", i)
	}
	return list
}

// Gateways are the addresses of the switch itself, with the subnets' length:
// everyone's gateway.
func (n Network) Gateways() []netip.Prefix { return n.hosts(1) }

// Node are the addresses of a node, with the subnets' length.
func (n Network) Node(node Node) []netip.Prefix { return n.hosts(node.Index + 2) }

// NodeMAC is the hardware address of a node's interface.
func (n Network) NodeMAC(node Node) string {
	host := node.Index + 2
	return fmt.Sprintf("02:42:ac:%02x:%02x:%02x", 0x12+n.Index, host>>8, host&0xff)
}

func (n Network) hosts(number int) []netip.Prefix {
	var list []netip.Prefix
	for _, subnet := range n.Subnets {
		list = append(list, Host(subnet, number))
	}
	return list
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
	own := Networks(c)[0]
	nodes := make([]Node, c.Nodes)
	for i := range nodes {
		nodes[i] = Node{Name: nodeName(c.NodePrefix, i), Index: i}
		nodes[i].Addresses = own.Node(nodes[i])
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
