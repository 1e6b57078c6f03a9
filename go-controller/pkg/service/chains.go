package service

import (
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The chains of Services. Of the nat chains the first that matches decides, in the
// order ETP, HOSTEP, NODEPORT, EXTERNALIP.
const (
	// ChainETP takes what comes from outside and is to stay on this node.
	ChainETP = "OVN-KUBE-ETP"
	// ChainHostEndpoints goes straight to endpoints, of which some are no pods.
	ChainHostEndpoints = "OVN-KUBE-HOSTEP"
	// ChainNodePort and ChainExternal lead to the cluster address.
	ChainNodePort = "OVN-KUBE-NODEPORT"
	ChainExternal = "OVN-KUBE-EXTERNALIP"
	// ChainSources drops what loadBalancerSourceRanges does not allow.
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
		// Neither pods nor the host itself are outside.
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
