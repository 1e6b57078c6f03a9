package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// Change is a hypothetical change of a cluster. It is applied in the order of the
// fields.
type Change struct {
	// Objects are created, or replace existing objects of the same name: labels and annotations are
	// added to the existing ones, the spec is replaced, and the status is kept unless the new object
	// has one. Their kinds are those of a Snapshot.
	Objects []runtime.Object
	// Delete are objects to delete: "KIND/NAME" or "KIND/NAMESPACE/NAME", with the kinds
	// that kubectl accepts. Objects that belong to them are deleted, too.
	Delete []string
	// Labels are label changes of nodes.
	Labels []NodeLabel
	// Drain are nodes that are cordoned and hand over their egress addresses. Their pods
	// stay.
	Drain []string
	// Lose are nodes that become unreachable.
	Lose []string
}

// NodeLabel is a label of a node.
type NodeLabel struct {
	Node, Key, Value string
	// Remove says that the label is removed.
	Remove bool
}

// Empty reports whether nothing is changed.
func (c Change) Empty() bool {
	return len(c.Objects)+len(c.Delete)+len(c.Labels)+len(c.Drain)+len(c.Lose) == 0
}

// Words describes each part of the change in a line.
func (c Change) Words() []string {
	var all []string
	for _, o := range c.Objects {
		all = append(all, "apply "+objectName(o))
	}
	for _, d := range c.Delete {
		all = append(all, "delete "+d)
	}
	for _, l := range c.Labels {
		if l.Remove {
			all = append(all, fmt.Sprintf("label node %s %s-", l.Node, l.Key))
		} else {
			all = append(all, fmt.Sprintf("label node %s %s=%s", l.Node, l.Key, l.Value))
		}
	}
	for _, n := range c.Drain {
		all = append(all, "drain node "+n)
	}
	for _, n := range c.Lose {
		all = append(all, "lose node "+n)
	}
	return all
}

// Apply returns the changed snapshot. If the change names an object that does not exist, the error wraps
// ErrNotFound.
func (c Change) Apply(s Snapshot) (Snapshot, error) {
	for _, o := range c.Objects {
		if err := s.put(o); err != nil {
			return s, err
		}
	}
	for _, text := range c.Delete {
		if err := s.remove(text); err != nil {
			return s, err
		}
	}
	for _, l := range c.Labels {
		if err := s.changeNode(l.Node, func(n *corev1.Node) {
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			if n.Labels[l.Key] = l.Value; l.Remove {
				delete(n.Labels, l.Key)
			}
		}); err != nil {
			return s, err
		}
	}
	for _, name := range c.Drain {
		if err := s.changeNode(name, func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: kube.TaintEgress, Value: kube.TaintEgressDrain, Effect: corev1.TaintEffectNoSchedule})
		}); err != nil {
			return s, err
		}
	}
	for _, name := range c.Lose {
		if err := s.changeNode(name, func(*corev1.Node) {}); err != nil {
			return s, err
		}
	}
	s.Lost = append(slices.Clone(s.Lost), c.Lose...)
	return s, nil
}

// changeNode changes a node.
func (s *Snapshot) changeNode(name string, change func(*corev1.Node)) error {
	i := slices.IndexFunc(s.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return fmt.Errorf("node %s: %w", name, ErrNotFound)
	}
	s.Nodes = slices.Clone(s.Nodes)
	s.Nodes[i] = s.Nodes[i].DeepCopy()
	change(s.Nodes[i])
	return nil
}

