package egressip

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// PendingAck is what a node is to acknowledge and has not yet.
type PendingAck struct {
	Node string
	What string
}

// PendingAcks returns what nodes have yet to acknowledge of a decision: to let go of an address,
// to take one, or to have the rules of all pods. digest is as for Paths.
func (d Decision) PendingAcks(status v1.EgressIPStatus, digest func(given []netip.Addr) string) []PendingAck {
	given := map[string][]netip.Addr{}
	for _, p := range d.Placements {
		if p.Node != "" && !p.Primary {
			given[p.Node] = append(given[p.Node], p.Addr)
		}
	}
	var acks []PendingAck
	for _, p := range d.Placements {
		if p.Node == "" {
			continue
		}
		holder, nodeStatus := Other(status, p.Node, p.Addr), nodeStatusOf(status, p.Node)
		switch {
		case holder != "":
			acks = append(acks, PendingAck{holder, fmt.Sprintf("release %s", p.Addr)})
		case !Answers(status, p.Node, p.Addr):
			acks = append(acks, PendingAck{p.Node, fmt.Sprintf("take %s", p.Addr)})
		case !p.Primary && nodeStatus.Digest != digest(given[p.Node]):
			// Pods may come and go all the time: what it says anew is progress.
			acks = append(acks, PendingAck{p.Node, fmt.Sprintf("have the rules of the pods, after %s", nodeStatus.Digest)})
		}
	}
	return acks
}

// Fallback has the pods that nothing leads to an address yet, new ones for example, led to
// the node that still has it, while the node that is to have it waits for that one. node
// returns a node that does not pass for dead.
func Fallback(paths []Path, status v1.EgressIPStatus, node func(name string) (topology.Node, bool)) []Path {
	out := slices.Clone(paths)
	for i, p := range out {
		if p.Answered {
			continue
		}
		n, ok := node(Other(status, p.Node, p.Addr))
		if !ok {
			continue
		}
		// A gateway router can give a pod one address of a family.
		taken := slices.ContainsFunc(out, func(o Path) bool {
			return topology.FamilyOf(o.Addr) == topology.FamilyOf(p.Addr) && (o.Node == n.Name || o.Now.Node == n.Name)
		})
		if now, why := nextHopFor(n, p.Addr); why == "" && now.Primary && !taken {
			now.Address = p.Address
			out[i].Now = now
		}
	}
	return out
}

// through returns the path by the node that has the address now, for a pod that nothing
// leads there yet.
func (s Steering) through(p Path, was Policy) (Path, bool) {
	if p.Answered || p.Now.Node == "" {
		return p, false
	}
	if !s.Pod.Late && !s.Pod.Pending && was.EgressIP == s.EgressIP.Key {
		for _, hop := range was.Hops {
			if was.Egress[hop] == p.Addr {
				return p, false
			}
		}
	}
	return Path{Placement: p.Now, Answered: true}, true
}
