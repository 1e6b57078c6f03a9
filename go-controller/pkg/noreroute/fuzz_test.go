package noreroute_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzPlan plans the policies and address sets for any nodes and pods.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{"", "\x02\x00\x01\x05\x01\x02\x03\x04", "\x01\x01\x02\x02\x01\x0aabcdefghijk"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		n := noreroute.Network{Cluster: fuzzed.Cluster[s.Pick(2):], Join: fuzzed.Join, NodeLocal: noreroute.NodeLocal(nil, fuzzed.Join)}
		hosts := s.Addrs(6)
		pods := s.Addrs(6)
		rows := fuzzed.NewRows(t)
		rows.Add(noreroute.PolicyOwner, noreroute.PolicyRows(n))
		set := noreroute.SetRows(n, noreroute.EgressIPPods, pods)
		rows.Add(noreroute.EgressIPPods.Owner(), set)
		rows.Add(noreroute.NodeIPs.Owner(), noreroute.NodeRows(n, hosts))
		if again := noreroute.SetRows(n, noreroute.EgressIPPods, fuzzed.Shuffled(s, pods)); !reflect.DeepEqual(set, again) {
			t.Error("the set depends on the order of the pods")
		}
		for _, a := range noreroute.Addrs(set) {
			if !slices.Contains(pods, a) {
				t.Errorf("%s is in the set and is nobody's", a)
			}
		}
		for _, r := range set {
			if m := r.Model.(*nbdb.AddressSet); !slices.IsSorted(m.Addresses) && len(m.Addresses) != len(slices.Compact(slices.Clone(m.Addresses))) {
				t.Errorf("addresses %q", m.Addresses)
			}
		}
		noreroute.MarkRules(hosts, n.NodeLocal, topology.Families)
	})
}
