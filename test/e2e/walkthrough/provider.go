package walkthrough

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// Provider is the load-balancer provider of a walk: it assigns addresses to the Service and routes
// them, outside, to the labelled node.
type Provider interface {
	// Annotations returns the annotations with which the Service requests its addresses.
	Annotations() map[string]string
	// Assign returns when the Service in lab.Namespace has its ingress addresses: one of each
	// family, IPv4 first.
	Assign(ctx context.Context, service string) ([]netip.Addr, error)
	// Announce returns when the addresses are routed to the node, which has the label.
	Announce(ctx context.Context, addresses []netip.Addr, node string) error
}

// ByHand writes the Service's status and the outside host's routes itself.
type ByHand struct{ *lab.Lab }

// Annotations returns none.
func (ByHand) Annotations() map[string]string { return nil }

// Assign writes fixed addresses.
func (p ByHand) Assign(ctx context.Context, service string) ([]netip.Addr, error) {
	ingress := []netip.Addr{
		netip.MustParseAddr("5.5.5.5"),
		netip.MustParseAddr("5555:5555:5555:5555:5555:5555:5555:5555"),
	}
	services := p.Kube.CoreV1().Services(lab.Namespace)
	svc, err := services.Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get service: %w", err)
	}
	for _, a := range ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if _, err := services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("write the ingress addresses of the service: %w", err)
	}
	return ingress, nil
}

// Announce sets the routes on the outside host.
func (p ByHand) Announce(ctx context.Context, addresses []netip.Addr, node string) error {
	return p.RouteTo(ctx, addresses, node)
}
