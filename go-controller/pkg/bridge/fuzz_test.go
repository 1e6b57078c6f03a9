package bridge_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzFlows plans the flows of arbitrary nodes.
func FuzzFlows(f *testing.F) {
	for _, seed := range []string{"", "\x01\x00\x00\x01\x05\x01\x02", "\x00\x02\x01\x01\x01\x0c\x03abcdefghijklmnop"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		m := bridge.DefaultMarks(topology.ConntrackZone)
		for _, n := range fuzzed.Known(s.Nodes()) {
			b := bridge.Bridge{MAC: "02:42:ac:12:00:02", VLAN: fuzzed.One(s, 0, 100), EncapPort: 6081}
			flows := slices.Concat(bridge.CommonFlows(b), bridge.InitialFlows(b))
			for _, fam := range topology.Families {
				facts := bridge.Family{Family: fam, Cluster: fuzzed.Cluster}
				if p, ok := topology.PrefixOf(fam, n.Gateway.Addrs); ok {
					facts.Node = p.Addr()
				} else {
					continue
				}
				facts.Subnet, _ = topology.PrefixOf(fam, n.Subnets)
				flows = slices.Concat(flows, bridge.Flows(b, facts, m), bridge.Marked(facts, m))
			}
			gated := s.Addr()
			flows = slices.Concat(flows, bridge.Suppression(b), []host.Flow{bridge.SuppressARP(gated, true)}, bridge.DeliverToOVN(b, gated, fuzzed.One(s, "", "02:42:ac:12:00:03")))
			ingress := bridge.Ingress{
				To: netip.AddrPortFrom(s.Addr(), uint16(s.Pick(255))), Protocol: fuzzed.One(s, "tcp", "udp", "sctp"),
				Sources: fuzzed.Many(s, 2, fuzzed.Prefixes("172.18.0.0/24", "fc00::/7", "0.0.0.0/0")...),
			}
			flows = append(flows, bridge.IngressFlows(b, ingress, m)...)
			check(t, flows)
			check(t, bridge.Ports{Uplink: 1, Patch: 2}.Resolve(flows))
		}
	})
}

// check finds text that ovs-ofctl would not parse as one flow.
func check(t *testing.T, flows []host.Flow) {
	t.Helper()
	for _, f := range flows {
		text := string(f)
		if !strings.Contains(text, "actions=") || strings.ContainsAny(text, "\r\n\"") || strings.Contains(text, "invalid") || strings.Contains(text, "=,") {
			t.Errorf("flow %q", text)
		}
	}
}
