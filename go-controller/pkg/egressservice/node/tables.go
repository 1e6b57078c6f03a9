package node

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// Tables finds routing tables.
type Tables interface {
	// Find returns the routing table of a network, which is a number, a
	// name in rt_tables or a VRF device; ok is false if there is no such
	// table, or if it has no routes.
	Find(network string) (t host.RoutingTable, ok bool, err error)
}

// tablesInterval is the interval for looking up networks again.
const tablesInterval = 500 * time.Millisecond

// unnamed is a table for which no rule is written.
var unnamed = host.RoutingTable{Number: -1}

// table is the result of a network lookup.
type table struct {
	host.RoutingTable
	problem string // why there is no table
}

// lookup finds the table of a network and caches it.
func (c *Controller) lookup(network string) table {
	t := c.find(network)
	c.mu.Lock()
	last, known := c.networks[network]
	c.networks[network] = t
	c.mu.Unlock()
	if !known || last != t {
		if t.problem != "" {
			klog.InfoS("Network cannot be used, its traffic takes the usual routes", "network", network, "reason", t.problem)
		} else {
			klog.V(2).InfoS("Network found", "network", network, "table", t.Number, "vrf", t.VRF)
		}
	}
	return t
}

func (c *Controller) find(network string) table {
	t, ok, err := c.deps.Tables.Find(network)
	switch {
	case err != nil:
		return table{problem: fmt.Sprintf("the routing table of network %s cannot be looked up: %v", network, err)}
	case !ok:
		return table{problem: fmt.Sprintf("network %s has no routing table with routes", network)}
	}
	return table{RoutingTable: t}
}

// watchTables repeats the lookup of networks as long as any EgressService names one.
func (c *Controller) watchTables(ctx context.Context) {
	tick := time.NewTicker(tablesInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for network, keys := range c.keysOf() {
			c.mu.Lock()
			last, known := c.networks[network]
			c.mu.Unlock()
			if !known || c.find(network) == last {
				continue
			}
			c.mu.Lock()
			delete(c.networks, network) // whoever still needs it looks it up again
			c.mu.Unlock()
			c.queue.Enqueue(keys...)
		}
	}
}
