package egressservice

import (
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Elsewhere returns the pods of a node whose traffic leaves by another node. These pods
// always have policies, even if the host is not ready, and where the policies are in force
// none of this traffic reaches the kernel of this node.
func Elsewhere(s Service, node string) []netip.Addr {
	served := s.Ack.Digest != "" && s.Ack.Host != node
	if s.Refused != (Refusal{}) || s.PerNode || s.Host == "" || s.Host == v1.HostAll || s.Host == node || !served {
		return nil
	}
	var pods []netip.Addr
	for _, e := range s.Endpoints {
		if e.Node == node {
			pods = append(pods, e.Addr)
		}
	}
	return pods
}

// passToNodes exempts traffic from pods to nodes.
var passToNodes = host.Spec{Mark: topology.MarkPodToNode, Comment: "ToNodes", Target: host.Return}.Rule()

// ElsewhereRules prevent pods that leave by another node from leaving by this one, with its
// address: while this node's ovn-controller does not apply the policies of a Service that has moved,
// the pods are led to this node's kernel. Replies, traffic to nodes, and forwarded traffic that was
// addressed to this node are exempt.
func ElsewhereRules(pods []netip.Addr, key string) host.Rules {
	rules := host.Rules{}
	for _, a := range slices.SortedFunc(slices.Values(pods), netip.Addr.Compare) {
		chain := strayKey(topology.FamilyOf(a))
		if rules[chain] == nil {
			rules[chain] = []host.Rule{passToNodes}
		}
		rules[chain] = append(rules[chain], host.Spec{Src: topology.HostPrefix(a), In: topology.ManagementPort, Out: host.Not(topology.ManagementPort),
			CTState: host.Not("RELATED,ESTABLISHED,DNAT"), Comment: key, Target: host.Drop}.Rule())
	}
	return rules
}
