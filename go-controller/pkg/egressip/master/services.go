package master

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// outside returns the addresses of a Service that are specific to it and reachable from
// outside: those of load balancers, which an EgressService serves whatever proxy serves the Service, and external ones,
// which a Service that no proxy serves does not have.
func outside(svc *corev1.Service) map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			addrs[a.Unmap()] = true
		}
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			add(in.IP)
		}
	}
	_, headless := svc.Labels[corev1.IsHeadlessService]
	if headless || svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return addrs
	}
	for _, text := range svc.Spec.ExternalIPs {
		add(text)
	}
	return addrs
}

// watchServices triggers placement when addresses of Services change.
func (c *Controller) watchServices() error {
	return c.placement.Watch(c.deps.Services.Informer(), func(old, new any) []string {
		var before, after map[netip.Addr]bool
		var was, is metav1.Time // a Service that was created again may be seen as an update
		if svc, ok := old.(*corev1.Service); ok {
			before, was = outside(svc), svc.CreationTimestamp
		}
		if svc, ok := new.(*corev1.Service); ok {
			after, is = outside(svc), svc.CreationTimestamp
		}
		if maps.Equal(before, after) && (was.Equal(&is) || len(after) == 0) {
			return nil
		}
		return []string{all}
	})
}

// serviceAddrs returns the Services by their outside addresses; if several Services
// share an address, the oldest one.
func (c *Controller) serviceAddrs() (map[netip.Addr]egressip.Service, error) {
	services, err := c.deps.Services.Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	return ServiceAddrs(services), nil
}

// ServiceAddrs returns the given Services by their outside addresses.
func ServiceAddrs(services []*corev1.Service) map[netip.Addr]egressip.Service {
	by := map[netip.Addr]egressip.Service{}
	for _, svc := range services {
		s := egressip.Service{Key: svc.Namespace + "/" + svc.Name, Created: svc.CreationTimestamp.Time}
		for a := range outside(svc) {
			if other, ok := by[a]; !ok || cmp.Or(s.Created.Compare(other.Created), cmp.Compare(s.Key, other.Key)) < 0 {
				by[a] = s
			}
		}
	}
	return by
}
