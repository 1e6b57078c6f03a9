package egressservice

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

type change = []func(*place.Node)

// TestWalkThrough is the walk-through of the feature's document.
func TestWalkThrough(t *testing.T) {
	w := newWorld()
	w.become(demo(allWell))
	golden.Check(t, "walkthrough-1-start", w.String())
	// The first host is worker2, as in the documentation, only by chance of this selection.
	w.status["default/demo-svc"] = "ovn-worker2"
	w.become(demo(allWell, egress("default", "demo-svc", onWorkers)))
	golden.Check(t, "walkthrough-2-served", w.String())
	w.become(demo(nodes(nil, change{dead}), egress("default", "demo-svc", onWorkers)))
	golden.Check(t, "walkthrough-3-failover", w.String())
	served := w.String()
	w.become(demo(allWell, egress("default", "demo-svc", onWorkers)))
	if got := w.String(); got != served {
		t.Errorf("the node that came back took over:\n%s", got)
	}
	w.become(demo(allWell))
	golden.Check(t, "walkthrough-1-start", w.String())
}

func TestEmptySpecIsServed(t *testing.T) {
	w := newWorld()
	w.become(demo(allWell, egress("default", "demo-svc")))
	if w.status["default/demo-svc"] == "" {
		t.Errorf("not served:\n%s", w)
	}
}

// scenarios are lists of states. Every last state leaves one choice of host, so
// that the end must not depend on the preceding states.
var scenarios = map[string][]state{
	"failover": {
		demo(allWell),
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		demo(nodes(nil, change{dead}), egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{notReady}, nil), egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{unknown}, change{unknown}), egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{unlabelled}, change{dead}), egress("default", "demo-svc", onWorkers)),
		demo(allWell[:1], egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{unlabelled}, nil), egress("default", "demo-svc", onWorkers)),
	},
	"deleted": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		demo(nodes(nil, change{dead}), egress("default", "demo-svc", onWorkers)),
		{nodes: allWell, egress: []*v1.EgressService{egress("default", "demo-svc", onWorkers)}},
		demo(allWell, egress("default", "demo-svc")),
		demo(allWell),
	},
	"service": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		with(demoSlice, service("default", "demo-svc", nil)),
		with(demoSlice, service("default", "demo-svc", []string{"lb.example.com"})),
		with(demoSlice, service("default", "demo-svc", []string{"5.5.5.5"})),
		with(demoSlice, service("default", "demo-svc", demoIngress, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })),
		with(demoSlice, service("default", "demo-svc", []string{"6.6.6.6", "7.7.7.7", "lb.example.com", "5555::7", "5555::6"})),
		with(slice("default", "demo-svc", "10.244.0.5@ovn-worker", "10.244.1.9@ovn-worker2"), service("default", "demo-svc", demoIngress, local)),
		with(slice("default", "demo-svc", "!10.244.0.5@ovn-worker", "~10.244.1.9@ovn-worker2", "172.18.0.4@ovn-worker", "fd00:10:244:2::9@ovn-worker2"),
			service("default", "demo-svc", []string{"5.5.5.5"}, local)),
	},
	"network": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		demo(allWell, egress("default", "demo-svc", perNode)),
		demo(nodes(nil, change{dead}), egress("default", "demo-svc", onWorkers, blue)),
		demo(allWell),
		demo(nodes(change{cordoned}, nil), egress("default", "demo-svc", onWorkers, blue)),
	},
	"per-node": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{dead}, change{dead}), egress("default", "demo-svc", onWorkers)),
		demo(allWell),
		demo(allWell, egress("default", "demo-svc", onWorkers, blue)),
		demo(nodes(change{dead}, change{dead}), egress("default", "demo-svc", onWorkers, blue, perNode)),
	},
	"held": {
		demo(allWell, egress("default", "demo-svc", onWorkers, hold)),
		demo(nodes(change{dead}, nil), egress("default", "demo-svc", onWorkers)),
		demo(allWell),
		demo(nodes(change{dead}, change{dead}), egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{dead}, change{unlabelled}), egress("default", "demo-svc", onWorkers, hold)),
	},
	"awaited": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		demo(nodes(change{dead}, change{dead}), egress("default", "demo-svc", onWorkers, hold)),
		demo(allWell, egress("default", "demo-svc", onWorkers, perNode)),
		awaiting(demo(nodes(change{dead}, nil), egress("default", "demo-svc", onWorkers)), "10.244.0.5", "10.244.0.77", "172.18.0.9", "fd00:10:244:1::77"),
	},
	"two": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		both(nil, "10.244.0.5", "10.244.0.6"),
		both(hold, "10.244.0.6"),
		both(onWorkers, "10.244.0.6", "10.244.0.7"),
	},
	"refused": {
		demo(allWell, egress("default", "demo-svc", onWorkers)),
		demo(allWell, egress("default", "demo-svc", func(e *v1.EgressService) { e.Spec.SourceIPBy = "Somewhere" })),
		demo(allWell, egress("default", "demo-svc", func(e *v1.EgressService) { e.Spec.Network = "b/lue" })),
		demo(nodes(change{dead}, change{notReady}), egress("default", "demo-svc", onWorkers)),
	},
}

