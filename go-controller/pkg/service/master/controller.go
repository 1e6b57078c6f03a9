package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// batch is how many Services are planned and passed to the writer together, and workers how
// many batches are processed concurrently: some are planned while others are written.
const (
	batch   = 128
	workers = 4
)

// Deps are the dependencies of the controller. The caller starts the informers after New.
type Deps struct {
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	Nodes          coreinformers.NodeInformer
	Pods           coreinformers.PodInformer
	// Namespaces provide the external gateways that pods are routed to; nil: none.
	Namespaces coreinformers.NamespaceInformer
	// Addresses provides the addresses of the cluster itself; nil: those from Nodes and
	// EndpointSlices.
	Addresses *reservedsnapshot.Addresses
	Writer    nb.Database
	// Recorder writes Events about Services.
	Recorder record.EventRecorder
	// Egress are the sets of pods that the egress features reroute.
	Egress []*noreroute.PodSet
	Config service.Config
}

// Controller serves all Services of the cluster.
type Controller struct {
	deps     Deps
	reader   *snapshot.Reader
	services cache.Indexer
	slices   cache.Indexer
	pods     cache.Indexer
	nodes    corelisters.NodeLister

	serviceQueue, nodeQueue *queue.Controller

	mu       sync.Mutex
	known    service.Nodes     // immutable, replaced as a whole: planners read it
	perNode  map[string]bool   // Services whose rows depend on nodes
	waiting  bool              // for the egress features to report all their pods
	reported map[string]report // what the last Events reported, by Service
	limits   map[string]limit  // the same for affinity
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	indexed := errors.Join(kube.IndexSliceAddresses(deps.EndpointSlices.Informer()), kube.IndexPods(deps.Pods.Informer()))
	if indexed != nil {
		return nil, indexed
	}
	reader, err := snapshot.NewReader(snapshot.Informers{
		Services: deps.Services, EndpointSlices: deps.EndpointSlices, Nodes: deps.Nodes, Namespaces: deps.Namespaces, Addresses: deps.Addresses,
	}, deps.Config)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		deps:     deps,
		reader:   reader,
		services: deps.Services.Informer().GetIndexer(),
		slices:   deps.EndpointSlices.Informer().GetIndexer(),
		pods:     deps.Pods.Informer().GetIndexer(),
		nodes:    deps.Nodes.Lister(),
		known:    service.Nodes{},
		perNode:  map[string]bool{},
		waiting:  true,
		reported: map[string]report{},
		limits:   map[string]limit{},
	}
	c.serviceQueue = queue.NewBatch(service.Feature, batch, c.reconcile)
	c.nodeQueue = queue.New(service.FeatureNodes, c.reconcileNode)
	c.serviceQueue.Seed(reader.Keys)
	nb.Bind(c.serviceQueue, deps.Writer, service.Feature)
	c.nodeQueue.Seed(c.updateNodes)
	c.nodeQueue.Seed(func() []string { return append(deps.Nodes.Informer().GetIndexer().ListKeys(), clusterKey) })
	nb.Bind(c.nodeQueue, deps.Writer, service.FeatureNodes)
	for _, pods := range deps.Egress {
		pods.Subscribe(c.setApplied)
		pods.SubscribeAddrs(c.rerouted)
	}
	if err := reader.Watch(c.serviceQueue); err != nil {
		return nil, err
	}
	if err := c.serviceQueue.Watch(deps.Pods.Informer(), c.podKeys); err != nil {
		return nil, err
	}
	return c, c.nodeQueue.Watch(deps.Nodes.Informer(), nodeKeys)
}

// podKeys returns the keys of the Services that list the added or removed addresses of a
// pod.
func (c *Controller) podKeys(old, new any) []string {
	before, _ := old.(*corev1.Pod)
	after, _ := new.(*corev1.Pod)
	var had, has []netip.Addr
	var namespace string
	if before != nil {
		had, namespace = kube.PodAddresses(before), before.Namespace
	}
	if after != nil {
		has, namespace = kube.PodAddresses(after), after.Namespace
	}
	if slices.Equal(had, has) {
		return nil
	}
	var keys []string
	for _, a := range slices.Concat(had, has) {
		for _, key := range kube.ServicesAt(c.slices, namespace, a) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// complete reports whether the egress features have reported all their pods.
func (c *Controller) complete() bool {
	return !slices.ContainsFunc(c.deps.Egress, func(pods *noreroute.PodSet) bool { return !pods.Complete() })
}

// setApplied enqueues the Services whose policies had to wait for the egress features.
func (c *Controller) setApplied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting && c.complete() {
		c.waiting = false
		c.serviceQueue.Enqueue(slices.Collect(maps.Keys(c.perNode))...)
	}
}

// rerouted enqueues the Services that list any of the given addresses, which an egress feature
// has started or ceased to reroute.
func (c *Controller) rerouted(addrs []netip.Addr) {
	for _, a := range addrs {
		c.serviceQueue.Enqueue(kube.ServicesAt(c.slices, "", a)...)
	}
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.nodeQueue.Run(ctx, 1) })
	group.Go(func() error {
		// The rows that load balancers of a node refer to should exist first.
		if !waits.Until(ctx, c.nodeQueue.Attempted(), waits.Wait{Part: service.Feature, For: "every node to be tried once"}) {
			return nil
		}
		return c.serviceQueue.Run(ctx, workers)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run Services: %w", err)
	}
	return nil
}

