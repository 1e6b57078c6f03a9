package egressservice

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// LocalPort is a source that replies have which the load balancer of a node's switch
// has sent to a pod of that node.
type LocalPort struct {
	Addr     netip.Addr // see topology.LocalServiceAddr
	Protocol string
	Port     uint16
}

// localPorts returns the sources of replies to clients outside whose connections do
// not leave the node (externalTrafficPolicy Local): in local gateway mode the node's
// kernel leads them to a virtual address, with the node port. Where there is no node
// port it leads them to the pod itself.
func localPorts(svc *corev1.Service, masquerade []netip.Prefix) []LocalPort {
	if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	var ports []LocalPort
	for _, f := range topology.Families {
		subnet, ok := topology.PrefixOf(f, masquerade)
		if !ok {
			continue
		}
		for _, p := range svc.Spec.Ports {
			protocol := strings.ToLower(string(p.Protocol))
			if protocol == "" {
				protocol = "tcp"
			}
			if p.NodePort > 0 && p.NodePort <= 65535 {
				ports = append(ports, LocalPort{topology.LocalServiceAddr(subnet), protocol, uint16(p.NodePort)})
			}
		}
	}
	return ports
}

// MainTableRules returns the ip rules that keep what a node translates away from the
// networks of EgressIPs: the EgressService decides about a pod that both select.
func MainTableRules(t Translations) map[host.IPRule]struct{} {
	rules := map[host.IPRule]struct{}{}
	for a := range t {
		rules[host.IPRule{Family: topology.FamilyOf(a), Priority: topology.RulePodToNode, Src: topology.HostPrefix(a), Table: topology.MainTable}] = struct{}{}
	}
	return rules
}

// Networked tells whether a node leads what pods send for a Service into its
// network. A node without any of the pods only leads replies there.
func Networked(s Service, node string) bool {
	return s.Host == node || slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Node == node })
}

// IPRules returns the ip rules of a node for a Service with a network, which is
// routing table number table. What is for inside stays in the main table, whoever
// sends it: pods, Services and nodes, which no egress feature is about. The table
// may well have a default route.
func IPRules(s Service, node string, table int, inside []netip.Prefix) map[host.IPRule]struct{} {
	rules := map[host.IPRule]struct{}{}
	all := s.Host == node
	if s.Refused != (Refusal{}) || s.Network == "" || s.Host == "" || !all && s.Host != v1.HostAll {
		return rules
	}
	families := map[topology.Family]bool{}
	add := func(a netip.Addr, protocol string, port uint16) {
		f := topology.FamilyOf(a)
		families[f] = true
		rules[host.IPRule{Family: f, Priority: topology.RuleEgressServiceNetwork, Src: topology.HostPrefix(a),
			Protocol: protocol, SrcPort: port, Table: table}] = struct{}{}
	}
	for _, a := range s.ClusterIPs {
		add(a, "", 0)
	}
	for _, p := range s.LocalPorts {
		add(p.Addr, p.Protocol, p.Port)
	}
	for _, e := range s.Endpoints {
		if all || e.Node == node {
			add(e.Addr, "", 0)
		}
	}
	for _, p := range inside {
		if f := topology.FamilyOf(p.Addr()); families[f] {
			rules[host.IPRule{Family: f, Priority: topology.RuleInside, Dst: p.Masked(), Table: topology.MainTable}] = struct{}{}
		}
	}
	return rules
}
