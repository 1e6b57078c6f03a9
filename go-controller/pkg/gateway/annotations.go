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

// BridgeMappings returns the value of ovn-bridge-mappings that maps the physical
// network to bridge and keeps what others have mapped.
func BridgeMappings(have, bridge string) string {
	out := []string{topology.PhysicalNetwork + ":" + bridge}
	for m := range strings.SplitSeq(have, ",") {
		if network, _, _ := strings.Cut(m, ":"); network != "" && network != topology.PhysicalNetwork {
			out = append(out, m)
		}
	}
	return strings.Join(out, ",")
}

// WithoutMapping returns the value without our mapping; "" where nothing is left.
func WithoutMapping(have string) string {
	var out []string
	for m := range strings.SplitSeq(have, ",") {
		if network, _, _ := strings.Cut(m, ":"); network != "" && network != topology.PhysicalNetwork {
			out = append(out, m)
		}
	}
	return strings.Join(out, ",")
}
