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
// package reads are dropped before objects are cached. A static pod stays a while when
// its mirror is deleted (MirrorGrace), here and in the other factories.
func NewInformers(cs kubernetes.Interface) informers.SharedInformerFactory {
	return LateMirrors(informers.NewSharedInformerFactoryWithOptions(cs, 0, informers.WithTransform(Trim)), nil)
}

// NewNodePodInformers returns a factory whose pod informer holds only the pods
// of one node, for the node side of pod attachment.
func NewNodePodInformers(cs kubernetes.Interface, node string) informers.SharedInformerFactory {
	return LateMirrors(informers.NewSharedInformerFactoryWithOptions(cs, 0, informers.WithTransform(Trim)), func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	})
}

// Trim drops managed fields, which are often the larger half of an object, and the
// images of nodes: every node knows all of them. It is the transformation of informers.
func Trim(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.Status.Images = nil
	}
	if o, err := meta.Accessor(obj); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
