package master

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
)

// key is the only key.
const key = "noreroute"

// Deps are the dependencies of the controller. The PodSet of a disabled feature is nil. If
// both are nil, everything is removed, except the addresses of the hosts if NodeIPs is set.
type Deps struct {
	// Addresses provides the hosts, whose addresses pods reach as if no feature existed.
	Addresses         *reservedsnapshot.Addresses
	Writer            nb.Database
	Network           noreroute.Network
	EgressIPPods      *noreroute.PodSet
	EgressServicePods *noreroute.PodSet
	// NodeIPs is true if others use the address set of the hosts.
	NodeIPs bool
}

// Controller owns the rows of noreroute.Feature.
type Controller struct {
	deps  Deps
	queue *queue.Controller
}

// New returns the controller. The caller starts the informers of Addresses.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps}
	c.queue = queue.New("noreroute", c.reconcile)
	if err := deps.Addresses.WatchHosts(c.queue, func() []string { return []string{key} }); err != nil {
		return nil, err
	}
	for _, pods := range []*noreroute.PodSet{deps.EgressIPPods, deps.EgressServicePods} {
		if pods != nil {
			pods.Follow()
			pods.Subscribe(func() { c.queue.Enqueue(key) })
		}
	}
	deps.Writer.OnDrift(func(o nb.Owner) {
		if o.Feature == noreroute.Feature {
			c.queue.Enqueue(key)
		}
	})
	c.queue.Seed(func() []string { return []string{key} })
	return c, nil
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx, 1) }

// Attempted is closed when the policies are in place for the first time.
func (c *Controller) Attempted() <-chan struct{} { return c.queue.Attempted() }

func (c *Controller) reconcile(ctx context.Context, _ string) error {
	if c.deps.EgressIPPods == nil && c.deps.EgressServicePods == nil {
		return c.remove(ctx)
	}
	written := c.written()
	// One after another: OVN ignores a policy that refers to a set which does not exist.
	if err := c.pods(ctx, noreroute.EgressIPPods, c.deps.EgressIPPods); err != nil {
		return err
	}
	if err := c.pods(ctx, noreroute.EgressServicePods, c.deps.EgressServicePods); err != nil {
		return err
	}
	if err := c.nodeIPs(ctx); err != nil {
		return err
	}
	if err := c.apply(ctx, noreroute.PolicyOwner, noreroute.PolicyRows(c.deps.Network)); err != nil {
		return err
	}
	written()
	return nil
}

// written returns a function that reports to the sets that the database has their present
// state.
func (c *Controller) written() func() {
	versions := map[*noreroute.PodSet]uint64{}
	for _, pods := range []*noreroute.PodSet{c.deps.EgressIPPods, c.deps.EgressServicePods} {
		if pods != nil {
			versions[pods] = pods.Version()
		}
	}
	return func() {
		for pods, version := range versions {
			pods.Written(version)
		}
	}
}

// nodeIPs writes the address sets of the hosts and of the ranges that pods reach through
// their own node.
func (c *Controller) nodeIPs(ctx context.Context) error {
	return c.apply(ctx, noreroute.NodeIPs.Owner(), noreroute.NodeRows(c.deps.Network, c.deps.Addresses.Hosts()))
}

// pods writes the address set of a feature's pods. Until the feature has reported all of
// them, addresses are only added: a missing one may belong to an object that could not be
// reconciled yet.
func (c *Controller) pods(ctx context.Context, set noreroute.Set, source *noreroute.PodSet) error {
	if source == nil {
		return c.apply(ctx, set.Owner(), noreroute.SetRows(c.deps.Network, set, nil))
	}
	addrs, complete := source.Addrs()
	if !complete {
		addrs = append(addrs, noreroute.Addrs(c.deps.Writer.Rows(set.Owner()))...)
	}
	return c.apply(ctx, set.Owner(), noreroute.SetRows(c.deps.Network, set, addrs))
}

// remove deletes the policies before the address sets that they refer to.
func (c *Controller) remove(ctx context.Context) error {
	if err := c.apply(ctx, noreroute.PolicyOwner, nil); err != nil {
		return err
	}
	nodeIPs := c.nodeIPs
	if !c.deps.NodeIPs {
		nodeIPs = func(ctx context.Context) error { return c.apply(ctx, noreroute.NodeIPs.Owner(), nil) }
	}
	return errors.Join(
		c.apply(ctx, noreroute.EgressIPPods.Owner(), nil),
		c.apply(ctx, noreroute.EgressServicePods.Owner(), nil),
		nodeIPs(ctx),
	)
}

func (c *Controller) apply(ctx context.Context, owner nb.Owner, rows []nb.Row) error {
	stats, err := c.deps.Writer.Apply(ctx, owner, rows)
	if err != nil {
		return fmt.Errorf("apply %s: %w", owner, err)
	}
	if stats.Zero() {
		klog.V(4).InfoS("Rows are up to date", "owner", owner)
	} else {
		klog.V(2).InfoS("Rows written", "owner", owner, "inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	return nil
}
