package egressservice

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Endpoint is a pod behind the Service.
type Endpoint struct {
	Addr netip.Addr
	Node string
	// Ready: the pod takes ingress traffic, or would if Kubernetes received updates from its node. Its
	// egress traffic is served in any case: pods open connections before they are ready, and
	// while they shut down.
	Ready bool
}

func (e Endpoint) compare(o Endpoint) int {
	if c := e.Addr.Compare(o.Addr); c != 0 || e.Ready == o.Ready {
		return c
	}
	if e.Ready {
		return -1
	}
	return 1
}

// endpoints returns the pods of the given families that the EndpointSlices list, including
// pods that are not ready yet or terminating.
func endpoints(snap Snapshot, cluster []netip.Prefix, families []topology.Family) []Endpoint {
	var eps []Endpoint
	for _, sl := range snap.Slices {
		for _, e := range sl.Endpoints {
			for _, text := range e.Addresses {
				addr, ok := parseAddr(text)
				if !ok || !eligible(addr, cluster, families) || snap.Pod == nil {
					continue
				}
				if node, ok := snap.Pod(addr); ok {
					eps = append(eps, Endpoint{Addr: addr, Node: node, Ready: ready(e.Conditions) || followsPods(sl) && snap.Ready != nil && snap.Ready(addr)})
				}
			}
		}
	}
	slices.SortFunc(eps, Endpoint.compare) // if two slices list the same pod, the ready one comes first
	return slices.CompactFunc(eps, func(a, b Endpoint) bool { return a.Addr == b.Addr })
}

// awaited returns the selected pods of the given families that are not endpoints yet.
func awaited(selected []netip.Addr, eps []Endpoint, cluster []netip.Prefix, families []topology.Family) []netip.Addr {
	var addrs []netip.Addr
	for _, a := range selected {
		_, listed := slices.BinarySearchFunc(eps, a, func(e Endpoint, a netip.Addr) int { return e.Addr.Compare(a) })
		if !listed && eligible(a, cluster, families) {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func eligible(a netip.Addr, cluster []netip.Prefix, families []topology.Family) bool {
	return slices.Contains(families, topology.FamilyOf(a)) && within(cluster, a)
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// followsPods reports whether Kubernetes itself maintains a slice, from the state of the pods.
// Other controllers may have their own reasons to report an endpoint as not ready.
func followsPods(sl *discoveryv1.EndpointSlice) bool {
	return sl.Labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io"
}

// ready reports whether an endpoint is ready, or terminating and still serving.
// Absent conditions mean ready.
func ready(c discoveryv1.EndpointConditions) bool {
	return c.Ready == nil || *c.Ready || c.Serving != nil && *c.Serving
}
