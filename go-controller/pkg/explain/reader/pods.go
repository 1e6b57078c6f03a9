package reader

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// requests is how many requests for pods are under way at the same time.
const requests = 16

// ReadPod is Read for answers about the pod "namespace/name": of pods, it reads only those
// that the answer needs. Without the pod there are none in the snapshot.
//
// Which pods are gateways of the pod's namespace stands in their annotations, by which the API
// server does not select: where external gateways are enabled, the metadata of all pods is
// read, and dropped page by page.
func ReadPod(ctx context.Context, c Clients, namespace string, settings Settings, key string) (explain.Snapshot, error) {
	s, missing := explain.Snapshot{System: namespace}, &kinds{}
	podNamespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return s, err
	}
	if err := readOwn(ctx, c.Kube, namespace, settings, &s); err != nil {
		return s, err
	}
	var asked []*corev1.Pod
	var gateways []string
	if err := together(append(kindsButPods(ctx, c, &s, missing),
		func() (err error) {
			asked, err = pods(ctx, c, explain.PodQuery{Namespace: podNamespace}, name)
			return err
		},
		func() (err error) {
			if s.Settings.ExternalGateways {
				gateways, err = announced(ctx, c, podNamespace)
			}
			return err
		},
	)); err != nil {
		return s, err
	}
	noteMissing(&s, missing)
	if len(asked) == 0 {
		return s, nil
	}
	needs := s.Needs(asked...)
	found := asked
	var mu sync.Mutex
	read := func(q explain.PodQuery, name string) func() error {
		return func() error {
			some, err := pods(ctx, c, q, name)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, some...)
			return err
		}
	}
	var reads []func() error
	for _, q := range needs.Pods {
		reads = append(reads, read(q, ""))
	}
	for _, key := range gateways {
		if ns, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
			reads = append(reads, read(explain.PodQuery{Namespace: ns}, name))
		}
	}
	for some := range slices.Chunk(reads, requests) {
		if err := together(some); err != nil {
			return s, err
		}
	}
	// In the order in which the API server lists them.
	slices.SortStableFunc(found, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.Pods = slices.CompactFunc(found, func(a, b *corev1.Pod) bool { return kube.PodKey(a) == kube.PodKey(b) })
	return s, nil
}

// pods lists those that a query names; where name is not empty, the one of that name. To list
// is what the rights of those who ask allow.
func pods(ctx context.Context, c Clients, q explain.PodQuery, name string) (found []*corev1.Pod, err error) {
	get := func(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
		o.LabelSelector = q.Selector
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
		return c.Kube.CoreV1().Pods(q.Namespace).List(ctx, o)
	}
	err = list(ctx, "pods", get, func(l *corev1.PodList) { found = grow(found, l.Items) })
	if name != "" {
		found = slices.DeleteFunc(found, func(p *corev1.Pod) bool { return p.Name != name })
	}
	return found, err
}

// announced returns the keys of the pods that say that they are gateways of a namespace.
func announced(ctx context.Context, c Clients, namespace string) (keys []string, err error) {
	get := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(metav1.NamespaceAll).List
	err = list(ctx, "pods", get, func(l *metav1.PartialObjectMetadataList) {
		for i := range l.Items {
			if p := &l.Items[i]; explain.IsGatewayOf(p.Annotations, []string{namespace}) {
				keys = append(keys, p.Namespace+"/"+p.Name)
			}
		}
	})
	return keys, err
}
