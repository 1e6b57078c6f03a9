package node

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// workers is how many EgressServices are reconciled at the same time; the chain
// driver writes the changes of all that wait in one go.
const workers = 4

// Deps is what the controller works with.
type Deps struct {
	// Node is the name of this node.
	Node string
	// Informers are started by the caller after New.
	Informers snapshot.Informers
	// Chains owns the chains that egressservice.Chains declares.
	Chains host.ChainWriter
	// ClusterSubnets are the pod subnets of the cluster.
	ClusterSubnets []netip.Prefix
}

// Controller serves the EgressServices whose host is this node.
type Controller struct {
	deps   Deps
	reader *snapshot.Reader
	queue  *queue.Controller

	mu    sync.Mutex
	hosts map[string]bool // keys whose last contribution was not empty
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	reader, err := snapshot.NewReader(deps.Informers, deps.ClusterSubnets)
	if err != nil {
		return nil, err
	}
	c := &Controller{deps: deps, reader: reader, hosts: map[string]bool{}}
	c.queue = queue.New("egressservice-node", c.reconcile)
	c.queue.Seed(reader.Keys)
	return c, reader.Watch(c.queue, func(_ snapshot.Kind, key string) []string { return []string{key} })
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx, workers) }

// Seeded is closed when every EgressService that was there at the start has been
// reconciled: from then on the chains may be swept.
func (c *Controller) Seeded() <-chan struct{} { return c.queue.Seeded() }

func (c *Controller) reconcile(ctx context.Context, key string) error {
	rules, err := c.rules(key)
	if err != nil {
		return err
	}
	if !c.concerned(key, len(rules) > 0) {
		return nil
	}
	if err := c.deps.Chains.Apply(ctx, egressservice.Contributor(key), rules); err != nil {
		return fmt.Errorf("apply rules of EgressService %s: %w", key, err)
	}
	c.mu.Lock()
	c.hosts[key] = len(rules) > 0
	c.mu.Unlock()
	klog.V(4).InfoS("Rules are as wanted", "egressService", key, "families", len(rules))
	return nil
}

// concerned tells whether there is anything to write for key. On most nodes most
// EgressServices are none of their business, and even to find that nothing
// differs means to read the tables.
func (c *Controller) concerned(key string, wants bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wants {
		c.hosts[key] = true // even where writing fails half-way
	}
	had := c.hosts[key]
	if !had {
		delete(c.hosts, key)
	}
	return had
}

func (c *Controller) rules(key string) (host.Rules, error) {
	eg, err := c.reader.Object(key)
	if err != nil || eg == nil {
		return nil, err
	}
	s, err := c.reader.Decode(eg)
	if err != nil {
		return nil, err
	}
	return egressservice.NodeState(s, c.deps.Node), nil
}
