package egressip

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// Objection returns why a node could not be given an address of an EgressIP now, or ""
// if nothing prevents it. It ignores the addresses that the EgressIP already has on the node.
func Objection(n place.Node, e EgressIP, a netip.Addr) place.Reason {
	e.Items = nil
	c := newClaim(e, a, nil)
	c.Avoid = func(n place.Node) place.Reason { return c.avoid(n, true) }
	for why := range place.Assign([]place.Node{n}, []place.Claim{c.Claim})[c.Key].Rejected {
		return why
	}
	return ""
}
