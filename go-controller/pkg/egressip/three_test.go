package egressip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// TestThreeAddresses moves addresses of a family between five nodes, several at once, and
// adds the third one while others move. At each step, a next hop has a translation in force to the address
// that the policy names for it; addresses that do not move keep their hops; and an address that
// moves keeps its former next hop until the next one is ready, without an interruption.
func TestThreeAddresses(t *testing.T) {
	seeds.Each(t, 300, func(t *testing.T, rng *rand.Rand) {
		pod, all := addrs("10.244.0.3")[0], addrs("172.18.0.33", "172.18.0.44", "172.18.0.55")
		if rng.IntN(2) == 0 {
			pod, all = addrs("fd00:10:244:1::3")[0], addrs("fc00:f853:ccd:e793::33", "fc00:f853:ccd:e793::44", "fc00:f853:ccd:e793::55")
		}
		hops := addrs("100.64.0.2", "100.64.0.3", "100.64.0.4", "100.64.0.5", "100.64.0.6")
		if pod.Is6() {
			hops = addrs("fd98::2", "fd98::3", "fd98::4", "fd98::5", "fd98::6")
		}
		at, used := map[netip.Addr]int{}, map[int]bool{}
		for i, n := range rng.Perm(len(hops))[:2] {
			at[all[i]], used[n] = n, true
		}
		s := Steering{Pod: Pod{Key: "prod/web", Addrs: []netip.Addr{pod}}, Now: NewState(), Applied: NewState(),
			Owned: func(string, netip.Addr) bool { return true }}
		s.EgressIP = Decode(egress("e", 1, []v1.Address{v1.Address(all[0].String()), v1.Address(all[1].String()), v1.Address(all[2].String())}))
		held := map[netip.Addr]bool{all[0]: true, all[1]: true}
		paths := func() {
			s.Paths = nil
			for _, a := range all {
				if n, ok := at[a]; ok {
					s.Paths = append(s.Paths, Path{Answered: held[a], Programmed: held[a], Placement: Placement{
						Address: Address{Addr: a}, Node: fmt.Sprint("n", n), NextHop: hops[n], Primary: true}})
				}
			}
		}
		hopOf := func(st State) map[netip.Addr]netip.Addr {
			by := map[netip.Addr]netip.Addr{}
			for _, hop := range st.Policies[pod].Hops {
				by[st.Policies[pod].Egress[hop]] = hop
			}
			return by
		}
		// step carries out one plan, and puts some of the awaited rows in force.
		step := func() (done bool) {
			before := hopOf(s.Now)
			plan := s.Plan()
			now := hopOf(plan.Want)
			if len(now) != len(plan.Want.Policies[pod].Hops) {
				t.Fatalf("two next hops are for one address: %+v", plan.Want)
			}
			for a, hop := range before {
				switch was, ready := now[a], hops[at[a]]; {
				case !was.IsValid():
					t.Fatalf("%s has no next hop in %+v", a, plan.Want)
				case was != hop && (was != ready || !held[a] || s.Applied.NATs[Site{pod, fmt.Sprint("n", at[a])}] != a):
					t.Fatalf("%s changes from %s to %s, which is not ready: %+v", a, hop, was, plan.Want)
				}
			}
			for i, hop := range hops {
				for a, has := range now {
					if site := (Site{pod, fmt.Sprint("n", i)}); has == hop && plan.Want.NATs[site] != a {
						t.Fatalf("%s is for %s and translates to %s", hop, a, plan.Want.NATs[site])
					}
				}
			}
			s.Now = StateOf(plan.Want.Rows())
			for site, a := range plan.Want.NATs {
				if rng.IntN(2) == 0 {
					s.Applied.NATs[site] = a
				}
			}
			if rng.IntN(2) == 0 {
				s.Applied.Policies = plan.Want.Clone().Policies
			}
			return plan.Done
		}
		paths()
		for !step() {
		}
		for range 12 {
			switch a := all[rng.IntN(3)]; rng.IntN(3) {
			case 0: // it moves, or is added
				n := rng.IntN(len(hops))
				if other, there := s.Now.NATs[Site{pod, fmt.Sprint("n", n)}]; used[n] || there && other != a {
					break // an address does not move to a node that another one is leaving
				}
				if old, ok := at[a]; ok {
					used[old] = false
				}
				at[a], used[n], held[a] = n, true, false
			case 1:
				held[a] = held[a] || used[at[a]]
			}
			paths()
			step()
		}
		for a := range at {
			held[a] = true
		}
		paths()
		for i := 0; !step(); i++ {
			if i > 100 {
				t.Fatalf("nothing comes of %+v", s.Now)
			}
		}
		if got := hopOf(s.Now); len(got) != len(at) {
			t.Errorf("led to %v", got)
		}
	})
}
