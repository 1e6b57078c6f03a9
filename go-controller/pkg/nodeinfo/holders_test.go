package nodeinfo

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// drawn is a node that has little of its own.
func drawn(rnd *rand.Rand, name string) topology.Node {
	one := func(format string, most int) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf(format, rnd.IntN(most)))
	}
	some := func(all ...netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(all, func(netip.Prefix) bool { return rnd.IntN(3) == 0 })
	}
	text := func(format string) string {
		if rnd.IntN(3) == 0 {
			return ""
		}
		return fmt.Sprintf(format, rnd.IntN(9))
	}
	subnet := func(bits int) netip.Prefix {
		return netip.PrefixFrom(one("10.244.%d.0/24", 32).Addr(), bits).Masked()
	}
	addrs := func() []netip.Prefix { return some(one("172.18.0.%d/16", 9), one("fc00::%d/64", 9)) }
	return topology.Node{
		Name: name, Chassis: text("chassis-%d"),
		Subnets: some(subnet(19+rnd.IntN(10)), one("fd00:10:244:%d::/64", 9)),
		Join:    some(one("100.64.0.%d/16", 9), one("fd98::%d/64", 9)), Primary: addrs(), Host: addrs(),
		Gateway: topology.Gateway{MAC: text("02:42:ac:12:00:0%d"), Addrs: addrs(),
			External: topology.ExternalAttachment{MAC: text("02:42:ac:12:00:0%d"), Addrs: addrs()}},
	}
}

// TestHolders: whatever nodes have had before, those that a value could collide with are found.
func TestHolders(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := newResolver(cluster, nil, Settle)
		for range 20 {
			name := fmt.Sprint("n", rnd.IntN(5))
			if s := r.states[name]; s == nil {
				r.states[name] = &state{name: name}
			} else if rnd.IntN(4) == 0 {
				r.remove(name)
				continue
			}
			r.has(r.states[name], drawn(rnd, name))
		}
		claims := drawn(rnd, "claimant")
		claims.Chassis = "chassis-1" // no value of the annotation is empty
		found := r.contested(claims)
		for _, name := range kube.NodeAnnotations() {
			for _, s := range r.states {
				if err := collision(name, claims, s.node); err != nil && !found[s] {
					t.Errorf("seed %d: %s of node %s is not found: %v", seed, name, s.name, err)
				}
			}
		}
		for _, s := range r.sorted() {
			r.remove(s.name)
		}
		if len(r.holders) > 0 {
			t.Errorf("seed %d: nobody has %v", seed, r.holders)
		}
	}
}
