package topology

import "net/netip"

// GatewayMode says how pod traffic leaves a node.
type GatewayMode string

// The gateway modes.
const (
	// GatewayLocal routes pod traffic through the host's kernel.
	GatewayLocal GatewayMode = "local"
	// GatewayShared routes it through the gateway router straight to the bridge.
	GatewayShared GatewayMode = "shared"
)

// Node is what the planners know of a node. Parts that are not known yet are
// empty: a node is planned as far as it is known.
type Node struct {
	Name   string
	Labels map[string]string
	Ready  bool // the Ready condition is True
	// Unschedulable: the node is cordoned.
	Unschedulable bool
	// EgressAssignable: the node may hold egress addresses.
	EgressAssignable bool
	// Draining: the node is to hand over the egress addresses it holds.
	Draining bool
	Subnets  []netip.Prefix // pod subnets, at most one a family, in cluster subnet order
	Join     []netip.Prefix // addresses of the gateway router on the join switch
	Chassis  string         // OVS system-id
	// ManagementMAC is the MAC address of the management port.
	ManagementMAC string
	// Primary holds the addresses of the node on its primary network.
	Primary []netip.Prefix
	// NoPacketLengths: the node's datapath cannot compare lengths of packets.
	NoPacketLengths bool
	// Host holds every usable address of the host, with prefixes.
	Host    []netip.Prefix
	Gateway Gateway
}

// Gateway is the external attachment of a node as its l3-gateway-config
// annotation tells it.
type Gateway struct {
	Mode        GatewayMode // empty while the node has not said
	InterfaceID string      // name of the localnet port, e.g. "breth0_node1"
	MAC         string
	Addrs       []netip.Prefix
	NextHops    []netip.Addr
	NodePort    bool
	VLAN        int // 0: untagged
}

// RouterAddr returns the address of the cluster router in a node subnet: its first.
func RouterAddr(subnet netip.Prefix) netip.Addr { return NthAddr(subnet, 1) }

// ManagementAddr returns the address of the management port in a node subnet: its second.
func ManagementAddr(subnet netip.Prefix) netip.Addr { return NthAddr(subnet, 2) }

// ServicePortAddr returns the address in a node subnet by which the management port
// gets what carries MarkServicePort: the address of the network, which is nobody's.
// Open vSwitch in userspace loses marks on the way to the kernel, but not the MAC
// address that goes with this one.
func ServicePortAddr(subnet netip.Prefix) netip.Addr { return NthAddr(subnet, 0) }

// ServicePortMAC returns the MAC address that goes with the addresses for all
// subnets of a node, which must not be empty.
func ServicePortMAC(subnets []netip.Prefix) string { return MACOf(ServicePortAddr(subnets[0])) }

// LocalServiceAddr returns the address in a masquerade range under which a node's
// switch answers for services whose traffic from outside stays on the node: its
// third (169.254.169.3, fd69::3).
func LocalServiceAddr(masquerade netip.Prefix) netip.Addr { return NthAddr(masquerade, 3) }

// HairpinAddr returns the address in a masquerade range that a pod sees as client
// when it reaches itself by way of a service: its fifth.
func HairpinAddr(masquerade netip.Prefix) netip.Addr { return NthAddr(masquerade, 5) }

// ManagementAddrs returns the management port's addresses, one a family. A subnet
// without room for one has none.
func (n Node) ManagementAddrs() []netip.Addr {
	addrs := make([]netip.Addr, 0, len(n.Subnets))
	for _, s := range n.Subnets {
		if a := ManagementAddr(s); a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// HostAddr returns the host's address in a network; the zero Addr for none.
func (n Node) HostAddr(network netip.Prefix) netip.Addr {
	for _, p := range n.Host {
		if p.Masked() == network {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// HasGateway tells whether enough is known of the node for its gateway router:
// its chassis, its join address and its external attachment.
func (n Node) HasGateway() bool {
	return n.Chassis != "" && len(n.Subnets) > 0 && len(n.Join) > 0 && n.Gateway.Mode != "" &&
		n.Gateway.InterfaceID != "" && n.Gateway.MAC != "" && len(n.Gateway.Addrs) > 0
}

// PodNetwork is what the master decided for a pod: the value of its
// pod-networks annotation.
type PodNetwork struct {
	MAC      string
	Addrs    []netip.Prefix // with the length of the node subnet, at most one a family
	Gateways []netip.Addr   // one a family, in the order of Addrs
}

// Attachment is a network a pod is attached to besides the cluster's own.
type Attachment struct {
	Name  string // "namespace/name", or as its plug-in calls it
	Addrs []netip.Addr
}
