package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// PodAddresses returns the addresses that a pod has on the pod network, as
// reported by the kubelet: unlike annotations, users who may edit pods cannot
// change them. A pod that is finished, or on its host's network, has none.
func PodAddresses(p *corev1.Pod) []netip.Addr {
	if !NeedsNetwork(p) {
		return nil
	}
	var addrs []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && topology.IsUnicast(a.Unmap()) {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// NewNamespacePods returns an informer with the pods of one namespace, reduced to
// the fields that PodAddresses reads, with the index that PodAt reads.
func NewNamespacePods(cs kubernetes.Interface, namespace string) (cache.SharedIndexInformer, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(cs, 0, informers.WithTransform(func(obj any) (any, error) {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
			Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
			Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: slices.Clone(p.Status.PodIPs)},
		}, nil
	}))
	inf := podFactory{factory, namespace, nil}.Core().V1().Pods().Informer()
	return inf, IndexPods(inf)
}

// The names of the indexes of pods.
const (
	podsByAddress = "address"
	podsByLabel   = "label"
	podsByNode    = "node" // those that need a network
)

// IndexPods adds the index that PodAt reads to a pod informer. It must be called
// before the informer starts, by each package that reads the index.
func IndexPods(inf cache.SharedIndexInformer) error {
	return AddIndex(inf, podsByAddress, func(p *corev1.Pod) []string {
		var keys []string
		for _, a := range PodAddresses(p) {
			keys = append(keys, addressKey(p.Namespace, a))
		}
		return keys
	})
}

// PodAt returns the pod of a namespace that has an address, or nil if there is none.
func PodAt(indexer cache.Indexer, namespace string, addr netip.Addr) *corev1.Pod {
	objs, err := indexer.ByIndex(podsByAddress, addressKey(namespace, addr))
	if err != nil || len(objs) == 0 {
		return nil // no such pod; the index exists, since IndexPods created it
	}
	p, _ := objs[0].(*corev1.Pod)
	return p
}

func addressKey(namespace string, a netip.Addr) string { return namespace + "/" + a.String() }

// IndexPodNodes adds the index that PodsOn reads to a pod informer, like IndexPods.
func IndexPodNodes(inf cache.SharedIndexInformer) error {
	return AddIndex(inf, podsByNode, func(p *corev1.Pod) []string {
		if !NeedsNetwork(p) {
			return nil
		}
		return []string{p.Spec.NodeName}
	})
}

// PodsOn returns the pods of a node that need a network.
func PodsOn(indexer cache.Indexer, node string) []*corev1.Pod {
	return PodsIndexed(indexer, podsByNode, node)
}

// PodsIndexed returns the pods that have a value in an index of an informer.
func PodsIndexed(indexer cache.Indexer, index, value string) []*corev1.Pod {
	objs, _ := indexer.ByIndex(index, value) // the only error is that there is no such index
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		if p, ok := obj.(*corev1.Pod); ok {
			pods = append(pods, p)
		}
	}
	return pods
}

// IndexPodLabels adds the index that PodsSelected reads to a pod informer, like
// IndexPods.
func IndexPodLabels(inf cache.SharedIndexInformer) error {
	return AddIndex(inf, podsByLabel, func(p *corev1.Pod) []string {
		keys := make([]string, 0, len(p.Labels))
		for k, v := range p.Labels {
			keys = append(keys, labelKey(p.Namespace, k, v))
		}
		return keys
	})
}

// PodsSelected returns the pods of a namespace that have all labels of a selector,
// or none if the selector is empty.
func PodsSelected(indexer cache.Indexer, namespace string, selector map[string]string) []*corev1.Pod {
	var fewest []string
	first := true
	for k, v := range selector {
		keys, err := indexer.IndexKeys(podsByLabel, labelKey(namespace, k, v))
		if err != nil {
			return nil // cannot happen: IndexPodLabels created this index
		}
		if first || len(keys) < len(fewest) {
			fewest, first = keys, false
		}
	}
	var pods []*corev1.Pod
	for _, key := range fewest {
		obj, _, _ := indexer.GetByKey(key)
		if p, ok := obj.(*corev1.Pod); ok && labels.SelectorFromValidatedSet(selector).Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}

func labelKey(namespace, key, value string) string { return namespace + "/" + key + "=" + value }
