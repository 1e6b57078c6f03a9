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
// periodic resync: state is compared on events and at start-up. Trim drops fields before objects are cached. When the mirror pod of a static pod is
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

// Trim drops what takes most of the memory of an object and is not read: managed fields, often the larger half, the
// images of nodes, which every node would cache for all nodes, and all of a pod but the fields of trimPod. It is the
// transform function of informers.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		o.Status.Images = nil
	case *corev1.Pod:
		obj = trimPod(o)
	}
	if o, err := meta.Accessor(obj); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// trimPod returns a pod with its metadata and the fields that are read of pods in a cache. A test compares them
// with those that the program reads.
func trimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: p.TypeMeta, ObjectMeta: p.ObjectMeta,
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: p.Status.Phase, HostIPs: p.Status.HostIPs, PodIPs: p.Status.PodIPs, StartTime: p.Status.StartTime},
	}
	for _, c := range p.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
	}
	return out
}
