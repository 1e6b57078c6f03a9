package kube

import (
	"net/netip"
	"strconv"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FormatNodeSubnets encodes node-subnets: {"default":["10.244.1.0/24",...]}.
func FormatNodeSubnets(subnets []netip.Prefix) string {
	return mustJSON(map[string][]netip.Prefix{defaultNetwork: subnets})
}

// families is the JSON shape of annotations with one value per family.
type families struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

func formatFamilies(prefixes []netip.Prefix) string {
	var f families
	if p, ok := topology.PrefixOf(topology.IPv4, prefixes); ok {
		f.IPv4 = p.String()
	}
	if p, ok := topology.PrefixOf(topology.IPv6, prefixes); ok {
		f.IPv6 = p.String()
	}
	return mustJSON(f)
}

// FormatGatewayLRPIfAddr encodes the join addresses of a gateway router:
// {"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}.
func FormatGatewayLRPIfAddr(join []netip.Prefix) string { return formatFamilies(join) }

// FormatPrimaryIfAddr encodes node-primary-ifaddr: {"ipv4":"172.18.0.3/16",...}.
func FormatPrimaryIfAddr(primary []netip.Prefix) string { return formatFamilies(primary) }

// FormatHostAddresses encodes host-addresses: ["172.18.0.3/16",...].
func FormatHostAddresses(addrs []netip.Prefix) string {
	if addrs == nil {
		addrs = []netip.Prefix{}
	}
	return mustJSON(addrs)
}

// FormatEgressIPAddresses encodes egressip-addresses: ["10.10.10.5","fd10::5"].
func FormatEgressIPAddresses(addrs []netip.Addr) string { return mustJSON(addrs) }

// l3Gateway is the JSON shape of one network in l3-gateway-config.
type l3Gateway struct {
	Mode        string         `json:"mode"`
	InterfaceID string         `json:"interface-id,omitempty"`
	MAC         string         `json:"mac-address,omitempty"`
	Addrs       []netip.Prefix `json:"ip-addresses,omitempty"`
	NextHops    []netip.Addr   `json:"next-hops,omitempty"`
	NodePort    string         `json:"node-port-enable,omitempty"`
	VLAN        string         `json:"vlan-id,omitempty"`

	ExternalInterfaceID string         `json:"exgw-interface-id,omitempty"`
	ExternalMAC         string         `json:"exgw-mac-address,omitempty"`
	ExternalAddrs       []netip.Prefix `json:"exgw-ip-addresses,omitempty"`
}

// FormatL3Gateway encodes l3-gateway-config.
func FormatL3Gateway(g topology.Gateway) string {
	return mustJSON(map[string]l3Gateway{defaultNetwork: {
		Mode:        string(g.Mode),
		InterfaceID: g.InterfaceID,
		MAC:         g.MAC,
		Addrs:       g.Addrs,
		NextHops:    g.NextHops,
		NodePort:    strconv.FormatBool(g.NodePort),
		VLAN:        strconv.Itoa(g.VLAN),

		ExternalInterfaceID: g.External.InterfaceID,
		ExternalMAC:         g.External.MAC,
		ExternalAddrs:       g.External.Addrs,
	}})
}

// FormatNode encodes a node's data, by annotation.
func FormatNode(n topology.Node) map[string]string {
	out := map[string]string{}
	add := func(known bool, name, value string) {
		if known {
			out[name] = value
		}
	}
	add(len(n.Subnets) > 0, AnnotationNodeSubnets, FormatNodeSubnets(n.Subnets))
	add(len(n.Join) > 0, AnnotationGatewayLRPIfAddr, FormatGatewayLRPIfAddr(n.Join))
	add(n.Chassis != "", AnnotationChassisID, n.Chassis)
	add(n.ManagementMAC != "", AnnotationManagementMAC, n.ManagementMAC)
	add(len(n.Primary) > 0, AnnotationPrimaryIfAddr, FormatPrimaryIfAddr(n.Primary))
	add(len(n.Host) > 0, AnnotationHostAddresses, FormatHostAddresses(n.Host))
	add(n.Gateway.Mode != "", AnnotationL3Gateway, FormatL3Gateway(n.Gateway))
	return out
}
