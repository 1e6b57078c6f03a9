package externalroute

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// state is the complete input of the planner.
type state struct {
	cfg        Config
	second     bool // nodes have a second uplink
	mode       topology.GatewayMode
	policies   []*v1.AdminPolicyBasedExternalRoute
	namespaces []Namespace
	announced  []GatewayPod
	gateways   map[string][]GatewayPod // by namespace
	rerouted   []string
	translated []string // by EgressIPs, on the pods' own nodes
	up         []string // hops whose sessions are up, if monitored
	watched    bool
	ending     []string // hops whose former sessions are ending
	pods       []Pod    // pod i runs on node i%2
}

// dual is a dual-stack cluster of two nodes, with three namespaces: "red" and
// "blue" with two pods each, one per node, and "gw" for gateway pods.
func dual(mode topology.GatewayMode, change ...func(*state)) state {
	s := state{
		cfg: Config{
			Cluster:  prefixes("10.244.0.0/16", "fd00:10:244::/48"),
			Internal: prefixes("10.96.0.0/16", "100.64.0.0/16", "fd98::/64"),
		},
		mode: mode,
		namespaces: []Namespace{
			{Name: "blue", Labels: map[string]string{"color": "blue", "gws": "true"}},
			{Name: "gw", Labels: map[string]string{"gateway": "true"}},
			{Name: "red", Labels: map[string]string{"color": "red", "gws": "true"}},
		},
		gateways: map[string][]GatewayPod{},
		pods: []Pod{
			{Key: "red/a", Namespace: "red", Addrs: addrs("10.244.0.5", "fd00:10:244:1::5")},
			{Key: "red/b", Namespace: "red", Addrs: addrs("10.244.1.5", "fd00:10:244:2::5")},
			{Key: "blue/a", Namespace: "blue", Addrs: addrs("10.244.0.6", "fd00:10:244:1::6")},
			{Key: "blue/b", Namespace: "blue", Addrs: addrs("10.244.1.6", "fd00:10:244:2::6")},
		},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func testNode(i int, mode topology.GatewayMode) topology.Node {
	return topology.Node{
		Name:    []string{"ovn-worker", "ovn-worker2"}[i],
		Chassis: "c", Subnets: prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1)),
		Join: prefixes(fmt.Sprintf("100.64.0.%d/16", i+3), fmt.Sprintf("fd98::%d/64", i+3)),
		Gateway: topology.Gateway{Mode: mode, InterfaceID: "breth0_n", MAC: "02:42:ac:12:00:03", NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1")},
			Addrs: prefixes(fmt.Sprintf("172.18.0.%d/16", i+3), fmt.Sprintf("fc00::%d/64", i+3))},
	}
}

func (s state) node(i int) topology.Node {
	n := testNode(i, s.mode)
	if s.second {
		n.Gateway.External = topology.ExternalAttachment{InterfaceID: "breth1_" + n.Name, MAC: "02:42:c0:a8:32:03",
			Addrs: prefixes(fmt.Sprintf("192.168.50.%d/24", i+3), fmt.Sprintf("fd00:50::%d/64", i+3))}
	}
	return n
}

// policy adds a policy that is age hours older than a fixed time.
func policy(name string, age int, selects map[string]string, hops ...any) func(*state) {
	p := &v1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour)),
	}}
	p.Spec.From.NamespaceSelector.MatchLabels = selects
	for _, h := range hops {
		switch h := h.(type) {
		case v1.StaticHop:
			p.Spec.NextHops.Static = append(p.Spec.NextHops.Static, h)
		case v1.DynamicHop:
			p.Spec.NextHops.Dynamic = append(p.Spec.NextHops.Dynamic, h)
		}
	}
	return func(s *state) { s.policies = append(s.policies, p) }
}

func static(ip string, options ...func(*v1.HopOptions)) v1.StaticHop {
	h := v1.StaticHop{IP: ip}
	for _, o := range options {
		o(&h.HopOptions)
	}
	return h
}

func dynamic(network string, options ...func(*v1.HopOptions)) v1.DynamicHop {
	h := v1.DynamicHop{NetworkAttachmentName: network,
		PodSelector:       metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
		NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"gateway": "true"}}}
	for _, o := range options {
		o(&h.HopOptions)
	}
	return h
}

func bfd(o *v1.HopOptions)  { o.BFDEnabled = true }
func skip(o *v1.HopOptions) { o.SkipHostSNAT = true }
func timers(rx, tx, mult int32) func(*v1.HopOptions) {
	return func(o *v1.HopOptions) {
		o.BFDEnabled, o.BFD = true, &v1.BFDTimers{MinRx: &rx, MinTx: &tx, Multiplier: &mult}
	}
}

