package network_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
)

// claim returns the claim of a node that is age minutes younger than the first.
func claim(name string, age int, prefixes ...string) network.Claim {
	c := network.Claim{Name: name, Created: time.Unix(1e9, 0).Add(time.Duration(age) * time.Minute)}
	for _, s := range prefixes {
		if p := pfx(s); p != p.Masked() {
			c.Join = append(c.Join, p)
		} else {
			c.Subnets = append(c.Subnets, p)
		}
	}
	return c
}

func gone(c network.Claim) network.Claim {
	c.Gone = true
	return c
}

// text formats what a node is assigned.
func text(a network.Assignment) string {
	parts := []string{fmt.Sprint(a.Subnets), fmt.Sprint(a.Join)}
	parts = append(parts, a.Refused...)
	if a.Reason != "" {
		parts = append(parts, a.Reason)
	}
	return strings.Join(parts, "; ")
}

func TestAssign(t *testing.T) {
	small := network.Config{
		ClusterSubnets: []network.ClusterSubnet{{CIDR: pfx("10.0.0.0/23"), HostPrefixLen: 24}},
		JoinSubnets:    []netip.Prefix{pfx("100.64.0.0/16")},
	}
	larger := small
	larger.ClusterSubnets = append(slices.Clone(small.ClusterSubnets), network.ClusterSubnet{CIDR: pfx("10.9.0.0/16"), HostPrefixLen: 24})
	fewJoin := config(only4)
	fewJoin.JoinSubnets = []netip.Prefix{pfx("100.64.0.0/30")}
	oneIPv6 := network.Config{
		ClusterSubnets: []network.ClusterSubnet{{CIDR: pfx("fd01::/63"), HostPrefixLen: 64}},
		JoinSubnets:    []netip.Prefix{pfx("fd98::/64")},
	}
	ipv6First := config(dual)
	slices.Reverse(ipv6First.ClusterSubnets)

	for _, tt := range []struct {
		name   string
		config network.Config
		claims []network.Claim
		want   map[string]string
	}{
		{"the first nodes", config(dual),
			[]network.Claim{claim("c", 2), claim("a", 0), claim("b", 1)},
			map[string]string{
				"a": "[10.244.0.0/24 fd00:10:244:1::/64]; [100.64.0.2/16 fd98::2/64]",
				"b": "[10.244.1.0/24 fd00:10:244:2::/64]; [100.64.0.3/16 fd98::3/64]",
				"c": "[10.244.2.0/24 fd00:10:244:3::/64]; [100.64.0.4/16 fd98::4/64]",
			}},
		{"nodes of one age go by name", config(only4),
			[]network.Claim{claim("b", 0), claim("a", 0)},
			map[string]string{"a": "[10.244.0.0/24]; [100.64.0.2/16]", "b": "[10.244.1.0/24]; [100.64.0.3/16]"}},
		{"annotations are kept and gaps are filled", config(dual),
			[]network.Claim{
				claim("old", 0, "10.244.2.0/24", "fd00:10:244:9::/64", "100.64.0.9/16", "fd98::3/64"),
				claim("new", 1), claim("newer", 2), claim("newest", 3),
			},
			map[string]string{
				"old":    "[10.244.2.0/24 fd00:10:244:9::/64]; [100.64.0.9/16 fd98::3/64]",
				"new":    "[10.244.0.0/24 fd00:10:244:1::/64]; [100.64.0.2/16 fd98::2/64]",
				"newer":  "[10.244.1.0/24 fd00:10:244:2::/64]; [100.64.0.3/16 fd98::4/64]",
				"newest": "[10.244.3.0/24 fd00:10:244:3::/64]; [100.64.0.4/16 fd98::5/64]",
			}},
		{"a young node keeps against an old one that claims nothing", config(only4),
			[]network.Claim{claim("old", 0), claim("young", 1, "10.244.0.0/24", "100.64.0.2/16")},
			map[string]string{"old": "[10.244.1.0/24]; [100.64.0.3/16]", "young": "[10.244.0.0/24]; [100.64.0.2/16]"}},
		{"of two that claim one the older keeps", config(only4),
			[]network.Claim{claim("young", 1, "10.244.0.0/24", "100.64.0.2/16"), claim("old", 0, "10.244.0.0/24", "100.64.0.2/16")},
			map[string]string{
				"old": "[10.244.0.0/24]; [100.64.0.2/16]",
				"young": "[10.244.1.0/24]; [100.64.0.3/16]; subnet 10.244.0.0/24 overlaps the subnet of an older node; " +
					"join address 100.64.0.2 belongs to an older node",
			}},
		{"a node that is gone keeps what it has, except against nodes that exist", config(only4),
			[]network.Claim{gone(claim("old", 0, "10.244.0.0/24", "100.64.0.2/16")), gone(claim("older", 0, "10.244.1.0/24", "100.64.0.3/16")),
				claim("a", 1), claim("b", 2, "10.244.1.0/24", "100.64.0.3/16"), claim("c", 3)},
			map[string]string{"a": "[10.244.2.0/24]; [100.64.0.4/16]", "b": "[10.244.1.0/24]; [100.64.0.3/16]", "c": "[10.244.3.0/24]; [100.64.0.5/16]"}},
		{"claims outside the ranges", config(only4),
			[]network.Claim{claim("a", 0, "10.9.0.0/24", "100.65.0.7/16"), claim("b", 1, "10.0.0.0/8", "100.64.0.1/16"),
				claim("c", 2, "fd00:10:244:1::/64", "100.64.255.255/16")},
			map[string]string{
				"a": "[10.244.0.0/24]; [100.64.0.2/16]; subnet 10.9.0.0/24 is outside the cluster subnets; join address 100.65.0.7 is not in a join subnet",
				"b": "[10.244.1.0/24]; [100.64.0.3/16]; subnet 10.0.0.0/8 is outside the cluster subnets; join address 100.64.0.1 is not in a join subnet",
				"c": "[10.244.2.0/24]; [100.64.0.4/16]; subnet fd00:10:244:1::/64 is outside the cluster subnets; join address 100.64.255.255 is not in a join subnet",
			}},
		{"subnets of another length, from a former configuration, are kept", config(only4),
			[]network.Claim{claim("wide", 0, "10.244.0.0/23"), claim("narrow", 1, "10.244.2.128/25"), claim("new", 2), claim("newer", 3)},
			map[string]string{
				"wide": "[10.244.0.0/23]; [100.64.0.2/16]", "narrow": "[10.244.2.128/25]; [100.64.0.3/16]",
				"new": "[10.244.3.0/24]; [100.64.0.4/16]", "newer": "[10.244.4.0/24]; [100.64.0.5/16]",
			}},
		{"a join address gets the length of the subnet", config(only4),
			[]network.Claim{claim("a", 0, "100.64.0.5/24")},
			map[string]string{"a": "[10.244.0.0/24]; [100.64.0.5/16]"}},
		{"space runs out", small,
			[]network.Claim{claim("a", 0), claim("b", 1), claim("c", 2)},
			map[string]string{
				"a": "[10.0.0.0/24]; [100.64.0.2/16]", "b": "[10.0.1.0/24]; [100.64.0.3/16]",
				"c": "[]; [100.64.0.4/16]; NoSubnetAvailable",
			}},
		{"and is enlarged", larger,
			[]network.Claim{claim("a", 0, "10.0.0.0/24"), claim("b", 1, "10.0.1.0/24"), claim("c", 2)},
			map[string]string{
				"a": "[10.0.0.0/24]; [100.64.0.2/16]", "b": "[10.0.1.0/24]; [100.64.0.3/16]", "c": "[10.9.0.0/24]; [100.64.0.4/16]",
			}},
		{"the IPv6 subnet zero goes last", oneIPv6,
			[]network.Claim{claim("a", 0), claim("b", 1), claim("c", 2)},
			map[string]string{
				"a": "[fd01:0:0:1::/64]; [fd98::2/64]", "b": "[fd01::/64]; [fd98::3/64]", "c": "[]; [fd98::4/64]; NoSubnetAvailable",
			}},
		{"join addresses run out", fewJoin,
			[]network.Claim{claim("a", 0), claim("b", 1)},
			map[string]string{"a": "[10.244.0.0/24]; [100.64.0.2/30]", "b": "[10.244.1.0/24]; []; NoJoinAddressAvailable"}},
		{"the order of families follows the cluster subnets; join addresses do not", ipv6First,
			[]network.Claim{claim("a", 0, "10.244.0.0/24", "fd00:10:244:1::/64")},
			map[string]string{"a": "[fd00:10:244:1::/64 10.244.0.0/24]; [100.64.0.2/16 fd98::2/64]"}},
		{"a single-stack node becomes dual-stack", config(dual),
			[]network.Claim{claim("a", 0, "10.244.3.0/24", "100.64.0.2/16")},
			map[string]string{"a": "[10.244.3.0/24 fd00:10:244:1::/64]; [100.64.0.2/16 fd98::2/64]"}},
		{"and back", config(only6),
			[]network.Claim{claim("a", 0, "10.244.3.0/24", "fd00:10:244:7::/64", "fd98::2/64")},
			map[string]string{"a": "[fd00:10:244:7::/64]; [fd98::2/64]; subnet 10.244.3.0/24 is outside the cluster subnets"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]string{}
			for name, a := range network.Assign(tt.config, tt.claims) {
				got[name] = text(a)
			}
			for _, name := range slices.Sorted(maps.Keys(tt.want)) {
				if got[name] != tt.want[name] {
					t.Errorf("%s\n got %s\nwant %s", name, got[name], tt.want[name])
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%d nodes are assigned something, want %d", len(got), len(tt.want))
			}
		})
	}
}

