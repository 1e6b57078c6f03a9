package master

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// ovn-controller reports a change of a session's state once. If that transaction fails, for example because the disk of the
// southbound database is full or its server is replaced, the session counts as down until its state changes again, which may
// never happen: the gateway gets no traffic. A session that is down is therefore restarted. If the gateway does not answer, it
// stays down.
const (
	restartWait    = 5 * time.Second // before the first time
	restartWaitMax = 10 * time.Minute
	// handshake is how many of the longer of its intervals a session may need to come up.
	handshake = 4
)

// downSession is a session that is reported to be down.
type downSession struct {
	row     nbdb.BFD
	chassis string    // that has the session
	due     time.Time // when it is restarted
	// wait is the time between the last attempt, or the report, and due.
	wait time.Duration
}

// noteDown records which sessions of a node are down, given its chassis and rows. It must not be called concurrently.
func (c *Controller) noteDown(node, chassis string, rows []nb.Row) {
	down := map[netip.Addr]*downSession{}
	for _, r := range rows {
		b, ok := r.Model.(*nbdb.BFD)
		if !ok || b.Status == nil || *b.Status == nbdb.BFDStatusUp {
			continue
		}
		a, err := netip.ParseAddr(b.DstIP)
		if err != nil {
			continue
		}
		s := c.down[node][a]
		if s == nil {
			interval := time.Duration(max(ptr.Deref(b.MinTx, 0), ptr.Deref(b.MinRx, 0))) * time.Millisecond
			wait := min(max(restartWait, handshake*interval), restartWaitMax)
			s = &downSession{row: *b, due: time.Now().Add(wait), wait: wait}
		}
		s.chassis, down[a] = chassis, s
	}
	if c.down[node] = down; len(down) == 0 {
		delete(c.down, node)
	}
}

// restartDown restarts those sessions of a node that have been down for long enough, in the background, and has the node looked at
// again when the next ones have. It must not be called concurrently.
func (c *Controller) restartDown(ctx context.Context, node string) {
	var next time.Duration
	for _, s := range c.down[node] {
		if time.Until(s.due) <= 0 {
			s.wait = min(2*s.wait, restartWaitMax)
			s.due = time.Now().Add(s.wait)
			c.restart(ctx, node, *s)
		}
		if rest := time.Until(s.due); next == 0 || rest < next {
			next = rest
		}
	}
	if next > 0 {
		c.nodes.EnqueueAfter(next, node)
	}
}

// restart restarts a session in the background, unless the database reports it as up once ovn-northd has passed on what the southbound
// database knows by now: a pass of it may take long.
func (c *Controller) restart(ctx context.Context, node string, s downSession) {
	c.waits.Go(func() {
		limited, cancel := context.WithTimeout(ctx, s.wait)
		defer cancel()
		err := panics.Catch("externalroute-restart", func() error {
			if err := c.deps.Barrier.Wait(limited, s.chassis); err != nil {
				return err
			}
			return c.deps.Writer.RestartBFD(limited, s.row.LogicalPort, s.row.DstIP)
		})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.V(2).InfoS("Cannot restart a BFD session that is down, will retry", "node", node, "gateway", s.row.DstIP, "after", s.wait, "err", err)
		default:
			klog.V(2).InfoS("Restarted a BFD session unless it has come up", "node", node, "gateway", s.row.DstIP)
		}
	})
}
