package agents

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressipnode "github.com/ovnkube/ovnkube/go-controller/pkg/egressip/node"
	egressservicenode "github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// starts reports whether the kubelet would start a pod now: it has its addresses and
// nothing delays it.
func starts(p *corev1.Pod) bool {
	_, given := p.Annotations[kube.AnnotationPodNetworks]
	_, held := p.Annotations[kube.AnnotationEgressPending]
	return given && !held && len(p.Status.PodIPs) == 0
}

// Started reports whether a pod is running.
func Started(p *corev1.Pod) bool { return len(p.Status.PodIPs) > 0 }

// runPod writes the status that a kubelet reports for a running pod.
func (a *Agents) runPod(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	p, err := a.core.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !starts(p) {
		return nil
	}
	if err != nil {
		return err
	}
	network, _, err := kube.PodNetwork(p)
	if err != nil {
		return err
	}
	p = p.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	for _, addr := range network.Addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: addr.Addr().String()})
	}
	p.Status.PodIP = p.Status.PodIPs[0].IP
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = a.clients.Kube.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	if ignorable(err) {
		return nil
	}
	return fmt.Errorf("run pod %s: %w", key, err)
}

// acknowledgeService writes the acknowledgement of the host of an EgressService.
func (a *Agents) acknowledgeService(ctx context.Context, key string) error {
	eg, err := a.reader.Object(key)
	if eg == nil {
		a.reader.Forget(key)
		return err
	}
	s, _, err := a.reader.Decode(eg)
	if err != nil || s.Host == "" || a.isLost(s.Host) {
		return err
	}
	patch, err := egressservicenode.AcknowledgementPatch(eg, s, s.Host, "")
	if patch == nil || err != nil {
		return err
	}
	_, err = a.clients.Services.EgressServiceV1().EgressServices(eg.Namespace).Patch(ctx, eg.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	if ignorable(err) {
		return nil
	}
	return fmt.Errorf("acknowledge EgressService %s: %w", key, err)
}

// acknowledgeIP writes the acknowledgements of the nodes that have an EgressIP or are assigned one.
func (a *Agents) acknowledgeIP(ctx context.Context, name string) error {
	e, err := a.ip.EgressIP().V1().EgressIPs().Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var nodes []string
	for _, p := range e.Status.Programmed { // nodes that release come first
		nodes = append(nodes, p.Node)
	}
	for _, item := range e.Status.Items {
		if !slices.Contains(nodes, item.Node) {
			nodes = append(nodes, item.Node)
		}
	}
	for _, node := range nodes {
		if a.isLost(node) {
			continue
		}
		word, err := a.nodeStatus(e, node)
		if err != nil {
			return err
		}
		patch, err := egressipnode.NodeStatusPatch(e, node, word)
		if err != nil {
			return err
		}
		if patch == nil {
			continue
		}
		next, err := a.clients.IPs.EgressIPV1().EgressIPs().Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
		switch {
		case err == nil:
			e = next
		case !ignorable(err):
			return fmt.Errorf("acknowledge EgressIP %s: %w", name, err)
		}
	}
	return nil
}

// nodeStatus returns a node's entry in the status of an EgressIP: it takes those of its assigned addresses that no
// other node has. It returns nil if there is no entry.
func (a *Agents) nodeStatus(e *egressipv1.EgressIP, name string) (*egressipv1.ProgrammedStatus, error) {
	n, err := a.core.Core().V1().Nodes().Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	node, err := kube.Node(n)
	if err != nil {
		return nil, err
	}
	word := &egressipv1.ProgrammedStatus{Node: name}
	assigned := egressip.AssignmentOf(e.Status, node).Primary
	for _, item := range e.Status.Items {
		addr, err := netip.ParseAddr(item.EgressIP)
		switch {
		case err != nil:
		case item.From == name: // until the next node is prepared
			word.EgressIPs = append(word.EgressIPs, item.EgressIP)
		case !slices.Contains(assigned, addr):
		case item.From != "":
			word.Awaiting = append(word.Awaiting, item.EgressIP)
		case egressip.Other(e.Status, name, addr) == "":
			word.EgressIPs = append(word.EgressIPs, item.EgressIP)
		}
	}
	if len(word.EgressIPs)+len(word.Awaiting) == 0 {
		return nil, nil
	}
	return word, nil
}

// isTrue reports whether a condition is true for a generation of an object.
func isTrue(conditions []metav1.Condition, name string, generation int64) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == name && c.Status == metav1.ConditionTrue && c.ObservedGeneration >= generation
	})
}

// Programmed reports whether an EgressService is served as specified.
func Programmed(eg *egressservicev1.EgressService) bool {
	return eg != nil && isTrue(eg.Status.Conditions, egressservicev1.ConditionProgrammed, eg.Generation)
}

// ProgrammedIP reports whether an EgressIP is served as specified.
func ProgrammedIP(e *egressipv1.EgressIP) bool {
	return e != nil && isTrue(e.Status.Conditions, egressipv1.ConditionProgrammed, e.Generation)
}

// Unfinished counts the objects that are not served yet, by kind.
func (a *Agents) Unfinished() map[string]int {
	unfinished := map[string]int{}
	services, _ := a.reader.Objects()
	for _, eg := range services {
		if !Programmed(eg) {
			unfinished["EgressServices"]++
		}
	}
	for _, e := range a.IPs() {
		if !ProgrammedIP(e) {
			unfinished["EgressIPs"]++
		}
	}
	routes, _ := a.route.AdminPolicyBasedRoute().V1().AdminPolicyBasedExternalRoutes().Lister().List(labels.Everything())
	for _, r := range routes {
		if !isTrue(r.Status.Conditions, routev1.ConditionReady, r.Generation) {
			unfinished["policies"]++
		}
	}
	pods, _ := a.core.Core().V1().Pods().Lister().List(labels.Everything())
	for _, p := range pods {
		if !Started(p) {
			unfinished["pods"]++
		}
	}
	return unfinished
}

// IPs returns all EgressIPs.
func (a *Agents) IPs() []*egressipv1.EgressIP {
	all, _ := a.ip.EgressIP().V1().EgressIPs().Lister().List(labels.Everything())
	return all
}

// Services returns all EgressServices.
func (a *Agents) Services() []*egressservicev1.EgressService {
	all, _ := a.reader.Objects()
	return all
}

// Route reports whether a policy exists, and whether it is ready.
func (a *Agents) Route(name string) (there, ready bool) {
	r, err := a.route.AdminPolicyBasedRoute().V1().AdminPolicyBasedExternalRoutes().Lister().Get(name)
	return err == nil, err == nil && isTrue(r.Status.Conditions, routev1.ConditionReady, r.Generation)
}

// IP returns an EgressIP, or nil if there is none.
func (a *Agents) IP(name string) *egressipv1.EgressIP {
	e, _ := a.ip.EgressIP().V1().EgressIPs().Lister().Get(name)
	return e
}

// Pod returns a pod, or nil if there is none.
func (a *Agents) Pod(namespace, name string) *corev1.Pod {
	p, _ := a.core.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	return p
}

// Node returns a node, or nil if there is none.
func (a *Agents) Node(name string) *corev1.Node {
	n, _ := a.core.Core().V1().Nodes().Lister().Get(name)
	return n
}
