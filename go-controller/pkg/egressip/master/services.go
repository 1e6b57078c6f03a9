package master

import (
	"fmt"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// outside returns the addresses of a Service that are specific to it and reachable from
// outside: those of load balancers, and external ones.
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
	for _, text := range svc.Spec.ExternalIPs {
		add(text)
	}
	return addrs
}

// watchServices triggers placement when addresses of Services change.
func (c *Controller) watchServices() error {
	return c.placement.Watch(c.deps.Services.Informer(), func(old, new any) []string {
		var before, after map[netip.Addr]bool
		if svc, ok := old.(*corev1.Service); ok {
			before = outside(svc)
		}
		if svc, ok := new.(*corev1.Service); ok {
			after = outside(svc)
		}
		if maps.Equal(before, after) {
			return nil
		}
		return []string{all}
	})
}

// serviceAddrs returns the Services by their outside addresses; if several Services
// share an address, the one with the lower name.
func (c *Controller) serviceAddrs() (map[netip.Addr]string, error) {
	services, err := c.deps.Services.Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	return ServiceAddrs(services), nil
}

// ServiceAddrs returns the given Services by their outside addresses.
func ServiceAddrs(services []*corev1.Service) map[netip.Addr]string {
	by := map[netip.Addr]string{}
	for _, svc := range services {
		key := svc.Namespace + "/" + svc.Name
		for a := range outside(svc) {
			if other, ok := by[a]; !ok || key < other {
				by[a] = key
			}
		}
	}
	return by
}