// awaiting returns a state in which every Service selects pods at the given addresses.
func awaiting(st state, addrs ...string) state {
	st.selected = addrs
	return st
}

// both returns a state with two EgressServices that select some of the same pods, on one node.
func both(change func(*v1.EgressService), younger ...string) state {
	later := egress("default", "a-younger", func(e *v1.EgressService) {
		e.CreationTimestamp.Time = e.CreationTimestamp.Add(time.Hour)
		if change != nil {
			change(e)
		}
	})
	return state{nodes: nodes([]func(*place.Node){dead}, nil)[1:], egress: []*v1.EgressService{later, egress("default", "demo-svc", onWorkers)},
		services: []*corev1.Service{service("default", "a-younger", []string{"6.6.6.6"}), demoService},
		slices:   []*discoveryv1.EndpointSlice{slice("default", "a-younger", younger...), slice("default", "demo-svc", "10.244.0.5", "10.244.0.6")}}
}

func perNode(e *v1.EgressService) { e.Spec.SourceIPBy = v1.SourceIPNetwork }
func blue(e *v1.EgressService)    { e.Spec.Network = "blue" }
func hold(e *v1.EgressService)    { e.Spec.OnUnavailable = v1.UnavailableDrop }

func with(sl *discoveryv1.EndpointSlice, svc *corev1.Service) state {
	return state{nodes: allWell, egress: []*v1.EgressService{egress("default", "demo-svc", onWorkers)},
		services: []*corev1.Service{svc}, slices: []*discoveryv1.EndpointSlice{sl}}
}

