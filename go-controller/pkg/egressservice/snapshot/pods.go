package snapshot

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// selected returns the addresses of the pods that a Service selects, as far as
// they are assigned. For later assignments, the master enqueues the EgressService.
func (r *Reader) selected(svc *corev1.Service) (addrs []netip.Addr) {
	if r.given == nil || svc == nil {
		return nil
	}
	for _, p := range kube.PodsSelected(r.pods, svc.Namespace, svc.Spec.Selector) {
		if !kube.NeedsNetwork(p) {
			continue
		}
		// The kubelet has reported the addresses of most pods, and reading them is fast. The pod's annotation
		// is not trusted: users who may edit pods could claim any address.
		known := kube.PodAddresses(p)
		if len(known) == 0 {
			known = r.given(kube.PodKey(p), kube.PodUID(p))
		}
		addrs = append(addrs, known...)
	}
	return addrs
}

// PodAt returns the pod of a namespace that has an address, or nil if there is none.
func (r *Reader) PodAt(namespace string, a netip.Addr) *corev1.Pod {
	if pods := r.known.pods(namespace); pods != nil {
		return kube.PodAt(pods, namespace, a)
	}
	return kube.PodAt(r.pods, namespace, a)
}

// concerned returns the keys of the EgressServices that a change of a pod may
// affect: those whose slices list it, and those whose Services select it.
func (r *Reader) concerned(old, new any) []string {
	before, _ := old.(*corev1.Pod)
	after, _ := new.(*corev1.Pod)
	if before != nil && after != nil && r.same(before, after) {
		return nil
	}
	keys := map[string]bool{}
	for _, p := range []*corev1.Pod{before, after} {
		if p == nil {
			continue
		}
		for _, a := range kube.PodAddresses(p) {
			for _, key := range kube.ServicesAt(r.slices, p.Namespace, a) {
				keys[key] = true
			}
		}
		if r.given == nil {
			continue
		}
		for _, key := range r.selecting(p) {
			keys[key] = true
		}
	}
	maps.DeleteFunc(keys, func(key string, _ bool) bool { return !r.exists(key) })
	return slices.Sorted(maps.Keys(keys))
}

// same reports whether two states of a pod are equivalent for EgressServices.
func (r *Reader) same(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName &&
		slices.Equal(kube.PodAddresses(a), kube.PodAddresses(b)) && kube.NeedsNetwork(a) == kube.NeedsNetwork(b) &&
		kube.KubeletReady(a) == kube.KubeletReady(b) &&
		(r.given == nil || maps.Equal(a.Labels, b.Labels))
}

// Selecting returns the keys of the EgressServices whose Services select the pod
// "namespace/name".
func (r *Reader) Selecting(key string) []string {
	obj, _, _ := r.pods.GetByKey(key)
	if p, ok := obj.(*corev1.Pod); ok {
		return r.selecting(p)
	}
	return nil
}

// selecting returns the keys of the EgressServices whose Services select a pod.
func (r *Reader) selecting(p *corev1.Pod) []string {
	objs, err := r.informers.EgressServices.Informer().GetIndexer().ByIndex(cache.NamespaceIndex, p.Namespace)
	if err != nil || len(objs) == 0 {
		return nil // cannot happen: all generated informers have this index
	}
	var keys []string
	for _, obj := range objs {
		key := keyOf(obj)
		_, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			continue
		}
		svc, err := r.services.Services(p.Namespace).Get(name)
		if err == nil && len(svc.Spec.Selector) > 0 && labels.SelectorFromValidatedSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
			keys = append(keys, key)
		}
	}
	return keys
}
