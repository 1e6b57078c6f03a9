package egressservice

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner of the rows and part of the names of contributions.
const Feature = "egressservice"

// The netfilter chains on hosts: source translations, and packets to the translated addresses
// that belong to no connection, both when they would be forwarded and when the host has the
// address itself.
const (
	ChainSNAT       = "OVN-KUBE-EGRESS-SVC"
	ChainStray      = "OVN-KUBE-STRAY"
	ChainStrayInput = "OVN-KUBE-STRAY-INPUT"
	// ChainNodeReply marks replies of pods with a network to clients that reached them at an address
	// of this node other than through their Service: by a host port.
	ChainNodeReply = "OVN-KUBE-EGRESS-SVC-REPLY"
)

// icmp is the protocol that must still reach a host at such an address: neighbour
// discovery queries an address about itself.
var icmp = map[topology.Family]string{topology.IPv4: "icmp", topology.IPv6: "ipv6-icmp"}

// position places the jumps before all our other ones: the first translation
// wins.
const position = 10

// positionNodeReply places the jump after that of EgressIPs, which mark all replies: the last
// mark wins.
const positionNodeReply = 30

// externalID is the external_ids key that existing tools look for; its value is
// "namespace/name".
const externalID = "EgressSVC"

// Owner is the owner of an EgressService's rows.
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Contributor is the name of an EgressService's contribution to the chains.
func Contributor(key string) string { return Feature + "/" + key }

// Chains declares the chains of this feature for the given families.
func Chains(families []topology.Family) []host.Chain {
	chains := make([]host.Chain, 0, 5*len(families))
	for _, f := range families {
		chains = append(chains,
			host.Chain{ChainKey: chainKey(f), Jumps: []host.Jump{{From: "POSTROUTING"}}, Position: position},
			host.Chain{ChainKey: strayKey(f), Jumps: []host.Jump{{From: "FORWARD"}}, Position: position},
			host.Chain{ChainKey: strayInputKey(f), Jumps: []host.Jump{{From: "INPUT"}}, Position: position},
			host.Chain{ChainKey: nodeReplyKey(f), Jumps: []host.Jump{{From: "PREROUTING"}}, Position: positionNodeReply},
			host.Chain{ChainKey: handOnKey(f), Jumps: []host.Jump{{From: "FORWARD"}, {From: "INPUT"}}, Position: positionHandOn})
	}
	return chains
}

func strayKey(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "filter", Name: ChainStray}
}

func strayInputKey(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "filter", Name: ChainStrayInput}
}

func nodeReplyKey(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "mangle", Name: ChainNodeReply}
}

func chainKey(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "nat", Name: ChainSNAT}
}

// Status returns the host that the status must have for a decision.
func Status(s Service, d Decision) string {
	if s.Refused != (Refusal{}) {
		return ""
	}
	return d.Host
}

// dropped reports whether the endpoints' traffic is dropped because no node can be the host.
func dropped(s Service, d Decision) bool {
	return s.DropWhenUnavailable && s.Refused == (Refusal{}) && d.Refused.Reason == NoNode
}

// Rerouted returns the endpoints that have a policy, or get one once the host is
// ready for them: those of the families in which the host is reachable, and the others, too, if their
// traffic is held back.
func Rerouted(s Service, d Decision) []netip.Addr {
	host := Status(s, d)
	if host == v1.HostAll || host == "" && !dropped(s, d) {
		return nil
	}
	var addrs []netip.Addr
	for _, e := range s.Endpoints {
		if host == "" || reachable(d, e.Addr) || holds(s) {
			addrs = append(addrs, e.Addr)
		}
	}
	return addrs
}

// PendingPods returns the pods whose traffic is held back until they are endpoints.
func PendingPods(s Service, d Decision) []netip.Addr {
	host := Status(s, d)
	if host == v1.HostAll || host == "" && !dropped(s, d) || host != "" && !holds(s) {
		return nil
	}
	return slices.Clone(s.Awaited)
}

func reachable(d Decision, a netip.Addr) bool {
	_, ok := topology.AddrOf(topology.FamilyOf(a), d.NextHops)
	return ok
}

