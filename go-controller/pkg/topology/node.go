package topology

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// GatewayMode determines how pod traffic leaves a node.
type GatewayMode string

// The gateway modes.
const (
	// GatewayLocal routes pod traffic through the host's kernel.
	GatewayLocal GatewayMode = "local"
	// GatewayShared routes it through the gateway router straight to the bridge.
	GatewayShared GatewayMode = "shared"
)

// Node is what the planners know about a node. Unknown parts are empty: a node is planned
// as far as it is known.
type Node struct {
	Name   string
	Labels map[string]string
	Ready  bool // the Ready condition is True
	// ReadySince is when the Ready condition last changed.
	ReadySince time.Time
	// ReadyUnknown: the Ready condition is Unknown, because the kubelet has not reported.
	ReadyUnknown bool
	// Unschedulable: the node is cordoned.
	Unschedulable bool
	// EgressAssignable: the node may hold egress addresses.
	EgressAssignable bool
	// Draining: the node has to hand over its egress addresses.
	Draining bool
	Subnets  []netip.Prefix // pod subnets, at most one per family, in cluster subnet order
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

// Gateway is the external attachment of a node according to its l3-gateway-config
// annotation.
type Gateway struct {
	Mode        GatewayMode // empty if not set by the node yet
	InterfaceID string      // name of the localnet port, e.g. "breth0_node1"
	MAC         string
	Addrs       []netip.Prefix
	NextHops    []netip.Addr
	NodePort    bool
	VLAN        int // 0: untagged
	// External is the attachment to the second network, which is only for external
	// gateways.
	External ExternalAttachment
}

// ExternalAttachment is the attachment of a node to the network of its second uplink. It is
// zero for a node without one.
type ExternalAttachment struct {
	InterfaceID string // name of the localnet port, e.g. "breth1_node1"
	MAC         string
	Addrs       []netip.Prefix
}

// Known reports whether there is a second uplink and enough is known about it.
func (e ExternalAttachment) Known() bool {
	return e.InterfaceID != "" && e.MAC != "" && len(e.Addrs) > 0
}

// Reaches reports whether an address is on the network of the second uplink.
func (e ExternalAttachment) Reaches(a netip.Addr) bool {
	return e.Known() && slices.ContainsFunc(e.Addrs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// UplinkPort returns the port of the node's gateway router through which an external
// gateway is reached.
func (n Node) UplinkPort(gateway netip.Addr) string {
	if n.Gateway.External.Reaches(gateway) {
		return ExternalGatewayPort(n.Name)
	}
	return GatewayToExternal(n.Name)
}

// RouterAddr returns the address of the cluster router in a node subnet: its first.
func RouterAddr(subnet netip.Prefix) netip.Addr { return NthAddr(subnet, 1) }

// RouterMAC returns the MAC address of the cluster router's port for all subnets of a node,
// which must not be empty. It is derived from the IPv4 address, if there is one.
func RouterMAC(subnets []netip.Prefix) string {
	if s, ok := PrefixOf(IPv4, subnets); ok {
		return MACOf(RouterAddr(s))
	}
	return MACOf(RouterAddr(subnets[0]))
}

// ManagementAddr returns the address of the management port in a node subnet: its second.
func ManagementAddr(subnet netip.Prefix) netip.Addr { return NthAddr(subnet, 2) }

// ServicePortAddr returns the address in a node subnet through which the management port
// gets packets that carry MarkServicePort: the network address, which no host has. Open
// vSwitch in userspace loses marks on the way to the kernel, but not the MAC address of
// this address.
func ServicePortAddr(subnet netip.Prefix) netip.Addr { return NthAddr(subnet, 0) }

// ServicePortMAC returns the MAC address of ServicePortAddr for all subnets of a node,
// which must not be empty.
func ServicePortMAC(subnets []netip.Prefix) string { return MACOf(ServicePortAddr(subnets[0])) }

// LocalServiceAddr returns the address in a masquerade range on which a node's switch
// serves Services whose external traffic stays on the node: its third (169.254.169.3,
// fd69::3).
func LocalServiceAddr(masquerade netip.Prefix) netip.Addr { return NthAddr(masquerade, 3) }

// HairpinAddr returns the address in a masquerade range that a pod sees as client when it
// reaches itself through a Service: its fifth.
func HairpinAddr(masquerade netip.Prefix) netip.Addr { return NthAddr(masquerade, 5) }

// ManagementAddrs returns the management port's addresses, one per family. A subnet that is
// too small has none.
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

// HasGateway reports whether enough is known about the node for its gateway router: its
// chassis, its join address and its external attachment.
func (n Node) HasGateway() bool {
	return n.Chassis != "" && len(n.Subnets) > 0 && len(n.Join) > 0 && n.Gateway.Mode != "" &&
		n.Gateway.InterfaceID != "" && n.Gateway.MAC != "" && len(n.Gateway.Addrs) > 0
}

// PodNetwork is what the master assigned to a pod: the value of its pod-networks
// annotation.
type PodNetwork struct {
	MAC      string
	Addrs    []netip.Prefix // with the prefix length of the node subnet, at most one per family
	Gateways []netip.Addr   // one per family, in the order of Addrs
}

// PodAddresses are the addresses of a pod's logical port in the OVN databases, which only
// masters write.
type PodAddresses struct {
	UID   string // of the pod that the port is for
	MAC   string
	Addrs []netip.Addr
}

// Network returns the PodNetwork of a pod with these addresses on a node with these
// subnets; false if an address is in none of them, or two are in the same one.
func (p PodAddresses) Network(subnets []netip.Prefix) (PodNetwork, bool) {
	n := PodNetwork{MAC: p.MAC}
	for _, s := range subnets {
		for _, a := range p.Addrs {
			if s.Contains(a) {
				n.Addrs = append(n.Addrs, netip.PrefixFrom(a, s.Bits()))
				n.Gateways = append(n.Gateways, RouterAddr(s))
			}
		}
	}
	seen := map[Family]bool{}
	for _, a := range n.Addrs {
		seen[FamilyOf(a.Addr())] = true
	}
	return n, len(n.Addrs) > 0 && len(n.Addrs) == len(p.Addrs) && len(seen) == len(n.Addrs)
}

// ParsePodAddresses parses an entry of the addresses of a port: "MAC IP4 IP6". It returns
// false for anything but a MAC address followed by one unicast address per family.
func ParsePodAddresses(text string) (p PodAddresses, ok bool) {
	words := strings.Fields(text)
	if len(words) < 2 || len(words) > 1+len(Families) || !IsMAC(words[0]) {
		return p, false
	}
	p.MAC = words[0]
	seen := map[Family]bool{}
	for _, word := range words[1:] {
		a, err := netip.ParseAddr(word)
		if err != nil || !IsUnicast(a) || seen[FamilyOf(a)] {
			return PodAddresses{}, false
		}
		seen[FamilyOf(a)] = true
		p.Addrs = append(p.Addrs, a)
	}
	return p, true
}

// IsMAC reports whether text is the MAC address of an interface.
func IsMAC(text string) bool {
	mac, err := net.ParseMAC(text)
	return err == nil && len(mac) == 6 && mac[0]&1 == 0
}

// Same reports whether two networks are equivalent, regardless of notation and order.
func (n PodNetwork) Same(o PodNetwork) bool {
	return strings.EqualFold(n.MAC, o.MAC) && sameSet(n.Addrs, o.Addrs, netip.Prefix.Compare) &&
		sameSet(n.Gateways, o.Gateways, netip.Addr.Compare)
}

func sameSet[T comparable](a, b []T, compare func(T, T) int) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, compare)
	slices.SortFunc(b, compare)
	return slices.Equal(a, b)
}

// Attachment is an additional network that a pod is attached to.
type Attachment struct {
	Name  string // "namespace/name", or the plugin's name for it
	Addrs []netip.Addr
	Bad   []string // its invalid addresses
}

// GatewayAddresses returns the node's own addresses of a family that its gateway router
// shares: at most one on each network.
func (n Node) GatewayAddresses(f Family) []netip.Addr {
	var addrs []netip.Addr
	for _, from := range [][]netip.Prefix{n.Gateway.Addrs, n.Primary} {
		if p, ok := PrefixOf(f, from); ok {
			addrs = append(addrs, p.Addr())
			break
		}
	}
	if p, ok := PrefixOf(f, n.Gateway.External.Addrs); ok && n.Gateway.External.Known() && !slices.Contains(addrs, p.Addr()) {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}
