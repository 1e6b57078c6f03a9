package egressip

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

var (
	prodIPs   = []v1.Address{"172.18.0.33", "172.18.0.44"}
	webPod    = testPod{node: "ovn-control-plane", app: "web", addrs: addrs("10.244.0.3", "fd00:10:244:1::3")}
	otherPod  = testPod{node: "ovn-worker", app: "other", addrs: addrs("10.244.1.3", "fd00:10:244:2::3")}
	webPods   = map[string]testPod{"prod/web": webPod, "prod/other": otherPod}
	egressTwo = egress("egressip-prod", 1, prodIPs)
)

// TestDocument is the example of the feature's document.
func TestDocument(t *testing.T) {
	w := newWorld()
	w.become(state{nodes: allWell, egress: []*v1.EgressIP{egressTwo}, pods: webPods})
	golden.Check(t, "document-primary", w.String())
	w = newWorld()
	w.become(state{nodes: allWell, egress: []*v1.EgressIP{egress("egressip-prod", 1, []v1.Address{"172.19.0.33", "172.19.0.44"})}, pods: webPods})
	golden.Check(t, "document-secondary", w.String())
}

var (
	none     change
	two      = []v1.Address{"172.18.0.33", "172.18.0.44"}
	one      = []v1.Address{"172.18.0.33"}
	dualPair = []v1.Address{"172.18.0.33", "fc00:f853:ccd:e793::33"}
	outside  = []v1.Address{"172.19.0.33", "172.19.0.44"}
)

func at(worker, worker2 change, es ...*v1.EgressIP) state {
	return state{nodes: nodes(worker, worker2), egress: es, pods: webPods}
}

// scenarios are lists of states. Every last state leaves only one choice, so that the
// end must not depend on the preceding states.
var scenarios = map[string][]state{
	"failover": {
		at(none, none, egress("e", 1, two)),
		at(change{dead}, none, egress("e", 1, two)),
		at(none, change{dead}, egress("e", 1, two)),
		at(change{notReady}, none, egress("e", 1, two)),
		at(change{unknown}, change{unknown}, egress("e", 1, two)),
		at(none, none, egress("e", 1, one)),
		at(none, change{dead}, egress("e", 1, one)),
	},
	"unlabelled": {
		at(none, none, egress("e", 1, two)),
		at(change{unlabelled}, none, egress("e", 1, two)),
		at(change{dead}, change{unlabelled}, egress("e", 1, two)),
		at(none, change{unlabelled}, egress("e", 1, two[:1])),
	},
	"none-left": {
		at(none, none, egress("e", 1, two)),
		at(change{cordoned}, none, egress("e", 1, one)),
		at(change{dead}, change{dead}, egress("e", 1, two)),
	},
	"none-left-held": {
		at(none, none, egress("e", 1, two)),
		at(change{draining}, none, egress("e", 1, one, hold)),
		at(change{dead}, change{unlabelled}, egress("e", 1, two, hold)),
	},
	"drained": {
		at(none, none, egress("e", 1, one)),
		at(none, change{draining}, egress("e", 1, one)),
		at(change{draining}, none, egress("e", 1, one)),
	},
	"readdressed": {
		at(none, none, egress("e", 1, two)),
		at(none, none, egress("e", 1, []v1.Address{"172.18.0.44", "172.18.0.33"})),
		at(none, none, egress("e", 1, outside)),
		at(none, none, egress("e", 1, dualPair)),
		at(none, change{unlabelled}, egress("e", 1, []v1.Address{"172.18.0.55", "fc00:f853:ccd:e793::33"})),
	},
	"reselected": {
		at(none, none, egress("e", 2, one), egress("f", 1, []v1.Address{"172.18.0.55"})),
		at(none, none, egress("e", 2, one, of("other")), egress("f", 1, []v1.Address{"172.18.0.55"})),
		at(none, none, egress("f", 1, []v1.Address{"172.18.0.33"})),
		at(change{unlabelled}, none, egress("e", 2, one, of("none")), egress("f", 1, []v1.Address{"172.18.0.55"})),
	},
	"taken": {
		at(none, none, egress("e", 2, one), egress("f", 1, one, of("other"))),
		at(none, none, egress("f", 1, one, of("other"))),
		at(none, change{unlabelled}, egress("f", 1, one, of("other")), egress("e", 2, one)),
	},
	"deleted": {
		at(none, none, egress("e", 2, two), egress("f", 1, outside, of("other"))),
		at(change{dead}, none, egress("f", 1, outside, of("other"))),
		at(none, none),
	},
	"secondary": {
		at(none, none, egress("e", 2, outside)),
		at(change{unlinked}, none, egress("e", 2, outside)),
		at(none, none, egress("e", 2, two)),
		at(none, change{unlinked}, egress("e", 2, outside[:1])),
	},
	"pods": {
		at(none, none, egress("e", 1, two)),
		{nodes: allWell, egress: []*v1.EgressIP{egress("e", 1, two)}},
		{nodes: allWell, egress: []*v1.EgressIP{egress("e", 1, one)}, pods: map[string]testPod{
			"prod/web": {node: "ovn-worker", app: "web", addrs: addrs("10.244.1.9"), pending: true},
			"prod/new": {node: "ovn-worker2", app: "web", addrs: addrs("10.244.2.9"), pending: true}}},
		{nodes: nodes(change{unlabelled}, none), egress: []*v1.EgressIP{egress("e", 1, one)}, pods: map[string]testPod{
			"prod/web": {node: "ovn-worker", app: "web", addrs: addrs("10.244.1.7"), pending: true}}},
	},
}

