package egressservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/nbshow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// cluster is the dual-stack cluster of the documentation.
var cluster = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}

const worker = "node-role.kubernetes.io/worker"

// node returns the nodes of the documentation: the number is that of the pod subnets.
func node(name string, number int, change ...func(*place.Node)) place.Node {
	n := place.Node{Reach: place.Alive, Node: topology.Node{
		Name: name, Ready: true, Labels: map[string]string{},
		Subnets: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", number)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", number+1)),
		},
	}}
	if name != "ovn-control-plane" {
		n.Labels[worker] = ""
	}
	for _, f := range change {
		f(&n)
	}
	return n
}

func dead(n *place.Node)       { n.Reach = place.Dead }
func unknown(n *place.Node)    { n.Reach = place.Unknown }
func notReady(n *place.Node)   { n.Ready = false }
func cordoned(n *place.Node)   { n.Unschedulable = true }
func unlabelled(n *place.Node) { delete(n.Labels, worker) }

func nodes(worker1, worker2 []func(*place.Node)) []place.Node {
	return []place.Node{
		node("ovn-control-plane", 2), node("ovn-worker", 0, worker1...), node("ovn-worker2", 1, worker2...),
	}
}

var allWell = nodes(nil, nil)

// state is the complete state in the API and the health tracker at one time.
type state struct {
	nodes    []place.Node
	egress   []*v1.EgressService
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	selected []string // addresses of pods that every Service selects
}

func egress(namespace, name string, change ...func(*v1.EgressService)) *v1.EgressService {
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + name),
		CreationTimestamp: metav1.Time{Time: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)},
	}}
	for _, f := range change {
		f(eg)
	}
	return eg
}

func onWorkers(eg *v1.EgressService) {
	eg.Spec.NodeSelector.MatchLabels = map[string]string{worker: ""}
}

func service(namespace, name string, ingress []string, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, ip := range ingress {
		in := corev1.LoadBalancerIngress{IP: ip}
		if strings.HasSuffix(ip, ".example.com") {
			in = corev1.LoadBalancerIngress{Hostname: ip}
		}
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, in)
	}
	for _, f := range change {
		f(svc)
	}
	return svc
}

func local(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// slice creates an EndpointSlice; endpoints are "address" or "address@node", with
// the prefix "!" for those not ready and "~" for those terminating but serving.
func slice(namespace, name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
	yes, no := true, false
	for _, e := range endpoints {
		ep := discoveryv1.Endpoint{}
		switch {
		case strings.HasPrefix(e, "!"):
			ep.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
		case strings.HasPrefix(e, "~"):
			ep.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
		addr, where, ok := strings.Cut(strings.TrimLeft(e, "!~"), "@")
		if ok {
			ep.NodeName = &where
		}
		ep.Addresses = []string{addr}
		s.Endpoints = append(s.Endpoints, ep)
	}
	return s
}

// podsIn returns a pod for every address of the slices, on the node they name.
func podsIn(slices ...*discoveryv1.EndpointSlice) func(netip.Addr) (string, bool) {
	nodes := map[netip.Addr]string{}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				a, ok := parseAddr(text)
				if node := nodes[a]; ok && node == "" && e.NodeName != nil {
					nodes[a] = *e.NodeName
				} else if ok {
					nodes[a] = node
				}
			}
		}
	}
	return func(a netip.Addr) (string, bool) {
		node, ok := nodes[a]
		return node, ok
	}
}

var (
	demoIngress   = []string{"5.5.5.5", "5555:5555:5555:5555:5555:5555:5555:5555"}
	demoEndpoints = []string{"10.244.0.5@ovn-worker", "10.244.2.7@ovn-control-plane",
		"fd00:10:244:1::5@ovn-worker", "fd00:10:244:3::7@ovn-control-plane"}
	demoService = service("default", "demo-svc", demoIngress)
	demoSlice   = slice("default", "demo-svc", demoEndpoints...)
)

// demo returns the walk-through's Service, with or without an EgressService.
func demo(nodes []place.Node, eg ...*v1.EgressService) state {
	return state{nodes: nodes, egress: eg, services: []*corev1.Service{demoService},
		slices: []*discoveryv1.EndpointSlice{demoSlice}}
}

// world follows states like master and nodes do. Its memory is the statuses, and
// the last decisions of placement as long as the master is not restarted.
type world struct {
	status map[string]string
	acks   map[string]v1.ProgrammedStatus
	// wrong lists policies that led to a host before it had its rules.
	wrong     []string
	decisions map[string]Decision
	rows      map[string][]nb.Row
	services  map[string]Service
	nodes     []string
}

func newWorld() *world {
	return &world{status: map[string]string{}, acks: map[string]v1.ProgrammedStatus{}}
}

// restart forgets everything except the statuses and the policies, which the API server and
// the database keep.
func (w *world) restart() { w.decisions, w.services = nil, nil }

