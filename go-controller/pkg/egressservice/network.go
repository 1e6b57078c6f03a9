package egressservice

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// LocalPort is the source of replies from a pod to which the load balancer of its own
// node's switch has sent the request.
type LocalPort struct {
	Addr     netip.Addr // see topology.LocalServiceAddr
	Protocol string
	Port     uint16
}

// localPorts returns the sources of replies to outside clients whose connections do
// not leave the node (externalTrafficPolicy Local): in local gateway mode the node's
// kernel sends them to a virtual address, with the node port. If there is no node
// port, it sends them to the pod itself.
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
			if p.NodePort > 0 && p.NodePort <= 65535 {
				ports = append(ports, LocalPort{topology.LocalServiceAddr(subnet), protocolOf(p.Protocol), uint16(p.NodePort)})
			}
		}
	}
	return ports
}

// protocolOf returns the protocol as written in kernel rules.
func protocolOf(p corev1.Protocol) string {
	return strings.ToLower(string(cmp.Or(p, corev1.ProtocolTCP)))
}

// directPorts returns the sources of replies to outside clients whose connections a node's kernel has sent
// directly to pods, on any node, instead of to the cluster address: for all families if only pods
// of the same node are eligible (internalTrafficPolicy Local), otherwise for families with
// endpoints that are not pods.
func directPorts(svc *corev1.Service, sets []*discoveryv1.EndpointSlice, cluster []netip.Prefix) []LocalPort {
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	inside := svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	var ports []LocalPort
	direct := map[topology.Family]bool{topology.IPv4: inside, topology.IPv6: inside}
	for _, set := range sets {
		for _, a := range addrsIn(set) {
			if !within(cluster, a) {
				direct[topology.FamilyOf(a)] = true
				continue
			}
			for _, p := range set.Ports {
				protocol := corev1.ProtocolTCP
				if p.Protocol != nil {
					protocol = *p.Protocol
				}
				if p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
					ports = append(ports, LocalPort{a, protocolOf(protocol), uint16(*p.Port)})
				}
			}
		}
	}
	return slices.DeleteFunc(ports, func(p LocalPort) bool { return !direct[topology.FamilyOf(p.Addr)] })
}

