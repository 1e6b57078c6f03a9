package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodKey returns "namespace/name".
func PodKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// maxUID is the maximum length of a value that is accepted as the UID of a static pod. The UID
// is a hash unless the manifest sets another one.
const maxUID = 128

// PodUID returns the UID under which the runtime knows a pod. It distinguishes a pod that is
// recreated under the same name from the previous one. For a static pod it is the UID of its
// manifest: its API object, the mirror pod, may be deleted and recreated
// while the pod keeps running. Preconditions of writes use the UID of the object.
func PodUID(p *corev1.Pod) types.UID {
	if !IsMirror(p) {
		return p.UID
	}
	return types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])
}

// IsMirror reports whether a pod is the mirror pod of a static pod.
func IsMirror(p *corev1.Pod) bool {
	uid := p.Annotations[corev1.MirrorPodAnnotationKey]
	return uid != "" && len(uid) <= maxUID
}

// NeedsNetwork reports whether a pod has, or is to get, an address on the pod
// network: it is scheduled, not on the host's network, and not finished.
func NeedsNetwork(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork && !finished(p)
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
