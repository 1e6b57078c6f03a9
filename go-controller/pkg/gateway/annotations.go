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

// IDMappings is the external_ids key of Open_vSwitch that maps physical networks to bridges.
const IDMappings = "ovn-bridge-mappings"

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

// zonePrefix is that of the keys of br-int under which ovn-controller keeps the zones of
// conntrack that it has given out.
const zonePrefix = "ct-zone-"

// LacksZones reports whether the external_ids of br-int have no zone of a router: it is new, or
// it was lost.
//
// ovn-controller writes a zone when it gives it out, and reads all of them when it starts.
// Where they are not there any more it gives out others then, and open connections through a
// gateway router break: the first packet in a zone that is empty may be an answer, and what
// the pod sends is taken for the answer to that, and not translated.
func LacksZones(ids map[string]string) bool {
	for key := range ids {
		if strings.HasPrefix(key, zonePrefix) && (strings.HasSuffix(key, "_dnat") || strings.HasSuffix(key, "_snat")) {
			return false
		}
	}
	return true
}

// ZoneIDs returns the external_ids of br-int for the zones that ovn-controller says it uses:
// "name id" on each line.
func ZoneIDs(list string) map[string]string {
	ids := map[string]string{}
	for line := range strings.Lines(list) {
		if name, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			ids[zonePrefix+name] = id
		}
	}
	return ids
}