// Attempted is closed when every Service that existed at startup, and every deleted one
// that still has rows, has been attempted once.
func (c *Controller) Attempted() <-chan struct{} { return c.serviceQueue.Attempted() }

// reconcile writes the load balancers of Services.
func (c *Controller) reconcile(ctx context.Context, keys []string) map[string]error {
	want, errs := make(map[nb.Owner][]nb.Row, len(keys)), map[string]error{}
	for _, key := range keys {
		s, svc, ok, err := c.reader.Decode(key, c.pod)
		if err != nil {
			errs[key] = err
			continue
		}
		var rows []nb.Row
		if nodes := c.note(key, ok && s.PerNode()); ok {
			rows = service.MasterRows(s, c.deps.Config, nodes)
		}
		if ok && s.ExternalLocal && !c.complete() {
			// An address that is absent from the sets means nothing yet: keep existing
			// policies.
			rows = service.WithPolicies(rows, c.deps.Writer.Rows(service.Owner(key)))
		}
		want[service.Owner(key)] = rows
		c.reportRefused(key, svc, s.Refused)
		c.reportAffinity(key, svc, s)
	}
	stats, failed := c.deps.Writer.ApplyAll(ctx, want)
	for o, err := range failed {
		errs[o.Object] = fmt.Errorf("write load balancers of Service %s: %w", o.Object, err)
	}
	if stats.Zero() {
		klog.V(4).InfoS("Load balancers are up to date", "services", keys)
	} else {
		klog.V(2).InfoS("Wrote load balancers", "services", len(keys),
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	return errs
}

// pod reports whether a pod of a namespace has an address, and whether an egress feature
// reroutes it.
func (c *Controller) pod(namespace string, a netip.Addr) (own, rerouted bool) {
	own = kube.PodAt(c.pods, namespace, a) != nil
	return own, own && slices.ContainsFunc(c.deps.Egress, func(pods *noreroute.PodSet) bool { return pods.Has(a) })
}

// report is what Events have reported about a Service. Events belong to the object with this UID, not to
// one that is created later with the same name.
type report struct {
	uid     types.UID
	refused []service.Refusal
}

// reportRefused writes an Event about each refused value of a Service, once until that changes.
func (c *Controller) reportRefused(key string, svc *corev1.Service, refused []service.Refusal) {
	c.mu.Lock()
	last := c.reported[key]
	if len(refused) == 0 {
		delete(c.reported, key)
	} else {
		c.reported[key] = report{svc.UID, refused}
	}
	c.mu.Unlock()
	for _, r := range refused {
		if last.uid == svc.UID && slices.Contains(last.refused, r) {
			continue
		}
		klog.V(2).InfoS("Part of a Service is not served", "service", key, "field", r.Field, "reason", r.Reason, "message", r.Message)
		c.deps.Recorder.Eventf(svc, corev1.EventTypeWarning, string(r.Reason), "%s: %s", r.Field, r.Message)
	}
}

// note records whether a Service depends on nodes and returns the nodes to plan it with.
// Later changes of nodes enqueue it.
func (c *Controller) note(key string, perNode bool) service.Nodes {
	c.mu.Lock()
	defer c.mu.Unlock()
	if perNode {
		c.perNode[key] = true
	} else {
		delete(c.perNode, key)
	}
	return c.known
}

// updateNode replaces the facts of a node, nil if it is gone, and enqueues the Services
// whose rows may depend on it.
func (c *Controller) updateNode(name string, facts *service.NodeFacts) {
	all, changed := c.replace(name, facts)
	if all {
		changed = c.services.ListKeys()
	}
	c.serviceQueue.Enqueue(changed...)
}

// replace replaces the facts of a node and reports whether that affects all Services, or
// else which ones.
func (c *Controller) replace(name string, facts *service.NodeFacts) (all bool, keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, changed := c.known.With(name, facts)
	all = next.Shared() != c.known.Shared()
	c.known = next
	if changed {
		keys = slices.Collect(maps.Keys(c.perNode))
	}
	return all, keys
}
