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

// requests is the number of concurrent requests for pods.
const requests = 16

// ReadPod is Read for answers about the pod "namespace/name": it reads only the pods
// that the answer needs. If the pod does not exist, the snapshot has no pods.
func ReadPod(ctx context.Context, c Clients, namespace string, settings Settings, key string) (explain.Snapshot, error) {
	podNamespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return explain.Snapshot{}, err
	}
	return readSome(ctx, c, namespace, settings, func(*explain.Snapshot) []podList {
		return []podList{{PodQuery: explain.PodQuery{Namespace: podNamespace}, name: name}}
	})
}

// ReadEgressIP is ReadPod for answers about an EgressIP.
func ReadEgressIP(ctx context.Context, c Clients, namespace string, settings Settings, name string) (explain.Snapshot, error) {
	return readSome(ctx, c, namespace, settings, func(s *explain.Snapshot) (lists []podList) {
		for _, q := range s.SelectedBy(name) {
			lists = append(lists, podList{PodQuery: q})
		}
		return lists
	})
}

// podList is a request for pods; if name is not empty, for the pod of that name.
type podList struct {
	explain.PodQuery
	name string
}

// readSome reads the pods that asked requests, and those that answers about them need.
//
// The gateway pods of a namespace are identified by annotations, by which the API
// server cannot select: if external gateways are enabled, the metadata of all pods is
// read, and discarded page by page.
func readSome(ctx context.Context, c Clients, namespace string, settings Settings, asked func(*explain.Snapshot) []podList) (explain.Snapshot, error) {
	s, missing := explain.Snapshot{System: namespace}, &kinds{}
	if err := readOwn(ctx, c.Kube, namespace, settings, &s); err != nil {
		return s, err
	}
	var announced []*metav1.PartialObjectMetadata
	if err := together(append(kindsButPods(ctx, c, &s, missing), func() (err error) {
		if s.Settings.ExternalGateways {
			announced, err = announcing(ctx, c)
		}
		return err
	})); err != nil {
		return s, err
	}
	noteMissing(&s, missing)
	about, err := podsOf(ctx, c, asked(&s))
	if err != nil {
		return s, err
	}
	needs := s.Needs(about...)
	var lists []podList
	for _, q := range needs.Pods {
		lists = append(lists, podList{PodQuery: q})
	}
	for _, p := range announced {
		if explain.IsGatewayOf(p.Annotations, needs.Routed) {
			lists = append(lists, podList{explain.PodQuery{Namespace: p.Namespace}, p.Name})
		}
	}
	beside, err := podsOf(ctx, c, lists)
	if err != nil {
		return s, err
	}
	s.Pods = slices.Concat(about, beside)
	// In the order in which the API server lists them.
	slices.SortStableFunc(s.Pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.Pods = slices.CompactFunc(s.Pods, func(a, b *corev1.Pod) bool { return kube.PodKey(a) == kube.PodKey(b) })
	return s, nil
}

// podsOf lists pods with concurrent requests.
func podsOf(ctx context.Context, c Clients, lists []podList) (found []*corev1.Pod, err error) {
	var mu sync.Mutex
	for some := range slices.Chunk(lists, requests) {
		var reads []func() error
		for _, l := range some {
			reads = append(reads, func() error {
				pods, err := pods(ctx, c, l)
				mu.Lock()
				defer mu.Unlock()
				found = append(found, pods...)
				return err
			})
		}
		if err := together(reads); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// pods makes a request for pods. It lists a pod by name instead of getting it, since the users' permissions
// allow only list.
func pods(ctx context.Context, c Clients, l podList) (found []*corev1.Pod, err error) {
	get := func(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
		o.LabelSelector = l.Selector
		if l.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.name).String()
		}
		return c.Kube.CoreV1().Pods(l.Namespace).List(ctx, o)
	}
	err = list(ctx, "pods", get, func(l *corev1.PodList) { found = grow(found, l.Items) })
	if l.name != "" {
		found = slices.DeleteFunc(found, func(p *corev1.Pod) bool { return p.Name != l.name })
	}
	return found, err
}

// announcing returns the metadata of the pods that claim to be gateways of a namespace.
func announcing(ctx context.Context, c Clients) (all []*metav1.PartialObjectMetadata, err error) {
	get := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(metav1.NamespaceAll).List
	err = list(ctx, "pods", get, func(l *metav1.PartialObjectMetadataList) {
		for i := range l.Items {
			if p := &l.Items[i]; p.Annotations[kube.AnnotationRoutingNamespaces] != "" {
				all = append(all, p.DeepCopy()) // a copy, so that the rest of the page is not kept in memory
			}
		}
	})
	return all, err
}
