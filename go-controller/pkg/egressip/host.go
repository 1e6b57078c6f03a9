package egressip

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The netfilter chains on hosts.
const (
	// ChainSNAT has the translations to addresses on secondary networks.
	ChainSNAT = "OVN-KUBE-EGRESS-IP-MULTI-NIC"
	// ChainMark saves the mark of traffic from pods to nodes for its replies. It also
	// marks the replies of pods to clients that reached them through this host (by a host
	// port, or by an address of a Service): these replies go back the way the request came.
	ChainMark = "OVN-KUBE-EGRESS-IP-MARK"
	// ChainStray drops packets to an address on a secondary network that belong to
	// no connection known here: replies already have the pod's address at this point. Otherwise
	// the host would refuse a connection that has just moved from another node, or, before
	// it has the address, forward the packet. Either would create a new connection,
	// which takes the port from the pod's connection.
	ChainStray = "OVN-KUBE-EGRESS-IP-STRAY"
	// ChainHandOn forwards such packets to the previous node of the address for a while: that
	// node knows the connections, and translates for them until it learns that
	// their pods are led elsewhere.
	ChainHandOn = "OVN-KUBE-EGRESS-IP-HAND-ON"
)

// strays are the protocols whose connections hosts refuse. Other protocols are left alone:
// neighbour discovery queries an address about itself.
var strays = []string{"tcp", "udp", "sctp"}

// position places the jumps after those of EgressServices in the same built-in
// chain, which take precedence, and before all others.
const position = 20

// tableBase plus the interface index of a link is the number of the routing
// table for it. No interface has index 0: the table of that number leads nowhere.
const tableBase = 1000

// TableOf returns the number of the routing table for traffic that leaves by the
// link with the given interface index.
func TableOf(index int) int { return tableBase + index }

// Chains declares the chains of this feature.
func Chains(families []topology.Family) []host.Chain {
	var chains []host.Chain
	for _, f := range families {
		chains = append(chains,
			host.Chain{ChainKey: snatChain(f), Jumps: []host.Jump{{From: "POSTROUTING"}}, Position: position},
			host.Chain{ChainKey: markChain(f), Jumps: []host.Jump{{From: "PREROUTING"}}, Position: position},
			host.Chain{ChainKey: handOnChain(f), Jumps: []host.Jump{{From: "PREROUTING"}}, Position: position},
			host.Chain{ChainKey: strayChain(f), Jumps: []host.Jump{{From: "INPUT"}, {From: "FORWARD"}}, Position: position},
		)
	}
	return chains
}

func snatChain(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "nat", Name: ChainSNAT}
}

func markChain(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "mangle", Name: ChainMark}
}

func handOnChain(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "mangle", Name: ChainHandOn}
}

func strayChain(f topology.Family) host.ChainKey {
	return host.ChainKey{Family: f, Table: "filter", Name: ChainStray}
}

// Contributor is the name of an EgressIP's contributions to the kernel.
func Contributor(key string) string { return Feature + "/" + key }

// LinkAssignment is the place of an address on this host.
type LinkAssignment struct {
	Addr netip.Addr
	// Link has the address's network. The zero value means that there is no such link: then the
	// traffic that pods send to this host, until they are led elsewhere, must leave by no link.
	Link host.Network
	// Before is the address, on that network, of the node that has the egress address, or
	// had it a moment ago; invalid if there is none.
	Before netip.Addr
}

// Linked reports whether the address has a link.
func (l LinkAssignment) Linked() bool { return l.Link.Link != "" }

// AssignLinks finds the links that have the networks of an assignment's secondary
// addresses. ours distinguishes egress addresses from those of the host: only the latter
// make a link part of a network, and a single address is none. An address of a router that the host sends to through
// the link gets no link: this host would answer for the router. The second result says why an address has no
// link, or is "" if every address has one.
func AssignLinks(s NodeAssignment, networks []host.Network, ours func(netip.Addr) bool) ([]LinkAssignment, string) {
	var assignments []LinkAssignment
	problem := ""
	for _, a := range s.Secondary {
		i := slices.IndexFunc(networks, func(n host.Network) bool {
			return slices.ContainsFunc(n.Addrs, func(p netip.Prefix) bool {
				return !p.IsSingleIP() && p.Masked() == s.Networks[a] && !ours(p.Addr())
			})
		})
		if i < 0 {
			problem = fmt.Sprintf("no link that is up has network %s of %s", s.Networks[a], a)
			assignments = append(assignments, LinkAssignment{Addr: a})
			continue
		}
		link := networks[i]
		if slices.ContainsFunc(link.Routes, func(r host.LinkRoute) bool { return leadsVia(r, a) }) {
			problem = fmt.Sprintf("%s is a gateway of the host's routes through %s", a, link.Link)
			assignments = append(assignments, LinkAssignment{Addr: a})
			continue
		}
		link.Routes = slices.DeleteFunc(slices.Clone(link.Routes), func(r host.LinkRoute) bool {
			return r.Dst.IsSingleIP() && ours(r.Dst.Addr()) // the kernel's own route for the egress address itself
		})
		assignments = append(assignments, LinkAssignment{Addr: a, Link: link})
	}
	return assignments, problem
}

