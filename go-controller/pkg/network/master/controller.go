package master

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// clusterKey is the key of the rows that exist once.
const clusterKey = ""

// needed are the annotations that a node sets and without which it has no network, see
// network.Missing. If others are refused, that is no reason to keep pods off the node.
var needed = []string{kube.AnnotationChassisID, kube.AnnotationManagementMAC, kube.AnnotationL3Gateway}

// workers is the number of keys reconciled concurrently.
const workers = 4

// Deps are the dependencies of the controller. All fields except the functions are
// required.
type Deps struct {
	Client kubernetes.Interface
	// Nodes have the accepted annotations, Written those in the API.
	Nodes, Written coreinformers.NodeInformer
	// Decide is called with the new annotations of a node before they are written.
	Decide   func(node types.UID, annotations map[string]*string)
	Writer   nb.Database
	Recorder record.EventRecorder
	Config   network.Config
	// SetGlobal sets the name and options of NB_Global, those of defaults only if they are absent.
	SetGlobal func(ctx context.Context, name string, options, defaults map[string]string) error
	// DeleteChassis deletes the chassis for which gone returns true from the southbound
	// database.
	DeleteChassis func(ctx context.Context, gone func(name, hostname string) bool) error
	// Refusal returns why one of the given annotations of a node is refused, or nil if all
	// are accepted.
	Refusal func(node string, annotations ...string) error
}

// Controller runs the base network of the cluster.
type Controller struct {
	Deps
	queue          *queue.Controller
	nodes, written corelisters.NodeLister
	decoded        kube.Nodes

	// assumed holds assignments that the lister does not show yet, by node. Only the
	// cluster key uses it.
	assumed map[string]assumption
	// reported is what was reported about nodes that lack something; the lister may not
	// show it yet. Only the cluster key uses it.
	reported map[types.UID][3]string
	// unseen are the nodes whose annotations were written.
	unseen kube.Unseen
	// patched are the last annotations written, by node.
	patched map[types.UID]patched

	mu       sync.Mutex
	assigned map[string]network.Assignment // the latest; nil before the first
	// conditions are the last conditions set, by node.
	conditions map[string]setCondition
}

// setCondition is a condition that was set, and the state of the node that it was based on.
type setCondition struct {
	node      types.UID
	version   string
	condition corev1.NodeCondition
}

// assumption is an assignment being written to the annotations of a node.
type assumption struct {
	uid           types.UID
	subnets, join []netip.Prefix
}

// patched are annotations that were written to a node, and the state of the node that they were based on.
type patched struct {
	on          *corev1.Node
	annotations map[string]*string
}

// New returns the controller. The caller starts the informers.
func New(d Deps) (*Controller, error) {
	if d.Refusal == nil {
		d.Refusal = func(string, ...string) error { return nil }
	}
	decoded, err := kube.NewNodes(d.Nodes.Informer())
	if err != nil {
		return nil, err
	}
	c := &Controller{Deps: d, nodes: d.Nodes.Lister(), decoded: decoded, written: d.Written.Lister(), assumed: map[string]assumption{}, reported: map[types.UID][3]string{},
		patched: map[types.UID]patched{}, conditions: map[string]setCondition{}}
	c.queue = queue.New("network", c.reconcile)
	if err := c.queue.Watch(d.Nodes.Informer(), nodeKeys); err != nil {
		return nil, err
	}
	if err := c.queue.Watch(d.Written.Informer(), c.writtenKeys); err != nil {
		return nil, err
	}
	nb.EnqueueDrift(c.queue, d.Writer, network.Feature)
	c.queue.Seed(c.seeds)
	return c, nil
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx, workers) }

// Look enqueues a node whose Refusal may have changed.
func (c *Controller) Look(node string) { c.queue.Enqueue(node) }

// Attempted is closed when everything found at startup has been reconciled once.
func (c *Controller) Attempted() <-chan struct{} { return c.queue.Attempted() }

// seeds returns the keys of the cluster, of all nodes, and of all owners of rows.
func (c *Controller) seeds() []string {
	keys := []string{clusterKey}
	nodes, _ := c.nodes.List(labels.Everything()) // reads memory and does not fail
	for _, n := range nodes {
		keys = append(keys, n.Name)
	}
	return append(keys, nb.Objects(c.Writer, network.Feature)...)
}

// nodeKeys returns the keys that an event of a node affects.
func nodeKeys(old, new any) []string {
	before, after := asNode(old), asNode(new)
	switch {
	case before == nil:
		return []string{clusterKey, after.Name}
	case after == nil:
		return []string{clusterKey, before.Name}
	case before.UID != after.UID || differs(before, after, kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr),
		unavailable(before) != unavailable(after):
		return []string{clusterKey, after.Name}
	case differs(before, after, kube.AnnotationChassisID, kube.AnnotationL3Gateway,
		kube.AnnotationManagementMAC, kube.AnnotationPrimaryIfAddr, kube.AnnotationGatewayMTU, kube.AnnotationNetworkFailure):
		return []string{after.Name}
	}
	return nil
}

// writtenKeys returns the cluster key if an annotation is no longer what was written.
func (c *Controller) writtenKeys(old, new any) []string {
	before, after := asNode(old), asNode(new)
	if c.unseen.Follows(old, new) {
		return []string{clusterKey}
	}
	if before != nil && after != nil && differs(before, after, kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr) {
		return []string{clusterKey}
	}
	return nil
}

func asNode(obj any) *corev1.Node {
	n, _ := obj.(*corev1.Node)
	return n
}

