package gateway

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Chains of the base network. SNAT-MGMTPORT is shared: the service feature adds exceptions
// before its last rule.
const (
	ChainForward      = "OVN-KUBE-FORWARD"
	ChainSNATMgmtPort = topology.ChainSNATMgmtPort
	ChainMasquerade   = "OVN-KUBE-MASQ"
)

// Positions of the jumps in nat POSTROUTING. The chain of EgressService comes
// before them, because the first translation wins.
const (
	PositionSNATMgmtPort = 80
	PositionMasquerade   = 90
)

// Contributor is the name under which the base network contributes rules, routes
// and flows. The rules of a chain are ordered by contributor, and the last rule of
// SNAT-MGMTPORT matches everything: the name sorts after those of all features.
const Contributor = "zz-gateway"

// Chains declares the chains of the base network for the given families.
func Chains(families []topology.Family) []host.Chain {
	var out []host.Chain
	for _, f := range families {
		chain := func(table, name string, position int, jump host.Jump) {
			out = append(out, host.Chain{
				ChainKey: host.ChainKey{Family: f, Table: table, Name: name},
				Jumps:    []host.Jump{jump}, Position: position,
			})
		}
		chain("filter", ChainForward, PositionMasquerade, host.Jump{From: "FORWARD"})
		chain("nat", ChainSNATMgmtPort, PositionSNATMgmtPort,
			host.Jump{From: "POSTROUTING", Match: "-o " + topology.ManagementPort})
		chain("nat", ChainMasquerade, PositionMasquerade, host.Jump{From: "POSTROUTING"})
	}
	return out
}

// Rules returns the rules that every node has, for its pod subnets.
func Rules(subnets []netip.Prefix) host.Rules {
	const port = topology.ManagementPort
	rules := host.Rules{}
	for _, s := range subnets {
		key := func(table, name string) host.ChainKey {
			return host.ChainKey{Family: topology.FamilyOf(s.Addr()), Table: table, Name: name}
		}
		// Hosts whose policy is not to forward must still forward for pods.
		rules[key("filter", ChainForward)] = []host.Rule{
			host.Spec{In: port, Target: host.Accept}.Rule(),
			host.Spec{Out: port, Target: host.Accept}.Rule(),
		}
		// Sockets of the host may be bound to the node's address, to which pods on
		// this node have a different path.
		rules[key("nat", ChainSNATMgmtPort)] = []host.Rule{
			host.Spec{Target: host.SNATTo(topology.ManagementAddr(s))}.Rule(),
		}
		rules[key("nat", ChainMasquerade)] = []host.Rule{
			// Service traffic from outside whose endpoint is on another host.
			host.Spec{Out: host.Not(port), CTState: "DNAT", SrcType: host.Not("LOCAL"), Target: host.Masquerade}.Rule(),
			// Pods that leave through the host, and sockets of the host that
			// use the management port's address.
			host.Spec{Out: host.Not(port), Src: s, Target: host.Masquerade}.Rule(),
		}
	}
	return rules
}
