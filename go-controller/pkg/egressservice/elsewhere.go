package egressservice

import (
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Elsewhere returns the pods of a node whose traffic leaves by another one. It has
// policies then, whatever the host is ready for, and where those are in force none of it
// comes to the kernel of this node.
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

// passToNodes leaves what pods send to nodes alone.
var passToNodes = host.Spec{Mark: topology.MarkPodToNode, Comment: "ToNodes", Target: host.Return}.Rule()

// ElsewhereRules keep pods that leave by another node from leaving by this one, with its
// address: while its ovn-controller does not apply the policies of a Service that has moved,
// they are led to this node's kernel. Answers, what they send to nodes, and what was for an
// address of this node and is led on are none of this.
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
