package network_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzPlan plans the network of nodes with arbitrary annotations.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{"", "\x02", "\x00\x02\x01\x02\x01", "\x01\x02\x03\x01\x01\x00\x00\x00\x02\x02", "0123456789abcdefghij"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		cfg := network.Config{
			ClusterSubnets: []network.ClusterSubnet{
				{CIDR: fuzzed.Cluster[0], HostPrefixLen: 24}, {CIDR: fuzzed.Cluster[1], HostPrefixLen: 64},
			},
			JoinSubnets: fuzzed.Join, GatewayMTU: fuzzed.One(s, 0, 1400), DisableSNATMultipleGWs: s.Some(2),
		}
		objects := s.Nodes()
		nodes := fuzzed.Known(objects)
		var claims []network.Claim
		for i, n := range nodes {
			claims = append(claims, network.Claim{Name: n.Name, Created: objects[i].CreationTimestamp.Time, Subnets: n.Subnets, Join: n.Join})
		}
		assigned := network.Assign(cfg, claims)
		if !reflect.DeepEqual(assigned, network.Assign(cfg, fuzzed.Shuffled(s, claims))) {
			t.Error("the assignment depends on the order of the nodes")
		}
		rows := fuzzed.NewRows(t)
		rows.Add(network.Owner(""), network.ClusterRows(cfg, assigned))
		var ranges []netip.Prefix
		for _, n := range nodes {
			a := assigned[n.Name]
			for _, p := range a.Subnets {
				within := false
				for _, c := range fuzzed.Cluster {
					within = within || c.Overlaps(p) && c.Bits() <= p.Bits()
				}
				for _, other := range ranges {
					if other.Overlaps(p) {
						t.Errorf("%s is given %s, which overlaps %s of another", n.Name, p, other)
					}
				}
				if !within || p != p.Masked() {
					t.Errorf("%s is given %s", n.Name, p)
				}
			}
			ranges = append(ranges, a.Subnets...)
			for _, p := range a.Join {
				if !fuzzed.Join[0].Contains(p.Addr()) && !fuzzed.Join[1].Contains(p.Addr()) {
					t.Errorf("%s is given the join address %s", n.Name, p)
				}
			}
			network.Missing(n)
			// Rows are planned when the annotations are as assigned.
			n.Subnets, n.Join = a.Subnets, a.Join
			network.Missing(n)
			rows.Add(network.Owner(n.Name), network.NodeRows(cfg, n))
		}
	})
}

// FuzzRows plans rows of a node whose subnets have not been checked: a planner that is
// called too early must not panic.
func FuzzRows(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("\x00\x01\x00\x00\x01\x02"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		s := fuzzed.New(data)
		cfg := network.Config{ClusterSubnets: []network.ClusterSubnet{{CIDR: fuzzed.Cluster[0], HostPrefixLen: 24}}, JoinSubnets: fuzzed.Join}
		for _, n := range fuzzed.Known(s.Nodes()) {
			if len(n.Subnets) > 0 {
				network.NodeRows(cfg, n)
			}
			n.ManagementAddrs()
			for _, p := range n.Subnets {
				topology.MACOf(p.Addr())
				topology.RouterAddr(p)
			}
		}
	})
}
