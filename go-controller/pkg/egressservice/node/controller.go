package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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

	mu sync.Mutex
	// contributed holds what the chains have of each key, for keys that
	// contribute something; nil where writing failed half-way.
	contributed map[string]host.Rules
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	reader, err := snapshot.NewReader(deps.Informers, deps.ClusterSubnets)
	if err != nil {
		return nil, err
	}
	c := &Controller{deps: deps, reader: reader, contributed: map[string]host.Rules{}}
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
	if c.has(key, rules) {
		klog.V(4).InfoS("Rules are as wanted", "egressService", key)
		return nil
	}
	c.note(key, nil)
	if err := c.deps.Chains.Apply(ctx, egressservice.Contributor(key), rules); err != nil {
		return fmt.Errorf("apply rules of EgressService %s: %w", key, err)
	}
	c.note(key, rules)
	klog.V(2).InfoS("Rules written", "egressService", key, "families", len(rules))
	return nil
}

// has tells whether the chains have these rules of key already. On most nodes
// most EgressServices are none of their business, and even to find that nothing
// differs means to read the tables; what others do to them the chains' owner
// repairs.
func (c *Controller) has(key string, rules host.Rules) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.contributed[key]
	if !ok {
		return len(rules) == 0
	}
	return last != nil && maps.EqualFunc(last, rules, slices.Equal[[]host.Rule])
}

// note remembers what the chains have of key: nil where that is not known.
func (c *Controller) note(key string, rules host.Rules) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rules != nil && len(rules) == 0 {
		delete(c.contributed, key)
		return
	}
	c.contributed[key] = rules
}

// rules plans what this node contributes for key.
func (c *Controller) rules(key string) (host.Rules, error) {
	eg, err := c.reader.Object(key)
	if err != nil {
		return nil, err
	}
	if eg == nil {
		return host.Rules{}, nil
	}
	s, err := c.reader.Decode(eg)
	if err != nil {
		return nil, err
	}
	return egressservice.NodeState(s, c.deps.Node), nil
}
