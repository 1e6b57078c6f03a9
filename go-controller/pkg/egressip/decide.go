package egressip

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The reasons of this feature for rejecting a node.
const (
	rejectLabel     place.Reason = "is not labelled k8s.ovn.org/egress-assignable"
	rejectNetwork   place.Reason = "has no network with this address"
	rejectNotSetUp  place.Reason = "is not set up for this family yet"
	rejectCordoned  place.Reason = "is cordoned"
	rejectDraining  place.Reason = "hands over its addresses"
	rejectBroadcast place.Reason = "has this address as that of a whole network"
)

// Reasons returns the reasons of this feature, which add to those of package place.
func Reasons() []place.Reason {
	return []place.Reason{rejectLabel, rejectNetwork, rejectNotSetUp, rejectCordoned, rejectDraining, rejectBroadcast}
}

// maxHandovers is the maximum number of addresses that may be in transit at a time
// from nodes that hand over their addresses.
const maxHandovers = 10

// Placement is the decision for one address.
type Placement struct {
	Address
	Node    string // empty: no node, and Refused gives the reason
	Network netip.Prefix
	Primary bool       // Network is the primary network of the node
	NextHop netip.Addr // next hop of the pods' traffic
	Chassis string
	// Unplaced is why no node can hold the address, if that is why it is refused.
	Unplaced string
	// Left is why the address left the previous node; empty if there was none.
	Left string
	// Disputed is the claim that another party made to the address after it was held; the
	// zero Refusal if there is none.
	Disputed Refusal
}

// same compares two placements, ignoring Left.
func (p Placement) same(o Placement) bool {
	p.Left, o.Left = "", ""
	return p == o
}

// Decision is the decision for an EgressIP, in the order of its addresses.
type Decision struct{ Placements []Placement }

// Equal compares two decisions.
func (d Decision) Equal(o Decision) bool {
	return slices.EqualFunc(d.Placements, o.Placements, Placement.same)
}

// Nodes returns the node of each address that has one.
func (d Decision) Nodes() map[netip.Addr]string {
	nodes := map[netip.Addr]string{}
	for _, p := range d.Placements {
		if p.Node != "" {
			nodes[p.Addr] = p.Node
		}
	}
	return nodes
}

// Decide finds a node for every address of every EgressIP and returns the decisions by key.
// An address stays on the node that Items names, if that is allowed. The result does not
// depend on the order of all or nodes, and is stable: if Items are the result of a previous
// call, the decision is the same.
func Decide(nodes []place.Node, all []EgressIP, network Network) map[string]Decision {
	decisions := decide(nodes, all, network)
	released, some := withoutReleased(all, decisions)
	if !some {
		return decisions
	}
	// An address without a node is no longer held, so a competing claimant gets it.
	again := decide(nodes, released, network)
	for key, d := range again {
		for i, p := range decisions[key].Placements {
			d.Placements[i].Left = p.Left
		}
	}
	return again
}

// withoutReleased returns the EgressIPs without the Items for which no node was found,
// and reports whether there are any such Items.
func withoutReleased(all []EgressIP, decisions map[string]Decision) (released []EgressIP, some bool) {
	released = slices.Clone(all)
	for i, e := range released {
		for _, p := range decisions[e.Key].Placements {
			if p.Node == "" && e.Items[p.Addr] != "" {
				released[i].Items, some = decisions[e.Key].Nodes(), true
			}
		}
	}
	return released, some
}

// decide is Decide without the second pass for addresses without a node.
func decide(nodes []place.Node, all []EgressIP, network Network) map[string]Decision {
	byName, known := map[string]place.Node{}, make([]topology.Node, 0, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
		known = append(known, n.Node)
	}
	decisions := make(map[string]Decision, len(all))
	var claims []claim
	others := takenBy(known, network)
	for _, e := range refuse(all, network, others, byName) {
		d := Decision{Placements: make([]Placement, len(e.Addresses))}
		for i, a := range e.Addresses {
			d.Placements[i] = Placement{Address: a}
			if a.Refused == (Refusal{}) {
				d.Placements[i].Disputed = others.refuse(a.Addr)
			}
			if a.Refused == (Refusal{}) {
				claims = append(claims, newClaim(e, a.Addr, byName))
			}
		}
		decisions[e.Key] = d
	}
	results := assign(nodes, claims)
	for key, d := range decisions {
		for i := range d.Placements {
			if p := &d.Placements[i]; p.Refused == (Refusal{}) {
				p.apply(results[claimKey(key, p.Addr)], byName)
			}
		}
	}
	return decisions
}

// holding reports whether an EgressIP has an address on an existing node. Later claims to
// the address do not displace it.
func holding(e EgressIP, a netip.Addr, nodes map[string]place.Node) bool {
	_, ok := nodes[e.Items[a]]
	return ok && e.Refused == (Refusal{})
}

