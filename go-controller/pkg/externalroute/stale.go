package externalroute

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Neighbors are the MAC addresses of gateways.
type Neighbors struct {
	// Now are the addresses of the gateways that answer.
	Now map[netip.Addr]string
	// Before are the last known addresses of gateways.
	Before map[netip.Addr]string
}

// Stale returns a function that reports whether the replies of a pod must no longer
// be sent to a neighbour, given its MAC address. used are the gateways that the pod uses.
//
// A neighbour that is not a gateway in use is stale. If some gateway in use does not
// answer, the neighbour may be that gateway: then it is stale only if it is known as the
// neighbour of a gateway that is not in use.
func Stale(pod netip.Addr, used []netip.Addr, n Neighbors) func(mac string) bool {
	keep, unanswered := map[string]bool{}, false
	inUse := map[netip.Addr]bool{}
	for _, a := range used {
		if topology.FamilyOf(a) != topology.FamilyOf(pod) {
			continue
		}
		inUse[a] = true
		mac, ok := n.Now[a]
		if !ok {
			unanswered = true
			mac = n.Before[a]
		}
		keep[mac] = true
	}
	left := map[string]bool{}
	for a, mac := range n.Before {
		if topology.FamilyOf(a) == topology.FamilyOf(pod) && !inUse[a] {
			left[mac] = true
		}
	}
	return func(mac string) bool {
		switch {
		case keep[mac]:
			return false
		case left[mac]:
			return true
		}
		return !unanswered
	}
}
