package egressip_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var network = egressip.Network{Cluster: fuzzed.Cluster, Service: fuzzed.Services, Join: fuzzed.Join, Masquerade: fuzzed.Masquerade}

// placeable returns the nodes as input for placement.
func placeable(s *fuzzed.Source) []place.Node {
	var nodes []place.Node
	for _, n := range fuzzed.Known(s.Nodes()) {
		nodes = append(nodes, place.Node{Node: n, Reach: fuzzed.One(s, place.Alive, place.Unknown, place.Dead)})
	}
	return nodes
}

// object creates an EgressIP with arbitrary content.
func object(s *fuzzed.Source, name string) *v1.EgressIP {
	e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: s.Created()}}
	e.Spec.NamespaceSelector, e.Spec.PodSelector = s.Selector(), s.Selector()
	e.Spec.OnUnavailable = fuzzed.One(s, "", v1.UnavailableDrop, "Maybe")
	for range s.Pick(4) {
		e.Spec.EgressIPs = append(e.Spec.EgressIPs, v1.Address(s.Text()))
	}
	for range s.Pick(3) {
		e.Status.Items = append(e.Status.Items, v1.EgressIPStatusItem{Node: s.NodeName(), EgressIP: s.Text(), Network: fuzzed.One(s, "", "10.10.10.0/24", "x")})
	}
	for range s.Pick(3) {
		e.Status.Programmed = append(e.Status.Programmed, v1.ProgrammedStatus{Node: s.NodeName(), EgressIPs: []string{s.Text(), s.Text()}})
	}
	return e
}

// FuzzPlan places and plans EgressIPs with arbitrary specs, statuses, nodes and
// pods.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x02\x00\x00\x00\x00\x01\x00\x00\x00\x00\x01\x01\x00\x00\x00\x02\x00\x07\x08\x01\x00\x07\x00",
		"\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x03\x07\x0d\x09\x02\x00\x0d\x01\x00\x07\x00\x02\x00\x07\x0d",
		"egress addresses belong to those who asked first and nobody else",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		nodes := placeable(s)
		var objects []*v1.EgressIP
		var all []egressip.EgressIP
		selection := egressip.NewSelection()
		byName := map[string]egressip.EgressIP{}
		for i := range 1 + s.Pick(3) {
			o := object(s, fmt.Sprintf("eip%d", i))
			e := egressip.Decode(o)
			objects, all, byName[o.Name] = append(objects, o), append(all, e), e
			selection.Set(o)
		}
		decisions := egressip.Decide(nodes, all, network)
		if !reflect.DeepEqual(decisions, egressip.Decide(fuzzed.Shuffled(s, nodes), fuzzed.Shuffled(s, all), network)) {
			t.Error("the decisions depend on the order of nodes or EgressIPs")
		}
		checkPlacements(t, nodes, decisions)
		settled := slices.Clone(all)
		for i, e := range settled {
			settled[i].Items = decisions[e.Key].Nodes()
		}
		for key, d := range egressip.Decide(nodes, settled, network) {
			if !d.Equal(decisions[key]) {
				t.Errorf("%s: decided %+v, and from that %+v", key, decisions[key], d)
			}
		}
		for _, o := range objects {
			d := decisions[o.Name]
			is := egressip.Conditions(d, o.Status, egressip.Report{Waiting: s.Pick(2)})
			for _, c := range is {
				if !conditions.Known(conditions.EgressIP, c) {
					t.Errorf("%s: condition %+v is not in the vocabulary", o.Name, c)
				}
			}
			egressip.Notices(d, nil, nil, is)
		}
		checkPods(t, s, objects, selection, byName, decisions)
		for _, n := range nodes {
			checkHost(t, s, n.Node, objects)
		}
	})
}

