package service_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func decode(t *testing.T, s *corev1.Service, slices ...*discoveryv1.EndpointSlice) service.Service {
	t.Helper()
	d, ok := service.Decode(service.Snapshot{Service: s, Slices: slices, Pod: func(netip.Addr) (own, led bool) { return true, true }}, config)
	if !ok {
		t.Fatal("not ours")
	}
	return d
}

// TestRepliesOfOthers: listing the pods of another namespace does not influence their
// egress.
func TestRepliesOfOthers(t *testing.T) {
	s := object(loadBalancer, externalLocal)
	listed := slice(ep("n1", "10.244.1.3"), ep("n2", "10.244.2.3"))
	for _, own := range []func(netip.Addr) (own, led bool){nil, func(a netip.Addr) (own, led bool) { return a.String() == "10.244.1.3", a.String() == "10.244.1.3" }} {
		d, _ := service.Decode(service.Snapshot{Service: s, Slices: []*discoveryv1.EndpointSlice{listed}, Pod: own}, config)
		var matches []string
		for _, r := range service.MasterRows(d, config, facts(cluster(topology.GatewayShared))) {
			if p, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok && p.Priority == topology.PriorityServicePort {
				matches = append(matches, p.Match)
			}
		}
		var want []string
		if own != nil {
			want = []string{"ip4.src == {10.244.1.3} && tcp.src == 8080"}
		}
		if !slices.Equal(matches, want) {
			t.Errorf("policies %q, want %q", matches, want)
		}
	}
}

func TestNotOurs(t *testing.T) {
	for name, s := range map[string]*corev1.Service{
		"gone":     nil,
		"headless": object(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }),
		"external name": object(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
		}),
		"no address yet": object(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil }),
		"another proxy": object(func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""}
		}),
		"headless by its label, with an address": object(func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/headless": ""}
		}),
	} {
		if _, ok := service.Decode(service.Snapshot{Service: s}, config); ok {
			t.Errorf("%s: is ours", name)
		}
	}
}

// TestOpenConnections: an endpoint that has ceased to serve, ready or not, still replies on
// open connections, and its node's router still knows them.
func TestOpenConnections(t *testing.T) {
	unready := func(e discoveryv1.Endpoint) discoveryv1.Endpoint {
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false)}
		return e
	}
	for name, last := range map[string]discoveryv1.Endpoint{
		"not ready":           unready(ep("n1", "10.244.1.3")),
		"leaving":             leaving(ep("n1", "10.244.1.3"), true),
		"leaving, not served": leaving(ep("n1", "10.244.1.3"), false),
		"of a liar":           unready(ep("n2", "10.244.1.3")),
	} {
		for _, mode := range modes {
			serving, left := decode(t, object(loadBalancer, externalLocal), slice(ep("n1", "10.244.1.3"))),
				decode(t, object(loadBalancer, externalLocal), slice(last))
			nodes := facts(cluster(mode))
			if before, after := policies(service.MasterRows(serving, config, nodes)), policies(service.MasterRows(left, config, nodes)); before == "" || after != before {
				t.Errorf("%s, %s: the policies were\n%sand are\n%s", name, mode, before, after)
			}
			if name == "of a liar" {
				continue
			}
			vip := "172.18.0.2:30080 "
			if mode == topology.GatewayLocal {
				vip = "169.254.169.3:30080 "
			}
			if rows := text(service.MasterRows(left, config, nodes)); !strings.Contains(rows, vip) {
				t.Errorf("%s, %s: no %s in\n%s", name, mode, vip, rows)
			}
			state := service.NodeStateOf(left, config, cluster(mode)[0])
			if taken := len(state.Ingress) > 0; taken != (mode == topology.GatewayShared && name == "leaving") {
				t.Errorf("%s, %s: new connections go to the gateway router: %v", name, mode, taken)
			}
		}
	}
}

// policies formats the policies among rows.
func policies(rows []nb.Row) string {
	return text(slices.DeleteFunc(rows, func(r nb.Row) bool { _, ok := r.Model.(*nbdb.LogicalRouterPolicy); return !ok }))
}

