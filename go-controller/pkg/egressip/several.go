package egressip

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// pathsOf returns the paths for an address of the pod: those to all egress
// addresses of its family or, if each pod uses one address, the path to that one.
func (s Steering) pathsOf(pod netip.Addr) []Path {
	var paths []Path
	for _, p := range s.Paths {
		if topology.FamilyOf(p.Addr) == topology.FamilyOf(pod) {
			paths = append(paths, p)
		}
	}
	if !s.EgressIP.PerPod || len(paths) < 2 {
		return paths
	}
	if i := slices.IndexFunc(paths, func(p Path) bool { return s.has(pod, p.Addr) }); i >= 0 {
		return paths[i : i+1]
	}
	return []Path{slices.MaxFunc(paths, func(a, b Path) int {
		return slices.Compare(weight(s.Pod.Key, a.Addr), weight(s.Pod.Key, b.Addr))
	})}
}

// has reports whether all traffic from a pod address leaves with one
// egress address. The pod keeps that address as long as it has a node, even if others are added.
func (s Steering) has(pod, egress netip.Addr) bool {
	was := s.Now.Policies[pod]
	return was.EgressIP == s.EgressIP.Key && len(was.Hops) == 1 && was.Egress[was.Hops[0]] == egress
}

// weight orders egress addresses for a pod (rendezvous hashing): removing one
// does not change the order of the others.
func weight(pod string, egress netip.Addr) []byte {
	sum := sha256.Sum256(append(egress.AsSlice(), pod...))
	return sum[:8]
}

// kept returns, by egress address, the next hops of addresses that are not ready at their
// new place. These hops stay until then: without them, connections of these and
// of the other addresses would be led to nodes that give them another address.
func (s Steering) kept(paths []Path, pod netip.Addr, was Policy) map[netip.Addr]netip.Addr {
	kept := map[netip.Addr]netip.Addr{}
	if s.Pod.Late || s.Pod.Pending || was.EgressIP != s.EgressIP.Key {
		return kept
	}
	for found := -1; found < len(kept); { // an address that waits for a node may keep another one waiting
		found = len(kept)
		for _, p := range paths {
			if s.ready(p, pod, was, kept) || s.exchanged(paths, p, pod) {
				continue
			}
			for _, hop := range was.Hops {
				if was.Egress[hop] == p.Addr && hop != p.NextHop && s.served(p, pod) {
					kept[p.Addr] = hop
				}
			}
		}
	}
	return kept
}

// served reports whether an address that is to move is still translated elsewhere: a
// permanently lost node has lost its gateway router as well.
func (s Steering) served(p Path, pod netip.Addr) bool {
	if !p.Primary {
		return true // the node's kernel translates
	}
	for site, addr := range s.Now.NATs {
		if site.Pod == pod && site.Node != p.Node && addr == p.Addr {
			return true
		}
	}
	return false
}

// exchanged reports whether addresses change places in a cycle: none of them can wait
// for the others.
func (s Steering) exchanged(paths []Path, first Path, pod netip.Addr) bool {
	for p, n := first, 0; n < len(paths); n++ {
		now, ok := s.Now.NATs[Site{pod, p.Node}]
		if !ok || now == p.Addr {
			return false
		}
		if now == first.Addr {
			return true
		}
		i := slices.IndexFunc(paths, func(q Path) bool { return q.Addr == now })
		if i < 0 {
			return false
		}
		p = paths[i]
	}
	return false
}