func TestAssignSaysWhatLacks(t *testing.T) {
	c := config(dual)
	c.ClusterSubnets[0] = network.ClusterSubnet{CIDR: pfx("10.0.0.0/24"), HostPrefixLen: 24}
	a := network.Assign(c, []network.Claim{claim("a", 0), claim("b", 1)})["b"]
	if want := "no free node subnet in 10.0.0.0/24 (1 subnets of /24)"; a.Message != want {
		t.Errorf("message %q, want %q", a.Message, want)
	}
	if len(a.Subnets) != 0 {
		t.Errorf("half of the families are assigned: %v", a.Subnets)
	}
}

// Whatever nodes are added, removed and claim: no two overlap, an assignment that is
// claimed again is made again, and the order of nodes does not matter.
func TestAssignProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := network.Config{
		ClusterSubnets: []network.ClusterSubnet{
			{CIDR: pfx("10.0.0.0/20"), HostPrefixLen: 24}, {CIDR: pfx("10.1.0.0/22"), HostPrefixLen: 25}, {CIDR: pfx("fd01::/59"), HostPrefixLen: 64},
		},
		JoinSubnets: []netip.Prefix{pfx("100.64.0.0/27"), pfx("fd98::/64")},
	}
	have := map[string]network.Claim{}
	for step := range 400 {
		name := fmt.Sprint("n", rng.IntN(30))
		switch rng.IntN(3) {
		case 0:
			delete(have, name)
		case 1:
			if _, ok := have[name]; !ok {
				have[name] = claim(name, step)
			}
		case 2: // someone writes nonsense to the annotations
			cl := claim(name, step, fmt.Sprintf("10.%d.%d.0/24", rng.IntN(3), rng.IntN(16)), fmt.Sprintf("100.64.0.%d/27", 1+rng.IntN(40)))
			have[name] = cl
		}
		claims := slices.Collect(maps.Values(have))
		got := network.Assign(c, claims)
		rng.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		if again := network.Assign(c, claims); !reflect.DeepEqual(got, again) {
			t.Fatalf("step %d: the order of nodes matters", step)
		}
		checkDisjoint(t, got)
		for name, a := range got {
			have[name] = network.Claim{Name: name, Created: have[name].Created, Subnets: a.Subnets, Join: a.Join}
		}
		for name, a := range network.Assign(c, slices.Collect(maps.Values(have))) {
			if !slices.Equal(a.Subnets, got[name].Subnets) || !slices.Equal(a.Join, got[name].Join) || len(a.Refused) > 0 {
				t.Fatalf("step %d: %s had %s and is given %s", step, name, text(got[name]), text(a))
			}
		}
	}
}

