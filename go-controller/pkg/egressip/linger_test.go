package egressip

import (
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestTranslationsLinger: the translation of a node that gives an address up stays
// until the policies lead elsewhere, unless the node translates nothing any more:
// then nobody waits for it.
func TestTranslationsLinger(t *testing.T) {
	pod := netip.MustParseAddr("10.244.0.3")
	hops := addrs("100.64.0.3", "100.64.0.4")
	now := NewState()
	now.EgressIP = "e"
	now.Policies[pod] = Policy{EgressIP: "e", Hops: hops}
	now.NATs[Site{pod, "left"}] = netip.MustParseAddr("172.18.0.33")
	now.NATs[Site{pod, "stays"}] = netip.MustParseAddr("172.18.0.44")
	for dead, lingers := range map[string]bool{"": true, "left": false, "stays": true} {
		plan := Steering{
			EgressIP: Decode(egress("e", 1, []v1.Address{"172.18.0.44"})), Pod: Pod{Addrs: []netip.Addr{pod}},
			Paths: []Path{{Placement: Placement{Address: Address{Addr: netip.MustParseAddr("172.18.0.44")}, Node: "stays", Primary: true, NextHop: hops[1]}, Held: true}},
			Now:   now, InForce: now,
			Owned: func(string, netip.Addr) bool { return true },
			Dead:  func(node string) bool { return node == dead },
		}.Plan()
		if _, kept := plan.Want.NATs[Site{pod, "left"}]; kept != lingers || plan.Lingers != lingers {
			t.Errorf("%q is dead: the translation stays: %t, waited for: %t", dead, kept, plan.Lingers)
		}
	}
}