// TestNodeRows: the management port has a second MAC address only in local gateway mode
// with an egress feature enabled.
func TestNodeRows(t *testing.T) {
	bare := config
	bare.Egress = false
	for _, c := range []struct {
		mode topology.GatewayMode
		conf service.Config
		want string
	}{
		{topology.GatewayShared, config, ""},
		{topology.GatewayLocal, bare, ""},
		{topology.GatewayLocal, config, "on n1: 0a:58:0a:f4:01:00 is k8s-n1\n" +
			"rtos-n1/10.244.1.0 is 0a:58:0a:f4:01:00\nrtos-n1/fd00:10:244:2:: is 0a:58:0a:f4:01:00\n"},
	} {
		var got strings.Builder
		for _, r := range service.NodeRows(node(1, c.mode), c.conf) {
			switch m := r.Model.(type) {
			case *nbdb.ForwardingGroup:
				fmt.Fprintf(&got, "on %s: %s is %s\n", r.Parent.Name, m.Vmac, strings.Join(m.ChildPort, " "))
			case *nbdb.StaticMACBinding:
				fmt.Fprintf(&got, "%s is %s\n", r.ID, m.MAC)
			}
		}
		if got.String() != c.want {
			t.Errorf("%s, egress features %v:\n%swant:\n%s", c.mode, c.conf.Egress, got.String(), c.want)
		}
	}
}

// list formats endpoints as "ADDRESS" or, if terminating, "(ADDRESS)".
func list(eps []service.Endpoint) string {
	var out []string
	for _, e := range eps {
		if e.Ready {
			out = append(out, e.To.Addr().String())
		} else {
			out = append(out, "("+e.To.Addr().String()+")")
		}
	}
	return strings.Join(out, " ")
}

func TestEndpoints(t *testing.T) {
	unready := ep("n1", "10.244.1.8")
	unready.Conditions.Ready = new(false)
	unknown := ep("n1", "10.244.1.9")
	unknown.Conditions = discoveryv1.EndpointConditions{}
	for _, c := range []struct {
		name       string
		eps        []discoveryv1.Endpoint
		all, local string // IPv4, on all nodes and on n1
	}{
		{"ready", []discoveryv1.Endpoint{ep("n2", "10.244.2.3"), ep("n1", "10.244.1.3")}, "10.244.1.3 10.244.2.3", "10.244.1.3"},
		{"not ready", []discoveryv1.Endpoint{unready}, "", ""},
		{"no conditions mean ready", []discoveryv1.Endpoint{unknown}, "10.244.1.9", "10.244.1.9"},
		{"leaving ones only where nobody is ready", []discoveryv1.Endpoint{leaving(ep("n1", "10.244.1.3"), true), ep("n2", "10.244.2.3")},
			"10.244.2.3", "(10.244.1.3)"},
		{"all leaving", []discoveryv1.Endpoint{leaving(ep("n1", "10.244.1.3"), true), leaving(ep("n2", "10.244.2.3"), true)},
			"(10.244.1.3) (10.244.2.3)", "(10.244.1.3)"},
		{"leaving and not serving", []discoveryv1.Endpoint{leaving(ep("n1", "10.244.1.3"), false)}, "", ""},
		{"the other family, and nonsense", []discoveryv1.Endpoint{ep("n1", "fd00::1"), ep("n1", "127.0.0.1"), ep("n1", "x")}, "", ""},
		{"the node's own talk", []discoveryv1.Endpoint{ep("n1", "169.254.169.3"), ep("n1", "10.244.1.3")}, "10.244.1.3", "10.244.1.3"},
	} {
		p := decode(t, object(), slice(c.eps...)).Ports[0]
		if all, local := list(p.Endpoints(topology.IPv4)), list(p.Local(topology.IPv4, "n1")); all != c.all || local != c.local {
			t.Errorf("%s: %q everywhere and %q on n1", c.name, all, local)
		}
	}
}

