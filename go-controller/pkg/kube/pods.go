package kube

import corev1 "k8s.io/api/core/v1"

// PodKey returns "namespace/name".
func PodKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// NeedsNetwork tells whether a pod has, or is to get, an address on the pod
// network: it is scheduled, not on the host's network, and not finished.
func NeedsNetwork(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
