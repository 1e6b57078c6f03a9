package egressservice

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ChainHandOn copies packets to the addresses of an EgressService that belong to no connection to the
// previous or the next host, which may know them: for a moment the network outside leads replies to one of them and nodes
// lead their pods to the other.
const ChainHandOn = "OVN-KUBE-EGRESS-SVC-HAND-ON"

// positionHandOn places the jump in the mangle table, where no other chain forwards or receives.
const positionHandOn = 10

func handOnKey(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "mangle", Name: ChainHandOn}
}

// HandOnRules copy packets to addrs, the addresses of an EgressService, that belong to no known connection to another
// node, whose addresses on the network of the nodes are other, one for each family. Like
// those that StrayRules drop, they are no replies, and none that open a connection to a port of the Service: these
// have another destination by then. Packets of pods and of the host itself are exempt. The rules of
// EgressServices that share an address are the same, so that a packet is copied once.
func HandOnRules(addrs, other []netip.Addr) host.Rules {
	rules := host.Rules{}
	for _, a := range addrs {
		f := topology.FamilyOf(a)
		gateway, ok := topology.AddrOf(f, other)
		if !ok {
			continue
		}
		chain := handOnKey(f)
		if rules[chain] == nil {
			for _, in := range []string{"lo", topology.ManagementPort} {
				rules[chain] = append(rules[chain], host.Spec{In: in, Target: host.Return}.Rule())
			}
		}
		stray := host.Spec{Dst: topology.HostPrefix(a), Protocol: host.Not(icmp[f]), CTState: "INVALID,NEW"}
		rules[chain] = append(rules[chain], stray.HandOn(gateway)...)
	}
	return rules
}

// Addresses returns the addresses that pods are translated to, sorted.
func (t Translations) Addresses() []netip.Addr {
	all := slices.SortedFunc(maps.Values(t), netip.Addr.Compare)
	return slices.Compact(all)
}
