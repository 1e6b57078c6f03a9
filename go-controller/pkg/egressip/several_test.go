package egressip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func perPod(e *v1.EgressIP) { e.Spec.AddressAffinity = v1.AddressAffinityPod }

// four returns four nodes, three of which may hold addresses.
func four(one, two, three change) []place.Node {
	return append(nodes(one, two), node("ovn-worker3", 3, three...))
}

// pair is an EgressIP with two addresses of one family on two nodes, with the rows
// of a pod in the database: the first address is on the first node, the second on the
// second, and the third node has none.
type pair struct {
	pod   netip.Addr
	a, b  netip.Addr
	hops  [3]netip.Addr
	nodes [3]string
}

func (p pair) path(a netip.Addr, node int, held, primary bool) Path {
	return Path{Answered: held, Programmed: held, Placement: Placement{
		Address: Address{Addr: a}, Node: p.nodes[node], NextHop: p.hops[node], Primary: primary,
	}}
}

func (p pair) steering(primary bool, paths ...Path) Steering {
	s := Steering{
		EgressIP: Decode(egress("e", 1, []v1.Address{v1.Address(p.a.String()), v1.Address(p.b.String())})),
		Pod:      Pod{Key: "prod/web", Addrs: []netip.Addr{p.pod}},
		Paths:    []Path{p.path(p.a, 0, true, primary), p.path(p.b, 1, true, primary)},
		Now:      NewState(), Applied: NewState(),
		Owned: func(string, netip.Addr) bool { return true },
	}
	if primary {
		s.Applied.NATs[Site{p.pod, p.nodes[0]}], s.Applied.NATs[Site{p.pod, p.nodes[1]}] = p.a, p.b
	}
	s.Now = StateOf(s.Plan().Want.Rows()) // as a restart reads it
	s.Applied = s.Now.Clone()
	s.Paths = paths
	return s
}

var pairs = map[string]pair{
	"IPv4": {pod: addrs("10.244.0.3")[0], a: addrs("172.18.0.33")[0], b: addrs("172.18.0.44")[0],
		hops: [3]netip.Addr(addrs("100.64.0.3", "100.64.0.4", "100.64.0.5")), nodes: [3]string{"n1", "n2", "n3"}},
	"IPv6": {pod: addrs("fd00:10:244:1::3")[0], a: addrs("fc00:f853:ccd:e793::33")[0], b: addrs("fc00:f853:ccd:e793::44")[0],
		hops: [3]netip.Addr(addrs("fd98::3", "fd98::4", "fd98::5")), nodes: [3]string{"n1", "n2", "n3"}},
}

// TestHopStaysUntilSuccessor: while an address moves, its previous hop and the translation
// there stay until its new node is ready: connections of neither address are led to
// the other.
func TestHopStaysUntilSuccessor(t *testing.T) {
	for family, p := range pairs {
		for _, primary := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s primary %v", family, primary), func(t *testing.T) {
				s := p.steering(primary, p.path(p.a, 2, false, primary), p.path(p.b, 1, true, primary))
				plan := s.Plan()
				if want := []netip.Addr{p.hops[0], p.hops[1]}; !slices.Equal(plan.Want.Policies[p.pod].Hops, want) {
					t.Fatalf("while %s moves, pods are led to %v, want %v", p.a, plan.Want.Policies[p.pod].Hops, want)
				}
				if primary && (plan.Want.NATs[Site{p.pod, "n1"}] != p.a || plan.Want.NATs[Site{p.pod, "n3"}] != p.a) {
					t.Fatalf("translations are %v", plan.Want.NATs)
				}
				if plan.Done {
					t.Error("settled while an address moves")
				}
				s.Now = StateOf(plan.Want.Rows())
				if again := s.Plan(); !slices.Equal(again.Want.Policies[p.pod].Hops, plan.Want.Policies[p.pod].Hops) {
					t.Fatalf("after a restart pods are led to %v", again.Want.Policies[p.pod].Hops)
				}
				s.Paths[0] = p.path(p.a, 2, true, primary)
				s.Applied.NATs[Site{p.pod, "n3"}] = p.a
				plan = s.Plan()
				if want := []netip.Addr{p.hops[1], p.hops[2]}; !slices.Equal(plan.Want.Policies[p.pod].Hops, want) {
					t.Fatalf("when %s has moved, pods are led to %v, want %v", p.a, plan.Want.Policies[p.pod].Hops, want)
				}
			})
		}
	}
}

// TestHopWithoutSuccessor: a hop is removed at once if no node is to have its address.
func TestHopWithoutSuccessor(t *testing.T) {
	for family, p := range pairs {
		plan := p.steering(true, p.path(p.b, 1, true, true)).Plan()
		if want := []netip.Addr{p.hops[1]}; !slices.Equal(plan.Want.Policies[p.pod].Hops, want) {
			t.Errorf("%s: pods are led to %v, want %v", family, plan.Want.Policies[p.pod].Hops, want)
		}
	}
}

