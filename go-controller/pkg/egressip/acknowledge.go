package egressip

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// PendingAck is an acknowledgement that a node still owes.
type PendingAck struct {
	Node string
	What string
}

// PendingAcks returns the acknowledgements that nodes still owe for a decision: that they
// prepared for an address, released one, took one, or have the rules of all pods. digest and
// nodes are as for Paths.
func (d Decision) PendingAcks(status v1.EgressIPStatus, digest func(given []netip.Addr) string, nodes Nodes) []PendingAck {
	given := d.given(status, nodes)
	var acks []PendingAck
	for _, p := range d.Placements {
		if p.Node == "" {
			continue
		}
		holder, nodeStatus := Other(status, p.Node, p.Addr), nodeStatusOf(status, p.Node)
		switch {
		case retained(status, p) != "":
			if !Awaits(status, p.Node, p.Addr) {
				acks = append(acks, PendingAck{p.Node, fmt.Sprintf("prepare for %s", p.Addr)})
			}
		case holder != "":
			acks = append(acks, PendingAck{holder, fmt.Sprintf("release %s", p.Addr)})
		case !Answers(status, p.Node, p.Addr):
			acks = append(acks, PendingAck{p.Node, fmt.Sprintf("take %s", p.Addr)})
		case !p.Primary && nodeStatus.Digest != digest(given[p.Node]):
			// Pods may come and go all the time: a new digest counts as progress.
			acks = append(acks, PendingAck{p.Node, fmt.Sprintf("have the rules of the pods, after %s", nodeStatus.Digest)})
		}
	}
	return acks
}

// fallback routes a pod without a path to an address yet, for example a new pod, through the
// node that still has the address, while the next node waits for that node to release it.
// translates reports whether a node has the rules of the pod for an address on a secondary
// network.
func fallback(paths []Path, status v1.EgressIPStatus, nodes Nodes, translates func(node string, addr netip.Addr) bool) {
	for i, p := range paths {
		if p.Answered {
			continue
		}
		n, ok := nodes(Other(status, p.Node, p.Addr))
		if !ok {
			continue
		}
		// A node can give a pod only one address per family.
		taken := slices.ContainsFunc(paths, func(o Path) bool {
			return topology.FamilyOf(o.Addr) == topology.FamilyOf(p.Addr) && (o.Node == n.Name || o.Now.Node == n.Name)
		})
		if now, why := nextHopFor(n, p.Addr); why == "" && !taken && (now.Primary || translates(n.Name, p.Addr)) {
			now.Address = p.Address
			paths[i].Now = now
		}
	}
}

// through returns the path through the node that has the address now, for a pod that is not
// led to the address yet.
func (s Steering) through(p Path, was Policy) (Path, bool) {
	if p.Answered || p.Now.Node == "" {
		return p, false
	}
	if !s.Pod.Late && !s.Pod.Pending && s.routesTo(was, p.Addr) {
		return p, false
	}
	return Path{Placement: p.Now, Answered: true, Programmed: true}, true
}

// routesTo reports whether a policy leads to an address.
func (s Steering) routesTo(was Policy, addr netip.Addr) bool {
	return was.EgressIP == s.EgressIP.Key && slices.ContainsFunc(was.Hops, func(hop netip.Addr) bool { return was.Egress[hop] == addr })
}
