// Package plan assigns the names, addresses and MAC addresses of nodes on a cluster's wire,
// and the ports of the control plane's servers.
//
// Everything here is a pure function of the configuration, so any later kin
// command gets the same results without asking the cluster.
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
	// Index counts from 0, the control plane.
	Index int
	// Addresses are the node's own, with the prefix length of the wire's subnet, one
	// per family, IPv4 first.
	Addresses []netip.Prefix
}

// Network is one switch of the cluster.
type Network struct {
	// Name is empty for the nodes' own network.
	Name string
	// Index counts from 0, the nodes' own network.
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

// Gateways returns the addresses of the switch itself, with the subnets' prefix lengths.
// They are the gateways of all machines on it.
func (n Network) Gateways() []netip.Prefix { return n.hosts(1) }

// Node returns the addresses of a node, with the subnets' prefix lengths.
func (n Network) Node(node Node) []netip.Prefix { return n.hosts(node.Index + 2) }

// NodeMAC returns the MAC address of a node's interface.
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

// ControlPlane reports whether the node runs the cluster's control plane.
func (n Node) ControlPlane() bool { return n.Index == 0 }

// Primary returns the node's address in the cluster's first family.
func (n Node) Primary() netip.Addr { return n.Addresses[0].Addr() }

// AddrList returns the addresses without prefix lengths.
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

// Host returns the address with the given number in a subnet, with the subnet's prefix length.
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

// HostMAC returns the MAC address of an outside host. It is derived from the host's first address,
// so that neighbor caches remain valid if a host is re-created.
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

// HostPort joins an address and a port as in a URL.
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