// refuse returns all, sorted by precedence, with the refusals of addresses that
// belong to the cluster itself or to somebody else: a node or an older Service, unless
// the EgressIP held the address before, or an older EgressIP.
func refuse(all []EgressIP, network Network, others taken, nodes map[string]place.Node) []EgressIP {
	sorted := slices.Clone(all)
	SortByPrecedence(sorted)
	owner := map[netip.Addr]string{}
	for i, e := range sorted {
		addresses := slices.Clone(e.Addresses)
		for j, a := range addresses {
			if a.Refused != (Refusal{}) {
				continue
			}
			why := network.refuse(a.Addr)
			if why == (Refusal{}) && !holding(e, a.Addr, nodes) {
				why = others.refuseTo(e, a.Addr)
			}
			if older, ok := owner[a.Addr]; ok && why == (Refusal{}) {
				why = Refusal{AddressTaken, fmt.Sprintf("%s belongs to the older EgressIP %s", a.Addr, older)}
			}
			if why == (Refusal{}) {
				owner[a.Addr] = e.Key
				why = e.Refused
			}
			addresses[j].Refused = why
		}
		sorted[i].Addresses = addresses
	}
	return sorted
}

// claim is a placement claim with the facts that decide about handing over.
type claim struct {
	place.Claim
	from  place.Node // the node that has the address; zero: none
	moves bool       // the address is on its way to from
	held  bool       // from reports that it has the address
}

// avoid returns why a node gets no new addresses and gives up its addresses as soon as
// another node can take them. A node that does not acknowledge keeps its addresses, since
// they cannot be taken away from it.
func (c claim) avoid(n place.Node, drained bool) place.Reason {
	switch {
	case n.Draining && drained: // first: a draining node is not even a last resort
		return rejectDraining
	case n.Stuck:
		return place.Stuck
	case n.NotAcknowledging && !(c.held && n.Name == c.Prefer):
		return place.NotAcknowledging
	}
	return ""
}

func claimKey(key string, a netip.Addr) string { return key + "/" + a.String() }

func newClaim(e EgressIP, a netip.Addr, nodes map[string]place.Node) claim {
	now := e.Items[a]
	holders := e.Holders[a]
	return claim{
		Claim: place.Claim{
			Key:    claimKey(e.Key, a),
			Group:  e.Key + "/" + topology.FamilyOf(a).String(), // one node may serve both families
			Prefer: now,
			Allow: func(n place.Node) place.Reason {
				switch _, hop := nextHopFor(n.Node, a); {
				case !n.EgressAssignable:
					return rejectLabel
				case hop != "":
					return hop
				case n.Name == now:
					return ""
				case n.Draining:
					return rejectDraining
				case n.Unschedulable:
					return rejectCordoned
				}
				return ""
			},
		},
		from:  nodes[now],
		held:  slices.Contains(holders, now),
		moves: now != "" && !slices.Contains(holders, now) && slices.ContainsFunc(holders, func(name string) bool { return !nodes[name].NotAcknowledging }),
	}
}

// nextHopFor returns the network of a node that contains an address and the next hop to
// the address there, or the reason why there is none.
func nextHopFor(n topology.Node, a netip.Addr) (Placement, place.Reason) {
	network, primary, ok := networkOf(n, a)
	if !ok {
		return Placement{}, rejectNetwork
	}
	// The first address of an IPv6 network is the subnet-router anycast address, which forwarding hosts answer for.
	if topology.IsOfAll(network, a) {
		return Placement{}, rejectBroadcast
	}
	p := Placement{Node: n.Name, Network: network, Primary: primary, Chassis: n.Chassis}
	family := topology.FamilyOf(a)
	if primary {
		join, ok := topology.PrefixOf(family, n.Join)
		if !ok || !n.HasGateway() {
			return Placement{}, rejectNotSetUp
		}
		p.NextHop = join.Addr()
	} else if p.NextHop, ok = topology.AddrOf(family, n.ManagementAddrs()); !ok {
		return Placement{}, rejectNotSetUp
	}
	return p, ""
}

// assign places the claims. Nodes that hand over their addresses give up at most
// maxHandovers at a time, and only addresses that other nodes can take.
func assign(nodes []place.Node, claims []claim) map[string]place.Result {
	under := 0
	draining := false
	for _, c := range claims {
		if c.moves {
			under++
		}
		draining = draining || c.from.Draining
	}
	leave := func(may func(key string) bool) map[string]place.Result {
		placeClaims := make([]place.Claim, 0, len(claims))
		for _, c := range claims {
			drained := c.from.Draining && may(c.Key)
			c.Avoid = func(n place.Node) place.Reason { return c.avoid(n, drained) }
			placeClaims = append(placeClaims, c.Claim)
		}
		return place.Assign(nodes, placeClaims)
	}
	results := leave(func(string) bool { return true })
	if !draining {
		return results
	}
	var leaving []string
	for _, c := range claims {
		if to := results[c.Key].Node; c.from.Draining && to != "" && to != c.from.Name {
			leaving = append(leaving, c.Key)
		}
	}
	slices.Sort(leaving)
	allowed := max(0, maxHandovers-under)
	if len(leaving) <= allowed {
		return results
	}
	return leave(func(key string) bool { return slices.Contains(leaving[:allowed], key) })
}

func noNode(addrs, why string) Refusal {
	return Refusal{NoNode, fmt.Sprintf("no node can hold %s: %s", addrs, why)}
}

// apply stores the result of a claim.
func (p *Placement) apply(r place.Result, nodes map[string]place.Node) {
	address, disputed := p.Address, p.Disputed
	if r.Node == "" {
		why := r.Explain()
		address.Refused = noNode(address.Addr.String(), why)
		*p = Placement{Address: address, Unplaced: why, Left: string(r.Left), Disputed: disputed}
		return
	}
	*p, _ = nextHopFor(nodes[r.Node].Node, address.Addr)
	p.Address, p.Left, p.Disputed = address, string(r.Left), disputed
}