// checkPlacements checks that a node only has allowed addresses, and that each address has one
// owner.
func checkPlacements(t *testing.T, nodes []place.Node, decisions map[string]egressip.Decision) {
	t.Helper()
	owners := map[netip.Addr]string{}
	for key, d := range decisions {
		for _, p := range d.Placements {
			if p.Node == "" {
				continue
			}
			if other, taken := owners[p.Addr]; taken {
				t.Errorf("%s is of %s and of %s", p.Addr, key, other)
			}
			owners[p.Addr] = key
			for _, ranges := range [][]netip.Prefix{fuzzed.Cluster, fuzzed.Services, fuzzed.Join, fuzzed.Masquerade} {
				if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(p.Addr) }) {
					t.Errorf("%s, which is inside of the cluster, has node %s", p.Addr, p.Node)
				}
			}
			i := slices.IndexFunc(nodes, func(n place.Node) bool { return n.Name == p.Node })
			if i < 0 || !p.NextHop.IsValid() || topology.FamilyOf(p.NextHop) != topology.FamilyOf(p.Addr) {
				t.Errorf("%s is placed as %+v", p.Addr, p)
			}
		}
	}
}

// checkPods plans the rows of pods that have their own addresses.
func checkPods(t *testing.T, s *fuzzed.Source, objects []*v1.EgressIP, selection *egressip.Selection,
	byName map[string]egressip.EgressIP, decisions map[string]egressip.Decision) {
	t.Helper()
	rows := fuzzed.NewRows(t)
	for i := range 3 {
		key := fmt.Sprintf("ns/pod%d", i)
		pods := []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", 5+i)), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:1::%d", 5+i))}
		steering := egressip.Steering{
			Pod: egressip.Pod{Addrs: pods, Pending: s.Some(2), Late: s.Some(3)}, Now: egressip.NewState(), Applied: egressip.NewState(),
			Owned: func(name string, a netip.Addr) bool { return slices.Contains(byName[name].Addrs(), a) },
		}
		if names := selection.Matching(s.Labels(), s.Labels()); len(names) > 0 {
			j := slices.IndexFunc(objects, func(o *v1.EgressIP) bool { return o.Name == names[0] })
			steering.EgressIP = byName[names[0]]
			steering.Paths = decisions[names[0]].Paths(objects[j].Status, pods, func([]netip.Addr) string { return "" }, func(string) (topology.Node, bool) { return topology.Node{}, false })
		}
		for step := range 3 { // the rows come into force until nothing is left to be done
			plan := steering.Plan()
			planned := plan.Want.Rows()
			if step == 2 {
				rows.Add(egressip.Owner(key), planned)
			}
			for _, r := range planned {
				m, ok := r.Model.(*nbdb.LogicalRouterPolicy)
				if ok && !slices.ContainsFunc(pods, func(a netip.Addr) bool { return strings.HasSuffix(m.Match, " == "+a.String()) }) {
					t.Errorf("%s has a policy for %q", key, m.Match)
				}
				if n, ok := r.Model.(*nbdb.NAT); ok && !slices.ContainsFunc(pods, func(a netip.Addr) bool { return n.LogicalIP == a.String() }) {
					t.Errorf("%s translates %q", key, n.LogicalIP)
				}
			}
			if again := egressip.StateOf(planned); !again.SamePolicies(plan.Want) {
				t.Errorf("policies %+v are read back as %+v", plan.Want, again)
			}
			steering.Now, steering.Applied = plan.Want, plan.Want.Clone()
		}
	}
}

