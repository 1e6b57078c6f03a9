package node

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nodeinfo"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// key is the only key.
const key = "marks"

// pause is how long the switch is left alone that could not be asked.
const pause = 500 * time.Millisecond

// Deps is what the controller works with.
type Deps struct {
	// Nodes makes the informers of all nodes, where they are needed.
	Nodes func() informers.SharedInformerFactory
	// Cluster is what annotations of nodes have to fit.
	Cluster nodeinfo.Cluster
	Chains  host.ChainWriter
	// MarksLost tells whether packets reach the kernel without the marks that OVN
	// gave them.
	MarksLost func(ctx context.Context) (bool, error)
	// NodeLocal are ranges that pods reach by their own node.
	NodeLocal []netip.Prefix
	Families  []topology.Family
}

// Controller owns the chain of package noreroute.
type Controller struct {
	deps              Deps
	nodes             corelisters.NodeLister
	attempted, synced chan struct{}
}

// New returns the controller.
func New(deps Deps) *Controller {
	return &Controller{deps: deps, attempted: make(chan struct{}), synced: make(chan struct{})}
}

// Attempted is closed when the rules were tried once, or none are needed.
func (c *Controller) Attempted() <-chan struct{} { return c.attempted }

// Synced is closed when the kernel has the rules, or needs none.
func (c *Controller) Synced() <-chan struct{} { return c.synced }

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	lost, known := c.marksLost(ctx)
	if !known {
		return nil
	}
	if !lost {
		close(c.attempted)
		close(c.synced)
		<-ctx.Done()
		return nil
	}
	factory := c.deps.Nodes()
	nodes, err := nodeinfo.New(nodeinfo.Deps{Nodes: factory.Core().V1().Nodes(), Cluster: c.deps.Cluster, Settle: nodeinfo.Settle})
	if err != nil {
		return err
	}
	c.nodes = nodes.Lister()
	q := queue.New("noreroute-node", c.reconcile)
	if err := q.Watch(nodes.Informer(), nodeKeys); err != nil {
		return err
	}
	q.Seed(func() []string { return []string{key} })
	q.OnAttempted(func(context.Context) error {
		close(c.attempted)
		return nil
	})
	go func() {
		if queue.Await(ctx, q.Synced()) {
			close(c.synced)
		}
	}()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return nodes.Run(running) })
	group.Go(func() error { return q.Run(running, 1) })
	return group.Wait()
}

// marksLost asks until there is an answer; known is false where ctx ends before.
func (c *Controller) marksLost(ctx context.Context) (lost, known bool) {
	for {
		lost, err := c.deps.MarksLost(ctx)
		if err == nil {
			return lost, true
		}
		klog.V(2).InfoS("Cannot tell yet whether the kernel sees OVN's marks, will retry", "err", err)
		select {
		case <-ctx.Done():
			return false, false
		case <-time.After(pause):
		}
	}
}

// nodeKeys asks for a look where a node's addresses may have changed.
func nodeKeys(old, new any) []string {
	o, _ := old.(*corev1.Node)
	n, _ := new.(*corev1.Node)
	if o != nil && n != nil && kube.SameNodeAddresses(o, n) {
		return nil
	}
	return []string{key}
}

func (c *Controller) reconcile(ctx context.Context, _ string) error {
	all, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	rules := noreroute.MarkRules(noreroute.NodeAddrs(kube.KnownNodes(all)), c.deps.NodeLocal, c.deps.Families)
	if err := c.deps.Chains.Apply(ctx, noreroute.Feature, rules); err != nil {
		return fmt.Errorf("mark what pods send to nodes: %w", err)
	}
	return nil
}
