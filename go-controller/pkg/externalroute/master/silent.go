package master

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// ovn-controller reports a change of a session's state once. If that transaction fails, for example because the disk of the
// southbound database is full or its server is replaced, the session counts as down until its state changes again, which may never
// happen: the gateway gets no traffic. A session that is down is therefore begun again. If the gateway does not answer, it
// stays down.
const (
	restartWait    = 5 * time.Second // before the first time
	restartWaitMax = 10 * time.Minute
)

// downSession is a session that is reported to be down.
type downSession struct {
	row nbdb.BFD
	due time.Time // when it is begun again
	// wait is the time between the last attempt, or the report, and due.
	wait time.Duration
}

// noteDown records which sessions of a node are down, given its rows. It must not be called concurrently.
func (c *Controller) noteDown(node string, rows []nb.Row) {
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
		if down[a] = c.down[node][a]; down[a] == nil {
			down[a] = &downSession{row: *b, due: time.Now().Add(restartWait), wait: restartWait}
		}
	}
	if c.down[node] = down; len(down) == 0 {
		delete(c.down, node)
	}
}

// restartDown begins those sessions of a node again that have been down for long enough, and has the node looked at again when the next
// ones have. It must not be called concurrently.
func (c *Controller) restartDown(ctx context.Context, node string) {
	var next time.Duration
	for a, s := range c.down[node] {
		if rest := time.Until(s.due); rest <= 0 {
			klog.V(2).InfoS("A BFD session is down, beginning it again", "node", node, "gateway", a, "after", s.wait)
			if err := c.deps.Writer.RestartBFD(ctx, s.row.LogicalPort, s.row.DstIP); err != nil {
				klog.V(2).InfoS("Cannot begin a BFD session again", "node", node, "gateway", a, "err", err)
			}
			s.wait = min(2*s.wait, restartWaitMax)
			s.due = time.Now().Add(s.wait)
		}
		if rest := time.Until(s.due); next == 0 || rest < next {
			next = rest
		}
	}
	if next > 0 {
		c.nodes.EnqueueAfter(next, node)
	}
}
