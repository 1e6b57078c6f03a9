package externalroute

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// condition returns a condition of a policy.
func (s state) condition(t *testing.T, name, kind string) metav1.Condition {
	t.Helper()
	status := Status(s.decide().Policies[name], Served{}, v1.AdminPolicyBasedExternalRouteStatus{})
	i := slices.IndexFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		t.Fatalf("policy %s has no condition %s: %+v", name, kind, status)
	}
	return status.Conditions[i]
}

// nextHops returns the next hops of a pod's routes on a node.
func (s state) nextHops(node int, pod string) []string {
	var hops []string
	for _, r := range NodeRows(s.cfg, s.decide(), NodeSnapshot{Node: testNode(node, s.mode), Pods: s.pods}) {
		if route, ok := r.Model.(*nbdb.LogicalRouterStaticRoute); ok && strings.HasPrefix(route.IPPrefix, pod+"/") {
			hops = append(hops, route.Nexthop)
		}
	}
	slices.Sort(hops)
	return hops
}

// only makes the cluster single-stack.
func only(f topology.Family) func(*state) {
	return func(s *state) {
		s.cfg.Cluster = slices.DeleteFunc(slices.Clone(s.cfg.Cluster), func(p netip.Prefix) bool {
			return topology.FamilyOf(p.Addr()) != f
		})
	}
}

