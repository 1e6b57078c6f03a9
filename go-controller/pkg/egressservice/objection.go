package egressservice

import "github.com/ovnkube/ovnkube/go-controller/pkg/place"

// Objection returns why a node could not become the host of a Service now, or "" if
// nothing prevents it. It ignores whether the node is already the host.
func Objection(n place.Node, s Service) place.Reason {
	s.Host = ""
	c := claim(s)
	for why := range place.Assign([]place.Node{n}, []place.Claim{c})[c.Key].Rejected {
		return why
	}
	return ""
}