// TestNodeOfBoth: an address that moves to a node which another one is leaving waits
// until the latter is ready elsewhere; two addresses that change places do not wait for
// each other.
func TestNodeOfBoth(t *testing.T) {
	p := pairs["IPv4"]
	at := Site{p.pod, "n1"}
	s := p.steering(true, p.path(p.a, 2, false, true), p.path(p.b, 0, true, true))
	plan := s.Plan()
	if plan.Want.NATs[at] != p.a || !slices.Equal(plan.Want.Policies[p.pod].Hops, []netip.Addr{p.hops[0], p.hops[1]}) {
		t.Errorf("while %s leaves: %+v", p.a, plan.Want)
	}
	s.Now, s.Paths[0] = plan.Want, p.path(p.a, 2, true, true)
	s.Applied.NATs[Site{p.pod, "n3"}] = p.a
	plan = s.Plan()
	if plan.Want.Policies[p.pod].Egress[p.hops[2]] != p.a {
		t.Errorf("when %s is ready elsewhere: %+v", p.a, plan.Want)
	}
	s = p.steering(true, p.path(p.a, 1, true, true), p.path(p.b, 0, true, true))
	if plan = s.Plan(); plan.Want.NATs[at] != p.b || plan.Want.NATs[Site{p.pod, "n2"}] != p.a {
		t.Errorf("as they change places: %+v", plan.Want)
	}
}

// TestAddressPerPod: each pod gets one next hop, pods are spread over the addresses, and
// a pod of the same name gets the same address.
func TestAddressPerPod(t *testing.T) {
	for family, p := range pairs {
		count := map[netip.Addr]int{}
		for i := range 200 {
			s := p.steering(true, p.path(p.a, 0, true, true), p.path(p.b, 1, true, true))
			s.EgressIP.PerPod, s.Now, s.Applied = true, NewState(), NewState()
			s.Pod = Pod{Key: fmt.Sprintf("prod/web-%d", i), Addrs: []netip.Addr{p.pod}, Pending: true}
			plan := s.Plan()
			policy := plan.Want.Policies[p.pod]
			if len(policy.Hops) != 1 || len(plan.Want.NATs) != 1 {
				t.Fatalf("%s: %+v", family, plan.Want)
			}
			slices.Reverse(s.Paths)
			if again := s.Plan().Want.Policies[p.pod]; !slices.Equal(again.Hops, policy.Hops) {
				t.Fatalf("%s: depends on the order of the addresses", family)
			}
			count[policy.Egress[policy.Hops[0]]]++
		}
		if count[p.a] < 60 || count[p.b] < 60 {
			t.Errorf("%s: pods by address are %v", family, count)
		}
	}
}

// TestAddressOfPodStays: whatever moves, dies, is drained, added or returns, a pod
// keeps its address as long as any node is to have it.
func TestAddressOfPodStays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	changes := []change{nil, {draining}, {dead}, {unlabelled}, {notReady}, nil}
	three := []v1.Address{"172.18.0.33", "172.18.0.44", "172.18.0.55", "fc00:f853:ccd:e793::33", "fc00:f853:ccd:e793::44"}
	for run := range 60 {
		w := newWorld()
		w.r = r
		var had map[netip.Addr]netip.Addr
		for step := range 12 {
			n := 2 + r.IntN(4)
			if step == 0 {
				n = len(three)
			}
			one := func() change { return changes[r.IntN(len(changes))] }
			w.become(state{nodes: four(one(), one(), one()), egress: []*v1.EgressIP{egress("e", 1, three[:n], perPod)}, pods: webPods})
			if r.IntN(3) == 0 {
				w.restart()
			}
			if len(w.wrong) > 0 {
				t.Fatalf("run %d: %q", run, w.wrong[:min(5, len(w.wrong))])
			}
			now := w.leaving(t, "prod/web")
			for pod, a := range had {
				placed := slices.ContainsFunc(w.decisions["e"].Placements, func(p Placement) bool { return p.Addr == a && p.Node != "" })
				if placed && now[pod] != a {
					t.Fatalf("run %d: %s had %s, now %s, though a node has it", run, pod, a, now[pod])
				}
			}
			had = now
		}
	}
}

// leaving returns the one egress address of each of a pod's addresses.
func (w *world) leaving(t *testing.T, key string) map[netip.Addr]netip.Addr {
	t.Helper()
	out := map[netip.Addr]netip.Addr{}
	for pod, policy := range w.policies[key] {
		if len(policy.Hops) > 1 {
			t.Fatalf("%s is led to %v", pod, policy.Hops)
		}
		for _, n := range w.state.nodes {
			join, _ := topology.PrefixOf(topology.FamilyOf(pod), n.Join)
			if slices.Contains(policy.Hops, join.Addr()) {
				out[pod] = w.nats[key][Site{pod, n.Name}]
			}
		}
	}
	return out
}

// TestHopOfNodeThatIsGone: the hop is removed at once, since nothing is translated there any more.
func TestHopOfNodeThatIsGone(t *testing.T) {
	for family, p := range pairs {
		s := p.steering(true, p.path(p.a, 2, false, true), p.path(p.b, 1, true, true))
		delete(s.Now.NATs, Site{p.pod, "n1"})
		plan := s.Plan()
		if want := []netip.Addr{p.hops[1]}; !slices.Equal(plan.Want.Policies[p.pod].Hops, want) {
			t.Errorf("%s: pods are led to %v, want %v", family, plan.Want.Policies[p.pod].Hops, want)
		}
	}
}