// TestAnyPath takes a cluster through arbitrary states, with objects that change in
// every possible way, before the last state of each scenario.
func TestAnyPath(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	pick := func(changes ...func(*v1.EgressService)) func(*v1.EgressService) { return changes[r.IntN(len(changes))] }
	nothing := func(*v1.EgressService) {}
	nodeStates := []func(*place.Node){func(*place.Node) {}, dead, unknown, notReady, cordoned, unlabelled}
	ingresses := [][]string{nil, {"5.5.5.5"}, {"5555::5"}, demoIngress, {"lb.example.com"}, {"6.6.6.6", "7.7.7.7", "5555::7"}}
	lists := [][]string{nil, demoEndpoints, {"10.244.0.5@ovn-worker"}, {"~10.244.0.5@ovn-worker", "!10.244.1.9@ovn-worker2"}, {"10.244.0.5@ovn-worker2", "172.18.0.4@ovn-worker"}}
	random := func() state {
		n := slices.Clone(nodes(change{nodeStates[r.IntN(len(nodeStates))]}, change{nodeStates[r.IntN(len(nodeStates))]}))
		st := state{nodes: n[:1+r.IntN(3)]}
		for _, name := range []string{"demo-svc", "other"} {
			if r.IntN(4) > 0 {
				st.egress = append(st.egress, egress("default", name, pick(onWorkers, nothing), pick(perNode, nothing, nothing), pick(blue, nothing), pick(hold, nothing)))
			}
			if r.IntN(5) > 0 {
				st.services = append(st.services, service("default", name, ingresses[r.IntN(len(ingresses))], func(s *corev1.Service) {
					s.Spec.Type = []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP}[r.IntN(3)]
					s.Spec.Ports = []corev1.ServicePort{{Port: int32(80 + r.IntN(3))}}
					if r.IntN(3) == 0 {
						local(s)
					}
				}))
			}
			if r.IntN(5) > 0 {
				st.slices = append(st.slices, slice("default", name, lists[r.IntN(len(lists))]...))
			}
		}
		if r.IntN(3) == 0 {
			st.selected = []string{"10.244.0.5", "10.244.0.50", "fd00:10:244:1::50"}
		}
		return st
	}
	for name, states := range scenarios {
		last := states[len(states)-1]
		alone := newWorld()
		alone.become(last)
		for range 60 {
			w := newWorld()
			for range 1 + r.IntN(8) {
				w.become(random())
				if r.IntN(3) == 0 {
					w.restart()
				}
			}
			if w.become(last); w.String() != alone.String() {
				t.Fatalf("%s, by another way:\n%s\nwanted:\n%s", name, w, alone)
			}
			if len(w.wrong) > 0 {
				t.Fatalf("%s: steered to a host that was not ready: %q", name, w.wrong)
			}
		}
	}
}

// TestPathIndependence: whatever states the cluster went through, in whatever
// order, with a restart anywhere, the end depends on the last state only.
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
			for range 20 {
				shuffled := slices.Clone(way)
				r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				ways = append(ways, shuffled, shuffled[:r.IntN(len(shuffled))])
			}
			for _, way := range ways {
				for _, restarts := range []int{0, 1, 2} {
					w := newWorld()
					for _, st := range way {
						w.become(st)
						if restarts == 1 || restarts == 2 && r.IntN(2) == 0 {
							w.restart()
						}
					}
					w.become(last)
					if got := w.String(); got != alone.String() {
						t.Fatalf("by another way:\n%s\nwanted:\n%s", got, alone)
					}
					if len(w.wrong) > 0 {
						t.Fatalf("steered to a host that was not ready: %q", w.wrong)
					}
					w.become(last)
					if got := w.String(); got != alone.String() {
						t.Fatalf("not at rest:\n%s", got)
					}
				}
			}
		})
	}
}

// TestCordonedHost: a cordoned host is replaced when another node can take over, and
// continues until then. It gets no new EgressServices.
func TestCordonedHost(t *testing.T) {
	eg := egress("default", "demo-svc", onWorkers)
	w := newWorld()
	w.status["default/demo-svc"] = "ovn-worker2"
	for _, step := range []struct {
		what       string
		nodes      []place.Node
		host, left string
	}{
		{"the other one is dead", nodes(change{dead}, change{cordoned}), "ovn-worker2", ""},
		{"the other one just booted", nodes(change{unknown}, change{cordoned}), "ovn-worker2", ""},
		{"both are cordoned", nodes(change{cordoned}, change{cordoned}), "ovn-worker2", ""},
		{"the other one can", nodes(nil, change{cordoned}), "ovn-worker", "is cordoned"},
		{"it is not cordoned any more", allWell, "ovn-worker", ""},
		{"cordoned and no longer selected", nodes(change{cordoned, unlabelled}, change{dead}), "", "does not match nodeSelector"},
		{"nothing new on a cordoned node", nodes(change{cordoned}, change{dead}), "", ""},
	} {
		w.become(demo(step.nodes, eg))
		d := w.decisions["default/demo-svc"]
		if got := w.status["default/demo-svc"]; got != step.host || d.Left != step.left {
			t.Errorf("%s: host %q, left because %q, want %q and %q", step.what, got, d.Left, step.host, step.left)
		}
	}
}

