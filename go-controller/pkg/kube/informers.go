package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// NewInformers returns the informer factory of the core API. There is no
// periodic resync: state is compared on events and at start-up. Fields that no
// package reads are dropped before objects are cached. When the mirror pod of a static pod is
// deleted, the pod is kept for MirrorGrace, here and in the other factories.
func NewInformers(cs kubernetes.Interface) informers.SharedInformerFactory {
	return LateMirrors(informers.NewSharedInformerFactoryWithOptions(cs, 0, informers.WithTransform(Trim)), nil)
}

// NewNodePodInformers returns a factory whose pod informer contains only the pods
// of one node, for the node side of pod attachment.
func NewNodePodInformers(cs kubernetes.Interface, node string) informers.SharedInformerFactory {
	return LateMirrors(informers.NewSharedInformerFactoryWithOptions(cs, 0, informers.WithTransform(Trim)), func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	})
}

// Trim drops managed fields, often the larger half of an object, and the
// images of nodes, which every node would cache for all nodes. It is the transform function of informers.
func Trim(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.Status.Images = nil
	}
	if o, err := meta.Accessor(obj); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
