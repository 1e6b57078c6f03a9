package master

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// all is the only key of the placement queue.
const all = "all"

func (c *Controller) watchPlacement() error {
	c.placement.Seed(func() []string { return []string{all} })
	c.deps.Health.Subscribe(func(string) { c.placement.Enqueue(all) })
	err := c.placement.Watch(c.deps.EgressIPs.Informer(), func(old, new any) []string {
		o, _ := old.(*v1.EgressIP)
		n, _ := new.(*v1.EgressIP)
		c.decisions.observe(o, n)
		c.updateSelection(nameOf(o, n))
		if c.observeStatuses(o, n) {
			return []string{all}
		}
		if o != nil && n != nil && o.UID == n.UID && equality.Semantic.DeepEqual(o.Spec, n.Spec) {
			// Completed handovers make room for further ones.
			if !c.draining.Load() || equality.Semantic.DeepEqual(o.Status.Programmed, n.Status.Programmed) {
				return nil
			}
		}
		return []string{all}
	})
	if err != nil {
		return err
	}
	err = c.placement.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
		o, _ := old.(*corev1.Node)
		n, _ := new.(*corev1.Node)
		if o != nil && n != nil && c.sameCandidate(o, n) {
			return nil
		}
		return []string{all}
	})
	if err != nil {
		return err
	}
	if c.deps.Addresses != nil {
		if err := c.deps.Addresses.WatchHosts(c.placement, func() []string { return []string{all} }); err != nil {
			return err
		}
	}
	// The first placement needs the pods, too.
	nothing := func(_, _ any) []string { return nil }
	if err := c.placement.Watch(c.deps.Pods.Informer(), nothing); err != nil {
		return err
	}
	return c.placement.Watch(c.deps.Namespaces.Informer(), nothing)
}

// apiServers returns the known addresses of the API servers.
func (c *Controller) apiServers() []netip.Addr {
	if c.deps.Addresses == nil {
		return nil
	}
	return c.deps.Addresses.APIServers()
}

// sameCandidate reports whether a node is unchanged as far as placement is concerned.
func (c *Controller) sameCandidate(old, new *corev1.Node) bool {
	o, n := c.candidate(old), c.candidate(new)
	o.Labels, n.Labels = nil, nil
	return reflect.DeepEqual(o, n)
}

// candidate decodes a node, as far as its annotations can be read.
func (c *Controller) candidate(n *corev1.Node) topology.Node {
	node, err := c.nodes.Node(n)
	if err != nil {
		klog.V(2).InfoS("Ignoring invalid annotations of a node", "node", n.Name, "err", err)
	}
	return node
}

// place decides again for all EgressIPs and enqueues those whose decision changed,
// together with their pods.
func (c *Controller) place(context.Context, string) error {
	if !c.seeded {
		if err := c.seedMembers(); err != nil {
			return err
		}
		c.seeded = true
	}
	list, err := c.deps.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	nodes, draining, reachable := make([]place.Node, 0, len(list)), false, map[string]bool{}
	for _, n := range list {
		ackPause, stuckPause := c.ackTimeouts.Pause(n.Name), c.stuckChassis.Pause(n.Name)
		for _, pause := range []time.Duration{ackPause, stuckPause} {
			if pause > 0 { // further timeouts may prolong the pause
				c.placement.EnqueueAfter(pause, all)
			}
		}
		node := place.Node{Node: c.candidate(n), Reach: c.deps.Health.Reach(n.Name), NotAcknowledging: ackPause > 0, Stuck: stuckPause > 0}
		nodes, draining = append(nodes, node), draining || node.Draining
		reachable[n.Name] = !c.dead(n.Name)
	}
	if !c.deps.AssumeReachable {
		var rest time.Duration
		if nodes, rest = c.readiness.Ready(time.Now(), nodes); rest > 0 {
			c.placement.EnqueueAfter(rest, all)
		}
	}
	c.draining.Store(draining)
	objs, err := c.deps.EgressIPs.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list EgressIPs: %w", err)
	}
	decoded := make([]egressip.EgressIP, 0, len(objs))
	var withDeadNodes []string // EgressIPs with status entries of dead nodes
	met := c.decisions.met()
	objs = slices.DeleteFunc(slices.Clone(objs), func(obj *v1.EgressIP) bool { return met[obj.Name] != obj.UID }) // their events are still to come
	for _, obj := range objs {
		if slices.ContainsFunc(obj.Status.Programmed, func(w v1.ProgrammedStatus) bool { return !reachable[w.Node] }) {
			withDeadNodes = append(withDeadNodes, obj.Name)
		}
		e := c.decode(obj)
		// The status may not show the latest decision yet.
		if d, ok := c.decisions.about(obj); ok {
			e.Items = d.Nodes()
		}
		decoded = append(decoded, e)
	}
	network := c.deps.Network
	if network.Services, err = c.serviceAddrs(); err != nil {
		return err
	}
	network.Hosts = Hosts(list, c.candidate, c.apiServers())
	changed := c.decisions.replace(egressip.Decide(nodes, decoded, network), met, reachable, c.note)
	c.statuses.Enqueue(changed...)
	var pods []string
	for _, key := range changed {
		pods = append(pods, c.members.Selected(key)...)
	}
	c.pods.Enqueue(pods...) // in one call, so that they are written together
	// After the decision, so that status entries and items change together.
	c.statuses.Enqueue(withDeadNodes...)
	return nil
}

// note records a decision that differs from the previous one.
func (c *Controller) note(key string, before, now egressip.Decision) {
	c.deps.Metrics.Decided(conditions.EgressIP, key, now.Abandoned(before.Nodes())...)
	c.podStates.resetProgress(key, c.members.Selected(key))
}

// seedMembers reads which EgressIPs have which pods, so that the first statuses are correct.
func (c *Controller) seedMembers() error {
	pods, err := c.deps.Pods.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods {
		if !kube.NeedsNetwork(p) {
			continue
		}
		if keys := c.choose(p); len(keys) > 0 {
			key := kube.PodKey(p)
			if addrs := c.deps.Given(key, kube.PodUID(p)); len(addrs) > 0 {
				c.members.Set(key, keys, addrs)
			}
		}
	}
	return nil
}
