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
)

// sessionWait limits the first wait for a chassis: the awaited change may be lost if a
// database restarts from a backup. Later waits are longer, up to sessionWaitMax, because each of them
// makes every chassis report.
const (
	sessionWait    = 10 * time.Second
	sessionWaitMax = 10 * time.Minute
)

// Barrier waits until a chassis has applied everything written before.
type Barrier interface {
	Wait(ctx context.Context, chassis string) error
}

// sessions are the BFD sessions that were removed from the database but that ovn-controller of
// their node may still have. It identifies a session by its destination and its source
// port, which northd reuses for the next one: a session that is written again before the
// last one has ended there takes its place, and is never reported to be up.
type sessions struct {
	mu    sync.Mutex
	nodes map[string]*nodeSessions // by node, for nodes that have a chassis and had sessions
}

// nodeSessions are the sessions of a node.
type nodeSessions struct {
	chassis string
	written map[netip.Addr]bool   // content of the database since the node's last write; nil: unknown
	ending  map[netip.Addr]uint64 // when they ended, as an increasing number
	turn    uint64
	stop    context.CancelFunc // ends the wait for the chassis; nil: there is none
}

func newSessions() *sessions { return &sessions{nodes: map[string]*nodeSessions{}} }

// begin returns the sessions of a node that must not be written now. have are the sessions
// in the database.
func (s *sessions) begin(node, chassis string, have map[netip.Addr]bool) map[netip.Addr]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[node]
	if n != nil && n.chassis != chassis { // the previous chassis will not report any more
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

// write records which sessions end when those of a node change from have to want.
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
	n.written = nil // until wrote is called
}

// wrote records the current content of the database.
func (s *sessions) wrote(node string, has map[netip.Addr]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[node]; n != nil {
		n.written = has
	}
}

// leave records the end of sessions, except for those that stay.
func (n *nodeSessions) leave(before, stay map[netip.Addr]bool) {
	for a := range before {
		if !stay[a] {
			n.turn++
			n.ending[a] = n.turn
		}
	}
}

// end stops the wait for the chassis.
func (n *nodeSessions) end() {
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

// awaitEnd waits in the background until the chassis of a node has ended the removed sessions,
// and then has the node planned again.
func (c *Controller) awaitEnd(ctx context.Context, node string) {
	c.sessions.mu.Lock()
	defer c.sessions.mu.Unlock()
	n := c.sessions.nodes[node]
	if n == nil || n.stop != nil || len(n.ending) == 0 {
		return
	}
	ctx, n.stop = context.WithCancel(ctx)
	c.waits.Go(func() {
		for wait := sessionWait; ctx.Err() == nil; wait = min(2*wait, sessionWaitMax) {
			if err := panics.Catch("externalroute-sessions", func() error { return c.ended(ctx, node, n, wait) }); err != nil {
				klog.V(2).InfoS("A node has not ended its former BFD sessions yet", "node", node, "err", err)
			}
		}
	})
}

// ended waits once, and stops the waiting if nothing is left to wait for.
func (c *Controller) ended(ctx context.Context, node string, n *nodeSessions, wait time.Duration) error {
	c.sessions.mu.Lock()
	turn := n.turn
	c.sessions.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, wait)
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

// destinations returns the destinations of the BFD sessions among rows.
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
