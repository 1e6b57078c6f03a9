package snapshot

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	egressinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions/egressservice/v1"
	egresslisters "github.com/ovnkube/ovnkube/go-controller/pkg/generated/listers/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Informers are the informers from which EgressServices are read. The caller starts them.
type Informers struct {
	EgressServices egressinformers.EgressServiceInformer
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	// Pods includes the pods of all nodes or, if Namespace is set, at least those of this node.
	Pods coreinformers.PodInformer
	// Namespace returns an informer of all pods of a namespace, which has the index of
	// kube.IndexPods and is not started; see Reader.Know.
	Namespace func(namespace string) (cache.SharedIndexInformer, error)
	// Addresses provides the addresses that belong to the cluster itself; nil: there are none.
	Addresses *reservedsnapshot.Addresses
}

// Reader reads from the informers' caches. Objects are read-only.
type Reader struct {
	informers Informers
	cluster   []netip.Prefix
	mode      topology.GatewayMode
	claims    *egressservice.Claims
	claiming  *keyLock // held from reading an EgressService until its claim is recorded
	egress    egresslisters.EgressServiceLister
	services  corelisters.ServiceLister
	slices    cache.Indexer
	pods      cache.Indexer
	known     *namespaces
	given     func(pod string, uid types.UID) []netip.Addr
}

// NewReader returns a reader; cluster are the cluster subnets, mode is the gateway
// mode. It must be called before the informers start. given returns the addresses
// assigned to the pod "namespace/name" with a UID, which the kubelet may not know yet; it
// is nil if the caller does not need pods before they become endpoints.
func NewReader(in Informers, cluster []netip.Prefix, mode topology.GatewayMode, given func(pod string, uid types.UID) []netip.Addr) (*Reader, error) {
	endpoints, pods := in.EndpointSlices.Informer(), in.Pods.Informer()
	if err := errors.Join(kube.IndexSlices(endpoints), kube.IndexSliceAddresses(endpoints), kube.IndexPods(pods)); err != nil {
		return nil, err
	}
	err := kube.AddIndex(in.Services.Informer(), byIngress, func(svc *corev1.Service) (keys []string) {
		for _, a := range egressservice.Ingresses(svc) {
			keys = append(keys, a.String())
		}
		return keys
	})
	if err != nil {
		return nil, err
	}
	if given != nil {
		if err := kube.IndexPodLabels(pods); err != nil {
			return nil, err
		}
	}
	return &Reader{
		informers: in,
		cluster:   cluster,
		mode:      mode,
		claims:    egressservice.NewClaims(),
		claiming:  newKeyLock(),
		egress:    in.EgressServices.Lister(),
		services:  in.Services.Lister(),
		slices:    endpoints.GetIndexer(),
		pods:      pods.GetIndexer(),
		known:     newNamespaces(in.Namespace),
		given:     given,
	}, nil
}

// Object returns the EgressService of a key, or nil if it does not exist.
func (r *Reader) Object(key string) (*v1.EgressService, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, fmt.Errorf("split key: %w", err)
	}
	eg, err := r.egress.EgressServices(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get EgressService %s: %w", key, err)
	}
	return eg, nil
}

// Objects returns all EgressServices.
func (r *Reader) Objects() ([]*v1.EgressService, error) {
	all, err := r.egress.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list EgressServices: %w", err)
	}
	return all, nil
}

// Decode reads an EgressService and everything that belongs to it, without the pods that an older
// EgressService has. It also returns the other EgressServices that select some of its pods and
// are affected by changes since the last call.
//
// Several workers may decode an EgressService at the same time, from states that they have read before. Its claim to
// pods is that of the current state: the event of the change may have been handled already, so that nothing would
// correct the claim.
func (r *Reader) Decode(eg *v1.EgressService) (s egressservice.Service, others []string, err error) {
	key := eg.Namespace + "/" + eg.Name
	defer r.claiming.lock(key)()
	current, err := r.Object(key)
	if err != nil {
		return s, nil, err
	}
	if s, err = r.read(eg); err != nil {
		return s, nil, err
	}
	claim := s
	switch {
	case current == nil:
		claim = egressservice.Service{Key: key}
	case current != eg && !sameButStatus(eg, current):
		if claim, err = r.read(current); err != nil {
			return s, nil, err
		}
	}
	others = r.claims.Set(claim)
	return r.claims.Resolve(s), others, nil
}

