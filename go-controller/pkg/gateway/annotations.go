package gateway

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// HostAddresses returns, sorted, the addresses in links (by link) at which the host is reachable from
// elsewhere: all except those of the loopback, the management port and
// br-int, link-local addresses, and addresses in the given ranges, which never leave a
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

// networks are the physical networks that ovnkube maps to bridges.
var networks = []string{topology.PhysicalNetwork, topology.ExternalGatewayNetwork}

// BridgeMappings returns the value of ovn-bridge-mappings that maps our physical networks
// to the given bridges, and no other networks of ours, and keeps the mappings of others. It returns "" if
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

// MergeMappings returns the mappings of two values of ovn-bridge-mappings. The first counts for the networks that it maps.
func MergeMappings(have, other string) string {
	out := have
	for m := range strings.SplitSeq(other, ",") {
		if network, _, _ := strings.Cut(m, ":"); network != "" && MappedBridge(have, network) == "" {
			out = strings.TrimPrefix(out+","+m, ",")
		}
	}
	return out
}

// MappedBridge returns the bridge to which a value maps a physical network, or "" if there is none.
func MappedBridge(have, network string) string {
	for m := range strings.SplitSeq(have, ",") {
		if n, bridge, _ := strings.Cut(m, ":"); n == network {
			return bridge
		}
	}
	return ""
}

// zonePrefix is the prefix of the external_ids keys of br-int in which ovn-controller stores its
// conntrack zones.
const zonePrefix = "ct-zone-"

// LacksZones reports whether the external_ids of br-int have no zone of a router: the bridge is new, or
// it was lost.
//
// ovn-controller writes a zone when it assigns it, and reads all zones when it starts.
// If they are gone, it assigns different ones at its next start, and open connections through a
// gateway router break: the first packet in an empty zone may be a reply, and then the
// packets of the pod are taken for the replies to that, and not translated.
func LacksZones(ids map[string]string) bool {
	for key := range ids {
		if strings.HasPrefix(key, zonePrefix) && (strings.HasSuffix(key, "_dnat") || strings.HasSuffix(key, "_snat")) {
			return false
		}
	}
	return true
}

// ZoneIDs returns the external_ids of br-int for the zones that ovn-controller lists:
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
