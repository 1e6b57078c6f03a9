package egressservice

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// group is a set of Services that need the same host, because they share source addresses, directly
// or through others: replies to an address arrive at one node only.
type group struct {
	claim   place.Claim                   // of all of them
	doubts  func(place.Node) place.Reason // of any of them; see settle
	members []Service                     // the oldest first
}

// groups are the groups of the Services added so far.
type groups struct {
	nodes  []place.Node
	shared map[netip.Addr]bool // the addresses of several Services
	all    []*group
	byAddr map[netip.Addr]*group
	oldest map[netip.Addr]string // the key of the oldest Service with an address
}

// newGroups returns groups without Services, for those of the given ones that will be added.
func newGroups(nodes []place.Node, services []Service) *groups {
	shared := map[netip.Addr]bool{}
	for _, s := range services {
		if s.Refused != (Refusal{}) || s.PerNode {
			continue
		}
		for _, a := range s.Ingress {
			_, another := shared[a]
			shared[a] = another
		}
	}
	return &groups{nodes: nodes, shared: shared, byAddr: map[netip.Addr]*group{}, oldest: map[netip.Addr]string{}}
}

// add adds a Service, which is younger than all others so far. If no node can be the host of it and
// of those with which it shares addresses, it is not added, and the result gives the reason.
func (g *groups) add(s Service) (place.Result, bool) {
	joined := &group{claim: claim(s), members: []Service{s}}
	if !slices.ContainsFunc(s.Ingress, func(a netip.Addr) bool { return g.shared[a] }) {
		g.all = append(g.all, joined)
		return place.Result{}, true
	}
	var others []*group
	for _, a := range s.Ingress {
		if o := g.byAddr[a]; o != nil && !slices.Contains(others, o) {
			others = append(others, o)
			joined.members = append(joined.members, o.members...)
			joined.claim = combined(g.nodes, joined.claim, o.claim)
		}
	}
	slices.SortFunc(joined.members, older)
	joined.claim.Key, joined.doubts = joined.members[0].Key, joined.claim.Avoid
	if !joined.settle(g.nodes) {
		alone := claim(s)
		alone.Allow = g.orOthers(s, alone.Allow)
		return place.Assign(g.nodes, []place.Claim{alone})[s.Key], false
	}
	g.all = append(slices.DeleteFunc(g.all, func(o *group) bool { return slices.Contains(others, o) }), joined)
	for _, m := range joined.members {
		for _, a := range m.Ingress {
			g.byAddr[a] = joined
			g.oldest[a] = cmp.Or(g.oldest[a], s.Key)
		}
	}
	return place.Result{}, true
}

// orOthers adds the objections of the Services with which s shares addresses to its own.
func (g *groups) orOthers(s Service, own func(place.Node) place.Reason) func(place.Node) place.Reason {
	return func(n place.Node) place.Reason {
		if why := own(n); why != "" {
			return why
		}
		for _, a := range s.Ingress {
			if o := g.byAddr[a]; o != nil && o.claim.Allow(n) != "" {
				return place.Reason(fmt.Sprintf("cannot also be the host of %s, which has the same ingress address %s", s.nameOf(g.oldest[a]), a))
			}
		}
		return ""
	}
}

// nameOf names another EgressService to the users of s. One of another namespace is not disclosed.
func (s Service) nameOf(key string) string {
	if strings.HasPrefix(key, s.Namespace+"/") {
		return "EgressService " + key
	}
	return "an EgressService of another namespace"
}

// combined returns a claim that allows and avoids what two claims do.
func combined(nodes []place.Node, a, b place.Claim) place.Claim {
	objections, doubts := make(map[string]place.Reason, len(nodes)), make(map[string]place.Reason, len(nodes))
	for _, n := range nodes {
		objections[n.Name] = cmp.Or(a.Allow(n), b.Allow(n))
		doubts[n.Name] = cmp.Or(a.Avoid(n), b.Avoid(n))
	}
	return place.Claim{
		Allow: func(n place.Node) place.Reason { return objections[n.Name] },
		Avoid: func(n place.Node) place.Reason { return doubts[n.Name] },
	}
}

// settle makes the claim prefer the host of the oldest member whose host can stay, and reports whether
// any node can be the host. What others have against that host, without excluding it, does not count: it is for new claims, and
// must not move the member. The exception is that one of them has no ready endpoint there any more, which moves all if they can.
func (g *group) settle(nodes []place.Node) bool {
	g.claim.Prefer = ""
	tried := map[string]bool{"": true}
	for _, m := range g.members {
		c := g.claim
		if c.Prefer = m.currentHost(); tried[c.Prefer] {
			continue
		}
		own := claim(m)
		c.Avoid = func(n place.Node) place.Reason {
			if n.Name == own.Prefer {
				return cmp.Or(own.Avoid(n), g.unready(n))
			}
			return g.doubts(n)
		}
		tried[c.Prefer] = true
		if place.Assign(nodes, []place.Claim{c})[c.Key].Node == c.Prefer {
			g.claim = c
			return true
		}
	}
	return place.Assign(nodes, []place.Claim{g.claim})[g.claim.Key].Node != ""
}

// unready returns rejectUnready if a node has no ready endpoint of a member that demands one.
func (g *group) unready(n place.Node) place.Reason {
	if slices.ContainsFunc(g.members, func(m Service) bool { return claim(m).Avoid(n) == rejectUnready }) {
		return rejectUnready
	}
	return ""
}

// left returns why a member of a group with several leaves its host; empty if it has none, or stays.
func left(nodes []place.Node, s Service, host string) place.Reason {
	now := s.currentHost()
	if now == "" || now == host {
		return ""
	}
	if alone := place.Assign(nodes, []place.Claim{claim(s)})[s.Key]; alone.Node != now {
		return alone.Left
	}
	return sharesAddress
}

// currentHost returns the node that is the host of s now, or "".
func (s Service) currentHost() string {
	if s.Host == v1.HostAll {
		return ""
	}
	return s.Host
}