// put creates or replaces an object.
func (s *Snapshot) put(o runtime.Object) error {
	switch o := o.DeepCopyObject().(type) {
	case *corev1.Node:
		s.Nodes = put(s, s.Nodes, o, func(old, o *corev1.Node) { keep(&o.Spec, old.Spec); keep(&o.Status, old.Status) })
	case *corev1.Namespace:
		s.Namespaces = put(s, s.Namespaces, o, func(old, o *corev1.Namespace) { keep(&o.Spec, old.Spec); keep(&o.Status, old.Status) })
	case *corev1.Pod:
		s.Pods = put(s, s.Pods, o, func(old, o *corev1.Pod) { keep(&o.Spec, old.Spec); keep(&o.Status, old.Status) })
	case *corev1.Service:
		s.Services = put(s, s.Services, o, func(old, o *corev1.Service) {
			keep(&o.Spec.ClusterIP, old.Spec.ClusterIP)
			keep(&o.Spec.ClusterIPs, old.Spec.ClusterIPs)
			keep(&o.Status, old.Status)
		})
	case *discoveryv1.EndpointSlice:
		s.EndpointSlices = put(s, s.EndpointSlices, o, func(_, _ *discoveryv1.EndpointSlice) {})
	case *egressipv1.EgressIP:
		s.EgressIPs = put(s, s.EgressIPs, o, func(old, o *egressipv1.EgressIP) { o.Status = *old.Status.DeepCopy() })
	case *egressservicev1.EgressService:
		s.EgressServices = put(s, s.EgressServices, o, func(old, o *egressservicev1.EgressService) { o.Status = *old.Status.DeepCopy() })
	case *routev1.AdminPolicyBasedExternalRoute:
		s.Routes = put(s, s.Routes, o, func(old, o *routev1.AdminPolicyBasedExternalRoute) { o.Status = *old.Status.DeepCopy() })
	default:
		return fmt.Errorf("%s: no egress feature depends on objects of this kind", objectName(o))
	}
	return nil
}

// object is an API object.
type object interface {
	runtime.Object
	metav1.Object
}

// put replaces the object of the same name, where keep copies the parts that the new
// one does not set, or adds the object as the youngest.
func put[T object](s *Snapshot, all []T, o T, keep func(old, o T)) []T {
	same := func(old T) bool { return old.GetName() == o.GetName() && old.GetNamespace() == o.GetNamespace() }
	all = slices.Clone(all)
	i := slices.IndexFunc(all, same)
	if i < 0 {
		o.SetCreationTimestamp(metav1.NewTime(s.Taken))
		o.SetGeneration(1)
		return append(all, o)
	}
	old := all[i]
	o.SetUID(old.GetUID())
	o.SetResourceVersion(old.GetResourceVersion())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGeneration(old.GetGeneration() + 1)
	o.SetLabels(merged(old.GetLabels(), o.GetLabels()))
	o.SetAnnotations(merged(old.GetAnnotations(), o.GetAnnotations()))
	keep(old, o)
	all[i] = o
	return all
}

func merged(old, more map[string]string) map[string]string {
	all := maps.Clone(old)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, more)
	return all
}

// keep sets an empty field to its old value.
func keep[T any](field *T, old T) {
	if equality.Semantic.DeepEqual(*field, *new(T)) {
		*field = old
	}
}

// kinds are the kinds that can be deleted, by the names that kubectl accepts.
var kinds = map[string]string{
	"node": "Node", "nodes": "Node", "no": "Node", "namespace": "Namespace", "namespaces": "Namespace", "ns": "Namespace",
	"pod": "Pod", "pods": "Pod", "po": "Pod", "service": "Service", "services": "Service", "svc": "Service",
	"egressip": kindEgressIP, "egressips": kindEgressIP, "eip": kindEgressIP,
	"egressservice": kindEgressService, "egressservices": kindEgressService,
	"adminpolicybasedexternalroute": kindRoute, "adminpolicybasedexternalroutes": kindRoute, "apbexternalroute": kindRoute,
}