// TestBadInput combines each bad hop with a good one: the condition describes the
// problem, and the good one is used.
func TestBadInput(t *testing.T) {
	const good, good6 = "172.18.0.51", "fc00::51"
	selectors := func(change func(*v1.DynamicHop)) v1.DynamicHop {
		h := dynamic("net1")
		change(&h)
		return h
	}
	invalid := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	for _, c := range []struct {
		name    string
		hop     any
		reason  string
		message string
		with    []func(*state)
	}{
		{"unspecified", static("0.0.0.0"), v1.ReasonInvalidHop, "an unspecified address", nil},
		{"unspecified IPv6", static("::"), v1.ReasonInvalidHop, "an unspecified address", nil},
		{"mapped unspecified", static("::ffff:0.0.0.0"), v1.ReasonInvalidHop, "an unspecified address", nil},
		{"multicast", static("224.0.0.5"), v1.ReasonInvalidHop, "a multicast", nil},
		{"multicast IPv6", static("ff02::5"), v1.ReasonInvalidHop, "a multicast", nil},
		{"broadcast", static("255.255.255.255"), v1.ReasonInvalidHop, "the broadcast address", nil},
		{"no host's", static("0.1.2.3"), v1.ReasonInvalidHop, "static hop 3 (0.1.2.3): is an unspecified address", nil},
		{"network", static("172.18.0.0"), v1.ReasonInvalidHop, "static hop 3 (172.18.0.0): is the network or broadcast address of 172.18.0.0/16", nil},
		{"broadcast of a network", static("172.18.255.255"), v1.ReasonInvalidHop, "(172.18.255.255): is the network or broadcast address of 172.18.0.0/16", nil},
		{"all routers", static("fc00::"), v1.ReasonInvalidHop, "(fc00::): is the network or broadcast address of fc00::/64", nil},
		{"network of the second uplink", static("192.168.50.255"), v1.ReasonInvalidHop, "network or broadcast address of 192.168.50.0/24", []func(*state){secondUplink}},
		{"all routers of the second uplink", static("fd00:50::"), v1.ReasonInvalidHop, "network or broadcast address of fd00:50::/64", []func(*state){secondUplink}},
		{"loopback", static("127.0.0.1"), v1.ReasonInvalidHop, "a loopback", nil},
		{"link-local", static("fe80::1"), v1.ReasonInvalidHop, "a link-local", nil},
		{"with a zone", static("fe80::1%eth0"), v1.ReasonInvalidHop, "a zone", nil},
		{"pod", static("10.244.1.5"), v1.ReasonInvalidHop, "the pod network 10.244.0.0/16", nil},
		{"pod IPv6", static("fd00:10:244:1::5"), v1.ReasonInvalidHop, "the pod network", nil},
		{"service", static("10.96.0.1"), v1.ReasonInvalidHop, "the cluster uses itself", nil},
		{"join", static("100.64.0.3"), v1.ReasonInvalidHop, "the cluster uses itself", nil},
		{"IPv6 in a cluster without", static(good6), v1.ReasonInvalidHop, "no pod of this cluster has an IPv6", []func(*state){only(topology.IPv4)}},
		{"IPv4 in a cluster without", static(good), v1.ReasonInvalidHop, "no pod of this cluster has an IPv4", []func(*state){only(topology.IPv6)}},
		{"no address", static("gateway.example"), v1.ReasonInvalidHop, "is not an IP address", nil},
		{"subnet", static("172.18.0.0/16"), v1.ReasonInvalidHop, "is not an IP address", nil},
		{"empty", static(""), v1.ReasonInvalidHop, "is not an IP address", nil},
		{"selects nothing", dynamic("net1"), v1.ReasonNoGatewayPod, "selects no pod", nil},
		{"selects a pod that is not ready", dynamic("net1"), v1.ReasonNoGatewayPod, "selects no pod", []func(*state){
			gateway("g", func(p *GatewayPod) { attached("gw/net1", "172.18.0.61")(p); p.Ready = false })}},
		{"network-status does not parse", dynamic("net1"), v1.ReasonInvalidHop, "pod gw/g: its network-status does not parse: bad", []func(*state){
			gateway("g", func(p *GatewayPod) { p.NetworksErr = "bad" })}},
		{"not attached", dynamic("net1"), v1.ReasonInvalidHop, "has no network net1", []func(*state){gateway("g", attached("gw/net2", "172.18.0.61"))}},
		{"attached without address", dynamic("net1"), v1.ReasonInvalidHop, "no address on network net1", []func(*state){gateway("g", attached("gw/net1"))}},
		{"attached with a bad address", dynamic("net1"), v1.ReasonInvalidHop, "pod gw/g (224.0.0.1): is a multicast", []func(*state){
			gateway("g", attached("gw/net1", "224.0.0.1"))}},
		{"attached with an invalid address", dynamic("net1"), v1.ReasonInvalidHop, `pod gw/g ("nowhere"): is not an IP`, []func(*state){
			gateway("g", func(p *GatewayPod) { p.Networks = []topology.Attachment{{Name: "gw/net1", Bad: []string{"nowhere"}}} })}},
		{"not on the host's network", dynamic(""), v1.ReasonInvalidHop, "is not on the host's network", []func(*state){gateway("g", func(*GatewayPod) {})}},
		{"host without address", dynamic(""), v1.ReasonInvalidHop, "not known yet", []func(*state){gateway("g", onHost())}},
		{"namespaceSelector", selectors(func(h *v1.DynamicHop) { h.NamespaceSelector = invalid }), v1.ReasonInvalidSelector, "namespaceSelector is not valid", nil},
		{"podSelector", selectors(func(h *v1.DynamicHop) { h.PodSelector = invalid }), v1.ReasonInvalidSelector, "podSelector is not valid", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dual(topology.GatewayShared, append(c.with, policy("p", 1, onlyRed, static(good), static(good6), c.hop))...)
			if got := s.condition(t, "p", v1.ConditionReady); got.Status != metav1.ConditionTrue {
				t.Errorf("condition %+v", got)
			}
			if got := s.condition(t, "p", v1.ConditionHopsValid); got.Status != metav1.ConditionFalse ||
				got.Reason != c.reason || !strings.Contains(got.Message, c.message) {
				t.Errorf("condition %+v, want reason %s and in the message %q", got, c.reason, c.message)
			}
			for pod, hop := range map[string]string{"10.244.0.5": good, "fd00:10:244:1::5": good6} {
				want := []string{hop}
				if !slices.Contains(s.cfg.families(), topology.FamilyOf(netip.MustParseAddr(pod))) {
					want = nil
				}
				if got := s.nextHops(0, pod); !slices.Equal(got, want) {
					t.Errorf("pod %s uses %v, want %v", pod, got, want)
				}
			}
		})
	}
}

