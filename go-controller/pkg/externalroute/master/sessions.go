package master

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// sessionWait bounds one wait for a chassis: what is waited for may be lost with a
// database that starts again from a backup.
const sessionWait = 10 * time.Second

// Barrier waits until a chassis has in force what was written before.
type Barrier interface {
	Wait(ctx context.Context, chassis string) error
}

// sessions are the BFD sessions that ended in the database and that ovn-controller of
// their node may still have. It knows a session by its destination and by its source
// port, which northd gives to the next one: a session that is written again before the
// last one has ended there takes its place, and is never reported to be up.
type sessions struct {
	mu    sync.Mutex
	nodes map[string]*nodeSessions // of nodes that have a chassis, and had sessions
}

// nodeSessions are those of a node.
type nodeSessions struct {
	chassis string
	written map[netip.Addr]bool   // what the database has since the node was last written; nil where that is not known
	ending  map[netip.Addr]uint64 // when they ended, as a number that grows
	turn    uint64
	stop    context.CancelFunc // ends the wait for the chassis; nil where there is none
}

func newSessions() *sessions { return &sessions{nodes: map[string]*nodeSessions{}} }

// begin returns the sessions of a node that must not be written now. The database has
// those in have.
func (s *sessions) begin(node, chassis string, have map[netip.Addr]bool) map[netip.Addr]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[node]
	if n != nil && n.chassis != chassis { // the one before is not heard of again
		n.end()
		n = nil
		delete(s.nodes, node)
	}
	if n == nil {
		return nil
	}
	n.leave(n.written, have)
	held := map[netip.Addr]bool{}
	for a := range n.ending {
		if !have[a] {
			held[a] = true
		}
	}
	return held
}

// write notes what ends when a node that has some sessions is made to have others.
func (s *sessions) write(node, chassis string, have, want map[netip.Addr]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[node]
	if n == nil {
		if chassis == "" || len(have) == 0 && len(want) == 0 {
			return
		}
		n = &nodeSessions{chassis: chassis, ending: map[netip.Addr]uint64{}}
		s.nodes[node] = n
	}
	n.leave(have, want)
	n.written = nil // until it is known
}

// wrote notes what the database has now.
func (s *sessions) wrote(node string, has map[netip.Addr]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[node]; n != nil {
		n.written = has
	}
}

// leave notes that sessions are none any more, but for those that stay.
func (n *nodeSessions) leave(before, stay map[netip.Addr]bool) {
	for a := range before {
		if !stay[a] {
			n.turn++
			n.ending[a] = n.turn
		}
	}
}

// end ends the wait for the chassis.
func (n *nodeSessions) end() {
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

// awaitEnd waits until the chassis of a node has ended what ended, without holding
// anybody up, and has the node planned again.
func (c *Controller) awaitEnd(ctx context.Context, node string) {
	c.sessions.mu.Lock()
	defer c.sessions.mu.Unlock()
	n := c.sessions.nodes[node]
	if n == nil || n.stop != nil || len(n.ending) == 0 {
		return
	}
	ctx, n.stop = context.WithCancel(ctx)
	c.waits.Go(func() {
		for ctx.Err() == nil {
			if err := panics.Catch("externalroute-sessions", func() error { return c.ended(ctx, node, n) }); err != nil {
				klog.V(2).InfoS("A node has not ended its former BFD sessions yet", "node", node, "err", err)
			}
		}
	})
}

// ended waits once, and stops the wait when nothing is left to wait for.
func (c *Controller) ended(ctx context.Context, node string, n *nodeSessions) error {
	c.sessions.mu.Lock()
	turn := n.turn
	c.sessions.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	if err := c.deps.Barrier.Wait(limited, n.chassis); err != nil {
		return err
	}
	c.sessions.mu.Lock()
	for a, since := range n.ending {
		if since <= turn {
			delete(n.ending, a)
		}
	}
	if len(n.ending) == 0 {
		n.end()
	}
	c.sessions.mu.Unlock()
	c.Look(node)
	return nil
}

// moved are the destinations of BFD sessions among rows that their node reaches by another
// port now, as one does that gets a second uplink.
func moved(rows []nb.Row, node topology.Node) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for _, r := range rows {
		if b, ok := r.Model.(*nbdb.BFD); ok {
			if a, err := netip.ParseAddr(b.DstIP); err == nil && b.LogicalPort != node.UplinkPort(a) {
				found[a] = true
			}
		}
	}
	return found
}

// destinations are those of the BFD sessions among rows.
func destinations(rows []nb.Row) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for _, r := range rows {
		if b, ok := r.Model.(*nbdb.BFD); ok {
			if a, err := netip.ParseAddr(b.DstIP); err == nil {
				found[a] = true
			}
		}
	}
	return found
}