// remove deletes an object and everything that belongs to it.
func (s *Snapshot) remove(text string) error {
	word, rest, _ := strings.Cut(text, "/")
	kind, ok := kinds[strings.ToLower(word)]
	if !ok {
		return fmt.Errorf("%q: unknown kind; allowed: %s", text, strings.Join(slices.Compact(slices.Sorted(maps.Values(kinds))), ", "))
	}
	namespace, name, namespaced := strings.Cut(rest, "/")
	if !namespaced {
		namespace, name = "", rest
	}
	if wants := kind == "Pod" || kind == "Service" || kind == kindEgressService; name == "" || strings.Contains(name, "/") || wants != namespaced {
		form, article := "KIND/NAME", "a"
		if wants {
			form = "KIND/NAMESPACE/NAME"
		}
		if strings.ContainsAny(kind[:1], "AE") {
			article = "an"
		}
		return fmt.Errorf("%q: does not name %s %s; allowed: %s", text, article, kind, form)
	}
	before := s.count()
	is := func(o metav1.Object) bool { return o.GetNamespace() == namespace && o.GetName() == name }
	switch kind {
	case "Node":
		s.Nodes = without(s.Nodes, is)
		s.removePods(func(p *corev1.Pod) bool { return p.Spec.NodeName == name })
	case "Namespace":
		s.Namespaces = without(s.Namespaces, is)
		if s.count() < before {
			in := func(o metav1.Object) bool { return o.GetNamespace() == name }
			s.Services, s.EndpointSlices, s.EgressServices = without(s.Services, in), without(s.EndpointSlices, in), without(s.EgressServices, in)
			s.removePods(func(p *corev1.Pod) bool { return in(p) })
		}
	case "Pod":
		s.removePods(func(p *corev1.Pod) bool { return is(p) })
	case "Service":
		s.Services = without(s.Services, is)
		s.EndpointSlices = slices.DeleteFunc(slices.Clone(s.EndpointSlices), func(sl *discoveryv1.EndpointSlice) bool { return kube.SliceService(sl) == rest })
	case kindEgressIP:
		s.EgressIPs = without(s.EgressIPs, is)
	case kindEgressService:
		s.EgressServices = without(s.EgressServices, is)
	case kindRoute:
		s.Routes = without(s.Routes, is)
	}
	if s.count() == before {
		return fmt.Errorf("%s %s: %w", kind, rest, ErrNotFound)
	}
	return nil
}

// count returns the number of objects that can be deleted by name.
func (s *Snapshot) count() int {
	return len(s.Nodes) + len(s.Namespaces) + len(s.Pods) + len(s.Services) + len(s.EgressIPs) + len(s.EgressServices) + len(s.Routes)
}

// removePods removes pods and their entries in EndpointSlices.
func (s *Snapshot) removePods(gone func(*corev1.Pod) bool) {
	addrs := map[string]bool{} // with the namespace, as reported by the kubelet
	s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p *corev1.Pod) bool {
		if !gone(p) {
			return false
		}
		if !p.Spec.HostNetwork {
			for _, ip := range p.Status.PodIPs {
				addrs[p.Namespace+"/"+ip.IP] = true
			}
		}
		return true
	})
	listed := func(sl *discoveryv1.EndpointSlice, e discoveryv1.Endpoint) bool {
		return slices.ContainsFunc(e.Addresses, func(a string) bool { return addrs[sl.Namespace+"/"+a] })
	}
	s.EndpointSlices = slices.Clone(s.EndpointSlices)
	for i, sl := range s.EndpointSlices {
		if slices.ContainsFunc(sl.Endpoints, func(e discoveryv1.Endpoint) bool { return listed(sl, e) }) {
			sl = sl.DeepCopy()
			sl.Endpoints = slices.DeleteFunc(sl.Endpoints, func(e discoveryv1.Endpoint) bool { return listed(sl, e) })
			s.EndpointSlices[i] = sl
		}
	}
}

// without returns the objects for which is returns false.
func without[T metav1.Object](all []T, is func(metav1.Object) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(o T) bool { return is(o) })
}

// objectName names an object as "kind/namespace/name".
func objectName(o runtime.Object) string {
	kind := cmp.Or(o.GetObjectKind().GroupVersionKind().Kind, fmt.Sprintf("%T", o))
	m, ok := o.(metav1.Object)
	switch {
	case !ok:
		return kind
	case m.GetNamespace() != "":
		return kind + "/" + m.GetNamespace() + "/" + m.GetName()
	}
	return kind + "/" + m.GetName()
}
