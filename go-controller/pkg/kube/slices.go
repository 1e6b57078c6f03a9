package kube

import (
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// The names of the indexes of EndpointSlices.
const (
	slicesByService = "service"
	slicesByAddress = "address"
)

// SliceService returns "namespace/name" of the Service that an EndpointSlice belongs
// to, or "" if it belongs to none.
func SliceService(s *discoveryv1.EndpointSlice) string {
	if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
		return s.Namespace + "/" + name
	}
	return ""
}

// IndexSlices adds the index that Slices reads to an EndpointSlice informer. It
// must be called before the informer starts, by each package that reads the index.
func IndexSlices(inf cache.SharedIndexInformer) error {
	return AddIndex(inf, slicesByService, func(s *discoveryv1.EndpointSlice) []string {
		if key := SliceService(s); key != "" {
			return []string{key}
		}
		return nil
	})
}

// Slices returns the EndpointSlices of the Service "namespace/name", in no
// particular order. They must not be modified.
func Slices(indexer cache.Indexer, service string) ([]*discoveryv1.EndpointSlice, error) {
	objs, err := indexer.ByIndex(slicesByService, service)
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s: %w", service, err)
	}
	slices := make([]*discoveryv1.EndpointSlice, 0, len(objs))
	for _, o := range objs {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			slices = append(slices, s)
		}
	}
	return slices, nil
}

// IndexSliceAddresses adds the index that ServicesAt reads to an EndpointSlice informer,
// like IndexSlices.
func IndexSliceAddresses(inf cache.SharedIndexInformer) error {
	return AddIndex(inf, slicesByAddress, func(s *discoveryv1.EndpointSlice) []string {
		if SliceService(s) == "" {
			return nil
		}
		var keys []string
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					keys = append(keys, a.Unmap().String())
				}
			}
		}
		return keys
	})
}

// ServicesAt returns "namespace/name" of the Services whose EndpointSlices list an address,
// in one namespace, or in all namespaces if namespace is "".
func ServicesAt(indexer cache.Indexer, namespace string, addr netip.Addr) []string {
	objs, err := indexer.ByIndex(slicesByAddress, addr.String())
	if err != nil {
		return nil // cannot happen: IndexSliceAddresses created this index
	}
	var services []string
	for _, o := range objs {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok && (namespace == "" || s.Namespace == namespace) {
			services = append(services, SliceService(s))
		}
	}
	return services
}