// holds reports whether traffic for which the host is not ready is held back: if the user
// requests it, and once any traffic has been served, since from then on none may leave with
// another address.
func holds(s Service) bool { return s.DropWhenUnavailable || s.Ack.Digest != "" }

// MasterRows returns the router policies of a Service for a decision
// that the host has acknowledged: they steer the endpoints' traffic
// to the management port of the host, and drop that of families in which it has none. Rows returns the policies
// for any moment.
func MasterRows(s Service, d Decision) []nb.Row {
	steered := Rerouted(s, d)
	rows := make([]nb.Row, 0, len(steered))
	for _, addr := range steered {
		hop, _ := topology.AddrOf(topology.FamilyOf(addr), d.NextHops)
		rows = append(rows, policy(s.Key, addr, hop))
	}
	return rows
}

// policy steers an endpoint to hop, or drops its traffic if hop is invalid.
func policy(key string, addr, hop netip.Addr) nb.Row {
	p := &nbdb.LogicalRouterPolicy{
		Priority:    topology.PriorityEgressService,
		Match:       fmt.Sprintf("%s.src == %s", topology.FamilyOf(addr).Match(), addr),
		Action:      nbdb.LogicalRouterPolicyActionDrop,
		ExternalIDs: map[string]string{externalID: key},
	}
	if hop.IsValid() {
		p.Action, p.Nexthops = nbdb.LogicalRouterPolicyActionReroute, []string{hop.String()}
	}
	return nb.Row{
		ID:     addr.String(),
		Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
		Model:  p,
	}
}

// Steering is the current next hop of each endpoint; the zero Addr means that its traffic is dropped.
type Steering map[netip.Addr]netip.Addr

// SteeringOf reads the policies of an EgressService.
func SteeringOf(rows []nb.Row) Steering {
	now := Steering{}
	for _, r := range rows {
		addr, err := netip.ParseAddr(r.ID)
		p, ok := r.Model.(*nbdb.LogicalRouterPolicy)
		if err != nil || !ok {
			continue
		}
		hop := netip.Addr{}
		if len(p.Nexthops) == 1 {
			hop, _ = netip.ParseAddr(p.Nexthops[0])
		}
		now[addr] = hop
	}
	return now
}

// Addrs returns the pods' addresses.
func (s Steering) Addrs() []netip.Addr { return slices.SortedFunc(maps.Keys(s), netip.Addr.Compare) }

// Rows returns the policies that are to exist now, given the existing
// ones. Until the host has acknowledged its rules, no new traffic is led to it: steered
// traffic stays steered, to the previous host if necessary, and other traffic stays
// as it is, or is held back.
func Rows(s Service, d Decision, now Steering) []nb.Row {
	var rows []nb.Row
	if host := Status(s, d); host == "" || host == v1.HostAll || Acknowledged(s, d) {
		rows = MasterRows(s, d)
	} else {
		for _, addr := range Rerouted(s, d) {
			if hop := now[addr]; hop.IsValid() || holds(s) {
				rows = append(rows, policy(s.Key, addr, hop))
			}
		}
	}
	for _, addr := range PendingPods(s, d) {
		rows = append(rows, policy(s.Key, addr, netip.Addr{}))
	}
	return rows
}

// Acknowledged reports whether the host has programmed the current state of the Service.
func Acknowledged(s Service, d Decision) bool {
	return s.Ack.Host == d.Host && s.Ack.Digest == Digest(s, d.Host)
}

// Awaits reports whether the host has yet to acknowledge the current state of the Service. A problem that the host has
// reported with an earlier state is no answer for this one.
func Awaits(s Service, d Decision) bool {
	host := Status(s, d)
	return host != "" && host != v1.HostAll && !Acknowledged(s, d)
}

