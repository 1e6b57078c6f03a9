package gateway_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzPlan plans the host state of arbitrary nodes.
func FuzzPlan(f *testing.F) {
	const attached = `{"addrs":[{"prefix":"172.18.0.2/16"},{"prefix":"fc00:f853:ccd:e793::2/64"}],"routes":[{"dst":"0.0.0.0/0","via":"172.18.0.1"},{"dst":"10.0.0.0/8","hops":[{"via":"172.18.0.7"}]}]}`
	f.Add([]byte(""), attached, `{}`)
	f.Add([]byte("\x01\x02\x01\x01"), `{"addrs":[{"prefix":""}],"routes":[{"dst":""}]}`, attached)
	f.Add([]byte("\x00\x01\x00\x00\x01\x02\x05\x05"), `{"routes":[{"dst":"::/0","via":"fe80::1","hops":[{}]}]}`, `{"addrs":[{"prefix":"fe80::1/64"}]}`)
	f.Fuzz(func(t *testing.T, data []byte, uplink, recorded string) {
		var from, rec host.Attachment
		if json.Unmarshal([]byte(uplink), &from) != nil || json.Unmarshal([]byte(recorded), &rec) != nil {
			return
		}
		// The kernel reports only valid addresses; a record may contain any.
		from.Addrs = slices.DeleteFunc(from.Addrs, func(a host.LinkAddress) bool { return !a.Prefix.IsValid() })
		from.Routes = slices.DeleteFunc(from.Routes, func(r host.LinkRoute) bool { return !r.Dst.IsValid() })
		s := fuzzed.New(data)
		for _, n := range fuzzed.Known(s.Nodes()) {
			if len(n.Subnets) > 0 {
				if m := gateway.ManagementPort(n.Subnets, 1400); len(m.Addrs) != len(n.Subnets) {
					t.Errorf("%d addresses for %d subnets", len(m.Addrs), len(n.Subnets))
				}
			}
			for r, hop := range gateway.Routes(n.Subnets, fuzzed.Cluster, fuzzed.Services, fuzzed.Masquerade) {
				if !r.Dst.IsValid() || topology.FamilyOf(r.Dst.Addr()) != topology.FamilyOf(hop.Via) {
					t.Errorf("route %v by %v", r, hop)
				}
			}
			for chain, rules := range gateway.Rules(n.Subnets) {
				for _, r := range rules {
					if strings.Contains(string(r), "invalid") || strings.ContainsAny(string(r), "\r\n") {
						t.Errorf("rule %q of %v", r, chain)
					}
				}
			}
		}
		lost := s.Some(2)
		gateway.TakeOver(from, rec, from, lost)
		internal := s.Addrs(2)
		for _, p := range gateway.Primary(from, topology.Families, internal) {
			if !p.IsValid() {
				t.Errorf("the primary addresses are %v", gateway.Primary(from, topology.Families, internal))
			}
		}
		for _, a := range gateway.NextHops(from, topology.Families, internal) {
			if !a.IsValid() {
				t.Errorf("next hops %v", gateway.NextHops(from, topology.Families, internal))
			}
		}
		text := s.Text() + "," + s.Text()
		if have := gateway.BridgeMappings(text, map[string]string{topology.PhysicalNetwork: "breth0"}); !strings.Contains(have, ":breth0") {
			t.Errorf("%q with our mapping is %q", text, have)
		}
		gateway.BridgeMappings(text, nil)
		gateway.MappedBridge(text, topology.ExternalGatewayNetwork)
	})
}
