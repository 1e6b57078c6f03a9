package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// maxRounds limits how often statuses are written until nothing changes any more. A few
// rounds suffice; they are needed since decisions depend on previous decisions.
const maxRounds = 10

// settled returns the cluster after master and nodes have carried out and acknowledged
// the decisions about a snapshot. before are the previous rows of pods, nil for none;
// pods that use one of several addresses keep it.
func settled(snap Snapshot, before map[string]egressip.State) (*Cluster, error) {
	for range maxRounds {
		c, err := New(snap)
		if err != nil {
			return nil, err
		}
		next := c.acknowledged()
		if snap.sameStatuses(next) {
			c.states = c.podStates(before)
			return c, nil
		}
		snap = next
	}
	return nil, fmt.Errorf("decisions do not converge within %d rounds", maxRounds)
}

// sameStatuses reports whether two snapshots of one cluster have the same statuses.
func (s Snapshot) sameStatuses(o Snapshot) bool {
	same := func(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
	return slices.EqualFunc(s.Nodes, o.Nodes, func(a, b *corev1.Node) bool { return maps.Equal(a.Labels, b.Labels) }) &&
		slices.EqualFunc(s.EgressIPs, o.EgressIPs, func(a, b *egressipv1.EgressIP) bool { return same(a.Status, b.Status) }) &&
		slices.EqualFunc(s.EgressServices, o.EgressServices, func(a, b *egressservicev1.EgressService) bool { return same(a.Status, b.Status) }) &&
		slices.EqualFunc(s.Routes, o.Routes, func(a, b *routev1.AdminPolicyBasedExternalRoute) bool { return same(a.Status, b.Status) }) &&
		slices.EqualFunc(s.Namespaces, o.Namespaces, func(a, b *corev1.Namespace) bool { return same(a.Annotations, b.Annotations) })
}

// acknowledged returns the snapshot with the statuses that master and nodes write after
// carrying out the decisions.
func (c *Cluster) acknowledged() Snapshot {
	s := c.snap
	s.Nodes = c.acknowledgeLabels()
	s.EgressIPs = changed(s.EgressIPs, (*egressipv1.EgressIP).DeepCopy, c.acknowledgeEgressIP)
	s.EgressServices = changed(s.EgressServices, (*egressservicev1.EgressService).DeepCopy, c.acknowledgeEgressService)
	s.Routes = changed(s.Routes, (*routev1.AdminPolicyBasedExternalRoute).DeepCopy, func(r *routev1.AdminPolicyBasedExternalRoute) {
		before := r.Status.Conditions
		r.Status = externalroute.Status(c.routes.Policies[r.Name], externalroute.Served{}, r.Status)
		r.Status.Conditions = c.dated(before, r.Status.Conditions, r.Generation)
	})
	s.Namespaces = changed(s.Namespaces, (*corev1.Namespace).DeepCopy, c.acknowledgeGateways)
	return s
}

// changed returns changed copies of objects.
func changed[T any](all []T, copyOf func(T) T, change func(T)) []T {
	out := make([]T, 0, len(all))
	for _, o := range all {
		o = copyOf(o)
		change(o)
		out = append(out, o)
	}
	return out
}

func (c *Cluster) acknowledgeEgressIP(e *egressipv1.EgressIP) {
	d := c.placed[e.Name]
	before := e.Status.Conditions
	e.Status = egressipv1.EgressIPStatus{Items: d.Items()}
	given, held := map[string][]netip.Addr{}, map[string][]string{}
	for _, p := range d.Placements {
		if p.Node == "" {
			continue
		}
		held[p.Node] = append(held[p.Node], p.Addr.String())
		if !p.Primary {
			given[p.Node] = append(given[p.Node], p.Addr)
		}
	}
	for _, n := range c.candidates() {
		if len(held[n.Name]) > 0 {
			e.Status.Programmed = append(e.Status.Programmed, egressipv1.ProgrammedStatus{Node: n.Name, EgressIPs: held[n.Name],
				Digest: c.members.Digest(e.Name, given[n.Name])})
		}
	}
	report := egressip.Report{Conflicts: c.members.Conflicts(e.Name)}
	e.Status.Conditions = c.dated(before, egressip.Conditions(d, e.Status, report), e.Generation)
}

func (c *Cluster) acknowledgeEgressService(eg *egressservicev1.EgressService) {
	key := eg.Namespace + "/" + eg.Name
	s, d := c.services[key], c.hosted[key]
	eg.Status.Host = egressservice.Status(s, d)
	s.Ack = egressservice.Acknowledgement(s, eg.Status.Host)
	eg.Status.Programmed = &s.Ack
	eg.Status.Conditions = c.dated(eg.Status.Conditions, egressservice.Conditions(s, d), eg.Generation)
}

func (c *Cluster) acknowledgeGateways(ns *corev1.Namespace) {
	var addrs []netip.Addr
	for _, h := range c.routes.Hops[ns.Name] {
		addrs = append(addrs, h.Addr)
	}
	switch {
	case !c.snap.Settings.ExternalGateways:
	case len(addrs) == 0:
		delete(ns.Annotations, kube.AnnotationGatewaysInUse)
	default:
		if ns.Annotations == nil {
			ns.Annotations = map[string]string{}
		}
		ns.Annotations[kube.AnnotationGatewaysInUse] = kube.FormatAddrs(addrs)
	}
}

// dated sets the transition times of conditions from the previous conditions.
func (c *Cluster) dated(before, all []metav1.Condition, generation int64) []metav1.Condition {
	for i := range all {
		all[i].LastTransitionTime, all[i].ObservedGeneration = metav1.NewTime(c.snap.Taken), generation
		for _, b := range before {
			if b.Type == all[i].Type && b.Status == all[i].Status {
				all[i].LastTransitionTime = b.LastTransitionTime
			}
		}
	}
	return all
}