// A restart knows only the statuses: nothing may move while facts are unknown.
func TestRestartKeepsHosts(t *testing.T) {
	eg := egress("default", "demo-svc", onWorkers)
	w := newWorld()
	w.become(demo(allWell, eg))
	before := w.String()
	w.restart()
	w.become(demo(nodes(change{unknown}, change{unknown}), eg))
	if got := w.String(); got != before {
		t.Errorf("before reachability is known:\n%s\nwanted:\n%s", got, before)
	}
	// Conversely, no node is chosen that is not proven alive.
	fresh := newWorld()
	fresh.become(demo(nodes(change{unknown}, change{unknown}), eg))
	if h := fresh.status["default/demo-svc"]; h != "" {
		t.Errorf("%s was chosen before it was known to be reachable", h)
	}
}

func TestLocalTrafficPolicyFollowsEndpoints(t *testing.T) {
	svc := service("default", "demo-svc", demoIngress, local)
	w := newWorld()
	for _, where := range []string{"ovn-worker", "ovn-worker2", "ovn-worker"} {
		w.become(with(slice("default", "demo-svc", "10.244.0.5@"+where), svc))
		if got := w.status["default/demo-svc"]; got != where {
			t.Errorf("endpoint on %s, host %q", where, got)
		}
	}
	// A host whose endpoints are not ready leaves only for a node that has a ready one.
	for _, step := range []struct{ endpoints, host, why string }{
		{"!10.244.0.5@ovn-worker", "ovn-worker", ""},
		{"!10.244.0.5@ovn-worker !10.244.1.9@ovn-worker2", "ovn-worker", ""},
		{"!10.244.0.5@ovn-worker 10.244.1.9@ovn-worker2", "ovn-worker2", ""},
		{"!10.244.0.5@ovn-worker", "", "ovn-worker2: has no endpoint, which externalTrafficPolicy Local demands; " +
			"ovn-worker: has no ready endpoint, which externalTrafficPolicy Local demands"},
		{"", "", "ovn-worker, ovn-worker2: has no endpoint, which externalTrafficPolicy Local demands"},
	} {
		w.become(with(slice("default", "demo-svc", strings.Fields(step.endpoints)...), svc))
		want := Refusal{}
		if step.why != "" {
			want = Refusal{NoNode, "no node can be the host: ovn-control-plane: does not match nodeSelector; " + step.why}
		}
		if got := w.decisions["default/demo-svc"]; got.Host != step.host || got.Refused != want {
			t.Errorf("%q: host %q, %+v, want %q, %+v", step.endpoints, got.Host, got.Refused, step.host, want)
		}
	}
}

func TestServicesSpreadOverNodes(t *testing.T) {
	st := state{nodes: allWell}
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		st.egress = append(st.egress, egress("default", name))
		st.services = append(st.services, service("default", name, []string{fmt.Sprintf("5.5.5.%d", i)}))
	}
	w := newWorld()
	w.become(st)
	load := map[string]int{}
	for _, h := range w.status {
		load[h]++
	}
	for _, n := range st.nodes {
		if load[n.Name] != 2 {
			t.Errorf("%d services on %s: %v", load[n.Name], n.Name, w.status)
		}
	}
}

