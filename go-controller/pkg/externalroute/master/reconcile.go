package master

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// reconcileAll decides which namespaces use which gateways and enqueues the affected keys.
func (c *Controller) reconcileAll(context.Context, string) error {
	snap, err := c.snapshot()
	if err != nil {
		return err
	}
	plan := externalroute.Decide(c.deps.Config, snap)
	selecting := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(plan.Policies)) {
		for _, ns := range plan.Policies[name].Namespaces {
			selecting[ns] = append(selecting[ns], name)
		}
	}
	c.mu.Lock()
	before := c.plan
	c.mu.Unlock()
	namespaces := changed(before.Hops, plan.Hops, slices.Equal[[]externalroute.Hop])
	policies := changed(before.Policies, plan.Policies, func(a, b externalroute.Policy) bool { return reflect.DeepEqual(a, b) })
	c.mu.Lock()
	c.plan, c.byNamespace = plan, selecting
	// Nothing is reported before the nodes are known whose rows come first.
	c.deciding = true
	for _, p := range policies {
		c.reportPolicies[p] = true
	}
	for _, ns := range namespaces {
		c.reportNamespaces[ns] = true
	}
	c.mu.Unlock()

	// Pods that appear from now on use the new plan, and earlier ones are in
	// the index. Pods deleted just now are not in the index, but their events use the new plan
	// as well: their nodes are known from the rows that were planned for them.
	nodes := append(c.nodesOf(namespaces), c.nodesPlannedWith(namespaces)...)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(namespaces) > 0 {
		klog.V(2).InfoS("External gateways changed", "namespaces", namespaces, "nodes", nodes)
	}
	c.mu.Lock()
	c.deciding = false
	for _, n := range nodes {
		c.turn++
		c.dirty[n] = c.turn
	}
	c.mu.Unlock()
	c.nodes.Enqueue(c.pend(nodes...)...)
	c.report()
	c.emitRefused(before.Refused, plan.Refused)
	return nil
}

// changed returns the keys whose values differ, sorted.
func changed[V any](before, after map[string]V, equal func(a, b V) bool) []string {
	var keys []string
	for k, v := range after {
		if old, ok := before[k]; !ok || !equal(old, v) {
			keys = append(keys, k)
		}
	}
	for k := range before {
		if _, ok := after[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// report enqueues the pending reports if all nodes are written.
func (c *Controller) report() {
	c.mu.Lock()
	var policies, namespaces []string
	if len(c.dirty) == 0 && !c.deciding {
		policies, namespaces = slices.Collect(maps.Keys(c.reportPolicies)), slices.Collect(maps.Keys(c.reportNamespaces))
		clear(c.reportPolicies)
		clear(c.reportNamespaces)
	}
	c.mu.Unlock()
	c.statuses.Enqueue(policies...)
	c.annotations.Enqueue(namespaces...)
}

// snapshot reads everything that names gateways.
func (c *Controller) snapshot() (externalroute.Snapshot, error) {
	policies, err := c.policies.List(labels.Everything())
	if err != nil {
		return externalroute.Snapshot{}, fmt.Errorf("list AdminPolicyBasedExternalRoutes: %w", err)
	}
	namespaces, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return externalroute.Snapshot{}, fmt.Errorf("list namespaces: %w", err)
	}
	nodes, err := c.nodeLister.List(labels.Everything())
	if err != nil {
		return externalroute.Snapshot{}, fmt.Errorf("list nodes: %w", err)
	}
	decoded := make([]topology.Node, 0, len(nodes))
	for _, n := range nodes {
		node, _ := c.decoded.Node(n) // the network controller reports parse errors
		decoded = append(decoded, node)
	}
	return Read(policies, namespaces, decoded, kube.PodsIndexed(c.pods, announced, all), c.podsIn, c.readyNodes(decoded)), nil
}

// readyNodes returns a function that reports which nodes count as ready; gateways are kept if Kubernetes
// loses contact with many nodes at once.
func (c *Controller) readyNodes(list []topology.Node) func(node string) bool {
	nodes := make([]place.Node, 0, len(list))
	for _, n := range list {
		node := place.Node{Node: n}
		if c.deps.Health != nil {
			node.Reach = c.deps.Health.Reach(n.Name)
		}
		nodes = append(nodes, node)
	}
	nodes, rest := c.unheard.Ready(time.Now(), nodes)
	if rest > 0 {
		c.decide.EnqueueAfter(rest, all)
	}
	return ReadyNodes(nodes)
}

// ReadyNodes returns a function that reports which of the nodes are ready and not unreachable.
func ReadyNodes(nodes []place.Node) func(node string) bool {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Name] = n.Ready && n.Reach != place.Dead
	}
	return func(node string) bool { return ready[node] }
}