// leadsVia reports whether an address is a next hop of a route.
func leadsVia(r host.LinkRoute, a netip.Addr) bool {
	return r.Via == a || slices.ContainsFunc(r.Hops, func(h host.LinkHop) bool { return h.Via == a })
}

// HostState is the kernel state of a host for an EgressIP.
type HostState struct {
	Addrs    map[host.Address]host.AddressUse
	IPRules  map[host.IPRule]struct{}
	Routes   map[host.Route]host.Hop
	Settings map[string]string
	Rules    host.Rules
	// HandOn are the optional rules.
	HandOn host.Rules
	// Translations are the source addresses that pods get.
	Translations map[netip.Addr]netip.Addr
}

// Empty reports whether the state has no addresses and no routes.
func (s HostState) Empty() bool { return len(s.Addrs)+len(s.Routes) == 0 }

// Has reports whether the host has an egress address.
func (s HostState) Has(a netip.Addr) bool {
	for have := range s.Addrs {
		if have.Prefix.Addr() == a {
			return true
		}
	}
	return false
}

// Equal reports whether two states are equal.
func (s HostState) Equal(o HostState) bool {
	return maps.Equal(s.Addrs, o.Addrs) && maps.Equal(s.IPRules, o.IPRules) && maps.Equal(s.Routes, o.Routes) &&
		maps.Equal(s.Settings, o.Settings) && maps.EqualFunc(s.Rules, o.Rules, slices.Equal) &&
		maps.EqualFunc(s.HandOn, o.HandOn, slices.Equal)
}

// HostPlan plans the host state for addresses on secondary networks and the
// pods of their EgressIP. Pods of a family leave with its first address that has a
// link, or not at all if none has one. Addresses that are not held are prepared:
// everything is in place except the address itself.
func HostPlan(assignments []LinkAssignment, held func(netip.Addr) bool, pods []netip.Addr) HostState {
	s := HostState{Addrs: map[host.Address]host.AddressUse{}, IPRules: map[host.IPRule]struct{}{}, Routes: map[host.Route]host.Hop{},
		Settings: map[string]string{}, Rules: host.Rules{}, HandOn: host.Rules{}, Translations: map[netip.Addr]netip.Addr{}}
	pods = slices.SortedFunc(slices.Values(pods), netip.Addr.Compare)
	for _, assignment := range assignments {
		if assignment.Linked() {
			s.prepare(assignment, held(assignment.Addr))
		}
	}
	for _, f := range topology.Families {
		var mine []LinkAssignment
		for _, a := range assignments {
			if topology.FamilyOf(a.Addr) == f {
				mine = append(mine, a)
			}
		}
		if len(mine) > 0 {
			first := max(0, slices.IndexFunc(mine, LinkAssignment.Linked))
			s.routePods(f, mine[first], pods)
		}
	}
	return s
}

// prepare plans the state that an address itself needs.
func (s *HostState) prepare(assignment LinkAssignment, held bool) {
	if held {
		s.Addrs[host.Address{Link: assignment.Link.Link, Prefix: topology.HostPrefix(assignment.Addr)}] = host.AddressUse{NotPreferred: true}
	}
	f := topology.FamilyOf(assignment.Addr)
	for _, protocol := range strays {
		s.Rules[strayChain(f)] = append(s.Rules[strayChain(f)],
			host.Spec{Dst: topology.HostPrefix(assignment.Addr), Protocol: protocol, Target: host.Drop}.Rule())
		if assignment.Before.IsValid() {
			stray := host.Spec{Dst: topology.HostPrefix(assignment.Addr), Protocol: protocol, CTState: "INVALID,NEW"}
			s.HandOn[handOnChain(f)] = append(s.HandOn[handOnChain(f)], stray.HandOn(assignment.Before)...)
		}
	}
}

// routePods plans the routing of the pods of a family.
func (s *HostState) routePods(f topology.Family, assignment LinkAssignment, pods []netip.Addr) {
	table := TableOf(assignment.Link.Index)
	// A link that goes down loses its routes, and the main table would be consulted next.
	s.Routes[host.Route{Dst: topology.Everywhere(f), Table: table}] = host.Hop{Drop: true}
	if assignment.Linked() {
		maps.Copy(s.Routes, routes(f, assignment.Link, table))
		settings(s.Settings, f, assignment.Link.Link)
	}
	for _, pod := range pods {
		if topology.FamilyOf(pod) != f {
			continue
		}
		src := topology.HostPrefix(pod)
		s.IPRules[host.IPRule{Family: f, Priority: topology.RuleEgressIP, Src: src, Table: table}] = struct{}{}
		if assignment.Linked() {
			s.Rules[snatChain(f)] = append(s.Rules[snatChain(f)],
				host.Spec{Src: src, Out: assignment.Link.Link, Target: host.SNATTo(assignment.Addr)}.Rule())
			s.Translations[pod] = assignment.Addr
		}
	}
	// Traffic from pods to nodes passes through the host in local gateway mode, its
	// replies in both modes. It keeps the usual routes.
	s.exemptNodes(f)
}