// TestAddressOfNode: the address of a node is a gateway for the pods of others.
func TestAddressOfNode(t *testing.T) {
	for _, hop := range []struct {
		name string
		with []func(*state)
		hop  any
	}{
		{"static", nil, static("172.18.0.4")},
		{"dynamic", []func(*state){gateway("g", onHost("172.18.0.4", "fc00::4"))}, dynamic("")},
	} {
		t.Run(hop.name, func(t *testing.T) {
			s := dual(topology.GatewayShared, append(hop.with, policy("p", 1, onlyRed, static("172.18.0.51"), hop.hop))...)
			s.pods = s.pods[:2]
			if got := s.nextHops(0, "10.244.0.5"); !slices.Equal(got, []string{"172.18.0.4", "172.18.0.51"}) {
				t.Errorf("a pod of another node uses %v", got)
			}
			if got := s.nextHops(1, "10.244.1.5"); !slices.Equal(got, []string{"172.18.0.51"}) {
				t.Errorf("a pod of the node itself uses %v", got)
			}
			c := s.condition(t, "p", v1.ConditionHopsValid)
			if told := c.Reason == v1.ReasonInvalidHop && strings.Contains(c.Message, "is the address of node ovn-worker2"); told != (hop.name == "static") {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

// TestAddressOfNodeAnnotated: the message for the namespace says that pods of the node cannot use it.
func TestAddressOfNodeAnnotated(t *testing.T) {
	for _, addr := range []string{"172.18.0.4", "fc00::4"} {
		s := dual(topology.GatewayShared, annotated("red", false, addr))
		plan := s.decide()
		if len(usedBy(plan, "red")) != 1 {
			t.Errorf("%s is used by %v", addr, usedBy(plan, "red"))
		}
		want := "annotation k8s.ovn.org/routing-external-gws: " + addr + " is the address of node ovn-worker2, whose own pods cannot use it"
		if got := plan.Refused["red"]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: the namespace is told %q", addr, got)
		}
	}
}

// TestSelectorsOfNamespaces: a policy that selects nothing, or whose selector
// is not valid, reports this and does not keep others from working.
func TestSelectorsOfNamespaces(t *testing.T) {
	bad := policy("bad", 2, nil, static("172.18.0.59"))
	s := dual(topology.GatewayShared, bad, policy("none", 3, map[string]string{"color": "green"}, static("172.18.0.58")),
		policy("p", 1, onlyRed, static("172.18.0.51")))
	s.policies[0].Spec.From.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	for name, reason := range map[string]string{"bad": v1.ReasonInvalidSelector, "none": v1.ReasonNoNamespace} {
		if c := s.condition(t, name, v1.ConditionReady); c.Status != metav1.ConditionFalse || c.Reason != reason || c.Message == "" {
			t.Errorf("%s: condition %+v", name, c)
		}
	}
	if got := s.nextHops(0, "10.244.0.5"); !slices.Equal(got, []string{"172.18.0.51"}) {
		t.Errorf("the pod uses %v", got)
	}
}

// TestTimersOfTwoPolicies: one session, with the timers of the older policy, whatever
// namespaces the two select; the younger one reports which policy decides.
func TestTimersOfTwoPolicies(t *testing.T) {
	blue := map[string]string{"color": "blue"}
	for _, c := range []struct {
		name           string
		older, younger v1.StaticHop
		conflict       bool
		want           Timers
	}{
		{"two timers", static("172.18.0.51", timers(100, 200, 3)), static("172.18.0.51", timers(500, 500, 5)), true, Timers{100, 200, 3}},
		{"timers and defaults", static("172.18.0.51", bfd), static("172.18.0.51", timers(500, 500, 5)), true, Timers{}},
		{"the same", static("172.18.0.51", timers(100, 200, 3)), static("172.18.0.51", timers(100, 200, 3)), false, Timers{100, 200, 3}},
		{"older without BFD", static("172.18.0.51"), static("172.18.0.51", timers(500, 500, 5)), false, Timers{500, 500, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dual(topology.GatewayShared, policy("z-older", 2, onlyRed, c.older), policy("a-younger", 1, blue, c.younger))
			var sessions []Timers
			for _, r := range NodeRows(s.cfg, s.decide(), NodeSnapshot{Node: testNode(0, s.mode), Pods: s.pods}) {
				if m, ok := r.Model.(*nbdb.BFD); ok {
					value := func(p *int) int {
						if p == nil {
							return 0
						}
						return *p
					}
					sessions = append(sessions, Timers{value(m.MinRx), value(m.MinTx), value(m.DetectMult)})
				}
			}
			if !slices.Equal(sessions, []Timers{c.want}) {
				t.Errorf("sessions %+v, want one of %+v", sessions, c.want)
			}
			if got := s.condition(t, "z-older", v1.ConditionConflict); got.Status != metav1.ConditionFalse {
				t.Errorf("the older one: %+v", got)
			}
			got := s.condition(t, "a-younger", v1.ConditionConflict)
			if (got.Status == metav1.ConditionTrue) != c.conflict {
				t.Errorf("the younger one: %+v", got)
			}
			former := s.condition(t, "a-younger", conditions.FormerConflict)
			if former.Type = got.Type; former != got {
				t.Errorf("under its former name %+v, want %+v", former, got)
			}
			if c.conflict && (got.Reason != v1.ReasonDifferentOptions || !strings.Contains(got.Message, "the older policy z-older decides about the BFD timers")) {
				t.Errorf("the younger one: %+v", got)
			}
		})
	}
}