func (w *world) decode(st state) []Service {
	var out []Service
	for _, eg := range st.egress {
		eg = eg.DeepCopy()
		key := eg.Namespace + "/" + eg.Name
		eg.Status.Host = w.status[key]
		if ack, ok := w.acks[key]; ok {
			eg.Status.Programmed = &ack
		}
		snap := Snapshot{Egress: eg, Pod: podsIn(st.slices...)}
		for _, a := range st.selected {
			snap.Selected = append(snap.Selected, netip.MustParseAddr(a))
		}
		for _, s := range st.services {
			if s.Namespace+"/"+s.Name == key {
				snap.Service = s
			}
		}
		for _, s := range st.slices {
			if s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName] == key {
				snap.Slices = append(snap.Slices, s)
			}
		}
		out = append(out, Decode(snap, cluster))
	}
	claims := NewClaims()
	for _, s := range out {
		claims.Set(s)
	}
	for i, s := range out {
		out[i] = claims.Resolve(s)
	}
	return out
}

// become changes the world to a state.
func (w *world) become(st state) {
	w.nodes = nil
	for _, n := range st.nodes {
		w.nodes = append(w.nodes, n.Name)
	}
	services := w.decode(st)
	for i, s := range services {
		if d, ok := w.decisions[s.Key]; ok {
			services[i].Host = d.Host
		}
	}
	w.decisions = Decide(st.nodes, services)
	before := w.rows
	w.rows, w.services = map[string][]nb.Row{}, map[string]Service{}
	status := map[string]string{}
	for _, s := range services {
		d := w.decisions[s.Key]
		status[s.Key] = Status(s, d)
		if status[s.Key] == "" || status[s.Key] == v1.HostAll {
			delete(w.acks, s.Key)
		}
		w.rows[s.Key] = Rows(s, d, SteeringOf(before[s.Key]))
		w.check(s, before[s.Key])
	}
	w.status = status
	for _, s := range w.decode(st) { // the nodes see the statuses and act
		w.services[s.Key] = s
		if s.Host != "" && s.Host != v1.HostAll {
			w.acks[s.Key] = Acknowledgement(s, s.Host)
		}
	}
	for _, s := range w.decode(st) { // and the master sees their reports
		w.services[s.Key] = s
		w.rows[s.Key] = Rows(s, w.decisions[s.Key], SteeringOf(w.rows[s.Key]))
	}
}

// check records new policies whose host has not acknowledged.
func (w *world) check(s Service, before []nb.Row) {
	was := SteeringOf(before)
	for addr, hop := range SteeringOf(w.rows[s.Key]) {
		if hop.IsValid() && was[addr] != hop && !Acknowledged(s, w.decisions[s.Key]) {
			w.wrong = append(w.wrong, s.Key+": "+addr.String())
		}
	}
}

// ipRules shows the ip rules of a node; every network is table 7.
func (w *world) ipRules(out *strings.Builder, node string) {
	var lines []string
	for _, s := range w.services {
		for r := range IPRules(s, node, host.RoutingTable{Number: 7}, nil, nil) {
			if r.Mark != 0 {
				lines = append(lines, fmt.Sprintf("%d:\tfrom all fwmark %#x lookup main\n", r.Priority, r.Mark))
				continue
			}
			lines = append(lines, fmt.Sprintf("%d:\tfrom %s lookup %s\n", r.Priority, r.Src.Addr(), s.Network))
		}
	}
	if slices.Sort(lines); len(lines) > 0 {
		fmt.Fprintf(out, "\n%s$ ip rule list\n%s", node, strings.Join(lines, ""))
	}
}

// String describes what a user would see: statuses, policies, rules and labels.
func (w *world) String() string {
	var out strings.Builder
	var rows []nb.Row
	for _, key := range slices.Sorted(maps.Keys(w.services)) {
		fmt.Fprintf(&out, "$ kubectl get egressservice %s\nHost: %s\n", key, cmp.Or(w.status[key], "-"))
		for _, c := range Conditions(w.services[key], w.decisions[key]) {
			if !conditions.Known(conditions.EgressService, c) {
				fmt.Fprintf(&out, "not in the vocabulary: ")
			}
			fmt.Fprintf(&out, "%s: %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
		rows = append(rows, w.rows[key]...)
	}
	out.WriteString("\n$ ovn-nbctl lr-policy-list ovn_cluster_router\n" + nbshow.PolicyList(rows))
	for _, n := range w.nodes {
		for _, f := range topology.Families {
			command := map[topology.Family]string{topology.IPv4: "iptables-save", topology.IPv6: "ip6tables-save"}[f]
			var lines []string
			for _, chain := range []host.ChainKey{chainKey(f), strayKey(f), strayInputKey(f)} {
				for _, key := range slices.Sorted(maps.Keys(w.services)) {
					for _, r := range NodeState(w.services[key], n).Rules(key)[chain] {
						if line := fmt.Sprintf("-A %s %s", chain.Name, r); !slices.Contains(lines, line) {
							lines = append(lines, line)
						}
					}
				}
			}
			if len(lines) > 0 {
				fmt.Fprintf(&out, "\n%s$ %s\n%s\n", n, command, strings.Join(lines, "\n"))
			}
		}
		w.ipRules(&out, n)
	}
	var objs []*v1.EgressService
	for _, s := range w.services {
		objs = append(objs, &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
			Status: v1.EgressServiceStatus{Host: s.Host, Conditions: Conditions(s, w.decisions[s.Key])}})
	}
	labels := Labels(objs, nil)
	for _, n := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&out, "\n$ kubectl get node %s --show-labels\n", n)
		for _, l := range slices.Sorted(maps.Keys(labels[n])) {
			fmt.Fprintf(&out, "egress-service.k8s.ovn.org/%s=\n", l)
		}
	}
	return out.String()
}