// read reads an EgressService and everything that belongs to it.
func (r *Reader) read(eg *v1.EgressService) (s egressservice.Service, err error) {
	snap := egressservice.Snapshot{Egress: eg, Shared: r.mode == topology.GatewayShared,
		Pod: func(a netip.Addr) (string, bool) {
			if p := r.PodAt(eg.Namespace, a); p != nil {
				return p.Spec.NodeName, true
			}
			return "", false
		},
		Ready: func(a netip.Addr) bool {
			p := r.PodAt(eg.Namespace, a)
			return p != nil && kube.KubeletReady(p)
		}}
	if a := r.informers.Addresses; a != nil {
		snap.Reserved, snap.Owners = a.Ranges, a.Owners
	}
	svc, err := r.services.Services(eg.Namespace).Get(eg.Name)
	switch {
	case err == nil:
		snap.Service = svc
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("get Service %s/%s: %w", eg.Namespace, eg.Name, err)
	}
	if snap.Slices, err = r.slicesOf(eg); err != nil {
		return s, err
	}
	snap.Selected = r.selected(snap.Service)
	return egressservice.Decode(snap, r.cluster), nil
}

// Forget removes a deleted EgressService, and returns the other EgressServices that select
// pods it had.
func (r *Reader) Forget(key string) (others []string) {
	if namespace, _, err := cache.SplitMetaNamespaceKey(key); err == nil {
		r.known.release(namespace, key)
	}
	defer r.claiming.lock(key)()
	return r.claims.Forget(key)
}

// Prime decodes every EgressService, so that none takes pods that belong to an older one whose
// claim is not recorded yet.
func (r *Reader) Prime() error {
	all, err := r.Objects()
	if err != nil {
		return err
	}
	_, err = r.decodeAll(all)
	return err
}

// decodeAll decodes EgressServices, and returns the others that Decode returns.
func (r *Reader) decodeAll(all []*v1.EgressService) (others []string, err error) {
	for _, eg := range all {
		_, more, err := r.Decode(eg)
		if err != nil {
			return nil, err
		}
		others = append(others, more...)
	}
	return others, nil
}

func (r *Reader) slicesOf(eg *v1.EgressService) ([]*discoveryv1.EndpointSlice, error) {
	return kube.Slices(r.slices, eg.Namespace+"/"+eg.Name)
}

// Keys lists the keys of all EgressServices. It can be used as a seed.
func (r *Reader) Keys() []string {
	return r.informers.EgressServices.Informer().GetIndexer().ListKeys()
}

// Watch makes c reconcile the keys that keys returns for every event about an
// EgressService, given the kind of the changed object and the key of the
// EgressService.
func (r *Reader) Watch(c *queue.Controller, keys func(kind Kind, key string) []string) error {
	watch := func(inf cache.SharedIndexInformer, kind Kind) error {
		return c.Watch(inf, func(old, new any) []string {
			var out []string
			seen, kind := "", kind
			if kind == EgressService && sameButStatus(old, new) {
				kind = Status
			}
			for _, obj := range []any{old, new} {
				key := keyOf(obj)
				if key == "" || key == seen || kind != EgressService && kind != Status && !r.exists(key) {
					continue
				}
				seen = key
				out = append(out, keys(kind, key)...)
			}
			return out
		})
	}
	if err := watch(r.informers.EgressServices.Informer(), EgressService); err != nil {
		return err
	}
	if err := watch(r.informers.Services.Informer(), Service); err != nil {
		return err
	}
	if err := watch(r.informers.EndpointSlices.Informer(), EndpointSlice); err != nil {
		return err
	}
	if err := r.watchAddresses(c, keys); err != nil {
		return err
	}
	pods := func(old, new any) []string {
		var out []string
		for _, key := range r.concerned(old, new) {
			out = append(out, keys(Pod, key)...)
		}
		return out
	}
	r.known.enqueue = c.Enqueue
	r.known.follow = func(inf cache.SharedIndexInformer, known *atomic.Bool) (cache.InformerSynced, error) {
		return c.Follow(inf, func(old, new any) []string {
			if !known.Load() {
				return nil // callers of Know decode the pods they need once they are known
			}
			return pods(old, new)
		})
	}
	return c.Watch(r.informers.Pods.Informer(), pods)
}

