package egressip

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The reasons of this feature for not choosing a node.
const (
	rejectLabel     place.Reason = "is not labelled k8s.ovn.org/egress-assignable"
	rejectNetwork   place.Reason = "has no network with this address"
	rejectNotSetUp  place.Reason = "is not set up for this family yet"
	rejectCordoned  place.Reason = "is cordoned"
	rejectDraining  place.Reason = "hands over its addresses"
	rejectBroadcast place.Reason = "has this address as that of a whole network"
)

// Reasons returns those, which come to the ones of place.
func Reasons() []place.Reason {
	return []place.Reason{rejectLabel, rejectNetwork, rejectNotSetUp, rejectCordoned, rejectDraining, rejectBroadcast}
}

// maxHandovers is how many addresses may be on their way from nodes that hand
// over theirs at a time.
const maxHandovers = 10

// Placement is what was decided for an address.
type Placement struct {
	Address
	Node    string // empty: none, and Refused says why
	Network netip.Prefix
	Primary bool       // Network is the primary network of the node
	NextHop netip.Addr // where pods' traffic is led to
	Chassis string
	// Left is why the node before is it no more; empty where there was none.
	Left string
	// Disputed is who else says to have the address since it is held; the zero Refusal
	// for nobody.
	Disputed Refusal
}

// same compares two placements, but for why the node before is it no more.
func (p Placement) same(o Placement) bool {
	p.Left, o.Left = "", ""
	return p == o
}

// Decision is what was decided for an EgressIP, in the order of its addresses.
type Decision struct{ Placements []Placement }

// Equal compares two decisions.
func (d Decision) Equal(o Decision) bool {
	return slices.EqualFunc(d.Placements, o.Placements, Placement.same)
}

// Nodes returns the nodes by address.
func (d Decision) Nodes() map[netip.Addr]string {
	nodes := map[netip.Addr]string{}
	for _, p := range d.Placements {
		if p.Node != "" {
			nodes[p.Addr] = p.Node
		}
	}
	return nodes
}

// Decide finds a node for every address of every EgressIP, by key. An address
// stays where Items say it is, if that is allowed. It does not depend on the
// order of all or nodes, and is the same again where Items are what it has decided.
func Decide(nodes []place.Node, all []EgressIP, network Network) map[string]Decision {
	decisions := decide(nodes, all, network)
	released, some := withoutReleased(all, decisions)
	if !some {
		return decisions
	}
	// What found no node is not held any more, and who else says to have it has it.
	again := decide(nodes, released, network)
	for key, d := range again {
		for i, p := range decisions[key].Placements {
			d.Placements[i].Left = p.Left
		}
	}
	return again
}

// withoutReleased returns the EgressIPs without the Items for which no node was found,
// and whether there are any.
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

// decide is Decide without another look at what found no node.
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

// holding tells whether an EgressIP has an address on a node that there is. Whoever
// says to have it since then does not unseat it.
func holding(e EgressIP, a netip.Addr, nodes map[string]place.Node) bool {
	_, ok := nodes[e.Items[a]]
	return ok && e.Refused == (Refusal{})
}

// refuse returns all, sorted by their right, with the refusals of addresses that
// the cluster has itself, or that somebody else has: a node or a Service, unless the
// EgressIP held it before, or an older EgressIP.
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
				why = others.refuse(a.Addr)
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

// claim is a claim of placement with what decides about handing over.
type claim struct {
	place.Claim
	from  place.Node // the node that has it; zero: none
	moves bool       // it is on its way to from
	held  bool       // from says that it has it
}

// avoid returns why a node gets nothing new, and gives up what it has as soon as
// another can take it. Who does not acknowledge keeps what it has: nobody could take
// that away.
func (c claim) avoid(n place.Node, drained bool) place.Reason {
	switch {
	case n.Draining && drained: // first: it is no last resort
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
			Group:  e.Key + "/" + topology.FamilyOf(a).String(), // one node can serve both families
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

// nextHopFor returns the network of a node that has an address and the next hop to it
// there; or why there is none.
func nextHopFor(n topology.Node, a netip.Addr) (Placement, place.Reason) {
	network, primary, ok := networkOf(n, a)
	if !ok {
		return Placement{}, rejectNetwork
	}
	// Of IPv6 the first address is that of all routers, as which hosts that forward answer.
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

// assign places the claims. Nodes that hand over what they have give up no more
// than maxHandovers at a time, and only what others can take.
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
		plain := make([]place.Claim, 0, len(claims))
		for _, c := range claims {
			drained := c.from.Draining && may(c.Key)
			c.Avoid = func(n place.Node) place.Reason { return c.avoid(n, drained) }
			plain = append(plain, c.Claim)
		}
		return place.Assign(nodes, plain)
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

// apply takes over the result of a claim.
func (p *Placement) apply(r place.Result, nodes map[string]place.Node) {
	address, disputed := p.Address, p.Disputed
	if r.Node == "" {
		address.Refused = Refusal{NoNode, fmt.Sprintf("no node can hold %s: %s", address.Addr, r.Explain())}
		*p = Placement{Address: address, Left: string(r.Left), Disputed: disputed}
		return
	}
	*p, _ = nextHopFor(nodes[r.Node].Node, address.Addr)
	p.Address, p.Left, p.Disputed = address, string(r.Left), disputed
}
