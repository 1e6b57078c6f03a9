package egressservice

import (
	"fmt"
	"net/netip"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature owns the rows and is part of the names of contributions.
const Feature = "egressservice"

// ChainSNAT is the chain of the hosts that holds the translations.
const ChainSNAT = "OVN-KUBE-EGRESS-SVC"

// positionSNAT puts the jump before every other translation of ours: the first
// one wins.
const positionSNAT = 10

// externalID is the external_ids key that existing tools look for; its value is
// "namespace/name".
const externalID = "EgressSVC"

// Owner is the owner of an EgressService's rows.
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Contributor is the name of an EgressService's contribution to the chains.
func Contributor(key string) string { return Feature + "/" + key }

// Chains declares the chain of this feature for the given families.
func Chains(families []topology.Family) []host.Chain {
	chains := make([]host.Chain, 0, len(families))
	for _, f := range families {
		chains = append(chains, host.Chain{
			ChainKey: chainKey(f),
			Jumps:    []host.Jump{{From: "POSTROUTING"}},
			Position: positionSNAT,
		})
	}
	return chains
}

func chainKey(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "nat", Name: ChainSNAT}
}

// Status returns the status host that goes with a decision.
func Status(s Service, d Decision) string {
	if s.Refused != (Refusal{}) {
		return ""
	}
	return d.Host
}

// Steered returns the endpoints whose traffic goes to the host: those of the
// families the host is reachable in.
func Steered(s Service, d Decision) []netip.Addr {
	if Status(s, d) == "" {
		return nil
	}
	var addrs []netip.Addr
	for _, e := range s.Endpoints {
		if _, ok := topology.AddrOf(topology.FamilyOf(e.Addr), d.NextHops); ok {
			addrs = append(addrs, e.Addr)
		}
	}
	return addrs
}

// MasterRows returns the router policies that steer the endpoints' traffic to
// the management port of the host.
func MasterRows(s Service, d Decision) []nb.Row {
	steered := Steered(s, d)
	rows := make([]nb.Row, 0, len(steered))
	for _, addr := range steered {
		family := topology.FamilyOf(addr)
		hop, _ := topology.AddrOf(family, d.NextHops)
		rows = append(rows, nb.Row{
			ID:     addr.String(),
			Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
			Model: &nbdb.LogicalRouterPolicy{
				Priority:    topology.PriorityEgressService,
				Match:       fmt.Sprintf("%s.src == %s", family.Match(), addr),
				Action:      nbdb.LogicalRouterPolicyActionReroute,
				Nexthops:    []string{hop.String()},
				ExternalIDs: map[string]string{externalID: s.Key},
			},
		})
	}
	return rows
}

// NodeState returns what node contributes to its chains for a service: one
// translation for every endpoint where it is the host, else nothing.
//
// Packets marked topology.MarkPodToNode need no exception: the policy that marks
// them comes before the one that steers them here.
func NodeState(s Service, node string) host.Rules {
	rules := host.Rules{}
	if s.Refused != (Refusal{}) || s.Host == "" || s.Host != node {
		return rules
	}
	for _, e := range s.Endpoints {
		family := topology.FamilyOf(e.Addr)
		to, ok := topology.AddrOf(family, s.Ingress)
		if !ok {
			continue
		}
		key := chainKey(family)
		rules[key] = append(rules[key], host.SNAT(topology.HostPrefix(e.Addr), to, s.Key))
	}
	return rules
}

// Labels returns, by node, the labels it is to have, without their prefix: those
// of the EgressServices whose status names it as host. No label is on two nodes.
func Labels(all []*v1.EgressService) map[string]map[string]bool {
	host := map[string]string{}
	for _, eg := range all {
		h, label := eg.Status.Host, eg.Namespace+"-"+eg.Name
		if h == "" || h == v1.HostAll {
			continue
		}
		// Two of one label have a host only while the younger is being refused.
		if other, taken := host[label]; !taken || h < other {
			host[label] = h
		}
	}
	byNode := map[string]map[string]bool{}
	for label, h := range host {
		if byNode[h] == nil {
			byNode[h] = map[string]bool{}
		}
		byNode[h][label] = true
	}
	return byNode
}
