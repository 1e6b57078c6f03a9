package snapshot

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// byClaim is the name of the index of Services by their claims.
const byClaim = "claim"

// Informers are the sources of Services. The caller starts them.
type Informers struct {
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	Nodes          coreinformers.NodeInformer
	// Namespaces provide the external gateways that pods are routed to; nil: none.
	Namespaces coreinformers.NamespaceInformer
	// Addresses provides the addresses of the cluster itself; nil: those from Nodes and
	// EndpointSlices.
	Addresses *reservedsnapshot.Addresses
}

// Reader reads from the informers' caches. Objects are read-only.
type Reader struct {
	informers        Informers
	services, slices cache.Indexer
	config           service.Config
}

// NewReader returns a reader. It is called before the informers start.
func NewReader(in Informers, config service.Config) (*Reader, error) {
	if err := kube.IndexSlices(in.EndpointSlices.Informer()); err != nil {
		return nil, err
	}
	if in.Addresses == nil {
		var err error
		if in.Addresses, err = reservedsnapshot.New(config.Ranges(), reservedsnapshot.Informers{
			Nodes: in.Nodes, EndpointSlices: in.EndpointSlices,
		}); err != nil {
			return nil, err
		}
	}
	if _, ok := in.Services.Informer().GetIndexer().GetIndexers()[byClaim]; !ok {
		err := in.Services.Informer().AddIndexers(cache.Indexers{byClaim: func(obj any) ([]string, error) {
			if svc, ok := obj.(*corev1.Service); ok {
				return service.Claims(svc), nil
			}
			return nil, nil
		}})
		if err != nil {
			return nil, fmt.Errorf("index Services by what they claim: %w", err)
		}
	}
	return &Reader{
		informers: in,
		services:  in.Services.Informer().GetIndexer(),
		slices:    in.EndpointSlices.Informer().GetIndexer(),
		config:    config,
	}, nil
}

// Keys lists the keys of all Services. It is a seed.
func (r *Reader) Keys() []string { return r.services.ListKeys() }

// Object returns a Service; nil if there is none.
func (r *Reader) Object(key string) *corev1.Service {
	if obj, ok, err := r.services.GetByKey(key); err == nil && ok {
		return obj.(*corev1.Service)
	}
	return nil
}

// Decode reads a Service and related objects; ok is false if there is nothing to serve. pod
// reports whether a pod of a namespace has an address, and whether an egress feature
// reroutes it; see service.Snapshot. object is nil if there is none.
func (r *Reader) Decode(key string, pod func(namespace string, a netip.Addr) (own, rerouted bool)) (s service.Service, object *corev1.Service, ok bool, err error) {
	svc := r.Object(key)
	if svc == nil {
		return service.Service{}, nil, false, nil
	}
	snap := service.Snapshot{Service: svc, Others: others{r}, Gateways: r.gateways(svc.Namespace)}
	if pod != nil {
		snap.Pod = func(a netip.Addr) (own, rerouted bool) { return pod(svc.Namespace, a) }
	}
	if snap.Slices, err = kube.Slices(r.slices, key); err != nil {
		return service.Service{}, svc, false, err
	}
	s, ok = service.Decode(snap, r.config)
	return s, svc, ok, nil
}

// gateways returns the external gateways that pods of a namespace are routed to.
func (r *Reader) gateways(namespace string) []netip.Addr {
	if r.informers.Namespaces == nil {
		return nil
	}
	ns, err := r.informers.Namespaces.Lister().Get(namespace)
	if err != nil {
		return nil // not found: reading memory has no other errors
	}
	addrs, _ := kube.ParseAddrs(ns.Annotations[kube.AnnotationGatewaysInUse])
	return addrs
}

// Watch makes q reconcile the Services that an event affects, including those that compete
// with the changed Service for an address or port.
func (r *Reader) Watch(q *queue.Controller) error {
	if err := q.Watch(r.informers.Services.Informer(), r.serviceKeys); err != nil {
		return err
	}
	if err := q.Watch(r.informers.EndpointSlices.Informer(), sliceKeys); err != nil {
		return err
	}
	if r.informers.Namespaces != nil {
		if err := q.Watch(r.informers.Namespaces.Informer(), r.namespaceKeys); err != nil {
			return err
		}
	}
	return r.informers.Addresses.Watch(q, func(addrs []netip.Addr) []string {
		var keys []string
		for _, a := range addrs {
			keys = append(keys, r.claiming(service.AddrClaim(a))...)
		}
		return unique(keys)
	})
}

// serviceKeys returns the keys that an event of a Service affects.
func (r *Reader) serviceKeys(old, new any) []string {
	before, _ := old.(*corev1.Service)
	after, _ := new.(*corev1.Service)
	var keys []string
	var had, has []string
	if before != nil {
		keys, had = append(keys, before.Namespace+"/"+before.Name), service.Claims(before)
	}
	if after != nil {
		keys, has = append(keys, after.Namespace+"/"+after.Name), service.Claims(after)
	}
	if before != nil && after != nil && slices.Equal(had, has) && before.CreationTimestamp.Equal(&after.CreationTimestamp) {
		return unique(keys)
	}
	for _, claim := range slices.Concat(had, has) {
		for _, other := range service.Contested(claim) {
			keys = append(keys, r.claiming(other)...)
		}
	}
	return unique(keys)
}

// namespaceKeys returns the keys of the Services of a namespace if the external gateways of
// its pods have changed.
func (r *Reader) namespaceKeys(old, new any) []string {
	var name string
	var values []string
	for _, obj := range []any{old, new} {
		value := ""
		if ns, ok := obj.(*corev1.Namespace); ok && ns != nil {
			name, value = ns.Name, ns.Annotations[kube.AnnotationGatewaysInUse]
		}
		values = append(values, value)
	}
	if values[0] == values[1] {
		return nil
	}
	keys, err := r.services.IndexKeys(cache.NamespaceIndex, name)
	if err != nil {
		return nil // the index exists: every informer of Services has it
	}
	return keys
}

// sliceKeys returns the keys that an event of an EndpointSlice affects.
func sliceKeys(old, new any) []string {
	var keys []string
	for _, obj := range []any{old, new} {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			if key := kube.SliceService(s); key != "" {
				keys = append(keys, key)
			}
		}
	}
	return unique(keys)
}

// claiming returns the keys of the Services with a claim.
func (r *Reader) claiming(claim string) []string {
	keys, err := r.services.IndexKeys(byClaim, claim)
	if err != nil {
		return nil // the index exists: NewReader created it
	}
	return keys
}

func unique(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}

// others implements service.Others.
type others struct{ *Reader }

func (o others) Owners(a netip.Addr) []reserved.Owner { return o.informers.Addresses.Owners(a) }

func (o others) ClusterAddr(a netip.Addr) string {
	keys := unique(o.claiming(service.ClusterAddrClaim(a)))
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

func (o others) At(to netip.AddrPort, protocol string) []*corev1.Service {
	return o.with(service.AtClaim(to, protocol))
}

func (o others) OnPort(protocol string, port uint16) []*corev1.Service {
	return o.with(service.PortClaim(protocol, port))
}

// with returns the Services with a claim, sorted by key.
func (o others) with(claim string) []*corev1.Service {
	var all []*corev1.Service
	for _, key := range unique(o.claiming(claim)) {
		if svc := o.Object(key); svc != nil {
			all = append(all, svc)
		}
	}
	return all
}
