package service

import (
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The chains of Services. The nat chains are evaluated in the order ETP, HOSTEP, NODEPORT,
// EXTERNALIP; the first match decides.
const (
	// ChainETP handles external traffic that must stay on this node (externalTrafficPolicy:
	// Local).
	ChainETP = "OVN-KUBE-ETP"
	// ChainHostEndpoints sends traffic directly to endpoints if some of them are not pods.
	ChainHostEndpoints = "OVN-KUBE-HOSTEP"
	// ChainNodePort and ChainExternal send traffic to the cluster address.
	ChainNodePort = "OVN-KUBE-NODEPORT"
	ChainExternal = "OVN-KUBE-EXTERNALIP"
	// ChainSources drops traffic that loadBalancerSourceRanges does not allow.
	ChainSources = "OVN-KUBE-LB-SOURCES"
)

// Chains declares the chains of this feature for the given families.
func Chains(families []topology.Family) []host.Chain {
	var out []host.Chain
	for _, f := range families {
		chain := func(table, name string, position int, jumps ...host.Jump) {
			out = append(out, host.Chain{
				ChainKey: host.ChainKey{Family: f, Table: table, Name: name}, Jumps: jumps, Position: position,
			})
		}
		outside := host.Jump{From: "PREROUTING", Match: "! -i " + topology.ManagementPort}
		incoming, own := host.Jump{From: "PREROUTING"}, host.Jump{From: "OUTPUT"}
		chain("mangle", ChainSources, 10, outside)
		// Traffic from pods and from the host itself is not external.
		chain("nat", ChainETP, 10, outside)
		chain("nat", ChainHostEndpoints, 20, incoming, own)
		chain("nat", ChainNodePort, 30, incoming, own)
		chain("nat", ChainExternal, 40, incoming, own)
	}
	return out
}

func natChain(f topology.Family, name string) host.ChainKey {
	return host.ChainKey{Family: f, Table: "nat", Name: name}
}
