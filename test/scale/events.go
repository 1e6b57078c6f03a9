package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/scale/agents"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
)

// event is a change whose effect is measured, and how its end is recognized: done is nil if
// only rows show it.
type event struct {
	phase string
	cause func(ctx context.Context) error
	done  func() bool
}

// measureEvent causes an event and waits until its effects are complete, that is,
// until nothing has happened for the duration wait.
func (b *bench) measureEvent(ctx context.Context, e event, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	m, err := b.mark()
	if err != nil {
		return err
	}
	if err := e.cause(ctx); err != nil {
		return fmt.Errorf("%s: %w", e.phase, err)
	}
	var at time.Time
	err = plane.Until(ctx, e.phase, func() error {
		if err := b.plane.Failed(); err != nil {
			return err
		}
		if first, _ := b.changes(m); first.IsZero() && e.done == nil {
			return errors.New("no row has changed")
		}
		if e.done != nil && !e.done() {
			return errors.New("it is not reported as done")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.done != nil {
		at = time.Now()
	}
	if err := b.settle(ctx, m, time.Now(), wait); err != nil {
		return err
	}
	return b.record(e.phase, m, at, nil)
}

// events measures all of them.
func (b *bench) events(ctx context.Context) error {
	for i := range b.repeat {
		for _, e := range b.objectEvents() {
			if err := b.measureEvent(ctx, e, quiet); err != nil {
				return err
			}
		}
		for _, e := range append(b.egressIPEvents(), b.nodeEvents(i)...) {
			if err := b.measureEvent(ctx, e, long); err != nil {
				return err
			}
		}
		if err := b.losses(ctx); err != nil {
			return err
		}
	}
	return nil
}

// objectEvents are creations, changes and deletions of objects other than EgressIPs.
func (b *bench) objectEvents() []event {
	return append(b.serviceEvents(), b.podEvents("pod", load.Plain)...)
}

// egressIPEvents are the creation of an EgressIP, events of its pods, and its deletion.
func (b *bench) egressIPEvents() []event {
	if b.size.EgressIPs == 0 {
		return nil
	}
	ips, ip := b.clients.IPs.EgressIPV1().EgressIPs(), b.size.EgressIP(load.SpareIP, b.size.EgressIPs)
	events := []event{{"EgressIP created",
		func(ctx context.Context) error {
			_, err := ips.Create(ctx, ip, metav1.CreateOptions{})
			return err
		},
		func() bool { return agents.ProgrammedIP(b.agents.IP(load.SpareIP)) }}}
	events = append(events, b.podEvents("pod of an EgressIP", load.SpareIP)...)
	return append(events, b.labelEvents()...)
}

// labelEvents are changes of what the spare EgressIP selects, and its deletion.
func (b *bench) labelEvents() []event {
	label := func(value string) func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, load.LabelGroup, value)
		return func(ctx context.Context) error {
			_, err := b.clients.Kube.CoreV1().Namespaces().Patch(ctx, load.SpareIP, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
	}
	return []event{
		{"namespace not chosen any more", label("other"), nil},
		{"namespace chosen", label(load.SpareIP), nil},
		{"EgressIP deleted", func(ctx context.Context) error {
			return b.clients.IPs.EgressIPV1().EgressIPs().Delete(ctx, load.SpareIP, metav1.DeleteOptions{})
		}, nil},
	}
}

// podEvents are the start and the deletion of a pod in a namespace.
func (b *bench) podEvents(what, namespace string) []event {
	const number = 90000
	pod := load.Pod(namespace, number, 0)
	pods := b.clients.Kube.CoreV1().Pods(namespace)
	return []event{
		{what + " started",
			func(ctx context.Context) error {
				_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
				return err
			},
			func() bool {
				p := b.agents.Pod(namespace, pod.Name)
				return p != nil && agents.Started(p)
			}},
		{what + " deleted",
			func(ctx context.Context) error {
				at := int64(0)
				return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &at})
			}, nil},
	}
}

// measuredService is the name of the Service that events create.
const measuredService = "measured"

// serviceEvents are events of Services, EgressServices and policies.
func (b *bench) serviceEvents() []event {
	services, slices := b.clients.Kube.CoreV1().Services(load.SpareService), b.clients.Kube.DiscoveryV1().EndpointSlices(load.SpareService)
	deleteService := func(ctx context.Context) error {
		return errors.Join(services.Delete(ctx, measuredService, metav1.DeleteOptions{}), slices.Delete(ctx, measuredService, metav1.DeleteOptions{}))
	}
	events := []event{
		{"Service created", func(ctx context.Context) error {
			return b.clients.MakeService(ctx, load.SpareService, measuredService, corev1.ServiceTypeClusterIP, 0, b.agents.PodsOf(load.SpareService))
		}, nil},
		{"Service deleted", deleteService, nil},
	}
	if b.size.Policies > 0 {
		routes, route := b.clients.Routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes(), b.size.Policy(load.SparePolicy, 0)
		events = append(events,
			event{"policy created",
				func(ctx context.Context) error {
					_, err := routes.Create(ctx, route, metav1.CreateOptions{})
					return err
				},
				func() bool { _, ready := b.agents.Route(load.SparePolicy); return ready }},
			event{"policy deleted", func(ctx context.Context) error { return routes.Delete(ctx, load.SparePolicy, metav1.DeleteOptions{}) }, nil})
	}
	if b.size.EgressServices == 0 {
		return events
	}
	egress, key := b.clients.Services.EgressServiceV1().EgressServices(load.SpareService), load.SpareService+"/"+load.SpareService
	programmed := func() bool { return agents.Programmed(b.agents.Service(key)) }
	endpoints := func(without int) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			slice, err := slices.Get(ctx, load.SpareService, metav1.GetOptions{})
			if err != nil {
				return err
			}
			pods := b.agents.PodsOf(load.SpareService)
			slice.Endpoints = load.Slice(load.Service(load.SpareService, load.SpareService, corev1.ServiceTypeLoadBalancer), pods[without:]).Endpoints
			_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
			return err
		}
	}
	return append(events,
		event{"EgressService created", func(ctx context.Context) error {
			_, err := egress.Create(ctx, load.EgressService(load.SpareService), metav1.CreateOptions{})
			return err
		}, programmed},
		event{"endpoint gone", endpoints(1), nil},
		event{"endpoint added", endpoints(0), nil},
		event{"EgressService deleted", func(ctx context.Context) error {
			return egress.Delete(ctx, load.SpareService, metav1.DeleteOptions{})
		}, nil})
}

