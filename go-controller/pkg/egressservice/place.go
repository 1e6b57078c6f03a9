package egressservice

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// The reasons of this feature for rejecting a node.
const (
	rejectSelector   place.Reason = "does not match nodeSelector"
	rejectNoEndpoint place.Reason = "has no endpoint, which externalTrafficPolicy Local demands"
	rejectUnready    place.Reason = "has no ready endpoint, which externalTrafficPolicy Local demands"
	rejectNoSubnet   place.Reason = "has no pod subnet yet"
	rejectCordoned   place.Reason = "is cordoned"
	sharesAddress    place.Reason = "cannot be the host of all EgressServices with the same ingress address"
)

// Reasons returns the reasons of this feature, which add to those of package place.
func Reasons() []place.Reason {
	return []place.Reason{rejectSelector, rejectNoEndpoint, rejectUnready, rejectNoSubnet, rejectCordoned, sharesAddress}
}

// Decision is the placement of an EgressService.
type Decision struct {
	Host     string       // empty: none, and Refused gives the reason
	NextHops []netip.Addr // the host's management addresses
	Refused  Refusal
	// UID and Generation identify the object and the spec that the decision was made for.
	UID        types.UID
	Generation int64
	// NotAcknowledging: the host is reachable, but has not acknowledged its rules in
	// time, and no other node can be the host.
	NotAcknowledging bool
	// Left is why the previous host is no longer the host; empty if there was none.
	Left string
}

// Equal compares two decisions, ignoring Left.
func (d Decision) Equal(o Decision) bool {
	return d.Host == o.Host && d.Refused == o.Refused && d.UID == o.UID && d.Generation == o.Generation &&
		d.NotAcknowledging == o.NotAcknowledging && slices.Equal(d.NextHops, o.NextHops)
}

// Abandoned returns the previous host if the service moves to another one because it is
// unreachable, and nil otherwise.
func (d Decision) Abandoned(before string) []string {
	if before == "" || before == v1.HostAll || d.Host == "" || d.Host == before || d.Left != string(place.Unreachable) {
		return nil
	}
	return []string{before}
}

// Decide finds the host of every service and returns the decisions by key. A service stays on its
// Host if that is allowed. Services with the same source address have the same host.
func Decide(nodes []place.Node, services []Service) map[string]Decision {
	decisions := make(map[string]Decision, len(services))
	byAge := distinctLabels(services)
	g := newGroups(nodes, byAge)
	for _, s := range byAge {
		switch {
		case s.Refused != (Refusal{}):
			decisions[s.Key] = Decision{Refused: s.Refused}
		case s.PerNode:
			decisions[s.Key] = Decision{Host: v1.HostAll}
		default:
			if r, ok := g.add(s); !ok {
				decisions[s.Key] = noNode(r)
			}
		}
	}
	byName := make(map[string]place.Node, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
	}
	claims := make([]place.Claim, 0, len(g.all))
	for _, one := range g.all {
		claims = append(claims, one.claim)
	}
	placed := place.Assign(nodes, claims)
	for _, one := range g.all {
		r := placed[one.claim.Key]
		for _, s := range one.members {
			if len(one.members) > 1 {
				r.Left = left(nodes, s, r.Node)
			}
			if r.Node == "" {
				decisions[s.Key] = noNode(r)
				continue
			}
			decisions[s.Key] = Decision{Host: r.Node, NextHops: byName[r.Node].ManagementAddrs(), Left: string(r.Left)}
		}
	}
	for _, s := range services {
		d := decisions[s.Key]
		d.UID, d.Generation = s.UID, s.Generation
		d.NotAcknowledging = byName[d.Host].NotAcknowledging && Awaits(s, d)
		decisions[s.Key] = d
	}
	return decisions
}

// noNode returns the decision for a Service that no node can have.
func noNode(r place.Result) Decision {
	return Decision{Refused: Refusal{NoNode, "no node can be the host: " + r.Explain()}, Left: string(r.Left)}
}

// older orders Services by age.
func older(a, b Service) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Key, b.Key))
}

// distinctLabels sorts Services by age, and refuses all but the oldest of several services with the same label text ("a-b"/"c"
// and "a"/"b-c"): with two hosts under one label, a load
// balancer would announce both addresses from both.
func distinctLabels(services []Service) []Service {
	sorted := slices.Clone(services)
	slices.SortFunc(sorted, older)
	owner := map[string]string{}
	for i, s := range sorted {
		if s.Refused != (Refusal{}) || s.PerNode {
			continue
		}
		if _, taken := owner[s.Label()]; taken {
			// The owner is not disclosed to users of another namespace.
			sorted[i].Refused = Refusal{LabelTaken, "an older EgressService has the label " + s.Label()}
			continue
		}
		owner[s.Label()] = s.Key
	}
	return sorted
}

func claim(s Service) place.Claim {
	local := map[string]bool{} // by node with endpoints, whether any of them is ready
	if s.LocalOnly {
		for _, e := range s.Endpoints {
			local[e.Node] = local[e.Node] || e.Ready
		}
	}
	now := s.currentHost()
	return place.Claim{
		Key:    s.Key,
		Prefer: now,
		Allow: func(n place.Node) place.Reason {
			ready, here := local[n.Name]
			switch {
			case !s.Selector.Matches(labels.Set(n.Labels)):
				return rejectSelector
			case len(n.Subnets) == 0:
				return rejectNoSubnet
			case s.LocalOnly && !here:
				return rejectNoEndpoint
			case s.LocalOnly && !ready && n.Name != now:
				return rejectUnready
			}
			return ""
		},
		// A cordoned host is not abandoned without a replacement, and neither is one whose endpoints
		// are not ready: the pods there run, and would leave with their nodes' addresses. A host that
		// does not acknowledge keeps what it has already acknowledged.
		Avoid: func(n place.Node) place.Reason {
			switch {
			case n.Unschedulable:
				return rejectCordoned
			case s.LocalOnly && !local[n.Name]:
				return rejectUnready
			case n.NotAcknowledging && (n.Name != now || Awaits(s, Decision{Host: now})):
				return place.NotAcknowledging
			}
			return ""
		},
	}
}
