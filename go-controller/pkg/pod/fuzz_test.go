package pod_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzAllocator lets nodes and pods appear, claim, request and disappear in any order: no holder gets
// an address that another one has, or one outside its node's subnets.
func FuzzAllocator(f *testing.F) {
	for _, seed := range []string{"", "\x01\x00\x03\x00\x01\x01\x02\x01\x00\x01\x02", "aabbccddeeffgghh", "\x02\x01\x02\x01\x02\x01\x02\x01\x00\x00\x05\x03\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, a := fuzzed.New(data), pod.NewAllocator()
		subnets := map[string][]netip.Prefix{}
		for i, n := range fuzzed.Known(s.Nodes()) {
			subnets[n.Name] = topology.Node{Subnets: n.Subnets}.Subnets
			if s.Some(2) { // small enough to be full
				subnets[n.Name] = fuzzed.Prefixes(fmt.Sprintf("10.244.%d.0/30", i), fmt.Sprintf("fd00:10:244:%d::/126", i))
			}
			a.SetNode(n.Name, subnets[n.Name], nil)
		}
		held := map[pod.Holder][]netip.Prefix{}
		for range 3 + s.Pick(12) {
			node := s.NodeName()
			who := pod.Holder{Key: fuzzed.One(s, "ns/a", "ns/b", "ns/c"), UID: fuzzed.One(s, "1", "2")}
			switch s.Pick(4) {
			case 0:
				if addrs, err := a.Allocate(who, node); err == nil {
					held[who] = addrs
					pod.Network(addrs, subnets[node])
				}
			case 1:
				claim := []netip.Prefix{netip.PrefixFrom(s.Addr(), fuzzed.One(s, 24, 64, 32, 30))}
				if err := a.Reserve(who, node, claim); err == nil {
					held[who] = claim
				}
			case 2:
				a.Release(who)
				delete(held, who)
			case 3:
				claims := []pod.Claim{{Holder: who, Addrs: []netip.Prefix{netip.PrefixFrom(s.Addr(), 24)}, Running: s.Some(2), Created: time.Unix(int64(s.Pick(3)), 0)}}
				a.SetNode(node, subnets[node], claims)
				if a.IsReserved(who) && held[who] == nil {
					held[who] = claims[0].Addrs
				}
			}
			taken := map[netip.Addr]pod.Holder{}
			for who, addrs := range held {
				for _, p := range addrs {
					if other, ok := taken[p.Addr()]; ok {
						t.Fatalf("%s is held by %v and %v", p, who, other)
					}
					taken[p.Addr()] = who
					if !slices.ContainsFunc(slices.Concat(subnets["n1"], subnets["n2"], subnets["n3"]), func(s netip.Prefix) bool { return s.Contains(p.Addr()) }) {
						t.Fatalf("%s is held by %v and in no subnet", p, who)
					}
				}
			}
		}
	})
}
