package egressip

import (
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestReleased: a new pod may send when its policies have reached its chassis, and not
// when they are in the database alone.
func TestReleased(t *testing.T) {
	pod, ip, hop := netip.MustParseAddr("10.244.0.3"), netip.MustParseAddr("172.18.0.44"), netip.MustParseAddr("100.64.0.4")
	written := NewState()
	written.EgressIP = "e"
	written.Policies[pod] = Policy{EgressIP: "e", Hops: []netip.Addr{hop}}
	written.NATs[Site{pod, "n"}] = ip
	translated := NewState()
	translated.EgressIP = "e"
	translated.NATs[Site{pod, "n"}] = ip
	for _, c := range []struct {
		what     string
		inForce  State
		released bool
	}{{"nothing but the translation", translated, false}, {"everything", written, true}} {
		plan := Steering{
			EgressIP: Decode(egress("e", 1, []v1.Address{v1.Address(ip.String())})), Pod: Pod{Addrs: []netip.Addr{pod}, Pending: true},
			Paths: []Path{{Placement: Placement{Address: Address{Addr: ip}, Node: "n", Primary: true, NextHop: hop}, Answered: true}},
			Now:   written, InForce: c.inForce,
			Owned: func(string, netip.Addr) bool { return true },
		}.Plan()
		if plan.Released != c.released {
			t.Errorf("with %s in force the pod may send: %t", c.what, plan.Released)
		}
	}
}
