package service_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var config = service.Config{
	Cluster:    prefixes("10.244.0.0/16", "fd00:10:244::/48"),
	Join:       prefixes("100.64.0.0/16", "fd98::/64"),
	Services:   prefixes("10.96.0.0/16", "fd00:10:96::/112"),
	Masquerade: prefixes("169.254.169.0/29", "fd69::/125"),
	NodePorts:  true,
	Egress:     true,
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// node returns node "nI" of a dual-stack cluster.
func node(i int, mode topology.GatewayMode) topology.Node {
	n := topology.Node{
		Name:    fmt.Sprintf("n%d", i),
		Subnets: prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1)),
		Join:    prefixes(fmt.Sprintf("100.64.0.%d/16", i+1), fmt.Sprintf("fd98::%d/64", i+1)),
		Chassis: fmt.Sprintf("chassis-%d", i),
		Gateway: topology.Gateway{
			Mode: mode, InterfaceID: fmt.Sprintf("breth0_n%d", i), MAC: fmt.Sprintf("02:42:ac:12:00:%02x", i+1), NodePort: true,
			Addrs: prefixes(fmt.Sprintf("172.18.0.%d/16", i+1), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+1)),
		},
	}
	n.Primary, n.Host = n.Gateway.Addrs, append(slices.Clone(n.Gateway.Addrs), netip.MustParsePrefix(fmt.Sprintf("192.168.7.%d/24", i)))
	return n
}

// cluster returns three nodes.
func cluster(mode topology.GatewayMode) []topology.Node {
	return []topology.Node{node(1, mode), node(2, mode), node(3, mode)}
}

func facts(nodes []topology.Node) service.Nodes {
	var all service.Nodes
	for _, n := range nodes {
		f := service.FactsOf(n)
		all, _ = all.With(n.Name, &f)
	}
	return all
}

// port returns a port of a Service; its target port is 8080 unless it is named.
func port(protocol corev1.Protocol, port, nodePort int32, name string) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: port, NodePort: nodePort}
}

// object returns a dual-stack Service ns/svc.
func object(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9", "fd00:10:96::9"},
			Ports: []corev1.ServicePort{port(corev1.ProtocolTCP, 80, 0, "")},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func nodePorts(s *corev1.Service) {
	s.Spec.Type = corev1.ServiceTypeNodePort
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 30080 + int32(i)
	}
}

func loadBalancer(s *corev1.Service) {
	nodePorts(s)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "5.5.5.5"}, {IP: "fd55::5"}}
}

func externalLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.HealthCheckNodePort = 32000
	}
}

func internalLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func withoutNodePorts(s *corev1.Service) {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 0
	}
}

// ep returns an endpoint on a node.
func ep(node string, addrs ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addrs, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}
}

func leaving(e discoveryv1.Endpoint, serving bool) discoveryv1.Endpoint {
	e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: &serving, Terminating: new(true)}
	return e
}

// slice returns an EndpointSlice of ns/svc with port 8080 for every protocol.
func slice(eps ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return sliceOf([]string{""}, 8080, eps...)
}

// sliceOf returns an EndpointSlice with one target port for all names and protocols.
func sliceOf(names []string, target int32, eps ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: "svc"}},
		Endpoints:  eps,
	}
	for i, name := range names {
		for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: new(p), Port: new(target + int32(i))})
		}
	}
	return s
}

// onTwo returns slices of pods on n1 and n2, of both families.
func onTwo() []*discoveryv1.EndpointSlice {
	return []*discoveryv1.EndpointSlice{
		slice(ep("n1", "10.244.1.3"), ep("n2", "10.244.2.3")),
		slice(ep("n1", "fd00:10:244:2::3"), ep("n2", "fd00:10:244:3::3")),
	}
}

// onHosts returns slices of the hosts n1 and n2.
func onHosts() []*discoveryv1.EndpointSlice {
	return []*discoveryv1.EndpointSlice{
		slice(ep("n1", "172.18.0.2"), ep("n2", "172.18.0.3")),
		slice(ep("n1", "fc00:f853:ccd:e793::2"), ep("n2", "fc00:f853:ccd:e793::3")),
	}
}

// how formats what a policy does.
func how(p *nbdb.LogicalRouterPolicy) string {
	words := append([]string{p.Action}, p.Nexthops...)
	for k, v := range p.Options {
		words = append(words, k+"="+v)
	}
	return strings.Join(words, " ")
}

// text formats load balancers, one virtual address per line.
func text(rows []nb.Row) string {
	var out strings.Builder
	slices.SortFunc(rows, func(a, b nb.Row) int { return strings.Compare(a.ID, b.ID) })
	for _, r := range rows {
		if p, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok {
			fmt.Fprintf(&out, "%s on %s\n    %d %s %s\n", r.ID, r.Parent.Name, p.Priority, p.Match, how(p))
			continue
		}
		m := r.Model.(*nbdb.LoadBalancer)
		fmt.Fprintf(&out, "%s on %s\n", m.Name, r.Parent.Name)
		var options []string
		for _, k := range slices.Sorted(maps.Keys(m.Options)) {
			switch k {
			case "reject", "event", "hairpin_snat_ip", "neighbor_responder": // common to all
			default:
				options = append(options, k+"="+m.Options[k])
			}
		}
		if m.SelectionFields != nil {
			options = append(options, fmt.Sprintf("selection_fields=%v", m.SelectionFields))
		}
		if len(options) > 0 {
			fmt.Fprintf(&out, "    %s\n", strings.Join(options, " "))
		}
		protocol := "any"
		if m.Protocol != nil {
			protocol = *m.Protocol
		}
		for _, vip := range slices.Sorted(maps.Keys(m.Vips)) {
			fmt.Fprintf(&out, "    %s %s = %s\n", protocol, vip, m.Vips[vip])
		}
	}
	return strings.ReplaceAll(out.String(), " \n", " (refused)\n")
}

// show formats everything that is planned for a Service.
func show(s service.Service, nodes []topology.Node) string {
	var out strings.Builder
	out.WriteString("# load balancers\n" + text(service.MasterRows(s, config, facts(nodes))))
	for _, n := range nodes {
		state := service.NodeStateOf(s, config, n)
		fmt.Fprintf(&out, "\n# node %s\n", n.Name)
		for _, f := range topology.Families {
			for _, c := range append(service.Chains(topology.Families), mgmt(topology.IPv4), mgmt(topology.IPv6)) {
				if c.Family != f {
					continue
				}
				for _, r := range state.Rules[c.ChainKey] {
					fmt.Fprintf(&out, "%s -t %s -A %s %s\n", map[topology.Family]string{4: "iptables", 6: "ip6tables"}[f], c.Table, c.Name, r)
				}
			}
		}
		out.WriteString(hostfake.DumpRoutes(state.Routes))
		for _, i := range state.Ingress {
			fmt.Fprintf(&out, "bridge to gateway router: %s %s from %v\n", i.Protocol, i.To, i.Sources)
		}
		if state.Health != nil {
			fmt.Fprintf(&out, "health port %d: %s/%s has %d\n", state.Health.Port, state.Health.Namespace, state.Health.Name, state.Health.Endpoints)
		}
	}
	return out.String()
}

// mgmt returns the chain that belongs to the base network.
func mgmt(f topology.Family) host.Chain {
	return host.Chain{ChainKey: host.ChainKey{Family: f, Table: "nat", Name: topology.ChainSNATMgmtPort}}
}
