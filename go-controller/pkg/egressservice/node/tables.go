package node

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Tables finds routing tables.
type Tables interface {
	// Find returns the number of the routing table of a network, which
	// is a number, a name in rt_tables or a VRF device; ok is false if there
	// is no such table, or if it has no routes.
	Find(network string) (number int, ok bool, err error)
}

// tablesInterval is the interval for looking up networks again.
const tablesInterval = 500 * time.Millisecond

// unnamed is a table number for which no rule is written.
const unnamed = -1

// table is the result of a network lookup.
type table struct {
	number  int
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
			klog.V(2).InfoS("Network found", "network", network, "table", t.number)
		}
	}
	return t
}

func (c *Controller) find(network string) table {
	number, ok, err := c.deps.Tables.Find(network)
	switch {
	case err != nil:
		return table{problem: fmt.Sprintf("the routing table of network %s cannot be looked up: %v", network, err)}
	case !ok:
		return table{problem: fmt.Sprintf("network %s has no routing table with routes", network)}
	}
	return table{number: number}
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
			if known && c.find(network) != last {
				c.queue.Enqueue(keys...)
			}
		}
	}
}
