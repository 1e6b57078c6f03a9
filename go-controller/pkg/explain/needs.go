package explain

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// Needs are the additional pods on which the answers about some pods depend.
type Needs struct {
	Pods []PodQuery // sorted, without duplicates
	// Routed are namespaces, sorted. The pods that claim by annotation to be gateways of one of
	// them are needed, too; see IsGatewayOf.
	Routed []string
}

// PodQuery identifies pods: those that match a label selector in a namespace, or in all namespaces if
// Namespace is empty.
type PodQuery struct{ Namespace, Selector string }

func (q PodQuery) compare(o PodQuery) int {
	return cmp.Or(cmp.Compare(q.Namespace, o.Namespace), cmp.Compare(q.Selector, o.Selector))
}

// IsGatewayOf reports whether a pod with these annotations claims to be a gateway of one of
// the namespaces.
func IsGatewayOf(annotations map[string]string, namespaces []string) bool {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	return slices.ContainsFunc(kube.RoutingNamespaces(p), func(ns string) bool { return slices.Contains(namespaces, ns) })
}

// Needs returns the pods on which the answers about the given pods depend. The snapshot needs no pods.
// A snapshot with the given pods and those they need yields the same answers as one
// with all pods.
func (s *Snapshot) Needs(pods ...*corev1.Pod) Needs {
	n := s.newNeeds()
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !kube.NeedsNetwork(p) })
	if len(pods) == 0 {
		return Needs{}
	}
	n.egressIPs(pods)
	n.egressServices(pods)
	routed := n.gateways(pods)
	return Needs{Pods: n.sorted(), Routed: routed}
}

// SelectedBy returns the pods that an EgressIP selects: answers about it cover these pods, and
// depend on the pods they need.
func (s *Snapshot) SelectedBy(egressIP string) []PodQuery {
	n := s.newNeeds()
	for _, e := range s.EgressIPs {
		if e.Name == egressIP && s.Settings.EgressIP {
			n.selected(e.Spec.NamespaceSelector, e.Spec.PodSelector)
		}
	}
	return n.sorted()
}

// needs is the state of one run of Needs.
type needs struct {
	s          *Snapshot
	namespaces map[string]*corev1.Namespace
	queries    map[PodQuery]bool
}

func (s *Snapshot) newNeeds() *needs {
	n := &needs{s: s, queries: map[PodQuery]bool{}, namespaces: map[string]*corev1.Namespace{}}
	for _, ns := range s.Namespaces {
		n.namespaces[ns.Name] = ns
	}
	return n
}

func (n *needs) sorted() []PodQuery { return slices.SortedFunc(maps.Keys(n.queries), PodQuery.compare) }

// egressIPs adds the pods of the EgressIPs that have some of the given pods: the acknowledgement of a
// node covers all pods of an EgressIP.
func (n *needs) egressIPs(pods []*corev1.Pod) {
	if !n.s.Settings.EgressIP {
		return
	}
	selection, byName := egressip.NewSelection(), map[string]int{}
	for i, e := range n.s.EgressIPs {
		selection.Set(e)
		byName[e.Name] = i
	}
	asked := map[string]bool{}
	for _, p := range pods {
		ns := n.namespaces[p.Namespace]
		if ns == nil {
			continue
		}
		keys := selection.Matching(ns.Labels, p.Labels)
		if len(keys) == 0 || asked[keys[0]] {
			continue
		}
		asked[keys[0]] = true
		spec := n.s.EgressIPs[byName[keys[0]]].Spec
		n.selected(spec.NamespaceSelector, spec.PodSelector)
	}
}

// egressServices adds the pods of the namespaces with EgressServices, if one of
// these has some of the given pods: the possible hosts of an EgressService depend on the hosts of the
// others, and these on their pods.
func (n *needs) egressServices(pods []*corev1.Pod) {
	if !n.s.Settings.EgressService || len(n.s.EgressServices) == 0 {
		return
	}
	served := map[string]bool{}
	for _, eg := range n.s.EgressServices {
		served[eg.Namespace+"/"+eg.Name] = true
	}
	addrs := map[netip.Addr]bool{}
	for _, p := range pods {
		for _, a := range podAddrs(p) {
			addrs[a] = true
		}
	}
	if !n.selects(pods, served) && !n.lists(addrs, served) {
		return
	}
	for _, eg := range n.s.EgressServices {
		n.queries[PodQuery{Namespace: eg.Namespace}] = true
	}
}

// selects reports whether a Service with an EgressService selects one of the pods.
func (n *needs) selects(pods []*corev1.Pod, served map[string]bool) bool {
	for _, svc := range n.s.Services {
		if !served[svc.Namespace+"/"+svc.Name] || len(svc.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromValidatedSet(svc.Spec.Selector)
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			return p.Namespace == svc.Namespace && selector.Matches(labels.Set(p.Labels))
		}) {
			return true
		}
	}
	return false
}

// lists reports whether a Service with an EgressService has an endpoint with one of the addresses.
func (n *needs) lists(addrs map[netip.Addr]bool, served map[string]bool) bool {
	for _, slice := range n.s.EndpointSlices {
		if !served[kube.SliceService(slice)] {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && addrs[a.Unmap()] {
					return true
				}
			}
		}
	}
	return false
}

// gateways adds the gateway pods of all policies, since one policy decides about the BFD
// sessions of others, and returns the namespaces of the pods.
func (n *needs) gateways(pods []*corev1.Pod) []string {
	if !n.s.Settings.ExternalGateways {
		return nil
	}
	for _, policy := range n.s.Routes {
		for _, d := range policy.Spec.NextHops.Dynamic {
			n.selected(d.NamespaceSelector, d.PodSelector)
		}
	}
	routed := map[string]bool{}
	for _, p := range pods {
		routed[p.Namespace] = true
	}
	return slices.Sorted(maps.Keys(routed))
}

// selected adds the pods that two selectors select. If they match most namespaces,
// one request for all namespaces is cheaper than one for each.
func (n *needs) selected(namespaces, pods metav1.LabelSelector) {
	inNamespaces, err := metav1.LabelSelectorAsSelector(&namespaces)
	if err != nil {
		return // it selects nothing
	}
	selector, err := metav1.LabelSelectorAsSelector(&pods)
	if err != nil {
		return
	}
	var names []string
	for name, ns := range n.namespaces {
		if inNamespaces.Matches(labels.Set(ns.Labels)) {
			names = append(names, name)
		}
	}
	if len(names) > 1 && len(names) > len(n.namespaces)/2 {
		names = []string{metav1.NamespaceAll}
	}
	for _, name := range names {
		n.queries[PodQuery{name, selector.String()}] = true
	}
}
