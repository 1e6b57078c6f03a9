package master

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
)

// TestDeletionRemovesTheChassis: the chassis of a node that is gone goes, and before
// the rows: by these a restart knows that there is something to remove.
func TestDeletionRemovesTheChassis(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	var mu sync.Mutex
	fails, removed := true, map[string]bool{}
	c.chassis = func(_ context.Context, node string) error {
		mu.Lock()
		defer mu.Unlock()
		if len(c.nb.Rows(network.Owner(node))) == 0 {
			return nil // a seed for a node that never was
		}
		if fails {
			removed[node] = false
			return errors.New("the southbound database is away")
		}
		removed[node] = true
		return nil
	}
	c.start(cfg)
	c.addNode("a", 2)
	c.addNode("b", 3)
	c.waitFresh(cfg)
	c.deleteNode("a")
	c.wait("the first attempt", func() bool {
		mu.Lock()
		defer mu.Unlock()
		_, tried := removed["a"]
		return tried
	})
	c.stop()
	if len(c.nb.Rows(network.Owner("a"))) == 0 {
		t.Fatal("nobody knows any more that there is a chassis to remove")
	}
	mu.Lock()
	fails = false
	mu.Unlock()
	c.start(cfg)
	c.wait("the rows to go", func() bool { return len(c.nb.Rows(network.Owner("a"))) == 0 })
	mu.Lock()
	defer mu.Unlock()
	if !removed["a"] || removed["b"] {
		t.Errorf("removed are %v", removed)
	}
}