// Digest identifies the rules that host programs for a Service: equal digests mean equal
// rules. A host acknowledges the digest.
func Digest(s Service, host string) string {
	sum := sha256.New()
	fmt.Fprintln(sum, s.Key, host, s.Network, s.Ingress, s.ClusterIPs)
	if len(s.LocalPorts) > 0 {
		fmt.Fprintln(sum, s.LocalPorts)
	}
	for _, e := range s.Endpoints {
		fmt.Fprintln(sum, e.Addr)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Acknowledgement returns what a host reports that has programmed a Service without a problem.
func Acknowledgement(s Service, host string) v1.ProgrammedStatus {
	ack := v1.ProgrammedStatus{Host: host, Digest: Digest(s, host)}
	for _, a := range s.Ingress {
		ack.Addresses = append(ack.Addresses, a.String())
	}
	return ack
}

// SameAcknowledgement reports whether two status entries are equal.
func SameAcknowledgement(a, b v1.ProgrammedStatus) bool {
	return a.Host == b.Host && a.Digest == b.Digest && slices.Equal(a.Addresses, b.Addresses) && a.Problem == b.Problem
}

// Translations are the source addresses that a node gives to endpoints.
type Translations map[netip.Addr]netip.Addr

// NodeState returns the translations of a node: those of all endpoints if
// it is the host, otherwise none.
func NodeState(s Service, node string) Translations {
	out := Translations{}
	if s.Refused != (Refusal{}) || s.PerNode || s.Host == "" || s.Host != node {
		return out
	}
	for _, e := range s.Endpoints {
		if to, ok := topology.AddrOf(topology.FamilyOf(e.Addr), s.Ingress); ok {
			out[e.Addr] = to
		}
	}
	return out
}

// doNotSNAT exempts traffic from pods to nodes.
var doNotSNAT = host.Spec{Mark: topology.MarkPodToNode, Comment: "DoNotSNAT", Target: host.Return}.Rule()

// Rules renders translations as rules, with key as their comment. The exemption
// for pod-to-node traffic comes first; it is one rule however
// many EgressServices contribute it.
func (t Translations) Rules(key string) host.Rules {
	rules := StrayRules(t.Addresses(), key)
	for _, addr := range slices.SortedFunc(maps.Keys(t), netip.Addr.Compare) {
		chain := chainKey(topology.FamilyOf(addr))
		if rules[chain] == nil {
			rules[chain] = []host.Rule{doNotSNAT}
		}
		rules[chain] = append(rules[chain], host.SNAT(topology.HostPrefix(addr), t[addr], key))
	}
	return rules
}

// StrayRules drop packets to the addresses of an EgressService that would be forwarded. They belong to no known
// connection: replies already have the pod's address at this point. They are dropped before they
// create a connection of their own, which would take the port from the pod's connection; the
// latter must keep the port to continue after a failover. If the load balancer's provider puts the
// address on the host, packets to a port of the Service have another destination by
// then, and the host would refuse all others.
func StrayRules(addrs []netip.Addr, key string) host.Rules {
	rules := host.Rules{}
	for _, a := range addrs {
		f, dst := topology.FamilyOf(a), topology.HostPrefix(a)
		forward, input := strayKey(f), strayInputKey(f)
		rules[forward] = append(rules[forward], host.Spec{Dst: dst, Comment: key, Target: host.Drop}.Rule())
		rules[input] = append(rules[input], host.Spec{Dst: dst, In: host.Not("lo"),
			Protocol: host.Not(icmp[f]), CTState: "INVALID,NEW", Comment: key, Target: host.Drop}.Rule())
	}
	return rules
}

// Labels returns, by node, the labels it is to have, without their prefix: those of
// the EgressServices whose traffic it carries. While a host has not taken over, the
// label stays where it is: replies must arrive where the traffic leaves. No
// label is on two nodes.
func Labels(all []*v1.EgressService, now map[string]map[string]bool) map[string]map[string]bool {
	host := map[string]string{}
	for _, eg := range all {
		h, label := eg.Status.Host, eg.Namespace+"-"+eg.Name
		if h == "" || h == v1.HostAll {
			continue
		}
		if !Done(eg.Status) {
			if h = labelled(now, label, eg.Status); h == "" {
				continue
			}
		}
		// Two EgressServices with the same label both have a host only until the younger one is refused.
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

// labelled returns the node that has a label now; if there are several, the one known to
// carry the traffic, or else the first.
func labelled(now map[string]map[string]bool, label string, status v1.EgressServiceStatus) string {
	first := ""
	for node, labels := range now {
		switch {
		case !labels[label]:
		case status.Programmed != nil && status.Programmed.Host == node:
			return node
		case first == "" || node < first:
			first = node
		}
	}
	return first
}
