package master

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// southbound stands for the chassis in the southbound database: hostnames by chassis name.
type southbound struct {
	mu       sync.Mutex
	chassis  map[string]string
	away     bool
	attempts int
}

func (s *southbound) remove(_ context.Context, gone func(name, hostname string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.away {
		return errors.New("the southbound database is away")
	}
	for name, host := range s.chassis {
		if gone(name, host) {
			delete(s.chassis, name)
		}
	}
	return nil
}

func (s *southbound) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.chassis {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestDeletionRemovesTheChassis: the chassis of a node that is gone is deleted before its
// rows, from which a restart knows that something is left to delete.
func TestDeletionRemovesTheChassis(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	sb := &southbound{chassis: map[string]string{"chassis-a": "a", "chassis-b": "b"}}
	c.chassis = sb.remove
	c.start(cfg)
	c.addNode("a", 2)
	c.addNode("b", 3)
	c.waitFresh(cfg)
	sb.mu.Lock()
	sb.away, sb.attempts = true, 0
	sb.mu.Unlock()
	c.deleteNode("a")
	c.wait("the first attempt", func() bool {
		sb.mu.Lock()
		defer sb.mu.Unlock()
		return sb.attempts > 0
	})
	c.stop()
	if len(c.nb.Rows(network.Owner("a"))) == 0 {
		t.Fatal("nobody knows any more that there is a chassis to remove")
	}
	sb.mu.Lock()
	sb.away = false
	sb.mu.Unlock()
	c.start(cfg)
	c.wait("the rows to go", func() bool { return len(c.nb.Rows(network.Owner("a"))) == 0 })
	if got := sb.names(); !slices.Equal(got, []string{"chassis-b"}) {
		t.Errorf("what is left are %v", got)
	}
}

// TestSubnetOfANodeThatIsGone: as long as the rows of a node that is gone cannot be deleted, another node gets neither its subnets
// nor its join addresses, nor does a master that starts then give them away. Afterwards they are free.
func TestSubnetOfANodeThatIsGone(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/23")
	sb := &southbound{chassis: map[string]string{"chassis-a": "a"}}
	c.chassis = sb.remove
	c.start(cfg)
	c.addNode("a", 2)
	c.waitStatus("a", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64] False NetworkReady")
	setAway := func(away bool) {
		sb.mu.Lock()
		defer sb.mu.Unlock()
		sb.away = away
	}
	setAway(true)
	c.deleteNode("a")
	c.addNode("b", 3)
	c.waitStatus("b", "[10.244.1.0/24 fd00:10:244:2::/64] [100.64.0.3/16 fd98::3/64] False NetworkReady")
	c.stop()
	c.start(cfg)
	c.addNode("c", 4)
	c.waitStatus("c", "[] [100.64.0.4/16 fd98::4/64] True NoSubnetAvailable")
	setAway(false)
	c.waitStatus("c", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.4/16 fd98::4/64] False NetworkReady")
	c.addNode("d", 5)
	c.waitStatus("d", "[] [100.64.0.2/16 fd98::2/64] True NoSubnetAvailable")
}

// TestChassisOfANode: the chassis of a node that is gone is the one named in its rows,
// whatever its hostname, or the one whose hostname is the node's name, but never one that
// another node has now.
func TestChassisOfANode(t *testing.T) {
	for name, test := range map[string]struct {
		hosts map[string]string // of chassis
		now   string            // the chassis that node b has after the deletion of a
		want  []string
	}{
		"host with the node's name":      {map[string]string{"chassis-a": "a", "chassis-b": "b"}, "", []string{"chassis-b"}},
		"host with a longer name":        {map[string]string{"chassis-a": "a.example.com", "chassis-b": "b.example.com"}, "", []string{"chassis-b"}},
		"host with another name":         {map[string]string{"chassis-a": "x", "chassis-b": "y"}, "", []string{"chassis-b"}},
		"names of the hosts exchanged":   {map[string]string{"chassis-a": "b", "chassis-b": "a"}, "", []string{"chassis-b"}},
		"a chassis before":               {map[string]string{"before": "a", "chassis-a": "a", "chassis-b": "b"}, "", []string{"chassis-b"}},
		"the chassis is another node's":  {map[string]string{"chassis-a": "a"}, "chassis-a", []string{"chassis-a"}},
		"a stranger with a similar name": {map[string]string{"chassis-a": "a", "stranger": "a.example.com"}, "", []string{"stranger"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, cfg := newCluster(t), config("10.244.0.0/16")
			sb := &southbound{chassis: test.hosts}
			c.chassis = sb.remove
			c.start(cfg)
			c.addNode("a", 2)
			c.addNode("b", 3)
			c.waitFresh(cfg)
			if test.now != "" {
				c.deleteNode("b")
				c.wait("the rows of b to go", func() bool { return len(c.nb.Rows(network.Owner("b"))) == 0 })
				c.stop()
				c.deleteNode("a")
				c.addNode("b", 3, annotated(kube.AnnotationChassisID, test.now))
				c.start(cfg)
			} else {
				c.deleteNode("a")
			}
			c.wait("the rows of a to go", func() bool { return len(c.nb.Rows(network.Owner("a"))) == 0 })
			if got := sb.names(); !slices.Equal(got, test.want) {
				t.Errorf("what is left are %v, want %v", got, test.want)
			}
		})
	}
}

// TestNodeBackDuringRemoval: if a node is registered again while its former chassis is being deleted, its switch and router stay, with
// what other features have attached to them.
func TestNodeBackDuringRemoval(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	removing, back := make(chan struct{}), make(chan struct{})
	c.chassis = func(context.Context, func(name, hostname string) bool) error {
		close(removing) // once
		<-back
		return nil
	}
	ctl := c.start(cfg)
	c.addNode("a", 2)
	c.waitFresh(cfg)
	service := nb.Owner{Feature: "service", Object: "ns/web"}
	if _, err := c.nb.Apply(t.Context(), service, []nb.Row{{
		ID: "tcp", Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter("a")}, Model: &nbdb.LoadBalancer{Name: "web"},
	}}); err != nil {
		t.Fatal(err)
	}
	c.deleteNode("a")
	<-removing
	c.addNode("a", 2)
	c.wait("the node to be seen", func() bool { _, err := ctl.nodes.Get("a"); return err == nil })
	close(back)
	c.waitStatus("a", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64] False NetworkReady")
	if len(c.nb.Rows(service)) == 0 {
		t.Errorf("the load balancer has lost its router\n%s", c.nb.Dump())
	}
}
