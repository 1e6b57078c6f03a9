package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Annotations about external gateways, on namespaces and pods.
const (
	// AnnotationRoutingExternalGWs lists the gateways of a namespace: addresses
	// separated by commas.
	AnnotationRoutingExternalGWs = "k8s.ovn.org/routing-external-gws"
	// AnnotationBFDEnabled, on a namespace or on a gateway pod, monitors its gateways
	// with BFD. Its presence enables BFD, unless the value is "false".
	AnnotationBFDEnabled = "k8s.ovn.org/bfd-enabled"
	// AnnotationRoutingNamespaces, on a pod, lists the namespaces it is a gateway of.
	AnnotationRoutingNamespaces = "k8s.ovn.org/routing-namespaces"
	// AnnotationRoutingNetwork names the attached network on which the pod is a gateway.
	AnnotationRoutingNetwork = "k8s.ovn.org/routing-network"
	// AnnotationNetworkStatus describes the networks a pod is attached to.
	AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
	// AnnotationGatewaysInUse is written by the master on namespaces: the gateways
	// that their pods are routed to, sorted and separated by commas. The nodes
	// forget the connections of gateways that are removed from it.
	AnnotationGatewaysInUse = "k8s.ovn.org/external-gateways-in-use"
)

// ParseAddrs decodes addresses separated by commas, and returns invalid entries
// separately. IPv4-mapped addresses are unmapped; an empty value is an empty list.
func ParseAddrs(value string) (addrs []netip.Addr, bad []string) {
	for text := range strings.SplitSeq(value, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			bad = append(bad, text)
			continue
		}
		addrs = append(addrs, a.Unmap())
	}
	return addrs, bad
}

// FormatAddrs encodes addresses for ParseAddrs: sorted, without duplicates.
func FormatAddrs(addrs []netip.Addr) string {
	sorted := slices.Clone(addrs)
	slices.SortFunc(sorted, netip.Addr.Compare)
	text := make([]string, 0, len(sorted))
	for _, a := range slices.Compact(sorted) {
		text = append(text, a.String())
	}
	return strings.Join(text, ",")
}

// BFDEnabled reports whether annotations enable BFD.
func BFDEnabled(annotations map[string]string) bool {
	value, ok := annotations[AnnotationBFDEnabled]
	return ok && value != "false"
}

// RoutingNamespaces returns the namespaces that a pod claims to be a gateway of.
func RoutingNamespaces(p *corev1.Pod) []string {
	var names []string
	for name := range strings.SplitSeq(p.Annotations[AnnotationRoutingNamespaces], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// NetworkStatus decodes the networks a pod is attached to; none if the pod
// does not have the annotation. The error names pod and value. An invalid address
// is no error: the pod may be a gateway at its other addresses.
func NetworkStatus(p *corev1.Pod) ([]topology.Attachment, error) {
	value, ok := p.Annotations[AnnotationNetworkStatus]
	if !ok {
		return nil, nil
	}
	var entries []struct {
		Name string   `json:"name"`
		IPs  []string `json:"ips"`
	}
	if err := json.Unmarshal([]byte(value), &entries); err != nil {
		return nil, fmt.Errorf("parse annotation %s of pod %s, value %q: %w", AnnotationNetworkStatus, PodKey(p), value, err)
	}
	networks := make([]topology.Attachment, 0, len(entries))
	for _, e := range entries {
		n := topology.Attachment{Name: e.Name}
		for _, text := range e.IPs {
			a, err := parseAddrOrPrefix(text)
			if err != nil {
				n.Bad = append(n.Bad, text)
				continue
			}
			n.Addrs = append(n.Addrs, a)
		}
		networks = append(networks, n)
	}
	return networks, nil
}

// parseAddrOrPrefix parses addresses with and without a prefix length, since plug-ins
// write both.
func parseAddrOrPrefix(text string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err
}

// HostAddrs returns the host's addresses that a pod on the host's network has.
func HostAddrs(p *corev1.Pod) []netip.Addr {
	var texts []string
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, ip := range p.Status.HostIPs {
		texts = append(texts, ip.IP)
	}
	var addrs []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(addrs, a.Unmap()) {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// ReadyNow reports whether a pod is running, ready and not being deleted. Deleting the mirror pod of
// a static pod does not delete the static pod. If only
// kube-controller-manager reports the pod as not ready, because of its node, nodeReady
// decides whether that node counts as ready.
func ReadyNow(p *corev1.Pod, nodeReady func(node string) bool) bool {
	return (p.DeletionTimestamp == nil || IsMirror(p)) && p.Status.Phase == corev1.PodRunning && KubeletReady(p) &&
		(podHas(p, corev1.PodReady, readyTrue) || nodeReady(p.Spec.NodeName))
}

// KubeletReady reports whether a pod is ready according to the last report of its kubelet.
// kube-controller-manager sets all pods of a node that is not ready to not ready, even
// if it has merely lost contact with the node, and gives no reason; a kubelet always gives one. The pods stay
// not ready until the kubelet syncs them again, which is some time after the node is ready.
func KubeletReady(p *corev1.Pod) bool {
	return podHas(p, corev1.PodReady, readyTrue) ||
		podHas(p, corev1.PodReady, readinessTaken) && podHas(p, corev1.ContainersReady, readyTrue)
}

func readyTrue(c corev1.PodCondition) bool { return c.Status == corev1.ConditionTrue }

func readinessTaken(c corev1.PodCondition) bool {
	return c.Status == corev1.ConditionFalse && c.Reason == ""
}

// podHas reports whether a pod has a condition for which is returns true.
func podHas(p *corev1.Pod, condition corev1.PodConditionType, is func(corev1.PodCondition) bool) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition && is(c) })
}