// watchAddresses is Watch for changes in the ownership of load balancer addresses.
func (r *Reader) watchAddresses(c *queue.Controller, keys func(kind Kind, key string) []string) error {
	if r.informers.Addresses == nil {
		return nil
	}
	return r.informers.Addresses.Watch(c, func(addrs []netip.Addr) []string {
		var out []string
		for _, key := range r.givenOut(addrs) {
			out = append(out, keys(Service, key)...)
		}
		return out
	})
}

// Inside returns the addresses inside the cluster: pods, Services, nodes and API servers.
func (r *Reader) Inside() []netip.Prefix {
	if r.informers.Addresses == nil {
		return r.cluster
	}
	return r.informers.Addresses.Inside()
}

// Cluster returns the subnets of pods and Services.
func (r *Reader) Cluster() []netip.Prefix {
	if r.informers.Addresses == nil {
		return r.cluster
	}
	return slices.Concat(r.informers.Addresses.Ranges.Pods, r.informers.Addresses.Ranges.Services)
}

// WatchInside makes c reconcile the keys that keys returns when Inside changes.
func (r *Reader) WatchInside(c *queue.Controller, keys func() []string) error {
	if r.informers.Addresses == nil {
		return nil
	}
	return r.informers.Addresses.WatchHosts(c, keys)
}

// byIngress is the name of the index of Services by the addresses that load balancers gave them.
const byIngress = "ingress"

// givenOut returns the keys of the EgressServices whose Services got one of the
// addresses from a load balancer. It is called for the addresses whose owners change.
func (r *Reader) givenOut(addrs []netip.Addr) []string {
	var found []string
	for _, a := range addrs {
		objs, err := r.informers.Services.Informer().GetIndexer().ByIndex(byIngress, a.String())
		if err != nil {
			continue // cannot happen: NewReader created this index
		}
		for _, obj := range objs {
			if key := keyOf(obj); r.exists(key) && !slices.Contains(found, key) {
				found = append(found, key)
			}
		}
	}
	slices.Sort(found)
	return found
}

// LocalOnly reports whether the Service of a key allows only nodes with endpoints.
func (r *Reader) LocalOnly(key string) bool {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return false
	}
	svc, err := r.services.Services(namespace).Get(name)
	return err == nil && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// exists reports whether there is an EgressService of a key. An EgressService created later
// causes its own event.
func (r *Reader) exists(key string) bool {
	_, ok, err := r.informers.EgressServices.Informer().GetIndexer().GetByKey(key)
	return err == nil && ok
}

// Kind is the kind of object an event is about.
type Kind uint8

// The kinds. Status means that only the status of an EgressService has changed.
const (
	EgressService Kind = iota
	Status
	Service
	EndpointSlice
	Pod
)

// sameButStatus reports whether an EgressService is the same object with the same spec.
func sameButStatus(old, new any) bool {
	o, _ := old.(*v1.EgressService)
	n, _ := new.(*v1.EgressService)
	return o != nil && n != nil && o.UID == n.UID && o.Generation == n.Generation && equality.Semantic.DeepEqual(o.Spec, n.Spec)
}

// keyOf returns the key of the EgressService that an object belongs to.
func keyOf(obj any) string {
	switch o := obj.(type) {
	case *v1.EgressService:
		return o.Namespace + "/" + o.Name
	case *corev1.Service:
		return o.Namespace + "/" + o.Name
	case *discoveryv1.EndpointSlice:
		return kube.SliceService(o)
	}
	return ""
}
