package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/scale/load"
)

// Numbers of flows that the agent has for an address. For an address of another node, they keep the
// gateway router from answering and drop packets that would leave with it; for one of its own, they
// send packets to the gateway router.
const (
	flowsElsewhere = 1
	flowsHere      = 1
)

// events measures all of them.
func (a *agentBench) events(ctx context.Context) error {
	for i := range a.repeat {
		events := slices.Concat(a.addressEvents(i), a.localEvents(i), a.clusterEvents(i), a.serviceEvents(i))
		for _, e := range events {
			if err := a.measureEvent(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// spareAddress is an address that no EgressIP of the cluster has.
func (a *agentBench) spareAddress(n int) string {
	e := a.size.EgressIP("", a.size.EgressIPs+n)
	return string(e.Spec.EgressIPs[0])
}

// give returns a function that assigns an address to a node in the status of an EgressIP, and
// acknowledges it, unless the agent itself is to do that.
func (a *agentBench) give(name, addr, node string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		status := egressipv1.EgressIPStatus{Items: []egressipv1.EgressIPStatusItem{{Node: node, EgressIP: addr}}}
		if node != load.NodeName(agentNode) {
			status.Programmed = []egressipv1.ProgrammedStatus{{Node: node, EgressIPs: []string{addr}}}
		}
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return err
		}
		_, err = a.clients.IPs.EgressIPV1().EgressIPs().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
}

func (a *agentBench) makeEgressIP(name, addr string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		e := a.size.EgressIP(load.SpareIP, 0)
		e.Name, e.Spec.EgressIPs = name, []egressipv1.Address{egressipv1.Address(addr)}
		_, err := a.clients.IPs.EgressIPV1().EgressIPs().Create(ctx, e, metav1.CreateOptions{})
		return err
	}
}

func (a *agentBench) deleteEgressIP(name string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return a.clients.IPs.EgressIPV1().EgressIPs().Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// addressEvents are events of an EgressIP on other nodes.
func (a *agentBench) addressEvents(round int) []agentEvent {
	name, first, second := fmt.Sprintf("spare-%d", round), a.spareAddress(3*round), a.spareAddress(3*round+1)
	one, other := load.NodeName(agentNode+1), load.NodeName(agentNode+2)
	return []agentEvent{
		{phase: "remote EgressIP created", cause: a.makeEgressIP(name, first)},
		{phase: "remote EgressIP assigned", cause: a.give(name, first, one), flows: flowsElsewhere},
		{phase: "remote EgressIP moved", cause: a.give(name, first, other)},
		// The flows for the previous address are removed after a while.
		{phase: "remote EgressIP's address changed", cause: a.give(name, second, other), flows: 2 * flowsElsewhere},
		{phase: "remote EgressIP deleted", cause: a.deleteEgressIP(name), flows: flowsElsewhere},
	}
}

// localEvents are events of an EgressIP on this node.
func (a *agentBench) localEvents(round int) []agentEvent {
	name, addr := fmt.Sprintf("local-%d", round), a.spareAddress(3*round+2)
	return []agentEvent{
		{phase: "local EgressIP assigned", prepare: a.makeEgressIP(name, addr), cause: a.give(name, addr, load.NodeName(agentNode)), flows: flowsHere, done: func(ctx context.Context) error {
			e, err := a.clients.IPs.EgressIPV1().EgressIPs().Get(ctx, name, metav1.GetOptions{})
			if err == nil && len(e.Status.Programmed) == 0 {
				err = errors.New("the agent does not say that it has the address")
			}
			return err
		}},
		{phase: "local EgressIP deleted", cause: a.deleteEgressIP(name), flows: flowsHere + 2*flowsElsewhere},
	}
}

// clusterEvents are events of other nodes and their pods.
func (a *agentBench) clusterEvents(round int) []agentEvent {
	pods, nodes := a.clients.Kube.CoreV1().Pods(load.Plain), a.clients.Kube.CoreV1().Nodes()
	pod := load.Pod(load.Plain, 90000+round, agentNode+1)
	added := a.size.Nodes + round
	return []agentEvent{
		{phase: "remote pod started", cause: func(ctx context.Context) error {
			p, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.131.250.1", PodIPs: []corev1.PodIP{{IP: "10.131.250.1"}}}
			_, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}},
		{phase: "remote pod deleted", cause: func(ctx context.Context) error {
			at := int64(0)
			return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &at})
		}},
		{phase: "status of another node written", cause: func(ctx context.Context) error {
			patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"MemoryPressure","status":"False","reason":"Round%d"}]}}`, round)
			_, err := nodes.Patch(ctx, load.NodeName(agentNode+1), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		}},
		{phase: "node added", cause: func(ctx context.Context) error { return a.clients.MakeNode(ctx, a.size, added) }},
		{phase: "node deleted", cause: func(ctx context.Context) error {
			return nodes.Delete(ctx, load.NodeName(added), metav1.DeleteOptions{})
		}},
	}
}

// serviceEvents are events of Services and EgressServices.
func (a *agentBench) serviceEvents(round int) []agentEvent {
	services, slices := a.clients.Kube.CoreV1().Services(load.SpareService), a.clients.Kube.DiscoveryV1().EndpointSlices(load.SpareService)
	egress := a.clients.Services.EgressServiceV1().EgressServices(load.SpareService)
	var pods []*corev1.Pod
	create := func(name string, kind corev1.ServiceType) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			return a.clients.MakeService(ctx, load.SpareService, name, kind, 0, pods)
		}
	}
	remove := func(name string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			return errors.Join(services.Delete(ctx, name, metav1.DeleteOptions{}), slices.Delete(ctx, name, metav1.DeleteOptions{}))
		}
	}
	status := func(node string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			patch, err := json.Marshal(map[string]any{"status": egressservicev1.EgressServiceStatus{Host: node}})
			if err == nil {
				_, err = egress.Patch(ctx, load.SpareService, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			}
			return err
		}
	}
	list := func(ctx context.Context) error {
		all, err := a.clients.Kube.CoreV1().Pods(load.SpareService).List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range all.Items {
				pods = append(pods, &all.Items[i])
			}
		}
		return err
	}
	cluster, port := fmt.Sprintf("cluster-%d", round), fmt.Sprintf("port-%d", round)
	return []agentEvent{
		{phase: "Service created", prepare: list, cause: create(cluster, corev1.ServiceTypeClusterIP)},
		{phase: "Service deleted", cause: remove(cluster)},
		{phase: "Service with a node port created", cause: create(port, corev1.ServiceTypeNodePort), rules: 1},
		{phase: "Service with a node port deleted", cause: remove(port), rules: 1},
		{phase: "remote EgressService created", cause: func(ctx context.Context) error {
			_, err := egress.Create(ctx, load.EgressService(load.SpareService), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return status(load.NodeName(a.size.Nodes - 1))(ctx)
		}},
		{phase: "local EgressService assigned", cause: status(load.NodeName(agentNode)), done: func(ctx context.Context) error {
			eg, err := egress.Get(ctx, load.SpareService, metav1.GetOptions{})
			if err == nil && eg.Status.Programmed == nil {
				err = errors.New("the agent does not say that it serves it")
			}
			return err
		}},
		{phase: "local EgressService deleted", cause: func(ctx context.Context) error {
			return egress.Delete(ctx, load.SpareService, metav1.DeleteOptions{})
		}},
	}
}
