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

// Feature owns the rows and is part of the names of contributions.
const Feature = "egressservice"

// The chains of the hosts: translations, and what is for an address that is given
// here and for no connection, where it would be forwarded and where the host has the
// address itself.
const (
	ChainSNAT       = "OVN-KUBE-EGRESS-SVC"
	ChainStray      = "OVN-KUBE-STRAY"
	ChainStrayInput = "OVN-KUBE-STRAY-INPUT"
	// ChainNodeReply marks what pods with a network answer to who has called them by an address
	// of this node, but for their Service: by a host port.
	ChainNodeReply = "OVN-KUBE-EGRESS-SVC-REPLY"
)

// icmp is the protocol that goes on to reach a host under such an address: neighbour
// discovery asks an address about itself.
var icmp = map[topology.Family]string{topology.IPv4: "icmp", topology.IPv6: "ipv6-icmp"}

// position puts the jumps before every other one of ours: the first translation
// wins.
const position = 10

// positionNodeReply puts the jump behind that of EgressIPs, which mark all replies: what is
// marked last holds.
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
	chains := make([]host.Chain, 0, 4*len(families))
	for _, f := range families {
		chains = append(chains,
			host.Chain{ChainKey: chainKey(f), Jumps: []host.Jump{{From: "POSTROUTING"}}, Position: position},
			host.Chain{ChainKey: strayKey(f), Jumps: []host.Jump{{From: "FORWARD"}}, Position: position},
			host.Chain{ChainKey: strayInputKey(f), Jumps: []host.Jump{{From: "INPUT"}}, Position: position},
			host.Chain{ChainKey: nodeReplyKey(f), Jumps: []host.Jump{{From: "PREROUTING"}}, Position: positionNodeReply})
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

// Status returns the status host that goes with a decision.
func Status(s Service, d Decision) string {
	if s.Refused != (Refusal{}) {
		return ""
	}
	return d.Host
}

// dropped reports whether the endpoints' traffic is kept in, since no node is there.
func dropped(s Service, d Decision) bool {
	return s.DropWhenUnavailable && s.Refused == (Refusal{}) && d.Refused.Reason == NoNode
}

// Rerouted returns the endpoints that have a policy, or get one when the host is
// ready for them: those of the families the host is reachable in.
func Rerouted(s Service, d Decision) []netip.Addr {
	host := Status(s, d)
	if host == v1.HostAll || host == "" && !dropped(s, d) {
		return nil
	}
	var addrs []netip.Addr
	for _, e := range s.Endpoints {
		if host == "" || reachable(d, e.Addr) {
			addrs = append(addrs, e.Addr)
		}
	}
	return addrs
}

// PendingPods returns the pods whose traffic is held until they are endpoints.
func PendingPods(s Service, d Decision) []netip.Addr {
	host := Status(s, d)
	if host == v1.HostAll || host == "" && !dropped(s, d) || host != "" && !holds(s) {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range s.Awaited {
		if host == "" || reachable(d, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

func reachable(d Decision, a netip.Addr) bool {
	_, ok := topology.AddrOf(topology.FamilyOf(a), d.NextHops)
	return ok
}

// holds reports whether what the host is not ready for is held back: where the user
// wants that, and once any of it was served, for then nothing may leave with
// another address.
func holds(s Service) bool { return s.DropWhenUnavailable || s.Ack.Digest != "" }

// MasterRows returns the router policies of a Service that is served as decided,
// which is once the host has acknowledged it: they steer the endpoints' traffic
// to the management port of the host. Rows tells those of any moment.
func MasterRows(s Service, d Decision) []nb.Row {
	steered := Rerouted(s, d)
	rows := make([]nb.Row, 0, len(steered))
	for _, addr := range steered {
		hop, _ := topology.AddrOf(topology.FamilyOf(addr), d.NextHops)
		rows = append(rows, policy(s.Key, addr, hop))
	}
	return rows
}

// policy steers an endpoint to hop, or drops its traffic where there is none.
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

// Steering is where the endpoints' traffic goes now; the zero Addr is nowhere.
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

// Rows returns the policies there are to be at this moment, given those there
// are. Until the host has acknowledged its rules nothing new goes there: what is
// steered stays steered, to the host before if need be, and what is not stays
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

// Acknowledged reports whether the host has programmed the Service as it is now.
func Acknowledged(s Service, d Decision) bool {
	return s.Ack.Host == d.Host && s.Ack.Digest == Digest(s, d.Host)
}

// Awaits reports whether the host has yet to acknowledge the Service as it is now. One that
// says what keeps it from that has answered.
func Awaits(s Service, d Decision) bool {
	host := Status(s, d)
	return host != "" && host != v1.HostAll && !Acknowledged(s, d) && (s.Ack.Host != host || s.Ack.Problem == "")
}

// Digest identifies what host programs for a Service: equal digests mean the
// same rules. It is what a host acknowledges.
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

// Translations are the source addresses that a node gives to endpoints.
type Translations map[netip.Addr]netip.Addr

// NodeState returns what a node translates: the traffic of every endpoint where
// it is the host, else nothing.
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

// doNotSNAT leaves what pods send to nodes alone.
var doNotSNAT = host.Spec{Mark: topology.MarkPodToNode, Comment: "DoNotSNAT", Target: host.Return}.Rule()

// Rules renders translations, with a comment that names on whose behalf they
// are. The exception for pod-to-node traffic comes first; it is one rule however
// many EgressServices contribute it.
//
// What would be forwarded to an address that is given here is for no connection we
// know: replies have the pod's address by then. It is dropped before it becomes a
// connection of its own, for that would take the port from the pod's, which has to
// keep it to go on after a failover. Where the load balancer's provider puts the
// address on the host, what is for a port of the Service has another destination by
// then, and the host would refuse the rest.
func (t Translations) Rules(key string) host.Rules {
	rules := host.Rules{}
	for _, addr := range slices.SortedFunc(maps.Keys(t), netip.Addr.Compare) {
		chain := chainKey(topology.FamilyOf(addr))
		if rules[chain] == nil {
			rules[chain] = []host.Rule{doNotSNAT}
		}
		rules[chain] = append(rules[chain], host.SNAT(topology.HostPrefix(addr), t[addr], key))
		stray := host.Spec{Dst: topology.HostPrefix(t[addr]), Comment: key, Target: host.Drop}.Rule()
		if k := strayKey(topology.FamilyOf(addr)); !slices.Contains(rules[k], stray) {
			rules[k] = append(rules[k], stray)
			in := strayInputKey(topology.FamilyOf(addr))
			rules[in] = append(rules[in], host.Spec{Dst: topology.HostPrefix(t[addr]), In: host.Not("lo"),
				Protocol: host.Not(icmp[topology.FamilyOf(addr)]), CTState: "INVALID,NEW", Comment: key, Target: host.Drop}.Rule())
		}
	}
	return rules
}

// Labels returns, by node, the labels it is to have, without their prefix: those of
// the EgressServices whose traffic it has. While a host has not taken over, the
// label stays where it is now: replies are to come where the traffic leaves. No
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

// labelled returns the node that has a label now; of several the one that has the
// traffic, by what is known, or the first.
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
