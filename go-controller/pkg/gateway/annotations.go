package gateway

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// LinkAddrs are the addresses of one link of the host.
type LinkAddrs struct {
	Link  string
	Addrs []netip.Prefix
}

// HostAddresses returns every address at which the host can be reached from
// elsewhere, sorted: not those of the loopback, of the management port and of
// br-int, nor link-local ones, nor those in the given ranges that never leave a
// node.
func HostAddresses(links []LinkAddrs, inside []netip.Prefix) []netip.Prefix {
	out := []netip.Prefix{}
	for _, l := range links {
		if l.Link == "lo" || l.Link == topology.ManagementPort || l.Link == topology.IntegrationBridge {
			continue
		}
		for _, p := range l.Addrs {
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