// "a-b"/"c" and "a"/"b-c" would share a label: the older EgressService has it.
func TestOneLabelOneService(t *testing.T) {
	older := egress("a-b", "c")
	younger := egress("a", "b-c", func(e *v1.EgressService) {
		e.CreationTimestamp = metav1.Time{Time: older.CreationTimestamp.Add(time.Second)}
	})
	st := state{nodes: allWell, services: []*corev1.Service{
		service("a-b", "c", demoIngress), service("a", "b-c", demoIngress),
	}}
	for _, order := range [][]*v1.EgressService{{older, younger}, {younger, older}} {
		st.egress = order
		w := newWorld()
		w.become(st)
		if w.status["a-b/c"] == "" || w.status["a/b-c"] != "" || w.decisions["a/b-c"].Refused.Reason != LabelTaken {
			t.Errorf("%s", w)
		}
	}
	// The older one is deleted: the younger one gets it.
	w := newWorld()
	w.become(st)
	st.egress = []*v1.EgressService{younger}
	w.become(st)
	if w.status["a/b-c"] == "" {
		t.Errorf("%s", w)
	}
}

// A host without addresses of a family gets no traffic of that family; a family without
// an ingress address is left alone.
func TestFamilies(t *testing.T) {
	s := Decode(Snapshot{Egress: egress("default", "demo-svc"), Service: demoService,
		Pod: podsIn(demoSlice), Slices: []*discoveryv1.EndpointSlice{demoSlice}}, cluster)
	v4Only := Decision{Host: "n", NextHops: allWell[1].ManagementAddrs()[:1]}
	for _, addr := range Rerouted(s, v4Only) {
		if topology.FamilyOf(addr) != topology.IPv4 {
			t.Errorf("%s is steered to a host without IPv6", addr)
		}
	}
	if n := len(MasterRows(s, v4Only)); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	one := Decode(Snapshot{Egress: egress("default", "demo-svc"), Service: service("default", "demo-svc", []string{"5555::1"}),
		Pod: podsIn(demoSlice), Slices: []*discoveryv1.EndpointSlice{demoSlice}}, cluster)
	for _, e := range one.Endpoints {
		if topology.FamilyOf(e.Addr) != topology.IPv6 {
			t.Errorf("%s would leave with its own address", e.Addr)
		}
	}
}

