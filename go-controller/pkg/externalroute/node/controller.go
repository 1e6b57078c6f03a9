package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// all is the only key.
const all = "all"

// settleTime is the delay after a change before connections are checked once more, even if the chassis
// reports nothing: it may have applied the change only after the first check, and stored
// the removed gateway for a connection again in between.
const settleTime = 3 * time.Second

// reportPace is the delay after the first report of the chassis, so that a burst of them causes a single check. The later
// reports come, the longer it is, by up to latePace: few chassis take long.
const (
	reportPace = time.Second
	latePace   = 30 * time.Second
)

// Connections lists and deletes connections whose replies are steered to a neighbour.
type Connections interface {
	List(ctx context.Context) ([]host.Steered, error)
	Flush(ctx context.Context, connections []host.Steered) error
}

// Deps are the dependencies of the controller. The caller starts the informers
// after New.
type Deps struct {
	Namespaces coreinformers.NamespaceInformer
	Pods       coreinformers.PodInformer // of this node
	// OnApplied registers a function that is called whenever the master's changes to the
	// northbound database have taken effect on this node.
	OnApplied func(func())
	// Settle waits until no packet uses flows of Open vSwitch that were replaced before the call.
	Settle func(ctx context.Context) error
	// Connections accesses the connections of the datapath.
	Connections Connections
	// Resolve returns the MAC addresses of the neighbours that answer.
	Resolve func(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]string, error)
	// Own returns the addresses of the node itself.
	Own func() (map[netip.Addr]bool, error)
}

// Controller forgets connections of removed gateways.
type Controller struct {
	deps       Deps
	namespaces corelisters.NamespaceLister
	pods       corelisters.PodLister
	queue      *queue.Controller
	// unconfirmed are changes that the chassis may not have applied yet.
	unconfirmed queue.Unconfirmed
	// before is only accessed by the single key.
	before map[netip.Addr]string
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	c := &Controller{
		deps:       deps,
		namespaces: deps.Namespaces.Lister(),
		pods:       deps.Pods.Lister(),
		before:     map[netip.Addr]string{},
	}
	c.queue = queue.New("externalroute-node", c.reconcile)
	c.queue.Seed(func() []string { return []string{all} })
	c.unconfirmed.Changed() // the chassis may be behind at the start
	deps.OnApplied(func() {
		if late, matters := c.unconfirmed.Reported(); matters {
			c.queue.EnqueueAfter(reportPace+min(late, latePace), all) // each check reads all connections of the node
		}
	})
	none := func(any, any) []string { return nil } // pods are only read
	return c, errors.Join(
		c.queue.Watch(deps.Pods.Informer(), none),
		c.queue.Watch(deps.Namespaces.Informer(), c.namespaceKeys),
	)
}

// namespaceKeys triggers a check, another one later, and one at each of the next reports of the chassis, if the gateways in
// use changed. If something else changed, the gateways may have changed as well, and back,
// while the watch was lost: this triggers one check later, for all such namespaces together. If the node has no pods in a
// namespace, it has none whose connections could be stale.
func (c *Controller) namespaceKeys(old, new any) []string {
	in := func(obj any) (string, string) {
		if ns, ok := obj.(*corev1.Namespace); ok && ns != nil {
			return ns.Annotations[kube.AnnotationGatewaysInUse], ns.ResourceVersion
		}
		return "", ""
	}
	before, was := in(old)
	after, is := in(new)
	if before == after && (was == is || was == "" || is == "" || !c.hasPods(new)) {
		return nil
	}
	c.queue.EnqueueAfter(settleTime, all)
	if before == after {
		return nil
	}
	c.unconfirmed.Changed()
	return []string{all}
}

// hasPods reports whether the node has pods in a namespace.
func (c *Controller) hasPods(namespace any) bool {
	ns, ok := namespace.(*corev1.Namespace)
	if !ok {
		return false
	}
	pods, err := c.pods.Pods(ns.Name).List(labels.Everything())
	return err != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return len(kube.PodAddresses(p)) > 0 })
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx, 1) }

func (c *Controller) reconcile(ctx context.Context, _ string) error {
	used, _, err := c.inUse()
	if err != nil {
		return err
	}
	// Resolved even if there are no connections: a gateway may
	// not answer any more after its removal.
	now, err := c.deps.Resolve(ctx, used)
	if err != nil {
		klog.InfoS("Could not resolve the MAC address of every gateway", "err", err)
	}
	neighbors := externalroute.Neighbors{Now: now, Before: c.before}
	if err := c.deps.Settle(ctx); err != nil { // an earlier packet would store a removed gateway again
		return err
	}
	connections, err := c.deps.Connections.List(ctx)
	if err != nil {
		return err
	}
	// Some of them may be of a gateway that was added meanwhile. It has not been resolved, so its MAC address is unknown.
	_, byPod, err := c.inUse()
	if err != nil {
		return err
	}
	stale := slices.DeleteFunc(slices.Clone(connections), func(s host.Steered) bool {
		gateways, ours := byPod[s.Dst]
		return !ours || !externalroute.Stale(s.Dst, gateways, neighbors)(s.Neighbor)
	})
	maps.Copy(c.before, now)
	if len(stale) == 0 {
		klog.V(4).InfoS("No connection of a gateway that left", "steered", len(connections))
		return nil
	}
	if err := c.deps.Connections.Flush(ctx, stale); err != nil {
		return fmt.Errorf("forget connections of gateways that left: %w", err)
	}
	for _, s := range stale {
		klog.V(5).InfoS("Forgot connection", "pod", s.Dst, "neighbor", s.Neighbor)
	}
	klog.V(2).InfoS("Forgot connections of gateways that left", "connections", len(stale))
	return nil
}

// inUse returns all gateways used by pods of this node, and those of each pod
// address. Pods of a node do not use the node itself, and it would never answer.
func (c *Controller) inUse() ([]netip.Addr, map[netip.Addr][]netip.Addr, error) {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	own, err := c.deps.Own()
	if err != nil {
		return nil, nil, err
	}
	byNamespace := map[string][]netip.Addr{}
	namespaces, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list namespaces: %w", err)
	}
	for _, ns := range namespaces {
		gateways, _ := kube.ParseAddrs(ns.Annotations[kube.AnnotationGatewaysInUse])
		byNamespace[ns.Name] = slices.DeleteFunc(gateways, func(a netip.Addr) bool { return own[a] })
	}
	var used []netip.Addr
	byPod := map[netip.Addr][]netip.Addr{}
	for _, p := range pods {
		// As reported by the kubelet: the annotation could contain anything.
		addrs := kube.PodAddresses(p)
		if len(addrs) == 0 {
			continue
		}
		for _, a := range addrs {
			byPod[a] = byNamespace[p.Namespace]
		}
		used = append(used, byNamespace[p.Namespace]...)
	}
	slices.SortFunc(used, netip.Addr.Compare)
	return slices.Compact(used), byPod, nil
}
