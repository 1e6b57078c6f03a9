package service

import (
	"fmt"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// ReasonAffinityTimeout is the reason of Events about AffinityLimit.
const ReasonAffinityTimeout = "SessionAffinityTimeout"

// AffinityLimit returns a message saying that the timeout of the session affinity of a
// Service is not supported; "" without affinity. OVN's own implementation of a timeout
// loses packets.
func (s Service) AffinityLimit() string {
	if s.Affinity == 0 {
		return ""
	}
	return fmt.Sprintf("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %.0f s are not kept: "+
		"a client stays with its endpoint as long as the endpoints stay", s.Affinity.Seconds())
}

// HasAffinity reports whether the load balancers of a Service have session affinity.
func HasAffinity(rows []nb.Row) bool {
	for _, r := range rows {
		if lb, ok := r.Model.(*nbdb.LoadBalancer); ok && len(lb.SelectionFields) > 0 {
			return true
		}
	}
	return false
}