// differs reports whether any of these annotations differs.
func differs(a, b *corev1.Node, annotations ...string) bool {
	return slices.ContainsFunc(annotations, func(k string) bool {
		va, oka := a.Annotations[k]
		vb, okb := b.Annotations[k]
		return va != vb || oka != okb
	})
}

func (c *Controller) reconcile(ctx context.Context, key string) error {
	if key == clusterKey {
		return c.reconcileCluster(ctx)
	}
	return c.reconcileNode(ctx, key)
}

// remove deletes the chassis and rows of a node that is gone. The rows are deleted last: as
// long as they exist, a restart knows of the node, and its subnets are given to no other one. If the node is there again by then,
// they stay: rows of other features are attached to them.
func (c *Controller) remove(ctx context.Context, name string) error {
	if c.DeleteChassis != nil {
		if err := c.DeleteChassis(ctx, c.chassisOf(name)); err != nil {
			return err
		}
		if _, err := c.nodes.Get(name); !apierrors.IsNotFound(err) {
			return err // its event has enqueued the key again
		}
	}
	if err := c.apply(ctx, name, nil); err != nil {
		return err
	}
	c.queue.Enqueue(clusterKey) // what the node had is free now
	return nil
}

// chassisOf matches the chassis of a node that is gone: the one named in its rows, or one
// whose hostname is the node's name, unless another node has that chassis. The hostname
// alone is not enough: it may be longer than the node's name, or different.
func (c *Controller) chassisOf(name string) func(chassis, hostname string) bool {
	own := network.Recall(name, c.Writer.Rows(network.Owner(name))).Chassis
	others := map[string]bool{}
	nodes, _ := c.nodes.List(labels.Everything()) // reads memory and does not fail
	for _, n := range nodes {
		node, _ := c.decoded.Node(n) // invalid annotations are ignored
		others[node.Chassis] = true
	}
	return func(chassis, hostname string) bool {
		return (chassis == own || hostname == name) && !others[chassis]
	}
}

// reconcileNode applies the rows of one node and sets its condition when its network is
// complete.
func (c *Controller) reconcileNode(ctx context.Context, name string) error {
	n, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		c.mu.Lock()
		delete(c.conditions, name)
		c.mu.Unlock()
		return c.remove(ctx, name)
	}
	if err != nil {
		return err
	}
	node, _ := c.decoded.Node(n) // invalid annotations are ignored
	if !c.settled(node) {
		klog.V(4).InfoS("Node waits for its assignment", "node", name)
		return nil
	}
	if err := c.apply(ctx, name, network.NodeRows(c.Config, node)); err != nil {
		return err
	}
	if c.lacking(name) {
		return nil
	}
	err = c.reportNetwork(ctx, n, network.Missing(node), c.Refusal(name, needed...))
	if apierrors.IsNotFound(err) {
		return nil // its deletion event is about to arrive
	}
	return err
}

// reportNetwork writes the condition of a node after its rows: whether its network is
// complete, which annotation was refused, or what the node fails to do.
func (c *Controller) reportNetwork(ctx context.Context, n *corev1.Node, missing string, refused error) error {
	condition := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable}
	failure := kube.NetworkFailure(n)
	switch {
	case refused != nil:
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, network.ReasonRefused, refused.Error()
	case failure != "":
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, network.ReasonFailing, failure
	case missing != "":
		klog.V(4).InfoS("Network of node is incomplete", "node", n.Name, "missing", missing)
		return kube.RemoveNodeCondition(ctx, c.Client, n, condition.Type, network.ReasonRefused, network.ReasonFailing)
	default:
		condition.Status, condition.Reason = corev1.ConditionFalse, network.ReasonReady
		condition.Message = "logical switch and gateway router are in the northbound database"
	}
	return c.setCondition(ctx, n, condition)
}

// setCondition sets a condition of a node once for each state of the node: a node is often enqueued again before its
// informer shows the condition.
func (c *Controller) setCondition(ctx context.Context, n *corev1.Node, condition corev1.NodeCondition) error {
	set := setCondition{n.UID, n.ResourceVersion, condition}
	c.mu.Lock()
	done := c.conditions[n.Name] == set
	c.mu.Unlock()
	if done {
		return nil
	}
	if err := kube.SetNodeCondition(ctx, c.Client, n, condition); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conditions[n.Name] = set
	return nil
}

// settled reports whether the annotations of a node show what it is assigned. Rows planned
// from anything else could use addresses that belong to another node; the change of the
// annotations enqueues the key again.
func (c *Controller) settled(n topology.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.assigned[n.Name]
	return ok && slices.Equal(a.Subnets, n.Subnets) && slices.Equal(a.Join, n.Join)
}

// lacking reports whether something could not be assigned to the node.
func (c *Controller) lacking(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assigned[node].Reason != ""
}

// setAssigned stores the assignments and returns the nodes whose assignment changed.
func (c *Controller) setAssigned(assigned map[string]network.Assignment) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []string
	for name, a := range assigned {
		before, ok := c.assigned[name]
		if !ok || !slices.Equal(a.Subnets, before.Subnets) || !slices.Equal(a.Join, before.Join) || a.Reason != before.Reason {
			changed = append(changed, name)
		}
	}
	c.assigned = maps.Clone(assigned)
	return changed
}

// apply writes the rows of a node or of the cluster.
func (c *Controller) apply(ctx context.Context, object string, rows []nb.Row) error {
	stats, err := c.Writer.Apply(ctx, network.Owner(object), rows)
	if err != nil {
		return err
	}
	if stats.Zero() {
		klog.V(4).InfoS("Network rows are up to date", "node", object)
		return nil
	}
	klog.V(2).InfoS("Wrote network rows", "node", object,
		"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	return nil
}
