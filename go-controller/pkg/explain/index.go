package explain

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// index contains lookups that are repeated for each pod and each node.
type index struct {
	// services are by "namespace/name".
	services map[string]*corev1.Service
	// slices are the EndpointSlices of each Service, listed the addresses in them.
	slices map[string][]*discoveryv1.EndpointSlice
	listed map[string]map[netip.Addr]bool
	// egressServices are the EgressServices that have or list an address, sorted.
	egressServices map[netip.Addr][]string
	// held are the placements of EgressIPs, by node, sorted by EgressIP.
	held map[string][]held
	// hosted are the EgressServices planned for each node as host, sorted.
	hosted map[string][]string
	// management are the nodes, by the addresses of their management ports.
	management map[string]string
}

func (c *Cluster) newIndex() index {
	x := index{
		services: map[string]*corev1.Service{}, slices: map[string][]*discoveryv1.EndpointSlice{},
		listed: map[string]map[netip.Addr]bool{}, egressServices: map[netip.Addr][]string{},
		held: map[string][]held{}, hosted: map[string][]string{}, management: map[string]string{},
	}
	for _, svc := range c.snap.Services {
		x.services[svc.Namespace+"/"+svc.Name] = svc
	}
	for _, sl := range c.snap.EndpointSlices {
		key := kube.SliceService(sl)
		x.slices[key] = append(x.slices[key], sl)
		if x.listed[key] == nil {
			x.listed[key] = map[netip.Addr]bool{}
		}
		for _, e := range sl.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					x.listed[key][a.Unmap()] = true
				}
			}
		}
	}
	for key, s := range c.services {
		for a := range x.listed[key] {
			x.egressServices[a] = append(x.egressServices[a], key)
		}
		for _, e := range s.Endpoints {
			x.egressServices[e.Addr] = append(x.egressServices[e.Addr], key)
		}
		for _, a := range s.Awaited {
			x.egressServices[a] = append(x.egressServices[a], key)
		}
		host := egressservice.Status(s, c.hosted[key])
		x.hosted[host] = append(x.hosted[host], key)
	}
	for a, keys := range x.egressServices {
		slices.Sort(keys)
		x.egressServices[a] = slices.Compact(keys)
	}
	for _, keys := range x.hosted {
		slices.Sort(keys)
	}
	for name, d := range c.placed {
		for _, p := range d.Placements {
			x.held[p.Node] = append(x.held[p.Node], held{name, p})
		}
	}
	for _, all := range x.held {
		slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(a.egressIP, b.egressIP) })
	}
	for _, n := range c.candidates() {
		for _, a := range n.ManagementAddrs() {
			x.management[a.String()] = n.Name
		}
	}
	return x
}
