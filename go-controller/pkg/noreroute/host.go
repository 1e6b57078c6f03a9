package noreroute

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ChainMark is the chain on hosts that marks traffic from pods to hosts where the policies do not: traffic to the pods' own
// node, which another policy leads there unmarked, and all of it if their mark is lost on the way to the kernel.
const ChainMark = "OVN-KUBE-POD-TO-NODE"

// positionMark places the jump before those of the features, which match the mark.
const positionMark = 10

// Chains declares the chain for the given families.
func Chains(families []topology.Family) []host.Chain {
	chains := make([]host.Chain, 0, len(families))
	for _, f := range families {
		chains = append(chains, host.Chain{ChainKey: markChain(f), Jumps: []host.Jump{{From: "PREROUTING"}}, Position: positionMark})
	}
	return chains
}

func markChain(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "mangle", Name: ChainMark}
}

// MarkRules returns rules that mark traffic from pods to any of the hosts, or to addresses
// that pods reach through their own node, in the given families.
func MarkRules(hosts []netip.Addr, nodeLocal []netip.Prefix, families []topology.Family) host.Rules {
	rules := host.Rules{}
	mark := func(to netip.Prefix) {
		f := topology.FamilyOf(to.Addr())
		if slices.Contains(families, f) {
			rules[markChain(f)] = append(rules[markChain(f)], host.Spec{Dst: to, In: topology.ManagementPort,
				Target: host.SetMark(topology.MarkPodToNode)}.Rule())
		}
	}
	for _, a := range slices.Compact(slices.SortedFunc(slices.Values(hosts), netip.Addr.Compare)) {
		mark(topology.HostPrefix(a))
	}
	for _, p := range nodeLocal {
		mark(p)
	}
	return rules
}