// addrsIn returns the addresses of all endpoints of a slice.
func addrsIn(set *discoveryv1.EndpointSlice) []netip.Addr {
	var addrs []netip.Addr
	for _, e := range set.Endpoints {
		for _, text := range e.Addresses {
			if a, ok := parseAddr(text); ok {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// MainTableRules returns the ip rules that keep traffic translated by a node out of the
// networks of EgressIPs: if both select a pod, the EgressService takes precedence.
func MainTableRules(t Translations) map[host.IPRule]struct{} {
	rules := map[host.IPRule]struct{}{}
	for a := range t {
		rules[host.IPRule{Family: topology.FamilyOf(a), Priority: topology.RulePodToNode, Src: topology.HostPrefix(a), Table: topology.MainTable}] = struct{}{}
	}
	return rules
}

// Networked reports whether a node routes the traffic of a Service's pods into its
// network. A node without any of the pods only routes replies there.
func Networked(s Service, node string) bool {
	return s.Host == node || slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Node == node })
}

// LacksRoute reports whether a node is to lead some of a Service's pods into a table without any route of
// their family. There are no rules for them, and their packets leave the usual way.
func LacksRoute(s Service, node string, table host.RoutingTable) bool {
	return slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool {
		return (s.Host == node || e.Node == node) && topology.FamilyOf(e.Addr) == table.Without
	})
}

// IPRules returns the ip rules of a node for a Service with a network, which is
// the given routing table. Traffic to destinations inside the cluster stays in the main table,
// whoever sends it: pods, Services and nodes are not subject to egress features. The table
// may well have a default route. There are no rules of a family of which it has no route: the kernel would go on with later
// rules, such as those of EgressIPs, which take what these rules match for somebody else's.
// If the table is a VRF device's, the kernel looks up what arrives by that
// device there before any other table. Therefore packets to cluster, the subnets of pods and Services,
// take the main table before that, and so do those to the cluster addresses of the Service that are in none of these:
// ranges can be added to a running cluster.
// (Rules for the device alone would not do: IPv4 packets match only rules for its ports, IPv6 packets
// only those for the device.)
func IPRules(s Service, node string, table host.RoutingTable, cluster, inside []netip.Prefix) map[host.IPRule]struct{} {
	rules := map[host.IPRule]struct{}{}
	all := s.Host == node
	if !hasNetwork(s, node) {
		return rules
	}
	families := map[topology.Family]bool{}
	add := func(a netip.Addr, protocol string, port uint16) {
		f := topology.FamilyOf(a)
		if f == table.Without {
			return
		}
		families[f] = true
		rules[host.IPRule{Family: f, Priority: topology.RuleEgressServiceNetwork, Src: topology.HostPrefix(a),
			Protocol: protocol, SrcPort: port, Table: table.Number}] = struct{}{}
	}
	for _, a := range s.ClusterIPs {
		add(a, "", 0)
	}
	for _, p := range s.LocalPorts {
		add(p.Addr, p.Protocol, p.Port)
	}
	elsewhere := map[netip.Addr]bool{}
	for _, e := range s.Endpoints {
		if all || e.Node == node {
			add(e.Addr, "", 0)
			if f := topology.FamilyOf(e.Addr); families[f] {
				rules[host.IPRule{Family: f, Priority: topology.RuleInside, Mark: topology.MarkNodeReply, Table: topology.MainTable}] = struct{}{}
			}
		} else {
			elsewhere[e.Addr] = true
		}
	}
	for _, p := range s.DirectPorts {
		if elsewhere[p.Addr] {
			add(p.Addr, p.Protocol, p.Port)
		}
	}
	for _, p := range inside {
		if f := topology.FamilyOf(p.Addr()); families[f] {
			rules[host.IPRule{Family: f, Priority: topology.RuleInside, Dst: p.Masked(), Table: topology.MainTable}] = struct{}{}
		}
	}
	if !table.VRF {
		return rules
	}
	cluster = slices.Clone(cluster)
	for _, a := range s.ClusterIPs {
		if !slices.ContainsFunc(cluster, func(p netip.Prefix) bool { return p.Contains(a) }) {
			cluster = append(cluster, topology.HostPrefix(a))
		}
	}
	for _, p := range s.LocalPorts {
		cluster = append(cluster, topology.HostPrefix(p.Addr))
	}
	for _, p := range cluster {
		if f := topology.FamilyOf(p.Addr()); families[f] {
			rules[host.IPRule{Family: f, Priority: topology.RuleBeforeVRF, Dst: p.Masked(), Table: topology.MainTable}] = struct{}{}
		}
	}
	return rules
}

// Entry is an address, or a port of every node, at which outside clients reach a Service.
type Entry struct {
	Addr     netip.Addr // with all of its ports; zero for a node port
	Protocol string
	Port     uint16
}

// entries returns the entries of a Service.
func entries(svc *corev1.Service) []Entry {
	var all []Entry
	add := func(text string) {
		if a, ok := parseAddr(text); ok {
			all = append(all, Entry{Addr: a})
		}
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		add(in.IP)
	}
	for _, text := range svc.Spec.ExternalIPs {
		add(text)
	}
	for _, p := range svc.Spec.Ports {
		if p.NodePort > 0 && p.NodePort <= 65535 {
			all = append(all, Entry{Protocol: protocolOf(p.Protocol), Port: uint16(p.NodePort)})
		}
	}
	return all
}

// NodeReplyRules returns the rules that mark, on a node that routes pods into a network, the pods'
// replies to clients that reached them at an address of the node. The network is for the
// Service: requests to the Service's own addresses and node ports are answered there. A host port
// belongs to the node, which answers by its usual routes.
func NodeReplyRules(s Service, node string) host.Rules {
	rules := host.Rules{}
	if !hasNetwork(s, node) {
		return rules
	}
	for _, e := range s.Endpoints {
		if s.Host != node && e.Node != node {
			continue
		}
		f := topology.FamilyOf(e.Addr)
		k := nodeReplyKey(f)
		if rules[k] == nil {
			for _, in := range s.Entries {
				if !in.Addr.IsValid() || topology.FamilyOf(in.Addr) == f {
					rules[k] = append(rules[k], host.Spec{In: topology.ManagementPort, Protocol: in.Protocol, OrigDst: in.Addr, OrigDstPort: in.Port,
						Reply: true, Comment: s.Key, Target: host.Return}.Rule())
				}
			}
		}
		rules[k] = append(rules[k], host.Spec{Src: topology.HostPrefix(e.Addr), In: topology.ManagementPort, CTState: "DNAT", Reply: true,
			Comment: s.Key, Target: host.SetMark(topology.MarkNodeReply)}.Rule())
	}
	return rules
}

// hasNetwork reports whether a Service has a network on a node.
func hasNetwork(s Service, node string) bool {
	return s.Refused == (Refusal{}) && s.Network != "" && (s.Host == node || s.Host == v1.HostAll)
}