// Read decodes everything that names gateways: announced are the pods that may claim by
// annotation to be gateways, pods returns the pods of a namespace, and nodeReady reports
// which nodes count as ready.
func Read(policies []*v1.AdminPolicyBasedExternalRoute, namespaces []*corev1.Namespace, nodes []topology.Node,
	announced []*corev1.Pod, pods func(namespace string) []*corev1.Pod, nodeReady func(node string) bool,
) externalroute.Snapshot {
	snap := externalroute.Snapshot{
		Policies:  policies,
		Announced: gatewayPods(announced, nodeReady),
		Pods:      func(ns string) []externalroute.GatewayPod { return gatewayPods(pods(ns), nodeReady) },
		NodeAddrs: make(map[string][]netip.Addr, len(nodes)),
	}
	for _, ns := range namespaces {
		static, bad := kube.ParseAddrs(ns.Annotations[kube.AnnotationRoutingExternalGWs])
		snap.Namespaces = append(snap.Namespaces, externalroute.Namespace{
			Name: ns.Name, Labels: ns.Labels, Static: static, Bad: bad, BFD: kube.BFDEnabled(ns.Annotations),
		})
	}
	for _, n := range nodes {
		snap.NodeAddrs[n.Name] = externalroute.NodeAddrs(n)
		for _, p := range externalroute.Networks(n) {
			if p = p.Masked(); !slices.Contains(snap.Networks, p) {
				snap.Networks = append(snap.Networks, p)
			}
		}
	}
	return snap
}

// gatewayPods decodes pods as gateways, without those that
// cannot be gateways now.
func gatewayPods(pods []*corev1.Pod, nodeReady func(node string) bool) []externalroute.GatewayPod {
	out := make([]externalroute.GatewayPod, 0, len(pods))
	for _, p := range pods {
		if !kube.ReadyNow(p, nodeReady) {
			continue
		}
		g := externalroute.GatewayPod{
			Key: kube.PodKey(p), Labels: p.Labels, Ready: true, HostNetwork: p.Spec.HostNetwork,
			Routing: kube.RoutingNamespaces(p), RoutingNetwork: p.Annotations[kube.AnnotationRoutingNetwork],
			BFD: kube.BFDEnabled(p.Annotations),
		}
		if g.HostNetwork {
			g.HostAddrs = kube.HostAddrs(p)
		}
		var err error
		if g.Networks, err = kube.NetworkStatus(p); err != nil {
			g.NetworksErr = err.Error()
		}
		out = append(out, g)
	}
	return out
}

// pend records nodes as pending, and returns them for enqueueing.
func (c *Controller) pend(nodes ...string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		c.pending[n] = true
	}
	return nodes
}