// TestSlices combines several slices, in any order.
func TestSlices(t *testing.T) {
	sets := []*discoveryv1.EndpointSlice{
		slice(ep("n1", "10.244.1.3"), ep("n2", "10.244.2.3")),
		slice(leaving(ep("", "10.244.2.3"), true), ep("n3", "10.244.3.3")),
		sliceOf([]string{"other"}, 9090, ep("n3", "10.244.3.9")),
		{AddressType: discoveryv1.AddressTypeFQDN, Endpoints: []discoveryv1.Endpoint{ep("n1", "10.244.1.99")}, Ports: slice().Ports},
	}
	want := "10.244.1.3 10.244.2.3 10.244.3.3"
	for range 2 {
		p := decode(t, object(), sets...).Ports[0]
		if got := list(p.Endpoints(topology.IPv4)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := list(p.Local(topology.IPv4, "n2")); got != "10.244.2.3" {
			t.Errorf("on n2: %q", got)
		}
		slices.Reverse(sets)
	}
}

func TestNamedPorts(t *testing.T) {
	s := object(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{port(corev1.ProtocolTCP, 80, 0, "http"), port(corev1.ProtocolTCP, 443, 0, "https"), port(corev1.ProtocolUDP, 443, 0, "h3")}
	})
	d := decode(t, s, sliceOf([]string{"http", "https"}, 8080, ep("n1", "10.244.1.3")), sliceOf([]string{"http"}, 9090, ep("n2", "10.244.2.3")))
	var got []string
	for _, p := range d.Ports {
		var to []string
		for _, e := range p.Endpoints(topology.IPv4) {
			to = append(to, e.To.String())
		}
		got = append(got, fmt.Sprintf("%s %d: %v", p.Protocol, p.Port, to))
	}
	want := []string{"tcp 80: [10.244.1.3:8080 10.244.2.3:9090]", "tcp 443: [10.244.1.3:8081]", "udp 443: []"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNoPortNumbers: numbers that are no ports, which the API server rejects, are not cut to 16 bits: they could be those of
// another port.
func TestNoPortNumbers(t *testing.T) {
	http := port(corev1.ProtocolTCP, 80, 65536+30080, "")
	d := decode(t, object(externalIPs("203.0.113.9"), ports(http, port(corev1.ProtocolTCP, 0, 0, "zero"), port(corev1.ProtocolUDP, -1, 0, "negative"),
		port(corev1.ProtocolUDP, 65536+53, 0, "large"))), onTwo()...)
	if len(d.Ports) != 1 || d.Ports[0].Port != 80 || d.Ports[0].NodePort != 0 {
		t.Errorf("ports are %+v", d.Ports)
	}
	d = decode(t, object(loadBalancer, externalLocal, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 65536 + 31000 }), onTwo()...)
	if d.HealthPort != 0 {
		t.Errorf("the health port is %d", d.HealthPort)
	}
	for _, claim := range service.Claims(object(externalIPs("203.0.113.9"), ports(port(corev1.ProtocolTCP, 65536+80, 0, "")))) {
		if strings.HasPrefix(claim, "at ") {
			t.Errorf("claims %q", claim)
		}
	}
}

func TestExternal(t *testing.T) {
	proxy := corev1.LoadBalancerIPModeProxy
	s := object(loadBalancer, func(s *corev1.Service) {
		s.Spec.ExternalIPs = []string{"203.0.113.9", "5.5.5.5", "0.0.0.0", "nonsense"}
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.7/24", "bad"}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: "6.6.6.6", IPMode: &proxy}, corev1.LoadBalancerIngress{Hostname: "lb.example.org"})
	})
	// "bad" allows no clients, of either family.
	want := "[{5.5.5.5 true [192.0.2.0/24]} {203.0.113.9 false []} {fd55::5 true []}]"
	if got := fmt.Sprint(decode(t, s).External); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
	s.Spec.Type = corev1.ServiceTypeClusterIP
	if got := fmt.Sprint(decode(t, s).External); got != "[{5.5.5.5 false []} {203.0.113.9 false []}]" {
		t.Errorf("without load balancer and IPv6: %s", got)
	}
}

func TestAffinity(t *testing.T) {
	s := object(func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	if got := decode(t, s).Affinity; got != 3*time.Hour {
		t.Errorf("by default %s", got)
	}
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10))}}
	if got := decode(t, s).Affinity; got != 10*time.Second {
		t.Errorf("%s", got)
	}
}

