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
// they are given, and whether more are being given.
func (r *Reader) selected(svc *corev1.Service) (addrs []netip.Addr, starting bool) {
	if r.given == nil || svc == nil {
		return nil, false
	}
	for _, p := range kube.PodsSelected(r.pods, svc.Namespace, svc.Spec.Selector) {
		if !kube.NeedsNetwork(p) {
			continue
		}
		// Of most the kubelet knows, and that is quick to read.
		if known := kube.PodAddresses(p); len(known) > 0 {
			addrs = append(addrs, known...)
			continue
		}
		announced, ok, err := kube.PodNetwork(p)
		if err != nil || !ok {
			continue // it cannot start before it has one that is right
		}
		// What was given is what counts: whoever may edit pods can announce anything.
		// And it may still be that of an earlier pod of this name.
		given := r.given(kube.PodKey(p))
		if !slices.ContainsFunc(announced.Addrs, func(a netip.Prefix) bool { return !slices.Contains(given, a.Addr()) }) {
			addrs = append(addrs, given...)
		} else {
			starting = true
		}
	}
	return addrs, starting
}

// concerned returns the keys of the EgressServices that a change of a pod may
// concern: those it is listed for, and those it will be.
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

// same tells whether two states of a pod are one to us.
func (r *Reader) same(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName &&
		slices.Equal(kube.PodAddresses(a), kube.PodAddresses(b)) && kube.NeedsNetwork(a) == kube.NeedsNetwork(b) &&
		(r.given == nil || maps.Equal(a.Labels, b.Labels) &&
			a.Annotations[kube.AnnotationPodNetworks] == b.Annotations[kube.AnnotationPodNetworks])
}

// selecting returns the keys of the EgressServices whose Services select a pod.
func (r *Reader) selecting(p *corev1.Pod) []string {
	objs, err := r.informers.EgressServices.Informer().GetIndexer().ByIndex(cache.NamespaceIndex, p.Namespace)
	if err != nil || len(objs) == 0 {
		return nil // the index is there: all generated informers have it
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
