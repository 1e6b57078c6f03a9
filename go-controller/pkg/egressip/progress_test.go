package egressip

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// TestProgress: whatever the initial rows of a pod are, from another EgressIP or from an
// intermediate step, they become those of its EgressIP as soon as the nodes
// answer for its addresses and everything awaited is in force.
func TestProgress(t *testing.T) {
	seeds.Each(t, 1000, func(t *testing.T, rng *rand.Rand) {
		p := pairs["IPv4"]
		c := addrs("172.18.0.55")[0]
		all := []netip.Addr{p.a, p.b, c}
		taken := append(all, netip.Addr{})[rng.IntN(4)]
		state := func() State {
			s := NewState()
			policy := Policy{EgressIP: []string{"e", "f"}[rng.IntN(2)]}
			for i, node := range p.nodes {
				if a := all[rng.IntN(3)]; rng.IntN(2) == 0 {
					s.NATs[Site{p.pod, node}] = a
					if rng.IntN(3) > 0 {
						policy.addHop(p.hops[i], a)
					}
				} else if rng.IntN(4) == 0 {
					policy.addHop(p.hops[i], a) // on a secondary network
				}
			}
			if rng.IntN(4) > 0 {
				s.Policies[p.pod] = policy
				s.EgressIP = policy.EgressIP
			}
			return s
		}
		s := Steering{
			EgressIP: Decode(egress("e", 1, []v1.Address{v1.Address(p.a.String()), v1.Address(p.b.String())})),
			Pod:      Pod{Key: "prod/web", Addrs: []netip.Addr{p.pod}},
			Now:      state(),
			Owned:    func(_ string, a netip.Addr) bool { return a != taken },
		}
		s.Applied = s.Now.Clone()
		if rng.IntN(2) == 0 {
			s.Applied = state()
		}
		for i, node := range rng.Perm(3)[:1+rng.IntN(2)] {
			s.Paths = append(s.Paths, p.path(all[i], node, true, rng.IntN(4) > 0))
		}
		fresh := s
		fresh.Now, fresh.Applied = NewState(), NewState()
		got, want := s.settle(t), fresh.settle(t)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("to %+v from\n%+v, in force\n%+v\nit becomes\n%+v\nfrom nothing\n%+v", s.Paths, s.Now, s.Applied, got, want)
		}
	})
}

// settle is Settled, and fails the test if it does not converge.
func (s Steering) settle(t *testing.T) State {
	t.Helper()
	end, ok := s.Settled()
	if !ok {
		t.Errorf("nothing comes of %+v", end)
	}
	return end
}