// TestUnknownNode plans nothing for a node that is not known yet.
func TestUnknownNode(t *testing.T) {
	s := decode(t, object(loadBalancer, externalLocal), onTwo()...)
	if state := service.NodeStateOf(s, config, topology.Node{Name: "n1"}); len(state.Rules)+len(state.Ingress)+len(state.UDP) != 0 || state.Health != nil {
		t.Errorf("%+v", state)
	}
	if rows := service.MasterRows(s, config, nil); strings.Contains(text(rows), "GR_") || strings.Contains(text(rows), " on n1") {
		t.Errorf("rows for nodes that are not there:\n%s", text(rows))
	}
	if rows := service.NodeRows(topology.Node{Name: "n1"}, config); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
}

// TestRows: the number of rows does not grow with nodes that have no endpoint.
func TestRows(t *testing.T) {
	s := decode(t, object(loadBalancer, internalLocal, externalLocal), onTwo()...)
	few := len(service.MasterRows(s, config, facts(cluster(topology.GatewayShared))))
	var many []topology.Node
	for i := 1; i < 9; i++ {
		many = append(many, node(i, topology.GatewayShared))
	}
	if n := len(service.MasterRows(s, config, facts(many))); n != few {
		t.Errorf("%d rows with eight nodes, %d with three", n, few)
	}
}

func TestStale(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	n1 := node(1, topology.GatewayLocal)
	pods := service.NodeStateOf(decode(t, object(udp, loadBalancer), onTwo()...), config, n1).UDP
	hosts := service.NodeStateOf(decode(t, object(udp, loadBalancer), onHosts()...), config, n1).UDP
	for _, c := range []struct {
		name     string
		bindings service.Bindings
		to, from string
		own      bool
		stale    bool
	}{
		{"an endpoint", pods, "10.96.0.9:80", "10.244.1.3:8080", false, false},
		{"an endpoint that went", pods, "10.96.0.9:80", "10.244.1.4:8080", false, true},
		{"another port of it", pods, "10.96.0.9:80", "10.244.1.3:8081", false, true},
		{"not ours", pods, "10.96.0.8:80", "10.244.1.4:8080", false, false},
		{"to the management port", pods, "10.96.0.9:80", "10.96.0.9:80", true, false},
		{"the same, now that the host chooses", hosts, "10.96.0.9:80", "10.96.0.9:80", true, true},
		{"OVN's, from before there was a load balancer", pods, "10.96.0.9:80", "10.96.0.9:80", false, true},
		{"node port to cluster address", pods, "172.18.0.2:30080", "10.96.0.9:80", true, false},
		{"node port to the local endpoints, from before the policy changed", pods, "172.18.0.2:30080", "169.254.169.3:30080", true, true},
		{"node port of another address", pods, "192.168.7.1:30080", "10.244.1.4:8080", true, true},
		{"node port before there were rules", pods, "172.18.0.2:30080", "172.18.0.2:30080", true, true},
		{"node port to cluster address, now that the host chooses", hosts, "172.18.0.2:30080", "10.96.0.9:80", true, true},
		{"node port of another node", pods, "172.18.0.3:30080", "10.244.1.4:8080", true, false},
		{"load balancer address", pods, "5.5.5.5:80", "10.96.0.9:80", true, false},
		{"IPv6", pods, "[fd55::5]:80", "[fd00:10:244:2::4]:8080", false, true},
	} {
		e := service.Entry{Client: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddrPort(c.to), From: netip.MustParseAddrPort(c.from), HostOwned: c.own}
		if got := c.bindings.Stale(e); got != c.stale {
			t.Errorf("%s: stale is %v", c.name, got)
		}
	}
	local := service.NodeStateOf(decode(t, object(udp, loadBalancer, externalLocal), onTwo()...), config, n1).UDP
	for _, c := range []struct {
		name, client, to, from string
		own, stale             bool
	}{
		{"outside, to the node's endpoints", "192.0.2.1", "172.18.0.2:30080", "169.254.169.3:30080", true, false},
		{"outside, from before there were endpoints", "192.0.2.1", "172.18.0.2:30080", "10.96.0.9:80", true, true},
		{"the host", "172.18.0.2", "172.18.0.2:30080", "10.96.0.9:80", true, false},
		{"OVN, to an endpoint", "192.0.2.1", "169.254.169.3:30080", "10.244.1.3:8080", false, false},
		{"OVN, to one of another node", "192.0.2.1", "169.254.169.3:30080", "10.244.2.3:8080", false, true},
		{"a pod, to one of another node", "10.244.1.4", "5.5.5.5:80", "10.244.2.3:8080", false, false},
	} {
		e := service.Entry{Client: netip.MustParseAddr(c.client), To: netip.MustParseAddrPort(c.to), From: netip.MustParseAddrPort(c.from), HostOwned: c.own}
		if got := local.Stale(e); got != c.stale {
			t.Errorf("%s: stale is %v", c.name, got)
		}
	}
	nobody := service.NodeStateOf(decode(t, object(udp, loadBalancer, externalLocal)), config, n1).UDP
	tcp := service.NodeStateOf(decode(t, object(loadBalancer), onTwo()...), config, n1).UDP
	for _, c := range []struct {
		name         string
		before, next service.Bindings
		lost         bool
	}{
		{"the same", pods, pods, false},
		{"new", nil, pods, true}, // earlier packets went somewhere else
		{"gone", pods, nil, false},
		{"others", pods, hosts, true},
		{"TCP", tcp, tcp, false},
		{"endpoints come to what stays on the node", nobody, local, true},
	} {
		if got := c.before.Removed(c.next); got != c.lost {
			t.Errorf("%s: lost is %v", c.name, got)
		}
	}
}