// TestPathIndependence: whatever states the cluster went through, in whatever
// order, with a restart anywhere and in any order of actions, the end depends on
// the last state only; and at no time does a packet have a wrong address.
func TestPathIndependence(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, states := range scenarios {
		t.Run(name, func(t *testing.T) {
			last := states[len(states)-1]
			alone := newWorld()
			alone.become(last)
			golden.Check(t, "scenario-"+name, alone.String())

			way := states[:len(states)-1]
			reversed := slices.Clone(way)
			slices.Reverse(reversed)
			ways := [][]state{way, reversed, nil}
			for range 30 {
				shuffled := slices.Clone(way)
				r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				ways = append(ways, shuffled, shuffled[:r.IntN(len(shuffled))])
			}
			for _, way := range ways {
				for _, restarts := range []int{0, 1, 2} {
					w := newWorld()
					w.r = r
					for _, st := range way {
						w.become(st)
						if restarts == 1 || restarts == 2 && r.IntN(2) == 0 {
							w.restart()
						}
					}
					w.become(last)
					if len(w.wrong) > 0 {
						t.Fatalf("%q", w.wrong[:min(5, len(w.wrong))])
					}
					if got := w.String(); got != alone.String() {
						t.Fatalf("by another way:\n%s\nwanted:\n%s", got, alone)
					}
				}
			}
		})
	}
}

// TestLatePod: hops that were written while a pod could not send, and whose
// translations were not confirmed, are removed when it starts.
func TestLatePod(t *testing.T) {
	pod, egressAddr, hop := addrs("10.244.0.3")[0], addrs("172.18.0.33")[0], addrs("100.64.0.3")[0]
	s := Steering{
		EgressIP: Decode(egress("e", 1, one)),
		Pod:      Pod{Addrs: []netip.Addr{pod}, Pending: true},
		Paths: []Path{{Answered: true, Placement: Placement{
			Address: Address{Addr: egressAddr}, Node: "ovn-worker", NextHop: hop, Primary: true,
		}}},
		Now: NewState(), Applied: NewState(),
		Owned: func(string, netip.Addr) bool { return true },
	}
	plan := s.Plan()
	if plan.Released || !slices.Equal(plan.Want.Policies[pod].Hops, []netip.Addr{hop}) {
		t.Fatalf("while it waits: %+v", plan)
	}
	s.Now, s.Pod = plan.Want, Pod{Addrs: s.Pod.Addrs, Late: true}
	plan = s.Plan()
	if p, ok := plan.Want.Policies[pod]; !ok || len(p.Hops) > 0 {
		t.Fatalf("what it sends when it starts late is not dropped: %+v", plan)
	}
	if !slices.Equal(plan.Await, []string{"ovn-worker"}) || plan.Want.NATs[Site{pod, "ovn-worker"}] != egressAddr {
		t.Fatalf("its translation is not waited for: %+v", plan)
	}
	s.Now, s.Pod.Late = plan.Want, false
	s.Applied.NATs[Site{pod, "ovn-worker"}] = egressAddr
	if plan = s.Plan(); !slices.Equal(plan.Want.Policies[pod].Hops, []netip.Addr{hop}) {
		t.Fatalf("when it is in force: %+v", plan)
	}
}

// TestDeadNodeLingers: the translations of a dead node stay until the policies
// that lead elsewhere are in force, because the node may be restarting.
func TestDeadNodeLingers(t *testing.T) {
	pod, egressAddr := addrs("10.244.0.3")[0], addrs("172.18.0.33")[0]
	dead, next := addrs("100.64.0.3")[0], addrs("100.64.0.4")[0]
	s := Steering{
		EgressIP: Decode(egress("e", 1, one)),
		Pod:      Pod{Addrs: []netip.Addr{pod}},
		Paths: []Path{{Answered: true, Placement: Placement{
			Address: Address{Addr: egressAddr}, Node: "ovn-worker2", NextHop: next, Primary: true,
		}}},
		Now:   NewState(),
		Owned: func(string, netip.Addr) bool { return true },
	}
	before, after := Site{pod, "ovn-worker"}, Site{pod, "ovn-worker2"}
	s.Now.Policies[pod] = Policy{EgressIP: "e", Hops: []netip.Addr{dead}}
	s.Now.NATs[before] = egressAddr
	s.Applied = s.Now.Clone()
	s.Applied.NATs[after] = egressAddr
	plan := s.Plan()
	if !slices.Equal(plan.Want.Policies[pod].Hops, []netip.Addr{next}) || !plan.Self {
		t.Fatalf("as the node is lost: %+v", plan)
	}
	if plan.Want.NATs[before] != egressAddr || !plan.Lingers {
		t.Fatalf("the translation goes with the policies: %+v", plan)
	}
	s.Now, s.Applied.Policies = plan.Want, plan.Want.Clone().Policies
	if plan = s.Plan(); plan.Lingers || !plan.Done || len(plan.Want.NATs) != 1 {
		t.Fatalf("when the policies are in force: %+v", plan)
	}
}
