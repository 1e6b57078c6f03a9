package egressservice

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestNetworked: the network is needed on the host, or, if all nodes serve, on those with pods.
func TestNetworked(t *testing.T) {
	endpoints := []Endpoint{{Addr: netip.MustParseAddr("10.244.1.6"), Node: "b"}}
	for _, c := range []struct {
		host, node string
		want       bool
	}{{"a", "a", true}, {v1.HostAll, "b", true}, {v1.HostAll, "c", false}} {
		if got := Networked(Service{Host: c.host, Endpoints: endpoints}, c.node); got != c.want {
			t.Errorf("host %s, node %s: %v", c.host, c.node, got)
		}
	}
}

// TestLocalPorts: replies that stay on a node are identified by its virtual address
// and the node port, for each protocol and family.
func TestLocalPorts(t *testing.T) {
	svc := &corev1.Service{}
	svc.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}, {Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP}, {Port: 99}}
	masquerade := []netip.Prefix{netip.MustParsePrefix("169.254.169.0/29"), netip.MustParsePrefix("fd69::/125")}
	if got := localPorts(svc, masquerade); got != nil {
		t.Errorf("without externalTrafficPolicy Local: %v", got)
	}
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	const want = "[{169.254.169.3 tcp 30080} {169.254.169.3 udp 30053} {fd69::3 tcp 30080} {fd69::3 udp 30053}]"
	if got := fmt.Sprint(localPorts(svc, masquerade)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDirectReplies: if a kernel sends requests directly to the endpoints, not to the cluster address, the
// replies of pods on other nodes arrive there with the pods' own addresses. They use the
// network, too; other traffic of these pods leaves by their own nodes.
func TestDirectReplies(t *testing.T) {
	const here, there = "ovn-worker", "ovn-worker2"
	internalLocal := func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	pods := []string{"10.244.0.5@" + here, "10.244.1.6@" + there, "fd00:10:244:2::6@" + there}
	for _, c := range []struct {
		name      string
		change    []func(*corev1.Service)
		endpoints []string
		source    v1.SourceIPMode
		want      string // sources of rules on this node, besides those of its own pod
	}{
		{"cluster address", nil, pods, v1.SourceIPNetwork, ""},
		{"internal traffic stays", []func(*corev1.Service){internalLocal}, pods, v1.SourceIPNetwork,
			"10.244.1.6 sctp 9000, 10.244.1.6 tcp 8080, 10.244.1.6 udp 5353, fd00:10:244:2::6 sctp 9000, fd00:10:244:2::6 tcp 8080, fd00:10:244:2::6 udp 5353"},
		{"all traffic stays", []func(*corev1.Service){internalLocal, local}, pods, v1.SourceIPNetwork, ""},
		{"a host among them", nil, append([]string{"172.18.0.9"}, pods...), v1.SourceIPNetwork,
			"10.244.1.6 sctp 9000, 10.244.1.6 tcp 8080, 10.244.1.6 udp 5353"},
		{"one host for all", []func(*corev1.Service){internalLocal}, pods, v1.SourceIPLoadBalancer, "10.244.1.6, fd00:10:244:2::6"},
	} {
		svc := service("ns", "svc", []string{"5.5.5.5", "fd55::5"}, c.change...)
		eg := egress("ns", "svc", func(e *v1.EgressService) { e.Spec.Network, e.Spec.SourceIPBy = "blue", c.source })
		eg.Status.Host = v1.HostAll
		if c.source == v1.SourceIPLoadBalancer {
			eg.Status.Host = here
		}
		sl := slice("ns", "svc", c.endpoints...)
		for _, p := range []struct {
			protocol corev1.Protocol
			port     int32
		}{{"", 8080}, {corev1.ProtocolUDP, 5353}, {corev1.ProtocolSCTP, 9000}} {
			port := discoveryv1.EndpointPort{Port: new(p.port)}
			if p.protocol != "" {
				port.Protocol = new(p.protocol)
			}
			sl.Ports = append(sl.Ports, port)
		}
		s := Decode(Snapshot{Egress: eg, Service: svc, Slices: []*discoveryv1.EndpointSlice{sl}, Pod: podsIn(sl)}, cluster)
		if s.Refused != (Refusal{}) {
			t.Fatalf("%s: %+v", c.name, s.Refused)
		}
		var got []string
		for r := range IPRules(s, here, host.RoutingTable{Number: 7}, nil, nil) {
			if r.Src.Addr().String() == "10.244.0.5" || r.Mark != 0 {
				continue
			}
			text := r.Src.Addr().String()
			if r.Protocol != "" {
				text += fmt.Sprintf(" %s %d", r.Protocol, r.SrcPort)
			}
			got = append(got, text)
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestTableOfOneFamily: there are no rules of a family of which the table has no route: the kernel would go on with the rules that
// follow, so that an EgressIP may have the pods of that family.
func TestTableOfOneFamily(t *testing.T) {
	s := Service{Host: v1.HostAll, Network: "blue",
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.5"), netip.MustParseAddr("fd00:10:96::5")},
		LocalPorts: []LocalPort{{netip.MustParseAddr("169.254.169.3"), "tcp", 30080}, {netip.MustParseAddr("fd69::3"), "tcp", 30080}}}
	for _, pod := range []string{"10.244.0.5", "fd00:10:244:1::5"} {
		s.Endpoints = append(s.Endpoints, Endpoint{Addr: netip.MustParseAddr(pod), Node: "a"})
		elsewhere := netip.MustParseAddr(pod).Next()
		s.Endpoints = append(s.Endpoints, Endpoint{Addr: elsewhere, Node: "b"})
		s.DirectPorts = append(s.DirectPorts, LocalPort{elsewhere, "tcp", 8080})
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	all := IPRules(s, "a", host.RoutingTable{Number: 7, VRF: true}, ranges, ranges)
	for _, f := range topology.Families {
		want := maps.Clone(all)
		maps.DeleteFunc(want, func(r host.IPRule, _ struct{}) bool { return r.Family == f })
		if got := IPRules(s, "a", host.RoutingTable{Number: 7, VRF: true, Without: f}, ranges, ranges); !maps.Equal(got, want) || len(want)*2 != len(all) {
			t.Errorf("without %s routes: %v, of %v", f, got, all)
		}
	}
}

// TestAddedServiceRange: requests of clients in a VRF device's network reach the Service by the main table also if its cluster
// address is in a range that was added to the running cluster.
func TestAddedServiceRange(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	for _, c := range []struct {
		clusterIPs []string
		vrf        bool
		want       string
	}{
		{[]string{"10.96.0.5", "fd00:10:96::5"}, true, "10.96.0.0/16 fd00:10:96::/112"},
		{[]string{"10.97.0.5", "fd00:10:97::5"}, true, "10.96.0.0/16 10.97.0.5/32 fd00:10:96::/112 fd00:10:97::5/128"},
		{[]string{"fd00:10:97::5"}, true, "fd00:10:96::/112 fd00:10:97::5/128"},
		{[]string{"10.97.0.5", "fd00:10:97::5"}, false, ""},
	} {
		s := Service{Host: "a", Network: "blue"}
		for _, ip := range c.clusterIPs {
			s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(ip))
		}
		var got []string
		for r := range IPRules(s, "a", host.RoutingTable{Number: 7, VRF: c.vrf}, ranges, ranges) {
			if r.Priority != topology.RuleBeforeVRF {
				continue
			}
			if got = append(got, r.Dst.String()); r.Table != topology.MainTable || r.Family != topology.FamilyOf(r.Dst.Addr()) || r.Src.IsValid() {
				t.Errorf("%v: %+v", c.clusterIPs, r)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v: %s, want %s", c.clusterIPs, text, c.want)
		}
	}
}

// TestNodeReplies: replies of pods with a network to clients that reached them by a host port use the
// node's own routes, and their replies for the Service do not; only on nodes that lead the
// pods into the network.
func TestNodeReplies(t *testing.T) {
	const here, there = "ovn-worker", "ovn-worker2"
	svc := service("ns", "svc", []string{"5.5.5.5", "fd55::5"})
	svc.Spec.ExternalIPs = []string{"198.51.100.7"}
	svc.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}, {Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP}, {Port: 99}}
	sl := slice("ns", "svc", "10.244.0.5@"+here, "10.244.1.6@"+there, "fd00:10:244:2::6@"+there)
	reply := func(src string) string {
		return "-s " + src + " -i ovn-k8s-mp0 -m conntrack --ctstate DNAT --ctdir REPLY -m comment --comment \"ns/svc\" -j MARK --set-xmark 0x3f3/0xffffffff"
	}
	service := func(addrs ...string) (rules []string) {
		for _, a := range addrs {
			rules = append(rules, "-i ovn-k8s-mp0 -m conntrack --ctorigdst "+a+" --ctdir REPLY -m comment --comment \"ns/svc\" -j RETURN")
		}
		for _, p := range []string{"tcp -m conntrack --ctorigdstport 30080", "udp -m conntrack --ctorigdstport 30053"} {
			rules = append(rules, "-i ovn-k8s-mp0 -p "+p+" --ctdir REPLY -m comment --comment \"ns/svc\" -j RETURN")
		}
		return rules
	}
	four, six := service("5.5.5.5", "198.51.100.7"), service("fd55::5")
	pod4, other4, other6 := reply("10.244.0.5/32"), reply("10.244.1.6/32"), reply("fd00:10:244:2::6/128")
	for _, c := range []struct {
		name, network, node string
		source              v1.SourceIPMode
		four, six           []string
	}{
		{"the host", "blue", here, v1.SourceIPLoadBalancer, append(slices.Clone(four), pod4, other4), append(slices.Clone(six), other6)},
		{"not the host", "blue", there, v1.SourceIPLoadBalancer, nil, nil},
		{"no network", "", here, v1.SourceIPLoadBalancer, nil, nil},
		{"each node", "blue", here, v1.SourceIPNetwork, append(slices.Clone(four), pod4), nil},
		{"each other node", "blue", there, v1.SourceIPNetwork, append(slices.Clone(four), other4), append(slices.Clone(six), other6)},
	} {
		eg := egress("ns", "svc", func(e *v1.EgressService) { e.Spec.Network, e.Spec.SourceIPBy = c.network, c.source })
		eg.Status.Host = v1.HostAll
		if c.source == v1.SourceIPLoadBalancer {
			eg.Status.Host = here
		}
		s := Decode(Snapshot{Egress: eg, Service: svc, Slices: []*discoveryv1.EndpointSlice{sl}, Pod: podsIn(sl)}, cluster)
		if s.Refused != (Refusal{}) {
			t.Fatalf("%s: %+v", c.name, s.Refused)
		}
		rules, marked := NodeReplyRules(s, c.node), map[topology.Family]bool{}
		for r := range IPRules(s, c.node, host.RoutingTable{Number: 7}, nil, nil) {
			if r.Mark == topology.MarkNodeReply && r.Priority < topology.RuleEgressServiceNetwork && r.Table == topology.MainTable {
				marked[r.Family] = true
			}
		}
		for f, want := range map[topology.Family][]string{topology.IPv4: c.four, topology.IPv6: c.six} {
			var got []string
			for _, r := range rules[nodeReplyKey(f)] {
				got = append(got, string(r))
			}
			if !slices.Equal(got, want) || marked[f] != (want != nil) {
				t.Errorf("%s, %s: led to main %v, marked by\n%s\nwant\n%s", c.name, f, marked[f], strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}
