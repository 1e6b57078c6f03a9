package egressservice

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// RefusedAddress is an ingress address that pods cannot use as their source, and the reason.
type RefusedAddress struct {
	Address string // as written by the load balancer
	Reason  reserved.Reason
	Message string // what is wrong with it
}

// ProxyMode is the reason for refusing an address with ipMode Proxy: the load balancer sends its own packets to node ports, so that
// the address belongs to the load balancer, and not to the Service.
const ProxyMode reserved.Reason = "ProxyMode"

// ingress returns the first usable ingress address of each family, the unusable
// addresses, and the claims to those that are used. Ingresses that are host names have no address.
func ingress(snap Snapshot) (first []netip.Addr, refused, disputed []RefusedAddress) {
	claims := map[netip.Addr]RefusedAddress{}
	var all []netip.Addr
	for _, in := range snap.Service.Status.LoadBalancer.Ingress {
		if in.IP == "" {
			continue
		}
		a, why, claim := usable(in, snap)
		if why != (reserved.Refusal{}) {
			r := RefusedAddress{in.IP, why.Reason, why.Message}
			if !slices.Contains(refused, r) {
				refused = append(refused, r)
			}
			continue
		}
		all = append(all, a)
		if claim != (reserved.Refusal{}) {
			claims[a] = RefusedAddress{in.IP, claim.Reason, claim.Message}
		}
	}
	for _, f := range topology.Families {
		if a, ok := topology.AddrOf(f, all); ok {
			first = append(first, a)
			if claim, ok := claims[a]; ok {
				disputed = append(disputed, claim)
			}
		}
	}
	return first, refused, disputed
}

// usable returns the address of an ingress, or the reason why pods cannot use it as their source; claim is the claim
// of a node to an address that is served nevertheless.
func usable(in corev1.LoadBalancerIngress, snap Snapshot) (a netip.Addr, why, claim reserved.Refusal) {
	if in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
		return a, reserved.Refusal{Reason: ProxyMode, Message: fmt.Sprintf("its ipMode is %s", *in.IPMode)}, claim
	}
	if a, why = reserved.Parse(in.IP); why == (reserved.Refusal{}) {
		why = snap.Reserved.Refuse(a)
	}
	if why != (reserved.Refusal{}) || snap.Owners == nil {
		return a, why, claim
	}
	for _, owner := range snap.Owners(a) {
		switch {
		case owner.Extra: // the provider itself has put it there
		case owner.ClaimsOnly() && held(snap.Egress.Status, a):
			claim = cmp.Or(claim, owner.Refuse())
		default:
			return a, owner.Refuse(), reserved.Refusal{}
		}
	}
	return a, why, claim
}

// held reports whether a host gives an address to pods. Whoever claims it later does not get it: pods would leave
// with another address.
func held(status v1.EgressServiceStatus, a netip.Addr) bool {
	return status.Host != "" && status.Programmed != nil && slices.Contains(status.Programmed.Addresses, a.String())
}

// Ingresses returns the addresses that a load balancer gave a Service.
func Ingresses(svc *corev1.Service) (addrs []netip.Addr) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// listRefused lists refused addresses with their reasons.
func listRefused(all []RefusedAddress) string {
	const most = 5
	var texts []string
	for _, r := range all[:min(most, len(all))] {
		texts = append(texts, fmt.Sprintf("%q: %s", r.Address, r.Message))
	}
	if len(all) > most {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(texts, "; ")
}
