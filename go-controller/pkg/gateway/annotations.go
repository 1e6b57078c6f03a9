package gateway

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// HostAddresses returns every address at which the host can be reached from
// elsewhere, sorted, of those that its links have, by link: not those of the loopback, of the management port and of
// br-int, nor link-local ones, nor those in the given ranges that never leave a
// node.
func HostAddresses(links map[string][]netip.Prefix, inside []netip.Prefix) []netip.Prefix {
	out := []netip.Prefix{}
	for name, prefixes := range links {
		if name == "lo" || name == topology.ManagementPort || name == topology.IntegrationBridge {
			continue
		}
		for _, p := range prefixes {
			a := p.Addr()
			if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
				slices.ContainsFunc(inside, func(r netip.Prefix) bool { return r.Contains(a) }) {
				continue
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	return slices.Compact(out)
}

// networks are those that we map to bridges.
var networks = []string{topology.PhysicalNetwork, topology.ExternalGatewayNetwork}

// BridgeMappings returns the value of ovn-bridge-mappings that maps our physical networks
// to the given bridges, and no others of ours, and keeps what others have mapped; "" where
// nothing is mapped.
func BridgeMappings(have string, bridges map[string]string) string {
	var out []string
	for _, network := range networks {
		if bridge := bridges[network]; bridge != "" {
			out = append(out, network+":"+bridge)
		}
	}
	for m := range strings.SplitSeq(have, ",") {
		if network, _, _ := strings.Cut(m, ":"); network != "" && !slices.Contains(networks, network) {
			out = append(out, m)
		}
	}
	return strings.Join(out, ",")
}

// MappedBridge returns the bridge that a value maps a physical network to; "" for none.
func MappedBridge(have, network string) string {
	for m := range strings.SplitSeq(have, ",") {
		if n, bridge, _ := strings.Cut(m, ":"); n == network {
			return bridge
		}
	}
	return ""
}