// TestStaleInside: a client of a Service whose internal traffic has to stay on the node does not keep an endpoint of
// another node from before that, whether pods or hosts serve.
func TestStaleInside(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	n1 := node(1, topology.GatewayShared)
	for name, c := range map[string]struct {
		slices      []*discoveryv1.EndpointSlice
		here, there string
		own         bool
	}{
		"pods":       {onTwo(), "10.244.1.3:8080", "10.244.2.3:8080", false},
		"pods, IPv6": {onTwo(), "[fd00:10:244:2::3]:8080", "[fd00:10:244:3::3]:8080", false},
		"hosts":      {onHosts(), "172.18.0.2:8080", "172.18.0.3:8080", true},
	} {
		before := service.NodeStateOf(decode(t, object(udp), c.slices...), config, n1).UDP
		after := service.NodeStateOf(decode(t, object(udp, internalLocal), c.slices...), config, n1).UDP
		if !before.Removed(after) {
			t.Errorf("%s: nothing is looked for when the policy changes", name)
		}
		for from, stale := range map[string]bool{c.here: false, c.there: true} {
			e := service.Entry{To: netip.MustParseAddrPort("10.96.0.9:80"), From: netip.MustParseAddrPort(from), HostOwned: c.own}
			if e.From.Addr().Is6() {
				e.To = netip.MustParseAddrPort("[fd00:10:96::9]:80")
			}
			if after.Stale(e) != stale || before.Stale(e) {
				t.Errorf("%s: an entry that leads to %s is stale: %v, before %v", name, from, after.Stale(e), before.Stale(e))
			}
		}
	}
	elsewhere := service.NodeStateOf(decode(t, object(udp, internalLocal), slice(ep("n2", "172.18.0.3"))), config, n1).UDP
	both := service.NodeStateOf(decode(t, object(udp, internalLocal), onHosts()...), config, n1).UDP
	e := service.Entry{To: netip.MustParseAddrPort("10.96.0.9:80"), From: netip.MustParseAddrPort("10.96.0.9:80"), HostOwned: true}
	if !elsewhere.Removed(both) || !both.Stale(e) || elsewhere.Stale(e) {
		t.Errorf("the first endpoint of the node, which is not a pod: connections are looked for: %v, one of the host is stale: %v, before %v",
			elsewhere.Removed(both), both.Stale(e), elsewhere.Stale(e))
	}
}

