package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Claim is what a node was assigned before, according to its annotations.
type Claim struct {
	Name    string
	Created time.Time
	Subnets []netip.Prefix
	Join    []netip.Prefix
	// Gone says that the node does not exist any more, but rows with these subnets and addresses do.
	Gone bool
}

// Reasons of the condition NetworkUnavailable: the one for an available network, and those why
// a node cannot get what it needs.
const (
	ReasonReady         = "NetworkReady"
	ReasonNoSubnet      = "NoSubnetAvailable"
	ReasonNoJoinAddress = "NoJoinAddressAvailable"
	// ReasonRefused: an annotation that the node's network needs is refused.
	ReasonRefused = "AnnotationRefused"
	// ReasonFailing: the node reports that it keeps failing to connect itself to the network.
	ReasonFailing = "NetworkFailing"
)

// Assignment is what a node is assigned.
type Assignment struct {
	// Subnets has one subnet for each family of the cluster, in the order of the cluster
	// subnets, or fewer if Reason is ReasonNoSubnet.
	Subnets []netip.Prefix
	// Join has one address, with the prefix length of the join subnet, for each family,
	// IPv4 first, or fewer if none are left.
	Join []netip.Prefix
	// Refused has the reason for each claimed value that the node does not keep.
	Refused []string
	// Reason and Message tell what cannot be assigned; both are empty if the node has
	// everything.
	Reason, Message string
}

// Assign decides the subnets and join addresses of all nodes at once. A node keeps what it
// claims unless that is outside the configured ranges or collides with the claim of an
// older node; missing values get the lowest free ones, older nodes first. A node gets
// missing subnets of all families or none: otherwise it would start pods that lack a family
// for their lifetime. What a node had that is gone is given to no other, and that node is assigned nothing.
func Assign(c Config, claims []Claim) map[string]Assignment {
	claims = slices.SortedFunc(slices.Values(claims), func(a, b Claim) int {
		switch {
		case a.Gone && !b.Gone: // nodes that exist keep what they have
			return 1
		case b.Gone && !a.Gone:
			return -1
		}
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	s := newSpace(c)
	kept := make([]holding, len(claims))
	for i, cl := range claims {
		kept[i] = s.keep(cl)
	}
	out := make(map[string]Assignment, len(claims))
	for i, cl := range claims {
		if !cl.Gone {
			out[cl.Name] = s.complete(kept[i])
		}
	}
	return out
}

// holding is what a node keeps of its claim, by family.
type holding struct {
	subnets, join map[topology.Family]netip.Prefix
	refused       []string
}

// space holds the available subnets and join addresses.
type space struct {
	families []topology.Family
	used     ranges
	subnets  map[topology.Family][]*subnetPool
	join     map[topology.Family]*joinPool
}

func newSpace(c Config) *space {
	s := &space{
		families: c.families(),
		subnets:  map[topology.Family][]*subnetPool{},
		join:     map[topology.Family]*joinPool{},
	}
	for _, cs := range c.ClusterSubnets {
		f := topology.FamilyOf(cs.CIDR.Addr())
		s.subnets[f] = append(s.subnets[f], newSubnetPool(cs))
	}
	for _, f := range s.families {
		s.join[f] = newJoinPool(c.joinSubnet(f))
	}
	return s
}

// keep reserves the part of a claim that the node may keep.
func (s *space) keep(cl Claim) holding {
	h := holding{subnets: map[topology.Family]netip.Prefix{}, join: map[topology.Family]netip.Prefix{}}
	for _, p := range cl.Subnets {
		if why := s.keepSubnet(h, p); why != "" {
			h.refused = append(h.refused, fmt.Sprintf("subnet %s %s", p, why))
		}
	}
	for _, p := range cl.Join {
		pool := s.join[topology.FamilyOf(p.Addr())]
		switch {
		case pool == nil || !pool.usable(p.Addr()):
			h.refused = append(h.refused, fmt.Sprintf("join address %s is not in a join subnet", p.Addr()))
		case !pool.take(p.Addr()):
			h.refused = append(h.refused, fmt.Sprintf("join address %s belongs to an older node", p.Addr()))
		default:
			h.join[topology.FamilyOf(p.Addr())] = netip.PrefixFrom(p.Addr(), pool.subnet.Bits())
		}
	}
	return h
}

// keepSubnet reserves p, or returns why it cannot be kept.
func (s *space) keepSubnet(h holding, p netip.Prefix) string {
	if !p.IsValid() || p != p.Masked() {
		return "is not a subnet"
	}
	f := topology.FamilyOf(p.Addr())
	inside := slices.ContainsFunc(s.subnets[f], func(pool *subnetPool) bool {
		return pool.CIDR.Bits() <= p.Bits() && pool.CIDR.Contains(p.Addr())
	})
	switch _, twice := h.subnets[f]; {
	case !inside:
		return "is outside the cluster subnets"
	case twice:
		return "is a second one of its family"
	case !s.used.add(p):
		return "overlaps the subnet of an older node"
	}
	h.subnets[f] = p
	return ""
}

// complete assigns a node what it lacks.
func (s *space) complete(h holding) Assignment {
	a := Assignment{Refused: h.refused}
	fresh := map[topology.Family]netip.Prefix{}
	var lacking []string
	for _, f := range s.families {
		if _, ok := h.subnets[f]; ok {
			continue
		}
		p, ok := freeSubnet(s.subnets[f], s.used)
		if !ok {
			lacking = append(lacking, s.describe(f))
			continue
		}
		fresh[f] = p
	}
	if len(lacking) > 0 {
		a.Reason = ReasonNoSubnet
		a.Message = "no free node subnet in " + strings.Join(lacking, ", ")
		fresh = nil
	}
	for _, f := range s.families {
		if p, ok := h.subnets[f]; ok {
			a.Subnets = append(a.Subnets, p)
		} else if p, ok := fresh[f]; ok {
			s.used.add(p)
			a.Subnets = append(a.Subnets, p)
		}
	}
	s.completeJoin(h, &a)
	return a
}

func (s *space) completeJoin(h holding, a *Assignment) {
	for _, f := range topology.Families { // the order in which the annotation is read
		pool, used := s.join[f]
		if !used {
			continue
		}
		p, ok := h.join[f]
		if !ok {
			if p, ok = pool.free(); ok {
				pool.take(p.Addr())
			}
		}
		switch {
		case ok:
			a.Join = append(a.Join, p)
		case a.Reason == "":
			a.Reason = ReasonNoJoinAddress
			a.Message = "no free address in join subnet " + pool.subnet.String()
		}
	}
}

// describe lists the cluster subnets of a family.
func (s *space) describe(f topology.Family) string {
	var out []string
	for _, p := range s.subnets[f] {
		out = append(out, fmt.Sprintf("%s (%d subnets of /%d)", p.CIDR, p.size, p.HostPrefixLen))
	}
	return strings.Join(out, ", ")
}