func TestChains(t *testing.T) {
	var got []string
	for _, c := range Chains(topology.Families) {
		for _, j := range c.Jumps {
			got = append(got, fmt.Sprintf("%s %s %s%s -j %s", c.Family, c.Table, j.From, j.Match, c.Name))
		}
	}
	var want []string
	for _, f := range topology.Families {
		want = append(want, fmt.Sprintf("%s nat POSTROUTING -j OVN-KUBE-EGRESS-SVC", f), fmt.Sprintf("%s filter FORWARD -j OVN-KUBE-STRAY", f),
			fmt.Sprintf("%s filter INPUT -j OVN-KUBE-STRAY-INPUT", f), fmt.Sprintf("%s mangle PREROUTING -j OVN-KUBE-EGRESS-SVC-REPLY", f),
			fmt.Sprintf("%s mangle FORWARD -j OVN-KUBE-EGRESS-SVC-HAND-ON", f), fmt.Sprintf("%s mangle INPUT -j OVN-KUBE-EGRESS-SVC-HAND-ON", f))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLabelFollowsTheTraffic: the next host is labelled when it has the traffic, not
// before, and there is one label at any time.
func TestLabelFollowsTheTraffic(t *testing.T) {
	at := func(host, acked string, is metav1.ConditionStatus, reason string) *v1.EgressService {
		return egress("default", "demo-svc", func(e *v1.EgressService) {
			e.Status = v1.EgressServiceStatus{Host: host, Conditions: []metav1.Condition{condition(v1.ConditionProgrammed, is == metav1.ConditionTrue, reason, "")}}
			if acked != "" {
				e.Status.Programmed = &v1.ProgrammedStatus{Host: acked}
			}
		})
	}
	label := map[string]bool{"default-demo-svc": true}
	for _, c := range []struct {
		what string
		eg   *v1.EgressService
		now  []string
		want string
	}{
		{"new", at("a", "", metav1.ConditionFalse, ReasonWaitingForHost), nil, ""},
		{"served", at("a", "a", metav1.ConditionTrue, ReasonProgrammed), nil, "a"},
		{"without its network", at("a", "a", metav1.ConditionFalse, ReasonNetworkNotFound), nil, "a"},
		{"the next host is not ready", at("b", "a", metav1.ConditionFalse, ReasonWaitingForHost), []string{"a"}, "a"},
		{"the next host says it is ready", at("b", "b", metav1.ConditionFalse, ReasonWaitingForHost), []string{"a"}, "a"},
		{"the next host has the traffic", at("b", "b", metav1.ConditionTrue, ReasonProgrammed), []string{"a"}, "b"},
		{"somebody labelled another", at("b", "a", metav1.ConditionFalse, ReasonWaitingForHost), []string{"0", "a", "c"}, "a"},
		{"nobody serves", at("", "", metav1.ConditionFalse, ReasonNotAssigned), []string{"a"}, ""},
		{"every node", at(v1.HostAll, "", metav1.ConditionTrue, ReasonEveryNode), []string{"a"}, ""},
	} {
		now, want := map[string]map[string]bool{}, map[string]map[string]bool{}
		for _, n := range c.now {
			now[n] = label
		}
		if c.want != "" {
			want[c.want] = label
		}
		if got := Labels([]*v1.EgressService{c.eg}, now); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", c.what, got, want)
		}
	}
}

// TestConflict: if two EgressServices select a pod, the older one has it, the younger one
// reports this, and gets the pod when the older one is deleted.
func TestConflict(t *testing.T) {
	older, younger := egress("default", "older"), egress("default", "a-younger")
	younger.CreationTimestamp.Time = younger.CreationTimestamp.Add(time.Hour)
	st := state{nodes: allWell,
		services: []*corev1.Service{service("default", "older", []string{"5.5.5.5"}), service("default", "a-younger", []string{"6.6.6.6"})},
		slices: []*discoveryv1.EndpointSlice{slice("default", "older", "10.244.0.5", "10.244.0.6"),
			slice("default", "a-younger", "10.244.0.6", "10.244.0.7")}}
	for _, order := range [][]*v1.EgressService{{older, younger}, {younger, older}} {
		st.egress = order
		w := newWorld()
		w.become(st)
		golden.Check(t, "conflict", w.String())
	}
	w := newWorld()
	w.become(st)
	st.egress = []*v1.EgressService{younger}
	w.become(st)
	if n := len(w.rows["default/a-younger"]); n != 2 {
		t.Errorf("%d policies after the older went:\n%s", n, w)
	}
}

// TestClaims compares the answers of Claims after arbitrary changes with those
// after only the last state, and checks that all affected EgressServices are returned.
func TestClaims(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const keys, addrs = 6, 8
	now := map[string]Service{}
	claims := NewClaims()
	seen := map[string]string{}
	for step := range 2000 {
		key := string(rune('a' + r.IntN(keys)))
		s := Service{Key: key, Created: time.Unix(int64(r.IntN(3)), 0)}
		for i := range addrs {
			if r.IntN(3) == 0 {
				s.Endpoints = append(s.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(i)})})
			}
		}
		if r.IntN(5) == 0 {
			s.Refused, s.Endpoints = Refusal{NoService, "x"}, nil
		}
		now[key] = s
		others := claims.Set(s)
		alone := NewClaims()
		for _, s := range now {
			alone.Set(s)
		}
		for k, s := range now {
			got, want := claims.Resolve(s), alone.Resolve(s)
			if fmt.Sprint(got.Endpoints, got.Conflicts) != fmt.Sprint(want.Endpoints, want.Conflicts) {
				t.Fatalf("step %d, %s: %v %v, want %v %v", step, k, got.Endpoints, got.Conflicts, want.Endpoints, want.Conflicts)
			}
			state := fmt.Sprint(got.Endpoints, got.Conflicts)
			if k != key && seen[k] != state && !slices.Contains(others, k) {
				t.Fatalf("step %d: %s was not told", step, k)
			}
			seen[k] = state
		}
	}
}

