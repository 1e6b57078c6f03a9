package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodKey returns "namespace/name".
func PodKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// maxUID is the length up to which something is taken for the UID of a static pod, which
// is a hash unless its manifest has another one.
const maxUID = 128

// PodUID returns the UID under which the runtime knows a pod, which tells one that is
// made anew under its name from the one before. For a static pod it is that of its
// manifest: the object that the API has of it, its mirror, may be deleted and made anew
// while the pod goes on running. Preconditions of writes take the UID of the object.
func PodUID(p *corev1.Pod) types.UID {
	if !IsMirror(p) {
		return p.UID
	}
	return types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])
}

// IsMirror reports whether a pod is what the API has of a static pod.
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