// nodeEvents are events of working nodes.
func (b *bench) nodeEvents(round int) []event {
	nodes := b.clients.Kube.CoreV1().Nodes()
	added := b.size.Nodes + round
	name := load.NodeName(added)
	events := []event{
		{"node added",
			func(ctx context.Context) error {
				return errors.Join(b.agents.AddChassis(ctx, added), b.clients.MakeNode(ctx, b.size, added))
			},
			func() bool {
				n := b.agents.Node(name)
				return n != nil && n.Annotations[kube.AnnotationGatewayLRPIfAddr] != ""
			}},
		{"node deleted", func(ctx context.Context) error { return nodes.Delete(ctx, name, metav1.DeleteOptions{}) }, nil},
	}
	if holder := b.holder(); holder != "" {
		label := func(value string) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, kube.LabelEgressAssignable, value)
				_, err := nodes.Patch(ctx, holder, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			}
		}
		events = append(events,
			event{"node may hold no addresses", label("null"), func() bool { return b.heldBy(holder) == 0 && b.allHeld() }},
			event{"node may hold addresses", label(`""`), func() bool {
				n := b.agents.Node(holder)
				_, may := n.Labels[kube.LabelEgressAssignable]
				return may && b.allHeld()
			}})
	}
	return events
}

// holder returns the node with the most egress addresses, or "" if there is none.
func (b *bench) holder() (node string) {
	most := 0
	for i := range b.size.Nodes {
		if n := b.heldBy(load.NodeName(i)); n > most {
			node, most = load.NodeName(i), n
		}
	}
	return node
}

// heldBy returns how many addresses of EgressIPs a node has.
func (b *bench) heldBy(node string) (n int) {
	for _, e := range b.agents.IPs() {
		for _, item := range e.Status.Items {
			if item.Node == node {
				n++
			}
		}
	}
	return n
}

// allHeld reports whether all EgressIPs are served, with all of their addresses.
func (b *bench) allHeld() bool {
	for _, e := range b.agents.IPs() {
		if !complete(e) {
			return false
		}
	}
	return true
}

func complete(e *egressipv1.EgressIP) bool {
	return agents.ProgrammedIP(e) && len(e.Status.Items) == len(e.Spec.EgressIPs)
}
