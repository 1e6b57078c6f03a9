package node

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// key is the only key.
const key = "marks"

// pause is how long to wait after Open vSwitch could not be queried.
const pause = 500 * time.Millisecond

// Deps are the dependencies of the controller.
type Deps struct {
	Node string
	// Addresses provides the hosts, whose addresses pods reach as if no feature existed.
	Addresses *reservedsnapshot.Addresses
	Chains    host.ChainWriter
	// MarksLost reports whether packets to other hosts reach the kernel without the marks that OVN set.
	MarksLost func(ctx context.Context) (bool, error)
	// NodeLocal are ranges that pods reach through their own node.
	NodeLocal []netip.Prefix
	Families  []topology.Family
}

// Controller owns the chain of package noreroute.
type Controller struct {
	deps              Deps
	lost              bool // what MarksLost says; written before the queue runs
	queue             *queue.Controller
	attempted, synced chan struct{}
}

// New returns the controller. The caller starts the informers of Addresses.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps, attempted: make(chan struct{}), synced: make(chan struct{})}
	c.queue = queue.New("noreroute-node", c.reconcile)
	if err := deps.Addresses.WatchHosts(c.queue, func() []string { return []string{key} }); err != nil {
		return nil, err
	}
	c.queue.Seed(func() []string { return []string{key} })
	c.queue.OnAttempted(func(context.Context) error {
		close(c.attempted)
		return nil
	})
	return c, nil
}

// Attempted is closed when writing the rules was attempted once.
func (c *Controller) Attempted() <-chan struct{} { return c.attempted }

// Synced is closed when the kernel has the rules.
func (c *Controller) Synced() <-chan struct{} { return c.synced }

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	lost, known := c.marksLost(ctx)
	if !known {
		return nil
	}
	c.lost = lost
	go func() {
		if waits.Until(ctx, c.queue.Synced(), waits.Wait{Part: "noreroute-node", For: "the rules to be written once"}) {
			close(c.synced)
		}
	}()
	return c.queue.Run(ctx, 1)
}

// marksLost calls MarksLost until it succeeds; known is false if ctx ends before.
func (c *Controller) marksLost(ctx context.Context) (lost, known bool) {
	for {
		lost, err := c.deps.MarksLost(ctx)
		if err == nil {
			return lost, true
		}
		klog.V(2).InfoS("Cannot determine yet whether the kernel sees OVN's marks, will retry", "err", err)
		select {
		case <-ctx.Done():
			return false, false
		case <-time.After(pause):
		}
	}
}

func (c *Controller) reconcile(ctx context.Context, _ string) error {
	// OVN leads what pods send to their own node there without a mark. If such a packet is for a host port, the kernel
	// sends it on to another pod, and without the mark it would be taken for one that leaves the cluster.
	hosts, nodeLocal := c.deps.Addresses.HostsOf(c.deps.Node), []netip.Prefix(nil)
	if c.lost {
		hosts, nodeLocal = append(hosts, c.deps.Addresses.Hosts()...), c.deps.NodeLocal
	}
	rules := noreroute.MarkRules(hosts, nodeLocal, c.deps.Families)
	if err := c.deps.Chains.Apply(ctx, noreroute.Feature, rules); err != nil {
		return fmt.Errorf("mark what pods send to hosts: %w", err)
	}
	return nil
}