// checkHost plans a node's host state according to statuses.
func checkHost(t *testing.T, s *fuzzed.Source, n topology.Node, objects []*v1.EgressIP) {
	t.Helper()
	links := []host.Network{{Link: "eth1", Addrs: n.Host}, {Link: "eth2", Addrs: fuzzed.Prefixes("10.10.10.9/24", "fd10::9/64")}}
	for _, o := range objects {
		share := egressip.AssignmentOf(o.Status, n)
		assignments, _ := egressip.AssignLinks(share, links, func(a netip.Addr) bool { return s.Some(3) })
		state := egressip.HostPlan(assignments, func(netip.Addr) bool { return true }, s.Addrs(3))
		for a := range state.Addrs {
			if !slices.ContainsFunc(o.Status.Items, func(i v1.EgressIPStatusItem) bool {
				own, err := netip.ParseAddr(i.EgressIP)
				return err == nil && i.Node == n.Name && own == a.Prefix.Addr()
			}) {
				t.Errorf("%s gets %v, which no status gives it", n.Name, a)
			}
		}
		for r := range state.IPRules {
			if r.Mark == 0 && (!r.Src.IsValid() || r.Src.Bits() == 0) {
				t.Errorf("ip rule %+v", r)
			}
		}
	}
	for _, a := range egressip.SuppressedAddrs(objects, n, func(netip.Addr) bool { return false }) {
		if !a.IsValid() {
			t.Errorf("%s gates %v", n.Name, a)
		}
	}
}

// FuzzObject decodes EgressIPs with arbitrary content.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"egressip-prod","creationTimestamp":"2023-11-01T10:00:00Z","uid":"1"},"spec":{"egressIPs":["172.18.0.33","172.18.0.44"],` +
		`"namespaceSelector":{"matchExpressions":[{"key":"environment","operator":"NotIn","values":["development"]}]},"podSelector":{"matchLabels":{"app":"web"}}},` +
		`"status":{"items":[{"egressIP":"172.18.0.33","node":"n1"},{"egressIP":"10.10.10.100","network":"10.10.10.0/24","node":"n2"}],` +
		`"programmed":[{"node":"n1","egressIPs":["172.18.0.33"],"digest":"x"}],"conditions":[{"type":"Programmed","status":"True"}]}}`))
	f.Add([]byte(`{"spec":{"egressIPs":["","::","1.2.3.4.5","fe80::1%eth0"]},"status":{"items":[{}],"programmed":[{},{"egressIPs":[""]}]}}`))
	nodes := placeable(fuzzed.New(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		o := &v1.EgressIP{}
		if json.Unmarshal(text, o) != nil {
			return
		}
		e := egressip.Decode(o)
		for _, a := range e.Addrs() {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
				t.Errorf("egress address %v", a)
			}
		}
		decisions := egressip.Decide(nodes, []egressip.EgressIP{e}, network)
		checkPlacements(t, nodes, decisions)
		egressip.Conditions(decisions[e.Key], o.Status, egressip.Report{})
		checkHost(t, fuzzed.New(text), nodes[0].Node, []*v1.EgressIP{o})
		egressip.Answers(o.Status, "n1", netip.MustParseAddr("172.18.0.33"))
		egressip.Other(o.Status, "n1", netip.MustParseAddr("172.18.0.33"))
		egressip.NodeStatusOf(o.Status, "n1")
	})
}

// TestShareOfWhatIsNoEgressAddress: a status with an invalid egress address assigns nothing to the node.
func TestShareOfWhatIsNoEgressAddress(t *testing.T) {
	n := topology.Node{Name: "n1", Host: fuzzed.Prefixes("10.10.10.1/24", "fe80::9/64")}
	for _, text := range []string{"fe80::1%eth0", "fe80::1", "::ffff:10.10.10.100", "0.0.0.0", "127.0.0.1", "224.0.0.1", "", "10.10.10.100/24"} {
		status := v1.EgressIPStatus{Items: []v1.EgressIPStatusItem{{Node: "n1", EgressIP: text, Network: "10.10.10.0/24"}}}
		if share := egressip.AssignmentOf(status, n); len(share.Primary)+len(share.Secondary) > 0 {
			t.Errorf("%q gives %+v", text, share)
		}
	}
	status := v1.EgressIPStatus{Items: []v1.EgressIPStatusItem{{Node: "n1", EgressIP: "10.10.10.100", Network: "10.10.10.0/24"}}}
	if share := egressip.AssignmentOf(status, n); len(share.Secondary) != 1 {
		t.Errorf("an egress address gives %+v", share)
	}
}