// TestStaleOnBridge: the external bridge has entries without translation of what it sends to the gateway router. By them it
// recognizes replies of pods that an egress feature reroutes, so they are stale only where it no longer sends anything there.
func TestStaleOnBridge(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	of := func(mode topology.GatewayMode, endpoints []*discoveryv1.EndpointSlice, change ...func(*corev1.Service)) service.Bindings {
		return service.NodeStateOf(decode(t, object(append(change, udp, loadBalancer)...), endpoints...), config, node(1, mode)).UDP
	}
	const ours, ours6, other, balancer, balancer6 = "172.18.0.2:30080", "[fc00:f853:ccd:e793::2]:30080", "192.168.7.1:30080", "5.5.5.5:80", "[fd55::5]:80"
	all := []string{ours, ours6, other, balancer, balancer6}
	local := of(topology.GatewayShared, onTwo(), externalLocal)
	for name, c := range map[string]struct {
		bindings service.Bindings
		live     []string
	}{
		"local policy":                   {local, []string{ours, ours6, balancer, balancer6}},
		"local policy, no endpoint here": {of(topology.GatewayShared, []*discoveryv1.EndpointSlice{slice(ep("n2", "10.244.2.3"))}, externalLocal), nil},
		"local policy, hosts":            {of(topology.GatewayShared, onHosts(), externalLocal), nil},
		"cluster policy":                 {of(topology.GatewayShared, onTwo()), []string{balancer, balancer6}},
		"local gateway mode":             {of(topology.GatewayLocal, onTwo(), externalLocal), nil},
		"no source is allowed":           {of(topology.GatewayShared, onTwo(), externalLocal, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "bad"} }), []string{ours, ours6, balancer}},
	} {
		for _, to := range all {
			e := service.Entry{Client: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddrPort(to), From: netip.MustParseAddrPort(to), Bridge: true}
			if got, want := c.bindings.Stale(e), !slices.Contains(c.live, to); got != want {
				t.Errorf("%s: the entry of the bridge for %s is stale: %v", name, to, got)
			}
			if e.Bridge = false; !c.bindings.Stale(e) {
				t.Errorf("%s: an entry of OVN for %s, from before there was a load balancer, is not stale", name, to)
			}
		}
		if name != "local policy" && name != "no source is allowed" && (!local.Removed(c.bindings) || !c.bindings.Removed(local)) {
			t.Errorf("from local policy to %s, and back: connections are looked for: %v and %v", name, local.Removed(c.bindings), c.bindings.Removed(local))
		}
	}
}

// TestUnservedNodePorts: where node ports are not served, connections to such a port belong to the host's own processes.
func TestUnservedNodePorts(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	s := decode(t, object(udp, loadBalancer), onTwo()...)
	e := service.Entry{To: netip.MustParseAddrPort("172.18.0.2:30080"), From: netip.MustParseAddrPort("172.18.0.2:30080"), HostOwned: true}
	off, without := config, node(1, topology.GatewayShared)
	off.NodePorts, without.Gateway.NodePort = false, false
	for name, c := range map[string]struct {
		config service.Config
		node   topology.Node
		stale  bool
	}{
		"in the cluster": {off, node(1, topology.GatewayShared), false},
		"on the node":    {config, without, false},
		"served":         {config, node(1, topology.GatewayShared), true},
	} {
		if got := service.NodeStateOf(s, c.config, c.node).UDP.Stale(e); got != c.stale {
			t.Errorf("%s: a connection to a process of the host is stale: %v", name, got)
		}
	}
}
