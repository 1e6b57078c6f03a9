package egressip

import (
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestReleased: a new pod may send when its policies have reached its chassis, and not
// when they are only in the database.
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
		applied  State
		released bool
	}{{"nothing but the translation", translated, false}, {"everything", written, true}} {
		plan := Steering{
			EgressIP: Decode(egress("e", 1, []v1.Address{v1.Address(ip.String())})), Pod: Pod{Addrs: []netip.Addr{pod}, Pending: true},
			Paths: []Path{{Placement: Placement{Address: Address{Addr: ip}, Node: "n", Primary: true, NextHop: hop}, Answered: true}},
			Now:   written, Applied: c.applied,
			Owned: func(string, netip.Addr) bool { return true },
		}.Plan()
		if plan.Released != c.released {
			t.Errorf("with %s in force the pod may send: %t", c.what, plan.Released)
		}
	}
}

// TestFormerAddressOfOthers: until its new address is ready, a pod keeps its previous
// one, unless that no longer belongs to the EgressIP that had it: another EgressIP may have it already.
func TestFormerAddressOfOthers(t *testing.T) {
	for _, c := range []struct {
		what, owner, former string
		hop                 string
		translated          bool // by a gateway router, not by a node's kernel
	}{
		{"another EgressIP's", "former", "172.18.0.33", "100.64.0.3", true},
		{"its own", "e", "172.18.0.33", "100.64.0.3", true},
		{"its own, on a secondary network", "e", "172.19.0.33", "10.244.1.2", false},
	} {
		pod, ip, next := netip.MustParseAddr("10.244.0.3"), netip.MustParseAddr("172.18.0.44"), netip.MustParseAddr("100.64.0.4")
		former, hop := netip.MustParseAddr(c.former), netip.MustParseAddr(c.hop)
		now := NewState()
		now.EgressIP = c.owner
		now.Policies[pod] = Policy{EgressIP: c.owner, Hops: []netip.Addr{hop}, Egress: map[netip.Addr]netip.Addr{hop: former}}
		if c.translated {
			now.NATs[Site{pod, "n1"}] = former
		}
		for owned, want := range map[bool][]netip.Addr{true: {hop}, false: nil} {
			plan := Steering{
				EgressIP: Decode(egress("e", 1, []v1.Address{v1.Address(ip.String())})), Pod: Pod{Addrs: []netip.Addr{pod}},
				Paths: []Path{{Placement: Placement{Address: Address{Addr: ip}, Node: "n2", Primary: true, NextHop: next}, Answered: true}},
				Now:   now, Applied: now.Clone(),
				Owned: func(name string, a netip.Addr) bool { return owned && name == c.owner && a == former },
			}.Plan()
			got, ok := plan.Want.Policies[pod]
			if !slices.Equal(got.Hops, want) || !ok {
				t.Errorf("%s: where that has the address: %t, the pod is led to %v, want %v", c.what, owned, got.Hops, want)
			}
		}
	}
}