func checkDisjoint(t *testing.T, assigned map[string]network.Assignment) {
	t.Helper()
	join := map[netip.Addr]string{}
	var names []string
	for name, a := range assigned {
		for _, j := range a.Join {
			if other, ok := join[j.Addr()]; ok {
				t.Fatalf("%s and %s have join address %s", name, other, j)
			}
			join[j.Addr()] = name
		}
		for _, other := range names {
			for _, p := range a.Subnets {
				if slices.ContainsFunc(assigned[other].Subnets, p.Overlaps) {
					t.Fatalf("%s of %s overlaps %v of %s", p, name, assigned[other].Subnets, other)
				}
			}
		}
		names = append(names, name)
	}
}

func BenchmarkAssign5000(b *testing.B) {
	c := network.Config{
		ClusterSubnets: []network.ClusterSubnet{{CIDR: pfx("10.0.0.0/8"), HostPrefixLen: 24}, {CIDR: pfx("fd01::/48"), HostPrefixLen: 64}},
		JoinSubnets:    []netip.Prefix{pfx("100.64.0.0/16"), pfx("fd98::/64")},
	}
	var claims []network.Claim
	for i := range 5000 {
		claims = append(claims, claim(fmt.Sprint("n", i), i))
	}
	for name, a := range network.Assign(c, claims) {
		i := slices.IndexFunc(claims, func(c network.Claim) bool { return c.Name == name })
		claims[i].Subnets, claims[i].Join = a.Subnets, a.Join
	}
	for b.Loop() {
		network.Assign(c, claims)
	}
}
