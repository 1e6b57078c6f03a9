package service

import (
	"fmt"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// ReasonAffinityTimeout is the reason of Events about AffinityLimit.
const ReasonAffinityTimeout = "SessionAffinityTimeout"

// AffinityLimit says what of the affinity of a Service is not kept; "" where it has
// none. What OVN has for a timeout loses packets.
func (s Service) AffinityLimit() string {
	if s.Affinity == 0 {
		return ""
	}
	return fmt.Sprintf("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %.0f s are not kept: "+
		"a client stays with its endpoint as long as the endpoints stay", s.Affinity.Seconds())
}

// HasAffinity reports whether the load balancers of a Service keep clients at their
// endpoints.
func HasAffinity(rows []nb.Row) bool {
	for _, r := range rows {
		if lb, ok := r.Model.(*nbdb.LoadBalancer); ok && len(lb.SelectionFields) > 0 {
			return true
		}
	}
	return false
}