// gateway adds a gateway pod to namespace gw.
func gateway(name string, change func(*GatewayPod)) func(*state) {
	return func(s *state) {
		p := GatewayPod{Key: "gw/" + name, Labels: map[string]string{"app": "gw"}, Ready: true}
		change(&p)
		s.gateways["gw"] = append(s.gateways["gw"], p)
		if len(p.Routing) > 0 {
			s.announced = append(s.announced, p)
		}
	}
}

var (
	gws     = map[string]string{"gws": "true"}
	onlyRed = map[string]string{"color": "red"}
)

func secondUplink(s *state) { s.second = true }

func disableSNAT(s *state) { s.cfg.DisableSNATMultipleGWs = true }

func annotated(namespace string, bfd bool, gateways ...string) func(*state) {
	return func(s *state) {
		for i := range s.namespaces {
			if s.namespaces[i].Name == namespace {
				s.namespaces[i].Static, s.namespaces[i].BFD = addrs(gateways...), bfd
			}
		}
	}
}

func (s state) decide() Plan {
	snap := Snapshot{Policies: s.policies, Namespaces: s.namespaces, Announced: s.announced,
		Pods:      func(ns string) []GatewayPod { return s.gateways[ns] },
		NodeAddrs: map[string][]netip.Addr{}}
	for i := range 2 {
		n := s.node(i)
		snap.NodeAddrs[n.Name] = NodeAddrs(n)
		snap.Networks = append(snap.Networks, Networks(n)...)
	}
	return Decide(s.cfg, snap)
}

// apply writes a state's rows and returns the number of transactions.
func (s state) apply(t *testing.T, w *nbfake.Writer) int {
	t.Helper()
	var others []nb.Row
	for _, a := range s.translated {
		others = append(others, nb.Row{ID: a, Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter(s.node(0).Name)},
			Model: &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.33", LogicalIP: a}})
	}
	if _, err := w.Apply(context.Background(), nb.Owner{Feature: "egressip"}, others); err != nil {
		t.Fatal(err)
	}
	plan, before := s.decide(), w.Writes()
	for i := range 2 {
		snap := NodeSnapshot{Node: s.node(i), Rerouted: map[netip.Addr]bool{}}
		for j, p := range s.pods {
			if j%2 == i {
				snap.Pods = append(snap.Pods, p)
			}
		}
		if s.watched {
			snap.Up = map[netip.Addr]bool{}
			for _, a := range addrs(s.up...) {
				snap.Up[a] = true
			}
		}
		for _, a := range addrs(s.rerouted...) {
			snap.Rerouted[a] = true
		}
		snap.Ending = map[netip.Addr]bool{}
		for _, a := range addrs(s.ending...) {
			snap.Ending[a] = true
		}
		if _, err := w.Apply(context.Background(), Owner(snap.Node.Name), NodeRows(s.cfg, plan, snap)); err != nil {
			t.Fatal(err)
		}
	}
	return w.Writes() - before
}

// text renders the rows and the conditions of a state.
func (s state) text(t *testing.T) string {
	w := nbfake.New()
	w.AnyParent = true
	s.apply(t, w)
	var b strings.Builder
	b.WriteString(w.DumpFeature(Feature))
	plan := s.decide()
	for _, name := range slices.Sorted(maps.Keys(plan.Policies)) {
		status := Status(plan.Policies[name], Served{Pods: 4}, v1.AdminPolicyBasedExternalRouteStatus{})
		fmt.Fprintf(&b, "policy %s: %d namespaces, %d pods\n", name, status.Namespaces, status.Pods)
		for _, h := range status.Hops {
			fmt.Fprintf(&b, "  hop %+v\n", h)
		}
		for _, c := range status.Conditions {
			if !conditions.Known(conditions.AdminPolicyBasedExternalRoute, c) {
				t.Errorf("policy %s: condition %+v is not in the vocabulary", name, c)
			}
			fmt.Fprintf(&b, "  %s %s %s: %s\n", c.Type, c.Status, c.Reason, strings.ReplaceAll(c.Message, "; ", "\n    "))
		}
	}
	return b.String()
}

// shuffled returns a state with everything in a different order.
func (s state) shuffled(rng *rand.Rand) state {
	mix := func(n int, swap func(i, j int)) { rng.Shuffle(n, swap) }
	s.policies, s.namespaces = slices.Clone(s.policies), slices.Clone(s.namespaces)
	mix(len(s.policies), func(i, j int) { s.policies[i], s.policies[j] = s.policies[j], s.policies[i] })
	mix(len(s.namespaces), func(i, j int) { s.namespaces[i], s.namespaces[j] = s.namespaces[j], s.namespaces[i] })
	gateways := map[string][]GatewayPod{}
	for ns, pods := range s.gateways {
		pods = slices.Clone(pods)
		mix(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		gateways[ns] = pods
	}
	s.gateways = gateways
	return s
}