// reconcileNodes writes the rows of a node together with those of all other pending
// nodes, so that a change affecting many nodes is one transaction. The others' keys
// find nothing left to do, or try again if this failed.
func (c *Controller) reconcileNodes(ctx context.Context, name string) error {
	c.mu.Lock()
	plan, turns := c.plan, maps.Clone(c.dirty)
	nodes := c.pending
	c.pending = map[string]bool{}
	nodes[name] = true
	c.planning = maps.Clone(nodes)
	c.mu.Unlock()
	// Reports do not wait for failing nodes, which may fail for a long time.
	defer func() {
		c.mu.Lock()
		c.planning = nil
		for n := range nodes {
			if c.dirty[n] == turns[n] {
				delete(c.dirty, n)
			}
		}
		c.mu.Unlock()
		c.report()
	}()
	want := make(map[nb.Owner][]nb.Row, len(nodes))
	for n := range nodes {
		rows, err := c.nodeRows(n, plan)
		if err != nil {
			return err
		}
		want[externalroute.Owner(n)] = rows
	}
	stats, errs := c.deps.Writer.ApplyAll(ctx, want)
	for n := range nodes {
		if o := externalroute.Owner(n); errs[o] == nil {
			c.sessions.wrote(n, destinations(want[o]))
			c.deps.Routed.Set(n, externalroute.Routed(want[o]))
		}
		c.awaitEnd(ctx, n)
		c.restartDown(ctx, n)
	}
	c.noteFailures(nodes, errs)
	if stats.Zero() {
		klog.V(4).InfoS("External gateways are up to date", "nodes", len(nodes))
	} else {
		klog.V(2).InfoS("External gateways written", "node", name, "nodes", len(nodes),
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	if err := errs[externalroute.Owner(name)]; err != nil {
		return fmt.Errorf("write external gateways of node %s: %w", name, err)
	}
	return nil
}

// notePlanned records the namespaces with gateways whose pods were part of the plan of a node's rows.
func (c *Controller) notePlanned(node string, namespaces map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(namespaces) == 0 {
		delete(c.plannedWith, node)
		return
	}
	c.plannedWith[node] = namespaces
}

// nodesPlannedWith returns the nodes whose rows were planned with pods of the namespaces, or are
// being planned.
func (c *Controller) nodesPlannedWith(namespaces []string) []string {
	if len(namespaces) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := slices.Collect(maps.Keys(c.planning))
	for node, served := range c.plannedWith {
		if slices.ContainsFunc(namespaces, func(ns string) bool { return served[ns] }) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// noteFailures records the nodes whose rows could not be written, for the statuses of the
// policies.
func (c *Controller) noteFailures(nodes map[string]bool, errs map[nb.Owner]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for n := range nodes {
		failed := errs[externalroute.Owner(n)] != nil
		if failed == c.failed[n] {
			continue
		}
		changed = true
		if failed {
			c.failed[n] = true
		} else {
			delete(c.failed, n)
		}
	}
	if changed {
		for name := range c.plan.Policies {
			c.reportPolicies[name] = true
		}
	}
}

// nodeRows plans the rows of a node that is about to be written.
func (c *Controller) nodeRows(name string, plan externalroute.Plan) ([]nb.Row, error) {
	n, err := c.nodeLister.Get(name)
	if apierrors.IsNotFound(err) {
		c.sessions.begin(name, "", nil)
		c.steered.note(name, nil)
		c.notePlanned(name, nil)
		c.noteDown(name, "", nil)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	node, _ := c.decoded.Node(n) // the network controller reports parse errors
	rows := c.deps.Writer.Rows(externalroute.Owner(name))
	chassis, have := n.Annotations[kube.AnnotationChassisID], destinations(rows)
	c.noteDown(name, chassis, rows)
	snap := externalroute.NodeSnapshot{Node: node,
		Up: externalroute.Up(rows), Ending: c.sessions.begin(name, chassis, have)}
	for a := range externalroute.Moved(rows, node) {
		if snap.Ending == nil {
			snap.Ending = map[netip.Addr]bool{}
		}
		snap.Ending[a] = true // on its previous port or from its previous address
	}
	pods, served := c.podsWithRows(name, plan)
	c.notePlanned(name, served)
	held := map[netip.Addr]bool{}
	for _, a := range c.given(slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !served[p.Namespace] })...) {
		held[a] = true
	}
	// Once addresses are in the set, no other pod gets them. Before, their pods may have lost them.
	c.deps.Routed.Set(name, noreroute.Union(slices.SortedFunc(maps.Keys(held), netip.Addr.Compare), externalroute.Routed(rows)))
	var addrs []netip.Addr
	for _, p := range pods {
		given := c.given(p)
		if served[p.Namespace] { // those that it has got since then have the node planned again
			given = slices.DeleteFunc(given, func(a netip.Addr) bool { return !held[a] })
		}
		snap.Pods = append(snap.Pods, externalroute.Pod{Key: kube.PodKey(p), Namespace: p.Namespace, Addrs: given})
		addrs = append(addrs, given...)
	}
	snap.Rerouted = c.steered.of(name, addrs)
	rows = externalroute.NodeRows(c.deps.Config, plan, snap)
	c.sessions.write(name, chassis, have, destinations(rows))
	return rows, nil
}

// podsWithRows returns the pods on a node that may have rows, and which of their namespaces have gateways.
func (c *Controller) podsWithRows(node string, plan externalroute.Plan) (pods []*corev1.Pod, served map[string]bool) {
	served = map[string]bool{}
	for _, p := range kube.PodsOn(c.pods, node) {
		if len(plan.Hops[p.Namespace]) > 0 {
			served[p.Namespace] = true
		}
		if c.deps.Config.DisableSNATMultipleGWs || served[p.Namespace] {
			pods = append(pods, p)
		}
	}
	return pods, served
}

// given returns the addresses assigned to pods.
func (c *Controller) given(pods ...*corev1.Pod) []netip.Addr {
	var addrs []netip.Addr
	for _, p := range pods {
		addrs = append(addrs, c.deps.Given(kube.PodKey(p), kube.PodUID(p))...)
	}
	return addrs
}