// exemptNodes exempts traffic between pods and nodes, and replies of pods, from the ip rules of pods.
func (s *HostState) exemptNodes(f topology.Family) {
	s.IPRules[host.IPRule{Family: f, Priority: topology.RulePodToNode, Mark: topology.MarkPodToNode, Table: topology.MainTable}] = struct{}{}
	s.Rules[markChain(f)] = []host.Rule{
		host.Spec{Mark: topology.MarkPodToNode, Target: host.SaveMark}.Rule(),
		host.Spec{Unmarked: true, Target: host.RestoreMark}.Rule(),
		host.Spec{In: topology.ManagementPort, Reply: true, Target: host.SetMark(topology.MarkPodToNode)}.Rule(),
	}
}

// Nowhere returns the host state by which pods leave by no link.
func Nowhere(pods []netip.Addr) HostState {
	s := HostPlan(nil, nil, nil)
	for _, pod := range pods {
		f := topology.FamilyOf(pod)
		s.IPRules[host.IPRule{Family: f, Priority: topology.RuleEgressIP, Src: topology.HostPrefix(pod), Table: TableOf(0)}] = struct{}{}
		s.Routes[host.Route{Dst: topology.Everywhere(f), Table: TableOf(0)}] = host.Hop{Drop: true}
		s.exemptNodes(f)
	}
	return s
}

// Routed returns the pods whose traffic ip rules route.
func (s HostState) Routed() map[netip.Addr]bool {
	pods := map[netip.Addr]bool{}
	for r := range s.IPRules {
		if r.Priority == topology.RuleEgressIP {
			pods[r.Src.Addr()] = true
		}
	}
	return pods
}

// Preceded returns the pods of the host that other features route by rules before those of EgressIPs. Whichever EgressIP
// has such a pod, its connections do not leave with an egress address. The tables of these rules have routes: otherwise the kernel
// would go on with the rules of EgressIPs.
func Preceded(rules map[host.IPRule]struct{}) map[netip.Addr]bool {
	pods := map[netip.Addr]bool{}
	for r := range rules {
		precedes := r.Priority == topology.RuleEgressServiceNetwork || r.Priority == topology.RulePodToNode
		if precedes && r.Src.IsSingleIP() && r.Protocol == "" {
			pods[r.Src.Addr()] = true
		}
	}
	return pods
}

// routes returns the routes of a link's table: the main table's routes through the link,
// and a default route even if the main table has none there. Of several routes to one
// destination the best one is taken.
func routes(f topology.Family, link host.Network, table int) map[host.Route]host.Hop {
	out, metrics := map[host.Route]host.Hop{}, map[host.Route]int{}
	fallback := host.Route{Dst: topology.Everywhere(f), Table: table, Link: link.Link}
	for _, r := range link.Routes {
		if topology.FamilyOf(r.Dst.Addr()) != f || r.TOS != 0 {
			continue
		}
		hop := host.Hop{Via: r.Via, MTU: r.MTU, OnLink: r.OnLink}
		if i := slices.IndexFunc(r.Hops, func(h host.LinkHop) bool { return h.Link == "" }); i >= 0 {
			hop.Via, hop.OnLink = r.Hops[i].Via, r.Hops[i].OnLink
		}
		key := host.Route{Dst: r.Dst.Masked(), Table: table, Link: link.Link}
		if best, known := metrics[key]; !known || r.Metric < best {
			out[key], metrics[key] = hop, r.Metric
		}
	}
	if _, ok := out[fallback]; !ok {
		out[fallback] = host.Hop{}
	}
	return out
}

// settings sets the parameters of a link that carries pods' traffic: replies
// arrive on a link to which the main table may have no route.
func settings(out map[string]string, f topology.Family, link string) {
	path := fmt.Sprintf("net/ipv%d/conf/%s/", uint8(f), link)
	out[path+"forwarding"] = "1"
	if f == topology.IPv4 {
		out[path+"rp_filter"] = "2"
	}
}

// Addrs returns the addresses of the pods that an EgressIP has.
func (m *Members) Addrs(key string) []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	var addrs []netip.Addr
	if s := m.byKey[key]; s != nil {
		for _, a := range s.selected {
			addrs = append(addrs, a...)
		}
	}
	return addrs
}