// TestHeldBack: traffic for which the host is not ready is dropped if the user requests that, and
// once any traffic was served. Until then it leaves as before.
func TestHeldBack(t *testing.T) {
	d := Decision{Host: "ovn-worker2", NextHops: []netip.Addr{netip.MustParseAddr("10.244.2.2")}}
	for name, tc := range map[string]struct {
		s    Service
		want []string
	}{
		"never served":      {Service{}, nil},
		"the user wants it": {Service{DropWhenUnavailable: true}, []string{nbdb.LogicalRouterPolicyActionDrop}},
		"served by another": {Service{Ack: v1.ProgrammedStatus{Host: "ovn-worker", Digest: "x"}}, []string{nbdb.LogicalRouterPolicyActionDrop}},
		"by it, other pods": {Service{Ack: v1.ProgrammedStatus{Host: "ovn-worker2", Digest: "x"}}, []string{nbdb.LogicalRouterPolicyActionDrop}},
	} {
		tc.s.Key, tc.s.Host = "shop/checkout", d.Host
		tc.s.Endpoints = []Endpoint{{Addr: netip.MustParseAddr("10.244.1.4")}}
		var got []string
		for _, r := range Rows(tc.s, d, nil) {
			got = append(got, r.Model.(*nbdb.LogicalRouterPolicy).Action)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestFamilyWithoutHost: what the host cannot serve because it has no subnet of a family leaves by its own
// node only if nothing is held back.
func TestFamilyWithoutHost(t *testing.T) {
	d := Decision{Host: "ovn-worker2", NextHops: []netip.Addr{netip.MustParseAddr("10.244.2.2")}}
	pod, awaited, former := netip.MustParseAddr("fd00:10:244:1::4"), netip.MustParseAddr("fd00:10:244:1::5"), netip.MustParseAddr("fd00:10:244:3::2")
	acknowledged := func(s *Service) { s.Ack = v1.ProgrammedStatus{Host: d.Host, Digest: Digest(*s, d.Host)} }
	for _, c := range []struct {
		name   string
		change func(*Service)
		now    Steering
		want   map[netip.Addr][]string // next hops
	}{
		{"never served", func(*Service) {}, nil, map[netip.Addr][]string{}},
		{"the user wants it", func(s *Service) { s.DropWhenUnavailable = true }, nil, map[netip.Addr][]string{pod: nil, awaited: nil}},
		{"by another host until this one is ready", func(s *Service) { s.Ack = v1.ProgrammedStatus{Host: "ovn-worker3", Digest: "x"} },
			Steering{pod: former}, map[netip.Addr][]string{pod: {former.String()}, awaited: nil}},
		{"by another host before", acknowledged, Steering{pod: former}, map[netip.Addr][]string{pod: nil, awaited: nil}},
	} {
		s := Service{Key: "shop/checkout", Host: d.Host, Endpoints: []Endpoint{{Addr: pod}}, Awaited: []netip.Addr{awaited}}
		c.change(&s)
		got := map[netip.Addr][]string{}
		for _, r := range Rows(s, d, c.now) {
			got[netip.MustParseAddr(r.ID)] = r.Model.(*nbdb.LogicalRouterPolicy).Nexthops
		}
		if !maps.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestRefusedIsNotTranslated: the status still names a host until the master has processed the refusal.
func TestRefusedIsNotTranslated(t *testing.T) {
	s := Service{Key: "shop/checkout", Host: "ovn-worker", Ingress: []netip.Addr{netip.MustParseAddr("5.5.5.5")},
		Endpoints: []Endpoint{{Addr: netip.MustParseAddr("10.244.1.4")}}}
	if len(NodeState(s, "ovn-worker")) != 1 {
		t.Fatal("the endpoint of a Service that is served is not translated")
	}
	s.Refused = Refusal{Reason: NoIngress}
	if got := NodeState(s, "ovn-worker"); len(got) > 0 {
		t.Errorf("that of a refused one is: %v", got)
	}
}
