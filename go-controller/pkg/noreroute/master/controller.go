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

// Deps is what the controller works with. A feature that is not enabled has a
// nil PodSet; where both are nil everything is removed, but for the addresses of the
// nodes where others need them.
type Deps struct {
	// Addresses knows the hosts, whose addresses pods reach as if no feature existed.
	Addresses         *reservedsnapshot.Addresses
	Writer            nb.Database
	Network           noreroute.Network
	EgressIPPods      *noreroute.PodSet
	EgressServicePods *noreroute.PodSet
	// NodeIPs says that others refer to the addresses of the hosts.
	NodeIPs bool
}

// Controller owns the rows of noreroute.Feature.
type Controller struct {
	deps  Deps
	queue *queue.Controller
}

// New returns the controller. The informers of the addresses are started by the caller.
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

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx, 1) }

// Attempted is closed when the policies are in place for the first time.
func (c *Controller) Attempted() <-chan struct{} { return c.queue.Attempted() }

func (c *Controller) reconcile(ctx context.Context, _ string) error {
	if c.deps.EgressIPPods == nil && c.deps.EgressServicePods == nil {
		return c.remove(ctx)
	}
	written := c.written()
	// One after the other: a policy that names a set which is not there is no
	// policy to OVN.
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

// written returns what tells the sets that the database has them as they are now.
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

// nodeIPs writes the address set of the hosts and of what pods reach by their own node.
func (c *Controller) nodeIPs(ctx context.Context) error {
	return c.apply(ctx, noreroute.NodeIPs.Owner(), noreroute.NodeRows(c.deps.Network, c.deps.Addresses.Hosts()))
}

// pods writes the address set of a feature's pods. While the feature has not
// told them all, addresses are only added: one that is missing may belong to an
// object that could not be reconciled yet.
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

// remove deletes the policies before the address sets they name.
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
